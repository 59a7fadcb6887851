"""`stats`, `doctor` and `usage`: how much a store holds, whether it is in order, and what models cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from afterturn.errors import StoreError
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import count, note, one_line, print_pairs, print_table, status
from afterturn.hosts.hooks.control import are_hooks_paused, failures_path, hook_failures
from afterturn.recall.block import describe_age
from afterturn.runtime.clock import SystemClock
from afterturn.types import Finding, Status

if TYPE_CHECKING:
    from afterturn.types import UsageRow


@command("stats")
def stats(invocation: Invocation) -> None:
    """Count what the store holds, in all spaces; with --space, that space too."""
    named = invocation.config().space is not None
    with invocation.memory(vectors=True) as memory:
        memory.ready()
        numbers: dict[str, Mapping[str, Any]] = {"store": memory.stats()}
        if named:
            numbers["space"] = memory.space(invocation.space_name()).stats()
    if invocation.print_json(numbers):
        return
    print_pairs(_store_in_words(numbers["store"]))
    if named:
        click.echo()
        space = numbers["space"]
        print_pairs([("space", one_line(space["space"])), *_entry_counts(space["entries"])])


def _store_in_words(numbers: Mapping[str, Any]) -> list[tuple[str, str]]:
    jobs, waiting, turns = numbers["jobs"], numbers["vectors_waiting"], numbers["recordings_waiting"]
    queue = [f"{jobs[state]:,} {word}" for state, word in _JOB_WORDS.items() if jobs.get(state)]
    missing = f"; {count(waiting, 'entry waits for its vector', 'entries wait for their vectors')}" if waiting else ""
    return [
        ("store", one_line(numbers["store"])),
        ("tenant", one_line(numbers["tenant"])),
        ("size", f"{numbers['size_bytes'] / 1_048_576:,.1f} MiB"),
        ("spaces", f"{numbers['spaces']:,}"),
        *_entry_counts(numbers["entries"]),
        ("jobs", ", ".join(queue) or "none waits"),
        (
            "turns",
            f"{count(turns, 'finished turn waits', 'finished turns wait')} to be recorded" if turns else "all recorded",
        ),
        (
            "embedder",
            f"{numbers['embedder']}{missing}" if numbers["vectors"] else f"{numbers['embedder']}, no vectors{missing}",
        ),
    ]


_JOB_WORDS = {"ready": "waiting", "leased": "running", "dead": "failed too often"}
_ENTRY_WORDS = {"statement": ("statement", "statements"), "record": ("recorded message", "recorded messages")}
_WITHDRAWALS = ("proposal to delete", "proposals to delete")


def _entry_counts(entries: Mapping[str, int]) -> list[tuple[str, str]]:
    """Lines that count the active entries, and the stored ones that are not active."""
    active, other = [], []
    for name, number in sorted(entries.items(), reverse=True):
        kind, status = name.split(".")
        words = _WITHDRAWALS if status == Status.WITHDRAWAL else _ENTRY_WORDS[kind]
        if status == Status.ACTIVE:
            active.append(count(number, *words))
        else:
            other.append(count(number, *(words if words is _WITHDRAWALS else (f"{status} {word}" for word in words))))
    return [("holds", ", ".join(active) or "nothing"), *([("also", ", ".join(other))] if other else [])]


@command("doctor")
def doctor(invocation: Invocation) -> None:
    """Check the store, jobs, embedder and settings, and say what to do about problems.

    The exit code is 1 if there is an error.
    """
    try:
        with invocation.memory(vectors=True) as memory, status("Checking"):
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
        when = describe_age(newest.at, SystemClock().now())
        message = f"{count(len(failures), 'hook')} failed, the last one {when}: {newest.text}"
        yield Finding("warning", "hooks", message, f"Remove {failures_path()} when it is solved.")


_ROWS_MAX = 10_000


@command("usage")
@click.option("--days", type=click.IntRange(1, 3660), default=7, show_default=True, help="How many days to show.")
@click.option("--all", "everywhere", is_flag=True, help="All spaces of the tenant, even if the settings name one.")
def usage(invocation: Invocation, *, days: int, everywhere: bool) -> None:
    """Show model usage: tokens and calls by day (UTC), space and purpose."""
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
