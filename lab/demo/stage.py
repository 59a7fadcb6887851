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


class StoryBroken(Exception):
    """Memory did not do its part, and the story can not go on."""


def describe_call(call: Mapping[str, Any]) -> str:
    """As one would write it: `find_tables(day="Friday", guests=2)`."""
    function = call["function"]
    arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in json.loads(function["arguments"]).items())
    return f"{function['name']}({arguments})"


class Telling:
    def __init__(self, stage: Stage, *, terse: bool) -> None:
        self._stage = stage
        self._terse = terse
        self._calls: list[str] = []
        self._notes: list[str] = []

    def moment(self, said: Sequence[Said], beside: Sequence[str]) -> None:
        if self._terse and self._calls:
            self._notes.extend(beside)
        else:
            self._stage.moment(said, beside)

    def called(self, calls: Sequence[Mapping[str, Any]]) -> None:
        described = [describe_call(call) for call in calls]
        self._calls.extend(described)
        if not self._terse:
            self._stage.moment([Said("calls", f"→ {call}") for call in described], [])

    def end(self) -> None:
        if self._terse:
            steps = len(self._calls)
            said = [Said("calls", f"→ {self._calls[0]}"), Said("calls", f"→ … {steps} calls, one after the other")]
            self._stage.moment(said, self._notes or [f"{steps} tool steps: no recall, nothing added"])


def show_command(
    stage: Stage, store: Path, arguments: Sequence[str], *, pick: Callable[[list[str]], list[str]] = list
) -> None:
    """Prints the command and what `pick` takes of its output. StoryBroken when it fails."""
    typed = [*arguments, "--store", str(store), "--space", SPACE]
    done = subprocess.run(
        [sys.executable, "-m", "afterturn.hosts.cli", *typed], check=False, capture_output=True, text=True
    )
    stage.line(f"$ {typeable()} {' '.join(typed)}", "bold")
    if done.returncode:
        raise StoryBroken(f"Memory failed: {done.stderr.strip()}")
    stage.excerpt(pick(done.stdout.splitlines()))


def typeable() -> str:
    """The program as it can be typed here."""
    installed = Path(".venv", "bin", "afterturn")
    return str(installed) if installed.exists() else "afterturn"


_EVENT_WITHIN = 3.0
_POINTS = {"user_message": "after Ada", "tool_result": "after tool"}
_BULLET = re.compile(r"^- \[(?P<ref>[0-9a-z.]+)\] [^:]*?, (?:(?:user|assistant): )?(?P<text>.*)$", re.MULTILINE)


class EventQueue:
    """Takes events on memory's thread and gives them, in order, to the host's loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Event] = asyncio.Queue()

    def put(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, event)

    async def take(self, *, until: str = "") -> list[Event]:
        """What has come; with `until`, waits for an event of that name first, for at most three seconds."""
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
    """A line, or none for what nobody has to see."""
    data = event.data
    match event.name:
        case "recall_started":
            return ["recall starts, and the turn goes on"]
        case "recall_settled":
            return [f"recalled in {data['milliseconds']:.1f} ms: {_lanes(event)}"]
        case "recall_carried":
            return [f"too late for this turn: {counted(data['memories'])} carried"]
        case "handed_over":
            return [f"handed over {_POINTS[str(data['point'])]}: {counted(data['memories'])}, {data['tokens']} tokens"]
        case "tool_called":
            return [f"looked up {counted(data['memories'])}, nothing injected"]
        case "proposed":
            return ["proposed: waits in Ada's inbox"]
        case "recorded":
            return [f"recorded for good: {data['records']} messages"]
    return []


def bullets(block: str) -> dict[str, str]:
    """The memories in a block by what names them: their words, and of reports whose they are."""
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
class Said:
    """One cell of the left column. Only people have their name in front: calls and results are the agent's own."""

    who: str
    text: str


class Stage:
    """Prints at the pace of reading on a terminal, and at once elsewhere or when `fast`."""

    def __init__(self, *, fast: bool) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A terminal without Unicode shows question marks then, and the story goes on.
            sys.stdout.reconfigure(errors="replace")
        shown = Console(highlight=False, markup=False, emoji=False)
        plain = not shown.is_terminal or shown.no_color
        self._width = min(WIDTH, max(shown.width, _LEFT)) if shown.is_terminal else WIDTH
        self._console = Console(
            highlight=False, markup=False, emoji=False, width=self._width, color_system=None if plain else "auto"
        )
        self._paced = shown.is_terminal and not fast

    def heading(self, title: str, beside: str = "") -> None:
        """A rule with a title in it, and a note at its right end."""
        self._pause(_MOMENT_PAUSE)
        self.line()
        title = shortened(title, self._width - 4)
        if len(title) + len(beside) + 8 > self._width:
            beside = ""
        line = "─" * (self._width - len(title) - len(beside) - (8 if beside else 4))
        end = f" {beside} ──" if beside else ""
        self._print(Text.assemble(("── ", "dim"), (title, "bold"), (f" {line}{end}", "dim")))

    def moment(self, said: Sequence[Said], beside: Sequence[str]) -> None:
        """What was said, and beside it what memory did meanwhile; below it where there is no room beside."""
        if self._width < WIDTH:
            self._stacked(said, beside)
            return
        left = [cell for item in said for cell in _cells(item, _LEFT)]
        for cell, note in zip_longest(left, beside, fillvalue=None):
            row = cell or Text()
            row.pad_right(_LEFT - row.cell_len)
            row.append("│ ", "dim")
            row.append(shortened(note or "", WIDTH - _LEFT - len("│ ")), _MEMORY)
            self._print(row)
        self._pause(_MOMENT_PAUSE)

    def _stacked(self, said: Sequence[Said], beside: Sequence[str]) -> None:
        for cell in [cell for item in said for cell in _cells(item, min(self._width, _LEFT_NARROW))]:
            self._print(cell)
        for note in beside:
            self._print(Text.assemble((" " * _NAME + "│ ", "dim"), (shortened(note, self._width - _NAME - 2), _MEMORY)))
        self._pause(_MOMENT_PAUSE)

    def block(self, title: str, text: str) -> None:
        """What the model was given, whole, in a frame."""
        inside = self._width - 4
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
        """What a command printed, cut where it would not fit."""
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


def _cells(said: Said, width: int) -> list[Text]:
    lines = _wrapped(said.text, width - _NAME - 1)
    if said.who not in _PEOPLE:
        return [Text(" " * _NAME + line, "dim") for line in lines]
    names = [said.who, *[""] * (len(lines) - 1)]
    return [
        Text.assemble((name.ljust(_NAME), _PEOPLE[said.who]), line) for name, line in zip(names, lines, strict=True)
    ]


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent="  " if line.startswith(("- ", "→", "←")) else "") or [""]
