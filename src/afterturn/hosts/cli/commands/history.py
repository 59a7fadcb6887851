"""`history`, `undo`, `forget` and `incognito`: what changed, and what is not kept."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from afterturn.errors import InvalidInput, KeyMissing
from afterturn.hosts.cli.changes import find_sources, shortened
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.options import LIMIT
from afterturn.hosts.cli.output import age, confirm, count, local, note, one_line, print_table, progress
from afterturn.space.arguments import check_selector
from afterturn.types import Entry, Filter, Forgotten, Kind, LoggedOperation, Selector, Status, Step
from afterturn.validation import check_id

if TYPE_CHECKING:
    from afterturn import blocking


@command("history")
@click.argument("id", required=False)
@LIMIT
def history(invocation: Invocation, id: str | None, limit: int) -> None:
    """Show what changed a memory, or a space."""
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
    rows = [_operation_row(one) for one in operations]
    print_table(("OPERATION", "AGE", "VERB", "ACTOR", "GROUP", "MEMORY", "TEXT"), rows)
    note("Undo one: afterturn undo OPERATION. Undo a group: afterturn undo GROUP.")


def _operation_row(operation: LoggedOperation) -> tuple[str, ...]:
    group, memory = one_line(operation.group or ""), operation.entry_id or ""
    text = _changed(operation.text, operation.entries) if memory else "(forgotten)"
    return (operation.id, age(operation.at), operation.verb, operation.actor, group, memory, text)


def _changed(text: str, entries: int) -> str:
    return (f"(and {entries - 1:,} more) " if entries > 1 else "") + one_line(text)


def describe_step(step: Step) -> str:
    return f"version {step.version}: {step.before or 'new'} -> {step.after}"


@command("undo")
@click.argument("operation", metavar="[OPERATION|GROUP]", required=False)
def undo(invocation: Invocation, operation: str | None) -> None:
    """Undo one operation, or a whole group of them; without an id, list what can be undone.

    An undo is an operation too, so it can be undone.
    """
    with invocation.in_space() as space:
        if operation is None:
            _print_undoable(invocation, space)
            return
        undone = space.undo(operation)
    if invocation.print_json(undone):
        return
    for step in undone.steps:
        click.echo(f"{step.entry_id}  {describe_step(step)}")
    click.echo(f"Undid {count(len(undone.steps), 'change')}  (undo: afterturn undo {undone.operation})")


_UNDOABLE_SHOWN = 10
_EXAMINED = 1_000


def _print_undoable(invocation: Invocation, space: blocking.Space) -> None:
    """The newest operations and groups after which nothing else has changed the memory that they show."""
    groups: dict[str, list[LoggedOperation]] = {}
    for one in space.operations(limit=_EXAMINED):
        groups.setdefault(one.group or one.id, []).append(one)
    found = [
        {"undo": name, "at": local(some[0].at), "verb": some[0].verb, "actor": some[0].actor, "changed": changed}
        for name, some in islice(
            ((name, some) for name, some in groups.items() if _is_last(space, some[0])), _UNDOABLE_SHOWN
        )
        for changed in [_changed(some[0].text, sum(one.entries for one in some))]
    ]
    if invocation.print_rows(found, empty="There is nothing to undo."):
        return
    print_table(("UNDO", "TIME", "VERB", "ACTOR", "CHANGED"), [tuple(row.values()) for row in found])
    note("Undo one: afterturn undo ID, with an id of the first column. `afterturn history` lists everything.")


def _is_last(space: blocking.Space, operation: LoggedOperation) -> bool:
    if operation.entry_id is None:
        return False
    last = space.history(operation.entry_id).steps[-1].operation
    return last.id == operation.id or (last.group is not None and last.group == operation.group)


_PAGE = 500


@command("forget")
@click.argument("memory", metavar="[ID]", required=False)
@click.option("--conversation", metavar="ID", help="Erase this conversation.")
@click.option("--source", metavar="ID", help="Erase everything with this source.")
@click.option("--speaker", metavar="NAME", help="Erase everything this speaker said.")
@click.option("--everything", is_flag=True, help="Erase the whole space.")
@click.option("--with-sources", is_flag=True, help="With ID: erase the messages that it was learned from, too.")
@click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@click.option("--dry-run", is_flag=True, help="Only count what would be erased.")
def forget(invocation: Invocation, *, with_sources: bool, yes: bool, dry_run: bool, **choice: Any) -> None:
    """Erase permanently. This cannot be undone."""
    selector, name = _selector(choice), invocation.space_name()
    if with_sources and selector.memory is None:
        raise InvalidInput("--with-sources is for one memory. Name its ID, or leave it out.")
    with invocation.memory() as memory:
        space = memory.space(name)
        said = _find_messages(memory, name, selector.memory) if selector.memory else []
        if dry_run:
            found = _count(space, selector) + (len(said) if with_sources else 0)
            text = f"{_entries(found)} would be erased, with the statements learned only from what is erased."
            if not invocation.print_json({"matching": found, "sources": [one.id for one in said]}):
                click.echo(text)
                _print_messages(said)
            return
        if not yes:
            with_sources = with_sources or _asks_for_sources(said)
            erased = _entries(1 + len(said)) if with_sources else _counted(space, selector)
            confirm(f"erase {erased} of {name} permanently")
        with progress("Forgetting") as report:
            report(0, 0)
            forgotten = space.forget(**choice, sources=with_sources)
    if not invocation.print_json(forgotten):
        print_forgotten(forgotten)
        left = [one for one in said if not with_sources or one.space != name]
        _print_messages(left)
        if left:
            click.echo(f"Erase a message: afterturn forget --space {left[0].space} {left[0].id}")


def _find_messages(memory: blocking.Memory, space: str, entry_id: str) -> list[Entry]:
    """The recorded messages that a memory was learned from, in any version."""
    found = {
        one.id: one
        for version in memory.space(space).history(entry_id).versions
        for one in find_sources(memory, (space, *([version.owner] if version.owner else [])), version)[0]
    }
    return [one for one in found.values() if one.kind is Kind.RECORD]


def _print_messages(said: Sequence[Entry]) -> None:
    if said:
        which = "1 message, which still says it" if len(said) == 1 else f"{len(said)} messages, which still say it"
        click.echo(f"It was learned from {which}:")
        print_table(("", ""), [(f"  {one.id}", shortened(one.text)) for one in said])


def _asks_for_sources(said: Sequence[Entry]) -> bool:
    if not said or not sys.stdin.isatty():
        return False
    _print_messages(said)
    return click.confirm(f"Erase {'this message' if len(said) == 1 else 'these messages'}, too?", err=True)


def _selector(choice: dict[str, Any]) -> Selector:
    if sum(value not in (None, False) for value in choice.values()) != 1:
        raise InvalidInput("Say what to forget: one of ID, --conversation, --source, --speaker or --everything.")
    if choice["memory"] is not None:
        check_id(choice["memory"])
    return check_selector(Selector(**choice))


def _counted(space: blocking.Space, selector: Selector) -> str:
    try:
        return _entries(_count(space, selector))
    except KeyMissing:
        if not selector.everything:
            raise
        return "all entries, which nobody can read because the key is gone,"


def _count(space: blocking.Space, selector: Selector) -> int:
    """How many entries match, of any status. Statements learned from them are not counted."""
    if selector.memory:
        space.get(selector.memory)
        return 1
    matching: set[str] = set()
    before: str | None = None
    every = Filter(conversation=selector.conversation, statuses=tuple(Status))
    with progress("Counting") as report:
        while page := space.list(limit=_PAGE, before=before, filter=every):
            matching.update(entry.id for entry in page if _matches(entry, selector))
            before = page[-1].id
            report(len(matching), 0)
    return len(matching)


def _matches(entry: Entry, selector: Selector) -> bool:
    if selector.source is not None:
        return selector.source in entry.sources
    return selector.speaker is None or entry.speaker == selector.speaker


def _entries(found: int) -> str:
    return count(found, "entry", "entries")


def print_forgotten(forgotten: Forgotten) -> None:
    click.echo(f"{_entries(forgotten.erased)} erased.")
    if forgotten.key_destroyed:
        click.echo("The key of the space is destroyed. Nobody can read its text in copies of its rows any more.")
    if forgotten.remaining:
        click.echo("No query finds the text any more. Its bytes are still in:")
        for remaining in forgotten.remaining:
            click.echo(f"  {one_line(str(remaining))}")
    if forgotten.out_of_reach:
        click.echo("The text may still be in these places. Delete these files, and forget it in these spaces:")
        for place in forgotten.out_of_reach:
            click.echo(f"  {one_line(place)}")


@command("incognito")
@click.argument("action", type=click.Choice(["on", "off", "status"]))
@click.argument("name", metavar="CONVERSATION")
def incognito(invocation: Invocation, action: str, name: str) -> None:
    """Switch incognito on or off for a conversation of the space, or show it."""
    with invocation.memory(create=action == "on") as memory:
        conversation = memory.conversation(name, owner=invocation.space_name())
        if action != "status":
            conversation.set_incognito(action == "on")
        is_on = conversation.is_incognito()
    meaning = "on for {}: nothing of its turns is recorded or learned." if is_on else "off for {}."
    invocation.answer({"conversation": name, "incognito": is_on}, f"Incognito is {meaning.format(one_line(name))}")
