"""Stored rows: conversations, turns, recalls, jobs, reviews and calls of models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from afterturn.types.conversations import Outcome, Phase, RecallCause, Taint, TurnStatus
from afterturn.types.entries import Scalar
from afterturn.types.searches import Lane


@dataclass(frozen=True, slots=True)
class StandingRow:
    """The standing block of a conversation, and the versions of the memories in it."""

    text: str
    refs: tuple[str, ...]
    made_at: float


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
    """The state of a conversation that a turn reads when it begins. `blocks` are its `known_blocks`; `forgets` is the
    number of the newest forget; `standing` is the standing block that the host has asked for."""

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


@dataclass(frozen=True, slots=True)
class Showing:
    """A turn in whose block a version of a memory was. `space` owns the conversation."""

    ref: str
    space: str
    conversation: str
    turn: str
    at: float


class Decision(StrEnum):
    """The outcome of a memory in a recall.

    `shown`: it is in the block. `floor`: its score is too low. `budget`: the block was full. `restated`: another hit
    says the same. `visible`: the model sees it already. `stale`: it changed meanwhile. `not_handed_over`: the block was
    not delivered. `not_selected`: the model that selects chose others. `rank`: too many others matched better. `later`:
    it was stored afterwards. `scope`: it is in a space that the conversation may not read. `unrelated`: it does not
    match. `unfound`: it matches now, and the reason is not known.
    """

    SHOWN = "shown"
    FLOOR = "floor"
    BUDGET = "budget"
    RESTATED = "restated"
    VISIBLE = "visible"
    STALE = "stale"
    NOT_HANDED_OVER = "not_handed_over"
    NOT_SELECTED = "not_selected"
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
    """The purpose of a call of a model."""

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
