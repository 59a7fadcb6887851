"""`review`: what was learned from conversations, as a difference that a person can read and take back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from afterturn.base.errors import ConfigError
from afterturn.base.names import check_id
from afterturn.base.reviews import ReviewState
from afterturn.base.types import Undone
from afterturn.hosts.cli.command import CONTEXT_SETTINGS, Group, command, help_when_alone
from afterturn.hosts.cli.console import count, note, one_line, print_table, status
from afterturn.hosts.cli.document import jsonable, print_document, print_line
from afterturn.hosts.cli.invocation import Invocation, shared_options

if TYPE_CHECKING:
    from afterturn import blocking
    from afterturn.base.reviews import Review

_HERE = "afterturn.hosts.cli.commands.review"
_IN_VAIN = (ReviewState.FAILED, ReviewState.TIMED_OUT)
EXIT_IN_VAIN = 1


@click.group(
    "review",
    cls=Group,
    sections={
        "Commands": {
            "run": f"{_HERE}:run",
            "log": f"{_HERE}:log",
            "show": f"{_HERE}:show",
            "undo": f"{_HERE}:undo",
        }
    },
    examples="""
    $ afterturn review log
    $ afterturn review show 0k3v8r2c4d5e6f7g
    $ afterturn review run support-42
    """,
    context_settings=CONTEXT_SETTINGS,
    invoke_without_command=True,
)
@shared_options
@click.pass_context
def review(context: click.Context) -> None:
    """Learn from conversations, see what was learned, take it back.

    Reviews run behind the turns; the settings `review_interval` and `rules` say when.
    """
    help_when_alone(context)


@command(
    "run",
    examples="""
    $ afterturn review run support-42
    $ afterturn review run support-42 --rules
    $ afterturn review run ticket-7 --space user:ada --writes project:api --all
    """,
)
@click.argument("conversation")
@click.option("--rules", is_flag=True, help="Without a model: only what was said outright.")
@click.option("--all", "everything", is_flag=True, help="Also what was reviewed before.")
@click.option("--writes", metavar="SPACE", help="Where the conversation is recorded, if not in its own space.")
def run(invocation: Invocation, conversation: str, *, rules: bool, everything: bool, writes: str | None) -> None:
    """Review a conversation now, and show what was learned.

    What no review has read yet is read, with a little before it; with --rules, all of it. The exit code is 1 when the
    review failed, took too long, or models pause.
    """
    with invocation.memory() as memory:
        space = memory.space(invocation.space_name())
        try:
            with status("Reviewing"):
                done = space.run_review(conversation, writes=writes, rules=rules, everything=everything)
        except ConfigError as error:
            if rules:
                raise
            raise ConfigError(
                "A review needs a model: set model_url and model (`afterturn config path` is where). "
                "Without one, --rules learns what was said outright."
            ) from error
        if done is None:
            _print_nothing(invocation)
            return
        _print_review(invocation, memory, done)
    if done.row.state in _IN_VAIN:
        raise click.exceptions.Exit(EXIT_IN_VAIN)


def _print_nothing(invocation: Invocation) -> None:
    if invocation.json:
        print_document(None)
    else:
        click.echo("Nothing was said that no review has read. Read it all again with --all.")


@command(
    "log",
    examples="""
    $ afterturn review log
    $ afterturn review log --conversation support-42
    $ afterturn review log --json | jq 'select(.state == "timed_out") | .id'
    """,
)
@click.option("--conversation", metavar="ID", help="Only reviews of this one.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most.")
@click.option("--before", metavar="ID", help="Continue after this id, the last of the previous page.")
def log(invocation: Invocation, conversation: str | None, limit: int, before: str | None) -> None:
    """List the reviews of a space, newest first, and what came of each.

    With --json, one line a review.
    """
    from afterturn.hosts.cli.reviewed import LOG_COLUMNS, log_row

    with invocation.in_space() as space:
        rows = space.reviews(conversation=conversation, limit=limit, before=check_id(before) if before else None)
    if invocation.json:
        for row in rows:
            print_line(row)
        return
    if not rows:
        click.echo("Nothing was reviewed here yet.")
        return
    print_table(LOG_COLUMNS, [log_row(row) for row in rows])
    note("What it changed: afterturn review show ID")
    if len(rows) == limit:
        note(f"There may be more: afterturn review log --before {rows[-1].id}")


@command(
    "show",
    examples="""
    $ afterturn review show 0k3v8r2c4d5e6f7g
    $ afterturn review show 0k3v8r2c4d5e6f7g --json | jq '.changes[].after.text'
    """,
)
@click.argument("id")
def show(invocation: Invocation, id: str) -> None:
    """Show what a review changed, what each change rests on, and what was refused.

    `+` is what came, `-` what went.
    """
    with invocation.memory() as memory:
        _print_review(invocation, memory, memory.space(invocation.space_name()).review(check_id(id)))


@command("undo", examples="$ afterturn review undo 0k3v8r2c4d5e6f7g")
@click.argument("id")
def undo(invocation: Invocation, id: str) -> None:
    """Take back all that a review changed, in whatever spaces.

    All or nothing: when somebody has changed one of its memories since, nothing is, and the message says which.
    """
    with invocation.in_space() as space:
        undone = space.undo_review(check_id(id))
    if invocation.json:
        print_document(undone)
    else:
        _print_undone(undone)


def _print_undone(undone: Sequence[Undone]) -> None:
    from afterturn.hosts.cli.commands.history import describe_step

    for one in undone:
        for step in one.steps:
            click.echo(f"{step.entry_id}  {describe_step(step)}")
        where = one_line(one.steps[0].operation.space) if one.steps else ""
        click.echo(f"Took back {count(len(one.steps), 'step')} in {where}  (back: afterturn undo {one.operation})")


def _print_review(invocation: Invocation, memory: blocking.Memory, done: Review) -> None:
    from afterturn.hosts.cli.reviewed import print_review, sources_of

    sources = sources_of(memory, done)
    if invocation.json:
        form = jsonable(done)
        assert isinstance(form, dict)
        told = {entry.id: entry for found, _ in sources.values() for entry in found}
        print_document({**form, "sources": list(told.values())})
    else:
        print_review(done, sources)
