"""`make bench-hooks`: what a hook of a coding agent costs, compared with the start of Python, and what it leaves."""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from unittest.mock import patch

import afterturn
from afterturn import blocking
from afterturn.evaluation.examination import scratch_folder
from afterturn.hosts.hooks import control
from afterturn.hosts.hooks.clients import hook_arguments
from lab.bench.report import Figure, Goal, Progress, Report, judge, make_report
from lab.patched_helper import start_patched_helper

EXPLAINED = (
    "A hook is a new process each time, so its wall time is compared with `python -c pass`, measured in turns with it; "
    "medians of {rounds} rounds, or of {cold} without a helper, where CPU time is compared, too. The store has "
    "{memories} memories, and every answer has a recalled memory in it. Then {crowd} sessions send a prompt at once, "
    "without a helper, and end their turns at once. Last, helpers are left alone, stopped and killed."
)
FACT = "Ada's cat is called Miso"
QUESTION = "What is my cat called?"
_WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class Scale:
    rounds: int
    cold_rounds: int
    memories: int
    crowd: int


FULL = Scale(rounds=60, cold_rounds=15, memories=1_000, crowd=100)
QUICK = Scale(rounds=2, cold_rounds=1, memories=20, crowd=5)


@dataclass
class Machine:
    """A user's folders and settings, for hooks that run in them."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "AFTERTURN_STATE": str(self.folder / "state"),
            "AFTERTURN_STORE": str(self.folder / "memory.db"),
            "AFTERTURN_SPACE": "user:ada",
            **self.settings,
        }

    @contextmanager
    def entered(self) -> Iterator[None]:
        with patch.dict(os.environ, self.environment):
            yield

    def start(self, client: str, event: str, **payload: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            hook_arguments(client, event),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.folder,
            env=self.environment,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({**payload, "cwd": str(self.folder)}).encode())
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, client: str, event: str, **payload: str) -> str:
        return self.start(client, event, **payload).communicate(timeout=_WITHIN)[0].decode()

    def warm(self) -> control.HelperStatus:
        """Waits until a helper runs."""
        self.run("claude-code", "SessionEnd", session_id="warm")
        with self.entered():
            found = wait_for(lambda: next(iter(control.running_helpers()), None))
        assert isinstance(found, control.HelperStatus)
        return found

    def stop(self) -> None:
        with self.entered():
            control.stop_helpers()

    def has_helper(self) -> bool:
        with self.entered():
            return bool(control.running_helpers())


def wait_for(look: Callable[[], object]) -> object:
    never = threading.Event()
    for _ in range(int(_WITHIN / 0.05)):
        if found := look():
            return found
        never.wait(0.05)
    raise TimeoutError("a helper did not start or end in time")


def measure_hooks(*, quick: bool = False, progress: Progress = lambda step: None) -> Report:
    """`quick` runs too few hooks for valid figures; it only checks that the benchmark works."""
    scale = QUICK if quick else FULL
    with scratch_folder("afterturn-bench-") as folder:
        machine = Machine(folder)
        progress(f"{scale.memories} memories")
        with blocking.open(folder / "memory.db") as memory:
            space = memory.space("user:ada")
            others = (f"Note {number}: item-{number} is next to thing-{number}" for number in range(scale.memories - 1))
            space.add_many([afterturn.Draft(text) for text in (FACT, *others)])
            memory.drain(within=_WITHIN)
        try:
            figures = [_measure_warm(machine, scale, progress), *_measure_cold(machine, scale, progress)]
            figures += [_measure_crowd(machine, scale, progress), *_count_left(folder, progress)]
        finally:
            machine.stop()
    explained = EXPLAINED.format(
        rounds=scale.rounds, cold=scale.cold_rounds, memories=scale.memories, crowd=scale.crowd
    )
    return make_report("hooks", ["--quick"] if quick else [], explained, figures)


def _seconds(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


def _cpu_seconds(work: Callable[[], object]) -> float:
    """Of the processes that `work` has started and waited for; a helper is not waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _start_python() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def _ask(machine: Machine, session: str) -> None:
    answer = machine.run("claude-code", "UserPromptSubmit", session_id=session, prompt=QUESTION)
    if "Miso" not in answer:
        raise AssertionError(f"a hook has answered without the memory: {answer[:200]}")


def _compared(name: str, hooks: list[float], starts: list[float], goal: Goal, *notes: str) -> Figure:
    ours, baseline = statistics.median(hooks) * 1000, statistics.median(starts) * 1000
    return judge(name, "ms", ours, goal, *notes, baseline=baseline)


def _measure_warm(machine: Machine, scale: Scale, progress: Progress) -> Figure:
    progress("warm: a prompt is answered by the helper")
    machine.warm()
    hooks, starts = [], []
    for number in range(scale.rounds):
        starts.append(_seconds(_start_python))
        hooks.append(_seconds(partial(_ask, machine, f"warm-{number}")))
    return _compared("a prompt, with a helper", hooks, starts, Goal(3), "a new session each time")


def _measure_cold(machine: Machine, scale: Scale, progress: Progress) -> list[Figure]:
    wall: tuple[list[float], list[float]] = [], []
    cpu: tuple[list[float], list[float]] = [], []
    for clock, (hooks, starts) in ((_seconds, wall), (_cpu_seconds, cpu)):
        progress("cold: a prompt is answered by words alone")
        for number in range(scale.cold_rounds):
            machine.stop()
            starts.append(clock(_start_python))
            hooks.append(clock(partial(_ask, machine, f"cold-{clock.__name__}-{number}")))
    machine.stop()
    name = "a prompt, without a helper"
    return [
        _compared(name, *wall, Goal(6), "by words alone; it also starts a helper"),
        _compared(f"{name}, CPU time", *cpu, Goal(7), "of the hook's process, without the helper that it starts"),
    ]


def _measure_crowd(machine: Machine, scale: Scale, progress: Progress) -> Figure:
    progress(f"crowd: {scale.crowd} hooks at once")
    machine.stop()
    said = [f"Number {number} on my list is pear-{number}." for number in range(scale.crowd)]
    prompts = [
        machine.start("qwen-code", "UserPromptSubmit", session_id=f"crowd-{number}", prompt=text, submitted_prompt=text)
        for number, text in enumerate(said)
    ]
    for process in prompts:
        process.communicate(timeout=_WITHIN)
    machine.warm()
    answers = [f"Noted, pear-{number} it is." for number in range(scale.crowd)]
    ends = [
        machine.start("qwen-code", "Stop", session_id=f"crowd-{number}", last_assistant_message=text)
        for number, text in enumerate(answers)
    ]
    for process in ends:
        process.communicate(timeout=_WITHIN)
    machine.stop()
    with blocking.open(machine.folder / "memory.db", background=False) as memory:
        stored = {entry.text for entry in memory.space("user:ada").list(limit=1000)}
    lost = sum(text not in stored for text in (*said, *answers))
    failed = sum(process.returncode != 0 for process in (*prompts, *ends))
    return judge("messages lost by hooks at once", "", lost + failed, Goal(0, ""), "one helper was started")


def _count_left(folder: Path, progress: Progress) -> Iterator[Figure]:
    for name, end in (
        ("its idle time", None),
        ("`helper stop`, which `uninstall` calls", lambda machine, pid: machine.stop()),
        ("a crash", lambda machine, pid: os.kill(pid, signal.SIGKILL)),
    ):
        progress(f"left behind after {name}")
        home = folder / name.split()[-1].strip("`")
        home.mkdir()
        machine = Machine(home)
        if end is None:
            idle = start_patched_helper(
                os.environ | machine.environment, "afterturn.hosts.hooks.daemon.IDLE_TIMEOUT", 1
            )
            idle.wait(_WITHIN)
        else:
            pid = machine.warm().pid
            end(machine, pid)
            wait_for(partial(_has_ended, pid))
        yield judge(f"helpers left after {name}", "", int(machine.has_helper()), Goal(0, ""))


def _has_ended(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"
