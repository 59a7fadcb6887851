"""`make lab-loss`: crashes at every kind of moment, then checks the stores: nothing lost, every effect once.

A seed runs these parts (`--parts`):
- replay: writers and a learner run once with every change of a file logged; the store is then rebuilt as a kill or a
  power cut at points of that log would leave it, and opened;
- migration: the same for a made-up migration to a later schema;
- kill: real processes are killed with SIGKILL, at random or at a chosen call of SQLite;
- errors: the disk is full or fails for a while, and the work goes on afterwards;
- leases: a job is taken over while its process is still at work, and jobs are in the store several times;
- processes: several processes chat, review, edit, undo and forget at once, and one of them is killed;
- overload: more turns end than memory can take, then the host closes it, or our own processes are ended by SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import apsw

import afterturn
from afterturn.config import Config, StoreUrl, find_store
from afterturn.errors import AfterturnError
from afterturn.runtime.clock import SystemClock
from afterturn.runtime.jobs import LEASE
from afterturn.stores.sqlite.engine import open_engine
from lab import slices
from lab.loss.judge import check_learned, compare, look_at
from lab.loss.leases import duplicate, take_over
from lab.loss.migrated import ROWS, SPACE, migrate, write_store
from lab.loss.overload import close_overloaded, end_helper
from lab.loss.plan import LEARNER, State, Step, step_from_json
from lab.loss.recording_vfs import Call, Files, RecordingVfs, after_kill, after_power_cut, write_files
from lab.loss.workload import SETTINGS, components, work
from lab.slices import Lab, Outcome, Row, StoreTarget, without_log
from lab.stress.__main__ import run_stress
from lab.tables import Store, read_rows

PARTS = ("replay", "migration", "kill", "errors", "leases", "processes", "overload")
_CHILD_SECONDS_MAX = 60.0
_CALLS_MAX = 1_500
_STEPS, _LEARNED = 12, 9
# Of the rebuilt stores, one of this many is opened as a memory, and its jobs are run.
_DRAINED_ONE_OF = 20


@dataclass(frozen=True, slots=True)
class Size:
    """How many crash points of each kind a seed has. Only `synchronous="full"` promises to survive a power cut."""

    kills: int = 200
    cuts: int = 50
    migrations: int = 40
    processes: int = 4
    errors: int = 4
    leases: int = 2
    overload_seconds: float = 20.0
    conversations: int = 200
    recording_queue: int = 1000
    synchronous: str = "full"


class TwoLeasesLater(SystemClock):
    """A clock at which every lease of a killed process has ended twice."""

    def now(self) -> float:
        return super().now() + 2 * LEASE


def run_seed(seed: int, target: StoreTarget, size: Size | None = None, parts: Sequence[str] = PARTS) -> Outcome:
    random, outcome, chosen = Random(seed), Outcome(seed), size or Size()
    for part in parts:
        with target.fresh() as store:
            _PARTS[part](store, random, chosen, outcome)
    return outcome


# Rebuilt stores


@dataclass(slots=True)
class Run:
    """What a workload did to the files of a store."""

    log: list[Call] = field(default_factory=list)
    initial: dict[str, bytes] = field(default_factory=dict)

    def note(self, word: str, step: Step) -> None:
        self.log.append(Call(word, step=step))

    def steps_before(self, point: int) -> tuple[list[Step], dict[str, Step]]:
        """The steps that were acknowledged before the call, and those under way."""
        done: list[Step] = []
        begun: dict[str, Step] = {}
        for call in self.log[:point]:
            if call.step is not None and call.kind == "begin":
                begun[call.step.space] = call.step
            elif call.step is not None:
                done.append(call.step)
                del begun[call.step.space]
        return done, begun


def _replay(store: Path, random: Random, size: Size, outcome: Outcome) -> None:
    run = Run()
    _work_once(store, f"r{outcome.seed}", run, size.synchronous)
    calls = len(run.log)
    kills = sorted(random.sample(range(calls), min(calls, size.kills)))
    cuts = sorted(random.sample(range(calls), min(calls, size.cuts)))
    outcome.counts["calls logged"] += calls
    outcome.counts["acknowledged"] += sum(call.kind == "done" for call in run.log)
    rebuilt = store.parent / "rebuilt"
    rebuilt.mkdir()
    for point, files in after_kill(run.log, run.initial, kills):
        outcome.counts["kills"] += 1
        _check_rebuilt(rebuilt, store.name, files, run, point, "kill", outcome)
    for point, files in after_power_cut(run.log, run.initial, cuts, random):
        outcome.counts["power cuts"] += 1
        _check_rebuilt(rebuilt, store.name, files, run, point, "power cut", outcome)


def _work_once(store: Path, seed: str, run: Run, synchronous: str) -> None:
    vfs = RecordingVfs(run.log)
    try:
        asyncio.run(_work(store, seed, run, {**SETTINGS, "synchronous": synchronous}))
    finally:
        vfs.stop()


async def _work(store: Path, seed: str, run: Run, settings: dict[str, Any]) -> None:
    async with afterturn.open(store, settings, components=components()) as memory:
        await work(memory, seed, run.note, steps=_STEPS, learned=_LEARNED)


def _check_rebuilt(folder: Path, name: str, files: Files, run: Run, point: int, how: str, outcome: Outcome) -> None:
    write_files(folder, files)
    done, begun = run.steps_before(point)
    is_drained = (outcome.counts["kills"] + outcome.counts["power cuts"]) % _DRAINED_ONE_OF == 0
    judge(folder / name, {}, done, begun, f"{how} at call {point}", outcome, drains=is_drained)


def judge(
    store: Store,
    before: Mapping[str, State],
    done: Sequence[Step],
    begun: Mapping[str, Step],
    when: str,
    outcome: Outcome,
    *,
    drains: bool,
) -> Mapping[str, State]:
    """Opens the store and compares it with what was promised. Returns its states."""
    if isinstance(store, Path) and not store.exists() and not done:
        return {}
    try:
        _open_once(store)
        actual, contradictions = look_at(store)
    except (AfterturnError, apsw.Error) as error:
        outcome.broken.append(f"{when}: the store cannot be opened: {type(error).__name__}: {error}")
        return {}
    wrong, counts = compare(actual, before, done, begun)
    outcome.counts.update(counts)
    learning = [step for step in done if step.space == LEARNER]
    wrong += check_learned(store, learning, begun.get(LEARNER), drained=False)
    if drains:
        outcome.counts["stores whose jobs were run"] += 1
        wrong += asyncio.run(_drain(store))
        wrong += check_learned(store, learning, begun.get(LEARNER), drained=True)
        wrong += look_at(store)[1]
    outcome.broken.extend(f"{when}: {what}" for what in [*contradictions, *wrong])
    return actual


def _open_once(store: Store) -> None:
    """Migrates the store, or creates it."""
    target = find_store(store)
    if isinstance(target, StoreUrl):
        from afterturn.stores.postgres.engine import open_engine as open_server

        open_server(target, Config(), SystemClock()).close()
    else:
        open_engine(target, Config(), SystemClock()).close()


async def _drain(store: Store) -> list[str]:
    """Every job must be done two leases after the crash."""
    async with afterturn.open(store, SETTINGS, components=components(TwoLeasesLater())) as memory:
        drained = await memory.drain(within=30)
    left = read_rows(store, "SELECT kind, state, error FROM job")
    return [f"a job is left after two leases: {job}" for job in left] or ([] if drained else ["jobs take too long"])


def _migration(store: Path, random: Random, size: Size, outcome: Outcome) -> None:
    write_store(store)
    run = Run(initial={path.name: path.read_bytes() for path in store.parent.iterdir() if path.is_file()})
    vfs = RecordingVfs(run.log)
    try:
        migrate(store)
    finally:
        vfs.stop()
    points = sorted(random.sample(range(len(run.log)), min(len(run.log), size.migrations)))
    rebuilt = store.parent / "rebuilt"
    rebuilt.mkdir()
    for crash, name in (
        (after_kill(run.log, run.initial, points), "kills"),
        (after_power_cut(run.log, run.initial, points[::4], random), "power cuts"),
    ):
        for point, files in crash:
            outcome.counts[name] += 1
            outcome.counts["of them in migrations"] += 1
            write_files(rebuilt, files)
            _check_migrated(rebuilt / store.name, f"{name} at call {point} of a migration", outcome)


def _check_migrated(store: Path, when: str, outcome: Outcome) -> None:
    try:
        migrate(store)
        states, found = look_at(store)
    except (AfterturnError, apsw.Error) as error:
        outcome.broken.append(f"{when}: the store cannot be opened: {type(error).__name__}: {error}")
        return
    outcome.broken.extend(f"{when}: {what}" for what in found)
    if (held := len(states.get(SPACE, {}))) != ROWS:
        outcome.broken.append(f"{when}: {held} of {ROWS} entries after migrating")


# Real processes


@dataclass(slots=True)
class ChildLog:
    """The lines that one child printed before it died."""

    done: list[Step] = field(default_factory=list)
    begun: dict[str, Step] = field(default_factory=dict)

    def hear(self, line: str) -> None:
        word, _, detail = line.partition(" ")
        step = step_from_json(detail)
        if word == "begin":
            self.begun[step.space] = step
        else:
            self.done.append(step)
            del self.begun[step.space]


def _kill(store: Path, random: Random, size: Size, outcome: Outcome) -> None:
    """One store after the other crash: each process works on what the killed one before it has left."""
    states: Mapping[str, State] = {}
    learned: list[Step] = []
    for number in range(size.processes):
        at_a_call = random.random() < 0.5
        child = start_child(store, f"k{outcome.seed}r{number}", random.randrange(_CALLS_MAX) if at_a_call else -1)
        kill_after = None if at_a_call else random.randrange(1, 300)
        logged = listen(child, killer(child, random, kill_after))
        if child.returncode not in (0, -signal.SIGKILL):
            outcome.broken.append(f"a process failed with exit code {child.returncode}")
        outcome.counts["kills"] += child.returncode == -signal.SIGKILL
        outcome.counts["of them real processes"] += child.returncode == -signal.SIGKILL
        outcome.counts["acknowledged"] += len(logged.done)
        states = judge(
            store, states, [*learned, *logged.done], logged.begun, f"killed process {number}", outcome, drains=True
        )
        learned += [step for step in logged.done if step.space == LEARNER]


def start_child(store: Store, seed: str, kill_at: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lab.loss.child", str(store), seed, str(kill_at)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def killer(child: subprocess.Popen[str], random: Random, after: int | None) -> Callable[[int], None]:
    """Kills the child at a random moment after so many lines."""

    def hear(lines: int) -> None:
        if lines == after:
            time.sleep(random.uniform(0, 0.005))
            child.kill()

    return hear


def listen(
    child: subprocess.Popen[str], on_line: Callable[[int], None], *, within: float = _CHILD_SECONDS_MAX
) -> ChildLog:
    """Reads the child's lines to the end. `on_line` gets the number of lines so far."""
    logged = ChildLog()
    # A child that hangs must not hang this process; its death then counts as a random one.
    watchdog = threading.Timer(within, child.kill)
    watchdog.start()
    assert child.stdout is not None
    with child.stdout:
        for number, line in enumerate(child.stdout, 1):
            logged.hear(line.rstrip("\n"))
            on_line(number)
    child.wait()
    watchdog.cancel()
    watchdog.join()
    return logged


# Errors of the disk


def _errors(store: Path, random: Random, size: Size, outcome: Outcome) -> None:
    for number in range(size.errors):
        folder = store.parent / f"errors-{number}"
        folder.mkdir()
        _fail_once(folder / store.name, f"e{outcome.seed}r{number}", random, outcome)
        shutil.rmtree(folder)


def _fail_once(store: Path, seed: str, random: Random, outcome: Outcome) -> None:
    """Writers that meet an error stop, and their step is complete or absent; what was acknowledged stays."""
    run, kind = Run(), random.choice(("disk full", "I/O errors"))
    vfs = RecordingVfs(run.log)
    try:
        with without_log():
            asyncio.run(_work_on_bad_disk(store, seed, run, vfs, kind, after=random.randrange(200, 3_000)))
    finally:
        vfs.mend()
        vfs.stop()
    outcome.counts[kind] += vfs.failures > 0
    done, begun = run.steps_before(len(run.log))
    outcome.counts["acknowledged"] += len(done)
    judge(store, {}, done, begun, kind, outcome, drains=True)


async def _work_on_bad_disk(store: Path, seed: str, run: Run, vfs: RecordingVfs, kind: str, *, after: int) -> None:
    settings = {**SETTINGS, "close_timeout": 2.0, "busy_timeout": 1.0}
    async with afterturn.open(store, settings, components=components()) as memory:
        vfs.fail(apsw.FullError if kind == "disk full" else apsw.IOError, after=after)
        await work(memory, seed, run.note, steps=_STEPS, learned=_LEARNED)
        vfs.mend()


# Jobs that run twice


def _leases(store: Path, random: Random, size: Size, outcome: Outcome) -> None:
    for number in range(size.leases):
        case, label = (take_over, duplicate)[number % 2], f"j{outcome.seed}r{number}x"
        with without_log():
            steps = asyncio.run(case(store, label))
        outcome.counts["jobs that ran twice"] += len(steps)
        judge(store, {}, steps, {}, case.__name__, outcome, drains=True)


# Several processes


def _processes(store: Path, random: Random, size: Size, outcome: Outcome) -> None:
    result = run_stress(outcome.seed, processes=3, steps=40)
    killed = result.done["killed"]
    outcome.counts.update({"kills": killed, "of them real processes": killed, "acknowledged": result.done.total()})
    outcome.broken.extend(f"several processes: {what}" for what in result.broken)


# More turns than memory can take


def _overload(store: Path, random: Random, size: Size, outcome: Outcome) -> None:
    close_overloaded(store, size.overload_seconds, size.conversations, size.recording_queue, outcome)
    helped = store.parent / "helped"
    helped.mkdir()
    # A helper waits for each turn to be recorded, so few wait in memory.
    end_helper(helped / store.name, size.conversations, size.recording_queue // 100 or 1, outcome)


_PARTS: dict[str, Callable[[Path, Random, Size, Outcome], None]] = {
    "replay": _replay,
    "migration": _migration,
    "kill": _kill,
    "errors": _errors,
    "leases": _leases,
    "processes": _processes,
    "overload": _overload,
}


def _run(seed: int, target: StoreTarget, options: argparse.Namespace) -> Outcome:
    return run_seed(seed, target, Size(kills=options.kills, cuts=options.cuts), options.parts)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="run only these parts")
    parser.add_argument("--kills", type=int, default=200, help="replayed kills of each seed")
    parser.add_argument("--cuts", type=int, default=50, help="replayed power cuts of each seed")


LAB = Lab(
    "loss",
    "crashes at every kind of moment, and what the stores hold afterwards.",
    "1-10",
    _run,
    (
        Row("crash points: killed at a call of SQLite, or at random", "kills", full=10_000),
        Row("of them real processes, killed with SIGKILL", "of them real processes"),
        Row("of them, and of the power cuts, in migrations", "of them in migrations"),
        Row("power cuts that drop unsynced writes", "power cuts", full=2_000),
        Row("runs on a full disk", "disk full"),
        Row("runs with I/O errors", "I/O errors"),
        Row("jobs whose lease ended too early, or that were there twice", "jobs that ran twice"),
        Row("turns that hosts left, more than memory could take", "turns left under overload"),
        Row("of them in files after the host closed its memory", "of them in files after closing"),
        Row("workers and helpers of hooks, ended by SIGTERM", "processes ended by SIGTERM"),
        Row("stores whose jobs were run two leases later", "stores whose jobs were run"),
        Row("acknowledged operations", "acknowledged"),
        Row("unacknowledged operations found complete", "unacknowledged kept"),
        Row("unacknowledged operations found absent", "unacknowledged absent"),
    ),
    "lost, partial or doubled effects, contradictions, or stuck jobs",
    _options,
)


if __name__ == "__main__":
    sys.exit(slices.main(LAB))
