"""`export` and `import`: a space as JSON Lines. Every line of an import is checked before any is stored."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from datetime import UTC
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from afterturn.config import Config
from afterturn.errors import AfterturnError, InvalidFile, InvalidInput
from afterturn.guard.gate import Gate
from afterturn.guard.trust import TRUST_MIN, unprivileged
from afterturn.hosts.cli.changes import shortened
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.options import TARGETS, parse_time, time_option
from afterturn.hosts.cli.output import count, dump_line, one_line, print_document, print_table, progress
from afterturn.hosts.state import check_output_path
from afterturn.runtime.clock import SystemClock, TimeOrderedIds
from afterturn.runtime.files import replace_file
from afterturn.space.arguments import parse_target
from afterturn.types import Draft, Entry, Filter, Kind, Origin, Status, Verb
from afterturn.types.operations import OwnDraft
from afterturn.validation import check_id

if TYPE_CHECKING:
    from afterturn import blocking

_STEP = 100
_PAGE = 1000


@command("export")
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option(
    "--markdown",
    "folder",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Write MEMORY.md and topic files there.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def export(invocation: Invocation, file: str, folder: Path | None, *, force: bool) -> None:
    """Write everything stored in a space as JSON Lines."""
    if folder is not None:
        if file != "-":
            raise click.UsageError("--markdown writes into its folder. Leave FILE out.")
        check_output_path(folder.expanduser())
        _export_markdown(invocation, folder.expanduser(), force=force)
        return
    target = None if file == "-" else Path(file)
    if target is not None:
        check_output_path(target)
        if target.is_dir():
            raise InvalidFile(f"{target} is a folder. Name a file in it.")
        if target.exists() and not force:
            raise InvalidFile(f"{target} already exists. Add --force to replace it.")
    bar = nullcontext(lambda done, total: None) if target is None else progress("Exporting")
    with invocation.in_space() as space, _writer(target) as stream, bar as report:
        lines = 0
        for lines, line in enumerate(space.export(), start=1):
            stream.write(dump_line(line).encode() + b"\n")
            if lines % _STEP == 0:
                report(lines, 0)
    if target is None:
        return
    invocation.answer({"file": str(target), "lines": lines}, f"{target}  {count(lines, 'line')}")


def _export_markdown(invocation: Invocation, folder: Path, *, force: bool) -> None:
    from afterturn.hosts.memory_files import write_memory_files

    with invocation.in_space() as space:
        entries = list(_statements(space))
    written = write_memory_files(entries, folder, invocation.config(), SystemClock().now(), force=force)
    if invocation.print_json(written):
        return
    memories = count(written.memories, "memory", "memories")
    click.echo(f"{folder}  {memories} in {count(written.files, 'file')}")
    if written.left_out:
        click.echo(f"{written.left_out:,} left out: reports of others, or not valid now")


def _statements(space: blocking.Space) -> Iterator[Entry]:
    before: str | None = None
    while page := space.list(limit=_PAGE, before=before, filter=Filter(kind=Kind.STATEMENT)):
        yield from page
        before = page[-1].id


@contextmanager
def _writer(target: Path | None) -> Iterator[IO[bytes]]:
    if target is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with replace_file(target, mode=0o600) as stream:
            yield stream
    except AfterturnError:
        raise  # DeadlineExceeded is an OSError too
    except OSError as error:
        raise InvalidFile(
            f"{target} cannot be written: {error.strerror}. Free some space, or choose another path."
        ) from error


CLIENTS = ("claude-code", "codex", "gemini-cli", "qwen-code", "opencode", "chatgpt", "claude")
LIBRARIES = ("mem0", "zep", "letta", "langgraph")
_LINE_BYTES_MAX = 16 * 1024 * 1024
_SHOWN_MAX = 20
_MARKDOWN = (".md", ".markdown")


@command("import")
@click.argument("names", metavar="[PROGRAM] [FILE|-]", nargs=-1)
@click.option(
    "--from",
    "program",
    type=click.Choice([*CLIENTS, *LIBRARIES]),
    help="Read what this program recorded, by default in your home, or what this library exported.",
)
@time_option("--since", help="With --from: only what was said from this time on.")
@click.option("--dry-run", is_flag=True, help="Show what would be imported, and change nothing.")
@click.option(
    "--user",
    "users",
    metavar="ID",
    multiple=True,
    help="From a library: import what it knows about this user. Can be repeated.",
)
@click.option("--space-per-user", is_flag=True, help="From a library: import what it knows about ID into user:ID.")
@click.option("--namespace", metavar="PATTERN", help="From langgraph: where the user is, such as memories.{user}.")
@click.option("--skip-bad", is_flag=True, help="Import the valid lines and list the others.")
@click.option(
    "--keep-origin",
    is_flag=True,
    help='The file is yours: trust "origin", "pinned", "firm" and who said what. An export comes back as it was.',
)
def import_entries(
    invocation: Invocation, names: tuple[str, ...], program: str | None, *, dry_run: bool, **options: Any
) -> None:
    """Read memories from a file or stdin, or from another program or library."""
    program, file = _split_names(names, program)
    is_library, keep_origin = program in LIBRARIES, options["keep_origin"]
    if not is_library and (options["users"] or options["space_per_user"] or options["namespace"] is not None):
        raise click.UsageError(f"--user, --space-per-user and --namespace need --from {'|'.join(LIBRARIES)}.")
    if program is not None and is_library:
        from afterturn.hosts.cli.commands.program_import import LibraryChoices, import_library

        if file is None or file == "-":
            raise click.UsageError(f"Name the FILE that {program} exported.")
        import_library(invocation, program, Path(file).expanduser(), LibraryChoices(**options), dry_run=dry_run)
    elif program is not None:
        if options["skip_bad"] or keep_origin or file == "-":
            raise click.UsageError(
                f"--from {program} takes a file or folder, and neither --skip-bad nor --keep-origin."
            )
        from afterturn.hosts.cli.commands.program_import import import_transcripts

        path = None if file is None else Path(file).expanduser()
        import_transcripts(invocation, program, path, since=options["since"], dry_run=dry_run)
    elif file is None or options["since"] is not None:
        raise click.UsageError("Name a FILE, or - for stdin. --since needs --from.")
    elif keep_origin and file.endswith(_MARKDOWN):
        raise click.UsageError("Markdown does not say who wrote what. For --keep-origin, use a file of `export`.")
    else:
        _import_lines(invocation, file, skip_bad=options["skip_bad"], keep_origin=keep_origin, dry_run=dry_run)


def _split_names(names: tuple[str, ...], program: str | None) -> tuple[str | None, str | None]:
    """The program and the file. One name alone is a file, even if a program has the same name."""
    programs = (*CLIENTS, *LIBRARIES)
    if len(names) == 2 and program is None and names[0] in programs:
        return names[0], names[1]
    if len(names) > 1:
        raise click.UsageError(f"Name one FILE, or one of these and its FILE: {', '.join(programs)}.")
    file = names[0] if names else None
    if program is None and file in programs and not Path(file).exists():
        raise click.UsageError(
            f"There is no file {file!r} here. To import from {file}: `afterturn import --from {file}`"
        )
    return program, file


def _import_lines(invocation: Invocation, file: str, *, skip_bad: bool, keep_origin: bool, dry_run: bool) -> None:
    space_name, lines = invocation.space_name(), _lines(file)
    if file.endswith(_MARKDOWN):
        lines = _markdown_lines(b"".join(lines))
    reading = LineReader(invocation.config(), keep_origin=keep_origin).read(lines)
    if dry_run:
        _print_plan(invocation, reading, space_name)
        return
    if reading.bad and not skip_bad:
        others = f" {count(len(reading.bad) - 1, 'other line')} also invalid." if len(reading.bad) > 1 else ""
        raise InvalidFile(
            f"{'stdin' if file == '-' else file}, line {reading.bad[0].line}: {reading.bad[0].message}{others} "
            "Nothing was imported. Correct the file, or add --skip-bad to import the rest."
        )
    with invocation.in_space(create=True) as space, progress("Importing") as report:
        total = len(reading.drafts)
        imported = space.add_many(reading.drafts, progress=lambda done: report(done, total), clean=keep_origin)
    if invocation.print_json({"imported": imported, "passed_over": reading.passed_over, "bad": reading.bad}):
        return
    from afterturn.hosts.cli.commands.program_import import print_ending

    click.echo(f"{count(imported.created, 'memory', 'memories')} imported into {space_name}")
    print_ending(imported, lambda: _print_skipped(reading))


def _print_plan(invocation: Invocation, reading: ParsedLines, space_name: str) -> None:
    rows = [(str(one.kind), str(one.target), str(one.origin), shortened(one.text)) for one in reading.drafts]
    if invocation.json:
        named = [dict(zip(("kind", "target", "origin", "begins"), row, strict=True)) for row in rows]
        print_document({"entries": named, "passed_over": reading.passed_over, "bad": reading.bad})
        return
    if rows:
        print_table(("KIND", "TARGET", "ORIGIN", "TEXT"), rows[:_SHOWN_MAX])
    if len(rows) > _SHOWN_MAX:
        click.echo(f"and {len(rows) - _SHOWN_MAX:,} more")
    kinds = Counter(one.kind for one in reading.drafts)
    words = ((Kind.STATEMENT, "statement"), (Kind.RECORD, "recorded message"))
    parts = [count(kinds[kind], noun) for kind, noun in words if kinds[kind]]
    click.echo(f"{' and '.join(parts) or 'Nothing'} would be imported into {space_name}. Nothing was changed.")
    _print_skipped(reading)


def _print_skipped(reading: ParsedLines) -> None:
    if reading.passed_over:
        click.echo(f"{count(reading.passed_over, 'version')} skipped: not current")
    for bad in reading.bad[:_SHOWN_MAX]:
        click.echo(f"line {bad.line} skipped: {one_line(bad.message)}", err=True)
    if len(reading.bad) > _SHOWN_MAX:
        click.echo(f"{count(len(reading.bad) - _SHOWN_MAX, 'more line')} skipped", err=True)


def _lines(file: str) -> Iterator[bytes]:
    try:
        with (
            nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb") as stream,
            progress("Checking") as report,
        ):
            number = 0
            while line := stream.readline(_LINE_BYTES_MAX):
                number += 1
                if number % _STEP == 0:
                    report(number, 0)
                yield line
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {error.strerror}. Check the name and permissions.") from error


def _markdown_lines(content: bytes) -> Iterator[bytes]:
    """The bullets of a text that `afterturn edit --print` wrote. Raises InvalidFile."""
    from afterturn.space.markdown import parse

    try:
        bullets = parse(content.decode("utf-8-sig")).bullets
    except (InvalidInput, UnicodeDecodeError) as error:
        raise InvalidFile(
            f"This is not the Markdown that `afterturn edit --print` writes: {error} To import notes of an agent, add "
            "--from claude-code."
        ) from error
    for one in bullets:
        yield json.dumps({"text": one.text, "target": one.target, "project": one.project}).encode()


# "memory" is what some systems call "environment".
_TARGETS = (*TARGETS, "memory")
_TEXTS = ("agent", "project", "conversation", "speaker")
_TIMES = ("occurred_at", "valid_from", "valid_to", "expires_at")
_KEYS = frozenset(["text", "origin", "target", "pinned", "firm", "metadata", "sources", *_TEXTS, *_TIMES])
# Further keys of a recorded message in an export.
_RECORD_KEYS = frozenset(["kind", "id", "owner", "turn", "position"])


@dataclass(frozen=True, slots=True)
class BadLine:
    line: int
    message: str


@dataclass(slots=True)
class ParsedLines:
    """The lines of a file: valid drafts in order, invalid lines, and how many versions of an export were skipped."""

    drafts: list[Draft] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)
    passed_over: int = 0


class LineReader:
    """Reads plain lines with a "text", or the lines of an export after its header."""

    def __init__(self, config: Config, *, keep_origin: bool) -> None:
        self._gate = Gate(config, SystemClock(), TimeOrderedIds())
        self._keep_origin = keep_origin
        self._is_export = False
        # Of the person's own export: superseded versions before the current one, and what the person decided.
        self._earlier: list[tuple[Mapping[str, object], OwnDraft]] = []
        self._versions: dict[int, tuple[str, object]] = {}
        self._approvals: set[object] = set()
        self._approved: set[tuple[object, object]] = set()
        self._hidden: Counter[object] = Counter()

    def read(self, lines: Iterable[bytes]) -> ParsedLines:
        reading = ParsedLines()
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                self._take(_object(line), reading)
            except InvalidInput as error:
                reading.bad.append(BadLine(number, str(error)))
        reading.passed_over += len(self._earlier)
        for at, (id, version) in self._versions.items():
            draft, is_last = reading.drafts[at], self._versions.get(at + 1, ("",))[0] != id
            assert isinstance(draft, OwnDraft)
            approved = (id, version) in self._approved
            hidden = is_last and self._hidden[id] % 2 == 1
            reading.drafts[at] = replace(draft, proposed=draft.proposed or approved, approved=approved, hidden=hidden)
        return reading

    def _take(self, line: Mapping[str, object], reading: ParsedLines) -> None:
        if "afterturn_export" in line:
            version = line["afterturn_export"]
            if version != 1:
                raise InvalidInput(
                    f"The export has version {_shown(version)}; this afterturn reads version 1. Update afterturn."
                )
            self._is_export = True
            return
        if self._is_export and self._keep_origin:
            self._take_own(line, reading)
            return
        held = _current_entry(line) if self._is_export else line
        if held is None:
            reading.passed_over += "entry" in line
            return
        draft = self._record(held) if held.get("kind") == Kind.RECORD else self._draft(held)
        self._gate.admit_import(draft)
        reading.drafts.append(draft)

    def _take_own(self, line: Mapping[str, object], reading: ParsedLines) -> None:
        """A line of the person's own export. Of a memory, its superseded versions come with the current one."""
        operation, step, entry = line.get("operation"), line.get("step"), line.get("entry")
        if isinstance(operation, dict) and (operation.get("verb"), operation.get("actor")) == _APPROVAL:
            self._approvals.add(_text(operation, "id"))
        elif isinstance(step, dict):
            entry_id, before, after = _text(step, "entry_id"), step.get("before"), step.get("after")
            if _text(step, "operation") in self._approvals and after == Status.ACTIVE:
                self._approved.add((entry_id, _whole_number(step, "version")))
            elif before == after:
                self._hidden[entry_id] += 1
        if not isinstance(entry, dict) or not _is_kept(entry):
            reading.passed_over += "entry" in line
            return
        draft = self._own(entry)
        self._gate.admit_import(draft)
        if entry["status"] == Status.SUPERSEDED:
            self._earlier.append((entry, draft))
            return
        for version, kept in (*self._earlier, (entry, draft)):
            if version["id"] == entry["id"]:
                self._versions[len(reading.drafts)] = str(entry["id"]), _whole_number(version, "version")
                reading.drafts.append(kept)
            else:
                reading.passed_over += 1
        self._earlier.clear()

    def _own(self, entry: Mapping[str, object]) -> OwnDraft:
        held = {key: value for key, value in entry.items() if key in _KEYS | _RECORD_KEYS and value is not None}
        draft = replace(self._record(held), kind=Kind(_choice(entry, "kind", [*Kind], "")))
        trust = entry.get("trust")
        if not isinstance(trust, int) or isinstance(trust, bool):
            raise InvalidInput(f'"trust" is {_shown(trust)}, which is not a whole number.')
        trust = max(0, min(trust, draft.origin.trust))
        if trust < TRUST_MIN:
            draft = replace(unprivileged(replace(draft, origin=Origin.IMPORT)), origin=draft.origin)
        known = {one.name: getattr(draft, one.name) for one in fields(Draft)}
        return OwnDraft(**{**known, "proposed": entry["status"] == Status.PROPOSED}, trust=trust)

    def _record(self, line: Mapping[str, object]) -> Draft:
        """A recorded message keeps its id, so that it is not imported twice."""
        draft = self._draft({key: value for key, value in line.items() if key not in _RECORD_KEYS})
        return replace(
            draft,
            kind=Kind.RECORD,
            id=check_id(line.get("id")),
            owner=_text(line, "owner"),
            turn=_text(line, "turn"),
            position=_whole_number(line, "position"),
        )

    def _draft(self, line: Mapping[str, object]) -> Draft:
        unknown = sorted(set(line) - _KEYS)
        if unknown:
            raise InvalidInput(f'{_shown(unknown[0])} is not a known key. Put it into "metadata", or remove it.')
        text, metadata, sources = line.get("text"), line.get("metadata", {}), line.get("sources", [])
        if not isinstance(text, str):
            raise InvalidInput('"text" is missing or not a string.')
        if not isinstance(metadata, dict):
            raise InvalidInput(f'"metadata" is {_shown(metadata)}. It must be an object.')
        if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
            raise InvalidInput(f'"sources" is {_shown(sources)}. It must be a list of strings.')
        draft = Draft(
            text=text,
            origin=Origin(_choice(line, "origin", [*Origin], "import")) if self._keep_origin else Origin.IMPORT,
            target=parse_target(_choice(line, "target", _TARGETS, "user")),
            pinned=_flag(line, "pinned"),
            firm=_flag(line, "firm"),
            metadata=metadata,
            sources=tuple(sources),
            agent=_text(line, "agent"),
            project=_text(line, "project"),
            conversation=_text(line, "conversation"),
            speaker=_text(line, "speaker"),
            occurred_at=_time(line, "occurred_at"),
            valid_from=_time(line, "valid_from"),
            valid_to=_time(line, "valid_to"),
            expires_at=_time(line, "expires_at"),
        )
        return unprivileged(draft)


def _object(line: bytes) -> Mapping[str, object]:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"It is not UTF-8 text (byte {error.start}).") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"It is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise InvalidInput('It is not a JSON object such as {"text": "..."}.')
    return value


_APPROVAL = (Verb.APPROVE, Origin.USER)


def _is_kept(entry: Mapping[str, object]) -> bool:
    """Also what was replaced, and new memories that wait for approval."""
    status, is_statement = entry.get("status"), entry.get("kind") == Kind.STATEMENT
    waits = status == Status.PROPOSED and entry.get("version") == 1
    return status == Status.ACTIVE or (is_statement and (waits or status == Status.SUPERSEDED))


def _current_entry(line: Mapping[str, object]) -> dict[str, object] | None:
    """The fields of an export's line that a draft takes; None for old versions, operations and events."""
    entry = line.get("entry")
    if not isinstance(entry, dict) or entry.get("status") != Status.ACTIVE:
        return None
    keys = _KEYS | _RECORD_KEYS if entry.get("kind") == Kind.RECORD else _KEYS
    held = {key: value for key, value in entry.items() if key in keys and value is not None}
    origin, trust = entry.get("origin"), entry.get("trust")
    if isinstance(trust, int) and isinstance(origin, str) and origin in [*Origin] and trust < Origin(origin).trust:
        # It was trusted less than its origin because of its sources, which may not be in the file.
        held["origin"] = Origin.IMPORT.value
    return held


def _text(line: Mapping[str, object], key: str) -> str | None:
    value = line.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f'"{key}" is {_shown(value)}, which is not a string.')
    return value


def _whole_number(line: Mapping[str, object], key: str) -> int | None:
    value = line.get(key)
    if value is not None and not isinstance(value, int):
        raise InvalidInput(f'"{key}" is {_shown(value)}, which is not a whole number.')
    return value


def _time(line: Mapping[str, object], key: str) -> float | None:
    value = line.get(key)
    if value is None:
        return None
    if isinstance(value, str):
        return parse_time(value, zone=UTC)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e11:
        return float(value)
    raise InvalidInput(f'"{key}" is {_shown(value)}, which is neither an ISO-8601 time nor Unix seconds.')


def _choice(line: Mapping[str, object], key: str, choices: Sequence[str], default: str) -> str:
    value = line.get(key, default)
    if not isinstance(value, str) or value not in choices:
        raise InvalidInput(f'"{key}" is {_shown(value)}. It must be one of: {", ".join(choices)}.')
    return value


def _flag(line: Mapping[str, object], key: str) -> bool:
    value = line.get(key, False)
    if not isinstance(value, bool):
        raise InvalidInput(f'"{key}" is {_shown(value)}. It must be true or false.')
    return value


def _shown(value: object) -> str:
    return repr(value)[:60]
