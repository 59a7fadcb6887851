"""The tables of docs/dialects.md match the dialects. Run as a program, this file writes them."""

import json
import re
from pathlib import Path

import pytest
from histories import NAMES, RESULTS, SYSTEM, Call, Step, Turn, write

from afterturn.dialects import get_dialect
from afterturn.dialects.history import find_point

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dialects.md"
POINTS = {"user_message": "the user's message", "tool_result": "the tool results"}
ONE_CALL = Turn("Hi", steps=(Step("", (Call("a", "f", "x"),), thinks=True),), answer="Yes.", thinks=True)


def blocks() -> list[str]:
    """Shape and position of a block at both points."""
    rows = ["| dialect | after | appended | merged |", "|---|---|---|---|"]
    for name in NAMES:
        dialect = get_dialect(name)
        messages = write(name, [ONE_CALL])
        for at in range(1, len(messages)):
            point = find_point(dialect, messages[:at])
            if point is not None:
                merged = dialect.merged(messages[at - 1], "…")
                appended = "merged" if dialect.alternates else shown(dialect.make_message("user", "…"))
                cells = [appended, shown(merged) if merged else "appended"]
                rows.append(f"| `{name}` | {POINTS[point]} | {' | '.join(cells)} |")
    return rows


SHOWN = {
    "openai_chat": {
        "image": {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "…"}}]},
        "instructions": SYSTEM["openai_chat"][1],
    },
    "openai_responses": {
        "image": {"role": "user", "content": [{"type": "input_image", "image_url": "…"}]},
        "instructions": SYSTEM["openai_responses"][0],
        "reasoning": {"type": "reasoning", "id": "r", "summary": []},
    },
    "anthropic": {
        "image": {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "…"}}]},
        "reasoning and words": {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "…"}, {"type": "text", "text": "Yes."}],
        },
    },
    "gemini": {
        "image": {"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": "…"}}]},
        "reasoning and words": {"role": "model", "parts": [{"text": "…", "thought": True}, {"text": "Yes."}]},
    },
    "langchain": {
        "image": {"type": "human", "content": [{"type": "image", "url": "…"}]},
        "instructions": SYSTEM["langchain"][0],
        "summary": {"type": "human", "content": "…", "additional_kwargs": {"lc_source": "summarization"}},
        "reasoning and words": {
            "type": "ai",
            "content": [{"type": "reasoning", "reasoning": "…"}, {"type": "text", "text": "Yes."}],
        },
    },
    "bedrock": {
        "image": {"role": "user", "content": [{"image": {"format": "png", "source": {"s3Location": {"uri": "…"}}}}]},
        "guarded text": {"role": "user", "content": [{"guardContent": {"text": {"text": "…"}}}]},
        "words with citations": {
            "role": "assistant",
            "content": [{"citationsContent": {"content": [{"text": "Yes."}], "citations": [{"title": "…"}]}}],
        },
    },
}


def reading() -> list[str]:
    """Roles, texts, calls and answers of what each format has."""
    rows = ["| dialect | element | says | calls | answers |", "|---|---|---|---|---|"]
    for name in NAMES:
        call = next(message for message in write(name, [ONE_CALL]) if read(name, message).calls)
        elements = {"call": call, "response": RESULTS[name], **SHOWN[name]}
        for title, element in elements.items():
            found = read(name, element)
            said = ", ".join(f"{one.role}: {one.text!r}" for one in found.utterances) or "nothing"
            rows.append(
                f"| `{name}` | {title}: {shown(element)} | {said} | {named(found.calls)} | {named(found.answers)} |"
            )
    return rows


def read(name: str, message: object):
    element = get_dialect(name).read(message)
    assert element is not None
    return element


def named(ids: tuple[str, ...]) -> str:
    return ", ".join(f"`{id}`" for id in ids)


def shown(element: object) -> str:
    return f"`{json.dumps(element, ensure_ascii=False)}`"


TABLES = {"blocks": blocks, "reading": reading}


def written(page: str, name: str, rows: list[str]) -> str:
    """The page with the table under its marker replaced."""
    marker = re.compile(rf"(<!-- {name}: [^\n]*-->\n)(?:\n(?:\|[^\n]*\n)+)?")
    assert len(marker.findall(page)) == 1
    return marker.sub(lambda found: found[1] + "\n" + "\n".join(rows) + "\n", page)


@pytest.mark.parametrize("name", TABLES)
def test_the_page_shows_what_the_dialects_do(name):
    """H1, C1, C6: the shape of a block at both points, and what is read as what, in each format."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page, name, TABLES[name]())


def test_the_page_names_every_dialect_at_both_points():
    """H1: one table gives shape and position at both points."""
    rows = [row.split(" | ")[:2] for row in blocks()[2:]]
    assert rows == [[f"| `{name}`", after] for name in NAMES for after in POINTS.values()]


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    for table, make in TABLES.items():
        text = written(text, table, make())
    PAGE.write_text(text, encoding="utf-8")
