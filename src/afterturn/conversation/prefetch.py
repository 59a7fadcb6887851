"""A recall under way: started with an epoch, settled on memory's loop, handed over on the host's path, by phases."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import assert_never

from afterturn.conversation.read_turn import RecallAnswer, RecallQuestion
from afterturn.runtime.once_future import OnceFuture
from afterturn.types import Hit, Outcome, Phase, RecallCause


class PhaseState(StrEnum):
    """Where a phase is on its way; ARCHITECTURE.md draws it."""

    ASKED = "asked"
    READY = "ready"
    CARRIED = "carried"
    ENDED = "ended"


def may_follow(stage: PhaseState) -> frozenset[PhaseState]:
    match stage:
        case PhaseState.ASKED:
            return frozenset((PhaseState.READY, PhaseState.ENDED))
        case PhaseState.READY:
            return frozenset((PhaseState.CARRIED, PhaseState.ENDED))
        case PhaseState.CARRIED:
            return frozenset((PhaseState.ENDED,))
        case PhaseState.ENDED:
            return frozenset()
        case _:
            assert_never(stage)


class PhaseRun:
    """One phase of one prefetch. `consumed` belongs to the desk, whose lock guards it; the rest to memory's loop.

    `settled` is what a host waits for; it settles when there is something to take, or when there never will be.
    """

    __slots__ = ("consumed", "hits", "outcome", "phase", "prefetch", "reason", "settled", "settled_at", "stage")

    def __init__(self, prefetch: Prefetch, phase: Phase) -> None:
        self.prefetch = prefetch
        self.phase = phase
        self.stage = PhaseState.ASKED
        self.hits: tuple[Hit, ...] = ()
        self.settled: OnceFuture[bool] = OnceFuture()
        self.settled_at: float | None = None
        self.consumed = False
        self.outcome: Outcome | None = None
        self.reason = ""

    def move(self, stage: PhaseState) -> None:
        assert stage in may_follow(self.stage), f"{self.phase} can not go from {self.stage} to {stage}"
        self.stage = stage

    @property
    def ended(self) -> bool:
        return self.stage is PhaseState.ENDED


class Prefetch:
    """What one epoch recalls. Without a question (blank input, an acknowledgement) nothing is asked, nothing ends.

    `shown` names the memories of it that were handed over; like `consumed` it belongs to the desk. `withheld` names
    those that are kept from the model (G3).
    """

    __slots__ = (
        "asked_at",
        "cause",
        "correlation",
        "epoch",
        "forgets",
        "prepared",
        "question",
        "runs",
        "shown",
        "speakers",
        "speculated",
        "started",
        "task",
        "turn",
        "withheld",
    )

    def __init__(
        self, correlation: str, cause: RecallCause, *, turn: str, epoch: int, phases: tuple[Phase, ...]
    ) -> None:
        self.correlation = correlation
        self.cause = cause
        self.turn = turn
        self.epoch = epoch
        self.runs = tuple(PhaseRun(self, phase) for phase in phases)
        self.question: RecallQuestion | None = None
        self.prepared: RecallAnswer | None = None
        self.asked_at: float | None = None
        self.started = 0.0
        self.forgets = 0
        self.shown: frozenset[str] = frozenset()
        self.speakers: tuple[str, ...] = ()
        self.speculated = False
        self.withheld: frozenset[str] = frozenset()
        self.task: asyncio.Task[None] | None = None

    @property
    def fast(self) -> PhaseRun:
        return self.runs[0]

    @property
    def asked(self) -> bool:
        return self.asked_at is not None

    def last(self, phase: Phase) -> PhaseRun:
        """The run that waiting for `phase` means: the fast one where nothing is refined."""
        return next((run for run in self.runs if run.phase is phase), self.fast)

    def let_go(self) -> None:
        """Nobody has to wait for it any more, whatever became of it."""
        for run in self.runs:
            run.settled.settle(False)
