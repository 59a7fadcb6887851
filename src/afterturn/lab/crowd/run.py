"""Starts the processes of a crowd, waits for them, and has the store judged."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from afterturn.lab.crowd.judge import judge, read_logs

PROCESS_WITHIN = 300.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """`done` counts what memory acknowledged, by kind; `broken` names every promise that was not kept."""

    seed: int
    done: Counter[str]
    broken: list[str]


def run_crowd(seed: int, *, processes: int = 3, steps: int = 60) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="afterturn-crowd-") as place:
        store, folder = Path(place) / "memory.db", Path(place)
        logs = [folder / f"{number}.log" for number in range(processes)]
        running = [_start(store, f"p{number}", seed * 100 + number, steps, log) for number, log in enumerate(logs)]
        ends = [process.communicate(timeout=PROCESS_WITHIN)[1] for process in running]
        failed = [
            f"a process ended with {p.returncode}: {end[-800:]}"
            for p, end in zip(running, ends, strict=True)
            if p.returncode
        ]
        told = read_logs([log for log in logs if log.exists()])
        return Outcome(seed, Counter(line["what"] for line in told), failed + asyncio.run(judge(store, told)))


def _start(store: Path, name: str, seed: int, steps: int, log: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "afterturn.lab.crowd.child", str(store), name, str(seed), str(steps), str(log)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")
