"""The jobs that learn. Rules are quick and run with the other jobs; what asks a model has a runner of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from afterturn.base.config import Config
from afterturn.base.events import Events
from afterturn.base.jobs import LEASE, Commit, Handler, JobRunner, Work
from afterturn.base.loading import load
from afterturn.base.meter import Meter
from afterturn.base.ports import ChatModel, Clock, Ids, Store
from afterturn.base.types import Job, JobKind
from afterturn.guard.gate import Gate

if TYPE_CHECKING:
    from afterturn.learn.reviewing import Reviewing


@dataclass(frozen=True, slots=True)
class LearningParts:
    """Handed over by `runtime`. Without a model nothing is reviewed here, but others may do it.

    `is_busy`: a turn is open in this process. `on_write` wakes the jobs that follow a write.
    """

    store: Store
    gate: Gate
    config: Config
    clock: Clock
    ids: Ids
    events: Events
    meter: Meter
    model: ChatModel | None
    is_busy: Callable[[], bool]
    on_write: Callable[[], None]


class Learning:
    """Lives on memory's loop. A model that hangs holds up reviews, and nothing else (V2)."""

    def __init__(self, parts: LearningParts, owner: str, also: Mapping[str, Handler]) -> None:
        """`also` are other jobs that take their time."""
        self._parts = parts
        lease = max(LEASE, 2 * parts.config.review_timeout)
        work = Work(parts.store, parts.clock, parts.events, owner, lease, side_by_side=True)
        self.runner = JobRunner(work, {**also, **({JobKind.REVIEW: self._review} if self.has_model else {})})

    @property
    def has_model(self) -> bool:
        return self._parts.model is not None

    @property
    def quick(self) -> dict[str, Handler]:
        """For the runner of the other jobs."""
        return {JobKind.RULES: self._apply_rules}

    @functools.cached_property
    def _reviewing(self) -> Reviewing:
        # Loaded for the first review: most programs that open a memory end before there is one.
        load("afterturn.learn.reviewing")
        from afterturn.learn.reviewing import Reviewing

        return Reviewing(self._parts)

    async def _review(self, job: Job) -> Commit:
        return await self._reviewing.review(job)

    async def _apply_rules(self, job: Job) -> Commit:
        return await self._reviewing.apply_rules(job)
