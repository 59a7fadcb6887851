"""`worker`: runs background jobs, such as embedding and reviews, and the housekeeping of all tenants."""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

import click

from afterturn.config import StoreUrl, spill_folder
from afterturn.conversation.spill import Spill
from afterturn.errors import AfterturnError, DeadlineExceeded, StoreError
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import ProgressCallback, count, note, progress
from afterturn.hosts.cli.process import show_warnings
from afterturn.log import logger
from afterturn.stores.directory import read_directory

if TYPE_CHECKING:
    from afterturn import blocking

LOOK_EVERY = 1.0
# How often a worker for several stores reads their directory, and how soon it tries again to open one of them.
DIRECTORY_EVERY = 60.0
RETRY_AFTER = 5.0
RETRY_AFTER_MAX = 600.0


@command("worker")
@click.option("--status", is_flag=True, help="Only count the jobs.")
@click.option("--once", is_flag=True, help="Do what is due, then exit.")
@click.option("--retry", is_flag=True, help="First requeue jobs that failed too often.")
@click.option(
    "--within", type=click.FloatRange(min=0), default=300.0, show_default=True, help="How many seconds --once may take."
)
def worker(invocation: Invocation, *, status: bool, once: bool, retry: bool, within: float) -> None:
    """Run background jobs and housekeeping of all tenants until stopped."""
    url = invocation.path()
    directory = url if isinstance(url, StoreUrl) and url.directory is not None else None
    if status:
        counts: Counter[str] = Counter()
        for store in [None] if directory is None else _stores(directory).values():
            with invocation.memory(store=store) as memory:
                counts.update(memory.jobs())
        invocation.answer({name: counts[name] for name in ("waiting", "running", "dead")}, _describe(counts))
        return
    show_warnings()
    stop = _stop_signal()
    jobs: Counter[str] = Counter(waiting=0, running=0, dead=0, done=0, failed=0, retried=0)
    if directory is not None:
        workers = DirectoryWorkers(invocation, directory, stop, retry=retry)
        jobs.update(workers.run_once(within) if once else workers.run())
    else:
        with invocation.memory(create=True, vectors=True, background=True) as memory:
            jobs["retried"] = memory.retry_dead(all_tenants=True) if retry else 0
            if once:
                with progress("Working") as report, _watched(memory, report):
                    _drain(memory, within, stop)
            else:
                note(f"Working. {_describe(memory.jobs())} Press Ctrl-C to stop.")
                memory.work(stop.is_set)
            jobs.update(memory.jobs())
    ended = f"{jobs['done']:,} done here, {jobs['failed']:,} failed attempts"
    text = f"{'Stopped' if stop.is_set() else 'All jobs are done'}: {ended}. {_describe(jobs)}"
    invocation.answer({"retried": jobs.pop("retried"), "drained": not stop.is_set(), **jobs}, text)


def _stores(directory: StoreUrl) -> dict[str, StoreUrl]:
    """By name. Several tenants may share a store."""
    return {str(store): store for store in read_directory(directory).values()}


class DirectoryWorkers:
    """Serves every store of a directory by a worker in a thread of its own, so that none waits for the many jobs or for
    the server of another. Stores that are added meanwhile are served too."""

    def __init__(self, invocation: Invocation, directory: StoreUrl, stop: threading.Event, *, retry: bool) -> None:
        self._invocation = invocation
        self._directory = directory
        self._stop = stop
        self._retry = retry
        self._jobs: Counter[str] = Counter()
        self._lock = threading.Lock()

    def run(self) -> Counter[str]:
        """Returns when `stop` is set and the jobs that ran then have ended."""
        stores = _stores(self._directory)
        note(f"Working for {count(len(stores), 'store')}. Press Ctrl-C to stop.")
        threads: dict[str, threading.Thread] = {}
        while True:
            for name, store in stores.items():
                if name not in threads:
                    threads[name] = threading.Thread(target=self._serve, args=(store,), name=name)
                    threads[name].start()
            try:
                self._store_waiting_turns(DIRECTORY_EVERY)
            except AfterturnError as error:
                logger.warning("turns that wait in files are tried again in a minute: %s", error)
            if self._stop.wait(DIRECTORY_EVERY):
                break
            try:
                stores = _stores(self._directory)
            except StoreError as error:
                logger.warning("the directory of tenants cannot be read; the known stores are served: %s", error)
        for thread in threads.values():
            thread.join()
        return self._jobs

    def run_once(self, within: float) -> Counter[str]:
        """All stores at the same time. Raises the first error when the others have ended."""
        self._store_waiting_turns(within)
        stores = _stores(self._directory)
        with ThreadPoolExecutor(max(1, len(stores))) as pool:
            results = [(name, pool.submit(self._drain, store, within)) for name, store in stores.items()]
        for name, result in results:
            error = result.exception()
            if isinstance(error, AfterturnError):
                raise StoreError(f"The store {name} has work left: {error}") from error
            if error is not None:
                raise error
        return self._jobs

    def _store_waiting_turns(self, within: float) -> None:
        """Turns that hosts on this machine have left in files, in a folder for each tenant."""
        from afterturn import blocking

        config = self._invocation.config()
        for tenant in read_directory(self._directory):
            own = replace(config, tenant=tenant)
            if Spill(spill_folder(own, self._directory)).count():
                with blocking.open(self._directory, own, background=True) as memory:
                    _drain(memory, within, self._stop)

    def _serve(self, store: StoreUrl) -> None:
        pause = RETRY_AFTER
        while not self._stop.is_set():
            try:
                with self._opened(store) as memory:
                    pause = RETRY_AFTER
                    memory.work(self._stop.is_set)
            except AfterturnError as error:
                logger.warning("the store %s is tried again in %g seconds: %s", store, pause, error)
                self._stop.wait(pause)
                pause = min(2 * pause, RETRY_AFTER_MAX)

    def _drain(self, store: StoreUrl, within: float) -> None:
        with self._opened(store) as memory:
            _drain(memory, within, self._stop)

    @contextmanager
    def _opened(self, store: StoreUrl) -> Iterator[blocking.Memory]:
        with self._invocation.memory(create=True, vectors=True, background=True, store=store) as memory:
            retried = memory.retry_dead(all_tenants=True) if self._retry else 0
            yield memory
            with self._lock:
                self._jobs.update({**memory.jobs(), "retried": retried})


def _describe(jobs: Mapping[str, int]) -> str:
    text = f"{jobs['waiting']:,} waiting, {jobs['running']:,} running, {jobs['dead']:,} dead."
    return f"{text} `afterturn worker --retry` requeues the dead ones." if jobs["dead"] else text


def _drain(memory: blocking.Memory, within: float, stop: threading.Event) -> None:
    """Returns when nothing is left to do, or `stop` is set. Raises DeadlineExceeded."""
    is_done = memory.drain(within=within, all_tenants=True, stopped=stop.is_set)
    if not is_done and not stop.is_set():
        raise DeadlineExceeded(f"Jobs remain after {within:g} seconds. Run it again, or allow more time with --within.")
    memory.work(lambda: True)


@contextmanager
def _watched(memory: blocking.Memory, report: ProgressCallback) -> Iterator[None]:
    """Shows how many entries have vectors, whichever process makes them. Silent in a pipe."""
    report(0, 0)
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(memory, report, done), name="afterturn-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join(LOOK_EVERY)


def _watch(memory: blocking.Memory, report: ProgressCallback, done: threading.Event) -> None:
    total = 0
    while not done.is_set():
        try:
            waiting = memory.stats()["vectors_waiting"] or 0
        except AfterturnError:
            return  # the work itself reports it
        # Others may add more meanwhile.
        total = max(total, waiting)
        report(total - waiting, total)
        done.wait(LOOK_EVERY)


def _stop_signal() -> threading.Event:
    stop = threading.Event()

    def set_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, set_stop)
    return stop
