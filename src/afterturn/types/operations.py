"""Changes: where they are made, drafts, operations, the results of verbs, what a forget leaves, and events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TypeAlias

from afterturn.types.entries import Entry, EntryFields, Kind, Metadata, Origin, Scope, Status, Tenant, Verb, Verdict
from afterturn.types.searches import EventContent


@dataclass(frozen=True, slots=True)
class JobQueue:
    """The jobs of all tenants."""


UnitScope: TypeAlias = Scope | Tenant | JobQueue | None
"""Where a unit of work works (`Store.write`). None: anywhere."""


@dataclass(frozen=True, slots=True)
class Draft(EntryFields):
    """A statement or record to be stored, as `add_many` takes it.

    A `proposed` statement waits for approval and is not recalled until then.
    """

    occurred_at: float | None = None
    id: str | None = None
    proposed: bool = False

    @classmethod
    def successor(cls, current: Entry, text: str) -> Self:
        """A next version of `current` with another text. Everything else stays, except when it was said."""
        kept = {name: getattr(current, name) for name in EntryFields.__slots__}
        return cls(**{**kept, "text": text, "kind": Kind.STATEMENT, "position": None}, id=current.id)


@dataclass(frozen=True, slots=True)
class OwnDraft(Draft):
    """One version of an entry in an export that the person says is their own: it is imported as it was.

    It keeps its id and is trusted as far as it was. `approved`: a person approved this version. `hidden`: a person took
    it out of the standing context. Versions of one entry follow one another.
    """

    trust: int = 0
    approved: bool = False
    hidden: bool = False


class Admitted(NamedTuple):
    """A draft that passed the guard. Only `guard.gate` makes one, and a store writes nothing else.

    `terms` are the terms of the text for the lexical index, in order, with repeats. `telling` is the worth of the
    most lasting sentence of a recorded message of the user, from 0 to 1,000; 0 for anything else.
    """

    draft: Draft
    id: str
    text: str
    content_hash: str
    terms: tuple[str, ...]
    trust: int
    recorded_at: float
    verdict: Verdict = Verdict.ALLOW
    reason: str = ""
    telling: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """One undoable change of one space. Operations that belong together share a `group`."""

    id: str
    tenant: str
    space: str
    verb: Verb
    actor: Origin
    at: float
    group: str | None = None


@dataclass(frozen=True, slots=True)
class LoggedOperation(Operation):
    """An operation with the last entry that it changed and the text of that. `entries` is how many it changed."""

    entry_id: str | None = None
    text: str = ""
    entries: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The change of one version by one operation. `before` is None if the operation created the version."""

    operation: Operation
    entry_id: str
    version: int
    before: Status | None
    after: Status


@dataclass(frozen=True, slots=True)
class Added:
    """The result of `add`. `created` is False if the space already held the statement.

    `operation` is what `undo` takes, None if nothing changed.
    """

    entry: Entry
    created: bool
    operation: str | None


@dataclass(frozen=True, slots=True)
class Changed:
    """The result of an update, a deletion or a decision: the entry as it is now. `undo` takes `operation`."""

    entry: Entry
    operation: str


@dataclass(frozen=True, slots=True)
class Undone:
    """The result of `undo`. It is an operation too; `steps` are its changes."""

    operation: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class History:
    """All versions of one entry, oldest first, and all changes of them."""

    versions: tuple[Entry, ...]
    steps: tuple[Step, ...]


class Selector(NamedTuple):
    """Selects entries to forget. Exactly one field is set: `everything` is the whole space, `memories` has several."""

    memory: str | None = None
    conversation: str | None = None
    source: str | None = None
    speaker: str | None = None
    everything: bool = False
    memories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpaceSummary:
    """A space with the number of its active statements and records. `newest_at` is their newest `occurred_at`."""

    name: str
    statements: int
    records: int
    newest_at: float | None


class Erased(NamedTuple):
    """The result of a store's `forget`: the ids of the removed entries, with all their versions, and their `spaces`.

    `key_ids` are the keys of a sealed space that was erased as a whole, which `scrub` destroys: its own, and those that
    backups need which are not restored now. `copied_to` are other spaces that had copies of its text, such as blocks
    that quoted it, sealed with their own keys.
    """

    ids: tuple[str, ...]
    versions: int
    spaces: tuple[str, ...] = ()
    key_ids: tuple[str, ...] = ()
    copied_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemainingBytes:
    """Where the bytes of forgotten entries still are, although no query finds them, and until when.

    `retry`: scrubbing again may remove them. Otherwise that is not in the hands of this process.
    """

    where: str
    until: str
    retry: bool = False

    def __str__(self) -> str:
        return f"{self.where}, until {self.until}"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of `forget`. `erased` counts entries.

    `state` is "erased", or "pending" while a reader still holds old pages of the file; no query finds the entries then,
    and a job removes the rest. `out_of_reach` names what may still hold the text: backups, and other spaces that
    recorded conversations of this one. `remaining` are bytes that the store itself still has. `key_destroyed`: the
    space was sealed and its key is gone, so copies of its rows, wherever they are, cannot be read. `sources` are the
    messages that the forgotten memory was learned from: erased with `sources=True`, otherwise they still say it.
    """

    state: str
    erased: int
    out_of_reach: tuple[str, ...] = ()
    remaining: tuple[RemainingBytes, ...] = ()
    key_destroyed: bool = False
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that memory did. `data` holds ids, counts and reasons, never the text of a memory."""

    name: str
    at: float
    tenant: str = ""
    space: str = ""
    conversation: str = ""
    turn: str = ""
    data: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """Events of all spaces of a tenant, oldest first. `heads` says where the next page begins: the number and the time
    of the last event of each space."""

    events: tuple[Event, ...]
    heads: Mapping[str, tuple[int, float]]


@dataclass(frozen=True, slots=True)
class ContentEvent(Event):
    """An event with its texts. Passed only to a handler whose attribute `wants_content` is true, and never stored."""

    content: EventContent = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `afterturn doctor`. `level` is ok, warning or error; `remedy` says what to do."""

    level: str
    subject: str
    message: str
    remedy: str = ""
