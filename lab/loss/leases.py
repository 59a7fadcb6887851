"""Jobs that run twice: their lease ended while their process was still at work, or they are in the store twice.

Every effect must happen once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import afterturn
from afterturn.errors import AfterturnError
from afterturn.runtime.clock import SystemClock
from afterturn.testing import HashingEmbedder
from afterturn.types import ReviewState
from lab.loss.plan import LEARNER, Step, StepKind
from lab.loss.workload import SETTINGS, LearningModel, components, record
from lab.tables import Store, open_tables

_DAY = 86_400.0
_COPY = (
    "INSERT INTO job (id, space_key, tenant, kind, payload, run_at, attempts, state, error) "
    "SELECT id || ?, space_key, tenant, kind, payload, run_at, attempts, 'ready', '' FROM job"
)


class TomorrowClock(SystemClock):
    """For this process, every lease of the others has ended."""

    def now(self) -> float:
        return super().now() + _DAY


class SlowModel(LearningModel):
    """Answers its first call when `released` is set."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.asked, self.released = asyncio.Event(), asyncio.Event()

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        # The model is called on memory's loop, and the lab waits on its own.
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._wait(), self._loop))
        return await super().complete(messages, tools, schema=schema)

    async def _wait(self) -> None:
        self.asked.set()
        await self.released.wait()


async def take_over(store: Store, label: str) -> list[Step]:
    """A review is at work when another process takes its job over and ends it. Returns what must have been learned."""
    model = SlowModel()
    slow = afterturn.Components(model=model, embedder=HashingEmbedder())
    async with afterturn.open(store, SETTINGS, components=slow) as first:
        await record(first, LEARNER, label, (f"I like {label}a, {label}b and {label}c", "I see."))
        review = asyncio.create_task(first.space(LEARNER).run_review(label))
        await asyncio.wait([review, asyncio.create_task(model.asked.wait())], return_when="FIRST_COMPLETED")
        async with afterturn.open(store, SETTINGS, components=components(TomorrowClock())) as second:
            await second.drain(within=30)
            (taken,) = await second.space(LEARNER).reviews(conversation=label)
            assert taken.state is ReviewState.SAVED, "The job was not taken over."
        model.released.set()
        # Whatever its own attempt says: the other process has done it.
        with suppress(AfterturnError):
            await review
        await first.drain(within=30)
    return [Step(LEARNER, StepKind.REVIEW, label)]


async def duplicate(store: Store, label: str) -> list[Step]:
    """All jobs of some turns are in the store three times, and two processes run them at once."""
    labels = [f"{label}n{number}x" for number in range(3)]
    waiting = {**SETTINGS, "background": False}
    async with afterturn.open(store, waiting, components=components()) as memory:
        for name in labels:
            await record(memory, LEARNER, name, (f"Remember that I like {name}tea with milk.", "I see."))
    with open_tables(store) as tables:
        for copy in ("copya", "copyb"):
            tables.run(_COPY + " WHERE id NOT LIKE '%copy_'", (copy,))
    async with (
        afterturn.open(store, SETTINGS, components=components()) as one,
        afterturn.open(store, SETTINGS, components=components()) as other,
    ):
        await asyncio.gather(one.drain(within=30), other.drain(within=30))
    return [Step(LEARNER, StepKind.LEARN, name) for name in labels]
