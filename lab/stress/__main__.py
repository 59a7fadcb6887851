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
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from lab.postgres.stores import PostgresStores, find_url
from lab.stress.child import spill_folder
from lab.stress.judge import judge, read_logs
from lab.tables import Store

PROCESS_WITHIN = 300.0
POLL = 0.005


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of one process."""

    store: Store
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


def run_stress(seed: int, *, processes: int = 3, steps: int = 60, store: Store | None = None) -> Outcome:
    """Kills the first process at some point, and starts another in its place. `store` is empty; None: a new file."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="afterturn-stress-") as place:
        logs = [Path(place) / f"{number}.log" for number in range(processes)]
        store = store or Path(place) / "memory.db"
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
        broken = asyncio.run(judge(store, logged, spill_folder=spill_folder(logs[0])))
        return Outcome(seed, Counter(line["what"] for line in logged), failed + broken)


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
    parser.add_argument("--store", help="postgresql: starts a server; or the URL of a database for new schemas.")
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("-")
    with ExitStack() as stack:
        stores = PostgresStores(stack.enter_context(find_url(asked.store))) if asked.store else None
        return _run_seeds(range(int(first), int(last or first) + 1), asked.processes, asked.steps, stores)


def _run_seeds(seeds: Sequence[int], processes: int, steps: int, stores: PostgresStores | None) -> int:
    failing = 0
    for seed in seeds:
        with stores.fresh() if stores else nullcontext() as store:
            outcome = run_stress(seed, processes=processes, steps=steps, store=store)
        failing += bool(outcome.broken)
        done = ", ".join(f"{count} {what}" for what, count in sorted(outcome.done.items()))
        print(f"seed {seed}: {'BROKEN' if outcome.broken else 'ok'} ({done})", flush=True)
        for fault in outcome.broken[:20]:
            print(f"    {fault}", flush=True)
    print(f"{failing} seeds failed.")
    return 1 if failing else 0


if __name__ == "__main__":
    raise SystemExit(main())
