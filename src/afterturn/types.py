"""The values that modules exchange, all frozen. Times are Unix seconds, UTC, as floats."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Self, TypeAlias

from afterturn.errors import InvalidName

if TYPE_CHECKING:
    from afterturn.recall.features import EntryFeatures

Scalar: TypeAlias = str | int | float | bool | None
Metadata: TypeAlias = Mapping[str, Scalar]
SOURCES_MAX = 1000


class Kind(StrEnum):
    """What an entry is: a statement, which is one fact, or a record, which is one message of a recorded turn."""

    STATEMENT = "statement"
    RECORD = "record"


class Status(StrEnum):
    """The state of one version of an entry. Only `active` versions are recalled.

    `proposed` waits for approval; next to an active version with the same id it is a proposed change. `withdrawal` is a
    proposal to delete. `quarantined` is an untrusted text that contained a secret; models never see it.
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
    """What a statement is about: the user, or the environment, that is projects, tools and systems."""

    USER = "user"
    ENVIRONMENT = "environment"


class Lane(StrEnum):
    """A part of memory that is searched separately. It is computed for each query and never stored.

    The order is the order in a block.
    """

    SHORT_TERM = "short_term"
    LONG_TERM = "long_term"
    EPISODIC = "episodic"


class Origin(StrEnum):
    """Who wrote an entry. The caller sets it; it is never read from text."""

    USER = "user"
    AGENT = "agent"
    BACKGROUND_REVIEW = "background_review"
    SUBAGENT = "subagent"
    TOOL = "tool"
    WEB = "web"
    IMPORT = "import"

    @property
    def trust(self) -> int:
        """How far the origin is trusted; higher is more. subagent, tool and web have the same value."""
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
    FLAG = "flag"
    REDACT = "redact"
    QUARANTINE = "quarantine"


# The trust from which somebody's words are shown as they are; below it they are quoted, as a report.
TRUSTED_MIN = Origin.BACKGROUND_REVIEW.trust
# The key of metadata that marks a message which the user has pasted into.
PASTED = "pasted"
# The key of metadata that says whose words a learned statement is in.
QUOTES = "quotes"


@dataclass(frozen=True, slots=True)
class Scope:
    """The spaces that a query may see, within one tenant. There is at least one."""

    tenant: str
    spaces: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.spaces:
            raise InvalidName('No space was named. Name at least one, such as "user:ada".')


class Tenant(NamedTuple):
    """All spaces of a tenant, also those that are made later."""

    name: str


@dataclass(frozen=True, slots=True)
class JobQueue:
    """The jobs of all tenants."""


UnitScope: TypeAlias = Scope | Tenant | JobQueue | None
"""Where a unit of work works (`Store.write`). None: anywhere."""


class _HasFeatures:
    """A slot that is not a field: what recall computes from an entry is neither compared, copied nor exported."""

    __slots__ = ("features",)
    features: EntryFeatures


@dataclass(frozen=True, slots=True)
class EntryFields(_HasFeatures):
    """The fields that a draft and a stored entry share.

    `owner` is the space that owns the conversation it was said in, None if that is the space it is stored in. `sources`
    are the ids of the entries that a statement was learned from. A `firm` statement is a rule that refuses tool calls.
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
    valid_from: float | None = None
    valid_to: float | None = None
    expires_at: float | None = None
    pinned: bool = False
    firm: bool = False
    metadata: Metadata = field(default_factory=dict, hash=False)
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(EntryFields):
    """One stored version of a statement or of a recorded message. Times are Unix seconds.

    `reason` says why a quarantined version was quarantined.
    """

    id: str
    version: int
    space: str
    status: Status
    trust: int
    content_hash: str
    recorded_at: float
    occurred_at: float
    reason: str = ""

    @property
    def ref(self) -> str:
        """Names this version: the id alone for version 1, `id.2` for version 2."""
        return reference(self.id, self.version)

    @property
    def is_quote(self) -> bool:
        """Whether a review took it from the user's message word for word, so that "I" is the user."""
        return self.origin is Origin.BACKGROUND_REVIEW and self.metadata.get(QUOTES) == "user"

    @property
    def is_report(self) -> bool:
        """Whether it has words of others in it: it is not trusted, or it is a message that the user has pasted into."""
        return self.trust < TRUSTED_MIN or (self.kind is Kind.RECORD and self.metadata.get(PASTED) is True)

    def is_from_elsewhere(self, projects: Collection[str] | None) -> bool:
        """Whether it belongs to a project, and to none of these. None stands for all projects."""
        return self.project is not None and projects is not None and self.project not in projects

    def holds(self, at: float) -> bool:
        """Whether it may be recalled at that time."""
        return self.status is Status.ACTIVE and self.is_valid(at)

    def is_valid(self, at: float) -> bool:
        """Whether that time is within its validity and before its expiry, whatever its status is now."""
        return (
            (self.expires_at is None or self.expires_at > at)
            and (self.valid_from is None or self.valid_from <= at)
            and (self.valid_to is None or self.valid_to > at)
        )


def reference(entry_id: str, version: int) -> str:
    return entry_id if version == 1 else f"{entry_id}.{version}"


@dataclass(frozen=True, slots=True)
class Filter:
    """Limits `search` and `list` to some entries. All fields that are set must match.

    `project` is a name, or a tuple of names in which None stands for entries without a project. A `metadata` value must
    be equal to the given one, or to one of a tuple; 1 equals 1.0, but not True. `since`
    (inclusive) and `until` (exclusive) limit `occurred_at`: Unix seconds, a datetime with a time zone, or an ISO-8601
    text with an offset.
    """

    kind: Kind | Literal["statement", "record"] | None = None
    target: Target | Literal["user", "environment"] | None = None
    agent: str | None = None
    project: str | tuple[str | None, ...] | None = None
    conversation: str | None = None
    pinned: bool | None = None
    firm: bool | None = None
    metadata: Mapping[str, Scalar | tuple[Scalar, ...]] = field(default_factory=dict, hash=False)
    statuses: tuple[Status, ...] = (Status.ACTIVE,)
    since: float | datetime | str | None = None
    until: float | datetime | str | None = None


ANYTHING = Filter()
"""The filter that admits every active entry."""


class LaneQuery(NamedTuple):
    """The entries that one lane may return at `now`. Exclusions apply inside the query, before any limit.

    `excluded_refs` are versions that the model has seen; `visible_hashes` are content hashes of messages that it sees
    now; `excluded_ids` are memories that the caller does not want, in any version. `lane=None` searches statements and
    records. Recorded tool outputs are returned only with `evidence`, for a review.

    `conversation` belongs to the space `owner`: the same id under another owner is another conversation. Without
    `owner`, only the id counts. Records of the conversation after `seen_since` are not returned, because a host with a
    hidden history still shows them to its model. Nor is a statement if the model sees all its sources in one of these
    ways. With `trusted_only`, nothing that has words of others in it is returned. `projects` are those at hand: of
    others only what is about the user is returned, and no report. None: no restriction.
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
    trusted_only: bool = False
    projects: tuple[str, ...] | None = None


class IndexedEntry(NamedTuple):
    """What an active entry is ranked by, except its vector. A tuple, since there are many."""

    key: int
    space: str
    kind: Kind
    origin: Origin
    speaker: str | None
    conversation: str | None
    owner: str | None
    position: int | None
    terms: tuple[str, ...]


class ContextEntry(NamedTuple):
    """A message next to another one, and whether the query would return it as a result."""

    entry: IndexedEntry
    is_admitted: bool


class SpaceStats(NamedTuple):
    """How much of a space is searchable, and the number of its newest change."""

    documents: int
    terms_total: int
    seq: int


class Changes(NamedTuple):
    """The keys that changed in a space since a sequence number. `keys=None`: too long ago to say, rebuild."""

    generation: str
    seq: int
    keys: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Hit:
    """One entry that a search found, with its scores. `lexical` and `similarity` are between 0 and 1.

    `similarity` is None without vectors. `terms` are the terms of the query that the entry contains, in their indexed
    form. `partner` is the other message of a record's exchange: the answer to it, or the message that it answers.
    `is_earlier` means that a newer hit says what holds now. In a block, `answer` is shown in the same line, and
    `late_for` is the earlier message that it was recalled for, if that is over.
    """

    entry: Entry
    lane: Lane
    score: float
    lexical: float
    similarity: float | None
    terms: tuple[str, ...]
    partner: Entry | None = None
    is_earlier: bool = False
    answer: Entry | None = None
    late_for: str = ""


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The result of a search, best hits first.

    `query` is the text that was searched for, without secrets. `missing` names what was not available: a lane,
    "vectors" or "store". `correlation` is the id of this search in events. `weights` are those of the query's terms,
    `names` those of its words that name a speaker.
    """

    query: str
    hits: tuple[Hit, ...]
    missing: tuple[str, ...] = ()
    correlation: str = ""
    weights: Mapping[str, float] = field(default_factory=dict, repr=False, compare=False)
    names: frozenset[str] = field(default=frozenset(), repr=False, compare=False)


class Verb(StrEnum):
    """What an operation did. `undo` is an operation too, so it can be undone."""

    ADD = "add"
    UPDATE = "update"
    PROMOTE = "promote"
    APPROVE = "approve"
    DELETE = "delete"
    HIDE = "hide"
    RECORD = "record"
    IMPORT = "import"
    UNDO = "undo"


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
class Added:
    """The result of `add`. `created` is False if the space already held the statement.

    `operation` is what `undo` takes, None if nothing changed.
    """

    entry: Entry
    created: bool
    operation: str | None


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """Identifies an embedder and its version. Vectors of different identities are never compared."""

    name: str
    version: str
    dimensions: int
    normalised: bool = True


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


class Selector(NamedTuple):
    """What to forget. Exactly one field is set: `everything` is the whole space, `memories` are several at once."""

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
    """What a store's `forget` removed: the ids of entries, with all their versions, and the `spaces` they were in.

    `key_ids` are the keys of a sealed space that was erased as a whole, which `scrub` destroys: its own, and those that
    backups need which are not restored now. `copied_to` are other
    spaces that had copies of its text, such as blocks that quoted it, sealed with their own keys.
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
class RemainingKey(RemainingBytes):
    """A key that is not destroyed yet."""

    key_id: str = ""
    tenant: str = ""
    space: str = ""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The result of `forget`. `erased` counts entries.

    `state` is "erased", or "pending" while a reader still holds old pages of the file; no query finds the entries then,
    and a job removes the rest. `out_of_reach` names what may still hold the text: backups, and other spaces that
    recorded conversations of this one. `remaining` are bytes that the store itself still has. `key_destroyed`: the
    space was sealed and its key is gone, so copies of its rows, wherever they are, cannot be read.
    """

    state: str
    erased: int
    out_of_reach: tuple[str, ...] = ()
    remaining: tuple[RemainingBytes, ...] = ()
    key_destroyed: bool = False


class JobKind(StrEnum):
    """The kinds of background jobs. A store accepts other kinds too."""

    EMBED = "embed"
    SCRUB = "scrub"
    REVIEW = "review"
    RULES = "rules"
    CONSOLIDATE = "consolidate"


class JobState(StrEnum):
    """The state of a background job. `dead`: it failed too often."""

    READY = "ready"
    LEASED = "leased"
    DEAD = "dead"


class Job(NamedTuple):
    """Work that follows a write and is committed with it. `payload` is JSON with ids, never a memory's text."""

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
    """Makes a job for a whole space, due at `at`. Waiting jobs of one kind and space can be combined."""
    return Job(job_id, kind, tenant, space, "{}", at)


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


class EventContent(NamedTuple):
    """The texts that an event is about, without secrets: what was searched for, and memories by their ids."""

    query: str
    texts: Mapping[str, str]


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


class Excerpt(NamedTuple):
    """A hit that was chosen for a block, with the texts that are shown. Where they were cut, they have an ellipsis.

    `said_in` is the project that it is from, if that is not at hand.
    """

    hit: Hit
    text: str
    answer: str = ""
    said_in: str = ""


class ReadMetadata(dict[str, Any]):
    """The metadata of an entry that was read from a store. It is shared, so it cannot be changed.

    A copy, also a deep or a pickled one, is a plain dictionary.
    """

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "The metadata of an entry that was read cannot be changed. Change a copy: dict(entry.metadata)."
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


# Conversations, turns and recalls.


class TurnStatus(StrEnum):
    """The state of a turn. `abandoned`: it was left open and not continued for a day."""

    OPEN = "open"
    COMPLETED = "completed"
    ABORTED = "aborted"
    ABANDONED = "abandoned"


class Taint(StrEnum):
    """How text of others reached the assistant in a turn. `memory`: a recalled memory that is not trusted. `earlier`:
    in an earlier turn. `unknown`: the turn could not be read, or was recorded by an older version."""

    TOOL = "tool"
    MEMORY = "memory"
    SUBAGENT = "subagent"
    EARLIER = "earlier"
    UNKNOWN = "unknown"


class HandoverPoint(StrEnum):
    """Where a block is added: after a user message, after a tool result, or as text for a prompt. `STANDING` is the
    standing block in a host's list, in front of any other block of its element."""

    USER_MESSAGE = "user_message"
    TOOL_RESULT = "tool_result"
    PROMPT = "prompt"
    STANDING = "standing"


class RecallCause(StrEnum):
    """Why a recall was started."""

    MESSAGE = "message"
    INTERJECTION = "interjection"
    CUE = "cue"
    COMPACTION = "compaction"

    @property
    def is_epoch(self) -> bool:
        """Whether it starts a new epoch of its turn."""
        return self in (RecallCause.MESSAGE, RecallCause.INTERJECTION, RecallCause.CUE)


class Phase(StrEnum):
    """The two results of a recall: the fast one, and the one that a model refined."""

    FAST = "fast"
    REFINED = "refined"


class Outcome(StrEnum):
    """How a phase of a recall ended. Each phase ends in exactly one outcome, with a reason."""

    DELIVERED = "delivered"
    EMPTY = "empty"
    DEGRADED = "degraded"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    UNDELIVERED = "undelivered"


class ConversationKey(NamedTuple):
    """Identifies a conversation. `space` is its owner's: the same id under another owner is another one."""

    tenant: str
    space: str
    id: str

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, (self.space,))


@dataclass(frozen=True, slots=True)
class ConversationState:
    """Counters of a conversation. `turns` counts recorded turns; `compacted_at` is the last compaction's time.

    `incognito`: its turns are not recorded, until that is switched off. `had_incognito`: one of its turns was.
    """

    turns: int = 0
    compactions: int = 0
    compacted_at: float | None = None
    incognito: bool = False
    had_incognito: bool = False


@dataclass(frozen=True, slots=True)
class ConversationSnapshot:
    """What a turn needs to know of its conversation. `blocks` are its `known_blocks`; `forgets` is the number of the
    newest forget; `standing` is the standing block that the host has asked for."""

    blocks: tuple[BlockRow, ...]
    state: ConversationState
    carried: CarriedRow | None
    forgets: int
    standing: StandingRow | None = None


class StoredTurn(NamedTuple):
    """A turn, None if it is not stored, and its conversation. `any_tainted`: one of its turns is. `is_forgotten`: the
    turn must not be stored any more. `next_position` is that of the first record."""

    turn: TurnRow | None
    state: ConversationState
    forgets: int
    any_tainted: bool
    is_forgotten: bool
    next_position: int


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A stored turn. `user_hash` is the content hash of its user message, empty if the turn is `incognito`. A turn with
    a `taint` is tainted."""

    id: str
    status: TurnStatus
    started_at: float
    user_hash: str
    ended_at: float | None = None
    recorded_at: float | None = None
    taint: Taint | None = None
    incognito: bool = False


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A block that was injected, by the hash of its bytes.

    `anchor` identifies the messages before it, in one or two ways, separated by a blank; it is empty if the block is
    never put back. `text` is empty once something in it was forgotten. `in_sight`: as far as is known, it was not
    removed by a compaction, a reset or an exhausted exclusion.
    """

    hash: str
    turn: str
    refs: tuple[str, ...]
    size_bytes: int
    injected_at: float
    point: str = ""
    anchor: str = ""
    text: str = ""
    in_sight: bool = True


class Decision(StrEnum):
    """What happened to a memory in a recall.

    `shown`: it is in the block. `floor`: its score is too low. `budget`: the block was full. `restated`: another hit
    says the same. `visible`: the model sees it already. `stale`: it changed meanwhile. `not_handed_over`: the block was
    not delivered. `rank`: too many others matched better. `later`: it was stored afterwards. `scope`: it is in a space
    that the conversation may not read. `unrelated`: it does not match. `unfound`: it matches now, and the reason is not
    known.
    """

    SHOWN = "shown"
    FLOOR = "floor"
    BUDGET = "budget"
    RESTATED = "restated"
    VISIBLE = "visible"
    STALE = "stale"
    NOT_HANDED_OVER = "not_handed_over"
    EXCLUDED = "excluded"
    SUPERSEDED = "superseded"
    DELETED = "deleted"
    EXPIRED = "expired"
    PROPOSED = "proposed"
    QUARANTINED = "quarantined"
    UNDONE = "undone"
    SCOPE = "scope"
    RANK = "rank"
    LATER = "later"
    MISSING = "missing"
    UNRELATED = "unrelated"
    UNFOUND = "unfound"


class NoRecallReason(StrEnum):
    """Why a turn has no recall.

    `not_begun`: the turn was over, or has not reached that point. `gone`: the recall is no longer stored. `unknown`:
    the reason is no longer stored.
    """

    OFF = "off"
    NOTHING_TO_ASK = "nothing_to_ask"
    OVERLOAD = "overload"
    NOT_BEGUN = "not_begun"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One entry that a recall considered, by reference. `decision` is None if nothing was decided about it.

    `answer` is the reference of the answer that was shown with it.
    """

    ref: str
    space: str
    lane: Lane
    score: float
    lexical: float
    similarity: float | None
    decision: Decision | None = None
    is_earlier: bool = False
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class RecallRow:
    """One phase of one recall as it was stored, for `trace` and `replay`.

    `excluded` are references and `visible` content hashes that the model saw already. `candidates` are the chosen
    entries in their order, then the others. `settings` are those that shaped the block. `block` is the hash of the
    block and `delivered_in` the turn that it was composed for; `outcome` says whether it was delivered.
    """

    correlation: str
    turn: str
    epoch: int
    cause: RecallCause
    phase: Phase
    question: str
    asked_at: float
    settled_at: float | None
    outcome: Outcome
    reason: str
    reads: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()
    visible_bytes: int = 0
    terms: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    point: str = ""
    block: str = ""
    delivered_in: str = ""
    delivered_at: float | None = None


@dataclass(frozen=True, slots=True)
class CarriedRow:
    """A recall that settled too late for its turn, kept for the next one.

    `refined` are the references that a model chose; the other candidates are of the fast phase. `forgets` and
    `speakers` show later whether the question was forgotten meanwhile.
    """

    correlation: str
    turn: str
    epoch: int
    question: str
    asked_at: float
    settled_at: float
    phases: tuple[Phase, ...]
    candidates: tuple[Candidate, ...]
    refined: tuple[str, ...] = ()
    cause: RecallCause = RecallCause.MESSAGE
    forgets: int = 0
    speakers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StandingRow:
    """The standing block of a conversation, and the versions of the memories in it."""

    text: str
    refs: tuple[str, ...]
    made_at: float


@dataclass(frozen=True, slots=True)
class Message:
    """One message, in no particular format. `speaker` is a role or a name; `text` may be empty."""

    role: str
    text: str
    speaker: str
    hash: str


# Reviews and model usage.


class ReviewKind(StrEnum):
    """Why a review was started.

    `interval`, `compaction` and `asked` ask a model, and run one after another within a conversation.
    """

    INTERVAL = "interval"
    COMPACTION = "compaction"
    ASKED = "asked"
    RULES = "rules"
    EXTRACTION = "extraction"
    CONSOLIDATION = "consolidation"

    @property
    def takes_turns(self) -> bool:
        """Whether it waits for other reviews of its conversation."""
        return self in (ReviewKind.INTERVAL, ReviewKind.COMPACTION, ReviewKind.ASKED)


class ReviewState(StrEnum):
    """How a review ended. Only `saved` has written something. A review that timed out is not tried again."""

    WAITING = "waiting"
    SAVED = "saved"
    NOTHING = "nothing"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class ReviewMessage:
    """One message when the review was scheduled, without the blocks of memory.

    `source` is its record, None if it was not recorded. `fresh`: no review has read it yet.
    """

    role: str
    speaker: str
    text: str
    source: str | None
    trust: int
    occurred_at: float
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class ReviewRow:
    """One review. Its id is the group of all operations that it did.

    `space` owns the conversation; `writes` is the space that the conversation writes; `reads` are the spaces whose
    speakers it may learn about; `environment` is the space for what is learned about the environment, or blank for
    `writes`. `refusals` and `notes` are reasons, without the text of memories.
    """

    id: str
    kind: ReviewKind
    tenant: str
    space: str
    writes: str
    created_at: float
    conversation: str = ""
    turn: str = ""
    reads: tuple[str, ...] = ()
    agent: str | None = None
    project: str | None = None
    environment: str = ""
    forgets: int = 0
    state: ReviewState = ReviewState.WAITING
    ended_at: float | None = None
    written: int = 0
    proposed: int = 0
    refusals: tuple[str, ...] = ()
    calls: int = 0
    tokens: int = 0
    reason: str = ""
    spaces: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def changeable(self) -> tuple[str, ...]:
        """The spaces whose memories it may change."""
        return tuple(dict.fromkeys(space for space in (self.writes, self.space, self.environment) if space))


class Purpose(StrEnum):
    """What a model was asked for."""

    RECALL = "recall"
    REVIEW = "review"
    EXTRACTION = "extraction"
    COMPACTION = "compaction"


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Model calls and tokens of one space, day (ISO, UTC) and purpose.

    `estimated` is how many of the tokens were estimated because the server did not report them.
    """

    space: str
    day: str
    purpose: Purpose
    calls: int
    tokens_in: int
    tokens_out: int
    estimated: int = 0

    @property
    def tokens(self) -> int:
        """All tokens, in and out."""
        return self.tokens_in + self.tokens_out
