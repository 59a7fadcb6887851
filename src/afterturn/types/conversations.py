"""Conversations, turns, recalls and blocks, as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from afterturn.types.entries import Scalar
from afterturn.types.searches import Lane


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
