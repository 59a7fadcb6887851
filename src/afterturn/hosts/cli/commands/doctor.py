"""`stats`, `doctor` and `usage`: how much a store holds, whether it is in order, and what models cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from afterturn.errors import StoreError
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import count, note, one_line, print_pairs, print_table
from afterturn.hosts.hooks.control import are_hooks_paused, failures_path, hook_failures
from afterturn.recall.block import describe_age
from afterturn.runtime.clock import SystemClock
from afterturn.types import Finding

if TYPE_CHECKING:
    from afterturn.types import UsageRow


@command("stats")
def stats(invocation: Invocation) -> None:
    """Count what the store holds, in all spaces; with --space, that space too."""
    named = invocation.config().space is not None
    with invocation.memory(vectors=True) as memory:
        memory.ready()
        numbers: dict[str, Mapping[str, object]] = {"store": memory.stats()}
        if named:
            numbers["space"] = memory.space(invocation.space_name()).stats()
    if invocation.print_json(numbers):
        return
    for at, counted in enumerate(numbers.values()):
        if at:
            click.echo()
        print_pairs(list(_flat("", counted)))


def _flat(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{name} {key}".strip(), item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield one_line(name), f"{value:,}"
    else:
        yield one_line(name), one_line(str(value))


@command("doctor")
def doctor(invocation: Invocation) -> None:
    """Check the store, jobs, embedder and settings, and say what to do about problems.

    The exit code is 1 if there is an error.
    """
    try:
        with invocation.memory(vectors=True) as memory:
            findings = list(memory.check())
    except StoreError as error:
        findings = [Finding("error", "store", str(error))]
    findings += _hook_findings()
    has_error = any(finding.level == "error" for finding in findings)
    if not invocation.print_json({"healthy": not has_error, "findings": findings}):
        rows = []
        for one in findings:
            advice = f"{one.message.rstrip('.')}. {one.remedy}" if one.remedy else one.message
            rows.append((one.level, one_line(one.subject), one_line(advice)))
        print_table(("", "", ""), rows, last_wraps=True)
    if has_error:
        raise click.exceptions.Exit(1)


def _hook_findings() -> Iterator[Finding]:
    if are_hooks_paused():
        yield Finding("ok", "hooks", "The hooks of coding agents are paused.", "`afterturn resume` starts them again.")
    failures = hook_failures()
    if failures:
        newest = failures[-1]
        message = (
            f"{len(failures)} hooks failed, the last one {describe_age(newest.at, SystemClock().now())}: {newest.text}"
        )
        yield Finding("warning", "hooks", message, f"Remove {failures_path()} when it is solved.")


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
