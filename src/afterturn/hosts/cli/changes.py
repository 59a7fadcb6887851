"""Prints changes of memories as differences, with the messages that they were learned from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from afterturn.errors import NotFound
from afterturn.hosts.cli.output import age, count, dim, one_line, safe, styled
from afterturn.recall.block import describe_author
from afterturn.types import Entry

if TYPE_CHECKING:
    from afterturn import blocking


_INDENT = "    "
# How many source messages are shown, and how much of each.
_SOURCES_SHOWN = 5
_SOURCE_CHARS = 160


def print_difference(before: str | None, after: str | None) -> None:
    """Prints `-` for removed and `+` for added lines; `~` if the text is unchanged. None means no text."""
    same = before is not None and before == after
    signs = (("~", after, ""),) if same else (("-", before, "red"), ("+", after, "green"))
    for sign, text, style in signs:
        for line in () if text is None else safe(text).split("\n"):
            click.echo(styled(f"{sign} {line}".rstrip(), style), color=True)


def print_details(lines: Iterable[str]) -> None:
    """Prints dim, indented lines."""
    for line in lines:
        click.echo(dim(f"{_INDENT}{line}"), color=True)


def print_sources(sources: Sequence[Entry], missing: int) -> None:
    """Prints the messages that a memory was learned from, and how many of them are missing."""
    print_details(_source(entry) for entry in sources[:_SOURCES_SHOWN])
    more = len(sources) - _SOURCES_SHOWN
    if more > 0:
        print_details([f"and from {count(more, 'more message')}"])
    if missing:
        print_details([f"and from {count(missing, 'message')} that {'is' if missing == 1 else 'are'} no longer stored"])


def find_sources(memory: blocking.Memory, spaces: Sequence[str], entry: Entry) -> tuple[list[Entry], int]:
    """An entry's sources in these spaces, and how many were not found."""
    found = [_find(memory, spaces, source) for source in entry.sources]
    return [source for source in found if source is not None], found.count(None)


def _find(memory: blocking.Memory, spaces: Sequence[str], source: str) -> Entry | None:
    for space in spaces:
        try:
            return memory.space(space).get(source)
        except NotFound:
            continue
    return None


def _source(entry: Entry) -> str:
    return f"from {one_line(describe_author(entry))}, {age(entry.occurred_at)}: {shortened(entry.text)}"


def shortened(text: str, most: int = _SOURCE_CHARS) -> str:
    """The start of a text, on one line."""
    line = one_line(text[: 4 * most])
    return line if len(line) <= most else line[: most - 1] + "…"
