"""`helper`, `pause` and `resume`: the process that answers the hooks of coding agents, and a switch for all hooks."""

from __future__ import annotations

import click

from afterturn.hosts.cli.command import Invocation, command, commands, group
from afterturn.hosts.cli.output import one_line, print_table
from afterturn.hosts.hooks.control import (
    are_hooks_paused,
    pause_hooks,
    read_log,
    resume_hooks,
    running_helpers,
    stop_helpers,
)


@group("helper", commands(__name__, status="status", stop="stop", log="log"), alone="status")
def helper() -> None:
    """The process that answers the hooks of coding agents; without a command, show it.

    Hooks start it when they need it. It ends by itself when it has had nothing to do for a while.
    """


@command("status")
def status(invocation: Invocation) -> None:
    """Show the helpers that run, and whether hooks are paused."""
    _print_status(invocation)


def _print_status(invocation: Invocation) -> None:
    helpers, is_paused = running_helpers(), are_hooks_paused()
    if invocation.print_json({"paused": is_paused, "helpers": helpers}):
        return
    if is_paused:
        click.echo("Hooks are paused. `afterturn resume` starts them again.")
    if not helpers:
        click.echo("No helper runs. The next hook starts one.")
        return
    rows = [(str(one.pid), one_line(one.version), f"{one.served:,}", f"{one.failed:,}") for one in helpers]
    print_table(("PROCESS", "VERSION", "EVENTS", "FAILED"), rows)


@command("stop")
def stop(invocation: Invocation) -> None:
    """Stop the helper. The next hook starts another one."""
    stopped = stop_helpers()
    invocation.answer(
        {"stopped": stopped},
        "No helper runs." if not stopped else "Stopped." if stopped == 1 else f"Stopped {stopped} helpers.",
    )


@command("log")
@click.option("--lines", type=click.IntRange(min=1), default=50, show_default=True, help="How many lines to print.")
def log(invocation: Invocation, *, lines: int) -> None:
    """Print the newest lines of the helper's log."""
    found = read_log(lines)
    if invocation.print_json({"lines": found}):
        return
    for line in found:
        click.echo(one_line(line))


@command("pause")
def pause(invocation: Invocation) -> None:
    """Pause the hooks of all coding agents: nothing is recalled and nothing is recorded."""
    pause_hooks()
    invocation.answer({"paused": True}, "Paused. `afterturn resume` starts hooks again.")


@command("resume")
def resume(invocation: Invocation) -> None:
    """Start the hooks of all coding agents again."""
    was_paused = resume_hooks()
    invocation.answer({"paused": False}, "Resumed." if was_paused else "Hooks were not paused.")
