"""The contract of an engine, a store that blocks: `threaded_store.py` drives it, short programs call it directly.

Imports no asyncio, so that `recall_once` can use an engine.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from afterturn.errors import ForkedProcess, MemoryClosed
from afterturn.stores.keys import KeyNeeded, KeyRing
from afterturn.stores.sql.session import Session
from afterturn.types import Scope, Tenant

if TYPE_CHECKING:
    from afterturn.ports import Clock, Unit
    from afterturn.types import RemainingBytes, UnitScope

R = TypeVar("R")
Progress: TypeAlias = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    """The default for `progress`."""


def never() -> bool:
    return False


def tenant_of(at: UnitScope) -> str | None:
    """None for a unit that works in several tenants."""
    if isinstance(at, Scope):
        return at.tenant
    return at.name if isinstance(at, Tenant) else None


class Write(NamedTuple):
    """`is_cancelled` is called when the write's turn comes; after that it commits or rolls back as a whole.

    `Store.write` explains `at`."""

    work: Callable[[Unit], Any]
    is_cancelled: Callable[[], bool] = never
    at: UnitScope = None


class WriteOutcome(NamedTuple):
    """The result of one write. A skipped write has neither value nor error."""

    value: Any = None
    error: Exception | KeyNeeded | None = None
    skipped: bool = False


class ReadCall(NamedTuple, Generic[R]):
    """One read: `run` blocks, `halt` stops it soon and returns at once, from any thread."""

    run: Callable[[], R]
    halt: Callable[[], None]


class ReaderPool(Protocol):
    """Connections that can be stopped and closed."""

    def halt(self) -> None: ...

    def close(self) -> None: ...


class GroupWriter(ReaderPool, Protocol):
    """The connection that writes."""

    def commit(self, writes: Sequence[Write]) -> list[WriteOutcome]: ...


class StoreEngine(ABC):
    """An open store whose methods block. They may be called from any thread; a forked child gets ForkedProcess.

    `name` is the store in messages, without a password. `keys` is None if the store is not sealed."""

    readers_max: ClassVar[int]
    """How many reads may run at the same time."""
    readers: ReaderPool
    writer: GroupWriter

    def __init__(self, name: str, clock: Clock, keys: KeyRing | None) -> None:
        self.name = name
        self.clock = clock
        self.keys = keys
        self._process = os.getpid()
        self._closed = False

    def commit(self, writes: Sequence[Write]) -> list[WriteOutcome]:
        """The outcomes of the first of `writes`, in order, once they are durable. Others are left to the next call."""
        return self.writer.commit(writes)

    @abstractmethod
    def new_read(self, work: Callable[[Unit], R], at: UnitScope = None) -> ReadCall[R]: ...

    @abstractmethod
    def scrub(self) -> tuple[RemainingBytes, ...]: ...

    def halt(self) -> None:
        """Stops running work: reads fail, the open transaction is rolled back, and nothing new begins."""
        self.writer.halt()
        self.readers.halt()

    def advance_sequences(self, session: Session) -> None:
        """Lets new rows have keys after the largest that was copied. SQLite does that by itself."""
        return

    def write_now(self, work: Callable[[Unit], R], *, at: UnitScope = None) -> R:
        self.check_usable()
        outcome = self.commit([Write(work, at=at)])[0]
        if outcome.error is not None:
            raise outcome.error
        value: R = outcome.value
        return value

    def read_now(self, work: Callable[[Unit], R], *, at: UnitScope = None) -> R:
        self.check_usable()
        return self.new_read(work, at).run()

    def close(self) -> None:
        """Waits for running work. Closing twice is harmless. In a forked child it does nothing: the files and sockets
        are the parent's."""
        if not (self._closed or self.is_foreign()):
            self._closed = True
            self.readers.close()
            self.writer.close()

    def is_foreign(self) -> bool:
        """Whether this is a forked child's copy of its parent's store."""
        return os.getpid() != self._process

    def check_usable(self) -> None:
        """Raises ForkedProcess or MemoryClosed."""
        if self.is_foreign():
            raise ForkedProcess(f"The store {self.name} was opened by the parent process. Open it in the child.")
        if self._closed:
            raise MemoryClosed(f"The store {self.name} is closed. Open it again.")
