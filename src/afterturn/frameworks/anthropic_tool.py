"""The memory tool of Anthropic's SDK (`memory_20250818`), whose files are memories of one space.

One statement is one file, so a person sees, searches, edits, undoes and forgets files as any memory, and a turn recalls
them. Files exist only in the store: a path is a name there, and directories are the parts of names.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import unicodedata
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeAlias
from urllib.parse import unquote

from afterturn.errors import AfterturnError, Conflict, InvalidInput, NotFound
from afterturn.frameworks.core import FrameworkMemory, MemoryTarget
from afterturn.frameworks.requirements import check_framework
from afterturn.guard.gate import Gate
from afterturn.guard.output_filter import OutputFilter
from afterturn.guard.scanning import suspicion_reason
from afterturn.ports import Unit
from afterturn.runtime.bridge import AsyncFacade, BlockingFacade, Bridged
from afterturn.runtime.loop_thread import LoopThread
from afterturn.services import Services
from afterturn.types import Admitted, Draft, Entry, Filter, Kind, Operation, Origin, Scope, Status, Step, Verb
from afterturn.validation import check_name, check_space, is_storable

check_framework("anthropic")

from anthropic.lib.tools import ToolError  # noqa: E402
from anthropic.tools.memory import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool  # noqa: E402
from anthropic.types.beta import (  # noqa: E402
    BetaCacheControlEphemeralParam,
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)

ROOT = "/memories"
# A model reads a whole file at once. Larger notes are easier to find as several files.
FILE_BYTES_MAX = 100_000
FILES_MAX = 500
PATH_BYTES_MAX = 1_000
NAME_BYTES_MAX = 255
DEPTH_MAX = 16
# White space at the ends of a file is in its metadata, since the text of a memory has none.
_BLANKS_BYTES_MAX = 1_000
_LEVELS_SHOWN = 2
_DECODED_MAX = 5
_NUMBER_WIDTH = 6
_SNIPPET_LINES = 2

# Keys of metadata.
_MARK, _PATH, _HEAD, _TAIL, _BLANK = "memory_tool", "file_path", "file_head", "file_tail", "file_blank"
_FILES = Filter(kind=Kind.STATEMENT, metadata={_MARK: True})
# Characters that are drawn like a slash or a backslash and that no normal form replaces by one.
_SLASHES = frozenset("\\\u2044\u2215\u2216\u2571\u2572\u27cb\u27cd\u29f5\u29f8\u29f9\u3033\u30ce\u4e3f")

P = ParamSpec("P")
Parts: TypeAlias = tuple[str, ...]
"""The names of a path below the root; the root has none."""


@contextmanager
def errors_for_the_model() -> Iterator[None]:
    """The SDK gives the text of a ToolError to the model as the result of its call."""
    try:
        yield
    except AfterturnError as error:
        raise ToolError(str(error)) from error


def answering(
    command: Callable[Concatenate[FileCommands, P], Coroutine[Any, Any, str]],
) -> Callable[Concatenate[FileCommands, P], Coroutine[Any, Any, str]]:
    """A command whose errors are the text of a ToolError."""

    @functools.wraps(command)
    async def call(self: FileCommands, /, *args: P.args, **kwargs: P.kwargs) -> str:
        with errors_for_the_model():
            return await command(self, *args, **kwargs)

    return call


# Paths


def parts_of(path: object) -> Parts:
    """The names below the root. Raises ToolError for a path that leaves it, in whatever form.

    No path can leave the store, but files may be exported to folders, and a name must mean the same there.
    """
    if not isinstance(path, str):
        raise ToolError("A path is missing. Use a path such as /memories/notes.md.")
    shown, plain = _shown(path), unicodedata.normalize("NFC", path)
    if plain != ROOT and not plain.startswith(f"{ROOT}/"):
        raise ToolError(f"Path must start with /memories, got: {shown}")
    reading = plain
    for _ in range(_DECODED_MAX):
        # A careless program could read it differently: percent signs decoded, look-alikes replaced.
        if _leaves(reading) or _leaves(unicodedata.normalize("NFKC", reading)):
            raise ToolError(f"Path {shown} would escape /memories directory")
        reading = unquote(reading)
    parts = tuple(part for part in plain[len(ROOT) :].split("/") if part not in ("", "."))
    if len(plain.encode("utf-8", "replace")) > PATH_BYTES_MAX or len(parts) > DEPTH_MAX:
        raise ToolError(f"The path {shown} is too long. Use at most {PATH_BYTES_MAX} bytes and {DEPTH_MAX} levels.")
    for part in parts:
        if not part.isprintable() or part != part.strip() or not is_storable(part):
            raise ToolError(f"The path {shown} has characters that cannot be in a name. Use plain letters and digits.")
        if len(part.encode()) > NAME_BYTES_MAX:
            raise ToolError(f"The name {_shown(part)} is too long. Use at most {NAME_BYTES_MAX} bytes.")
    return parts


def _leaves(path: str) -> bool:
    names = path.split("/")
    # A dot alone, or with white space or another dot, is a folder for some systems.
    dots = any(len(name.strip()) > 1 and not name.strip(" .\u2024\u2025\u2026") for name in names)
    return dots or "\0" in path or any(character in _SLASHES for character in path)


def _shown(path: str) -> str:
    """For a message: one line, not too long."""
    line = "".join(one if one.isprintable() else "\ufffd" for one in path)
    return line if len(line) <= 200 else f"{line[:200]}…"


def path_of(parts: Parts) -> str:
    return "/".join((ROOT, *parts))


def _id_of(space: str, path: str) -> str:
    """The same path has the same id in every process, so that concurrent writes meet in one memory."""
    named = json.dumps([space, _PATH, path]).encode()
    return base64.b32encode(hashlib.blake2b(named, digest_size=10).digest()).decode().lower()


# Files


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A memory that is a file."""

    parts: Parts
    content: str
    entry: Entry

    @classmethod
    def read(cls, entry: Entry, now: float) -> MemoryFile | None:
        """None if the memory is not a file, is not active, or has expired."""
        path = entry.metadata.get(_PATH)
        if not isinstance(path, str) or not entry.holds(now):
            return None
        text = "" if entry.metadata.get(_BLANK) is True and entry.text == path else entry.text
        head, tail = entry.metadata.get(_HEAD), entry.metadata.get(_TAIL)
        parts = tuple(path.removeprefix(ROOT).strip("/").split("/"))
        return cls(parts, f"{head or ''}{text}{tail or ''}", entry)

    @property
    def lines(self) -> list[str]:
        return self.content.split("\n")


@dataclass(frozen=True, slots=True)
class MemoryFileChange:
    """One change: a file that the guard has admitted, or the deletion of one. `seen` is the version that the change was
    made from; None if there must be no file."""

    parts: Parts
    admitted: Admitted | None
    seen: int | None


class FileCommands:
    """The commands of the tool on the files of one space. They run on memory's loop."""

    def __init__(self, services: Services, space: str) -> None:
        self.services = services
        self._space = space
        self._scope = Scope(services.tenant, (space,))
        # A file may be longer than a statement, which is one sentence.
        self._gate = Gate(services.config, services.clock, services.ids, statement_bytes_max=FILE_BYTES_MAX)

    @answering
    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        parts = parts_of(command.path)
        file = await self._find(parts) if parts else None
        if file is not None:
            return self._numbered(file, command.path, command.view_range)
        files = await self._below(parts)
        if not files and parts:
            raise ToolError(f"The path {command.path} does not exist. Please provide a valid path.")
        return _listed(files, parts)

    @answering
    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        parts, text = parts_of(command.path), _text(command.file_text, "file_text")
        files = {file.parts for file in await self._all()}
        if not parts or parts in files or any(other[: len(parts)] == parts for other in files):
            raise ToolError(f"File {command.path} already exists")
        above = next((parts[:depth] for depth in range(1, len(parts)) if parts[:depth] in files), None)
        if above is not None:
            raise ToolError(f"{path_of(above)} is a file, so {command.path} cannot be created below it.")
        if len(files) >= FILES_MAX:
            raise ToolError(f"There are {FILES_MAX} files already. Delete some, or put more into one file.")
        admitted, removed = self._admit(parts, text)
        waits = await self._write([MemoryFileChange(parts, admitted, None)])
        return f"File created successfully at: {command.path}{removed}{waits}"

    @answering
    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        file = await self._get(command.path)
        old, new = _text(command.old_str, "old_str"), _text(command.new_str, "new_str")
        count = file.content.count(old) if old else 0
        if count == 0:
            raise ToolError(f"No replacement was performed, old_str `{old}` did not appear verbatim in {command.path}.")
        if count > 1:
            lines = ", ".join(str(_line_at(file.content, place) + 1) for place in _places(file.content, old))
            raise ToolError(
                f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {lines}. "
                "Please ensure it is unique"
            )
        stored, notes = await self._rewrite(file, file.content.replace(old, new))
        at = _line_at(file.content, file.content.find(old))
        snippet = _with_numbers(stored.split("\n"), max(0, at - _SNIPPET_LINES), at + _SNIPPET_LINES + 1)
        title = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        return f"{title}\n{snippet}{notes}"

    @answering
    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        file, text, at = await self._get(command.path), _text(command.insert_text, "insert_text"), command.insert_line
        lines = file.lines[:-1] if file.lines[-1] == "" else file.lines
        if not isinstance(at, int) or not 0 <= at <= len(lines):
            raise ToolError(f"Invalid `insert_line` parameter: {at}. It should be within the range [0, {len(lines)}].")
        content = "\n".join([*lines[:at], text.rstrip("\n"), *lines[at:]])
        _, notes = await self._rewrite(file, content if content.endswith("\n") else f"{content}\n")
        return f"The file {command.path} has been edited.{notes}"

    @answering
    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        parts = parts_of(command.path)
        if not parts:
            raise ToolError("Cannot delete the /memories directory itself")
        files = await self._below(parts)
        if not files:
            raise ToolError(f"The path {command.path} does not exist")
        return f"Successfully deleted {command.path}{await self._remove(files)}"

    @answering
    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        old, new = parts_of(command.old_path), parts_of(command.new_path)
        if not old:
            raise ToolError("Cannot rename the /memories directory itself")
        files = {file.parts: file for file in await self._all()}
        if not new or any(parts[: len(new)] == new for parts in files):
            raise ToolError(f"The destination {command.new_path} already exists")
        moved = [file for parts, file in files.items() if parts[: len(old)] == old]
        if not moved:
            raise ToolError(f"The path {command.old_path} does not exist")
        if any(new[:depth] in files or new[:depth] == old for depth in range(1, len(new))):
            raise ToolError(f"{command.new_path} is below a file, or below {command.old_path} itself.")
        changes = [MemoryFileChange(file.parts, None, file.entry.version) for file in moved]
        for file in moved:
            target = (*new, *file.parts[len(old) :])
            changes.append(MemoryFileChange(target, self._admit(parts_of(path_of(target)), file.content)[0], None))
        waits = await self._write(changes)
        return f"Successfully renamed {command.old_path} to {command.new_path}{waits}"

    @answering
    async def clear_all_memory(self) -> str:
        """Deletes all files, and no other memory. `undo` of the space brings them back."""
        return f"All memory cleared{await self._remove(await self._all())}"

    # Reading

    async def _all(self) -> list[MemoryFile]:
        """All files, by path."""
        now = self.services.clock.now()
        entries = await self.services.store.read(
            lambda unit: unit.memories.newest(self._scope, _FILES, limit=FILES_MAX * 2), at=self._scope
        )
        found = [file for entry in entries if (file := MemoryFile.read(entry, now)) is not None]
        # Metadata can be anybody's; the id is only a file's.
        own = (file for file in found if file.entry.id == _id_of(self._space, path_of(file.parts)))
        return sorted(own, key=lambda file: file.parts)

    async def _below(self, parts: Parts) -> list[MemoryFile]:
        return [file for file in await self._all() if file.parts[: len(parts)] == parts]

    async def _find(self, parts: Parts) -> MemoryFile | None:
        now = self.services.clock.now()
        entry = await self.services.store.read(lambda unit: self._entry(unit, parts), at=self._scope)
        return None if entry is None else MemoryFile.read(entry, now)

    def _entry(self, unit: Unit, parts: Parts) -> Entry | None:
        try:
            return unit.memories.get(self._scope, _id_of(self._space, path_of(parts)))
        except NotFound:
            return None

    async def _get(self, path: str) -> MemoryFile:
        parts = parts_of(path)
        file = await self._find(parts) if parts else None
        if file is not None:
            return file
        if not parts or await self._below(parts):
            raise ToolError(f"The path {path} is not a file.")
        raise ToolError(f"The path {path} does not exist. Please provide a valid path.")

    def _numbered(self, file: MemoryFile, path: str, view_range: object) -> str:
        """Scanned again, since scanners improve after a file was stored. Anything but two numbers shows all lines."""
        first, last = 1, -1
        if isinstance(view_range, list) and len(view_range) == 2 and all(isinstance(one, int) for one in view_range):
            first, last = view_range
        screen = OutputFilter(scanning=self.services.config.scan_policy)
        text = screen.shown(file.entry)
        if text is None:
            reason = "; ".join(screen.withheld.values())
            raise ToolError(
                f"The content of {path} is withheld ({reason}). You can delete the file, and write another."
            )
        lines = file.content.replace(file.entry.text, text).split("\n")
        shown = _with_numbers(lines, max(1, first) - 1, None if last == -1 else last)
        return f"Here's the content of {path} with line numbers:\n{shown}"

    # Writing

    async def _rewrite(self, file: MemoryFile, content: str) -> tuple[str, str]:
        """Returns the content as it is stored, and a note about it for the model."""
        admitted, removed = self._admit(file.parts, content)
        waits = await self._write([MemoryFileChange(file.parts, admitted, file.entry.version)])
        return self._gate.redact(content).text, f"{removed}{waits}"

    def _admit(self, parts: Parts, content: str) -> tuple[Admitted, str]:
        """Returns the file for the store, and a note for the model if something was removed."""
        path, size = path_of(parts), len(content.encode("utf-8", "replace"))
        if size > FILE_BYTES_MAX:
            raise ToolError(
                f"{path} would have {size} bytes; a memory file has at most {FILE_BYTES_MAX}. Split it into several."
            )
        if not is_storable(content):
            raise ToolError("The text has NUL characters or halves of surrogate pairs. Leave them out.")
        clean = self._gate.redact(content)
        if suspected := self._gate.scanner.suspect(clean.text):
            raise ToolError(
                f"Not stored: the text contains instructions for its reader ({suspicion_reason(suspected)}). "
                "Write down what is true, not what to do."
            )
        text = clean.text.strip()
        head = clean.text[: len(clean.text) - len(clean.text.lstrip())] if text else clean.text
        tail = clean.text[len(clean.text.rstrip()) :] if text else ""
        if len(f"{head}{tail}".encode()) > _BLANKS_BYTES_MAX:
            raise ToolError(f"{path} begins or ends with too many blanks. Use at most {_BLANKS_BYTES_MAX}.")
        entry_id = _id_of(self._space, path)
        draft = Draft(
            text=text or path,
            id=entry_id,
            origin=Origin.AGENT,
            # Files with the same content are different files.
            agent=f"file-{entry_id}",
            metadata={_MARK: True, _PATH: path, _HEAD: head, _TAIL: tail, _BLANK: not text},
        )
        admitted = self._gate.admit(draft)
        if admitted.draft.metadata[_PATH] != path:
            raise ToolError("The path contains a secret, which is never stored. Use another path.")
        kinds = ", ".join(dict.fromkeys(clean.kinds))
        return admitted, f"\nSecrets were removed before the text was stored ({kinds})." if kinds else ""

    async def _remove(self, files: Sequence[MemoryFile]) -> str:
        changes = [MemoryFileChange(file.parts, None, file.entry.version) for file in files]
        return await self._write(changes) if changes else ""

    async def _write(self, changes: Sequence[MemoryFileChange]) -> str:
        """Writes all changes or none. Several are one group for `undo`. Returns a note for the model if they wait."""
        services, group = self.services, self.services.ids.new() if len(changes) > 1 else None

        def work(unit: Unit) -> tuple[list[Step], bool]:
            made = [self._apply(unit, change, group) for change in changes]
            steps: list[Step] = []
            for operation, _ in made if services.events.has_handler else ():
                steps += unit.operations.steps(self._scope, operation_id=operation.id)
            return steps, any(entry.status in (Status.PROPOSED, Status.WITHDRAWAL) for _, entry in made)

        steps, waits = await services.store.write(work, at=self._scope)
        services.wake_jobs()
        services.events.report_changes(steps)
        return "\nIt waits for the approval of a person, and has no effect until then." if waits else ""

    def _apply(self, unit: Unit, change: MemoryFileChange, group: str | None) -> tuple[Operation, Entry]:
        services, current = self.services, self._entry(unit, change.parts)
        is_active = current is not None and current.status is Status.ACTIVE
        version = current.version if current is not None and is_active else None
        if version != change.seen:
            raise Conflict(f"{path_of(change.parts)} was changed by another program meanwhile. View it again.")
        verb = Verb.DELETE if change.admitted is None else Verb.UPDATE if is_active else Verb.ADD
        now = services.clock.now()
        operation = Operation(services.ids.new(), services.tenant, self._space, verb, Origin.AGENT, now, group)
        if change.admitted is not None:
            return operation, services.statement_writer.put_item(unit, operation, change.admitted)
        entry_id = _id_of(self._space, path_of(change.parts))
        return operation, services.statement_writer.delete(unit, operation, entry_id, trust=Origin.TOOL.trust)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ToolError(f"`{name}` is missing. Pass it as a text.")
    return unicodedata.normalize("NFC", value)


def _line_at(content: str, place: int) -> int:
    return content.count("\n", 0, place)


def _places(content: str, wanted: str) -> list[int]:
    """Where it begins, overlapping or not."""
    places, start = list[int](), content.find(wanted)
    while start >= 0:
        places.append(start)
        start = content.find(wanted, start + 1)
    return places


def _with_numbers(lines: Sequence[str], first: int, last: int | None) -> str:
    shown = lines[first:last]
    return "\n".join(f"{number:>{_NUMBER_WIDTH}}\t{line}" for number, line in enumerate(shown, first + 1))


def _listed(files: Sequence[MemoryFile], parts: Parts) -> str:
    """Sizes and paths of what is in a directory, two levels deep, without what begins with a dot."""
    below = [(file.parts[len(parts) :], len(file.content.encode())) for file in files]
    sizes: dict[Parts, int] = {}
    for names, size in below:
        if not any(name.startswith(".") for name in names[:_LEVELS_SHOWN]):
            for depth in range(1, min(len(names), _LEVELS_SHOWN) + 1):
                sizes[names[:depth]] = sizes.get(names[:depth], 0) + size
    files_below = {names for names, _ in below}
    path = path_of(parts)
    lines = [f"{_size(sum(size for _, size in below))}\t{path}"]
    lines += [
        f"{_size(size)}\t{path}/{'/'.join(names)}{'' if names in files_below else '/'}"
        for names, size in sorted(sizes.items())
    ]
    title = f"Here're the files and directories up to {_LEVELS_SHOWN} levels deep in {path}, excluding hidden items:"
    return "\n".join([title, *lines])


def _size(size: int) -> str:
    unit = min(max(size, 1).bit_length() - 1, 39) // 10
    value = size / 1024**unit
    return f"{int(value) if value == int(value) else f'{value:.1f}'}{'BKMG'[unit]}"


# The tools


class SpaceOfFiles:
    """Base class of both tools: the open memory, and the commands on the files of a space."""

    def __init__(
        self,
        memory: MemoryTarget,
        *,
        user: str | None = None,
        owner: str | None = None,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)  # type: ignore[call-arg]
        if (user is None) == (owner is None):
            raise InvalidInput('Say whose files they are: user="ada", or owner="project:api" for another space.')
        self._space = check_space(f"user:{check_name(user, 'user')}" if owner is None else owner)
        self._memory = FrameworkMemory(memory, needs_user=False)

    view = Bridged(FileCommands.view)
    create = Bridged(FileCommands.create)
    str_replace = Bridged(FileCommands.str_replace)
    insert = Bridged(FileCommands.insert)
    delete = Bridged(FileCommands.delete)
    rename = Bridged(FileCommands.rename)
    clear_all_memory = Bridged(FileCommands.clear_all_memory)

    def close(self) -> None:
        """Closes a store that was opened by its path. Without it, that happens when the process exits."""
        self._memory.close()

    @property
    def _core(self) -> FileCommands:
        with errors_for_the_model():
            return FileCommands(self._memory.services, self._space)

    @property
    def _loop(self) -> LoopThread:
        with errors_for_the_model():
            return self._memory.services.loop


class AfterturnMemoryTool(BlockingFacade, SpaceOfFiles, BetaAbstractMemoryTool):
    """For `client.beta.messages.tool_runner(..., tools=[AfterturnMemoryTool("memory.db", user="ada")])`.

    Files are in the space of the user, or of `owner`. A model's files have the origin agent and the trust of a tool's
    output: they never become standing by themselves. Secrets are removed, and the answer to the model says so.
    """


class AsyncAfterturnMemoryTool(AsyncFacade, SpaceOfFiles, BetaAsyncAbstractMemoryTool):
    """The same for `AsyncAnthropic`."""
