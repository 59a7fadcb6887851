"""`forget`: erases permanently, after showing how much and asking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from afterturn.errors import InvalidInput, KeyMissing
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import confirm, count, one_line, progress
from afterturn.space.arguments import check_selector
from afterturn.types import Entry, Filter, Forgotten, Selector, Status
from afterturn.validation import check_id

if TYPE_CHECKING:
    from afterturn import blocking

_PAGE = 500


@command("forget")
@click.argument("memory", metavar="[ID]", required=False)
@click.option("--conversation", metavar="ID", help="Erase this conversation.")
@click.option("--source", metavar="ID", help="Erase everything with this source.")
@click.option("--speaker", metavar="NAME", help="Erase everything this speaker said.")
@click.option("--everything", is_flag=True, help="Erase the whole space.")
@click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@click.option("--dry-run", is_flag=True, help="Only count what would be erased.")
def forget(invocation: Invocation, *, yes: bool, dry_run: bool, **choice: Any) -> None:
    """Erase permanently. This cannot be undone.

    Erases text, versions, vectors, index entries, jobs and timeline, and statements that were learned only from what is
    erased. `delete` only hides a memory, and can be undone.
    """
    selector = _selector(choice)
    with invocation.in_space() as space:
        if dry_run:
            found = _count(space, selector)
            text = f"{_entries(found)} would be erased, with the statements learned only from what is erased."
            invocation.answer({"matching": found}, text)
            return
        if not yes:
            confirm(f"erase {_counted(space, selector)} of {invocation.space_name()} permanently")
        with progress("Forgetting") as report:
            report(0, 0)
            forgotten = space.forget(
                memory=selector.memory,
                conversation=selector.conversation,
                source=selector.source,
                speaker=selector.speaker,
                everything=selector.everything,
            )
    if not invocation.print_json(forgotten):
        print_forgotten(forgotten)


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
