"""`make lab-postgres`: hosts, connections and the server fail at every kind of moment; nothing is lost, all is once.

A seed runs these parts (`--parts`), each in a new schema:
- kill: host processes are killed with SIGKILL at random, one after the other on one store;
- cut: connections are lost at random commits, before COMMIT reaches the server or before its answer comes back;
- crash: the server is stopped like a crash and started again while a host works;
- leases: a job is taken over while its process is still at work, and jobs are in the store several times;
- processes: several processes chat, review, edit, undo and forget at once, and one of them is killed.

A full disk is not among them: a disk that is small enough to fill needs an administrator.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from lab import slices
from lab.loss.__main__ import ChildLog, judge, killer, listen, start_child
from lab.loss.leases import duplicate, take_over
from lab.loss.plan import LEARNER, State, Step
from lab.postgres.commit_proxy import CommitProxy
from lab.postgres.server import PostgresServer
from lab.postgres.stores import PostgresStores
from lab.slices import Lab, Outcome, Row, StoreTarget, without_log
from lab.stress.__main__ import run_stress

PARTS = ("kill", "cut", "crash", "leases", "processes")
_CHILD_SECONDS_MAX = 300.0
_WAITING = "AFTERTURN_SPILL_FOLDER"
_PATIENCE = "AFTERTURN_BUSY_TIMEOUT"


@dataclass(frozen=True, slots=True)
class Size:
    """A child prints up to `lines` lines before it is killed. `steps` are those of each of several processes."""

    kills: int = 4
    crashes: int = 2
    lines: int = 300
    steps: int = 40


def run_seed(seed: int, server: PostgresServer, size: Size, parts: Sequence[str] = PARTS) -> Outcome:
    random, outcome = Random(seed), Outcome(seed)
    for part in parts:
        with PostgresStores(server.url()).fresh() as store, _settings():
            _PARTS[part](store, server, random, size, outcome)
    return outcome


@contextmanager
def _settings() -> Iterator[None]:
    """For this process and its children: turns wait in a folder of their own, and writes for a server that restarts."""
    before = {name: os.environ.get(name) for name in (_WAITING, _PATIENCE)}
    with tempfile.TemporaryDirectory(prefix="afterturn-lab-") as folder:
        os.environ.update({_WAITING: str(Path(folder) / "waiting"), _PATIENCE: "30"})
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                os.environ.update({name: value} if value is not None else {})


def _run_child(store: str, at: str, seed: str, outcome: Outcome, hear: Callable[[int], None]) -> None:
    """Runs one host against the URL `at` to its end, and checks the store. `hear` gets the number of its lines."""
    child = start_child(at, seed, -1)
    logged = listen(child, hear, within=_CHILD_SECONDS_MAX)
    if child.returncode:
        outcome.broken.append(f"{seed}: a process did not end by itself")
    _check(store, {}, [], child, logged, seed, outcome)


def _check(
    store: str,
    before: Mapping[str, State],
    learned: Sequence[Step],
    child: subprocess.Popen[str],
    logged: ChildLog,
    when: str,
    outcome: Outcome,
) -> Mapping[str, State]:
    if child.returncode not in (0, -signal.SIGKILL):
        outcome.broken.append(f"{when}: a process failed with exit code {child.returncode}")
    outcome.counts["acknowledged"] += len(logged.done)
    return judge(store, before, [*learned, *logged.done], logged.begun, when, outcome, drains=True)


def _kill(store: str, server: PostgresServer, random: Random, size: Size, outcome: Outcome) -> None:
    """Each process works on what the killed one before it has left."""
    states: Mapping[str, State] = {}
    learned: list[Step] = []
    for number in range(size.kills):
        seed = f"k{outcome.seed}r{number}"
        child = start_child(store, seed, -1)
        hear = killer(child, random, random.randrange(1, size.lines))
        logged = listen(child, hear, within=_CHILD_SECONDS_MAX)
        outcome.counts["kills"] += child.returncode == -signal.SIGKILL
        states = _check(store, states, learned, child, logged, f"killed process {seed}", outcome)
        learned += [step for step in logged.done if step.space == LEARNER]


def _cut(store: str, server: PostgresServer, random: Random, size: Size, outcome: Outcome) -> None:
    """The store asks the server what became of each commit."""
    with CommitProxy(server.port) as proxy:

        def cut_next(lines: int) -> None:
            if not proxy.cut and random.random() < 0.3:
                proxy.cut = random.choice(("before", "after"))

        at = store.replace(f":{server.port}/", f":{proxy.port}/")
        _run_child(store, at, f"c{outcome.seed}", outcome, cut_next)
        outcome.counts["connections cut"] += proxy.cuts


def _crash(store: str, server: PostgresServer, random: Random, size: Size, outcome: Outcome) -> None:
    crashes = set(random.sample(range(10, size.lines // 2), size.crashes))

    def crash(lines: int) -> None:
        if lines in crashes:
            server.stop("immediate")
            server.start()
            outcome.counts["server crashes"] += 1

    _run_child(store, store, f"s{outcome.seed}", outcome, crash)


def _leases(store: str, server: PostgresServer, random: Random, size: Size, outcome: Outcome) -> None:
    for number, case in enumerate((take_over, duplicate)):
        with without_log():
            steps = asyncio.run(case(store, f"j{outcome.seed}r{number}x"))
        outcome.counts["jobs that ran twice"] += len(steps)
        judge(store, {}, steps, {}, case.__name__, outcome, drains=True)


def _processes(store: str, server: PostgresServer, random: Random, size: Size, outcome: Outcome) -> None:
    result = run_stress(outcome.seed, processes=3, steps=size.steps, store=store)
    outcome.counts.update({"kills": result.done["killed"], "acknowledged": result.done.total()})
    outcome.broken.extend(f"several processes: {what}" for what in result.broken)


_PARTS: dict[str, Callable[[str, PostgresServer, Random, Size, Outcome], None]] = {
    "kill": _kill,
    "cut": _cut,
    "crash": _crash,
    "leases": _leases,
    "processes": _processes,
}


def _run(seed: int, target: StoreTarget, options: argparse.Namespace) -> Outcome:
    with PostgresServer() as server:
        return run_seed(seed, server, Size(), options.parts)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="run only these parts")


LAB = Lab(
    "postgres",
    "hosts, connections and the server fail at every kind of moment, on a PostgreSQL server that it starts.",
    "1-10",
    _run,
    (
        Row("host processes killed with SIGKILL", "kills"),
        Row("connections cut before or during COMMIT", "connections cut"),
        Row("crashes of the server under load", "server crashes"),
        Row("jobs whose lease ended too early, or that were there twice", "jobs that ran twice"),
        Row("stores whose jobs were run two leases later", "stores whose jobs were run"),
        Row("acknowledged operations", "acknowledged"),
        Row("unacknowledged operations found complete", "unacknowledged kept"),
        Row("unacknowledged operations found absent", "unacknowledged absent"),
    ),
    "lost, partial or doubled effects, contradictions, or stuck jobs",
    _options,
    store="postgresql",
)


if __name__ == "__main__":
    sys.exit(slices.main(LAB))
