"""Standing context: the block for the system prompt, context files that the agent touches, and contexts for prompts."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from afterturn.config import Config
from afterturn.conversation.read_turn import QUESTION_CHARS_MAX, Ledger, make_question
from afterturn.conversation.scope import ConversationScope
from afterturn.errors import AfterturnError, ForkedProcess, InvalidInput
from afterturn.guard.scanning import scanner
from afterturn.log import logger
from afterturn.ports import Store, Unit
from afterturn.recall.answer import all_readable
from afterturn.recall.block import block_hash
from afterturn.recall.query import RecallRequest
from afterturn.recall.search import search
from afterturn.runtime.bridge import Bridged
from afterturn.runtime.file_reads import READ_WITHIN
from afterturn.runtime.loop_thread import LoopThread
from afterturn.runtime.once_future import is_set
from afterturn.scanners.secrets import redact, redact_within, unnamed
from afterturn.standing.block import (
    StandingBlock,
    StandingBudget,
    StandingContent,
    append_standing,
    make_corrections,
    render_standing,
    shown_path,
    shown_paths,
)
from afterturn.standing.context_files import (
    ContextFile,
    ContextFiles,
    ContextFolders,
    Refusal,
    Skipped,
    Tier,
    file_names,
    read_standing,
)
from afterturn.standing.memories import (
    StandingMemories,
    StandingReader,
    find_agent_memories,
    find_standing,
    find_standing_memories,
)
from afterturn.standing.touched_files import TouchedFiles
from afterturn.types import Entry, LaneQuery, SearchResults, StandingRow
from afterturn.validation import check_limit, check_name, check_text

if TYPE_CHECKING:
    from afterturn.services import Services

R = TypeVar("R")

LIMIT_MAX = 100
_REPORTED_MAX = 1_000
_REPORTED_PATHS_MAX = 20
_ATTEMPTS = 3
_NOTHING = block_hash("")


def _budget(config: Config) -> StandingBudget:
    return StandingBudget(config.standing_bytes_max, scanning=config.scan_policy)


def _folders(services: Services, roots: Iterable[str | os.PathLike[str]]) -> ContextFolders:
    return ContextFolders(services.context_folder, check_roots(roots), file_names(services.config.context_files))


def check_roots(roots: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(roots, str | bytes | os.PathLike) or not isinstance(roots, Iterable):
        raise InvalidInput(f"`roots` is a list of folders, not {type(roots).__name__}. Pass [folder].")
    try:
        # Not `abspath`, which removes `..` before links are followed.
        return tuple(os.path.join(os.getcwd(), os.fsdecode(root)) for root in roots)
    except TypeError as error:
        raise InvalidInput(f"A root is not a path: {error}. Pass strings or Path objects.") from error


def check_instructions(instructions: Iterable[str]) -> tuple[str, ...]:
    is_list = isinstance(instructions, Iterable) and not isinstance(instructions, str | bytes)
    texts = tuple(instructions) if is_list else (None,)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput("`instructions` is a list of texts. Pass [text].")
    return tuple(text for text in texts if isinstance(text, str))


class _Known(NamedTuple):
    """The stored state of a conversation: its standing block, and the paths of touched files in its blocks."""

    text: str | None
    touched: frozenset[str] = frozenset()
    in_sight: frozenset[str] = frozenset()
    withdrawn: bool = False


class StandingCore:
    """The standing context of one conversation: made once, stored, extended by context files that its agent touches.

    Used on memory's loop, except `touch` and `take_arrived`, which hosts call from any thread. `roots` are the folders
    that the host trusts, `instructions` what it adds itself, such as those of MCP servers.

    Raises InvalidInput if they are not lists of paths and texts.
    """

    def __init__(
        self,
        services: Services,
        scope: ConversationScope,
        roots: Iterable[str | os.PathLike[str]] = (),
        instructions: Iterable[str] = (),
    ) -> None:
        self._services = services
        self.scope = scope
        # Keeps the engine alive, whose turns hand over the files: `Services` has only a weak reference to it.
        self.owner: object = None
        self.on_untrusted: Callable[[], None] = lambda: None
        self._folders = _folders(services, roots)
        self._instructions = check_instructions(instructions)
        self._touched_files = TouchedFiles(services.config.standing_bytes_max, scanning=services.config.scan_policy)
        self._making = asyncio.Lock()
        self._all_read = asyncio.Event()
        self._all_read.set()
        self._reason = ""
        # The host has asked for the block, so that nothing else brings it.
        self.is_asked = False
        # Only the hash: the text may contain what is forgotten later. Without a store the text itself is needed.
        self._shown_hash = _NOTHING
        self._unstored: str | None = None
        self._is_stale = False
        self._standing_paths: frozenset[str] = frozenset()
        self._reported: set[Skipped] = set()

    # From any thread.

    def touch(self, path: str | os.PathLike[str]) -> None:
        """The agent reads or writes `path`: context files near it are handed over later. Never raises or waits."""
        try:
            self._services.loop.check()
            if self._touched_files.touch(os.fsdecode(path)):
                self._services.loop.post(self._start_reading)
        except AfterturnError as error:
            event = "memory_forked" if isinstance(error, ForkedProcess) else "memory_closed"
            if self._services.events.emit_once(event, conversation=self.scope.id):
                logger.warning("conversation %r: a touched path is ignored: %s", self.scope.id, error)
        except Exception:  # the boundary: a host's object may raise anything
            logger.warning("conversation %r: a touched file is not a path", self.scope.id, exc_info=True)

    @property
    def has_arrived(self) -> bool:
        """Whether `take_arrived` would return something."""
        return self._touched_files.has_block

    def take_arrived(self) -> str | None:
        """The files that were found since the last call, as the text of one block, or None. Never waits."""
        return self._touched_files.take()

    # On memory's loop.

    async def block(self) -> str:
        """Returns the standing block, an empty text if there is nothing to say.

        The bytes stay the same until `refresh`, in every process, so that the provider's prompt cache stays valid.
        Files and memories that cannot be read now are left out, and the block is then made again next time.
        """
        self.is_asked = True
        return await self._current()

    async def offer(self, ledger: Ledger, corrections: Sequence[Entry], *, is_wanted: bool) -> StandingRow | None:
        """The block for a host that has not asked for it, if it `is_wanted`, and the corrections of one that was given.

        A host that writes its prompt at every step gets the same bytes in all of them.
        """
        newer = await self.correct(corrections) if corrections else None
        made = (ledger.standing or await self.make(ledger)) if is_wanted else None
        if made is None or newer is None:
            return made or newer
        return StandingRow(f"{made.text}\n\n{newer.text}", made.refs + newer.refs, newer.made_at)

    async def make(self, ledger: Ledger) -> StandingRow | None:
        """Makes the standing block for a host that has not asked for it, and stores nothing: it may be delivered, or
        not. None if there is nothing to say that the model does not see by this ledger."""
        async with self._making:
            files = await self._read_files(None)
            content = StandingContent(files.files if files is not None else (), self._instructions)
            block = await self._rendered(content, lambda message: ledger.sees(message, self.scope.id))
        if block is None or not block.text:
            return None
        return StandingRow(block.text, block.refs, self._services.clock.now())

    async def correct(self, entries: Sequence[Entry]) -> StandingRow | None:
        """A block of statements that replace lines of the standing block. None if none of them may stand."""
        scope, now, policy = self.scope.readable, self._services.clock.now(), self._services.config.scan_policy
        return await self._try_store(
            lambda store: store.read(
                lambda unit: make_corrections(unit, scope, entries, now, scanning=policy), at=scope
            ),
            "is not corrected yet",
        )

    async def _current(self) -> str:
        async with self._making:
            known = await self._find_known()
            return known.text if known is not None and known.text is not None else await self._make(known)

    async def refresh(self, reason: str = "asked") -> str:
        """Reads all files and memories again and returns the new block.

        The event `standing_changed` is emitted if it is different.
        """
        async with self._making:
            known = await self._find_known()
            self._reason, self._is_stale = reason, True
            return await self._make(known)

    async def preview(self) -> str:
        """Returns the block as a new conversation would get it now. Stores nothing."""
        files = await self._read_files(None)
        block = await self._rendered(StandingContent(files.files if files is not None else (), self._instructions))
        return "" if block is None else block.text

    async def invalidate(self, reason: str) -> None:
        """The block is made again at the next call, for example after the host's context was compacted."""
        async with self._making:
            await self._find_known()
            self._reason, self._unstored, self._is_stale = reason, None, True
            key = self.scope.key

            def work(unit: Unit) -> bool:
                unit.conversations.put_standing(key, None)
                return True

            if await self._try_store(lambda store: store.write(work, at=key.scope), "is not dropped in the store yet"):
                self._is_stale = False

    async def appended(self, system_prompt: str) -> str:
        """Returns `system_prompt` with the standing block at its end."""
        return append_standing(system_prompt, await self.block())

    async def flush(self, *, within: float = READ_WITHIN) -> bool:
        """Waits until all touched paths are read. Returns False if that takes longer than `within` seconds."""
        return await is_set(self._all_read, within=within)

    async def _find_known(self) -> _Known | None:
        """Reads the stored standing block and the files in other blocks. None if the store cannot be read."""
        key, scope, scan = self.scope.key, self.scope, scanner(scanning=self._services.config.scan_policy)
        if not self._services.has_store:
            return _Known(self._unstored)

        def work(unit: Unit) -> _Known:
            row = unit.conversations.find_standing(key)
            blocks = unit.conversations.blocks(key)
            withdrawn = row is not None and (not all_readable(unit, scope, row.refs) or bool(scan.find(row.text)))
            return _Known(
                None if row is None or withdrawn else row.text,
                withdrawn=withdrawn,
                touched=frozenset().union(*(shown_paths(block.text) for block in blocks)),
                in_sight=frozenset().union(*(shown_paths(block.text) for block in blocks if block.in_sight)),
            )

        known = await self._try_store(lambda store: store.read(work, at=scope.readable), "cannot be read")
        # Stored while another space was granted, which this host may not read, or while fewer secrets were recognised.
        self._is_stale = self._is_stale or (known is not None and known.withdrawn)
        if known is not None and known.text is not None:
            self._show(known.text)
        return known._replace(text=None) if known is not None and self._is_stale else known

    async def _make(self, known: _Known | None) -> str:
        files = await self._read_files(known)
        content = StandingContent(files.files if files is not None else (), self._instructions)
        for _ in range(_ATTEMPTS):
            block = None if known is None else await self._rendered(content)
            if block is None:
                break
            self._report_skipped(Skipped(path, Refusal.NO_ROOM) for path in content.paths if path not in block.paths)
            # A block without its files is not stored: the files may be readable again next time.
            text = block.text if files is None else await self._store_block(block)
            if text is not None:
                return text if files is None else await self._settle(text, block)
        # The store does not answer, or memories in the block were forgotten at each attempt.
        return render_standing(content, _budget(self._services.config)).text

    async def _read_files(self, known: _Known | None) -> ContextFiles | None:
        # Files that were once added because of a touched path stay.
        paths = {*self._touched_files.paths(), *self._standing_paths, *(known.touched if known is not None else ())}
        found = await self._services.file_reads.run(functools.partial(read_standing, self._folders, sorted(paths)))
        if found is None:
            self._report_skipped(Skipped(root, Refusal.TIMEOUT) for root in self._folders.roots)
            return None
        self._report_skipped(found.skipped)
        return found

    async def _rendered(
        self, content: StandingContent, visible: Callable[[Entry], bool] | None = None
    ) -> StandingBlock | None:
        """The block with memories, rendered on a worker. None if memories cannot be read."""
        reader, room = self._reader(), _budget(self._services.config)
        reader = reader if visible is None else reader._replace(visible=visible)

        def work(unit: Unit) -> StandingBlock:
            return render_standing(content._replace(memories=find_standing(unit, reader)), room)

        if self._services.has_store:
            if self._services.embedding is not None:
                self._services.embedding.load_index(reader.scope)
            return await self._try_store(lambda store: store.read(work, at=reader.scope), "is made without memories")
        if not content.files:
            return render_standing(content, room)
        return await self._services.file_reads.run(functools.partial(render_standing, content, room))

    def _reader(self) -> StandingReader:
        scope, config = self.scope, self._services.config
        where = (scope.readable, self._services.clock.now(), scope.agent, scope.project, scope.owner)
        return StandingReader(*where, config.standing_chars_max, config.rules, config.scan_policy)

    async def _store_block(self, block: StandingBlock) -> str | None:
        """Returns the text that is stored for the conversation now. None if a memory in it was forgotten meanwhile."""
        key, replaces = self.scope.key, self._is_stale
        row = StandingRow(block.text, block.refs, self._services.clock.now())

        def work(unit: Unit) -> tuple[str | None]:
            earlier = unit.conversations.find_standing(key)
            if earlier is not None and not replaces:
                return (earlier.text,)
            unit.conversations.put_standing(key, row)
            stored = unit.conversations.find_standing(key)
            return (None if stored is None else stored.text,)

        if not self._services.has_store:
            self._unstored, self._is_stale = block.text, False
            return block.text
        stored = await self._try_store(lambda store: store.write(work, at=key.scope), "is not stored")
        if stored is None:
            return block.text
        self._is_stale = False
        return stored[0]

    async def _try_store(self, ask: Callable[[Store], Awaitable[R]], trouble: str) -> R | None:
        """The store's answer. None, and a warning, if it fails or is too slow; None without a store."""
        if not self._services.has_store:
            return None
        try:
            async with asyncio.timeout(self._services.config.recall_timeout):
                return await ask(self._services.store)
        except (AfterturnError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            logger.warning("the standing context of %r %s: %s", self.scope.id, trouble, reason)
            return None

    async def _settle(self, text: str, block: StandingBlock) -> str:
        """Reports a change. Touched files that are part of the block now are not handed over again."""
        reason = self._reason or ("start" if self._shown_hash == _NOTHING else "dropped")
        changed, self._reason = self._shown_hash != block_hash(text), ""
        self._show(text)
        if text == block.text:
            self._standing_paths |= set(block.paths)
            if changed:
                more = len(block.paths) - _REPORTED_PATHS_MAX
                paths = [
                    *map(shown_path, block.paths[:_REPORTED_PATHS_MAX]),
                    *([f"and {more} more"] if more > 0 else []),
                ]
                self._emit("standing_changed", reason=reason, bytes=len(text.encode()), paths=", ".join(paths))
        joined = [path for path in self._touched_files.paths() if {path, shown_path(path)} & self._standing_paths]
        if joined:
            await self._services.file_reads.run(functools.partial(self._touched_files.join, joined))
        return text

    def _show(self, text: str) -> None:
        shown = block_hash(text)
        if shown != self._shown_hash:
            self._shown_hash, self._standing_paths = shown, shown_paths(text)

    # Context for hosts that write their prompts themselves. Only reads.

    async def relevant_context(self, text: str) -> str:
        """Returns a block of memories for `text`, as a turn would recall them; an empty text if there are none.

        Nothing counts as shown by it. If the store fails, it logs a warning and returns an empty text.
        """
        scope, services = self.scope, self._services
        question = make_question(text, scope, Ledger(), services.config)
        if not services.has_store or question is None:
            return ""
        asked = question.asked(now=services.clock.now(), correlation=services.ids.new())
        try:
            answer, block = await services.recall_client.recall(asked)
        except (AfterturnError, TimeoutError) as error:
            logger.warning("no relevant context for %r: %s", scope.id, error)
            return ""
        for ref, reason in answer.withheld.items():
            self._emit("withheld", memory=ref, reason=reason)
        if block is None:
            return ""
        shown = [entry for hit in answer.hits for entry in (hit.entry, hit.answer) if entry is not None]
        if any(entry.is_report for entry in shown):
            self.on_untrusted()
        return block.text

    async def project_context(self) -> str:
        """Returns the context files of the roots and the project's conventions as they are now."""
        files = await self._read_environment()
        reader = self._reader()
        memories = await self._try_store(
            lambda store: store.read(lambda unit: find_standing_memories(unit, reader), at=reader.scope),
            "is made without memories",
        )
        return self._render_context(files, memories.conventions if memories is not None else (), ())

    async def task_context(self, agent_name: str) -> str:
        """Returns the context for a sub-agent: that of the project, and the statements about this agent's work."""
        agent = check_name(agent_name, "agent")
        files = await self._read_environment()
        reader = self._reader()

        def work(unit: Unit) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
            return find_standing_memories(unit, reader).conventions, find_agent_memories(unit, reader, agent)

        found = await self._try_store(lambda store: store.read(work, at=reader.scope), "is made without memories")
        conventions, own = found or ((), ())
        return self._render_context(files, conventions, tuple(entry for entry in own if entry not in conventions))

    async def search(self, query: str, *, limit: int = 10) -> SearchResults:
        """Returns the best matches in all spaces that this conversation may read. Raises AfterturnError."""
        scope, services, config = self.scope, self._services, self._services.config
        count, asked = check_limit(limit, LIMIT_MAX), check_text(query, "query")
        text = redact_within(asked, QUESTION_CHARS_MAX, scanner(scanning=config.scan_policy), mark=unnamed).text
        if not services.has_store:
            return SearchResults(text, (), missing=("store",))
        request = RecallRequest(
            text=text,
            admitted=LaneQuery(
                scope.readable,
                services.clock.now(),
                conversation=scope.id,
                owner=scope.owner,
                projects=scope.projects(config.scan_policy),
            ),
            limit=count,
            correlation=services.ids.new(),
        )
        return await services.recall_client.ask(request, search)

    def _render_context(
        self, files: tuple[ContextFile, ...], conventions: tuple[Entry, ...], own: tuple[Entry, ...]
    ) -> str:
        content = StandingContent(files, (), StandingMemories(conventions=conventions), own)
        return render_standing(content, _budget(self._services.config)).text

    async def _read_environment(self) -> tuple[ContextFile, ...]:
        found = await self._services.file_reads.run(functools.partial(read_standing, self._folders))
        return tuple(file for file in found.files if file.tier is Tier.ENVIRONMENT) if found is not None else ()

    # Touched paths.

    def _start_reading(self) -> None:
        self._all_read.clear()
        self._services.supervisor.start(self._read_touched(), f"context files of {self.scope.id}")

    async def _read_touched(self) -> None:
        try:
            while touched := self._touched_files.next_touched():
                # A file that is or will be in the standing block, or is visible already, is not added again.
                known = await self._find_known()
                standing = await self._services.file_reads.run(functools.partial(read_standing, self._folders))
                loaded = self._standing_paths | {file.path for file in (standing.files if standing else ())}
                loaded |= known.in_sight if known is not None else frozenset()
                skipped = await self._services.file_reads.run(
                    functools.partial(self._touched_files.look, self._folders, touched, loaded)
                )
                self._report_skipped((Skipped(touched[0], Refusal.TIMEOUT),) if skipped is None else skipped)
        except BaseException:
            self._touched_files.stop()
            raise
        finally:
            self._all_read.set()

    def _report_skipped(self, skipped: Iterable[Skipped]) -> None:
        scan = scanner(scanning=self._services.config.scan_policy)
        for item in skipped:
            if item not in self._reported and len(self._reported) < _REPORTED_MAX:
                self._reported.add(item)
                self._emit("context_file_skipped", path=redact(shown_path(item.path), scan).text, reason=item.reason)

    def _emit(self, name: str, **data: str | int) -> None:
        self._services.events.emit(name, space=self.scope.owner, conversation=self.scope.id, turn="", **data)


class StandingVerbs:
    """The verbs of both kinds of Standing."""

    block = Bridged(StandingCore.block)
    appended = Bridged(StandingCore.appended)
    refresh = Bridged(StandingCore.refresh)
    preview = Bridged(StandingCore.preview)
    flush = Bridged(StandingCore.flush)
    relevant_context = Bridged(StandingCore.relevant_context)
    project_context = Bridged(StandingCore.project_context)
    task_context = Bridged(StandingCore.task_context)
    search = Bridged(StandingCore.search)

    def __init__(self, core: StandingCore, loop: LoopThread) -> None:
        self._core = core
        self._loop = loop

    def __repr__(self) -> str:
        return f"<Standing of {self._core.scope.id}>"

    def touch(self, path: str | os.PathLike[str]) -> None:
        """Reports that the agent reads or writes `path`.

        Context files in its folder and the folders above it are then added to the messages at a later step. Never
        raises and never waits.
        """
        self._core.touch(path)
