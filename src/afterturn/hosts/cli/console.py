"""Text for people: aligned tables, safe one-line texts, notes and progress bars. rich is loaded only when used."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import click

from afterturn.base.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

ProgressCallback: TypeAlias = Callable[[int, int], None]

# Control characters and direction overrides: memory text must not steer the terminal it is shown on.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_WIDTH_OF_A_PIPE = 65_536


def safe(text: str) -> str:
    """Line breaks and tabs stay; everything else that a terminal would act on is shown as an escape."""
    return _UNSAFE.sub(lambda found: found.group().encode("unicode_escape", "surrogatepass").decode(), text)


def one_line(text: str) -> str:
    return safe(" ".join(text.split()))


def note(text: str) -> None:
    """A hint beside the answer, on stderr, for people only."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def confirm(effect: str) -> None:
    """Asks before what can not be taken back. Where nobody can be asked, `--yes` has to be given."""
    if not sys.stdin.isatty():
        raise InvalidInput(f"This would {effect}. Add --yes to do it.")
    if not click.confirm(f"This will {effect}. Go on?", err=True):
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(1)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, last_wraps: bool = False) -> None:
    """Columns as wide as they need; the last one is cut at a terminal's edge, or wraps, and is whole in a pipe."""
    console = _console()
    table = _table(columns, rows, last_wraps=last_wraps)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), color=True)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names on the left, values on the right."""
    print_table(("", ""), pairs, last_wraps=True)


def dim(text: str) -> str:
    """Paler on a terminal that can; as it is elsewhere."""
    console = _console()
    with console.capture() as captured:
        console.print(text, style="dim", end="", soft_wrap=True)
    return captured.get()


@contextmanager
def progress(title: str) -> Iterator[ProgressCallback]:
    """A bar on stderr that is told (done, total); total 0 when nobody knows. Silent when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


@contextmanager
def status(title: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr that is told what is going on. Silent when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console

    with Console(stderr=True, highlight=False, markup=False).status(title) as line:
        yield lambda step: line.update(f"{title}: {step}")


def _console() -> Console:
    from rich.console import Console

    shown = Console(highlight=False, markup=False, emoji=False)
    if not shown.is_terminal:
        return Console(highlight=False, markup=False, emoji=False, width=_WIDTH_OF_A_PIPE, color_system=None)
    if shown.no_color:
        return Console(highlight=False, markup=False, emoji=False, color_system=None)
    return shown


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, last_wraps: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(columns), header_style="dim")
    for title in columns[:-1]:
        table.add_column(title, no_wrap=True, style="" if columns[0] else "dim")
    table.add_column(columns[-1], no_wrap=not last_wraps, overflow="fold" if last_wraps else "ellipsis")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
