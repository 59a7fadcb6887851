"""Prints the demo: messages, a timeline of events, and commands with their output."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from afterturn.types import Event, Scalar
from lab.demo.story import SPACE


def count_bytes(store: Path, text: str) -> int:
    """How often the text occurs in the store's files."""
    return sum(path.read_bytes().count(text.encode()) for path in store.parent.glob(f"{store.name}*") if path.is_file())


class DemoFailed(Exception):
    """Memory did not work, so the demo cannot continue."""


def describe_call(call: Mapping[str, Any]) -> str:
    """The call as code: `find_tables(day="Friday", guests=2)`."""
    function = call["function"]
    arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in json.loads(function["arguments"]).items())
    return f"{function['name']}({arguments})"


class TurnPrinter:
    def __init__(self, screen: Screen, *, terse: bool) -> None:
        self._screen = screen
        self._terse = terse
        self._calls: list[str] = []
        self._notes: list[str] = []

    def moment(self, said: Sequence[Cell], notes: Sequence[str]) -> None:
        if self._terse and self._calls:
            self._notes.extend(notes)
        else:
            self._screen.moment(said, notes)

    def called(self, calls: Sequence[Mapping[str, Any]]) -> None:
        described = [describe_call(call) for call in calls]
        self._calls.extend(described)
        if not self._terse:
            self._screen.moment([Cell("calls", f"→ {call}") for call in described], [])

    def end(self) -> None:
        if self._terse:
            steps = len(self._calls)
            said = [Cell("calls", f"→ {self._calls[0]}"), Cell("calls", f"→ … {steps} calls, one after the other")]
            self._screen.moment(said, self._notes or [f"{steps} tool steps: no recall, nothing added"])


def show_command(
    screen: Screen, store: Path, arguments: Sequence[str], *, pick: Callable[[list[str]], list[str]] = list
) -> None:
    """Runs and prints a command, with the lines of its output that `pick` returns. DemoFailed if it fails."""
    typed = [*arguments, "--store", str(store), "--space", SPACE]
    done = subprocess.run([sys.executable, "-m", "afterturn", *typed], check=False, capture_output=True, text=True)
    screen.line(f"$ {command_name()} {' '.join(typed)}", "bold")
    if done.returncode:
        raise DemoFailed(f"Memory failed: {done.stderr.strip()}")
    screen.excerpt(pick(done.stdout.splitlines()))


def command_name() -> str:
    """The name of the program, as you can type it in this folder."""
    installed = Path(".venv", "bin", "afterturn")
    return str(installed) if installed.exists() else "afterturn"


_EVENT_WITHIN = 3.0
_POINTS = {"user_message": "after Ada", "tool_result": "after tool"}
_BULLET = re.compile(r"^- \[(?P<ref>[0-9a-z.]+)\] [^:]*?, (?:(?:user|assistant): )?(?P<text>.*)$", re.MULTILINE)


class EventQueue:
    """Passes events from memory's thread to the host's event loop, in order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Event] = asyncio.Queue()

    def put(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, event)

    async def take(self, *, until: str = "") -> list[Event]:
        """All queued events. With `until`, waits up to three seconds for an event of that name."""
        taken: list[Event] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EVENT_WITHIN):
                while until and (not taken or taken[-1].name != until):
                    taken.append(await self._queue.get())
        await asyncio.sleep(0)
        while not self._queue.empty():
            taken.append(self._queue.get_nowait())
        return taken


def describe(event: Event) -> list[str]:
    """The text for the right column; empty for events that the demo does not show."""
    data = event.data
    match event.name:
        case "recall_started":
            return ["recall starts; the turn does not wait"]
        case "recall_settled":
            return [f"recalled in {data['milliseconds']:.1f} ms: {_lanes(event)}"]
        case "recall_carried":
            return [f"too late: {counted(data['memories'])} kept for the next turn"]
        case "handed_over":
            return [f"delivered {_POINTS[str(data['point'])]}: {counted(data['memories'])}, {data['tokens']} tokens"]
        case "standing_delivered":
            return [f"delivered: the standing block, {data['bytes']} bytes"]
        case "tool_called":
            return [f"the tool returned {counted(data['memories'])}"]
        case "proposed":
            return ["proposed: it is in Ada's inbox"]
        case "recorded":
            return [f"recorded: {data['records']} messages"]
    return []


def bullets(block: str) -> dict[str, str]:
    """The text of each memory in a block, by its reference."""
    return {found["ref"]: found["text"] for found in _BULLET.finditer(block)}


def counted(memories: Scalar) -> str:
    return "1 memory" if memories == 1 else f"{memories} memories"


def _lanes(event: Event) -> str:
    counts = {name: event.data[name] for name in ("short_term", "long_term", "episodic")}
    found = [f"{count} {name.replace('_', '-')}" for name, count in counts.items() if count]
    return " + ".join(found) or "nothing to add"


WIDTH = 100
_NAME = 6
_LEFT = 52
_LEFT_NARROW = 76
_ROW_PAUSE = 0.02
_MOMENT_PAUSE = 0.1

_PEOPLE = {"Ada": "bold cyan", "Basil": "bold green"}
_MEMORY = "yellow"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the left column. `who` is printed only for people, not for tool calls and results."""

    who: str
    text: str


class Screen:
    """Prints the demo: slowly on a terminal, without pauses elsewhere or if `fast`. `brief`: of texts that the model
    got, only their bullets, one line each."""

    def __init__(self, *, fast: bool, brief: bool = False) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A terminal without Unicode shows question marks.
            sys.stdout.reconfigure(errors="replace")
        shown = Console(highlight=False, markup=False, emoji=False)
        plain = not shown.is_terminal or shown.no_color
        self._width = min(WIDTH, max(shown.width, _LEFT)) if shown.is_terminal else WIDTH
        self._console = Console(
            highlight=False, markup=False, emoji=False, width=self._width, color_system=None if plain else "auto"
        )
        self._brief = brief
        self._paced = shown.is_terminal and not fast

    def heading(self, title: str, notes: str = "") -> None:
        """A rule with a title in it, and a note at its right end."""
        self._pause(_MOMENT_PAUSE)
        self.line()
        title = shortened(title, self._width - 4)
        if len(title) + len(notes) + 8 > self._width:
            notes = ""
        line = "─" * (self._width - len(title) - len(notes) - (8 if notes else 4))
        end = f" {notes} ──" if notes else ""
        self._print(Text.assemble(("── ", "dim"), (title, "bold"), (f" {line}{end}", "dim")))

    def moment(self, said: Sequence[Cell], notes: Sequence[str]) -> None:
        """Prints messages on the left and notes on the right; on a narrow terminal, notes below messages."""
        if self._width < WIDTH:
            self._stacked(said, notes)
            return
        left = [cell for item in said for cell in _cells(item, _LEFT)]
        for cell, note in zip_longest(left, notes, fillvalue=None):
            row = cell or Text()
            row.pad_right(_LEFT - row.cell_len)
            row.append("│ ", "dim")
            row.append(shortened(note or "", WIDTH - _LEFT - len("│ ")), _MEMORY)
            self._print(row)
        self._pause(_MOMENT_PAUSE)

    def _stacked(self, said: Sequence[Cell], notes: Sequence[str]) -> None:
        for cell in [cell for item in said for cell in _cells(item, min(self._width, _LEFT_NARROW))]:
            self._print(cell)
        for note in notes:
            self._print(Text.assemble((" " * _NAME + "│ ", "dim"), (shortened(note, self._width - _NAME - 2), _MEMORY)))
        self._pause(_MOMENT_PAUSE)

    def block(self, title: str, text: str) -> None:
        """Prints a text that the model got, in a frame."""
        inside = self._width - 4
        if self._brief:
            text = "\n".join(shortened(line, inside) for line in text.splitlines() if line.startswith("- "))
        lines = [part for line in text.splitlines() for part in _wrapped(line, inside)]
        self._print(Text.assemble(("┌─ ", "dim"), (title, "dim"), (f" {'─' * (inside - len(title) - 1)}┐", "dim")))
        for line in lines:
            self._print(Text.assemble(("│ ", "dim"), (line.ljust(inside), _MEMORY), (" │", "dim")))
        self._print(Text(f"└{'─' * (inside + 2)}┘", "dim"))
        self._pause(2 * _MOMENT_PAUSE)

    def figure(self, name: str, text: str) -> None:
        lines = textwrap.wrap(text, self._width - 13) or [""]
        for label, line in zip([name, *[""] * (len(lines) - 1)], lines, strict=True):
            self._print(Text.assemble((label.ljust(13), "bold"), line))

    def failure(self, text: str) -> None:
        self._print(Text(f"✗ {text}", "bold red"))

    def line(self, text: str = "", style: str = "") -> None:
        for line in textwrap.wrap(text, self._width) or [""]:
            self._print(Text(line, style))

    def excerpt(self, lines: Sequence[str]) -> None:
        """Prints the output of a command. Long lines are cut."""
        for line in lines:
            self._print(Text(f"  {shortened(line, self._width - 2)}", _MEMORY))

    def _print(self, text: Text) -> None:
        text.rstrip()
        self._console.print(text, soft_wrap=True)
        self._pause(_ROW_PAUSE)

    def _pause(self, seconds: float) -> None:
        if self._paced:
            time.sleep(seconds)


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def _cells(said: Cell, width: int) -> list[Text]:
    lines = _wrapped(said.text, width - _NAME - 1)
    if said.who not in _PEOPLE:
        return [Text(" " * _NAME + line, "dim") for line in lines]
    names = [said.who, *[""] * (len(lines) - 1)]
    return [
        Text.assemble((name.ljust(_NAME), _PEOPLE[said.who]), line) for name, line in zip(names, lines, strict=True)
    ]


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent="  " if line.startswith(("- ", "→", "←")) else "") or [""]
