"""Runs seeds one after the other. Exit code 1 if one of them broke a promise."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from lab.stress.judge import judge, read_logs

PROCESS_WITHIN = 300.0
POLL = 0.005


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of one process."""

    store: Path
    name: str
    seed: int
    steps: int
    log: Path

    def start(self) -> subprocess.Popen[str]:
        about = [str(self.store), self.name, str(self.seed), str(self.steps), str(self.log)]
        command = [sys.executable, "-m", "lab.stress.child", *about]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Outcome:
    """`done` counts what memory acknowledged, by kind; `broken` lists every promise that was not kept."""

    seed: int
    done: Counter[str]
    broken: list[str]


def run_stress(seed: int, *, processes: int = 3, steps: int = 60) -> Outcome:
    """Kills the first process at some point, and starts another in its place."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="afterturn-stress-") as place:
        store, logs = Path(place) / "memory.db", [Path(place) / f"{number}.log" for number in range(processes)]
        names = [f"p{number}" for number in range(processes)]
        plans = [Plan(store, name, seed * 100 + at, steps, logs[at]) for at, name in enumerate(names)]
        running = [plan.start() for plan in plans]
        after = chance.randrange(1, max(2, steps))
        if _kill(running[0], plans[0], after=after, delay=chance.uniform(0.0, 0.1)):
            again = replace(plans[0], name="p0again", seed=seed * 100 + processes, steps=max(1, steps - after))
            running[0] = again.start()
        ends = [process.communicate(timeout=PROCESS_WITHIN)[1] for process in running]
        failed = [
            f"a process ended with {p.returncode}: {end[-800:]}"
            for p, end in zip(running, ends, strict=True)
            if p.returncode
        ]
        logged = read_logs([log for log in logs if log.exists()])
        return Outcome(seed, Counter(line["what"] for line in logged), failed + asyncio.run(judge(store, logged)))


def _kill(process: subprocess.Popen[str], plan: Plan, *, after: int, delay: float) -> bool:
    """Kills it shortly after it has logged `after` lines. False if it had ended by then."""
    while _lines(plan.log) < after:
        if _ends(process, within=POLL):
            return False
    if _ends(process, within=delay):
        return False
    process.kill()
    process.communicate()
    at = time.time()
    with plan.log.open("a", encoding="utf-8") as log:
        # Lets writes that were interrupted by the kill finish.
        log.write("\n" + json.dumps({"what": "killed", "by": plan.name, "began": at, "ended": at}) + "\n")
    return True


def _lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _ends(process: subprocess.Popen[str], *, within: float) -> bool:
    try:
        process.wait(timeout=within)
    except subprocess.TimeoutExpired:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.stress", description=__doc__)
    parser.add_argument("--seeds", default="1-20", help="One seed, or FIRST-LAST (default: 1-20).")
    parser.add_argument("--processes", type=int, default=3, help="How many processes run at once (default: 3).")
    parser.add_argument("--steps", type=int, default=60, help="How many actions each process performs (default: 60).")
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("-")
    failing = 0
    for seed in range(int(first), int(last or first) + 1):
        outcome = run_stress(seed, processes=asked.processes, steps=asked.steps)
        failing += bool(outcome.broken)
        done = ", ".join(f"{count} {what}" for what, count in sorted(outcome.done.items()))
        print(f"seed {seed}: {'BROKEN' if outcome.broken else 'ok'} ({done})", flush=True)
        for fault in outcome.broken[:20]:
            print(f"    {fault}", flush=True)
    print(f"{failing} seeds failed.")
    return 1 if failing else 0


if __name__ == "__main__":
    raise SystemExit(main())
