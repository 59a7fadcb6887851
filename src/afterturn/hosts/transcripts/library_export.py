"""The export of another memory library: facts and conversations by user, what was refused, and what is left out."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from afterturn.compat.mem0.payload import OWN_KEYS
from afterturn.errors import InvalidFile
from afterturn.guard.trust import unprivileged
from afterturn.hosts.transcripts.transcript import (
    Object,
    PastConversation,
    TranscriptMessage,
    mapping,
    messages_of,
    open_file,
    parse_timestamp,
    text_field,
)
from afterturn.types import Draft, Origin
from afterturn.validation import METADATA_BYTES_MAX

LINE_BYTES_MAX = 16 * 1024**2
# A document is parsed as a whole, which takes several times its size in memory. Lines are parsed one by one.
DOCUMENT_BYTES_MAX = 256 * 1024**2
# All are kept in memory until everything is checked. 50,000 short ones take 50 MB.
ITEMS_MAX = 500_000
# Longer values in metadata are left out.
_VALUE_BYTES_MAX = 2048
_KEYS_MAX = 200
# Keys of metadata that afterturn writes itself, and a file must not.
_OWN_KEYS = OWN_KEYS - {"role"}
_STEP = 100

Report = Callable[[int, int], None]


class ExportedFact(NamedTuple):
    """`where` is its place in the file, `owner` the space of the user, such as user:ada; blank if it names none."""

    where: str
    owner: str
    draft: Draft


@dataclass(frozen=True, slots=True)
class ExportedConversation:
    """Messages in order of time. `wheres` has the place of each in the file."""

    owner: str
    transcript: PastConversation
    wheres: tuple[str, ...]

    def drafts(self, *, keep_origin: bool) -> Iterator[tuple[str, Draft]]:
        """All messages, each with its place. Their roles are what the file says, so they count only by consent."""
        asked = ""
        for position, (where, message) in enumerate(zip(self.wheres, self.transcript.messages, strict=True)):
            asked = message.id if message.role == "user" else asked
            draft = self.transcript.record(message, asked, position)
            origin = draft.origin if keep_origin else Origin.IMPORT
            yield where, replace(draft, origin=origin, occurred_at=message.at or None)


@dataclass(frozen=True, slots=True)
class RefusedItem:
    """An item that cannot be imported. `where` is its place in the file, such as "line 3" or "item 3"."""

    where: str
    message: str


@dataclass(slots=True)
class LibraryExport:
    """Collects what a reader finds. `now` decides what is still valid; `left_out` counts by reason, in the plural."""

    library: str
    now: float
    facts: list[ExportedFact] = field(default_factory=list)
    refused: list[RefusedItem] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    _messages: dict[tuple[str, str], list[tuple[str, TranscriptMessage]]] = field(default_factory=dict)
    _items: int = 0

    def add_fact(self, where: str, owner: str, draft: Draft) -> None:
        """Leaves out what is no longer valid."""
        self._count()
        if any(end is not None and end <= self.now for end in (draft.valid_to, draft.expires_at)):
            self.left_out["facts that are no longer valid"] += 1
        else:
            # Nobody knows where the other library had it from, so it has the least trusted origin.
            self.facts.append(ExportedFact(where, owner, unprivileged(replace(draft, origin=Origin.IMPORT))))

    def add_message(self, where: str, owner: str, session: str, role: str, text: str, at: float, id: str = "") -> None:
        """Leaves out what neither the user nor the assistant said, blank messages, and blocks of a memory."""
        self._count()
        found = messages_of(id, role, text, at)
        if not found:
            self.left_out["messages that neither a user nor an assistant wrote, or without text"] += 1
        for message in found:
            known = id or hashlib.sha256(f"{at}\0{role}\0{message.text}".encode("utf-8", "replace")).hexdigest()[:32]
            self._messages.setdefault((owner, session), []).append((where, replace(message, id=known)))

    def refuse(self, where: str, message: str) -> None:
        self._count()
        self.refused.append(RefusedItem(where, message))

    def conversations(self) -> Iterator[ExportedConversation]:
        """In order of time, unless a message has none."""
        for (owner, session), found in self._messages.items():
            if all(message.at for _, message in found):
                found = sorted(found, key=lambda one: one[1].at)
            transcript = PastConversation(self.library, session, [message for _, message in found])
            yield ExportedConversation(owner, transcript, tuple(where for where, _ in found))

    def _count(self) -> None:
        self._items += 1
        if self._items > ITEMS_MAX:
            raise InvalidFile(f"The file has more than {ITEMS_MAX:,} memories. Divide it, and import the parts.")


class LibraryReader(Protocol):
    """One library's exports. `expected` says which files are read and how to write one, in one line."""

    name: str
    expected: str

    def read(self, file: Path, export: LibraryExport, report: Report) -> None:
        """Raises InvalidFile if the whole file cannot be read."""
        ...


def read_values(file: Path, export: LibraryExport, report: Report) -> Iterator[tuple[str, object]]:
    """The values in a JSON document or in JSON Lines, each with its place. The items of a list are values.

    Lines that are not JSON are refused one by one.
    """
    try:
        with open_file(file) as stream:
            is_lines = _has_lines(stream)
            stream.seek(0)
            values = _line_values(stream, export) if is_lines else _document_values(stream, file)
            for number, (where, value) in enumerate(values, start=1):
                if number % _STEP == 0:
                    report(number, 0)
                yield where, value
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {error.strerror}. Check the name and permissions.") from error


def _has_lines(stream: BinaryIO) -> bool:
    """Whether the first line is an object of its own, and more follows."""
    line = b" "
    while line and not line.strip(b"\xef\xbb\xbf \t\r\n"):
        line = stream.readline(LINE_BYTES_MAX)
    try:
        is_object = isinstance(_parse(line), dict)
    except (ValueError, RecursionError):
        return False
    while is_object and (more := stream.read(_VALUE_BYTES_MAX)):
        if more.strip():
            return True
    return False


def _line_values(stream: BinaryIO, export: LibraryExport) -> Iterator[tuple[str, object]]:
    number, is_begun = 0, False
    while line := stream.readline(LINE_BYTES_MAX):
        is_cut = not line.endswith(b"\n") and len(line) == LINE_BYTES_MAX
        number += not is_begun
        where = f"line {number}"
        if is_cut and not is_begun:
            export.refuse(where, f"It is longer than {LINE_BYTES_MAX // 1024**2} MiB.")
        elif not is_begun and line.strip():
            try:
                yield where, _parse(line)
            except (ValueError, RecursionError) as error:
                export.refuse(where, f"It is not JSON: {_reason(error)}.")
        is_begun = is_cut


def _document_values(stream: BinaryIO, file: Path) -> Iterator[tuple[str, object]]:
    content = stream.read(DOCUMENT_BYTES_MAX + 1)
    if len(content) > DOCUMENT_BYTES_MAX:
        raise InvalidFile(
            f"{file} is larger than {DOCUMENT_BYTES_MAX // 1024**2} MiB. Write it as JSON Lines, one memory per line."
        )
    try:
        value = _parse(content)
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"{file} is neither JSON nor JSON Lines: {_reason(error)}. Name an export.") from error
    if isinstance(value, list):
        yield from ((f"item {number}", one) for number, one in enumerate(value, start=1))
    else:
        yield "the document", value


def _parse(content: bytes) -> object:
    value: object = json.loads(content.decode("utf-8-sig"))
    return value


def _reason(error: Exception) -> str:
    return "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)[:100]


def parse_utc(value: object) -> float:
    """As `parse_timestamp`, but a time without an offset is in UTC, as servers and databases write it."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            return 0.0
        return parse_timestamp(moment.replace(tzinfo=moment.tzinfo or UTC).isoformat())
    return parse_timestamp(value)


def parse_end(value: object) -> float | None:
    """None if there is no end. One that cannot be read is long ago: what has ended must not be imported as current."""
    return None if value in (None, "") else parse_utc(value)


def latest(*times: object) -> float:
    return max(map(parse_utc, times))


def flat_metadata(
    *parts: Mapping[str, object], ours: Mapping[str, str] | None = None
) -> dict[str, str | int | float | bool | None]:
    """Scalars of all parts; the later part wins. Lists and objects become JSON, and what is too long is dropped.

    `ours` may have keys that a file may not.
    """
    kept: dict[str, str | int | float | bool | None] = {}
    for part in (ours or {}, *reversed(parts)):
        for key, value in islice(part.items(), _KEYS_MAX):
            if (
                value is None
                or value in ("", [], {})
                or key in kept
                or not key
                or (key in _OWN_KEYS and part is not ours)
            ):
                continue
            scalar = _scalar(value)
            if scalar is not None and len(_encoded({**kept, key: scalar})) <= METADATA_BYTES_MAX:
                kept[key] = scalar
    return kept


def _scalar(value: object) -> str | int | float | bool | None:
    """None for what is too long, or not a finite number."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict | list):
        value = text_of(value)
    if not isinstance(value, str | int | float | bool) or len(_encoded(value)) > _VALUE_BYTES_MAX:
        return None
    return value


def _encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def text_of(value: object) -> str:
    """A text as it is, anything else as JSON; blank if it is nested too deeply."""
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def first_text(value: object, *names: str) -> str:
    """The first of the fields that is a text and not blank."""
    found = (text_field(mapping(value), name) for name in names)
    return next((one for one in found if one.strip()), "")


def owner_of(user: str) -> str:
    return f"user:{user}" if user else ""


def name_in(value: Object, *names: str) -> str:
    """The first of the fields that has something, as text: a user's number is a name too."""
    found = (value.get(name) for name in names)
    return next((text_of(one) or "?" for one in found if one not in (None, "")), "")
