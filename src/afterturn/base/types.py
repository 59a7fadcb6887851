"""The values that cross module boundaries, all frozen. Times are Unix seconds, UTC, as floats.

Those that reading goes without are in `written`, and are loaded when one of them is first asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from afterturn.base.errors import InvalidName
from afterturn.base.values import Value

if TYPE_CHECKING:
    from datetime import datetime

    from afterturn.base.written import Added as Added
    from afterturn.base.written import Admitted as Admitted
    from afterturn.base.written import Changed as Changed
    from afterturn.base.written import Draft as Draft
    from afterturn.base.written import EmbedderIdentity as EmbedderIdentity
    from afterturn.base.written import Erased as Erased
    from afterturn.base.written import Event as Event
    from afterturn.base.written import Excerpt as Excerpt
    from afterturn.base.written import Finding as Finding
    from afterturn.base.written import Forgotten as Forgotten
    from afterturn.base.written import History as History
    from afterturn.base.written import Job as Job
    from afterturn.base.written import JobKind as JobKind
    from afterturn.base.written import JobState as JobState
    from afterturn.base.written import LoggedOperation as LoggedOperation
    from afterturn.base.written import Operation as Operation
    from afterturn.base.written import Selector as Selector
    from afterturn.base.written import SpaceSummary as SpaceSummary
    from afterturn.base.written import Step as Step
    from afterturn.base.written import Undone as Undone
    from afterturn.base.written import Verb as Verb
    from afterturn.base.written import new_job as new_job

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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Scope(Value):
    """The spaces a query may see, under one tenant. Never empty: nothing reads across spaces it did not name."""

    tenant: str
    spaces: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.spaces:
            raise InvalidName('No space was named. Name at least one, such as "user:ada".')


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Entry(Value):
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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Filter(Value):
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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Hit(Value):
    """One recalled entry and why: `lexical` and `similarity` are 0 to 1, `similarity` None without vectors.

    `terms` are the query's terms that the entry contains, as indexed.
    """

    entry: Entry
    lane: Lane
    score: float
    lexical: float
    similarity: float | None
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SearchResults(Value):
    """What a recall found, best first. `missing` names what it had to do without: a lane, or "vectors"."""

    query: str
    hits: tuple[Hit, ...]
    missing: tuple[str, ...] = ()
    correlation: str = ""


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        from afterturn.base import written

        if hasattr(written, name):
            return getattr(written, name)
    raise AttributeError(f"module 'afterturn.base.types' has no attribute {name!r}")
