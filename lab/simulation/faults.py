"""What goes wrong in a simulated run, and when: a store that is slow, refuses or hangs, on a store that is real."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from afterturn.errors import StoreLocked, StoreUnavailable
from afterturn.ports import Store, Unit
from afterturn.types import Finding
from lab.simulation.world import World

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Troubles:
    """Chances from 0 to 1, for each piece of work. `usual` is the mean time that one takes, in seconds."""

    name: str
    usual: float = 0.001
    slow: float = 0.02
    hang: float = 0.0
    read_fails: float = 0.0
    write_fails: float = 0.0


KINDS = (
    Troubles("calm"),
    Troubles("calm"),
    Troubles("slow", usual=0.02, slow=0.2),
    Troubles("failing writes", write_fails=0.15),
    Troubles("failing reads", read_fails=0.15),
    Troubles("hanging", hang=0.02),
    Troubles("all", usual=0.005, slow=0.1, hang=0.01, read_fails=0.08, write_fails=0.08),
)
_SLOW = (0.02, 0.3)
_HANG = (1.0, 12.0)


class Faults:
    """Decides, each time, by the world's chance. `over`: nothing goes wrong any more."""

    def __init__(self, world: World, troubles: Troubles) -> None:
        self.troubles = troubles
        self.over = False
        self._world = world

    def pace(self) -> float:
        """How long the store's next piece of work takes to begin."""
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
        """The same for threads that no trouble reaches."""
        return self._world.random.expovariate(1 / KINDS[0].usual)

    def refuses_read(self) -> bool:
        return not self.over and self._world.random.random() < self.troubles.read_fails

    def refuses_write(self) -> bool:
        return not self.over and self._world.random.random() < self.troubles.write_fails


class FaultyStore:
    """The Store port over a real store. A refusal comes from inside the unit of work, on the store's own thread."""

    def __init__(self, inner: Store, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def write(self, work: Callable[[Unit], R]) -> Awaitable[R]:
        return self._inner.write(_busy if self._faults.refuses_write() else work)

    def read(self, work: Callable[[Unit], R]) -> Awaitable[R]:
        return self._inner.read(_unavailable if self._faults.refuses_read() else work)

    def scrub(self) -> Awaitable[bool]:
        return self._inner.scrub()

    def backup(self, target: Path, *, progress: Callable[[int, int], None]) -> Awaitable[None]:
        return self._inner.backup(target, progress=progress)

    def restore(self, source: Path, *, progress: Callable[[int, int], None]) -> Awaitable[None]:
        return self._inner.restore(source, progress=progress)

    def check(self) -> Awaitable[list[Finding]]:
        return self._inner.check()

    def backups(self) -> list[Path]:
        return self._inner.backups()

    def close(self, *, within: float) -> Awaitable[None]:
        return self._inner.close(within=within)


def _busy(unit: Unit) -> NoReturn:
    raise StoreLocked("The simulated store is busy. Try again later.")


def _unavailable(unit: Unit) -> NoReturn:
    raise StoreUnavailable("The simulated store can not be reached. Try again later.")
