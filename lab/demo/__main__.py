"""`make demo`: plays the scenes in child processes, then prints the totals and a trace."""

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
from lab.demo.screen import DemoFailed, Screen, command_name, show_command
from lab.demo.story import SPACE

FOLDER = Path(".demo")
STORE = FOLDER / "memory.db"
_FEW = 11


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="Show what afterturn does, in half a minute.")
    parser.add_argument("--fast", action="store_true", help="do not pause for reading")
    fast = parser.parse_args().fast
    screen = Screen(fast=fast)
    try:
        _clear()
        screen.line("afterturn: what your agent hears once, it remembers", "bold")
        screen.line("Left: Ada talks with Basil, an agent that books tables. Right: what memory does.")
        cost = Cost()
        for said, numbers in processes():
            if said:
                screen.line()
                screen.line(said, "bold")
            cost += _play(numbers, fast=fast)
        _conclude(screen, cost)
        _explain(screen)
    except (AfterturnError, OSError, DemoFailed) as error:
        screen.failure(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _clear() -> None:
    """Removes the files of an earlier run, and nothing else."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob(f"{STORE.name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _play(numbers: Iterable[int], *, fast: bool) -> Cost:
    """Plays scenes in a new process. SystemExit if they failed; the process has printed the reason."""
    report = FOLDER / f"{STORE.name}.cost.json"
    command = [sys.executable, "-m", "lab.demo.scene", str(STORE), str(report), *map(str, numbers)]
    done = subprocess.run([*command, "--fast"] if fast else command, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    fields = json.loads(report.read_text(encoding="utf-8"))
    report.unlink()
    return Cost(**fields)


def _conclude(screen: Screen, cost: Cost) -> None:
    with afterturn.blocking.open(STORE, {"embedder": "none"}, background=False) as memory:
        ada = memory.space(SPACE)
        entries = ada.list(limit=1000)
        conversations = len(ada.conversations())
        asked = [row for row in ada.reviews() if row.calls]
    statements = sum(entry.kind is Kind.STATEMENT for entry in entries)
    screen.heading("Totals")
    records = len(entries) - statements
    screen.figure("stored", f"{records} messages of {conversations} conversations, and {statements} statements")
    screen.figure("recalls", f"{cost.recalls} in {cost.turns} turns; the model was called {cost.model_calls} times")
    screen.figure("waited", f"{cost.waited * 1000:.0f} ms for recall and recording, in all turns together")
    screen.figure(
        "added",
        f"{cost.added:,} tokens of memory, none repeated while the model still sees it; "
        f"a host that recalls before every model call would have added {cost.each_call_added:,}",
    )
    screen.figure(
        "sent",
        f"{cost.read:,} tokens of memory in all prompts, because every call sends the history again; "
        f"that host would have sent {cost.each_call_read:,}: {1 - cost.read / cost.each_call_read:.0%} are saved",
    )
    screen.figure(
        "learned",
        f"by rules, and by {len(asked)} reviews in the background: "
        f"{sum(row.calls for row in asked)} model calls, {sum(row.tokens for row in asked):,} tokens",
    )
    screen.figure(
        "files", f"one SQLite file of {STORE.stat().st_size / 1024:,.0f} KiB; no server, API key or network is needed"
    )


def _explain(screen: Screen) -> None:
    """Runs `afterturn trace` for one turn and shows the first lines of its output."""
    screen.heading("Why each memory was recalled")
    show_command(screen, STORE, ["trace", "party", "--turn", "3"], pick=_few)
    screen.line()
    screen.figure("Use it", "README.md shows how to add this to your own agent")
    screen.figure("Look inside", f"{command_name()} list --store {STORE} --space {SPACE}")


def _few(lines: list[str]) -> list[str]:
    """The first lines, and one memory that was excluded because an earlier turn has it."""
    excluded = next((at for at, line in enumerate(lines) if line.strip().startswith("excluded")), len(lines))
    return [*lines[2:_FEW], "…", *lines[excluded - 1 : excluded + 1], "…"]


if __name__ == "__main__":
    sys.exit(main())
