"""A memory whose store a test holds back, breaks and lets go, and what can be read off its events and blocks."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from spoken import Told

import afterturn
from afterturn.config import Config
from afterturn.errors import StoreLocked, StoreUnavailable
from afterturn.ports import ChatModel, Clock, Store, Unit
from afterturn.runtime.once_future import OnceFuture
from afterturn.stores.sqlite.store import open_store
from afterturn.testing.clock import ManualClock
from afterturn.types import UnitScope

R = TypeVar("R")
HELD_MAX = 60.0
# The one read that searches lanes; the others look at conversations, jobs and entries.
SEARCH = "answer_question"
LETTERS = "ABCDEFGH"
HERBS = ("Anise", "Basil", "Clove", "Dill", "Endive", "Fennel", "Garlic", "Hyssop")
_NAMED = re.compile(r"^- \[([^\]]+)\]", re.MULTILINE)


class Gate:
    """Where work waits on memory's loop while a test keeps it shut."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self._free: OnceFuture[bool] = OnceFuture()
        self._free.settle(True)

    def shut(self) -> None:
        self.came.clear()
        self._free = OnceFuture()

    def open(self) -> None:
        self._free.settle(True)

    async def passed(self) -> None:
        if not self._free.settled:
            self.came.set()
            await self._free.wait(within=HELD_MAX)


class StagedStore:
    """The Store port over the real SQLite store. `searches` counts recalls that came to it, whatever became of them."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.searching = Gate()
        self.reading = Gate()
        self.fails_searches = False
        self.fails_reads = False
        self.fails_writes = False
        self.searches = 0

    async def read(self, work: Callable[[Unit], R], *, at: UnitScope) -> R:
        is_search = SEARCH in getattr(getattr(work, "func", work), "__qualname__", "")
        self.searches += is_search
        if is_search:
            await self.searching.passed()
        await self.reading.passed()
        if self.fails_reads or (is_search and self.fails_searches):
            raise StoreUnavailable("The store is away today. Ask again tomorrow.")
        return await self._inner.read(work, at=at)

    async def write(self, work: Callable[[Unit], R], *, at: UnitScope) -> R:
        if self.fails_writes:
            raise StoreLocked("The store is busy today. Ask again tomorrow.")
        return await self._inner.write(work, at=at)

    def mend(self) -> None:
        self.fails_searches = self.fails_reads = self.fails_writes = False
        self.searching.open()
        self.reading.open()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Stage:
    """Opens memories on one file, one after the other or at once; `store` is the newest one's."""

    def __init__(self, path: Path, told: Told, clock: ManualClock) -> None:
        self.path = path
        self.told = told
        self.clock = clock
        self._stores: list[StagedStore] = []

    @property
    def store(self) -> StagedStore:
        return self._stores[-1]

    def open(self, *, model: ChatModel | None = None, **config: object) -> afterturn.Memory:
        parts = afterturn.Components(clock=self.clock, store=self._opened)
        # These tests are about when something is handed over. How relevant it is has tests of its own.
        easy = {"recall_score_min": 0.03, "embedder": "none"}
        settings: dict[str, object] = {"grace": 5.0, "busy_timeout": 1.0, **easy, **config}
        return afterturn.open(self.path, settings, on_event=self.told, components=parts, model=model)

    def _opened(self, target: Path, config: Config, clock: Clock) -> StagedStore:
        self._stores.append(StagedStore(open_store(target, config, clock)))
        return self._stores[-1]

    def count(self, name: str, **data: object) -> int:
        """How many events of that name, with that data."""
        return sum(all(event.data.get(key) == value for key, value in data.items()) for event in self.told.named(name))

    def endings(self) -> list[tuple[object, object]]:
        """Outcome and reason of every phase that has ended, in that order."""
        return [(event.data["outcome"], event.data["reason"]) for event in self.told.named("recall_ended")]

    async def held(self) -> None:
        """A recall has come to the store, where the test holds it."""
        assert await asyncio.to_thread(self.store.searching.came.wait, 20.0)

    async def heard(self, name: str, count: int = 1) -> Mapping[str, object]:
        return (await asyncio.to_thread(self.told.wait, name, count)).data


async def learn(memory: afterturn.Memory, clock: ManualClock, texts: Sequence[str]) -> None:
    """Ada's memories; of those that fit a question equally well the first is the best, since it is the newest."""
    for text in reversed(texts):
        await memory.space("user:ada").add(text)
        clock.advance(60)


async def learn_herbs(memory: afterturn.Memory, clock: ManualClock) -> None:
    """Eight memories, A to H, that a question about soup finds in this order."""
    await learn(memory, clock, [f"{herb} goes into the soup" for herb in HERBS])


async def settled(turn: afterturn.Turn) -> None:
    """Until memory has whatever it will have for what was said last."""
    assert turn._turn is not None
    assert await turn._turn.shared.current.fast.settled.wait(within=20.0) is not None


async def caught_up(memory: afterturn.Memory) -> None:
    """All that the host has told memory so far has been heard."""
    await memory.stats()


def letters(element: object) -> str:
    """Which of the herbs an element, or a list of them, names: "ABC"."""
    text = str(element)
    found = sorted((text.index(herb), letter) for letter, herb in zip(LETTERS, HERBS, strict=True) if herb in text)
    return "".join(letter for _, letter in found)


def references(text: str) -> list[str]:
    """Of the memories that blocks in a text show."""
    return _NAMED.findall(text)
