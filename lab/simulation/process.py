"""A simulated process: one memory with its loop and workers, and its hosts' loops. It can be killed at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from afterturn.config import Config
from afterturn.memory import Memory
from afterturn.memory import open as open_memory
from afterturn.ports import ChatModel, Clock, Embedder, Store, Worker
from afterturn.runtime.exits import last_chance
from afterturn.services import Components
from afterturn.stores.sqlite.store import SqliteStore, open_store
from afterturn.types import Event, Phase
from lab.simulation.faults import Faults, FaultyStore
from lab.simulation.loop import SimLoop, VirtualLoop
from lab.simulation.worker import SimWorker
from lab.simulation.world import World

R = TypeVar("R")


class SimIds:
    """Ids that sort as they were made, over all processes of a world."""

    def __init__(self, prefix: str = "s") -> None:
        self._prefix = prefix
        self._last = 0

    def new(self) -> str:
        self._last += 1
        return f"{self._prefix}{self._last:05d}"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What outlives a process."""

    world: World
    path: Path
    config: Config
    ids: SimIds
    faults: Faults
    embedder: Embedder | None
    model: ChatModel | None = None


class Process:
    """Its events are kept in order. `is_open` until its host closes it: from then on nothing is promised."""

    def __init__(self, surroundings: Surroundings, name: str) -> None:
        self.name = name
        self.events: list[Event] = []
        self.is_open = True
        self.killed = False
        self._around = surroundings
        self._loops: list[VirtualLoop] = []
        self._workers: list[SimWorker] = []
        self._stores: list[SqliteStore] = []
        self._memory: Memory | None = None
        self.main = self.new_loop("main")

    @property
    def memory(self) -> Memory:
        assert self._memory is not None
        return self._memory

    @property
    def troubles(self) -> list[str]:
        """What asyncio complained about, on any of its loops."""
        return [trouble for loop in self._loops for trouble in loop.troubles]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Those that each of its recalls has."""
        return tuple(Phase) if self._around.config.refined else (Phase.FAST,)

    def new_loop(self, name: str) -> VirtualLoop:
        """One of its hosts' loops."""
        loop = VirtualLoop(self._around.world, f"{self.name}.{name}", pausing=False)
        self._loops.append(loop)
        self._around.world.add(loop)
        return loop

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """Lets the world go on until the work is done, on the main loop."""
        return self.main.run_until_complete(work)

    def open(self) -> None:
        around = self._around
        parts = Components(
            embedder=around.embedder,
            model=around.model,
            clock=around.world,
            ids=around.ids,
            loop=self._new_private_loop,
            worker=self._new_worker,
            store=self._open_store,
        )
        self._memory = open_memory(around.path, around.config, on_event=self._hear, components=parts)
        self.wait(self._memory.start())

    def close(self) -> None:
        self.is_open = False
        self._around.world.note(self.name, "closes")
        self.wait(self.memory.close())

    def kill(self) -> None:
        """As if the power of its machine were cut: not one step more."""
        self.killed = True
        self._around.world.note(self.name, "is killed")
        self.bury()

    def bury(self) -> None:
        """Frees what it held, without a step of its own. Its files are closed: nobody else can."""
        if self._memory is not None:
            last_chance.forget(self._memory)
        for worker in self._workers:
            worker.vanish()
        for loop in self._loops:
            _end_tasks(loop)
        for loop in self._loops:
            if not loop.is_closed():
                loop.close()
        for store in self._stores:
            store.engine.close()

    def unfinished(self) -> list[str]:
        """Tasks that are left on memory's loops."""
        private = [loop for loop in self._loops if loop.when_stopped is not None]
        return [f"{loop.name}: {task.get_name()}" for loop in private for task in asyncio.all_tasks(loop)]

    def is_at_rest(self) -> bool:
        """Whether no thread of its workers has anything left to do."""
        return all(worker.is_idle() for worker in self._workers)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        data = " ".join(f"{key}={value}" for key, value in event.data.items())
        self._around.world.note(self.name, f"{event.name} {event.conversation} {event.turn} {data}")

    def _new_private_loop(self, name: str) -> SimLoop:
        loop = SimLoop(self._around.world, f"{self.name}.{name}")
        self._loops.append(loop.virtual)
        return loop

    def _new_worker(self, name: str, threads: int) -> Worker:
        faults = self._around.faults
        # Files and embedder have no troubles of their own: what is shown here is that a store's do not reach them.
        pace = faults.pace if name in _OF_STORE else faults.usual_pace
        worker = SimWorker(self._around.world, f"{self.name}.{name}", threads, pace)
        self._workers.append(worker)
        return worker

    def _open_store(self, path: Path, config: Config, clock: Clock) -> Store:
        store = open_store(path, config, clock, worker=self._new_worker)
        self._stores.append(store)
        return FaultyStore(store, self._around.faults)


_OF_STORE = ("afterturn-write", "afterturn-read")


def healed(surroundings: Surroundings) -> Surroundings:
    """The same place with nothing going wrong any more."""
    faults = Faults(surroundings.world, surroundings.faults.troubles)
    faults.over = True
    return replace(surroundings, faults=faults)


def _end_tasks(loop: VirtualLoop) -> None:
    """Without running them: what they would have said is no trouble, since nobody is left to hear it."""
    loop.set_exception_handler(lambda loop, context: None)
    for task in asyncio.all_tasks(loop):
        work = task.get_coro()
        if asyncio.iscoroutine(work):
            work.close()
