"""The values of reviews and of what models cost, all frozen. Times are Unix seconds, UTC, as floats."""

from dataclasses import dataclass
from enum import StrEnum

from afterturn.base.types import Entry, Verb


class ReviewKind(StrEnum):
    """Why a review was scheduled. The first three ask a model, and wait for one another within a conversation (V1)."""

    INTERVAL = "interval"
    COMPACTION = "compaction"
    ASKED = "asked"
    RULES = "rules"
    EXTRACTION = "extraction"
    CONSOLIDATION = "consolidation"

    @property
    def takes_turns(self) -> bool:
        return self in (ReviewKind.INTERVAL, ReviewKind.COMPACTION, ReviewKind.ASKED)


class ReviewState(StrEnum):
    """What became of a review. Only `saved` has written something; a review that timed out is not tried again (V4)."""

    WAITING = "waiting"
    SAVED = "saved"
    NOTHING = "nothing"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Snapped:
    """One message as it was when the review was scheduled; our own blocks are not in it (C5).

    `source` is the record that holds it, None for what is not recorded. `fresh`: no review has seen it yet.
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
    """One review, from its schedule to its end. Its id is the group of all operations that it did.

    `space` owns the conversation and lists the review; `writes` is the space that the conversation may write, `reads`
    are those whose named speakers it may learn about. `forgets` is the newest forget when it was scheduled (M2).
    `refusals` and `notes` are reasons of ours, without a memory's words.
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


class Purpose(StrEnum):
    """What a model was asked for; `afterturn usage` counts by it."""

    RECALL = "recall"
    REVIEW = "review"
    EXTRACTION = "extraction"
    COMPACTION = "compaction"


@dataclass(frozen=True, slots=True)
class Spent:
    """What calls of models came to for one space, day (ISO, UTC) and purpose.

    `estimated` of the tokens were counted by us, since the server did not say.
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
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True, slots=True)
class ReviewedChange:
    """One operation of a review: the version that it found, and the one that it left; None where there was none.

    `state` is what became of it: it `stands`, `waits` for approval, was `approved`, `rejected` or `undone`, or was
    `changed` by somebody else; `planned` where nothing is done yet.
    """

    verb: Verb
    space: str
    operation: str
    before: Entry | None
    after: Entry | None
    state: str = "stands"


@dataclass(frozen=True, slots=True)
class Review:
    """A review as a person reads it."""

    row: ReviewRow
    changes: tuple[ReviewedChange, ...] = ()
