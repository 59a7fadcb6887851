"""`worker`: runs background jobs, such as embedding and reviews, and the housekeeping of all tenants."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

from afterturn.errors import DeadlineExceeded
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import ProgressCallback, note, print_document, progress
from afterturn.hosts.cli.process import show_warnings

if TYPE_CHECKING:
    from afterturn import blocking

LOOK_EVERY = 1.0


@command(
    "worker",
    examples="""
    $ afterturn worker
    $ afterturn worker --status --json
    $ afterturn worker --once --within 60
    $ afterturn worker --once --retry
    """,
)
@click.option("--status", is_flag=True, help="Only count the jobs.")
@click.option("--once", is_flag=True, help="Do what is due, then exit.")
@click.option("--retry", is_flag=True, help="First requeue jobs that failed too often.")
@click.option(
    "--within", type=click.FloatRange(min=0), default=300.0, show_default=True, help="How many seconds --once may take."
)
def worker(invocation: Invocation, *, status: bool, once: bool, retry: bool, within: float) -> None:
    """Run background jobs and housekeeping of all tenants until stopped.

    Retention, the inbox, abandoned turns and consolidation follow the settings of this command, for every tenant.

    Several workers, on any number of hosts, may share one store. SIGTERM and Ctrl-C stop a worker after
    the current job; others that it had claimed are given back. If a worker is killed, the rest take up
    its jobs when their lease has ended, after a minute or two.
    """
    if status:
        _show_status(invocation)
        return
    show_warnings()
    with invocation.memory(create=True, vectors=True, background=True) as memory:
        retried = memory.retry_dead(all_tenants=True) if retry else 0
        if once:
            _drain(memory, within)
            memory.work(lambda: True)
        else:
            stop = _stop_signal()
            note(f"Working. {_describe(memory.jobs())} Press Ctrl-C to stop.")
            memory.work(stop.is_set)
        jobs = memory.jobs()
    if invocation.json:
        print_document({"retried": retried, "drained": once, **jobs})
    else:
        ended = f"{jobs['done']:,} done here, {jobs['failed']:,} failed attempts"
        click.echo(f"{'All jobs are done' if once else 'Stopped'}: {ended}. {_describe(jobs)}")


def _show_status(invocation: Invocation) -> None:
    with invocation.memory() as memory:
        jobs = memory.jobs()
    if invocation.json:
        print_document({name: jobs[name] for name in ("waiting", "running", "dead")})
    else:
        click.echo(_describe(jobs))


def _describe(jobs: dict[str, int]) -> str:
    text = f"{jobs['waiting']:,} waiting, {jobs['running']:,} running, {jobs['dead']:,} dead."
    return f"{text} `afterturn worker --retry` requeues the dead ones." if jobs["dead"] else text


def _drain(memory: blocking.Memory, within: float) -> None:
    with progress("Working") as report, _watched(memory, report):
        if not memory.drain(within=within, all_tenants=True):
            raise DeadlineExceeded(
                f"Jobs remain after {within:g} seconds. Run it again, or allow more time with --within."
            )


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
        watcher.join()


def _watch(memory: blocking.Memory, report: ProgressCallback, done: threading.Event) -> None:
    total = 0
    while not done.is_set():
        waiting = memory.stats()["vectors_waiting"] or 0
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
