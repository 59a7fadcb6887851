"""`history` and `undo`: the changes of memories, and undoing them."""

import click

from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import age, count, note, one_line, print_table
from afterturn.types import LoggedOperation, Step
from afterturn.validation import check_id


@command("history")
@click.argument("id", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many to show at most."
)
def history(invocation: Invocation, id: str | None, limit: int) -> None:
    """Show what changed a memory, or a space.

    With an id: its versions, and the operations on them. Without: the operations on the space, newest first, each with
    the memory that it changed. `undo` takes the id of an operation or of a group.
    """
    if id is None:
        _print_operations(invocation, limit)
        return
    with invocation.in_space() as space:
        found = space.history(check_id(id))
    if invocation.print_json(found):
        return
    versions = [
        (str(entry.version), age(entry.recorded_at), entry.status, entry.origin, one_line(entry.text))
        for entry in found.versions
    ]
    print_table(("VERSION", "AGE", "STATUS", "ORIGIN", "TEXT"), versions)
    click.echo()
    steps = [
        (step.operation.id, age(step.operation.at), step.operation.verb, step.operation.actor, describe_step(step))
        for step in found.steps
    ]
    print_table(("OPERATION", "AGE", "VERB", "ACTOR", "CHANGE"), steps)


def _print_operations(invocation: Invocation, limit: int) -> None:
    with invocation.in_space() as space:
        operations = space.operations(limit=limit)
    if invocation.print_rows(operations, empty="Nothing has changed here yet."):
        return
    print_table(
        ("OPERATION", "AGE", "VERB", "ACTOR", "GROUP", "MEMORY", "TEXT"), [_operation_row(one) for one in operations]
    )
    note("Undo one: afterturn undo OPERATION. Undo a group: afterturn undo GROUP.")


def _operation_row(operation: LoggedOperation) -> tuple[str, ...]:
    group, memory = one_line(operation.group or ""), operation.entry_id or ""
    more = f"(and {operation.entries - 1:,} more) " if operation.entries > 1 else ""
    text = more + one_line(operation.text) if memory else "(forgotten)"
    return (operation.id, age(operation.at), operation.verb, operation.actor, group, memory, text)


def describe_step(step: Step) -> str:
    return f"version {step.version}: {step.before or 'new'} -> {step.after}"


@command("undo")
@click.argument("operation", metavar="OPERATION|GROUP")
def undo(invocation: Invocation, operation: str) -> None:
    """Undo one operation, or a whole group of them.

    An undo is an operation too, so it can be undone.
    """
    with invocation.in_space() as space:
        undone = space.undo(operation)
    if invocation.print_json(undone):
        return
    for step in undone.steps:
        click.echo(f"{step.entry_id}  {describe_step(step)}")
    click.echo(f"Undid {count(len(undone.steps), 'change')}  (undo: afterturn undo {undone.operation})")
