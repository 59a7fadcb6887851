"""A recall under way: started with an epoch, settled on memory's loop, handed over on the host's path, by phases."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import assert_never

from afterturn.base.slot import Slot
from afterturn.base.turns import Cause, Outcome, Phase
from afterturn.base.types import Hit
from afterturn.turn.preparing import Prepared, Question


class Stage(StrEnum):
    """Where a phase is on its way; ARCHITECTURE.md draws it."""

    ASKED = "asked"
    READY = "ready"
    CARRIED = "carried"
    ENDED = "ended"


def may_follow(stage: Stage) -> frozenset[Stage]:
    match stage:
        case Stage.ASKED:
            return frozenset((Stage.READY, Stage.ENDED))
        case Stage.READY:
            return frozenset((Stage.CARRIED, Stage.ENDED))
        case Stage.CARRIED:
            return frozenset((Stage.ENDED,))
        case Stage.ENDED:
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
        self.stage = Stage.ASKED
        self.hits: tuple[Hit, ...] = ()
        self.settled: Slot[bool] = Slot()
        self.settled_at: float | None = None
        self.consumed = False
        self.outcome: Outcome | None = None
        self.reason = ""

    def move(self, stage: Stage) -> None:
        assert stage in may_follow(self.stage), f"{self.phase} can not go from {self.stage} to {stage}"
        self.stage = stage

    @property
    def ended(self) -> bool:
        return self.stage is Stage.ENDED


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

    def __init__(self, correlation: str, cause: Cause, *, turn: str, epoch: int, phases: tuple[Phase, ...]) -> None:
        self.correlation = correlation
        self.cause = cause
        self.turn = turn
        self.epoch = epoch
        self.runs = tuple(PhaseRun(self, phase) for phase in phases)
        self.question: Question | None = None
        self.prepared: Prepared | None = None
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
