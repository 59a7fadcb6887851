"""Prints changes of memories as differences, with the messages that they were learned from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from afterturn.base.errors import NotFound
from afterturn.base.types import Entry
from afterturn.context.author import describe_author
from afterturn.hosts.cli.output import age, count, dim, one_line, safe, styled

if TYPE_CHECKING:
    from afterturn import blocking


_INDENT = "    "
# So many of the messages that a memory rests on are told, and so much of each.
_SOURCES_TOLD = 5
_SOURCE_CHARS = 160


def print_difference(before: str | None, after: str | None) -> None:
    """`-` what goes and `+` what comes, line by line; None where there is nothing. `~` when the words are the same."""
    same = before is not None and before == after
    signs = (("~", after, ""),) if same else (("-", before, "red"), ("+", after, "green"))
    for sign, text, style in signs:
        for line in () if text is None else safe(text).split("\n"):
            click.echo(styled(f"{sign} {line}".rstrip(), style), color=True)


def print_details(lines: Iterable[str]) -> None:
    """Paler, below the change that they are about."""
    for line in lines:
        click.echo(dim(f"{_INDENT}{line}"), color=True)


def print_sources(sources: Sequence[Entry], missing: int) -> None:
    """Who said what, as far as it is still there."""
    print_details(_source(entry) for entry in sources[:_SOURCES_TOLD])
    more = len(sources) - _SOURCES_TOLD
    if more > 0:
        print_details([f"and on {count(more, 'more message')}"])
    if missing:
        print_details([f"rests on {count(missing, 'message')} that {'is' if missing == 1 else 'are'} not kept here"])


def find_sources(memory: blocking.Memory, spaces: Sequence[str], entry: Entry) -> tuple[list[Entry], int]:
    """What an entry rests on, looked for in these spaces, and how much of it was not found there."""
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
    return f"rests on {one_line(describe_author(entry))}, {age(entry.occurred_at)}: {shortened(entry.text)}"


def shortened(text: str, most: int = _SOURCE_CHARS) -> str:
    """The beginning of a text, on one line."""
    line = one_line(text[: 4 * most])
    return line if len(line) <= most else line[: most - 1] + "…"
