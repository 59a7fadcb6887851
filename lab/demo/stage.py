"""How the demonstration looks: the chat on the left, what memory does on the right. Plain where colours can not be."""

import io
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.console import Console
from rich.text import Text

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
