"""`make demo`: clears the stage, plays each day in a child process, then tells what was remembered and what it cost."""

import argparse
import json
import math
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import afterturn.blocking
from afterturn.base.clock import SystemClock
from afterturn.base.errors import AfterturnError, NotFound
from afterturn.base.types import Entry, Kind
from afterturn.context.age import describe_age
from afterturn.lab.demo.host import Cost
from afterturn.lab.demo.stage import WIDTH, Stage, shortened
from afterturn.lab.demo.story import DAYS, SPACE

FOLDER = Path(".demo")
STORE = FOLDER / "memory.db"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="What afterturn is for, in ten seconds.")
    parser.add_argument("--fast", action="store_true", help="without the pauses for reading")
    fast = parser.parse_args().fast
    stage = Stage(fast=fast)
    try:
        _clear()
        stage.line("afterturn: told once, known ever after", "bold")
        stage.line("Ada talks with Basil, an agent that books tables. Beside it: what memory does.")
        cost = Cost()
        for number in range(len(DAYS)):
            cost += _play(number, fast=fast)
        _conclude(stage, cost)
    except (AfterturnError, OSError) as error:
        stage.failure(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _clear() -> None:
    """Removes what an earlier run left, and nothing else that may stand in the folder."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob(f"{STORE.name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _play(number: int, *, fast: bool) -> Cost:
    """One day in its own process. SystemExit when that failed, which it has then said itself."""
    report = FOLDER / f"{STORE.name}.day-{number}.json"
    command = [sys.executable, "-m", "afterturn.lab.demo.day", str(number), str(STORE), str(report)]
    done = subprocess.run([*command, "--fast"] if fast else command, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    fields = json.loads(report.read_text(encoding="utf-8"))
    report.unlink()
    return Cost(**fields)


def _conclude(stage: Stage, cost: Cost) -> None:
    with afterturn.blocking.open(STORE, {"embedder": "none"}, background=False) as memory:
        ada = memory.space(SPACE)
        entries = ada.list(limit=1000)
        conversations = len(ada.conversations())
        used = [(_find(ada, ref), count) for ref, count in Counter(cost.handed_over).items()]
    statements = sum(entry.kind is Kind.STATEMENT for entry in entries)
    stage.heading("What was remembered")
    stage.line(
        f"{len(entries) - statements} messages of {conversations} conversations and {statements} statement. "
        "What Basil was given of them, and how often:"
    )
    for entry, count in sorted(used, key=lambda item: item[0].occurred_at if item[0] else math.inf):
        stage.line(_row(entry, count))
    stage.heading("What it cost")
    stage.figure("recalls", f"{cost.recalls} in {cost.turns} turns; the model was called {cost.model_calls} times")
    stage.figure("waiting", f"{cost.waited * 1000:.0f} ms in all turns together, for recalling and for recording")
    stage.figure("tokens", f"{cost.tokens:,} added once; one copy per model call would be {cost.tokens_each_call:,}")
    stage.figure("machine", f"one SQLite file of {STORE.stat().st_size / 1024:,.0f} KiB; no server, no key, no network")
    stage.line()
    stage.figure("Build it in", "README.md begins with the lines that do this for your agent")
    stage.figure("Look inside", f"{_command()} list --store {STORE} --space {SPACE}   (all: --help)")


def _command() -> str:
    """As it can be typed here."""
    installed = Path(".venv", "bin", "afterturn")
    return str(installed) if installed.exists() else "afterturn"


def _find(ada: afterturn.blocking.Space, ref: str) -> Entry | None:
    try:
        return ada.get(ref.partition(".")[0])
    except NotFound:
        return None


def _row(entry: Entry | None, count: int) -> str:
    if entry is None:
        return f"  {'forgotten':<12} {'':<10} {'(nothing is left to show)':<{WIDTH - 32}} {count}×"
    age = describe_age(entry.occurred_at, SystemClock().now())
    who = entry.speaker or entry.kind.value
    return f"  {age:<12} {who:<10} {shortened(entry.text, WIDTH - 32):<{WIDTH - 32}} {count}×"


if __name__ == "__main__":
    sys.exit(main())
