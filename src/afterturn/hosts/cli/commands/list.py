"""`spaces`, `list` and `show`: which spaces there are, what one holds, one memory in full."""

from __future__ import annotations

from typing import Any

import click

from afterturn.base.names import check_id
from afterturn.base.types import Entry, Kind, Status
from afterturn.context.author import describe_author
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.options import as_filter, filter_options
from afterturn.hosts.cli.output import (
    age,
    local,
    note,
    one_line,
    print_document,
    print_line,
    print_pairs,
    print_table,
    safe,
)

_ANY = "any"


@command(
    "list",
    examples="""
    $ afterturn list
    $ afterturn list --kind record --conversation support-42
    $ afterturn list --status deleted --limit 10
    $ afterturn list --json | jq -r .text
    """,
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most.")
@click.option("--before", metavar="ID", help="Continue after this id, the last of the previous page.")
@click.option(
    "--kind",
    type=click.Choice([*(str(kind) for kind in Kind), _ANY]),
    default=_ANY,
    show_default=True,
    help="Statements, recorded messages, or both.",
)
@click.option("--conversation", metavar="ID", help="Only this conversation.")
@click.option("--pinned", is_flag=True, help="Only pinned ones.")
@click.option(
    "--status",
    "statuses",
    type=click.Choice([*(str(status) for status in Status), _ANY]),
    multiple=True,
    default=(str(Status.ACTIVE),),
    help="In which state; repeatable. Default: active.",
)
@filter_options
def list_entries(
    invocation: Invocation, limit: int, before: str | None, kind: str, statuses: tuple[str, ...], **options: Any
) -> None:
    """List what a space holds, newest first.

    With --json, one line a memory.
    """
    narrowed = as_filter(
        options,
        kind=None if kind == _ANY else Kind(kind),
        conversation=options["conversation"],
        pinned=options["pinned"] or None,
        statuses=tuple(Status) if _ANY in statuses else tuple(Status(name) for name in statuses),
    )
    with invocation.in_space() as space:
        entries = space.list(limit=limit, before=check_id(before) if before else None, filter=narrowed)
    if invocation.json:
        for entry in entries:
            print_line(entry)
        return
    if not entries:
        click.echo("Nothing here.")
        return
    print_table(("ID", "AGE", "ABOUT", "FROM", "TEXT"), [_row(entry) for entry in entries])
    if len(entries) == limit:
        note(f"There may be more: afterturn list --before {entries[-1].id}")


def _row(entry: Entry) -> tuple[str, str, str, str, str]:
    marks = "".join(f"[{mark}] " for mark in _marks(entry))
    return (entry.id, age(entry.occurred_at), _about(entry), _who(entry), marks + one_line(entry.text))


def _marks(entry: Entry) -> list[str]:
    marks = ["pinned"] if entry.pinned else []
    return marks if entry.status is Status.ACTIVE else [*marks, str(entry.status)]


def _about(entry: Entry) -> str:
    return str(entry.target) if entry.kind is Kind.STATEMENT else one_line(entry.conversation or "record")


def _who(entry: Entry) -> str:
    return one_line(describe_author(entry))


@command(
    "show",
    examples="""
    $ afterturn show 0k3v8r2c4d5e6f7g
    $ afterturn show 0k3v8r2c4d5e6f7g --version 1 --json
    """,
)
@click.argument("id")
@click.option("--version", type=click.IntRange(min=1), help="An older version; default: the newest.")
def show(invocation: Invocation, id: str, version: int | None) -> None:
    """Show one memory in full: its text, its origin, its times."""
    with invocation.in_space() as space:
        entry = space.get(check_id(id), version=version)
    if invocation.json:
        print_document(entry)
        return
    click.echo(safe(entry.text))
    click.echo()
    print_pairs(_pairs(entry))


def _pairs(entry: Entry) -> list[tuple[str, str]]:
    """What is set; what is not stays out of the way."""
    rows: list[tuple[str, object]] = [
        ("id", entry.id),
        ("version", entry.version),
        ("status", entry.status),
        ("kind", entry.kind),
        ("space", entry.space),
        ("about", entry.target if entry.kind is Kind.STATEMENT else None),
        ("from", f"{entry.origin} (trust {entry.trust})"),
        ("pinned", "yes" if entry.pinned else None),
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
        ("rests on", ", ".join(entry.sources) or None),
        ("guard", entry.reason or None),
    ]
    rows.extend((f"meta {key}", value) for key, value in entry.metadata.items())
    return [(one_line(name), one_line(str(value))) for name, value in rows if value is not None]


def _moment(moment: float | None) -> str | None:
    return None if moment is None else f"{local(moment)} ({age(moment)})"
