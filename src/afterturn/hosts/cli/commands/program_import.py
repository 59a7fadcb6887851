"""`import --from PROGRAM`: past conversations and notes of other programs, and exports of other memory libraries."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import click

from afterturn.config import Config
from afterturn.errors import AfterturnError, InvalidFile, InvalidInput, InvalidName
from afterturn.guard.gate import RECORD_BYTES_MAX, Gate
from afterturn.hosts.cli.command import Invocation
from afterturn.hosts.cli.output import ProgressCallback, count, note, one_line, print_document, print_table, progress
from afterturn.hosts.transcripts.libraries import make_reader, read_library
from afterturn.hosts.transcripts.library_export import LibraryExport, RefusedItem
from afterturn.hosts.transcripts.reading import FoundConversation, FoundNotes, read_everything
from afterturn.runtime.clock import SystemClock, TimeOrderedIds
from afterturn.space.transfer import Imported
from afterturn.text import cut
from afterturn.types import Draft, Kind
from afterturn.validation import check_space

_CONVERSATIONS_MAX = 10_000


@dataclass(slots=True)
class Plan:
    """The plan of an import: drafts in order of the files, a row for each source, and what is left out."""

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
    print_ending(imported, lambda: _print_left_out(plan))


def print_ending(imported: Imported, print_left_out: Callable[[], None]) -> None:
    """Prints how many were known, what was left out, and how to undo the import."""
    if imported.existing:
        click.echo(f"{imported.existing:,} already known")
    print_left_out()
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
        try:
            yield _checked(draft, gate)
        except InvalidInput as error:
            plan.left_out[f"text that cannot be stored ({type(error).__name__})"] += 1


def _checked(draft: Draft, gate: Gate) -> Draft:
    """The draft with a long message cut. Raises InvalidInput if it cannot be stored."""
    if draft.kind is Kind.RECORD:
        draft = replace(draft, text=cut(draft.text, RECORD_BYTES_MAX, "…"))
    gate.admit_import(draft)
    return draft


def _row(source: FoundConversation | FoundNotes, drafts: list[Draft]) -> tuple[str, ...]:
    day = _day(max(draft.occurred_at or 0.0 for draft in drafts))
    words = _shown(drafts[0].text)
    said = words if isinstance(source, FoundConversation) else f"notes: {words}"
    return (day, source.project or "", str(len(drafts)), said)


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


def _print_left_out(plan: Plan | LibraryPlan) -> None:
    for reason, number in sorted(plan.left_out.items()):
        click.echo(f"{number:,} left out: {reason}", err=True)


_SHOWN_CHARS_MAX = 60
_LISTED_MAX = 20
_STEP = 100
_NAMESPACE_HINT = "Say which part of a namespace is the user, for example: --namespace 'memories.{user}'."


@dataclass(frozen=True, slots=True)
class LibraryChoices:
    """The options of the command. Without `users` or `space_per_user`, only the space's own user is imported."""

    users: tuple[str, ...]
    since: float | None
    namespace: str | None
    _: KW_ONLY
    space_per_user: bool
    skip_bad: bool
    keep_origin: bool


class ImportPlace(NamedTuple):
    """The file, the person's space, and the space for what names no user, with `space_per_user`; None leaves it out."""

    file: Path
    space: str
    rest: str | None


@dataclass(slots=True)
class LibraryPlan:
    """Drafts by space, a row for each user, what cannot be stored, and what is left out."""

    spaces: dict[str, list[Draft]] = field(default_factory=dict)
    rows: list[tuple[str, ...]] = field(default_factory=list)
    refused: list[RefusedItem] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return sum(map(len, self.spaces.values()))


def import_library(invocation: Invocation, library: str, file: Path, choices: LibraryChoices, *, dry_run: bool) -> None:
    """Reads and checks everything first, then stores it as one group."""
    if choices.namespace is not None and library != "langgraph":
        raise click.UsageError("--namespace needs --from langgraph.")
    if choices.users and choices.space_per_user:
        raise click.UsageError("--user and --space-per-user exclude each other. Leave one out.")
    if choices.space_per_user and library == "langgraph" and choices.namespace is None:
        raise click.UsageError(f"--space-per-user needs --namespace here. {_NAMESPACE_HINT}")
    reader = make_reader(library, choices.namespace)
    with progress("Reading") as report:
        export = read_library(reader, file, SystemClock().now(), report)
    space_name = invocation.space_name()
    place = ImportPlace(file, space_name, space_name if invocation.space is not None else None)
    with progress("Checking") as report:
        plan = plan_library(export, invocation.config(), choices, report, place)
    if dry_run:
        _print_library_plan(invocation, plan)
        return
    if plan.refused and not choices.skip_bad:
        first, others = plan.refused[0], len(plan.refused) - 1
        also = f" {count(others, 'other item')} also refused." if others else ""
        raise InvalidFile(
            f"{file}, {one_line(first.where)}: {first.message}{also} Nothing was imported. "
            "Correct the file, or add --skip-bad to import the rest."
        )
    group = TimeOrderedIds().new()
    imported = _store_plan(invocation, plan, group)
    if invocation.print_json(
        {"group": group, "spaces": imported, "bad": plan.refused, "left_out": dict(plan.left_out)}
    ):
        return
    _print_imported(imported, group)
    _print_rest(plan)


def plan_library(
    export: LibraryExport,
    config: Config,
    choices: LibraryChoices,
    report: ProgressCallback,
    place: ImportPlace,
) -> LibraryPlan:
    plan = LibraryPlan(refused=export.refused, left_out=export.left_out)
    by_owner = _drafts_by_owner(export, choices, plan)
    is_namespace = export.library == "langgraph" and choices.namespace is None
    _check_users(by_owner, choices, place, is_namespace=is_namespace)
    checked, total = 0, sum(map(len, by_owner.values()))
    for owner, found in by_owner.items():
        space = _space_of(owner, found, choices, plan, place)
        begun, checked = checked, checked + len(found)
        if space is None:
            continue
        if owner not in ("", space):
            found = [(where, replace(draft, metadata={**draft.metadata, "owner": owner})) for where, draft in found]
        drafts = list(_storable(enumerate(found, start=begun), config, plan, lambda done: report(done, total)))
        if drafts:
            plan.spaces.setdefault(space, []).extend(drafts)
            last = max(draft.occurred_at or 0.0 for draft in drafts)
            messages = sum(draft.kind is Kind.RECORD for draft in drafts)
            counts = (str(len(drafts) - messages), str(messages), _day(last) if last else "")
            plan.rows.append((one_line(space), _shown(_user_in(owner) or owner), *counts))
    return plan


def _drafts_by_owner(
    export: LibraryExport, choices: LibraryChoices, plan: LibraryPlan
) -> dict[str, list[tuple[str, Draft]]]:
    """Each draft with its place in the file."""
    by_owner: dict[str, list[tuple[str, Draft]]] = {}
    facts = ((fact.owner, fact.where, fact.draft) for fact in export.facts)
    messages = (
        (conversation.owner, where, draft)
        for conversation in export.conversations()
        for where, draft in conversation.drafts(keep_origin=choices.keep_origin)
    )
    for owner, where, draft in chain(facts, messages):
        if choices.since is not None and (draft.occurred_at or 0.0) < choices.since:
            plan.left_out["memories that are older than --since, or have no time"] += 1
        else:
            by_owner.setdefault(owner, []).append((where, draft))
    return by_owner


def _check_users(
    by_owner: Mapping[str, Sequence[object]],
    choices: LibraryChoices,
    place: ImportPlace,
    *,
    is_namespace: bool,
) -> None:
    """Raises InvalidInput if a space would get memories of another person without the person's choice.

    With `is_namespace`, the users are namespaces as a whole.
    """
    named = {_user_in(owner): len(found) for owner, found in by_owner.items() if _user_in(owner)}
    listed = ", ".join(f"{_shown(user)} ({number:,})" for user, number in list(named.items())[:_LISTED_MAX])
    unknown = [user for user in choices.users if user not in named]
    if unknown:
        has = f"It has those of: {listed}." if named else "It names no user: leave --user out."
        raise InvalidInput(f"{place.file} has no memories of {_shown(unknown[0])}. {has}")
    others = [user for user in named if place.space != f"user:{user}"]
    if others and not choices.users and not choices.space_per_user:
        hint = f" {_NAMESPACE_HINT}" if is_namespace else ""
        raise InvalidInput(
            f"{place.file} has memories of other users than that of {place.space}: {listed}.{hint} Add "
            "--space-per-user to import those of each user ID into user:ID, or "
            f"--user {shlex.quote(_shown(others[0]))} to import theirs into {place.space}."
        )


def _user_in(owner: str) -> str:
    """Blank for nobody, and for an agent or a run without a user."""
    return owner.removeprefix("user:") if owner.startswith("user:") else ""


def _space_of(
    owner: str,
    found: Sequence[object],
    choices: LibraryChoices,
    plan: LibraryPlan,
    place: ImportPlace,
) -> str | None:
    """None if the memories of this owner are left out."""
    user = _user_in(owner)
    if choices.users:
        if user not in choices.users:
            reason = "memories of users that --user does not name" if user else "memories that name no user"
            plan.left_out[reason] += len(found)
        return place.space if user in choices.users else None
    if not choices.space_per_user:
        return place.space
    if not owner:
        if place.rest is None:
            plan.left_out["memories that name no user: add --space NAME to import them there"] += len(found)
        return place.rest
    try:
        return check_space(owner)
    except InvalidName:
        plan.refused.append(RefusedItem(_shown(owner), "A space cannot have this name. Import it with --user."))
        return None


def _storable(
    found: Iterable[tuple[int, tuple[str, Draft]]], config: Config, plan: LibraryPlan, advance: Callable[[int], None]
) -> Iterator[Draft]:
    """`found` is numbered, for `advance`."""
    gate = Gate(config, SystemClock(), TimeOrderedIds())
    for number, (where, draft) in found:
        if number % _STEP == 0:
            advance(number)
        try:
            yield _checked(draft, gate)
        except AfterturnError as error:
            plan.refused.append(RefusedItem(where, str(error)))


def _store_plan(invocation: Invocation, plan: LibraryPlan, group: str) -> dict[str, Imported]:
    """An error says what was stored before it."""
    imported: dict[str, Imported] = {}
    before = stored = 0
    if not plan.spaces:
        return imported

    def advance(done: int) -> None:
        nonlocal stored
        stored = before + done
        report(stored, plan.total)

    with invocation.memory(create=True) as memory, progress("Importing") as report:
        for name, drafts in plan.spaces.items():
            try:
                imported[name] = memory.space(name).add_many(drafts, group=group, progress=advance)
            except AfterturnError as error:
                begun = [*imported, *([name] if stored > before else [])]
                undo = "".join(f" Undo: {_undo_line(one, group)}." for one in begun[-_LISTED_MAX:])
                raise AfterturnError(
                    f"{error} {stored:,} of {plan.total:,} memories were stored before.{undo}"
                ) from error
            before = stored
    return imported


def _print_imported(imported: Mapping[str, Imported], group: str) -> None:
    """A line for each space, then the lines that take the import back. Of many spaces, only some are listed."""
    for name, result in list(imported.items())[:_LISTED_MAX]:
        known = f", {result.existing:,} already known" if result.existing else ""
        click.echo(f"{count(result.created, 'memory', 'memories')} imported into {one_line(name)}{known}")
    if len(imported) != 1:
        total = sum(result.created for result in imported.values())
        click.echo(f"{count(total, 'memory', 'memories')} imported into {count(len(imported), 'space')}")
    created = [name for name, result in imported.items() if result.created]
    for name in created[:_LISTED_MAX]:
        click.echo(f"Undo: {_undo_line(name, group)}")
    if len(created) > _LISTED_MAX:
        click.echo(f"The same line with another --space undoes it in {len(created) - _LISTED_MAX:,} more")
    if created:
        note("Vectors are made at the next search, or now: afterturn worker --once")


def _undo_line(space: str, group: str) -> str:
    return f"afterturn undo --space {shlex.quote(one_line(space))} {group}"


def _shown(name: str) -> str:
    return one_line(name)[:_SHOWN_CHARS_MAX]


def _day(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().date().isoformat()


def _print_library_plan(invocation: Invocation, plan: LibraryPlan) -> None:
    if invocation.json:
        names = ("space", "user", "facts", "messages", "last")
        rows = [dict(zip(names, row, strict=True)) for row in plan.rows]
        document = {"entries": plan.total, "users": rows, "bad": plan.refused, "left_out": dict(plan.left_out)}
        print_document(document)
        return
    if plan.rows:
        print_table(("SPACE", "USER", "FACTS", "MESSAGES", "LAST"), sorted(plan.rows))
    entries, spaces = count(plan.total, "memory", "memories"), count(len(plan.spaces), "space")
    click.echo(f"{entries} would be imported into {spaces}. Nothing was changed.")
    _print_rest(plan)


def _print_rest(plan: LibraryPlan) -> None:
    _print_left_out(plan)
    for item in plan.refused[:_LISTED_MAX]:
        click.echo(f"{one_line(item.where)} refused: {one_line(item.message)}", err=True)
    if len(plan.refused) > _LISTED_MAX:
        click.echo(f"{len(plan.refused) - _LISTED_MAX:,} more refused", err=True)
