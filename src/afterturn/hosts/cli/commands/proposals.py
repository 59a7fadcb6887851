"""`inbox`, `approve`, `reject`: what sub-agents want remembered, and a person's word on it."""

import click

from afterturn.base.names import check_id
from afterturn.base.types import Entry
from afterturn.context.author import describe_author
from afterturn.hosts.cli.command import command
from afterturn.hosts.cli.console import note, one_line, print_table
from afterturn.hosts.cli.document import print_line
from afterturn.hosts.cli.invocation import Invocation
from afterturn.hosts.cli.times import age


@command(
    "inbox",
    examples="""
    $ afterturn inbox
    $ afterturn inbox --json | jq -r '.id + "  " + .text'
    """,
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most.")
@click.option("--before", metavar="ID", help="Continue after this id, the last of the previous page.")
def inbox(invocation: Invocation, limit: int, before: str | None) -> None:
    """List what waits for approval, newest first.

    Nothing of it is recalled before somebody approves it. `afterturn show` tells the task that it was learned in.
    """
    with invocation.in_space() as space:
        entries = space.proposals(limit=limit, before=check_id(before) if before else None)
    if invocation.json:
        for entry in entries:
            print_line(entry)
        return
    if not entries:
        click.echo("Nothing waits.")
        return
    print_table(("ID", "AGE", "ABOUT", "FROM", "TEXT"), [_row(entry) for entry in entries])
    note("Keep it: afterturn approve ID. Drop it: afterturn reject ID.")
    if len(entries) == limit:
        note(f"There may be more: afterturn inbox --before {entries[-1].id}")


def _row(entry: Entry) -> tuple[str, ...]:
    who = one_line(describe_author(entry))
    return (entry.id, age(entry.occurred_at), str(entry.target), who, one_line(entry.text))


@command(
    "approve",
    examples="""
    $ afterturn approve 0k3v8r2c4d5e6f7g
    $ afterturn approve 0k3v8r2c4d5e6f7g 0k3v8r2c4d5e6f7h
    """,
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def approve(invocation: Invocation, ids: tuple[str, ...]) -> None:
    """Remember what was proposed.

    Several are approved one after the other; those before one that can not be are kept.
    """
    _decide(invocation, "approve", ids)


@command("reject", examples="$ afterturn reject 0k3v8r2c4d5e6f7g")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def reject(invocation: Invocation, ids: tuple[str, ...]) -> None:
    """Drop what was proposed. It can be brought back with `undo`."""
    _decide(invocation, "reject", ids)


def _decide(invocation: Invocation, verb: str, ids: tuple[str, ...]) -> None:
    checked = [check_id(id) for id in ids]
    done = f"{verb.removesuffix('e')}ed"
    with invocation.in_space() as space:
        for id in checked:
            changed = space.approve(id) if verb == "approve" else space.reject(id)
            if invocation.json:
                print_line(changed)
            else:
                click.echo(f"{changed.entry.id}  {done}  (back: afterturn undo {changed.operation})")
