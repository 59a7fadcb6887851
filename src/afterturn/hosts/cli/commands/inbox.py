"""`inbox`: memories that wait for approval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from afterturn.hosts.cli.changes import find_sources, print_difference, print_sources
from afterturn.hosts.cli.command import Invocation, command, commands, group
from afterturn.hosts.cli.options import LIMIT
from afterturn.hosts.cli.output import age, as_object, note, one_line, print_line, print_pairs, print_table
from afterturn.recall.block import describe_author
from afterturn.types import Entry, Status
from afterturn.validation import check_id

if TYPE_CHECKING:
    from afterturn.space.inbox import Proposal

_ALL = 1_000
# Metadata that the product writes. Other names get a prefix, so that they cannot pass for a field.
_KNOWN = ("kind", "task", "review")


@group(
    "inbox", commands(__name__, list="list_proposals", show="show", approve="approve", reject="reject"), alone="list"
)
def inbox() -> None:
    """Approve or reject proposed memories; without a command, list them."""


@command("list")
@LIMIT
@click.option("--before", metavar="ID", help="Continue after this id, the last of the previous page.")
@click.option("--conversation", metavar="ID", help="Only proposals from this conversation.")
def list_proposals(invocation: Invocation, limit: int, before: str | None, conversation: str | None) -> None:
    """List the proposals by conversation, newest first.

    With --json, one line per proposal.
    """
    with invocation.in_space() as space:
        last = check_id(before) if before else None
        entries = space.proposals(limit=limit, before=last, conversation=conversation)
    if invocation.print_rows(entries, empty="The inbox is empty."):
        return
    groups: dict[str | None, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.conversation, []).append(entry)
    for number, (name, found) in enumerate(groups.items()):
        if number:
            click.echo()
        click.echo("no conversation" if name is None else f"conversation {one_line(name)}")
        print_table(("ID", "AGE", "TARGET", "AUTHOR", "TEXT"), [_row(entry) for entry in found])
    note("Show one: afterturn inbox show ID. Then: afterturn inbox approve ID, or afterturn inbox reject ID.")
    note("Several at once: afterturn inbox approve --conversation ID, or --all; the same with reject.")
    if len(entries) == limit:
        note(f"There may be more: afterturn inbox list --before {entries[-1].id}")


def _row(entry: Entry) -> tuple[str, ...]:
    marks = {Status.WITHDRAWAL: "[delete] "}
    mark = marks.get(entry.status, "[change] " if entry.version > 1 else "")
    who = one_line(describe_author(entry))
    return (entry.id, age(entry.recorded_at), str(entry.target), who, mark + one_line(entry.text))


@command("show")
@click.argument("id")
def show(invocation: Invocation, id: str) -> None:
    """Show one proposal and the messages it was learned from.

    `+` would be added, `-` removed. If it cannot be approved, the reason is shown: the memory may have changed since.
    """
    with invocation.memory() as memory:
        space = invocation.space_name()
        proposal = memory.space(space).proposal(check_id(id))
        entry = proposal.entry
        spaces = (space,) if entry.owner is None else (space, entry.owner)
        found, missing = find_sources(memory, spaces, entry)
    if invocation.print_json({**as_object(proposal), "sources": found}):
        return
    withdrawn = entry.status is Status.WITHDRAWAL
    print_difference(proposal.base.text if proposal.base else None, None if withdrawn else entry.text)
    print_sources(found, missing)
    click.echo()
    print_pairs(_pairs(proposal))
    click.echo()
    click.echo(f"Approve: afterturn inbox approve {entry.id}. Reject: afterturn inbox reject {entry.id}.")


def _pairs(proposal: Proposal) -> list[tuple[str, str]]:
    """Only fields that have a value."""
    entry, current = proposal.entry, proposal.current
    rows = [
        ("proposed", f"{_kind(proposal)}, {age(entry.recorded_at)}"),
        ("id", entry.id if entry.version == 1 else f"{entry.id} version {entry.version}"),
        ("target", str(entry.target)),
        ("pinned", "yes" if entry.pinned else None),
        ("firm", "yes" if entry.firm else None),
        ("author", f"{one_line(describe_author(entry))} (trust {entry.trust})"),
        ("agent", entry.agent),
        ("project", entry.project),
        ("conversation", entry.conversation),
        ("guard", entry.reason),
        *((name if name in _KNOWN else f"meta {name}", str(value)) for name, value in entry.metadata.items()),
        ("problem", proposal.obstacle),
        ("current text", current.text if proposal.obstacle and current else None),
    ]
    return [(one_line(name), one_line(value)) for name, value in rows if value]


def _kind(proposal: Proposal) -> str:
    if proposal.entry.status is Status.WITHDRAWAL:
        return "delete a memory"
    return "add a memory" if proposal.base is None else "change a memory"


@command("approve")
@click.argument("ids", metavar="ID...", nargs=-1)
@click.option("--conversation", metavar="ID", help="All proposals from this conversation.")
@click.option("--all", "everything", is_flag=True, help="All proposals of the space.")
def approve(invocation: Invocation, ids: tuple[str, ...], conversation: str | None, *, everything: bool) -> None:
    """Apply proposals: add, change or delete the memories."""
    _decide(invocation, "approve", ids, conversation, everything=everything)


@command("reject")
@click.argument("ids", metavar="ID...", nargs=-1)
@click.option("--conversation", metavar="ID", help="All proposals from this conversation.")
@click.option("--all", "everything", is_flag=True, help="All proposals of the space.")
def reject(invocation: Invocation, ids: tuple[str, ...], conversation: str | None, *, everything: bool) -> None:
    """Reject proposals. `undo` brings them back."""
    _decide(invocation, "reject", ids, conversation, everything=everything)


def _decide(
    invocation: Invocation, verb: str, ids: tuple[str, ...], conversation: str | None, *, everything: bool
) -> None:
    if bool(ids) + (conversation is not None) + everything != 1:
        raise click.UsageError("Name proposals by id, or pass --conversation ID, or --all.")
    done, checked = f"{verb.removesuffix('e')}ed", [check_id(id) for id in ids]
    with invocation.in_space() as space:
        if ids:
            for id in checked:
                changed = space.approve(id) if verb == "approve" else space.reject(id)
                if invocation.json:
                    print_line(changed)
                else:
                    invocation.answer_changed(changed, done)
            return
        found: list[str] = []
        while page := space.proposals(conversation=conversation, limit=_ALL, before=found[-1] if found else None):
            found += [entry.id for entry in page]
        decided = space.approve_all(found) if verb == "approve" else space.reject_all(found)
    if invocation.print_json(decided):
        return
    for changed in decided.changed:
        click.echo(f"{changed.entry.id}  {done}")
    for id, reason in decided.skipped.items():
        click.echo(f"{id}  not {done}: {one_line(reason)}")
    left = f", {len(decided.skipped)} left" if decided.skipped else ""
    undo = f"  (undo: afterturn undo {decided.group})" if decided.group is not None else ""
    click.echo(f"{len(decided.changed)} {done}{left}{undo}")
