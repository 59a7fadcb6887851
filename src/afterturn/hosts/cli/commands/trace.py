"""`trace`: the timeline of a space, told so that a person can follow a turn."""

from collections.abc import Mapping, Sequence

import click

from afterturn.base.types import Event, Scalar
from afterturn.hosts.cli.command import command
from afterturn.hosts.cli.console import dim, one_line, print_table
from afterturn.hosts.cli.document import print_line
from afterturn.hosts.cli.invocation import Invocation
from afterturn.hosts.cli.times import local, local_clock


@command(
    "trace",
    examples="""
    $ afterturn trace
    $ afterturn trace --conversation support-42
    $ afterturn trace --json | jq 'select(.name == "handed_over")'
    """,
)
@click.option("--conversation", metavar="ID", help="Only this conversation.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=200, show_default=True, help="Events at most.")
def trace(invocation: Invocation, conversation: str | None, limit: int) -> None:
    """Tell what memory did, turn by turn.

    Recalls, what was handed over and where, what was recorded; the newest events, oldest first. With --json, one
    line an event.
    """
    with invocation.in_space() as space:
        events = space.trace(conversation=conversation, limit=limit)
    if invocation.json:
        for event in events:
            print_line(event)
    elif events:
        _print(events)
    else:
        click.echo("Nothing happened here yet.")


def _print(events: Sequence[Event]) -> None:
    """One heading a turn, so that interleaved conversations stay apart."""
    heading = ""
    rows: list[tuple[str, str, str]] = []
    for event in events:
        if _heading(event) != heading:
            _print_rows(heading, rows)
            heading, rows = _heading(event), []
        rows.append((local_clock(event.at), event.name.replace("_", " "), _details(event.data)))
    _print_rows(heading, rows)


def _print_rows(heading: str, rows: Sequence[tuple[str, str, str]]) -> None:
    if rows:
        click.echo(dim(heading), color=True)
        print_table(("", "", ""), rows, last_wraps=True)


def _heading(event: Event) -> str:
    parts = [("conversation", event.conversation), ("turn", event.turn)]
    named = "  ".join(f"{name} {one_line(value)}" for name, value in parts if value)
    return f"{local(event.at)[:10]}  {named or event.space}"


def _details(data: Mapping[str, Scalar]) -> str:
    """What is empty is left out, and so are ids that only tie events together; --json has them all."""
    shown = [(key, value) for key, value in data.items() if value not in ("", None) and key != "correlation"]
    return " · ".join(one_line(_detail(key, value)) for key, value in shown)


def _detail(key: str, value: Scalar) -> str:
    return f"{value} ms" if key == "milliseconds" else f"{key.replace('_', ' ')} {value}"
