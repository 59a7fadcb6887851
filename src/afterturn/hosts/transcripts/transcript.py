"""One past conversation, whatever program wrote it, and the drafts that it becomes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias

import apsw

from afterturn.config import folder_of_program
from afterturn.errors import InvalidFile
from afterturn.guard.output_filter import TAG
from afterturn.guard.pasted import has_pasted
from afterturn.hosts.transcripts import REFERENCED_FILES
from afterturn.runtime.clock import derive_id
from afterturn.types import PASTED, Draft, Kind, Origin, Target

Object: TypeAlias = Mapping[str, Any]

LINE_BYTES_MAX = 64 * 1024 * 1024
# Later times cannot be stored.
_TIME_MAX = 1e11
# Kinds of parts that a person adds to a message. A message with a part of another kind, such as a tool's result, is the
# client's: nobody knows who wrote the text in it.
_TYPED_KINDS = ("text", "image", "audio", "document", "file", "agent")
_TYPED_KEYS = {"text", "inlineData", "fileData", "thoughtSignature", "videoMetadata"}
# A text of nothing but elements is a client's: commands and their output, notifications, contexts, instructions.
_ELEMENTS = re.compile(r"<[A-Za-z][^<>]*>(?:.*<[^<>]*>)?", re.DOTALL)
# How clients begin texts of their own that are not elements.
_INSERTED = (
    "# AGENTS.md instructions",
    "[Request interrupted by user",
    "This session is being continued from a previous conversation",
)
# How a text begins into which an editor put open files and the selection, and the line before the typed words.
_EDITOR, _REQUEST = ("# Context from my IDE setup:", "# Files mentioned by the user:"), "## My request for Codex:"
# Text that clients put into messages of the user: reminders, context of hooks, and our own blocks.
_INJECTED = ("system-reminder", "hook_context", "session_context", "environment_context", "user_instructions", TAG)
_FRAMES = [
    *((f"<{tag}", f"</{tag}>") for tag in _INJECTED),
    # Gemini CLI escapes what a hook adds.
    (f"&lt;{TAG}&gt;", f"&lt;/{TAG}&gt;"),
]


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """`id` is unique in its conversation. `at` is in Unix seconds."""

    id: str
    role: Literal["user", "assistant"]
    text: str
    at: float


@dataclass(frozen=True, slots=True)
class PastConversation:
    """`folder` is where the conversation took place, if the program noted it."""

    client: str
    session: str
    messages: Sequence[TranscriptMessage]
    folder: str = ""

    @property
    def conversation(self) -> str:
        """The id that a hook of the same client gives to the conversation."""
        return f"{self.client}:{self.session}"

    def exchanges(self) -> Iterator[tuple[TranscriptMessage, TranscriptMessage]]:
        """Pairs of a user's message and the last message of its answer. Messages without an answer are left out."""
        asked: TranscriptMessage | None = None
        answer: TranscriptMessage | None = None
        for message in self.messages:
            if message.role == "assistant":
                answer = message
                continue
            if asked is not None and answer is not None:
                yield asked, answer
            asked, answer = message, None
        if asked is not None and answer is not None:
            yield asked, answer

    def drafts(self, project: str | None, since: float | None) -> Iterator[Draft]:
        """Records of the exchanges. The ids are the same every time, so that an import can be repeated."""
        for number, (asked, answer) in enumerate(self.exchanges()):
            if since is not None and answer.at < since:
                continue
            for position, message in enumerate((asked, answer), start=2 * number):
                yield self.record(message, asked.id, position, project)

    def record(self, message: TranscriptMessage, asked: str, position: int, project: str | None = None) -> Draft:
        """A message as a record. `asked` is the id of the user's message that began its turn."""
        pasted = {PASTED: True} if message.role == "user" and has_pasted(message.text) else {}
        return Draft(
            text=message.text,
            kind=Kind.RECORD,
            id=derive_id(message.at, f"{self.conversation}\0{message.id}"),
            origin=Origin.USER if message.role == "user" else Origin.AGENT,
            target=Target.USER if message.role == "user" else Target.ENVIRONMENT,
            speaker=message.role,
            conversation=self.conversation,
            project=project,
            turn=hashlib.sha256(f"{self.conversation}\0{asked}".encode("utf-8", "replace")).hexdigest()[:32],
            position=position,
            occurred_at=message.at,
            metadata=pasted,
        )


class TranscriptReader(Protocol):
    """One format: where its files are, and what they contain."""

    name: str

    def find(self, home: Path | None) -> Iterable[Path]:
        """The files of this program below a home folder; None for this person's."""
        ...

    def read(self, file: Path) -> Iterable[PastConversation]:
        """The conversations in a file or folder. Raises InvalidFile if it cannot be read."""
        ...


def messages_of(id: str, role: str, content: object, at: float) -> list[TranscriptMessage]:
    """The message of a user or an assistant as a list; empty if it has no text of theirs, or another role."""
    if role == "user" and (text := user_text(content)):
        return [TranscriptMessage(id, "user", text, at)]
    if role == "assistant" and (text := assistant_text(content)):
        return [TranscriptMessage(id, "assistant", text, at)]
    return []


def may_be_typed(content: object) -> bool:
    """Whether a person may have written a message, by the kinds of its parts."""
    return all(
        part["type"] in _TYPED_KINDS or str(part["type"]).startswith("input_")
        if "type" in part
        else _TYPED_KEYS.issuperset(part)
        for part in _parts(content)
    )


def user_text(content: object) -> str:
    """The text that the user typed in a message, without anything that a client added. Pasted text is a part of it.

    The only place that decides this: hooks and imports of all formats read messages of a user by it.
    """
    texts: list[str] = []
    for text in _texts(content, "text", "input_text") if may_be_typed(content) else ():
        typed, files, _ = _without_inserted(text).partition(REFERENCED_FILES)
        if typed.startswith(_EDITOR):
            # A selection may contain the line too.
            typed = typed.partition(_REQUEST)[2] if typed.count(_REQUEST) == 1 else ""
        texts.append(_without_inserted(typed))
        if files:
            break
    return "\n".join(filter(None, texts))


def assistant_text(content: object) -> str:
    """The text of an assistant's message, without its thoughts."""
    return without_injected("\n".join(_texts(content, "text", "output_text")))


def _parts(content: object) -> list[Object]:
    """A plain text is one part."""
    parts = [content] if isinstance(content, str) else sequence(content)
    return [{"text": part} if isinstance(part, str) else mapping(part) for part in parts]


def _texts(content: object, *kinds: str) -> Iterator[str]:
    for part in _parts(content):
        is_hidden = part.get("thought") or part.get("synthetic") or part.get("ignored")
        if part.get("type", "text") in kinds and not is_hidden and text_field(part, "text"):
            yield text_field(part, "text")


def _without_inserted(text: str) -> str:
    """The text without what a client put into it; blank if all of it is a client's."""
    # First the whole: what an element contains may close it early.
    whole = text.strip()
    kept = "" if _ELEMENTS.fullmatch(whole) else without_injected(whole)
    return "" if kept.startswith(_INSERTED) or _ELEMENTS.fullmatch(kept) else kept


def folder_in(home: Path | None, variable: str, *usual: str) -> Path:
    """A program's folder below a home folder. In this person's, a variable may name another one."""
    return folder_of_program(variable, *usual) if home is None else home.joinpath(*usual)


def without_injected(text: str) -> str:
    """The text without what a client or a memory put into it.

    It is removed up to the last end of its kind: a file that a client quotes may contain one too.
    """
    for start, end in _FRAMES:
        if 0 <= (begin := text.find(start)) < (close := text.rfind(end)):
            text = text[:begin] + text[close + len(end) :]
    return text.strip()


@contextmanager
def open_file(file: Path, flags: int = 0) -> Iterator[BinaryIO]:
    """Opens a regular file. Raises OSError for anything else: a pipe or a device may never end."""
    with open(file, "rb", opener=lambda path, usual: os.open(path, usual | flags | os.O_NONBLOCK)) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        yield stream


@contextmanager
def open_read_only(file: Path) -> Iterator[apsw.Connection]:
    """Opens a SQLite database of another program, which may be running, without changing it."""
    escaped = str(file.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = apsw.Connection(f"file:{escaped}?mode=ro", flags=apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(2000)
        yield connection
    finally:
        connection.close()


def json_lines(file: Path) -> Iterator[Object]:
    """The objects in a file of JSON Lines. The last line may be cut: a program may still be writing it."""
    try:
        with open_file(file) as stream:
            yield from parse_objects(_lines(stream))
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {error.strerror}. Check the name and permissions.") from error


def parse_objects(lines: Iterable[bytes]) -> Iterator[Object]:
    """The lines that are JSON objects."""
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines, without those that are too long. A part of one must not be taken for a line."""
    is_begun = False
    while line := stream.readline(LINE_BYTES_MAX):
        is_cut = not line.endswith(b"\n") and len(line) == LINE_BYTES_MAX
        if not is_begun and not is_cut:
            yield line
        is_begun = is_cut


def read_document(file: Path) -> Object:
    """The object in a small JSON file; empty if it is missing or damaged."""
    try:
        with open_file(file) as stream:
            return mapping(json.loads(stream.read(LINE_BYTES_MAX)))
    except (OSError, ValueError, RecursionError):
        return {}


def parse_timestamp(value: object) -> float:
    """Unix seconds of an ISO-8601 text, of seconds or of milliseconds; 0 if it is none of them, or absurd."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _TIME_MAX * 1000:
        return value / 1000 if value > _TIME_MAX else float(value)
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError, OSError):
            return 0.0
        return found if 0 < found < _TIME_MAX else 0.0
    return 0.0


def mapping(value: object) -> Object:
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def text_field(value: Object, name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""
