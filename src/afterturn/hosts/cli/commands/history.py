"""`history` and `undo`: what was done to memories, and taking it back."""

import click

from afterturn.base.names import check_id
from afterturn.base.types import Entry, History, Operation, Step
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import age, count, note, one_line, print_document, print_line, print_table


@command(
    "history",
    examples="""
    $ afterturn history
    $ afterturn history 0k3v8r2c4d5e6f7g
    $ afterturn history --limit 5 --json
    """,
)
@click.argument("id", required=False)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Operations at most.")
def history(invocation: Invocation, id: str | None, limit: int) -> None:
    """Show what was done to a memory, or in a space.

    With an id: its versions and the steps taken on them. Without: the space's operations, newest first. The ids of
    operations and groups are what `undo` takes.
    """
    if id is None:
        _print_operations(invocation, limit)
        return
    with invocation.in_space() as space:
        found = space.history(check_id(id))
    if invocation.json:
        print_document(found)
    else:
        _print_history(found)


def _print_operations(invocation: Invocation, limit: int) -> None:
    with invocation.in_space() as space:
        operations = space.operations(limit=limit)
    if invocation.json:
        for operation in operations:
            print_line(operation)
    elif operations:
        print_table(("OPERATION", "AGE", "DID", "BY", "GROUP"), [_operation_row(one) for one in operations])
        note("Take one back: afterturn undo OPERATION (or GROUP)")
    else:
        click.echo("Nothing was done here yet.")


def _operation_row(operation: Operation) -> tuple[str, ...]:
    return (operation.id, age(operation.at), operation.verb, operation.actor, one_line(operation.group or ""))


def _print_history(found: History) -> None:
    print_table(("VERSION", "AGE", "STATUS", "FROM", "TEXT"), [_version_row(entry) for entry in found.versions])
    click.echo()
    print_table(("OPERATION", "AGE", "DID", "BY", "CHANGE"), [_step_row(step) for step in found.steps])


def _version_row(entry: Entry) -> tuple[str, ...]:
    return (str(entry.version), age(entry.recorded_at), entry.status, entry.origin, one_line(entry.text))


def _step_row(step: Step) -> tuple[str, ...]:
    done = step.operation
    return (done.id, age(done.at), done.verb, done.actor, describe_step(step))


def describe_step(step: Step) -> str:
    return f"version {step.version}: {step.before or 'new'} -> {step.after}"


@command(
    "undo",
    examples="""
    $ afterturn undo 0k3v8r2c4d5e6f7h
    $ afterturn history
    """,
)
@click.argument("operation", metavar="OPERATION|GROUP")
def undo(invocation: Invocation, operation: str) -> None:
    """Take back one operation, or a whole group of them.

    Undoing is an operation too, so it can be undone.
    """
    with invocation.in_space() as space:
        undone = space.undo(operation)
    if invocation.json:
        print_document(undone)
        return
    for step in undone.steps:
        click.echo(f"{step.entry_id}  {describe_step(step)}")
    click.echo(f"Took back {count(len(undone.steps), 'step')}  (back: afterturn undo {undone.operation})")
