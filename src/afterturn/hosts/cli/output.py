"""Output of commands: safe text, tables, JSON, times, progress bars. rich is loaded only when it is used."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

import click

from afterturn.errors import InvalidInput
from afterturn.recall.block import describe_age
from afterturn.runtime.clock import SystemClock
from afterturn.scanners.invisible import clean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


ProgressCallback: TypeAlias = Callable[[int, int], None]

_WIDTH_OF_A_PIPE = 65_536
_GAP = "  "
_LEAST_WIDTH = 16
_LEVELS = {"ok": "green", "warning": "yellow", "error": "bold red"}


def safe(text: str) -> str:
    """The text with hidden and control characters shown as escapes: a memory must not control the terminal.

    Line breaks and tabs stay.
    """
    shown = clean(text.replace("\r\n", "\n"), lambda hidden: hidden.encode("unicode_escape", "surrogatepass").decode())
    return shown.replace("\r", "\\r")


def safe_json(text: str) -> str:
    """The same JSON with hidden and control characters as escapes. Other scripts stay readable."""
    return clean(text, lambda hidden: json.dumps(hidden)[1:-1])


def one_line(text: str) -> str:
    return safe(" ".join(text.split()))


def note(text: str) -> None:
    """Prints a hint to stderr, on a terminal only."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def confirm(effect: str) -> None:
    """Asks before a change. Without a terminal to ask on, `--yes` is required."""
    if not sys.stdin.isatty():
        raise InvalidInput(f"This would {effect}. Add --yes to do it.")
    if not click.confirm(f"This will {effect}. Continue?", err=True):
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(1)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, last_wraps: bool = False) -> None:
    """Prints aligned columns. On a terminal the last one is cut or wraps; in a pipe it is whole.

    Without titles, the first column has names or levels.
    """
    from rich.text import Text

    header = [[Text(title, style="dim") for title in columns]] if any(columns) else []
    body = [
        [Text(cell, style="" if header or at else _LEVELS.get(cell, "dim")) for at, cell in enumerate(row)]
        for row in rows
    ]
    _print_rows(header + body, last_wraps=last_wraps)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Prints names on the left, values on the right."""
    print_table(("", ""), pairs, last_wraps=True)


def print_commented(items: Sequence[tuple[str, str, str]]) -> None:
    """Prints ids and texts, each with a dim comment below it."""
    from rich.text import Text

    rows = [row for name, text, said in items for row in ([Text(name), Text(text)], [Text(), Text(said, style="dim")])]
    _print_rows(rows, last_wraps=True)


def dim(text: str) -> str:
    """Dim on a terminal that can show it, else unchanged."""
    return styled(text, "dim")


def styled(text: str, style: str) -> str:
    """Styled on a terminal that can show it, else unchanged."""
    console = _console()
    with console.capture() as captured:
        console.print(text, style=style, end="", soft_wrap=True)
    return captured.get()


@contextmanager
def progress(title: str) -> Iterator[ProgressCallback]:
    """A progress bar on stderr; call it with (done, total), total 0 if unknown. Silent unless stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    times = (TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("left"))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *times)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


@contextmanager
def status(title: str) -> Iterator[Callable[[str], None]]:
    """A status line on stderr; call it with the current step. Silent unless stderr is a terminal."""
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


def _print_rows(rows: Sequence[Sequence[Text]], *, last_wraps: bool) -> None:
    console = _console()
    with console.capture() as captured:
        for line in _lines(rows, console, last_wraps=last_wraps):
            console.print(line, soft_wrap=True)
    click.echo(captured.get(), nl=False, color=True)


def _lines(rows: Sequence[Sequence[Text]], console: Console, *, last_wraps: bool) -> Iterator[Text]:
    from rich.text import Text

    widths = [max(row[at].cell_len for row in rows) for at in range(len(rows[0]) - 1)] if rows else []
    indent = sum(widths) + len(_GAP) * len(widths)
    room = max(console.width - indent, _LEAST_WIDTH)
    for *firsts, last in rows:
        line = Text()
        for width, cell in zip(widths, firsts, strict=True):
            cell.pad_right(width - cell.cell_len)
            line = line + cell + _GAP
        if last_wraps and last.cell_len > room:
            first, *others = last.wrap(console, room)
            yield _trimmed(line + first)
            yield from (_trimmed(Text(" " * indent) + other) for other in others)
        else:
            last.truncate(room, overflow="ellipsis")
            yield _trimmed(line + last)


def _trimmed(line: Text) -> Text:
    line.rstrip()
    return line


def iso(moment: float) -> str | float:
    """UTC, to the millisecond; the number itself if it is outside the calendar."""
    try:
        text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return moment
    return text.replace("+00:00", "Z")


def local(moment: float) -> str:
    """To the second, in the local time zone."""
    try:
        return datetime.fromtimestamp(moment, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{moment:g}"


def local_clock(moment: float) -> str:
    """The time of day to the millisecond, in the local time zone."""
    return datetime.fromtimestamp(moment, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]


def age(moment: float) -> str:
    """In words, as in a block: "just now", "3 days ago"."""
    return describe_age(moment, SystemClock().now())


_TIMES = frozenset(["at", "run_at", "valid_from", "valid_to"])


def jsonable(value: object) -> object:
    """Dataclasses as objects with times in ISO-8601; metadata stays unchanged."""
    if is_dataclass(value) and not isinstance(value, type):
        found = {item.name: getattr(value, item.name) for item in fields(value)}
        is_time = {name for name in found if name in _TIMES or name.endswith("_at")}
        return {
            name: iso(one) if name in is_time and isinstance(one, int | float) else jsonable(one)
            for name, one in found.items()
        }
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [jsonable(item) for item in value]
    return value


def as_object(value: object) -> dict[str, object]:
    """A dataclass as the object that `jsonable` makes of it, to be extended."""
    form = jsonable(value)
    assert isinstance(form, dict)
    return form


def print_document(value: object) -> None:
    """Prints one indented JSON document."""
    click.echo(_dump(jsonable(value), indent=2))


def print_line(value: object) -> None:
    """Prints one line of JSON Lines."""
    click.echo(_dump(jsonable(value), indent=None))


def dump_line(value: object) -> str:
    return safe_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _dump(value: object, *, indent: int | None) -> str:
    # A stream whose encoding is not UTF-8 would escape some characters in a way that is not JSON.
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    return safe_json(json.dumps(value, ensure_ascii=plain, indent=indent))
