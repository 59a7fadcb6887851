"""Every parser and renderer as a function of hostile input. Each checks its promise by `assert`.

A parser may refuse an input with its own error, and with no other. What a renderer wrote is read back as it was, or
shows that it stayed in its form: one line, one block, no control characters.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import os
import tempfile
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import afterturn
from afterturn import blocking
from afterturn.config import Config, load_config
from afterturn.conversation.compactor import SnapshotMalformed, parse_snapshot, transcribe
from afterturn.conversation.recording import Recording
from afterturn.conversation.tools import holds_answer
from afterturn.dialects import DIALECTS, find_dialect
from afterturn.dialects.history import curated, find_latest_user, find_point, find_safe_cuts, read_exchange
from afterturn.errors import (
    AfterturnError,
    ConfigError,
    InvalidFile,
    InvalidInput,
    ModelError,
    SelectionVoid,
)
from afterturn.guard.output_filter import neutralise, neutralise_lines, neutralise_quote
from afterturn.guard.pasted import split_pasted, typed_text
from afterturn.hosts.cli.app import run as run_command
from afterturn.hosts.cli.commands.program_import import ImportPlace, LibraryChoices, plan_library
from afterturn.hosts.cli.commands.transfer import LIBRARIES, LineReader
from afterturn.hosts.cli.output import one_line, safe, safe_json
from afterturn.hosts.hooks.clients import CLIENTS as HOOK_CLIENTS
from afterturn.hosts.hooks.events import HookAnswer, InvalidPayload
from afterturn.hosts.server.grant import Grant
from afterturn.hosts.server.tools import call_tool, definitions
from afterturn.hosts.transcripts.coding_agents import LINE_TRANSCRIPTS
from afterturn.hosts.transcripts.libraries import make_reader, read_library
from afterturn.learning.changes import read_answer, read_call
from afterturn.learning.rules import find_lessons
from afterturn.models.chat import CHAT, read_reply
from afterturn.models.client import Reply, ReplyReader
from afterturn.recall import block, rerank
from afterturn.recall.block import Excerpt
from afterturn.recall.times import parse_range
from afterturn.space import markdown
from afterturn.standing.block import StandingBudget, StandingContent, render_standing
from afterturn.standing.context_files import ContextFile, ContextFolders, Tier, read_standing, read_touched
from afterturn.standing.memories import StandingMemories
from afterturn.testing.entries import NOW, entry, hit
from afterturn.text import content_hash, cut, estimate_tokens, terms
from afterturn.types import Entry, Filter, Kind, Message, Origin, Status
from afterturn.utterance import read_utterance
from afterturn.validation import check_name

_CONTROL = {"Cc", "Cs"}


@dataclass(frozen=True, slots=True)
class Target:
    """`check` takes a text, a document as JSON has it, or a list of texts. Whatever it raises is a fault."""

    name: str
    takes: Literal["text", "document", "texts"]
    check: Callable[[Any], object]


def _admitted(text: str) -> str:
    """As the guard leaves a text that it stores."""
    clean = unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode()).replace("\x00", "").strip()
    return clean[:2_000].strip() or "x"


def _bytes(text: str) -> bytes:
    """The bytes of a file. Those that were not UTF-8 are in a text as surrogates."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _joined(text: str) -> str:
    """Two halves of a character are one in JSON."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _is_printable(text: str) -> bool:
    return not any(unicodedata.category(one) in _CONTROL and one not in "\n\t" for one in text)


# Messages of hosts


def read_messages(value: Any) -> None:
    """Any list in any format: nothing raises, nothing is changed, and the valid view of a valid view is the same."""
    messages = value if isinstance(value, list) else [value]
    before = repr(messages)
    find_dialect(messages)
    for dialect in DIALECTS.values():
        for message in messages:
            dialect.recognises(message)
            element = dialect.read(message)
            extended = dialect.merged(message, "BLOCK")
            if element is not None and extended is not None:
                read = dialect.read(extended)
                assert read is not None
                assert any("BLOCK" in one.text for one in read.utterances)
        find_latest_user(dialect, messages, str)
        find_point(dialect, messages)
        find_safe_cuts(dialect, messages)
        read_exchange(dialect, messages, 0, str)
        transcribe(dialect, messages, tokens_max=2_000)
        view = curated(dialect, messages)
        assert repr(curated(dialect, view)) == repr(view)
    assert repr(messages) == before


def write_messages(text: str) -> None:
    """What a dialect writes in a role, it reads as the words of that role."""
    for dialect in DIALECTS.values():
        for role in ("user", "assistant"):
            element = dialect.read(dialect.make_message(role, text))
            assert element is not None
            assert element.text_of(role) == text
            assert not element.is_untrusted


def split_typed(text: str) -> None:
    spans = split_pasted(text)
    assert "".join(text[span.start : span.end] for span in spans) == text
    assert len(typed_text(text)) <= len(text) + len(spans)
    find_lessons([("user", text)])


_HOOK_FIELDS = """
    prompt submitted_prompt tool_input toolArgs tool_response toolResult last_assistant_message prompt_response source
    cwd transcript_path prompt_id agent_id agent_type tool_name toolName tool_use_id
""".split()


def read_hook_payload(value: Any) -> None:
    """Any value in any field of a client's event: an event, or InvalidPayload. The answer is always JSON."""
    session = {"session_id": "s", "sessionId": "s"}
    payloads = [{**session, name: value} for name in _HOOK_FIELDS]
    payloads += [value, {**value, **session}] if isinstance(value, dict) else [{"session_id": value}]
    for client in HOOK_CLIENTS.values():
        for event_name, payload in itertools.product(client.kinds, payloads):
            with contextlib.suppress(InvalidPayload):
                event = client.read(event_name, payload)
                if event is not None:
                    assert event.session.isprintable()
                    json.dumps(client.write(event, HookAnswer(event.text, "refused"))).encode()
    for reader in LINE_TRANSCRIPTS.values():
        reader.messages(value if isinstance(value, dict) else {"type": "user", "message": value, "content": value})


# Files


def import_lines(text: str) -> None:
    """Each line is a draft or a line with a reason."""
    reader = LineReader(Config(), keep_origin=True)
    reader.read(_bytes(text).splitlines(keepends=True))
    read = LineReader(Config(), keep_origin=False).read([json.dumps({"text": text}).encode()])
    assert len(read.drafts) + len(read.bad) == 1


def import_document(value: Any) -> None:
    exported = [b'{"afterturn_export": 1}', json.dumps({"entry": value}).encode(), json.dumps(value).encode()]
    LineReader(Config(), keep_origin=True).read(exported)


_SPACE_PER_USER = LibraryChoices((), None, None, space_per_user=True, skip_bad=True, keep_origin=True)
# A field of each form that a reader of a library's export knows, and what it needs next to it.
_EXPORTED: tuple[dict[str, Any], ...] = (
    *({name: "x"} for name in ("memory", "fact", "content", "text", "value")),
    *(
        {"role": "user", "content": "x"},
        {"message_type": "user_message", "content": "x"},
        {"label": "human", "value": "x"},
    ),
    *({"agents": [{"messages": [{}]}], "blocks": [{}]}, {"core_memory": [{}], "messages": [{}]}, {"messages": [{}]}),
    {"namespace": ["a"], "key": "k", "value": {"text": "x"}},
)
_EXPORT_FIELDS = """
    user_id agent_id metadata categories created_at updated_at expiration_date valid_at invalid_at expired_at attributes
    uuid thread_id role role_type content tool_calls label value name tags namespace key text memory fact results items
    edges episodes messages next
""".split()


def read_libraries(value: Any) -> None:
    """Any value in any field of an export: drafts, refused items, or InvalidFile. Nobody gets memories of another."""
    items = [{**one, name: value} for one in _EXPORTED for name in _EXPORT_FIELDS]
    contents = [json.dumps(value), "\n".join(map(json.dumps, items)), json.dumps({"results": value})]
    for content in contents:
        _read_exports(content.encode())


def read_library_text(text: str) -> None:
    _read_exports(_bytes(text))
    _read_exports(b'{"memory": "x"}\n' + _bytes(text))


def _unreported(done: int, total: int) -> None:
    """The progress that nobody watches."""


def _read_exports(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "export.json"
        file.write_bytes(content)
        for library in LIBRARIES:
            pattern = "{user}" if library == "langgraph" else None
            with contextlib.suppress(InvalidFile):
                export = read_library(make_reader(library, pattern), file, NOW, _unreported)
                owners = {fact.owner for fact in export.facts} | {found.owner for found in export.conversations()}
                place = ImportPlace(file, "user:ada", None)
                plan = plan_library(export, Config(), _SPACE_PER_USER, _unreported, place)
                assert plan.spaces.keys() <= owners - {""}
                assert all(_is_printable("".join(row)) for row in plan.rows)
                assert not any(draft.pinned or draft.firm for drafts in plan.spaces.values() for draft in drafts)


def read_markdown(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        markdown.parse(text)


def write_markdown(texts: Sequence[str]) -> None:
    """What nobody edited changes nothing."""
    entries = [entry(_admitted(text), id=f"e{at:03}0") for at, text in enumerate(texts)]
    written = markdown.render("user:ada", entries)
    assert _is_printable(written)
    found = markdown.compare(
        markdown.parse(written), {one.ref: one for one in entries}, {one.id: one for one in entries}
    )
    assert not found.edits
    assert not found.skipped


def read_settings(text: str) -> None:
    """As a file, and as the value of each kind of variable."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_bytes(_bytes(text))
        with contextlib.suppress(ConfigError):
            load_config(environment={}, path=path)
    for name in ("GRACE", "RECORDING", "SPACE", "RECALL_ENTRIES_MAX"):
        with contextlib.suppress(AfterturnError):
            load_config(environment={f"AFTERTURN_{name}": text}, path=Path(os.devnull))


def read_recording(value: Any) -> None:
    with contextlib.suppress(InvalidFile):
        Recording.from_json(value if isinstance(value, str) else json.dumps(value))


def write_recording(text: str) -> None:
    text = _joined(text)
    said = (Message("user", text, "user", content_hash(text)), Message("tool", _joined(text[::-1]), text[:20], ""))
    recording = Recording("default", "user:ada", "c", text[:40], "user:ada", 1.0, 0, "", said, ended_at=2.0)
    assert Recording.from_json(recording.to_json()) == recording


# Answers of models


def read_model_answer(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        for name, arguments in read_answer(text):
            with contextlib.suppress(InvalidInput):
                read_call(name, arguments)
    with contextlib.suppress(SelectionVoid):
        rerank.parse(text, _MANIFEST, entries_max=3)
    with contextlib.suppress(SnapshotMalformed):
        snapshot = parse_snapshot(text)
        assert parse_snapshot(snapshot.text) == snapshot
    holds_answer(text)
    body = _bytes(text)
    with contextlib.suppress(ModelError):
        read_reply(_READER, Reply(200, {}, body))


def read_model_document(value: Any) -> None:
    read_model_answer(json.dumps(value))
    read_model_answer(json.dumps({"operations": [value], "ids": value}))
    for name in ("add_memory", "update_memory", "delete_memory"):
        with contextlib.suppress(InvalidInput):
            read_call(name, value)
    with contextlib.suppress(ModelError):
        body = json.dumps({"choices": [{"message": value}], "usage": value}).encode()
        read_reply(_READER, Reply(200, {}, body))


_MANIFEST = rerank.Manifest("1. tea\n2. milk", (hit("tea"), hit("milk", id="e002")))
_READER = ReplyReader(CHAT, "http://localhost/v1", "")


# What models and people are shown


def write_block(texts: Sequence[str]) -> None:
    """One block, one line for each memory, and it is found and removed by its hash."""
    origins = list(Origin)
    hits = [hit(_admitted(text), id=f"e{at:03}", origin=origins[at % len(origins)]) for at, text in enumerate(texts)]
    written = block.render([Excerpt(one, one.entry.text) for one in hits], now=NOW)
    assert len(written.text.split("\n")) == 4 + len(hits)
    assert len(written.text.splitlines()) == 4 + len(hits)
    (found,) = block.find_blocks(written.text)
    assert found.hash == written.hash
    for text in texts:
        around = f"{text}\n\n{written.text}"
        assert written.text not in block.strip_blocks(around, {written.hash})
    assert _is_printable(written.text)


def write_standing(texts: Sequence[str]) -> None:
    """Nothing leaves the block or is longer than its room."""
    entries = tuple(entry(_admitted(text), id=f"e{at:03}") for at, text in enumerate(texts))
    files = tuple(ContextFile(f"/x/{at}/{text[:30]}", Tier.ENVIRONMENT, text) for at, text in enumerate(texts))
    content = StandingContent(files, tuple(texts), StandingMemories(entries), entries[:1])
    made = render_standing(content, StandingBudget(4_000, 500))
    assert len(made.text.encode("utf-8", "surrogatepass")) <= 4_000
    assert made == render_standing(content, StandingBudget(4_000, 500))
    if made.text:
        lines = made.text.split("\n")
        assert made.text.count(lines[-1]) == 1


def filter_output(text: str) -> None:
    """A filtered text stays as it is when it is filtered again."""
    for apply in (neutralise, neutralise_lines, neutralise_quote):
        once = apply(text)
        assert apply(once) == once
        assert _is_printable(once)
    assert len(neutralise(text).splitlines()) <= 1


def print_text(text: str) -> None:
    assert _is_printable(safe(text))
    assert len(one_line(text).splitlines()) <= 1
    shown = safe_json(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(shown) == {"text": _joined(text)}


def read_text(text: str) -> None:
    """Functions that read any text on its way."""
    terms(text)
    estimate_tokens(text)
    read_utterance(text)
    parse_range(text, NOW)
    assert len(cut(text, 100, "…").encode("utf-8", "surrogatepass")) <= 100
    with contextlib.suppress(InvalidInput):
        assert _is_printable(check_name(text, "project"))


def read_context_files(text: str) -> None:
    """No path leads out of the root."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "root"
        root.mkdir()
        (root / "AGENTS.md").write_text("inside", encoding="utf-8")
        (root.parent / "AGENTS.md").write_text("outside", encoding="utf-8")
        places = ContextFolders(None, (str(root),), ("AGENTS.md", "passwd"), 1_000)
        also = (text, f"{text}/AGENTS.md", os.path.join(str(root), text))
        for found in (read_standing(places, also), read_touched(places, also, ())):
            assert all(Path(file.path).is_relative_to(root) for file in found.files)


# A whole store, through the library and the command line


def use_store(texts: Sequence[str]) -> dict[str, int]:
    """What is added is exported, imported and listed as it was, and no command prints a control character.

    Returns how many texts were added and recorded, how many different ones another store has, and how many commands
    printed something.
    """
    with tempfile.TemporaryDirectory() as folder:
        first, second, file = f"{folder}/a.db", f"{folder}/b.db", f"{folder}/export.jsonl"
        with blocking.open(first, {"embedder": "none"}) as memory:
            kept = [added for text in texts if (added := _add(memory.space("user:ada"), text)) is not None]
            _converse(memory, texts)
            assert memory.drain()
            recorded = memory.space("user:ada").list(limit=200, filter=Filter(kind=Kind.RECORD))
        assert _run("export", file, store=first)[0] == 0
        assert _run("import", file, "--keep-origin", store=second)[0] == 0
        with blocking.open(second, {"embedder": "none"}) as memory:
            # What an assistant said in a tainted turn is imported as an import, which may be quarantined.
            everything = Filter(statuses=(Status.ACTIVE, Status.QUARANTINED))
            listed = {one.text for one in memory.space("user:ada").list(limit=200, filter=everything)}
        assert {one.text for one in (*kept, *recorded)} <= listed
        question = next((text for text in texts if text.strip()), "x")
        printing = 0
        for command in (
            *(
                ("list",),
                ("list", "--json"),
                ("edit", "--print"),
                ("profile",),
                ("history",),
                ("trace", "c"),
                ("inbox",),
            ),
            *(("trace",), ("search", "--", question), ("search", "--json", "--", question), ("stats",)),
        ):
            code, printed = _run(*command, store=first)
            assert code in (0, 1, 2), f"{command} ends with {code}: {printed[-300:]}"
            assert "Traceback" not in printed, f"{command}: {printed[-600:]}"
            assert _is_printable(printed), f"{command} prints a control character"
            printing += bool(printed.strip())
        return {"added": len(kept), "recorded": len(recorded), "imported": len(listed), "printing": printing}


def _add(space: blocking.Space, text: str) -> Entry | None:
    try:
        return space.add(text).entry
    except InvalidInput:
        return None


def _converse(memory: blocking.Memory, texts: Sequence[str]) -> None:
    conversation = memory.conversation("c", user="ada")
    for text in texts:
        messages: list[Any] = [{"role": "user", "content": text}]
        with conversation.turn(messages) as turn:
            turn.inject(messages)
            messages.append({"role": "assistant", "content": text[::-1] or "x"})


def _run(*arguments: str, store: str) -> tuple[int, str]:
    out = io.StringIO()
    environment = dict(os.environ)
    os.environ["AFTERTURN_EMBEDDER"] = "none"
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            options = ["--store", store, "--space", "user:ada"]
            code = run_command([arguments[0], *options, *arguments[1:]])
    finally:
        os.environ.clear()
        os.environ.update(environment)
    return code, out.getvalue()


_GRANT = Grant("default", ("user:ada", "project:api"), "user:ada", environment="project:api")


def call_server(value: Any) -> None:
    """Any arguments of a server's tools, and of one that does not exist: a short answer in one line, no error."""

    async def call_all() -> None:
        async with afterturn.open(None, {"embedder": "none"}) as memory:
            for name in (*(one.name for one in definitions(_GRANT)), str(value)):
                answer = await call_tool(memory, _GRANT, name, value)
                assert 0 < len(answer.text) < 1_500, answer.text
                assert answer.text.isprintable(), answer.text

    asyncio.run(call_all())


TARGETS: Mapping[str, Target] = {
    one.name: one
    for one in (
        Target("messages of hosts", "document", read_messages),
        Target("messages that we write", "text", write_messages),
        Target("typed and pasted text", "text", split_typed),
        Target("payloads of hooks", "document", read_hook_payload),
        Target("lines of an import", "text", import_lines),
        Target("entries of an import", "document", import_document),
        Target("exports of libraries", "document", read_libraries),
        Target("files of libraries", "text", read_library_text),
        Target("edited Markdown", "text", read_markdown),
        Target("Markdown that we write", "texts", write_markdown),
        Target("settings", "text", read_settings),
        Target("waiting recordings", "document", read_recording),
        Target("recordings that we write", "text", write_recording),
        Target("answers of models", "text", read_model_answer),
        Target("calls of models", "document", read_model_document),
        Target("blocks", "texts", write_block),
        Target("standing blocks", "texts", write_standing),
        Target("the output filter", "text", filter_output),
        Target("terminal output", "text", print_text),
        Target("texts on their way", "text", read_text),
        Target("paths of context files", "text", read_context_files),
        Target("calls of a server's tools", "document", call_server),
        Target("a store and its commands", "texts", use_store),
    )
}
