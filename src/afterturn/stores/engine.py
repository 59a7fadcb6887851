"""The contract of an engine, a store that blocks: `threaded_store.py` drives it, short programs call it directly.

Imports no asyncio, so that `recall_once` can use an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from afterturn.ports import Clock, Unit
from afterturn.stores.keys import KeyNeeded, KeyRing
from afterturn.types import RemainingBytes, Scope, Tenant, UnitScope

R = TypeVar("R")
Progress: TypeAlias = Callable[[int, int], None]


def _always() -> bool:
    return True


def tenant_of(at: UnitScope) -> str | None:
    """None for a unit that works in several tenants."""
    if isinstance(at, Scope):
        return at.tenant
    return at.name if isinstance(at, Tenant) else None


class Write(NamedTuple):
    """`wanted` is called when the write's turn comes; after that the write commits or rolls back as a whole.

    `Store.write` explains `at`."""

    work: Callable[[Unit], Any]
    wanted: Callable[[], bool] = _always
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


class StoreEngine(Protocol):
    """An open store whose methods block. They may be called from any thread."""

    @property
    def name(self) -> str:
        """The store in messages, without a password."""

    @property
    def clock(self) -> Clock: ...

    @property
    def keys(self) -> KeyRing | None:
        """None if the store is not sealed."""

    @property
    def readers_max(self) -> int:
        """How many reads may run at the same time."""

    def commit(self, writes: Sequence[Write]) -> list[WriteOutcome]:
        """The outcomes of the first of `writes`, in order, once they are durable. Others are left to the next call."""

    def new_read(self, work: Callable[[Unit], R], at: UnitScope) -> ReadCall[R]: ...

    def scrub(self) -> tuple[RemainingBytes, ...]: ...

    def halt(self) -> None:
        """Stops running work: reads fail, the open transaction is rolled back, and nothing new begins."""

    def close(self) -> None: ...

    def is_foreign(self) -> bool:
        """Whether this is a forked child's copy of its parent's store."""

    def check_usable(self) -> None:
        """Raises ForkedProcess or MemoryClosed."""
