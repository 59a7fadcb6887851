"""`trace`: what memory did, as a timeline; or the turns of one conversation, with why each memory came or did not."""

from collections.abc import Mapping, Sequence

import click

from afterturn.base.errors import NotFound
from afterturn.base.types import Event, Scalar
from afterturn.hosts.cli.command import command
from afterturn.hosts.cli.console import dim, note, one_line, print_table
from afterturn.hosts.cli.document import print_document, print_line
from afterturn.hosts.cli.invocation import Invocation
from afterturn.hosts.cli.retelling import print_answers, print_trace
from afterturn.hosts.cli.times import local, local_clock

_EVENTS = 200
_TURNS = 10


@command(
    "trace",
    examples="""
    $ afterturn trace
    $ afterturn trace support-42
    $ afterturn trace support-42 --turn last --memory 0k3v8r2c4d5e6f7g
    $ afterturn trace support-42 --json | jq '.turns[].recalls[].left_out[] | {ref, why}'
    $ afterturn trace --conversation support-42 --json | jq 'select(.name == "handed_over")'
    """,
)
@click.argument("name", metavar="[CONVERSATION]", required=False)
@click.option("--turn", metavar="N|ID|last", help="Only this turn, with all that was left out.")
@click.option("--memory", metavar="ID", help="Say why this one came to the turn, or did not.")
@click.option("--look-in", metavar="SPACE", multiple=True, help="Where else --memory may be found; repeatable.")
@click.option("--conversation", metavar="ID", help="Without CONVERSATION: only events of this one.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    help=f"At most so many turns (default: the newest {_TURNS}), or events (the newest {_EVENTS}).",
)
def trace(
    invocation: Invocation,
    name: str | None,
    turn: str | None,
    memory: str | None,
    limit: int | None,
    **options: str | tuple[str, ...] | None,
) -> None:
    """Tell what memory did, turn by turn.

    With CONVERSATION: what each of its turns recalled, when that settled, where it was handed over, and for every
    memory that was left out, why. What was not kept is looked up now, by words. With --json, one document.

    Without: the timeline of the space, oldest first. With --json, one line an event.
    """
    conversation, look_in = options["conversation"], options["look_in"]
    if name is None:
        if turn is not None or memory is not None or look_in:
            raise click.UsageError("--turn, --memory and --look-in are about one CONVERSATION. Name it.")
        _print_events(invocation, conversation if isinstance(conversation, str) else None, limit or _EVENTS)
    elif memory is not None:
        _print_why(invocation, name, memory, turn, tuple(look_in or ()))
    else:
        _print_turns(invocation, name, turn, limit or _TURNS)


def _print_turns(invocation: Invocation, name: str, turn: str | None, limit: int) -> None:
    with invocation.memory() as memory:
        told = memory.conversation(name, owner=invocation.space_name()).trace(turn, limit=limit)
    if invocation.json:
        print_document(told)
        return
    print_trace(told, whole=turn is not None)
    if turn is None and len(told.turns) < told.turns_total:
        note(f"Earlier turns: afterturn trace {one_line(name)} --limit {told.turns_total}, or --turn N")


def _print_why(invocation: Invocation, name: str, wanted: str, turn: str | None, look_in: Sequence[str]) -> None:
    with invocation.memory() as memory:
        conversation = memory.conversation(name, owner=invocation.space_name())
        try:
            answers = conversation.why(wanted, turn=turn, look_in=look_in)
        except NotFound:
            note("A memory of another space is looked for with --look-in SPACE.")
            raise
    if invocation.json:
        print_document({"memory": wanted, "answers": answers})
    else:
        print_answers(wanted, answers)


def _print_events(invocation: Invocation, conversation: str | None, limit: int) -> None:
    with invocation.in_space() as space:
        events = space.trace(conversation=conversation, limit=limit)
    if invocation.json:
        for event in events:
            print_line(event)
    elif events:
        _print(events)
        note("The turns of one conversation, and why each memory came: afterturn trace CONVERSATION")
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
