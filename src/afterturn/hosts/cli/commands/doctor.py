"""`stats` and `doctor`: how much a store holds, and whether it is in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from afterturn.errors import StoreError
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import one_line, print_pairs, print_table
from afterturn.hosts.hooks.control import are_hooks_paused, failures_path, hook_failures
from afterturn.recall.block import describe_age
from afterturn.runtime.clock import SystemClock
from afterturn.types import Finding


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
    print_pairs(list(_flat("", numbers["store"])))
    if named:
        click.echo()
        print_pairs(list(_flat("", numbers["space"])))


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
        rows = [(one.level, one_line(one.subject), _advice(one)) for one in findings]
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


def _advice(finding: Finding) -> str:
    if not finding.remedy:
        return one_line(finding.message)
    return one_line(f"{finding.message.rstrip('.')}. {finding.remedy}")
