"""A simulated process with a faulty store and model. It can be killed at any moment."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from afterturn.config import Config
from afterturn.errors import ModelUnavailable, StoreLocked, StoreUnavailable
from afterturn.memory import Memory
from afterturn.memory import open as open_memory
from afterturn.ports import ChatModel, Clock, Embedder, Store, Unit, Worker
from afterturn.runtime.exits import exit_closer
from afterturn.services import Components
from afterturn.testing.model import call_tools
from afterturn.types import Event, Finding, Phase, RemainingBytes, UnitScope
from lab.simulation.templates import OpenStore, SimStore
from lab.simulation.world import SimLoop, SimWorker, VirtualLoop, World

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Probabilities from 0 to 1 for each piece of work. `usual` is the mean duration of one, in seconds."""

    name: str
    usual: float = 0.001
    slow: float = 0.02
    hang: float = 0.0
    read_fails: float = 0.0
    write_fails: float = 0.0


KINDS = (
    FaultRates("calm"),
    FaultRates("calm"),
    FaultRates("slow", usual=0.02, slow=0.2),
    FaultRates("failing writes", write_fails=0.15),
    FaultRates("failing reads", read_fails=0.15),
    FaultRates("hanging", hang=0.02),
    FaultRates("all", usual=0.005, slow=0.1, hang=0.01, read_fails=0.08, write_fails=0.08),
)
_SLOW = (0.02, 0.3)
_HANG = (1.0, 12.0)


class Faults:
    """Decides each fault with the world's random numbers. `over`: no more faults."""

    def __init__(self, world: World, troubles: FaultRates) -> None:
        self.troubles = troubles
        self.over = False
        self._world = world

    def pace(self) -> float:
        """The delay before the store's next piece of work."""
        random, troubles = self._world.random, self.troubles
        chance = random.random()
        if not self.over and chance < troubles.hang:
            seconds = random.uniform(*_HANG)
            self._world.note("store", f"hangs for {seconds:.1f} s")
            return seconds
        if not self.over and chance < troubles.hang + troubles.slow:
            return random.uniform(*_SLOW)
        return random.expovariate(1 / troubles.usual)

    def usual_pace(self) -> float:
        """The same for threads without faults."""
        return self._world.random.expovariate(1 / KINDS[0].usual)

    def refuses_read(self) -> bool:
        return not self.over and self._world.random.random() < self.troubles.read_fails

    def refuses_write(self) -> bool:
        return not self.over and self._world.random.random() < self.troubles.write_fails


class FaultyStore:
    """The Store port over a real store. Errors are raised inside the unit of work, on the store's own thread."""

    def __init__(self, inner: Store, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def write(self, work: Callable[[Unit], R], *, at: UnitScope) -> Awaitable[R]:
        return self._inner.write(_busy if self._faults.refuses_write() else work, at=at)

    def read(self, work: Callable[[Unit], R], *, at: UnitScope) -> Awaitable[R]:
        return self._inner.read(_unavailable if self._faults.refuses_read() else work, at=at)

    def scrub(self) -> Awaitable[tuple[RemainingBytes, ...]]:
        return self._inner.scrub()

    def check(self) -> Awaitable[list[Finding]]:
        return self._inner.check()

    def close(self, *, within: float) -> Awaitable[None]:
        return self._inner.close(within=within)


def _busy(unit: Unit) -> NoReturn:
    raise StoreLocked("The simulated store is busy. Try again later.")


def _unavailable(unit: Unit) -> NoReturn:
    raise StoreUnavailable("The simulated store cannot be reached. Try again later.")


_DELAYS = (0.0, 0.1, 0.9, 2.5, 1000.0)
_NUMBERED = re.compile(r"^\[(\d+)\]", re.MULTILINE)
_KNOWN = re.compile(r'\{"id": "([0-9a-z]+)"')
_SAID = re.compile(r'\{"message": (\d+), "from": "user.*?"text": "([^"]*)"')


class SimModel:
    """The ChatModel port. Most answers select some of the memories in the prompt, or save what the user said."""

    def __init__(self, world: World, faults: Faults) -> None:
        self._world = world
        self._faults = faults

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        random = self._world.random
        await asyncio.sleep(0.0 if self._faults.over else random.choice(_DELAYS))
        chance = 1.0 if self._faults.over else random.random()
        if chance < 0.1:
            raise ModelUnavailable("The simulated model does not answer. Try again later.", reason="unreachable")
        if chance < 0.2:
            return {"role": "assistant", "content": random.choice(["", "none", '{"ids": "all"}', '{"ids": [9999]}'])}
        if tools:
            return self._review(messages)
        numbers = [int(number) for number in _NUMBERED.findall(str(messages[-1]["content"]))]
        chosen = random.sample(numbers, min(len(numbers), random.randrange(4)))
        return {"role": "assistant", "content": json.dumps({"ids": chosen})}

    def _review(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Adds what a user said, replaces a memory with it, or deletes a memory."""
        random, shown = self._world.random, str(messages[1]["content"])
        said = _SAID.findall(shown)
        if messages[-1]["role"] == "tool" or not said:
            return {"role": "assistant", "content": "Nothing to save."}
        number, text = random.choice(said)
        rests = {"messages": [int(number)]}
        calls: list[tuple[str, dict[str, Any]]] = [
            ("add_memory", {"text": f"The user said: {text}", "target": "user", **rests})
        ]
        known = _KNOWN.findall(shown)
        if known and random.random() < 0.5:
            calls.append(("update_memory", {"id": random.choice(known), "text": f"The user now said: {text}", **rests}))
        if known and random.random() < 0.2:
            calls.append(("delete_memory", {"id": random.choice(known), **rests}))
        called = call_tools(*calls)["tool_calls"]
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": str(at), "type": "function", **call} for at, call in enumerate(called)],
        }


class SimIds:
    """Ids that sort by creation, across all processes of a world."""

    def __init__(self, prefix: str = "s") -> None:
        self._prefix = prefix
        self._last = 0

    def new(self) -> str:
        self._last += 1
        return f"{self._prefix}{self._last:05d}"


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything that outlives a process."""

    world: World
    path: Path
    config: Config
    ids: SimIds
    faults: Faults
    embedder: Embedder | None
    open_store: OpenStore
    model: ChatModel | None = None


class Process:
    """Keeps its events in order. `is_open` until its host closes it; after that nothing is promised."""

    def __init__(self, environment: Environment, name: str) -> None:
        self.name = name
        self.events: list[Event] = []
        self.is_open = True
        self.killed = False
        self._around = environment
        self._loops: list[VirtualLoop] = []
        self._workers: list[SimWorker] = []
        self._stores: list[SimStore] = []
        self._memory: Memory | None = None
        self.main = self.new_loop("main")

    @property
    def memory(self) -> Memory:
        assert self._memory is not None
        return self._memory

    @property
    def troubles(self) -> list[str]:
        """Errors that asyncio reported on any of its loops."""
        return [trouble for loop in self._loops for trouble in loop.troubles]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of each of its recalls."""
        return tuple(Phase) if self._around.config.refined else (Phase.FAST,)

    def new_loop(self, name: str) -> VirtualLoop:
        """A new loop for one of its hosts."""
        loop = VirtualLoop(self._around.world, f"{self.name}.{name}", pausing=False)
        self._loops.append(loop)
        self._around.world.add(loop)
        return loop

    def wait(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs the world until the work is done, on the main loop."""
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
        """Stops the process at once, like a power cut."""
        self.killed = True
        self._around.world.note(self.name, "is killed")
        self.bury()

    def bury(self) -> None:
        """Frees its resources without running any of its code. Its files and connections are closed, as the system
        closes those of a process that is killed."""
        if self._memory is not None:
            exit_closer.forget(self._memory)
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
        """Tasks that remain on memory's loops."""
        private = [loop for loop in self._loops if loop.when_stopped is not None]
        return [f"{loop.name}: {task.get_name()}" for loop in private for task in asyncio.all_tasks(loop)]

    def is_at_rest(self) -> bool:
        """Whether none of its worker threads has work left."""
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
        # Files and embedder have no faults: the simulation shows that faults of the store do not reach them.
        pace = faults.pace if name in _OF_STORE else faults.usual_pace
        worker = SimWorker(self._around.world, f"{self.name}.{name}", threads, pace)
        self._workers.append(worker)
        return worker

    def _open_store(self, path: Path, config: Config, clock: Clock) -> Store:
        store = self._around.open_store(path, config, clock, self._new_worker)
        self._stores.append(store)
        return FaultyStore(store, self._around.faults)


_OF_STORE = ("afterturn-write", "afterturn-read")


def healed(environment: Environment) -> Environment:
    """The same environment without faults."""
    faults = Faults(environment.world, environment.faults.troubles)
    faults.over = True
    return replace(environment, faults=faults)


def _end_tasks(loop: VirtualLoop) -> None:
    """Removes tasks without running them. Their warnings do not matter, because the process is dead."""
    loop.set_exception_handler(lambda loop, context: None)
    for task in asyncio.all_tasks(loop):
        work = task.get_coro()
        if asyncio.iscoroutine(work):
            work.close()
