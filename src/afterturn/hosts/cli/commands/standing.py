"""`standing`: what memory puts into system prompts."""

from __future__ import annotations

import click

from afterturn.hosts.cli.command import CONTEXT_SETTINGS, Group, Invocation, command, help_when_alone, shared_options
from afterturn.hosts.cli.output import age, one_line, print_line, print_table

_HERE = "afterturn.hosts.cli.commands.standing"


@click.group(
    "standing",
    cls=Group,
    sections={"Commands": {"audit": f"{_HERE}:audit"}},
    examples="$ afterturn standing audit",
    context_settings=CONTEXT_SETTINGS,
    invoke_without_command=True,
)
@shared_options
@click.pass_context
def standing(context: click.Context) -> None:
    """Examine what memory puts into system prompts."""
    help_when_alone(context)


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
        click.echo("No memory is in the system prompt.")
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
