"""`make demo`: clears the stage, plays the scenes in child processes, then tells what it cost and why."""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import afterturn.blocking
from afterturn.errors import AfterturnError
from afterturn.types import Kind
from lab.demo.host import Cost
from lab.demo.scene import processes
from lab.demo.stage import Stage, StoryBroken, show_command, typeable
from lab.demo.story import SPACE

FOLDER = Path(".demo")
STORE = FOLDER / "memory.db"
_FEW = 11


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="What afterturn is for, in half a minute.")
    parser.add_argument("--fast", action="store_true", help="without the pauses for reading")
    fast = parser.parse_args().fast
    stage = Stage(fast=fast)
    try:
        _clear()
        stage.line("afterturn: told once, known ever after", "bold")
        stage.line("Ada talks with Basil, an agent that books tables. Beside it: what memory does.")
        cost = Cost()
        for said, numbers in processes():
            if said:
                stage.line()
                stage.line(said, "bold")
            cost += _play(numbers, fast=fast)
        _conclude(stage, cost)
        _explain(stage)
    except (AfterturnError, OSError, StoryBroken) as error:
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


def _play(numbers: Iterable[int], *, fast: bool) -> Cost:
    """Scenes in a process of their own. SystemExit when that failed, which it has then said itself."""
    report = FOLDER / f"{STORE.name}.cost.json"
    command = [sys.executable, "-m", "lab.demo.scene", str(STORE), str(report), *map(str, numbers)]
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
        asked = [row for row in ada.reviews() if row.calls]
    statements = sum(entry.kind is Kind.STATEMENT for entry in entries)
    stage.heading("What it cost")
    records = len(entries) - statements
    stage.figure("kept", f"{records} messages of {conversations} conversations, and {statements} statements")
    stage.figure("recalls", f"{cost.recalls} in {cost.turns} turns; the model was called {cost.model_calls} times")
    stage.figure("waiting", f"{cost.waited * 1000:.0f} ms in all turns together, for recalling and for recording")
    stage.figure(
        "added",
        f"{cost.added:,} tokens of memory to the conversations, nothing twice while it is in sight; "
        f"a host that recalls at every model call would have added {cost.each_call_added:,}",
    )
    stage.figure(
        "read",
        f"{cost.read:,} tokens of memory in all prompts, since a history is sent again with every call; "
        f"by that host {cost.each_call_read:,}, so {1 - cost.read / cost.each_call_read:.0%} are saved",
    )
    stage.figure(
        "learned",
        f"by rules, and by {len(asked)} reviews that no turn waited for: "
        f"{sum(row.calls for row in asked)} calls of a model, {sum(row.tokens for row in asked):,} tokens",
    )
    stage.figure("machine", f"one SQLite file of {STORE.stat().st_size / 1024:,.0f} KiB; no server, no key, no network")


def _explain(stage: Stage) -> None:
    """The command that tells why each memory came, and what it says; without most of what it left out."""
    stage.heading("Why each memory came when it came")
    show_command(stage, STORE, ["trace", "party", "--turn", "3"], pick=_few)
    stage.line()
    stage.figure("Build it in", "README.md begins with the lines that do this for your agent")
    stage.figure("Look inside", f"{typeable()} list --store {STORE} --space {SPACE}")


def _few(lines: list[str]) -> list[str]:
    """The beginning, and one memory that was left out because an earlier turn had it."""
    excluded = next((at for at, line in enumerate(lines) if line.strip().startswith("excluded")), len(lines))
    return [*lines[2:_FEW], "…", *lines[excluded - 1 : excluded + 1], "…"]


if __name__ == "__main__":
    sys.exit(main())
