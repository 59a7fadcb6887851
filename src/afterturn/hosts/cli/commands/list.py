"""`spaces`, `profile`, `list` and `show`: which spaces there are, what one knows and holds, one memory in full."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

import click

from afterturn.errors import InvalidInput, NotFound
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.options import LIMIT, as_filter, filter_options, range_options, time_range
from afterturn.hosts.cli.output import age, dim, local, note, one_line, print_pairs, print_table, safe
from afterturn.recall.block import describe_author
from afterturn.types import Entry, Kind, Origin, Status
from afterturn.validation import check_id

if TYPE_CHECKING:
    from afterturn import blocking

_ANY = "any"
_SPACES_NAMED = 5


@command("spaces")
def spaces(invocation: Invocation) -> None:
    """List the spaces of the store: how much each holds, and how new it is.

    Only spaces of the tenant are listed. With --json, one line per space.
    """
    with invocation.memory() as memory:
        found = memory.spaces()
    if invocation.print_rows(
        found, empty="There are no spaces yet. `afterturn add --space user:NAME TEXT` creates one."
    ):
        return
    print_table(
        ("SPACE", "STATEMENTS", "RECORDS", "NEWEST"),
        [
            (
                one_line(one.name),
                f"{one.statements:,}",
                f"{one.records:,}",
                "" if one.newest_at is None else age(one.newest_at),
            )
            for one in found
        ],
    )


@command("profile")
@LIMIT
@click.option("--project", metavar="NAME", help="Leave out what belongs to another project.")
def profile(invocation: Invocation, limit: int, project: str | None) -> None:
    """Show what a space knows now, by subject, newest first."""
    with invocation.in_space() as space:
        known = space.profile(limit=limit, project=project)
    if invocation.print_json(known):
        return
    if not known.subjects:
        click.echo(f"Nothing is known in {known.space} yet.")
    for subject in known.subjects:
        click.echo(one_line(subject.name))
        for entry in subject.entries:
            click.echo(f"  {entry.id}  {one_line(entry.text)} {dim(f'({age(entry.occurred_at)})')}", color=True)


@command("list")
@LIMIT
@click.option("--before", metavar="ID", help="Continue after this id, the last one of the previous page.")
@click.option(
    "--kind",
    type=click.Choice([*(str(kind) for kind in Kind), _ANY]),
    default=_ANY,
    show_default=True,
    help="Statements, recorded messages, or both.",
)
@click.option("--conversation", metavar="ID", help="Only this conversation.")
@click.option("--pinned", is_flag=True, help="Only pinned ones.")
@click.option("--firm", is_flag=True, help="Only firm rules.")
@click.option(
    "--status",
    "statuses",
    type=click.Choice([*(str(status) for status in Status), _ANY]),
    multiple=True,
    default=(str(Status.ACTIVE),),
    help="Only this status; repeatable. Default: active.",
)
@range_options
@filter_options
def list_entries(
    invocation: Invocation, limit: int, before: str | None, kind: str, statuses: tuple[str, ...], **options: Any
) -> None:
    """List what a space holds, newest first."""
    since, until = time_range(options)
    narrowed = as_filter(
        options,
        kind=None if kind == _ANY else Kind(kind),
        conversation=options["conversation"],
        pinned=options["pinned"] or None,
        firm=options["firm"] or None,
        statuses=tuple(Status) if _ANY in statuses else tuple(Status(name) for name in statuses),
        since=since,
        until=until,
    )
    name = invocation.space_name()
    with invocation.memory() as memory:
        space = memory.space(name)
        entries = space.list(limit=limit, before=check_id(before) if before else None, filter=narrowed)
        taught = set() if invocation.json else {entry.id for entry in entries if _is_from_user(space, entry)}
        filled = () if entries else [one.name for one in memory.spaces() if one.statements or one.records]
    empty = "Nothing found."
    if filled and name not in filled:
        more = [f"and {len(filled) - _SPACES_NAMED} more"] if len(filled) > _SPACES_NAMED else []
        others = ", ".join([*map(one_line, filled[:_SPACES_NAMED]), *more])
        empty = f"There is nothing in {name}. Spaces that have something: {others}. Choose one with --space."
    if invocation.print_rows(entries, empty=empty):
        return
    _print_entries(entries, taught)
    if len(entries) == limit:
        note(f"More: afterturn list --before {entries[-1].id}")


def _is_from_user(space: blocking.Space, entry: Entry) -> bool:
    """Whether it was learned from messages of the user."""
    if entry.origin is not Origin.BACKGROUND_REVIEW or entry.is_quote:
        return entry.is_quote
    try:
        return bool(entry.sources) and all(space.get(source).origin is Origin.USER for source in entry.sources)
    except (NotFound, InvalidInput):
        return False  # a source of an import may be any text


def _print_entries(entries: Sequence[Entry], taught: Set[str]) -> None:
    """The kind is shown when records are among them, the conversation when one of them has it."""
    columns = ["ID", "AGE", "KIND", "TARGET", "CONVERSATION", "AUTHOR", "TEXT"]
    rows = [_row(entry, "learned from you" if entry.id in taught else describe_author(entry)) for entry in entries]
    empty = set() if any(entry.kind is Kind.RECORD for entry in entries) else {columns.index("KIND")}
    if not any(entry.conversation for entry in entries):
        empty.add(columns.index("CONVERSATION"))
    print_table(
        [column for at, column in enumerate(columns) if at not in empty],
        [[cell for at, cell in enumerate(row) if at not in empty] for row in rows],
    )


def _row(entry: Entry, author: str) -> tuple[str, ...]:
    named = {"firm": entry.firm, "pinned": entry.pinned, str(entry.status): entry.status is not Status.ACTIVE}
    marks = "".join(f"[{mark}] " for mark, is_set in named.items() if is_set)
    target = str(entry.target) if entry.kind is Kind.STATEMENT else ""
    where = one_line(entry.conversation or "")
    return (
        entry.id,
        age(entry.occurred_at),
        str(entry.kind),
        target,
        where,
        one_line(author),
        marks + one_line(entry.text),
    )


@command("show")
@click.argument("id")
@click.option("--version", type=click.IntRange(min=1), help="An older version; default: the newest.")
def show(invocation: Invocation, id: str, version: int | None) -> None:
    """Show one memory in full: its text, origin and times."""
    with invocation.in_space() as space:
        entry = space.get(check_id(id), version=version)
    if invocation.print_json(entry):
        return
    click.echo(safe(entry.text))
    click.echo()
    print_pairs(_pairs(entry))


def _pairs(entry: Entry) -> list[tuple[str, str]]:
    """Only fields that have a value."""
    rows: list[tuple[str, object]] = [
        ("id", entry.id),
        ("version", entry.version),
        ("status", entry.status),
        ("kind", entry.kind),
        ("space", entry.space),
        ("target", entry.target if entry.kind is Kind.STATEMENT else None),
        ("origin", f"{entry.origin} (trust {entry.trust})"),
        ("pinned", "yes" if entry.pinned else None),
        ("firm", "yes" if entry.firm else None),
        ("agent", entry.agent),
        ("project", entry.project),
        ("conversation", entry.conversation),
        ("turn", entry.turn),
        ("position", entry.position),
        ("speaker", entry.speaker),
        ("occurred", _moment(entry.occurred_at)),
        ("recorded", _moment(entry.recorded_at)),
        ("valid from", _moment(entry.valid_from)),
        ("valid to", _moment(entry.valid_to)),
        ("expires", _moment(entry.expires_at)),
        ("sources", ", ".join(entry.sources) or None),
        ("guard", entry.reason or None),
    ]
    rows.extend((f"meta {key}", value) for key, value in entry.metadata.items())
    return [(one_line(name), one_line(str(value))) for name, value in rows if value is not None]


def _moment(moment: float | None) -> str | None:
    return None if moment is None else f"{local(moment)} ({age(moment)})"
