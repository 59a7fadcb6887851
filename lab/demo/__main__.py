"""`make demo`: plays the scenes in child processes, then prints the totals and a trace."""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import afterturn.blocking
from afterturn.errors import AfterturnError
from afterturn.types import Kind, ReviewRow
from lab.demo.host import Cost
from lab.demo.scene import processes
from lab.demo.screen import DemoFailed, Screen, command_name, show_command
from lab.demo.story import DAYS, SPACE

FOLDER = Path(".demo")
STORE = FOLDER / "memory.db"
_FEW = 11


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="Show what afterturn does, in half a minute.")
    parser.add_argument("--all", action="store_true", help="play every scene, and show whole blocks and all totals")
    parser.add_argument("--fast", action="store_true", help="do not pause for reading")
    given = parser.parse_args()
    screen = Screen(fast=given.fast)
    try:
        _clear()
        screen.line("afterturn: what your agent hears once, it remembers", "bold")
        screen.line("Left: Ada talks with Basil, an agent that books tables. Right: what memory does.")
        cost = Cost()
        for said, numbers in processes() if given.all else processes()[: len(DAYS)]:
            if said:
                screen.line()
                screen.line(said, "bold")
            cost += _play(numbers, fast=given.fast, brief=not given.all)
        _conclude(screen, cost, brief=not given.all)
        if given.all:
            _explain(screen)
            screen.line()
        else:
            screen.figure("See more", "make demo ARGS=--all: late recalls, long histories, sub-agents, learning, undo")
        screen.figure("Use it", "README.md shows how to add this to your own agent")
        screen.figure("Look inside", f"{command_name()} list --store {STORE} --space {SPACE}")
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


def _play(numbers: Iterable[int], *, fast: bool, brief: bool) -> Cost:
    """Plays scenes in a new process. SystemExit if they failed; the process has printed the reason."""
    report = FOLDER / f"{STORE.name}.cost.json"
    command = [sys.executable, "-m", "lab.demo.scene", str(STORE), str(report), *map(str, numbers)]
    command += [option for option, is_set in (("--fast", fast), ("--brief", brief)) if is_set]
    done = subprocess.run(command, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    fields = json.loads(report.read_text(encoding="utf-8"))
    report.unlink()
    return Cost(**fields)


def _conclude(screen: Screen, cost: Cost, *, brief: bool) -> None:
    with afterturn.blocking.open(STORE, {"embedder": "none"}, background=False) as memory:
        ada = memory.space(SPACE)
        entries = ada.list(limit=1000)
        conversations = len(ada.conversations())
        asked = [row for row in ada.reviews() if row.calls]
    statements = sum(entry.kind is Kind.STATEMENT for entry in entries)
    records = len(entries) - statements
    stored = f"{records} messages of {conversations} conversations, and {statements} statements"
    if brief:
        screen.line()
        screen.figure("Stored", f"{stored}, in one SQLite file; no server, API key or network is needed")
        screen.figure("Waited", f"{cost.waited * 1000:.0f} ms for recall and recording, in all turns together")
        return
    screen.heading("Totals")
    screen.figure("stored", stored)
    screen.figure("recalls", f"{cost.recalls} in {cost.turns} turns; the model was called {cost.model_calls} times")
    screen.figure("waited", f"{cost.waited * 1000:.0f} ms for recall and recording, in all turns together")
    _compare(screen, cost, asked)
    screen.figure(
        "files", f"one SQLite file of {STORE.stat().st_size / 1024:,.0f} KiB; no server, API key or network is needed"
    )


def _compare(screen: Screen, cost: Cost, asked: Sequence[ReviewRow]) -> None:
    """The tokens of memory next to those of a host that recalls before every call, and those of reviews."""
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


def _explain(screen: Screen) -> None:
    """Runs `afterturn trace` for one turn and shows the first lines of its output."""
    screen.heading("Why each memory was recalled")
    show_command(screen, STORE, ["trace", "party", "--turn", "3"], pick=_few)


def _few(lines: list[str]) -> list[str]:
    """The first lines, and one memory that was excluded because an earlier turn has it."""
    excluded = next((at for at, line in enumerate(lines) if line.strip().startswith("excluded")), len(lines))
    return [*lines[2:_FEW], "…", *lines[excluded - 1 : excluded + 1], "…"]


if __name__ == "__main__":
    sys.exit(main())
