"""The values that cross module boundaries, all frozen. Times are Unix seconds, UTC, as floats."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

from afterturn.base.errors import InvalidName

Scalar: TypeAlias = str | int | float | bool | None
Metadata: TypeAlias = Mapping[str, Scalar]
SOURCES_MAX = 1000


class Kind(StrEnum):
    STATEMENT = "statement"
    RECORD = "record"


class Status(StrEnum):
    """Only `active` entries are recalled (L7). `proposed`: waits until somebody approves or rejects it; beside an
    active version of the same id it is a change that was proposed. `withdrawal`: it was proposed to delete that one.
    """

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    DELETED = "deleted"
    PROPOSED = "proposed"
    WITHDRAWAL = "withdrawal"
    EXPIRED = "expired"
    UNDONE = "undone"
    QUARANTINED = "quarantined"


class Target(StrEnum):
    USER = "user"
    ENVIRONMENT = "environment"


class Lane(StrEnum):
    """Derived, never stored. The order is the order of a block (H4)."""

    SHORT_TERM = "short_term"
    LONG_TERM = "long_term"
    EPISODIC = "episodic"


class Origin(StrEnum):
    """Who wrote an entry; stamped by the host's call, never read from text (G2)."""

    USER = "user"
    AGENT = "agent"
    BACKGROUND_REVIEW = "background_review"
    SUBAGENT = "subagent"
    TOOL = "tool"
    WEB = "web"
    IMPORT = "import"

    @property
    def trust(self) -> int:
        """Higher is more trusted; subagent, tool and web rank alike."""
        return _TRUST[self]


_TRUST = {
    Origin.USER: 100,
    Origin.AGENT: 80,
    Origin.BACKGROUND_REVIEW: 60,
    Origin.SUBAGENT: 40,
    Origin.TOOL: 40,
    Origin.WEB: 40,
    Origin.IMPORT: 20,
}


class Verdict(StrEnum):
    ALLOW = "allow"
    REDACT = "redact"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Scope:
    """The spaces a query may see, under one tenant. Never empty: nothing reads across spaces it did not name."""

    tenant: str
    spaces: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.spaces:
            raise InvalidName('No space was named. Name at least one, such as "user:ada".')


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored version of a statement or of a recorded message.

    `owner` is the space whose conversation it was said in, None when that is the entry's own `space`.
    """

    id: str
    version: int
    kind: Kind
    space: str
    text: str
    status: Status
    origin: Origin
    trust: int
    target: Target
    content_hash: str
    recorded_at: float
    occurred_at: float
    agent: str | None = None
    project: str | None = None
    conversation: str | None = None
    owner: str | None = None
    turn: str | None = None
    position: int | None = None
    speaker: str | None = None
    valid_from: float | None = None
    valid_to: float | None = None
    expires_at: float | None = None
    pinned: bool = False
    metadata: Metadata = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    reason: str = ""

    @property
    def ref(self) -> str:
        """Names this version: what a model that saw version 1 has not seen is version 2."""
        return reference(self.id, self.version)

    def holds(self, at: float) -> bool:
        """Whether it may be recalled at that time (L7)."""
        return self.status is Status.ACTIVE and self.is_valid(at)

    def is_valid(self, at: float) -> bool:
        """In force and not expired at that time, whatever its status is now."""
        return (
            (self.expires_at is None or self.expires_at > at)
            and (self.valid_from is None or self.valid_from <= at)
            and (self.valid_to is None or self.valid_to > at)
        )


def reference(entry_id: str, version: int) -> str:
    return entry_id if version == 1 else f"{entry_id}.{version}"


@dataclass(frozen=True, slots=True)
class Filter:
    """Narrows inside the named spaces. `metadata` values are equal to a scalar or among a tuple of them.

    `since` (inclusive) and `until` (exclusive) bound `occurred_at`: Unix seconds, a datetime with a time zone, or an
    ISO-8601 text with an offset.
    """

    kind: Kind | Literal["statement", "record"] | None = None
    target: Target | Literal["user", "environment"] | None = None
    agent: str | None = None
    project: str | None = None
    conversation: str | None = None
    pinned: bool | None = None
    metadata: Mapping[str, Scalar | tuple[Scalar, ...]] = field(default_factory=dict)
    statuses: tuple[Status, ...] = (Status.ACTIVE,)
    since: "float | datetime | str | None" = None
    until: "float | datetime | str | None" = None


ANYTHING = Filter()
"""What narrows nothing: told from others at a glance where it is this one."""


class LaneQuery(NamedTuple):
    """Which entries one lane may give at `now`. Exclusions hold inside the query, before any cut (L3, L9).

    `excluded_refs` are versions the model has seen; `visible_hashes` are content hashes of messages it sees now;
    `excluded_ids` are memories that the caller does not want, in any version.
    `lane=None` searches statements and records alike. Recorded tool outputs are evidence for a review: they are given
    only when `evidence` asks for them (C6). `conversation` is the one of the space `owner`: another owner's of the same
    id is another conversation (L2). Without `owner` the id alone counts. Records of the conversation that were recorded
    after `seen_since` are not given: a host that hides its messages still shows them to its model (L9). Nor is a
    statement all of whose sources are records of its space that the model sees in one of these ways.
    """

    scope: Scope
    now: float
    lane: Lane | None = None
    conversation: str | None = None
    owner: str | None = None
    excluded_refs: frozenset[str] = frozenset()
    visible_hashes: frozenset[str] = frozenset()
    excluded_ids: frozenset[str] = frozenset()
    seen_since: float | None = None
    filter: Filter = ANYTHING
    evidence: bool = False


class Match(NamedTuple):
    """An entry as the index has it: `key` is the store's handle on this version, `terms` its terms with repeats."""

    key: int
    entry: Entry
    terms: tuple[str, ...]


class Shelved(NamedTuple):
    """What an active entry is ranked by, beside its vector; a tuple, since there are many."""

    key: int
    space: str
    kind: Kind
    origin: Origin
    speaker: str | None
    conversation: str | None
    owner: str | None
    position: int | None
    terms: tuple[str, ...]


class Nearby(NamedTuple):
    """A message around another one, and whether the query would give it as an answer."""

    entry: Shelved
    is_admitted: bool


class Extent(NamedTuple):
    """How much of a space is searchable, and its newest change."""

    documents: int
    terms_total: int
    seq: int


class Changes(NamedTuple):
    """What moved in a space since a sequence number. `keys=None`: too long ago to say, rebuild."""

    generation: str
    seq: int
    keys: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Hit:
    """One recalled entry and why: `lexical` and `similarity` are 0 to 1, `similarity` None without vectors.

    `terms` are the query's terms that the entry contains, as indexed.
    """

    entry: Entry
    lane: Lane
    score: float
    lexical: float
    similarity: float | None
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SearchResults:
    """What a recall found, best first. `missing` names what it had to do without: a lane, or "vectors"."""

    query: str
    hits: tuple[Hit, ...]
    missing: tuple[str, ...] = ()
    correlation: str = ""


class Verb(StrEnum):
    """What an operation did; `undo` is an operation too, so it can be undone."""

    ADD = "add"
    UPDATE = "update"
    PROMOTE = "promote"
    APPROVE = "approve"
    DELETE = "delete"
    RECORD = "record"
    IMPORT = "import"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class Draft:
    """What somebody asks to have stored, before the guard has seen it.

    `owner` is the space whose conversation it was said in; None is the space that it is stored in. `proposed`: a
    statement that waits for approval, and is not recalled before.
    """

    text: str
    kind: Kind = Kind.STATEMENT
    origin: Origin = Origin.USER
    target: Target = Target.USER
    agent: str | None = None
    project: str | None = None
    conversation: str | None = None
    owner: str | None = None
    turn: str | None = None
    position: int | None = None
    speaker: str | None = None
    occurred_at: float | None = None
    valid_from: float | None = None
    valid_to: float | None = None
    expires_at: float | None = None
    pinned: bool = False
    metadata: Metadata = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    id: str | None = None
    proposed: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """A draft that passed the guard. Only `guard.gate` makes one, and a store writes nothing else (G1).

    `terms` is the text as the lexical index sees it, in order, repeats included.
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


@dataclass(frozen=True, slots=True)
class Added:
    """`created` is False when the space already held the statement (G6); `operation` is what undo takes."""

    entry: Entry
    created: bool
    operation: str | None


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """Vectors of two identities never meet in one comparison (M3)."""

    name: str
    version: str
    dimensions: int
    normalised: bool = True


@dataclass(frozen=True, slots=True)
class Operation:
    """One undoable step in one space, at one time. Steps that belong together share a `group`."""

    id: str
    tenant: str
    space: str
    verb: Verb
    actor: Origin
    at: float
    group: str | None = None


@dataclass(frozen=True, slots=True)
class LoggedOperation(Operation):
    """An operation with a memory that it changed: the last one, as it left it. `entries` is how many it changed."""

    entry_id: str | None = None
    text: str = ""
    entries: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What one operation did to one version."""

    operation: Operation
    entry_id: str
    version: int
    before: Status | None
    after: Status


@dataclass(frozen=True, slots=True)
class Selector:
    """What to forget; exactly one is set. `everything` is the whole space.

    `memories` are several at once: forgetting looks through the space's jobs and timeline, and once is enough.
    """

    memory: str | None = None
    conversation: str | None = None
    source: str | None = None
    speaker: str | None = None
    everything: bool = False
    memories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpaceSummary:
    """A space at a glance. Counts are of active entries; `newest_at` is their newest `occurred_at`."""

    name: str
    statements: int
    records: int
    newest_at: float | None


@dataclass(frozen=True, slots=True)
class Erased:
    """What a store's `forget` removed: entry ids with every version of them, and in which `spaces` they were."""

    ids: tuple[str, ...]
    versions: int
    spaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """`pending`: the rows are gone from every query, but a reader still holds old bytes; a job finishes it.

    `out_of_reach` names what may still hold the text: backups, a recording provider of the host's.
    """

    state: str
    erased: int
    out_of_reach: tuple[str, ...] = ()


class JobKind(StrEnum):
    """What is done behind a write. A store takes other kinds too."""

    EMBED = "embed"
    SCRUB = "scrub"
    REVIEW = "review"
    RULES = "rules"
    CONSOLIDATE = "consolidate"


class JobState(StrEnum):
    READY = "ready"
    LEASED = "leased"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Job:
    """Work that follows a write, committed with it. `payload` is JSON text and holds ids, never memory text."""

    id: str
    kind: str
    tenant: str
    space: str
    payload: str
    run_at: float
    attempts: int = 0
    state: JobState = JobState.READY
    error: str = ""


def new_job(kind: JobKind, job_id: str, tenant: str, space: str, at: float) -> Job:
    """For the whole space, so that those which wait coalesce; due at `at`."""
    return Job(job_id, kind, tenant, space, "{}", at)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that memory did. `data` holds ids, counts and reasons, never memory text."""

    name: str
    at: float
    tenant: str = ""
    space: str = ""
    conversation: str = ""
    turn: str = ""
    data: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `doctor`: `level` is ok, warning or error; `remedy` says what to do."""

    level: str
    subject: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """An update or a delete: the entry as it is now, and what `undo` takes."""

    entry: Entry
    operation: str


@dataclass(frozen=True, slots=True)
class Undone:
    """What `undo` did: an operation too, and its steps."""

    operation: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Every version of one entry, oldest first, and every step that was taken on them."""

    versions: tuple[Entry, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A hit that was chosen for a block; `text` is what is shown of it, and where it was cut it says "…"."""

    hit: Hit
    text: str
