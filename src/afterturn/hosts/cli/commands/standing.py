"""`standing`: what memory puts into every prompt."""

from __future__ import annotations

import click

from afterturn.hosts.cli.command import Invocation, command, commands, group
from afterturn.hosts.cli.output import age, one_line, print_table
from afterturn.validation import check_id

_AGENT = click.option("--agent", metavar="NAME", help="Also the lines for this agent.")
_PROJECT = click.option("--project", metavar="NAME", help="Also the lines for this project.")


@group("standing", commands(__name__, show="show", hide="hide", unhide="unhide", audit="audit"))
def standing() -> None:
    """Examine and change what memory puts into every prompt."""


@command("show")
@click.option("--why", is_flag=True, help="Also what is left out, with the kind, the chance and the reason.")
@_AGENT
@_PROJECT
def show(invocation: Invocation, agent: str | None, project: str | None, *, why: bool) -> None:
    """List the lines that a new conversation gets, with their ids.

    The chance says how likely a fact still matters in weeks. With --json, one line each.
    """
    with invocation.in_space() as space:
        lines = space.standing_audit(agent=agent, project=project, left_out=why)
    if invocation.print_rows(lines, empty="No memory is in the standing context."):
        return
    rows = [
        (
            line.entry.id if line.entry else "",
            line.kind or line.part,
            "" if line.chance is None else f"{line.chance:.2f}",
            line.left_out or "shown",
            one_line(line.text),
        )
        for line in lines
    ]
    names = ("ID", "KIND", "CHANCE", "STATE", "TEXT")
    columns = range(len(names)) if why else (0, 1, 4)
    print_table(tuple(names[at] for at in columns), [tuple(row[at] for at in columns) for row in rows])


@command("hide")
@click.argument("id")
def hide(invocation: Invocation, id: str) -> None:
    """Take a memory or a message out of the standing context. It can still be recalled.

    Pinned memories stay in it. A conversation that has its block keeps it until the block is rebuilt.
    """
    _set_hidden(invocation, id, hidden=True)


@command("unhide")
@click.argument("id")
def unhide(invocation: Invocation, id: str) -> None:
    """Put a memory or a message back into the standing context."""
    _set_hidden(invocation, id, hidden=False)


def _set_hidden(invocation: Invocation, id: str, *, hidden: bool) -> None:
    with invocation.in_space() as space:
        changed = space.hide_standing(check_id(id), hidden)
    invocation.answer_changed(changed, "hidden" if hidden else "no longer hidden")


@command("audit")
@click.option("--conversation", metavar="ID", help="The lines that this conversation was given.")
@_AGENT
@_PROJECT
def audit(invocation: Invocation, conversation: str | None, agent: str | None, project: str | None) -> None:
    """List every line of a system prompt: who wrote it, when, and how it came into memory.

    Without --conversation, the lines that a new conversation of the space would get. With --json, one line each.
    """
    with invocation.in_space() as space:
        lines = space.standing_audit(conversation=conversation, agent=agent, project=project)
    if invocation.print_rows(lines, empty="No memory is in the standing context."):
        return
    print_table(
        ("PART", "WRITTEN BY", "WHEN", "THROUGH", "TEXT"),
        [
            (
                line.part,
                one_line(line.author),
                "" if line.at is None else age(line.at),
                one_line("; ".join(line.through)),
                one_line(line.text),
            )
            for line in lines
        ],
    )
