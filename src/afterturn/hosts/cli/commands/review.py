"""`review` and `consolidate`: run reviews, and show what they changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import click

from afterturn.base.errors import ConfigError
from afterturn.base.names import check_id
from afterturn.base.reviews import Review, ReviewedChange, ReviewKind, ReviewRow, ReviewState
from afterturn.base.types import Entry, Status, Undone, Verb
from afterturn.hosts.cli.changes import find_sources, print_details, print_difference, print_sources
from afterturn.hosts.cli.command import CONTEXT_SETTINGS, Group, Invocation, command, help_when_alone, shared_options
from afterturn.hosts.cli.output import (
    age,
    count,
    jsonable,
    note,
    one_line,
    print_document,
    print_line,
    print_pairs,
    print_table,
    status,
)

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

    sources = sources_of(memory, done)
    if invocation.json:
        form = jsonable(done)
        assert isinstance(form, dict)
        told = {entry.id: entry for found, _ in sources.values() for entry in found}
        print_document({**form, "sources": list(told.values())})
    else:
        print_review(done, sources)


@command(
    "consolidate",
    examples="""
    $ afterturn consolidate --dry-run
    $ afterturn consolidate --space user:ada
    $ afterturn review undo 0k3v8r2c4d5e6f7g
    """,
)
@click.option("--dry-run", is_flag=True, help="Only show what would go, and why.")
def consolidate(invocation: Invocation, *, dry_run: bool) -> None:
    """Merge what says the same, drop what something newer contradicts, let unused memories fade.

    Memories fade only with the setting `fade_days`; pinned ones stay. It is a review like any other: `review undo`
    takes it back.
    """

    with invocation.in_space() as space, status("Consolidating"):
        done = space.consolidate(dry_run=dry_run)
    if invocation.json:
        print_document(done)
    elif not done.changes:
        click.echo("There is nothing to tidy up.")
    elif dry_run:
        click.echo(f"{count(len(done.changes), 'memory', 'memories')} would go:")
        print_changes(done, {})
    else:
        print_review(done, {})


# By operation: what the change rests on, and how much of that is gone.
Sources: TypeAlias = Mapping[str, tuple[Sequence[Entry], int]]

LOG_COLUMNS = ("ID", "AGE", "CONVERSATION", "WHY", "CAME TO")
_WHY = {
    ReviewKind.INTERVAL: "the interval",
    ReviewKind.COMPACTION: "a compaction",
    ReviewKind.ASKED: "asked for",
    ReviewKind.RULES: "rules",
    ReviewKind.EXTRACTION: "extraction",
    ReviewKind.CONSOLIDATION: "consolidation",
}
_CAME_TO = {
    ReviewState.WAITING: "not run yet",
    ReviewState.NOTHING: "nothing to save",
    ReviewState.REFUSED: "nothing saved",
    ReviewState.TIMED_OUT: "given up: it took longer than review_timeout; nothing was saved",
    ReviewState.FAILED: "failed; nothing was saved",
    ReviewState.FORGOTTEN: "what it read was forgotten; nothing was saved",
}
_REFUSALS = {
    "limit": "more changes than review_entries_max",
    "evidence": "did not say which messages it rests on",
    "seen": "rests only on what was reviewed before",
    "unknown_memory": "names a memory that is not there",
    "pinned": "would change a pinned memory",
    "twice": "changes the same memory twice",
    "speaker": "said by somebody whose words are not kept here",
    "prompt": "repeats the instructions of the review",
    "invented": "names or numbers that nobody said",
    "unsupported": "not what the messages say",
    "budget": "no room left for it",
    "guard": "not admitted by the guard",
    "changed": "the memory has changed meanwhile",
    "not_allowed": "not trusted enough to do that",
    "forgotten": "what it rests on was forgotten",
    "known": "known already",
    "secret": "a password, PIN or key",
    "malformed": "a call that could not be read",
}
_REASONS = {"limit": "it was stopped at its limit of calls", "too_many_refusals": "it was stopped: too many refusals"}
_NOTES = {"restated": "says the same as", "outdated": "gave way to the newer", "unused": "was not used for fade_days"}
_UNTOLD = frozenset(["", "done", "nothing", "timeout", "forgotten", "paused"])


def log_row(row: ReviewRow) -> tuple[str, ...]:
    where = one_line(row.conversation) or one_line(row.space)
    return (row.id, age(row.created_at), where, _WHY[row.kind], came_to(row))


def came_to(row: ReviewRow) -> str:
    parts = [
        f"{row.written} saved" if row.written else "",
        f"{count(row.proposed, 'waits', 'wait')} for approval" if row.proposed else "",
        _CAME_TO.get(row.state, ""),
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
    click.echo(f"Review {row.id}: {came_to(row)}")
    print_pairs(_pairs(row))
    print_changes(review, sources)
    if row.refusals:
        click.echo()
        click.echo("Refused:")
        for reason, times in Counter(row.refusals).items():
            print_details([_refusal(reason) + (f" ({times} times)" if times > 1 else "")])
    if any(change.state != "undone" for change in review.changes):
        click.echo()
        click.echo(f"(back: afterturn review undo {row.id})")


def print_changes(review: Review, sources: Sources) -> None:
    notes = dict(note.partition(" ")[::2] for note in review.row.notes)
    for change in review.changes:
        click.echo()
        _print_change(change, notes)
        found, missing = sources.get(change.operation, ((), 0))
        print_sources(found, missing)


def _pairs(row: ReviewRow) -> list[tuple[str, str]]:
    pairs = [
        ("conversation", one_line(row.conversation) and f"{one_line(row.conversation)} of {one_line(row.space)}"),
        ("space", "" if row.conversation else one_line(row.space)),
        ("why", f"{_WHY[row.kind]}, {age(row.created_at)}{_took(row)}"),
        ("cost", f"{count(row.calls, 'call')} of a model, {count(row.tokens, 'token')}" if row.calls else ""),
        ("ended", "" if row.reason in _UNTOLD else _REASONS.get(row.reason, one_line(row.reason.replace("_", " ")))),
    ]
    return [(name, value) for name, value in pairs if value]


def _took(row: ReviewRow) -> str:
    return "" if row.ended_at is None else f", ended after {max(0.0, row.ended_at - row.created_at):.1f} s"


def _print_change(change: ReviewedChange, notes: Mapping[str, str]) -> None:
    before = change.before.text if change.before is not None else None
    after = change.after.text if change.after is not None and not _is_deletion(change) else None
    print_difference(before, after)
    print_details([_detail(change)])
    entry = change.before
    if entry is not None and entry.id in notes and _is_deletion(change):
        print_details([_why(notes[entry.id])])


def _why(note: str) -> str:
    """What consolidation noted of a memory that goes: one word, and for what."""
    reason, _, by = note.partition(" by ")
    told = _NOTES.get(reason, one_line(reason))
    return f"{told} {one_line(by)}".strip()


def _is_deletion(change: ReviewedChange) -> bool:
    return change.verb is Verb.DELETE or _is_withdrawal(change)


def _is_withdrawal(change: ReviewedChange) -> bool:
    """A delete that waited is stored as a copy of what it would delete."""
    after, before = change.after, change.before
    if after is None or before is None or change.verb is not Verb.DELETE:
        return False
    return after.status is Status.WITHDRAWAL or after.content_hash == before.content_hash


def _detail(change: ReviewedChange) -> str:
    entry = change.after or change.before
    assert entry is not None
    version = f" version {entry.version}" if entry.version > 1 and not _is_deletion(change) else ""
    return f"{entry.id}{version}, about {entry.target}, in {one_line(change.space)}{_fate(change, entry)}"


def _fate(change: ReviewedChange, entry: Entry) -> str:
    told = {
        "waits": f"; waits: afterturn inbox show {entry.id}",
        "approved": "; approved since",
        "rejected": "; rejected since",
        "undone": "; undone since",
        "changed": "; changed by somebody since",
    }
    return told.get(change.state, "")


def _refusal(reason: str) -> str:
    return _REFUSALS.get(reason, one_line(reason.replace("_", " ")))
