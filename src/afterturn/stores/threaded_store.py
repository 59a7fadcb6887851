"""The Store port over an engine that blocks: awaitable from any event loop, with one writing thread and a few reading
threads. SQLite and PostgreSQL differ in their engines only."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias, TypeVar

from afterturn.errors import KeysUnavailable, MemoryClosed, StoreError
from afterturn.log import logger
from afterturn.ports import Unit, Worker
from afterturn.runtime.loop_thread import run_on
from afterturn.runtime.once_future import call_on
from afterturn.stores.engine import StoreEngine, Write, WriteOutcome
from afterturn.stores.keys import LOADS_MAX, KeyNeeded, KeyRing, too_many_loads

# A unit loads its repositories. A turn needs them all, and is not to wait for that.
from afterturn.stores.sql import conversations, index, jobs, memories, operations, records, reviews, timeline  # noqa: F401
from afterturn.stores.sql.sealing import OF_STORE, find_key, keys_to_destroy, note_destroyed, store_key
from afterturn.stores.sql.unit import in_session, load_store_key
from afterturn.types import Finding, JobQueue, RemainingBytes, Scope, UnitScope

R = TypeVar("R")
Workers: TypeAlias = Callable[[str, int], Worker]
GROUP_WRITES_MAX = 128
_HALT_WAIT = 1.0
_ASIDE = "afterturn-aside"
# If a provider of keys hangs, some calls are left for other spaces.
_KEY_CALLS_MAX = 4


@dataclass(frozen=True, slots=True)
class RemainingKey(RemainingBytes):
    """A key that is not destroyed yet."""

    key_id: str = ""
    tenant: str = ""
    space: str = ""


class _Pending(NamedTuple):
    write: Write
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class ThreadedStore:
    """`find_faults` returns the findings of `doctor`, and blocks."""

    def __init__(self, engine: StoreEngine, find_faults: Callable[[], list[Finding]], worker: Workers) -> None:
        self._engine = engine
        self._find_faults = find_faults
        self._now = engine.clock.monotonic
        self._worker = worker
        self._writer = worker("afterturn-write", 1)
        self._reader = worker("afterturn-read", engine.readers_max)
        self.keys = self._keys = engine.keys
        if self._keys is not None:
            self._key_worker = worker("afterturn-keys", _KEY_CALLS_MAX)
        self._pending: deque[_Pending] = deque()
        self._is_posted = False
        self._asides: set[Worker] = set()
        self._stopping = threading.Event()
        self._closing = threading.Lock()
        self._closed = False
        self._drained = False

    async def write(self, work: Callable[[Unit], R], *, at: UnitScope) -> R:
        return await self._with_keys(lambda: self._write(work, at))

    async def _write(self, work: Callable[[Unit], R], at: UnitScope) -> R:
        self._check_open()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._pending.append(_Pending(Write(work, future.cancelled, at), loop, future))
        # The writing thread begins when this thread releases Python's lock, so other writes that are about to be posted
        # join the same commit.
        if not self._is_posted:
            self._is_posted = True
            try:
                self._writer.post(self._commit_pending)
            except MemoryClosed:
                self._is_posted = False
                if self._drained:
                    self._refuse_pending()
        return await future

    async def read(self, work: Callable[[Unit], R], *, at: UnitScope) -> R:
        return await self._with_keys(lambda: self._read(work, at))

    async def _read(self, work: Callable[[Unit], R], at: UnitScope) -> R:
        self._check_open()
        read = self._engine.new_read(work, at)
        try:
            return await run_on(self._reader, read.run)
        except asyncio.CancelledError:
            read.halt()
            raise

    async def scrub(self) -> tuple[RemainingBytes, ...]:
        self._check_open()
        remaining = await run_on(self._writer, self._engine.scrub)
        return remaining if self._keys is None else (*await self._destroy_keys(self._keys), *remaining)

    # Keys of a sealed store. The provider is called outside transactions, on threads of its own.

    async def _with_keys(self, call: Callable[[], Awaitable[R]]) -> R:
        for _ in range(LOADS_MAX):
            try:
                return await call()
            except KeyNeeded as needed:
                assert self._keys is not None
                await self._load_keys(self._keys, needed)
        raise too_many_loads()

    async def _load_keys(self, keys: KeyRing, needed: KeyNeeded) -> None:
        if needed.spaces:
            of_store = await self._read(in_session(find_key, *OF_STORE), None)
            keys.note_store_key(of_store)
            if of_store is None:
                # Alone, before the first key of a space: a provider that does not have it is not the store's.
                needed = KeyNeeded(spaces=[OF_STORE])
        made = await self._ask_provider(lambda: keys.load(needed))
        for (tenant, space), key_id in made.items():
            at = None if (tenant, space) == OF_STORE else Scope(tenant, (space,))
            stored = await self._write(in_session(store_key, tenant, space, key_id), at)
            if stored != key_id:
                # Another process was quicker.
                await self._ask_provider(partial(keys.destroy, key_id))

    async def _destroy_keys(self, keys: KeyRing) -> list[RemainingKey]:
        """Destroys the keys of spaces that were erased. Returns those that are left."""
        left = []
        for key_id, tenant, space in await self._read(in_session(keys_to_destroy), None):
            try:
                # A provider that does not have the store's own key would destroy nothing, and say that all is well.
                await self._check_store_key(keys)
                await self._ask_provider(partial(keys.destroy, key_id))
            except KeysUnavailable as error:
                logger.warning("the key of %s is not destroyed yet: %s", space, error)
                until = "the provider of keys has destroyed it; a job tries again"
                left.append(
                    RemainingKey(f"the key of {space}", until, retry=True, key_id=key_id, tenant=tenant, space=space)
                )
            else:
                await self._write(in_session(note_destroyed, key_id, tenant, space), JobQueue())
        return left

    async def _check_store_key(self, keys: KeyRing) -> None:
        keys.note_store_key(await self.read(load_store_key, at=None))
        await self._ask_provider(keys.check_store_key)

    async def _check_keys(self, keys: KeyRing) -> Finding:
        try:
            await self._check_store_key(keys)
            left = len(await self._destroy_keys(keys))
        except StoreError as error:
            return Finding("error", "keys", str(error), "Until then sealed spaces can be neither read nor written.")
        if left:
            message = (
                f"{left} {'key is' if left == 1 else 'keys are'} not destroyed yet, although the space is forgotten."
            )
            return Finding("warning", "keys", message, "Check the provider of keys. A job tries again.")
        return Finding("ok", "keys", "The store is sealed, and the provider of keys answers.")

    async def _ask_provider(self, call: Callable[[], R]) -> R:
        return await run_on(self._key_worker, call)

    async def check(self) -> list[Finding]:
        found = await self._run_aside(lambda stopped: self._find_faults())
        return found if self._keys is None else [*found, await self._check_keys(self._keys)]

    async def close(self, *, within: float) -> None:
        if self._engine.is_foreign():
            return
        # On another thread: the event loop must stay free to receive the results of the last writes.
        await self._apart("afterturn-close", lambda future: self.close_now(within=within))

    def close_now(self, *, within: float) -> None:
        """`close` for callers without a loop. A second caller waits for the first."""
        if self._engine.is_foreign():
            return
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._finish(self._now() + within)

    def _finish(self, deadline: float) -> None:
        self._stopping.set()
        self._writer.post(self._commit_pending)
        ended = self._ended(deadline)
        if not ended:
            self._engine.halt()
            ended = self._ended(self._now() + _HALT_WAIT)
        self._drained = True
        self._refuse_pending()
        if self._keys is not None:
            # A call to the provider that hangs is not waited for: it holds nothing of the store.
            self._key_worker.close(within=_HALT_WAIT)
        if ended:
            self._engine.close()
        else:
            logger.warning("the store %s was left open because work on it did not finish", self._engine.name)

    def _ended(self, deadline: float) -> bool:
        workers = (self._writer, self._reader, *self._asides)
        # Each of them is closed, also after one that does not end.
        ended = [worker.close(within=max(0.0, deadline - self._now())) for worker in workers]
        return all(ended)

    def _check_open(self) -> None:
        self._engine.check_usable()
        if self._closed:
            raise MemoryClosed(f"The store {self._engine.name} is closed. Open it again.")

    def _refuse_pending(self) -> None:
        """Refuses writes that were posted while the store was closing, too late for the last commit."""
        message = (
            f"The store {self._engine.name} was closed before this write began. Open the store and write it again."
        )
        self._deliver((item, WriteOutcome(error=MemoryClosed(message))) for item in self._taken(len(self._pending)))

    def _commit_pending(self) -> None:
        # Reset before it takes any, so that a later write posts again.
        self._is_posted = False
        while group := self._taken(GROUP_WRITES_MAX):
            try:
                outcomes = self._engine.commit([item.write for item in group])
            except Exception as error:  # the boundary of the writing thread: no caller may wait for ever
                logger.exception("a commit of %d writes failed", len(group))
                outcomes = [WriteOutcome(error=error) for _ in group]
            self._pending.extendleft(reversed(group[len(outcomes) :]))
            self._deliver(zip(group, outcomes, strict=False))

    def _taken(self, limit: int) -> list[_Pending]:
        taken: list[_Pending] = []
        while self._pending and len(taken) < limit:
            item = self._pending.popleft()
            if not item.write.is_cancelled():
                taken.append(item)
        return taken

    def _deliver(self, results: Iterable[tuple[_Pending, WriteOutcome]]) -> None:
        ready = sorted(results, key=lambda result: id(result[0].loop))
        for _, batch in groupby(ready, key=lambda result: id(result[0].loop)):
            settled = [(item.future, outcome) for item, outcome in batch]
            try:
                call_on(settled[0][0].get_loop(), partial(_settle, settled))
            except RuntimeError:
                # The loop is closed: nothing waits for the result, and committed writes stay committed.
                logger.info("%d results arrived after their event loop had closed", len(settled))

    async def _run_aside(self, work: Callable[[Callable[[], bool]], R]) -> R:
        """Runs long work on its own worker. Cancelling the await stops it at its next step."""
        self._check_open()
        return await self._apart(_ASIDE, lambda future: work(lambda: future.cancelled() or self._stopping.is_set()))

    async def _apart(self, name: str, work: Callable[[asyncio.Future[R]], R]) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        worker = self._worker(name, 1)
        if name == _ASIDE:
            self._asides.add(worker)
        try:
            return await run_on(worker, lambda: work(future))
        except asyncio.CancelledError:
            future.cancel()
            raise
        finally:
            if worker.close(within=0.0 if future.cancelled() else _HALT_WAIT):
                self._asides.discard(worker)


def schema_finding(what: str, version: int, newest: int) -> Finding:
    if version == newest:
        return Finding("ok", "schema", f"{what} has version {version}.")
    return Finding(
        "error",
        "schema",
        f"{what} has version {version}; this afterturn works with {newest}.",
        "Upgrade afterturn in every process that uses the store, then open it again.",
    )


def _settle(settled: list[tuple[asyncio.Future[Any], WriteOutcome]]) -> None:
    for future, outcome in settled:
        if future.done():
            continue
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.value)
