"""Work in the background: jobs, reviews, and the models that they use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


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


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """Identifies an embedder and its version. Vectors of different identities are never compared."""

    name: str
    version: str
    dimensions: int
    normalised: bool = True


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
