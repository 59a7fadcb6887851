"""`make eval-rules`: its counts, and its errors about unusable files."""

import json
from pathlib import Path
from typing import Any

import pytest

from afterturn.types import Target
from lab.rules_eval import Case, Expected, as_text, main, measure, score

LABELLED: list[dict[str, Any]] = [
    {
        "text": "I prefer tea over coffee.",
        "language": "en",
        "lessons": [{"kind": "preference", "target": "user", "gist": ["tea", "coffee"]}],
    },
    {"text": "I live in Oslo.", "language": "en", "lessons": [], "why": "test"},
    {
        "text": "Kutsu minua Pekaksi.",
        "language": "it",
        "lessons": [{"kind": "name", "target": "user", "gist": ["gigi"]}],
    },
    {"text": "Thanks!", "language": "en", "lessons": [], "why": "chat"},
]
ITEMS = [
    ("Ann", "I'm allergic to nuts."),
    ("Ben", "Oh no."),
    ("assistant", "Call me Hal."),
    ("Ann", "Never mind."),
]


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    path = tmp_path / "labelled.jsonl"
    path.write_text("\n".join(map(json.dumps, LABELLED)), encoding="utf-8")
    return path


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    items = [
        {"id": str(at), "session": "1", "date": "1 May, 2023", "speaker": speaker, "text": text}
        for at, (speaker, text) in enumerate(ITEMS)
    ]
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([{"conv_id": "one", "items": items, "questions": []}]), encoding="utf-8")
    return path


def case(text: str, *expected: Expected, also: tuple[tuple[str, ...], ...] = ()) -> Case:
    return Case(text, "en", (), expected, also)


def test_both_halves_together_hold_every_message(labelled: Path):
    """V11: a message is in the open half or held out, by its own hash."""
    parts = measure([labelled]).scores["labelled"]
    assert sum(part.messages for part in parts.values()) == len(LABELLED)
    assert sum(part.right for part in parts.values()) == 1
    assert [text for part in parts.values() for text in part.missed] == ["Kutsu minua Pekaksi."]
    assert [text for part in parts.values() for text in part.wrong] == ["The user lives in Oslo <- I live in Oslo."]


def test_a_lesson_about_the_wrong_thing_is_wrong_and_missed():
    """V11: the target counts, and a lesson that nobody expects counts against precision."""
    found = score([case("Never force-push.", Expected("rule", Target.USER, ("force-push",)))]).figures()
    assert (found["precision"], found["recall"]) == (0.0, 0.0)


def test_optional_lessons_count_neither_way():
    """V11: a second lesson beside the expected one is no mistake where the label allows it."""
    said = "My name is Maximilian but call me Max."
    expected = Expected("name", Target.USER, ("call", "max"))
    assert score([case(said, expected, also=(("maximilian",),))]).figures()["wrong"] == 0
    assert score([case(said, expected)]).figures()["wrong"] == 1


def test_every_person_is_a_user_and_no_assistant_is(talk: Path):
    """V11: writes are counted per user turn."""
    writes = measure([talk]).writes["talk"]
    assert writes.figures()["writes_per_200_turns"] == pytest.approx(200 / 3)
    assert [lesson.text for _, lesson in writes.found] == ["The user is allergic to nuts"]


def test_the_command_prints_figures_and_examples(labelled: Path, talk: Path, capsys: pytest.CaptureFixture[str]):
    """V11: what was measured can be read by people and by programs."""
    assert main([str(labelled), str(talk), "--show", "3"]) == 0
    told = capsys.readouterr().out
    assert "written: fact, user: The user is allergic to nuts" in told
    assert main([str(labelled), str(talk), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["talk"]["user_turns"] == 3
    assert sum(part["messages"] for part in figures["labelled"].values()) == len(LABELLED)


def test_the_share_of_answers_that_teach_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """V11: of the messages that the questions ask for, how many are the source of something learned."""
    said = ["my vet is Dr Okafor", "the vet's nice", "hello"]
    user = {
        "questions": [{"right": ["vet"]}],
        "sessions": [{"exchanges": [{"user": text, "assistant": "ok"} for text in said]}],
    }
    path = tmp_path / "lived.json"
    path.write_text(json.dumps({"users": [user]}), encoding="utf-8")
    assert main([str(path)]) == 0
    assert "1 of 2 messages that answer a question teach something, 0.500" in capsys.readouterr().out


def test_held_out_messages_are_never_shown(tmp_path: Path):
    """V11: or the next rule would be written for it."""
    rows = [{"text": f"I live in Oslo {number}.", "language": "en", "lessons": []} for number in range(40)]
    path = tmp_path / "many.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    measured = measure([path])
    told = as_text(measured, shown=100)
    assert all(line in told for line in measured.scores["many"]["dev"].wrong)
    assert not any(line in told for line in measured.scores["many"]["held_out"].wrong)


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"text": "a"}', '{"lessons": [1], "text": "a", "language": "en"}', "3"]
)
def test_a_file_of_no_use_is_named(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """V11: a figure is never made from a file that was not understood."""
    for name in ("odd.jsonl", "odd.json"):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        assert main([str(path)]) == 2
        assert name in capsys.readouterr().err
