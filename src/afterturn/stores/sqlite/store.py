"""The Store port on SQLite: awaitable from any event loop, with one writing thread and a few reading threads."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import apsw

from afterturn.config import Config
from afterturn.errors import MemoryClosed
from afterturn.log import logger
from afterturn.ports import Clock, Unit, Worker
from afterturn.runtime.loop_calls import call_on
from afterturn.runtime.worker import ThreadWorker
from afterturn.stores.sqlite.backup import automatic_copies, leftovers
from afterturn.stores.sqlite.connection import StoreLocation, connect_reader, identify, log_bytes, scalar_text
from afterturn.stores.sqlite.engine import READERS, Engine, Read, Write, WriteOutcome, open_engine
from afterturn.stores.sqlite.errors import translate
from afterturn.types import Finding

_FREE_BYTES_MIN = 100 * 1024 * 1024
_LOG_BYTES_MAX = 64 * 1024 * 1024
_MEBIBYTE = 1024 * 1024


def find_faults(place: StoreLocation) -> list[Finding]:
    """The findings of `doctor` about a file, on a connection of its own. Raises if the store cannot be read at all."""
    with closing(connect_reader(place)) as connection:
        try:
            found = [_schema(connection, place), _integrity(connection)]
        except apsw.Error as error:
            raise translate(error, str(place.path)) from error
    return [*found, _log(place), _permissions(place), _space(place), *_copies(place)]


def _schema(connection: apsw.Connection, place: StoreLocation) -> Finding:
    version, newest = identify(connection), len(place.migrations)
    if version == newest:
        return Finding("ok", "schema", f"The schema has version {version}.")
    return Finding(
        "error",
        "schema",
        f"The schema has version {version}; this afterturn works with {newest}.",
        "Upgrade afterturn in every process that uses the store, then open it again.",
    )


def _integrity(connection: apsw.Connection) -> Finding:
    result = scalar_text(connection, "PRAGMA quick_check(1)")
    if result == "ok":
        return Finding("ok", "integrity", "The file is not damaged.")
    return Finding("error", "integrity", f"The file is damaged: {result}.", "Run `afterturn restore <backup>`.")


def _log(place: StoreLocation) -> Finding:
    size = log_bytes(place.path)
    message = f"The write-ahead log has {size / _MEBIBYTE:.1f} MiB."
    if size <= _LOG_BYTES_MAX:
        return Finding("ok", "log", message)
    return Finding(
        "warning", "log", message, "A process does not end its reading transaction. Find that process and stop it."
    )


def _permissions(place: StoreLocation) -> Finding:
    mode = stat.S_IMODE(os.stat(place.path).st_mode)
    message = f"The file's mode is {mode:04o}."
    if not mode & (stat.S_IRGRP | stat.S_IROTH):
        return Finding("ok", "permissions", message)
    return Finding("warning", "permissions", f"{message} Others can read memories.", f"Run `chmod 600 {place.path}`.")


def _space(place: StoreLocation) -> Finding:
    free = shutil.disk_usage(place.path.parent).free
    message = f"{free / _MEBIBYTE:.0f} MiB are free on the store's disk."
    if free >= max(_FREE_BYTES_MIN, os.stat(place.path).st_size // 4):
        return Finding("ok", "space", message)
    return Finding("warning", "space", message, "Free some space: a full disk stops recording.")


def _copies(place: StoreLocation) -> Iterator[Finding]:
    names = ", ".join(item.name for item in automatic_copies(place.path)) or "none"
    yield Finding("ok", "backups", f"Automatic backups next to the store: {names}.")
    for item in leftovers(place.path):
        yield Finding(
            "warning", "backups", f"{item} is left over and may contain memories.", f"Check it, then run `rm {item}`."
        )


R = TypeVar("R")
Workers: TypeAlias = Callable[[str, int], Worker]
GROUP_WRITES_MAX = 128
_HALT_WAIT = 1.0
_ASIDE = "afterturn-aside"


class _Pending(NamedTuple):
    write: Write
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


def open_store(
    path: Path, config: Config, clock: Clock, *, vfs: str | None = None, worker: Workers = ThreadWorker
) -> SqliteStore:
    """Blocks while the file is checked and migrated: do not call it on an event loop. Raises a StoreError."""
    return SqliteStore(open_engine(path, config, clock, vfs=vfs), worker)


class SqliteStore:
    def __init__(self, engine: Engine, worker: Workers = ThreadWorker) -> None:
        self.engine = engine
        self.write_now = engine.write_now
        self.read_now = engine.read_now
        self._now = engine.place.clock.monotonic
        self._worker = worker
        self._writer = worker("afterturn-write", 1)
        self._reader = worker("afterturn-read", READERS)
        self._pending: deque[_Pending] = deque()
        self._is_posted = False
        self._asides: set[Worker] = set()
        self._stopping = threading.Event()
        self._closing = threading.Lock()
        self._closed = False
        self._drained = False

    async def write(self, work: Callable[[Unit], R]) -> R:
        self._check_open()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._pending.append(_Pending(Write(work, lambda: not future.cancelled()), loop, future))
        # The writing thread begins when this thread releases Python's lock, so other writes that are about to be posted
        # join the same commit.
        if not self._is_posted:
            self._post_commit()
        return await future

    async def read(self, work: Callable[[Unit], R]) -> R:
        self._check_open()
        read = Read(work)
        try:
            return await self._posted(self._reader, partial(self.engine.readers.run, read))
        except asyncio.CancelledError:
            read.halt()
            raise

    async def scrub(self) -> bool:
        self._check_open()
        return await self._posted(self._writer, self.engine.scrub)

    async def backup(self, target: Path, *, progress: Callable[[int, int], None]) -> None:
        await self._aside(lambda stopped: self.engine.backup(target, progress, stopped))

    async def restore(self, source: Path, *, progress: Callable[[int, int], None]) -> None:
        await self._aside(lambda stopped: self.engine.restore(source, progress, stopped))

    async def check(self) -> list[Finding]:
        return await self._aside(lambda stopped: find_faults(self.engine.place))

    def backups(self) -> list[Path]:
        return self.engine.backups()

    async def close(self, *, within: float) -> None:
        if self.engine.is_foreign():
            return
        # On another thread: the event loop must stay free to receive the results of the last writes.
        await self._apart("afterturn-close", lambda future: self.close_now(within=within))

    def close_now(self, *, within: float) -> None:
        """`close` for callers without a loop. A second caller waits for the first."""
        if self.engine.is_foreign():
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
            self.engine.halt()
            ended = self._ended(self._now() + _HALT_WAIT)
        self._drained = True
        self._refuse_pending()
        if ended:
            self.engine.close()
        else:
            logger.warning("the store %s was left open because work on it did not finish", self.engine.place.path)

    def _ended(self, deadline: float) -> bool:
        workers = (self._writer, self._reader, *self._asides)
        return all(worker.close(within=max(0.0, deadline - self._now())) for worker in workers)

    def _check_open(self) -> None:
        self.engine.check_usable()
        if self._closed:
            raise MemoryClosed(f"The store {self.engine.place.path} is closed. Open it again.")

    def _post_commit(self) -> None:
        self._is_posted = True
        try:
            self._writer.post(self._commit_pending)
        except MemoryClosed:
            self._is_posted = False
            if self._drained:
                self._refuse_pending()

    def _refuse_pending(self) -> None:
        """Refuses writes that were posted while the store was closing, too late for the last commit."""
        message = (
            f"The store {self.engine.place.path} was closed before this write began. Open the store and write it again."
        )
        self._deliver((item, WriteOutcome(error=MemoryClosed(message))) for item in self._taken(len(self._pending)))

    def _commit_pending(self) -> None:
        # Reset before it takes any, so that a later write posts again.
        self._is_posted = False
        while group := self._taken(GROUP_WRITES_MAX):
            try:
                outcomes = self.engine.writer.commit([item.write for item in group])
            except Exception as error:  # the boundary of the writing thread: no caller may wait for ever
                logger.exception("a commit of %d writes failed", len(group))
                outcomes = [WriteOutcome(error=error) for _ in group]
            self._pending.extendleft(reversed(group[len(outcomes) :]))
            self._deliver(zip(group, outcomes, strict=False))

    def _taken(self, limit: int) -> list[_Pending]:
        taken: list[_Pending] = []
        while self._pending and len(taken) < limit:
            item = self._pending.popleft()
            if item.write.wanted():
                taken.append(item)
        return taken

    def _deliver(self, results: Iterable[tuple[_Pending, WriteOutcome]]) -> None:
        ready = sorted(results, key=lambda result: id(result[0].loop))
        for _, batch in groupby(ready, key=lambda result: id(result[0].loop)):
            settled = [(item.future, outcome) for item, outcome in batch]
            _post_to(settled[0][0].get_loop(), settled)

    async def _posted(self, worker: Worker, work: Callable[[], R]) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        worker.post(partial(_run_for, loop, future, work))
        return await future

    async def _aside(self, work: Callable[[Callable[[], bool]], R]) -> R:
        """Runs long work on its own worker. Cancelling the await stops it at its next step."""
        self._check_open()
        return await self._apart(_ASIDE, lambda future: work(lambda: future.cancelled() or self._stopping.is_set()))

    async def _apart(self, name: str, work: Callable[[asyncio.Future[R]], R]) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        worker = self._worker(name, 1)
        if name == _ASIDE:
            self._asides.add(worker)
        worker.post(partial(_run_for, loop, future, partial(work, future)))
        try:
            return await future
        finally:
            if worker.close(within=0.0 if future.cancelled() else _HALT_WAIT):
                self._asides.discard(worker)


def _run_for(loop: asyncio.AbstractEventLoop, future: asyncio.Future[R], work: Callable[[], R]) -> None:
    try:
        outcome = WriteOutcome(work())
    except Exception as error:  # noqa: BLE001 the boundary of a thread: the future gets the error
        outcome = WriteOutcome(error=error)
    _post_to(loop, [(future, outcome)])


def _post_to(loop: asyncio.AbstractEventLoop, settled: list[tuple[asyncio.Future[Any], WriteOutcome]]) -> None:
    try:
        call_on(loop, partial(_settle, settled))
    except RuntimeError:
        # The loop is closed: nothing waits for the result, and committed writes stay committed.
        logger.info("%d results arrived after their event loop had closed", len(settled))


def _settle(settled: list[tuple[asyncio.Future[Any], WriteOutcome]]) -> None:
    for future, outcome in settled:
        if future.done():
            continue
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.value)
