"""Runs one seed, from the first process to the final check of the store."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from afterturn.config import Config
from afterturn.errors import AfterturnError
from afterturn.testing.hashing import HashingEmbedder
from lab.simulation.checks import ForgetReach, check_learned, check_process, check_recalls, check_records, check_reviews
from lab.simulation.client import Client
from lab.simulation.janitor import Janitor
from lab.simulation.process import KINDS, Environment, Faults, Process, SimIds, SimModel, healed
from lab.simulation.templates import OpenStore, Template
from lab.simulation.transcript import OWNERS, Habits, PromiseBroken, Transcript, draw, memories
from lab.simulation.world import Stuck, World

# The conversation, or none for the janitor.
Host: TypeAlias = tuple[Transcript | None, asyncio.Task[None]]

GRACES = (0.0, 0.05, 0.05, 0.2)
_DRAIN_WITHIN = 600.0
# Possible after the store refused a write: another process does not know of a compaction or of a visible block,
# takes that block for the user's words, or finds carried memories a second time.
EXCUSED = ("C5", "H3", "H5", "R5 twice")


@dataclass(slots=True)
class Result:
    """`broken` is empty if every promise was kept. `log` is the same in each run of the seed."""

    seed: int
    broken: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


def run_seed(seed: int, folder: Path, template: Template, *, on_line: Callable[[str], None] | None = None) -> Result:
    """Runs a whole scenario in `folder`, on a copy of the store `template`. `on_line` is called with each log line."""
    result = Result(seed)
    path = folder / f"{seed}.db"
    world = World(seed)
    world.on_line = on_line
    with _quiet() as complaints, template.copy(path) as open_store:
        scenario = Scenario(world, path, open_store)
        try:
            scenario.run()
        except (PromiseBroken, Stuck) as error:
            result.broken.append(str(error))
        finally:
            scenario.bury()
    result.broken += scenario.broken + complaints.errors
    if complaints.has_missed:
        result.broken = [what for what in result.broken if not what.startswith(EXCUSED)]
    result.log = world.log
    shutil.rmtree(f"{path}.waiting", ignore_errors=True)
    return result


class Scenario:
    """Several processes in sequence, with one store; hosts continue their conversations in the next process."""

    def __init__(self, world: World, path: Path, open_store: OpenStore) -> None:
        random = world.random
        self.broken: list[str] = []
        self._world = world
        self._grace = random.choice(GRACES)
        faults = Faults(world, random.choice(KINDS))
        model = SimModel(world, faults) if random.random() < 0.5 else None
        embedder = HashingEmbedder() if random.random() < 0.25 else None
        self._around = Environment(world, path, self._config(model), SimIds(), faults, embedder, open_store, model)
        self._talks = [self._new_talk(number) for number in range(random.randint(1, 3))]
        self._janitor = Janitor(world, [transcript for transcript, _ in self._talks])
        self._processes: list[Process] = []

    def _config(self, model: SimModel | None) -> Config:
        return Config(
            grace=self._grace,
            synchronous="normal",
            embedder="none",
            recall_entries_max=3,
            refined=model is not None,
            review_interval=2 if model is not None and self._world.random.random() < 0.5 else 0,
        )

    def _new_talk(self, number: int) -> tuple[Transcript, Habits]:
        random = self._world.random
        habits = draw(random, self._grace, stalls=random.random() < 0.5)
        return Transcript(f"talk-{number}", random.choice(OWNERS), habits.kind), habits

    def run(self) -> None:
        self._world.note("world", f"the store is {self._around.faults.troubles.name}, grace {self._grace}")
        for transcript, habits in self._talks:
            self._world.note(transcript.id, f"{habits.kind}, of {transcript.owner}")
        for number in range(1, self._world.random.randint(1, 3) + 1):
            self._live(f"p{number}")
        self._look(Process(healed(self._around), "last"))
        self.broken += check_recalls(self._processes) + check_reviews(self._processes)

    def bury(self) -> None:
        for process in self._processes:
            process.bury()
        with warnings.catch_warnings():
            if any(process.killed for process in self._processes):
                # Coroutines of the dead process will never be awaited.
                warnings.simplefilter("ignore", RuntimeWarning)
            self._processes.clear()
            # While it is disabled, all new objects are in the youngest generation.
            gc.collect(0)

    def _live(self, name: str) -> None:
        """One process, or two at once with the same store; each ends in its own way."""
        names = (f"{name}a", f"{name}b") if self._world.random.random() < 0.3 else (name,)
        processes = [process for name in names if (process := self._opened(name)) is not None]
        hosts = self._begin(processes) if processes else {}
        for process in processes:
            self._end(process, hosts[process])

    def _opened(self, name: str) -> Process | None:
        process = Process(self._around, name)
        self._processes.append(process)
        try:
            process.open()
        except AfterturnError as error:
            self._world.note(name, f"cannot open: {error}")
            return None
        return process

    def _begin(self, processes: list[Process]) -> dict[Process, list[Host]]:
        random = self._world.random
        hosts: dict[Process, list[Host]] = {process: [] for process in processes}
        for transcript, habits in self._talks:
            process = random.choice(processes)
            loop = process.new_loop(transcript.id) if habits.stalls else process.main
            client = Client(self._world, process, loop, transcript, habits)
            hosts[process].append((transcript, loop.begin(client.run(random.randint(1, 3)))))
        if random.random() < 0.3:
            process = random.choice(processes)
            hosts[process].append((None, process.main.begin(self._janitor.run(process))))
        return hosts

    def _end(self, process: Process, hosts: list[Host]) -> None:
        random = self._world.random
        ending = random.choice(["finish", "finish", "finish", "close", "kill"])
        deadline = math.inf if ending == "finish" else self._world.monotonic() + random.uniform(0, 6.0)
        self._world.run(lambda: all(task.done() for _, task in hosts), deadline=deadline)
        if ending == "kill":
            process.kill()
            for transcript, _ in hosts:
                if transcript is not None:
                    transcript.recover(process.name)
            return
        process.close()
        self._world.run(lambda: all(task.done() for _, task in hosts))
        for _, task in hosts:
            task.result()
        self._world.run(process.is_at_rest)
        self.broken += check_process(process)

    def _look(self, process: Process) -> None:
        """Without faults: everything that was promised is stored, once and complete."""
        self._processes.append(process)
        process.open()
        memory = process.memory
        if not process.wait(memory.drain(within=_DRAIN_WITHIN)):
            self.broken.append("C8: the last process could not drain its jobs")
        findings = process.wait(memory.check())
        self.broken += [f"check: {finding}" for finding in findings if finding.level == "error"]
        reach = ForgetReach(self._janitor.forgets, self._processes)
        for transcript, _ in self._talks:
            self.broken += process.wait(check_records(memory, transcript, reach))
        for owner in OWNERS:
            self.broken += process.wait(check_learned(memory, owner, self._janitor.forgets))
        process.close()
        self.broken += check_process(process)


def make_template(template: Template) -> None:
    """Fills a store with the owners' earlier memories; made once and copied for each seed."""
    template.make(_fill)


def _fill(path: Path, open_store: OpenStore) -> None:
    world = World("template")
    faults = Faults(world, KINDS[0])
    around = Environment(world, path, Config(embedder="none"), SimIds("m"), faults, None, open_store)
    process = Process(healed(around), "template")
    process.open()
    for owner in OWNERS:
        space = process.memory.space(owner)
        for text in memories(owner):
            process.wait(space.add(text))
    process.close()
    process.bury()


@contextmanager
def _quiet() -> Iterator[ErrorLog]:
    """Disables the garbage collector and the log."""
    handler = complaints = ErrorLog()
    logger = logging.getLogger("afterturn")
    propagate, logger.propagate = logger.propagate, False
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    collecting = gc.isenabled()
    # When it runs depends on everything before, and what it frees may affect what follows.
    gc.disable()
    try:
        yield complaints
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)
        if collecting:
            gc.enable()


class ErrorLog(logging.Handler):
    """Logged errors, and whether memory gave something up that another process would need."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.errors: list[str] = []
        self.has_missed = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self.errors.append(f"log: {self.format(record)}")
        elif "is not noted in the store" in str(record.msg):
            self.has_missed = True
