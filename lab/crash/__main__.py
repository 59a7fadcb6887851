"""`make crash`: kills processes that write to a store or migrate one, then checks the stores and prints counts."""

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random

from afterturn.config import Config
from afterturn.runtime.clock import SystemClock
from afterturn.stores.sqlite.engine import open_engine
from afterturn.stores.sqlite.schema import MIGRATIONS
from lab.crash.judge import look_at
from lab.crash.old import ROWS, write_old_store
from lab.crash.plan import State, Step, after, step_from_json

_CHILD_SECONDS_MAX = 60.0
_CALLS_MAX = 400
_MIGRATION_CALLS_MAX = 150


@dataclass(slots=True)
class Counts:
    rounds: int = 0
    killed_at_random: int = 0
    killed_at_a_call: int = 0
    killed_migrating: int = 0
    ended_by_itself: int = 0
    acknowledged: int = 0
    unacknowledged_kept: int = 0
    unacknowledged_absent: int = 0
    lost_or_half_applied: int = 0
    contradictions: int = 0
    details: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        numbers = [f"{item.name.replace('_', ' '):>24} {getattr(self, item.name)}" for item in fields(self)[:-1]]
        return [*numbers, *self.details[:20]]

    @property
    def is_clean(self) -> bool:
        return not self.details


@dataclass(slots=True)
class ChildLog:
    """The lines that one child printed before it died."""

    done: list[Step] = field(default_factory=list)
    begun: dict[str, Step] = field(default_factory=dict)

    def hear(self, line: str) -> None:
        word, _, detail = line.partition(" ")
        if word == "begin":
            step = step_from_json(detail)
            self.begun[step.space] = step
        elif word == "done":
            step = step_from_json(detail)
            self.done.append(step)
            del self.begun[step.space]


def run(rounds: int, seed: int, folder: Path) -> Counts:
    counts, random = Counts(), Random(seed)
    states: dict[str, State] = {}
    for number in range(rounds):
        counts.rounds += 1
        if number % 5 == 4:
            _migrate(folder / f"old-{number}.db", random, counts)
        else:
            states = _write(folder / "memory.db", f"{seed}-{number}", random, states, counts)
    return counts


def _write(path: Path, seed: str, random: Random, states: dict[str, State], counts: Counts) -> dict[str, State]:
    at_a_call = random.random() < 0.5
    child = _start(path, seed, random.randrange(_CALLS_MAX) if at_a_call else -1)
    logged = _listen(child, kill_after=None if at_a_call else random.randrange(1, 300), random=random)
    _count_end(child, counts, "killed_at_a_call" if at_a_call else "killed_at_random")
    counts.acknowledged += len(logged.done)
    return _judge(path, logged, states, counts)


def _migrate(path: Path, random: Random, counts: Counts) -> None:
    write_old_store(path, random.randrange(1, len(MIGRATIONS)))
    child = _start(path, "migration", random.randrange(_MIGRATION_CALLS_MAX))
    _listen(child, kill_after=None, random=random)
    _count_end(child, counts, "killed_migrating")
    open_engine(path, Config(), SystemClock()).close()
    states, found = look_at(path)
    held = states.get("user:old", {})
    counts.contradictions += len(found)
    counts.details += [f"{path.name}: {item}" for item in found]
    if len(held) != ROWS:
        counts.lost_or_half_applied += 1
        counts.details.append(f"{path.name}: {len(held)} of {ROWS} entries after migrating")


def _start(path: Path, seed: str, kill_at: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "lab.crash.child", str(path), seed, str(kill_at)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _listen(child: "subprocess.Popen[str]", *, kill_after: int | None, random: Random) -> ChildLog:
    """Reads the child's lines to the end; with `kill_after`, kills it at a random moment after that many lines."""
    logged, heard = ChildLog(), 0
    # A child that hangs must not hang this process; its death then counts as a random one.
    watchdog = threading.Timer(_CHILD_SECONDS_MAX, child.kill)
    watchdog.start()
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            logged.hear(line.rstrip("\n"))
            heard += 1
            if heard == kill_after:
                time.sleep(random.uniform(0, 0.005))
                child.kill()
    child.wait()
    watchdog.cancel()
    watchdog.join()
    return logged


def _count_end(child: "subprocess.Popen[str]", counts: Counts, how: str) -> None:
    if child.returncode == -signal.SIGKILL:
        setattr(counts, how, getattr(counts, how) + 1)
    elif child.returncode == 0:
        counts.ended_by_itself += 1
    else:
        counts.details.append(f"a child failed with exit code {child.returncode}")


def _judge(path: Path, logged: ChildLog, states: dict[str, State], counts: Counts) -> dict[str, State]:
    open_engine(path, Config(), SystemClock()).close()
    actual, found = look_at(path)
    counts.contradictions += len(found)
    counts.details += found
    for space in sorted({step.space for step in logged.done} | set(logged.begun) | set(states)):
        promised = states.get(space, {})
        for step in logged.done:
            promised = after(promised, step) if step.space == space else promised
        _compare(space, actual.get(space, {}), promised, logged.begun.get(space), counts)
    return actual


def _compare(space: str, actual: State, promised: State, begun: Step | None, counts: Counts) -> None:
    if begun is not None and actual == after(promised, begun):
        counts.unacknowledged_kept += 1
    elif actual != promised:
        counts.lost_or_half_applied += 1
        differing = [label for label in actual.keys() | promised.keys() if actual.get(label) != promised.get(label)]
        under_way = f"{begun.act} {begun.label}" if begun else "nothing"
        counts.details.append(f"{space} differs in {sorted(differing)[:5]}; under way was {under_way}")
    elif begun is not None:
        counts.unacknowledged_absent += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="how many processes to kill (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the random moments (default 1)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="afterturn-crash-") as folder:
        counts = run(arguments.rounds, arguments.seed, Path(folder))
    print("\n".join(counts.lines()))
    return 0 if counts.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
