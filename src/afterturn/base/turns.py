"""The values of conversations and their turns, all frozen. Times are Unix seconds, UTC, as floats."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from afterturn.base.types import Lane, Scalar


class TurnStatus(StrEnum):
    OPEN = "open"
    COMPLETED = "completed"
    ABORTED = "aborted"
    ABANDONED = "abandoned"


class Point(StrEnum):
    """Where a block may be handed over (H1). `prompt`: as text, to a host that writes its prompt itself (H8)."""

    USER_MESSAGE = "user_message"
    TOOL_RESULT = "tool_result"
    PROMPT = "prompt"


class Cause(StrEnum):
    """Why a recall was started. The first three are epochs (R1); the last is counted apart."""

    MESSAGE = "message"
    INTERJECTION = "interjection"
    CUE = "cue"
    COMPACTION = "compaction"

    @property
    def is_epoch(self) -> bool:
        return self in (Cause.MESSAGE, Cause.INTERJECTION, Cause.CUE)


class Phase(StrEnum):
    """A recall's two results, consumed separately (R7)."""

    FAST = "fast"
    REFINED = "refined"


class Outcome(StrEnum):
    """How a phase of a recall ended; each ends in exactly one, with a reason (R5)."""

    DELIVERED = "delivered"
    EMPTY = "empty"
    DEGRADED = "degraded"
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    UNDELIVERED = "undelivered"


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """The same id under another owner is another conversation (L2). `space` is the owner's."""

    tenant: str
    space: str
    id: str


@dataclass(frozen=True, slots=True)
class ConversationState:
    """What a conversation has come to. `turns` counts those recorded; `compacted_at` is the last compaction's time."""

    turns: int = 0
    compactions: int = 0
    compacted_at: float | None = None


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A stored turn. `user_hash` finds its user message again in a list that the host has rebuilt."""

    id: str
    status: TurnStatus
    started_at: float
    user_hash: str
    ended_at: float | None = None
    recorded_at: float | None = None


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A block that was really injected (H5), by the hash of its bytes.

    `anchor` names the messages that it stands after, blank where it is never put back. `text` is blank once something
    in it was forgotten. `in_sight`: no compaction, reset or exhaustion came since, as far as we were told.
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


class Why(StrEnum):
    """What became of a memory in a recall. The first six are decided when it is asked, the others are looked up later.

    `rank`: more was found than is weighed; `unfound`: it matches now, and nothing tells why it did not then.
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


class NoRecall(StrEnum):
    """Why a turn has no recall. The first two are told when it begins, the others found when somebody looks back.

    `not_begun`: the turn was over, or is not yet so far; `unknown`: what was told then is gone by now.
    """

    OFF = "off"
    NOTHING_TO_ASK = "nothing_to_ask"
    NOT_BEGUN = "not_begun"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One entry that a recall weighed, by reference, and what became of it; None where nothing was decided."""

    ref: str
    space: str
    lane: Lane
    score: float
    lexical: float
    similarity: float | None
    decision: Why | None = None


@dataclass(frozen=True, slots=True)
class RecallRow:
    """One phase of one recall as it went, for `afterturn trace` and `afterturn replay`.

    `excluded` are the references and `visible` the content hashes that the model saw already. `terms` are those of the
    question that were found, `candidates` what was to be handed over, in its order, then the others; `settings` those
    that shaped the block. `block` is what it was weighed for, in the turn `delivered_in`: whether something of it was
    shown there is what `outcome` tells.
    """

    correlation: str
    turn: str
    epoch: int
    cause: Cause
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
    """A recall that settled too late for its turn, for the next one (R8).

    `refined` are the references that a model chose, the other candidates are the fast phase's. `forgets` and `speakers`
    tell later whether what was asked is to be known no more (M2).
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
    cause: Cause = Cause.MESSAGE
    forgets: int = 0
    speakers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StandingRow:
    """The standing block that a conversation is frozen to (S3), and the versions of memories in it."""

    text: str
    refs: tuple[str, ...]
    made_at: float


@dataclass(frozen=True, slots=True)
class Message:
    """One message as a dialect reads it. `speaker` is a role or a name; `text` may be blank."""

    role: str
    text: str
    speaker: str
    hash: str
