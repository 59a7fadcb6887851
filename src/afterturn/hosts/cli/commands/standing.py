"""`standing`: what memory puts into every prompt."""

from __future__ import annotations

import click

from afterturn.hosts.cli.command import CONTEXT_SETTINGS, Group, Invocation, command, help_when_alone, shared_options
from afterturn.hosts.cli.output import age, one_line, print_document, print_line, print_table
from afterturn.validation import check_id

_HERE = "afterturn.hosts.cli.commands.standing"


@click.group(
    "standing",
    cls=Group,
    sections={"Commands": {name: f"{_HERE}:{name}" for name in ("show", "hide", "unhide", "audit")}},
    examples="$ afterturn standing show",
    context_settings=CONTEXT_SETTINGS,
    invoke_without_command=True,
)
@shared_options
@click.pass_context
def standing(context: click.Context) -> None:
    """Examine and change what memory puts into every prompt."""
    help_when_alone(context)


@command(
    "show",
    examples="""
    $ afterturn standing show
    $ afterturn standing show --project api
    $ afterturn standing show --why
    """,
)
@click.option("--why", is_flag=True, help="Also what is left out, with the kind, the chance and the reason.")
@click.option("--agent", metavar="NAME", help="Also the lines for this agent.")
@click.option("--project", metavar="NAME", help="Also the lines for this project.")
def show(invocation: Invocation, agent: str | None, project: str | None, *, why: bool) -> None:
    """List the lines that a new conversation gets, with their ids.

    The chance says how likely a fact still matters in weeks. With --json, one line each.
    """
    with invocation.in_space() as space:
        lines = space.standing_audit(agent=agent, project=project, left_out=why)
    if invocation.json:
        for line in lines:
            print_line(line)
        return
    if not lines:
        click.echo("No memory is in the standing context.")
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


@command("hide", examples="$ afterturn standing hide 0k3v8r2c4d5e6f7g")
@click.argument("id")
def hide(invocation: Invocation, id: str) -> None:
    """Take a memory or a message out of the standing context. It can still be recalled.

    What is pinned stands all the same. A conversation that has its block keeps it until the block is rebuilt.
    """
    _set_hidden(invocation, id, hidden=True)


@command("unhide", examples="$ afterturn standing unhide 0k3v8r2c4d5e6f7g")
@click.argument("id")
def unhide(invocation: Invocation, id: str) -> None:
    """Put a memory or a message back into the standing context."""
    _set_hidden(invocation, id, hidden=False)


def _set_hidden(invocation: Invocation, id: str, *, hidden: bool) -> None:
    with invocation.in_space() as space:
        changed = space.hide_standing(check_id(id), hidden)
    if invocation.json:
        print_document(changed)
        return
    undo = f"  (undo: afterturn undo {changed.operation})" if changed.operation else ""
    click.echo(f"{changed.entry.id}  {'hidden' if hidden else 'no longer hidden'}{undo}")


@command(
    "audit",
    examples="""
    $ afterturn standing audit
    $ afterturn standing audit --conversation support-42
    $ afterturn standing audit --json | jq -r 'select(.author != "user") | .text'
    """,
)
@click.option("--conversation", metavar="ID", help="The lines that this conversation was given.")
@click.option("--agent", metavar="NAME", help="Also the lines for this agent.")
@click.option("--project", metavar="NAME", help="Also the lines for this project.")
def audit(invocation: Invocation, conversation: str | None, agent: str | None, project: str | None) -> None:
    """List every line of a system prompt: who wrote it, when, and how it came into memory.

    Without --conversation, the lines that a new conversation of the space would get. With --json, one line each.
    """
    with invocation.in_space() as space:
        lines = space.standing_audit(conversation=conversation, agent=agent, project=project)
    if invocation.json:
        for line in lines:
            print_line(line)
        return
    if not lines:
        click.echo("No memory is in the standing context.")
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
