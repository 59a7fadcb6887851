"""`import --from CLIENT`: past conversations and notes of other programs become memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import click

from afterturn.config import Config
from afterturn.errors import InvalidInput
from afterturn.guard.gate import RECORD_BYTES_MAX, Gate
from afterturn.hosts.cli.command import Invocation
from afterturn.hosts.cli.output import count, note, one_line, print_document, print_table, progress
from afterturn.hosts.transcripts.reading import FoundConversation, FoundNotes, read_everything
from afterturn.runtime.clock import SystemClock, TimeOrderedIds
from afterturn.text import cut
from afterturn.types import Draft, Kind

_CONVERSATIONS_MAX = 10_000
_SHOWN_CHARS_MAX = 60


@dataclass(slots=True)
class Plan:
    """What an import would store: drafts in order of the files, a row for each source, and what is left out."""

    drafts: list[Draft] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)
    conversations: int = 0
    notes: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def import_transcripts(
    invocation: Invocation, client: str, path: Path | None, *, since: float | None, dry_run: bool
) -> None:
    """Reads everything first, then stores it as one group."""
    space_name = invocation.space_name()
    with progress("Reading") as report:
        found = list(read_everything(client, path, report))
    if dry_run:
        _print_plan(invocation, make_plan(found, invocation.config(), since=since, recorded=()), space_name)
        return
    with invocation.in_space(create=True) as space:
        plan = make_plan(
            found, invocation.config(), since=since, recorded=space.conversations(limit=_CONVERSATIONS_MAX)
        )
        with progress("Importing") as report:
            total = len(plan.drafts)
            imported = space.add_many(plan.drafts, progress=lambda done: report(done, total))
    if invocation.json:
        document = {"imported": imported, "conversations": plan.conversations, "notes": plan.notes}
        print_document({**document, "left_out": dict(plan.left_out)})
        return
    click.echo(f"{_describe(plan)} read, {count(imported.created, 'memory', 'memories')} imported into {space_name}")
    if imported.existing:
        click.echo(f"{imported.existing:,} already known")
    _print_left_out(plan)
    if imported.created:
        click.echo(f"Undo: afterturn undo {imported.group}")
        note("Vectors are made at the next search, or now: afterturn worker --once")


def make_plan(
    found: Iterable[FoundConversation | FoundNotes], config: Config, *, since: float | None, recorded: Iterable[str]
) -> Plan:
    """Leaves out conversations that a hook recorded while they happened."""
    plan, known, gate = Plan(), set(recorded), Gate(config, SystemClock(), TimeOrderedIds())
    for source in found:
        if isinstance(source, FoundConversation) and source.transcript.conversation in known:
            plan.left_out["conversation that was recorded when it happened"] += 1
            continue
        drafts = list(_admissible(source.drafts(since), gate, plan))
        if not drafts:
            continue
        plan.drafts.extend(drafts)
        if isinstance(source, FoundConversation):
            plan.conversations += 1
        else:
            plan.notes += len(drafts)
        plan.rows.append(_row(source, drafts))
    return plan


def _admissible(drafts: Iterable[Draft], gate: Gate, plan: Plan) -> Iterator[Draft]:
    for draft in drafts:
        kept = draft
        if draft.kind is Kind.RECORD:
            kept = replace(draft, text=cut(draft.text, RECORD_BYTES_MAX, "…"))
        try:
            gate.admit_import(kept)
        except InvalidInput as error:
            plan.left_out[f"text that cannot be stored ({type(error).__name__})"] += 1
        else:
            yield kept


def _row(source: FoundConversation | FoundNotes, drafts: list[Draft]) -> tuple[str, ...]:
    last = max(draft.occurred_at or 0.0 for draft in drafts)
    day = datetime.fromtimestamp(last).astimezone().date().isoformat()
    words = one_line(drafts[0].text)[:_SHOWN_CHARS_MAX]
    where = source.project or ""
    return (day, where, str(len(drafts)), words if isinstance(source, FoundConversation) else f"notes: {words}")


def _describe(plan: Plan) -> str:
    parts = [count(plan.conversations, "conversation")] if plan.conversations or not plan.notes else []
    return " and ".join([*parts, *([count(plan.notes, "note")] if plan.notes else [])])


def _print_plan(invocation: Invocation, plan: Plan, space_name: str) -> None:
    if invocation.json:
        names = ("last", "project", "entries", "begins")
        rows = [dict(zip(names, row, strict=True)) for row in plan.rows]
        print_document({"entries": len(plan.drafts), "sources": rows, "left_out": dict(plan.left_out)})
        return
    if plan.rows:
        print_table(("LAST", "PROJECT", "ENTRIES", "BEGINS"), sorted(plan.rows))
    entries = count(len(plan.drafts), "memory", "memories")
    click.echo(f"{_describe(plan)}: {entries} would be imported into {space_name}. Nothing was changed.")
    _print_left_out(plan)


def _print_left_out(plan: Plan) -> None:
    for reason, number in sorted(plan.left_out.items()):
        click.echo(f"{number:,} left out: {reason}", err=True)
