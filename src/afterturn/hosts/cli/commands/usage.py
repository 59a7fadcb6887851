"""`usage`: the tokens and model calls by day, space and purpose."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import count, note, one_line, print_table
from afterturn.runtime.clock import SystemClock

if TYPE_CHECKING:
    from afterturn.types import UsageRow

_ROWS_MAX = 10_000


@command("usage")
@click.option("--days", type=click.IntRange(1, 3660), default=7, show_default=True, help="How many days to show.")
@click.option("--all", "everywhere", is_flag=True, help="All spaces of the tenant, even if the settings name one.")
def usage(invocation: Invocation, *, days: int, everywhere: bool) -> None:
    """Show model usage: tokens and calls by day (UTC), space and purpose.

    Shows one space if --space or the settings name one, and all spaces otherwise. With the setting
    `tokens_per_day_max`, it also shows how much of today's limit is used. With --json, one line per row.
    """
    config = invocation.config()
    named = None if everywhere else config.space
    with invocation.memory() as memory:
        rows = memory.usage(limit=_ROWS_MAX) if named is None else memory.space(named).usage(limit=_ROWS_MAX)
    spent = [row for row in rows if row.day > _day(-days)]
    if invocation.print_rows(spent, empty=f"No model was called in the last {count(days, 'day')}."):
        return
    _print(spent, config.tokens_per_day_max)
    if len(rows) == _ROWS_MAX:
        note("There are more rows. Name a space to see them.")


def _print(spent: Sequence[UsageRow], limit: int | None) -> None:
    rows = [(row.day, one_line(row.space), str(row.purpose), *_figures([row])) for row in spent]
    total = ("", "", "all", *_figures(spent))
    print_table(
        ("DAY", "SPACE", "PURPOSE", "CALLS", "TOKENS IN", "TOKENS OUT", "ESTIMATED"),
        [*rows, total] if len(rows) > 1 else rows,
    )
    if limit is None:
        return
    click.echo()
    today = [row for row in spent if row.day == _day(0)]
    used = {space: sum(row.tokens for row in today if row.space == space) for space in {row.space for row in spent}}
    for space, tokens in sorted(used.items()):
        paused = "; models are paused until tomorrow" if tokens >= limit else ""
        click.echo(f"{one_line(space)} has used {tokens:,} of today's {limit:,} tokens{paused}.")


def _figures(spent: Sequence[UsageRow]) -> tuple[str, ...]:
    """Calls, tokens in and out, and the share of tokens that were estimated because the server did not report them."""
    tokens, estimated = sum(row.tokens for row in spent), sum(row.estimated for row in spent)
    sums = (sum(row.calls for row in spent), sum(row.tokens_in for row in spent), sum(row.tokens_out for row in spent))
    share = f"{estimated / tokens:.0%}" if estimated and tokens else ""
    return (*(f"{figure:,}" for figure in sums), share)


def _day(offset: int) -> str:
    """Days are counted in UTC."""
    return (datetime.fromtimestamp(SystemClock().now(), UTC) + timedelta(days=offset)).date().isoformat()
