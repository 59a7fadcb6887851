"""One past conversation, whatever program wrote it, and the drafts that it becomes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias

import apsw

from afterturn.config import folder_of_program
from afterturn.errors import InvalidFile
from afterturn.guard.output_filter import TAG
from afterturn.guard.pasted import has_pasted
from afterturn.runtime.clock import derive_id
from afterturn.types import PASTED, Draft, Kind, Origin, Target

Object: TypeAlias = Mapping[str, Any]

LINE_BYTES_MAX = 64 * 1024 * 1024
# Later times cannot be stored.
_TIME_MAX = 1e11
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
        """What the user said, and the last words of the answer. What was never answered is left out."""
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


@dataclass(slots=True)
class MessageList:
    """Collects the messages of one conversation. Blank ones are left out, as is text that was injected."""

    messages: list[TranscriptMessage] = field(default_factory=list)

    def add(self, id: str, role: Literal["user", "assistant"], text: str, at: float) -> None:
        if kept := without_injected(text):
            self.messages.append(TranscriptMessage(id, role, kept, at))


def folder_in(home: Path | None, variable: str, *usual: str) -> Path:
    """A program's folder below a home folder. In this person's, a variable may name another one."""
    return folder_of_program(variable, *usual) if home is None else home.joinpath(*usual)


def without_injected(text: str) -> str:
    """The text without what a client or a memory put into it."""
    for start, end in _FRAMES:
        if start in text:
            text = _without(text, start, end)
    return text.strip()


def _without(text: str, start: str, end: str) -> str:
    """The text without everything between two marks, in one pass."""
    kept, at = [], 0
    while (begin := text.find(start, at)) >= 0 and (close := text.find(end, begin)) >= 0:
        kept.append(text[at:begin])
        at = close + len(end)
    return "".join([*kept, text[at:]])


@contextmanager
def open_file(file: Path) -> Iterator[BinaryIO]:
    """Opens a regular file. Raises OSError for anything else: a pipe or a device may never end."""
    with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as stream:
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
            for line in _lines(stream):
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(value, dict):
                    yield value
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {error.strerror}. Check the name and permissions.") from error


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


def read_json(content: bytes, name: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"{name} is not JSON: {error}. Name an export of this program.") from error


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


def texts_of_parts(content: object, *kinds: str) -> str:
    """The texts of a message's parts. A plain text is one part; other parts, such as tool results, are left out."""
    if isinstance(content, str):
        return content
    found = [mapping(part) for part in sequence(content)]
    return "\n".join(
        text_field(part, "text") for part in found if part.get("type", "text") in kinds and text_field(part, "text")
    )
