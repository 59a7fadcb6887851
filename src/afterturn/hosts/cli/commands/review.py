"""`review` and `consolidate`: run reviews, and show what they changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from afterturn.errors import ConfigError
from afterturn.hosts.cli.changes import find_sources, print_details, print_difference, print_sources
from afterturn.hosts.cli.command import Invocation, command, commands, group
from afterturn.hosts.cli.commands.history import describe_step
from afterturn.hosts.cli.options import LIMIT
from afterturn.hosts.cli.output import age, as_object, count, note, one_line, print_pairs, print_table, status
from afterturn.types import Entry, ReviewRow, ReviewState, Status, Verb
from afterturn.validation import check_id

if TYPE_CHECKING:
    from afterturn import blocking
    from afterturn.space.reviews import Review, ReviewedChange


_IN_VAIN = (ReviewState.FAILED, ReviewState.TIMED_OUT)
EXIT_IN_VAIN = 1


@group("review", commands(__name__, run="run", log="log", show="show", undo="undo"))
def review() -> None:
    """Learn from conversations, show what was learned, undo it.

    Reviews run in the background. The settings `review_interval` and `rules` control when.
    """


@command("run")
@click.argument("conversation")
@click.option("--rules", is_flag=True, help="Use no model: learn only what was said in plain forms.")
@click.option("--all", "everything", is_flag=True, help="Read messages that were reviewed before, too.")
@click.option("--writes", metavar="SPACE", help="The space that the conversation writes, if it is another one.")
def run(invocation: Invocation, conversation: str, *, rules: bool, everything: bool, writes: str | None) -> None:
    """Review a conversation now, and show what was learned."""
    with invocation.memory() as memory:
        space = memory.space(invocation.space_name())
        try:
            with status("Reviewing"):
                done = space.run_review(conversation, writes=writes, rules=rules, everything=everything)
        except ConfigError as error:
            if rules:
                raise
            raise ConfigError(
                "A review needs a model. Set model_url and model (`afterturn config path` prints the file), "
                "or use --rules, which needs none."
            ) from error
        if done is None:
            invocation.answer(None, "There is nothing new to review. --all reads the whole conversation again.")
            return
        _print_review(invocation, memory, done)
    if done.row.state in _IN_VAIN:
        raise click.exceptions.Exit(EXIT_IN_VAIN)


@command("log")
@click.option("--conversation", metavar="ID", help="Only reviews of this conversation.")
@LIMIT
@click.option("--before", metavar="ID", help="Continue after this id, the last one of the previous page.")
def log(invocation: Invocation, conversation: str | None, limit: int, before: str | None) -> None:
    """List the reviews of a space and their results, newest first.

    With --json, one line per review.
    """
    with invocation.in_space() as space:
        rows = space.reviews(
            conversation=conversation, limit=limit, before=check_id(before, "review id") if before else None
        )
    if invocation.print_rows(rows, empty="There are no reviews yet."):
        return
    print_table(LOG_COLUMNS, [log_row(row) for row in rows])
    note("Show the changes of one: afterturn review show ID")
    if len(rows) == limit:
        note(f"More: afterturn review log --before {rows[-1].id}")


@command("show")
@click.argument("id")
def show(invocation: Invocation, id: str) -> None:
    """Show what a review changed, the messages it learned from, and what was refused.

    `+` was added, `-` was removed.
    """
    with invocation.memory() as memory:
        _print_review(invocation, memory, memory.space(invocation.space_name()).review(check_id(id, "review id")))


@command("undo")
@click.argument("id")
def undo(invocation: Invocation, id: str) -> None:
    """Undo everything that a review changed, in all spaces.

    All or nothing: if one of its memories has changed since, nothing is undone, and the message names it.
    """
    with invocation.in_space() as space:
        undone = space.undo_review(check_id(id, "review id"))
    if invocation.print_json(undone):
        return
    for one in undone:
        for step in one.steps:
            click.echo(f"{step.entry_id}  {describe_step(step)}")
        where = one_line(one.steps[0].operation.space) if one.steps else ""
        click.echo(f"Undid {count(len(one.steps), 'change')} in {where}  (undo: afterturn undo {one.operation})")


def _print_review(invocation: Invocation, memory: blocking.Memory, done: Review) -> None:
    sources = sources_of(memory, done)
    found = {entry.id: entry for entries, _ in sources.values() for entry in entries}
    if not invocation.print_json({**as_object(done), "sources": list(found.values())}):
        print_review(done, sources)


@command("consolidate")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed, and why.")
def consolidate(invocation: Invocation, *, dry_run: bool) -> None:
    """Merge duplicates, remove what a newer memory contradicts, hide unused memories.

    Unused memories are hidden only with the setting `fade_days`; pinned ones always stay. `review undo` undoes it.
    """
    with invocation.in_space() as space, status("Consolidating"):
        done = space.consolidate(dry_run=dry_run)
    if invocation.print_json(done):
        return
    if not done.changes:
        click.echo("Nothing to consolidate.")
    elif dry_run:
        click.echo(f"{count(len(done.changes), 'memory', 'memories')} would be removed:")
        print_changes(done, {})
    else:
        print_review(done, {})


# By operation: the sources of the change, and how many of them are gone.
Sources: TypeAlias = Mapping[str, tuple[Sequence[Entry], int]]

LOG_COLUMNS = ("ID", "AGE", "CONVERSATION", "CAUSE", "RESULT")
# The words for the causes, states, reasons and notes of reviews, and for changes that were refused.
_WORDS: dict[str, dict[str, str]] = json.loads(
    Path(__file__).with_name("review_words.json").read_text(encoding="utf-8")
)
_REFUSALS = _WORDS["refusals"]
_NOT_SHOWN = frozenset(["", "done", "nothing", "timeout", "forgotten", "paused"])


def log_row(row: ReviewRow) -> tuple[str, ...]:
    where = one_line(row.conversation) or one_line(row.space)
    return (row.id, age(row.created_at), where, _WORDS["causes"][row.kind], result_of(row))


def result_of(row: ReviewRow) -> str:
    outcome = _WORDS["results"].get(row.state, "")
    if row.state is ReviewState.WAITING and row.reason:
        outcome += f", last try failed: {one_line(row.reason)}"
    if row.state is ReviewState.FAILED and row.reason:
        outcome = f"failed ({one_line(row.reason.replace('_', ' '))}); nothing saved"
    parts = [
        f"{row.written} saved" if row.written else "",
        f"{count(row.proposed, 'needs', 'need')} approval" if row.proposed else "",
        outcome,
        f"{len(row.refusals)} refused" if row.refusals else "",
    ]
    return ", ".join(part for part in parts if part)


def sources_of(memory: blocking.Memory, review: Review) -> Sources:
    spaces = tuple(dict.fromkeys((review.row.writes, review.row.space, *review.row.spaces)))
    return {
        change.operation: find_sources(memory, spaces, change.after)
        for change in review.changes
        if change.after is not None and not _is_withdrawal(change)
    }


def print_review(review: Review, sources: Sources) -> None:
    row = review.row
    click.echo(f"Review {row.id}: {result_of(row)}")
    print_pairs(_pairs(row))
    print_changes(review, sources)
    if row.refusals:
        click.echo()
        click.echo("Refused:")
        for reason, times in Counter(row.refusals).items():
            print_details(
                [_REFUSALS.get(reason, one_line(reason.replace("_", " "))) + (f" ({times} times)" if times > 1 else "")]
            )
    if any(change.state != "undone" for change in review.changes):
        click.echo()
        click.echo(f"(undo: afterturn review undo {row.id})")


def print_changes(review: Review, sources: Sources) -> None:
    notes = dict(note.partition(" ")[::2] for note in review.row.notes)
    for change in review.changes:
        click.echo()
        is_deletion, entry = change.verb is Verb.DELETE, change.after or change.before
        assert entry is not None
        before = change.before.text if change.before is not None else None
        print_difference(before, change.after.text if change.after is not None and not is_deletion else None)
        version = f" version {entry.version}" if entry.version > 1 and not is_deletion else ""
        waits = f"; needs approval: afterturn inbox show {entry.id}" if change.state == "waits" else ""
        state = waits or _WORDS["states"].get(change.state, "")
        print_details([f"{entry.id}{version}, target {entry.target}, in {one_line(change.space)}{state}"])
        if is_deletion and change.before is not None and change.before.id in notes:
            reason, _, by = notes[change.before.id].partition(" by ")
            print_details([f"{_WORDS['notes'].get(reason, one_line(reason))} {one_line(by)}".strip()])
        found, missing = sources.get(change.operation, ((), 0))
        print_sources(found, missing)


def _pairs(row: ReviewRow) -> list[tuple[str, str]]:
    took = "" if row.ended_at is None else f", ended after {max(0.0, row.ended_at - row.created_at):.1f} s"
    reason = _WORDS["reasons"].get(row.reason, one_line(row.reason.replace("_", " ")))
    pairs = [
        ("conversation", one_line(row.conversation) and f"{one_line(row.conversation)} of {one_line(row.space)}"),
        ("space", "" if row.conversation else one_line(row.space)),
        ("cause", f"{_WORDS['causes'][row.kind]}, {age(row.created_at)}{took}"),
        ("cost", f"{count(row.calls, 'model call')}, {count(row.tokens, 'token')}" if row.calls else ""),
        ("reason", "" if row.reason in _NOT_SHOWN else reason),
    ]
    return [(name, value) for name, value in pairs if value]


def _is_withdrawal(change: ReviewedChange) -> bool:
    """A proposed delete is stored as a copy of the memory it would delete."""
    after, before = change.after, change.before
    if after is None or before is None or change.verb is not Verb.DELETE:
        return False
    return after.status is Status.WITHDRAWAL or after.content_hash == before.content_hash
