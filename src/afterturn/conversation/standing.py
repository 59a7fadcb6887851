"""Standing context: the block for the system prompt, context files that the agent touches, and contexts for prompts."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from afterturn.config import Config
from afterturn.conversation.ledger import Ledger
from afterturn.conversation.read_turn import QUESTION_CHARS_MAX, all_readable, make_question
from afterturn.conversation.scope import ConversationScope
from afterturn.errors import AfterturnError, ForkedProcess, InvalidInput
from afterturn.guard.secrets import redact_within, scanner, unnamed
from afterturn.ports import Store, Unit
from afterturn.prompt.context_files import (
    ContextFile,
    ContextFiles,
    ContextFolders,
    Refusal,
    Skipped,
    Tier,
    file_names,
    read_standing,
    read_touched,
)
from afterturn.prompt.standing_block import (
    StandingBlock,
    StandingBudget,
    StandingContent,
    append_standing,
    render_arrived,
    render_standing,
    shown_path,
    shown_paths,
)
from afterturn.prompt.standing_memories import (
    StandingMemories,
    StandingReader,
    find_agent_memories,
    find_standing_memories,
)
from afterturn.recall.block import block_hash
from afterturn.recall.query import RecallRequest
from afterturn.recall.search import search
from afterturn.runtime.bridge import Bridged
from afterturn.runtime.file_reads import READ_WITHIN
from afterturn.runtime.loop_thread import LoopThread
from afterturn.runtime.once_future import is_set
from afterturn.text import size
from afterturn.types import Entry, LaneQuery, SearchResults, StandingRow
from afterturn.validation import check_limit, check_name, check_text

if TYPE_CHECKING:
    from afterturn.services import Services


def _budget(config: Config) -> StandingBudget:
    return StandingBudget(config.standing_bytes_max, config.entry_bytes_max, config.scanning)


def _folders(services: Services, roots: Iterable[str | os.PathLike[str]]) -> ContextFolders:
    config = services.config
    names = file_names(config.context_files)
    return ContextFolders(services.context_folder, check_roots(roots), names, config.context_file_bytes_max)


def _reader(scope: ConversationScope, *, now: float) -> StandingReader:
    return StandingReader(scope.readable, now, scope.agent, scope.project, scope.owner)


def check_roots(roots: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(roots, str | bytes | os.PathLike) or not isinstance(roots, Iterable):
        raise InvalidInput(f"`roots` is a list of folders, not {type(roots).__name__}. Pass [folder].")
    try:
        # Not `abspath`, which takes `..` away before links are followed.
        return tuple(os.path.join(os.getcwd(), os.fsdecode(root)) for root in roots)
    except TypeError as error:
        raise InvalidInput(f"A root is not a path: {error}. Pass strings or Path objects.") from error


def check_instructions(instructions: Iterable[str]) -> tuple[str, ...]:
    is_list = isinstance(instructions, Iterable) and not isinstance(instructions, str | bytes)
    texts = tuple(instructions) if is_list else (None,)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput("`instructions` is a list of texts. Pass [text].")
    return tuple(text for text in texts if isinstance(text, str))


# Context files that are added because the agent touched a path near them. Thread-safe.

TOUCHED_MAX = 10_000
_AT_ONCE = 500


class TouchedFiles:
    """Paths go in, one block's text comes out. `bytes_max` is the room for all files until `join` frees it.

    With `scanning`, secrets in them are left out.
    """

    def __init__(self, bytes_max: int, *, scanning: bool = True) -> None:
        self._bytes_max = bytes_max
        self._scanning = scanning
        self._lock = threading.Lock()
        self._touched: dict[str, None] = {}
        self._is_reading = False
        # Everything that came, by real path with its size; then what of it still waits to be taken.
        self._came: dict[str, int] = {}
        self._files: tuple[ContextFile, ...] = ()
        self._block = StandingBlock()
        # Counts what is taken or joins, so that a block in the making notices it.
        self._changes = 0

    def touch(self, path: str) -> bool:
        """True when somebody has to start reading. Beyond TOUCHED_MAX waiting paths nothing is noted."""
        with self._lock:
            if len(self._touched) < TOUCHED_MAX:
                self._touched[path] = None
            started, self._is_reading = self._is_reading, True
            return not started

    def next_touched(self) -> list[str]:
        """The next paths to look at. Empty: nobody reads any more, and the next `touch` starts it."""
        with self._lock:
            batch = list(self._touched)[:_AT_ONCE]
            for path in batch:
                del self._touched[path]
            self._is_reading = bool(batch)
            return batch

    def stop(self) -> None:
        """Reading was given up; what waits is looked at after the next `touch`."""
        with self._lock:
            self._is_reading = False

    def look(self, folders: ContextFolders, touched: Sequence[str], loaded: Iterable[str]) -> tuple[Skipped, ...]:
        """Reads what was touched, but for what is `loaded`, and adds it to what waits. Blocks: for a worker."""
        found = read_touched(folders, touched, {*loaded, *self.came()})
        fitting, refused = self._that_fit(found.files)
        shown = self._add(fitting) if fitting else frozenset()
        refused += [file for file in fitting if file.path not in shown]
        return (*found.skipped, *(Skipped(file.path, Refusal.NO_ROOM) for file in refused))

    def take(self) -> str | None:
        """What waits, to the first who asks."""
        with self._lock:
            text = self._block.text
            # Asking in vain changes nothing: a host that asks all the time must not keep a block from being made.
            self._changes += bool(self._files)
            self._files, self._block = (), StandingBlock()
        return text or None

    def came(self) -> tuple[str, ...]:
        """Real paths of what came by touch and has not joined the standing block, taken or not."""
        with self._lock:
            return tuple(self._came)

    def join(self, paths: Collection[str]) -> None:
        """These stand in the system prompt now, and need not arrive any more. Renders the rest: for a worker."""
        with self._lock:
            for path in paths:
                self._came.pop(path, None)
            self._files = tuple(file for file in self._files if file.path not in paths)
            self._changes += 1
        self._add(())

    def _that_fit(self, files: Iterable[ContextFile]) -> tuple[list[ContextFile], list[ContextFile]]:
        with self._lock:
            room = self._bytes_max - sum(self._came.values())
        fitting: list[ContextFile] = []
        refused: list[ContextFile] = []
        for file in files:
            fits = size(file.text) <= room
            (fitting if fits else refused).append(file)
            room -= size(file.text) if fits else 0
        return fitting, refused

    def _add(self, files: Sequence[ContextFile]) -> frozenset[str]:
        """The paths of all that waits now."""
        while True:
            with self._lock:
                changes, waiting = self._changes, (*self._files, *files)
            block = render_arrived(waiting, self._bytes_max, scanning=self._scanning)
            shown = frozenset(block.paths)
            with self._lock:
                if changes == self._changes:
                    self._files = tuple(file for file in waiting if file.path in shown)
                    self._block = block
                    self._came.update((file.path, size(file.text)) for file in files if file.path in shown)
                    return shown


# Context for hosts that write their prompts themselves. It reads, and changes nothing of a conversation.

logger = logging.getLogger("afterturn")
R = TypeVar("R")

LIMIT_MAX = 100


class PromptContexts:
    """Bound to a conversation's scope and to the folders that its host trusts. Lives on memory's loop."""

    def __init__(self, services: Services, scope: ConversationScope, folders: ContextFolders) -> None:
        self._services = services
        self._scope = scope
        self._folders = folders

    async def relevant(self, text: str) -> str:
        """A block for `text`, as a turn would recall it for a model that sees nothing else; "" when there is none.

        Nothing counts as shown by it, and no epoch begins. A failing store gives "" and a warning.
        """
        scope, services = self._scope, self._services
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
            services.events.emit(
                "withheld", space=scope.owner, conversation=scope.id, turn="", memory=ref, reason=reason
            )
        return block.text if block else ""

    async def search(self, query: str, *, limit: int) -> SearchResults:
        """The best matches in the spaces that this conversation may read. Raises AfterturnError."""
        scope, services, config = self._scope, self._services, self._services.config
        count, asked = check_limit(limit, LIMIT_MAX), check_text(query, "query")
        text = redact_within(asked, QUESTION_CHARS_MAX, scanner(scanning=config.scanning), mark=unnamed).text
        if not services.has_store:
            return SearchResults(text, (), missing=("store",))
        request = RecallRequest(
            text=text,
            admitted=LaneQuery(scope.readable, services.clock.now(), conversation=scope.id, owner=scope.owner),
            limit=count,
            score_min=config.recall_score_min,
            correlation=services.ids.new(),
        )
        return await services.recall_client.ask(request, search)

    async def project(self) -> str:
        """The context files of the trusted roots and the project's conventions, as they are now."""
        files = await self._environment()
        reader = _reader(self._scope, now=self._services.clock.now())
        memories = await self._read(lambda unit: find_standing_memories(unit, reader), StandingMemories())
        return self._rendered(files, memories.conventions, ())

    async def task(self, agent_name: str) -> str:
        """What a sub-agent of that name should know: the project's context, and what was said of its own work."""
        agent = check_name(agent_name, "agent")
        files = await self._environment()
        reader = _reader(self._scope, now=self._services.clock.now())

        def work(unit: Unit) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
            return find_standing_memories(unit, reader).conventions, find_agent_memories(unit, reader, agent)

        nothing: tuple[tuple[Entry, ...], tuple[Entry, ...]] = ((), ())
        conventions, own = await self._read(work, nothing)
        return self._rendered(files, conventions, tuple(entry for entry in own if entry not in conventions))

    def _rendered(self, files: tuple[ContextFile, ...], conventions: tuple[Entry, ...], own: tuple[Entry, ...]) -> str:
        content = StandingContent(files, (), StandingMemories(conventions=conventions), own)
        return render_standing(content, _budget(self._services.config)).text

    async def _environment(self) -> tuple[ContextFile, ...]:
        found = await self._services.file_reads.run(functools.partial(read_standing, self._folders))
        return tuple(file for file in found.files if file.tier is Tier.ENVIRONMENT) if found is not None else ()

    async def _read(self, work: Callable[[Unit], R], nothing: R) -> R:
        if not self._services.has_store:
            return nothing
        try:
            return await self._services.store.read(work)
        except AfterturnError as error:
            logger.warning("context for %r is made without memories: %s", self._scope.id, error)
            return nothing


# The standing context of one conversation: made once, stored, and extended by context files that its agent touches.
#
# Used on memory's loop, except `touch` and `take_arrived`, which hosts call from any thread.

_TOLD_MAX = 1_000
_TOLD_PATHS_MAX = 20
_ATTEMPTS = 3
_NOTHING = block_hash("")


@dataclass(frozen=True, slots=True)
class _Known:
    """What the store has of a conversation: its block, and the touched files that its blocks show."""

    text: str | None
    came: frozenset[str] = frozenset()
    in_sight: frozenset[str] = frozenset()
    withdrawn: bool = False


class StandingCore:
    """`roots` are the folders that the host trusts, `instructions` what it adds itself, such as those of MCP servers.

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
        # Whose it is lives as long: what arrives here is handed over by its turns, and memory holds it but weakly.
        self.owner: object = None
        self._folders = _folders(services, roots)
        self._instructions = check_instructions(instructions)
        self._contexts = PromptContexts(services, scope, self._folders)
        self._arrivals = TouchedFiles(services.config.standing_bytes_max, scanning=services.config.scanning)
        self._making = asyncio.Lock()
        self._rested = asyncio.Event()
        self._rested.set()
        self._reason = ""
        # By its hash alone: the text may hold what is forgotten tomorrow. Without a store there is nothing to forget.
        self._shown_hash = _NOTHING
        self._unstored: str | None = None
        self._is_stale = False
        self._standing_paths: frozenset[str] = frozenset()
        self._told: set[Skipped] = set()

    # From any thread.

    def touch(self, path: str | os.PathLike[str]) -> None:
        """The agent reads or writes there: files from there upwards arrive at a later point. Never raises or waits."""
        try:
            self._services.loop.check()
            if self._arrivals.touch(os.fsdecode(path)):
                self._services.loop.post(self._start_reading)
        except AfterturnError as error:
            event = "memory_forked" if isinstance(error, ForkedProcess) else "memory_closed"
            if self._services.events.emit_once(event, conversation=self.scope.id):
                logger.warning("conversation %r: a path was touched in vain: %s", self.scope.id, error)
        except Exception:  # the boundary to the host's own objects, which may raise whatever they like
            logger.warning("conversation %r: a touched file is not a path", self.scope.id, exc_info=True)

    def take_arrived(self) -> str | None:
        """The files that came since the last call, as one block's text; None when there are none. Never waits."""
        return self._arrivals.take()

    # On memory's loop.

    async def block(self) -> str:
        """Returns the standing block, an empty text if there is nothing to say.

        The bytes stay the same until `refresh`, in every process, so that the provider's prompt cache stays valid.
        Files and memories that cannot be read now are left out, and the block is then made again next time.
        """
        async with self._making:
            known = await self._recollect()
            return known.text if known is not None and known.text is not None else await self._make(known)

    async def refresh(self, reason: str = "asked") -> str:
        """Reads all files and memories again and returns the new block.

        The event `standing_changed` is emitted if it is different.
        """
        async with self._making:
            known = await self._recollect()
            self._reason, self._is_stale = reason, True
            return await self._make(known)

    async def invalidate(self, reason: str) -> None:
        """The block is made again at the next call, for example after the host's context was compacted."""
        async with self._making:
            await self._recollect()
            self._reason, self._unstored, self._is_stale = reason, None, True
            key = self.scope.key

            def work(unit: Unit) -> bool:
                unit.conversations.put_standing(key, None)
                return True

            if await self._asked(lambda store: store.write(work), "is not dropped in the store yet"):
                self._is_stale = False

    async def appended(self, system_prompt: str) -> str:
        """Returns `system_prompt` with the standing block at its end."""
        return append_standing(system_prompt, await self.block())

    async def flush(self, *, within: float = READ_WITHIN) -> bool:
        """Waits until all touched paths are read. Returns False if that takes longer than `within` seconds."""
        return await is_set(self._rested, within=within)

    async def relevant_context(self, text: str) -> str:
        """Returns a block of memories for `text`, as a turn would recall them; an empty text if there are none.

        Nothing counts as shown by it. If the store fails, it logs a warning and returns an empty text.
        """
        return await self._contexts.relevant(text)

    async def project_context(self) -> str:
        """Returns the context files of the roots and the project's conventions as they are now."""
        return await self._contexts.project()

    async def task_context(self, agent_name: str) -> str:
        """Returns the context for a sub-agent: that of the project, and the statements about this agent's work."""
        return await self._contexts.task(agent_name)

    async def search(self, query: str, *, limit: int = 10) -> SearchResults:
        """Returns the best matches in all spaces that this conversation may read. Raises AfterturnError."""
        return await self._contexts.search(query, limit=limit)

    async def _recollect(self) -> _Known | None:
        """What the conversation is frozen to and which files its blocks have brought; None when that can't be told."""
        key, scope, scan = self.scope.key, self.scope, scanner(scanning=self._services.config.scanning)
        if not self._services.has_store:
            return _Known(self._unstored)

        def work(unit: Unit) -> _Known:
            row = unit.conversations.find_standing(key)
            blocks = unit.conversations.blocks(key)
            withdrawn = row is not None and (not all_readable(unit, scope, row.refs) or bool(scan.find(row.text)))
            return _Known(
                None if row is None or withdrawn else row.text,
                withdrawn=withdrawn,
                came=frozenset().union(*(shown_paths(block.text) for block in blocks)),
                in_sight=frozenset().union(*(shown_paths(block.text) for block in blocks if block.in_sight)),
            )

        known = await self._asked(lambda store: store.read(work), "cannot be read")
        # Stored while another space was granted, which this host may not read, or while fewer secrets were recognised.
        self._is_stale = self._is_stale or (known is not None and known.withdrawn)
        if known is not None and known.text is not None:
            self._show(known.text)
        return replace(known, text=None) if known is not None and self._is_stale else known

    async def _make(self, known: _Known | None) -> str:
        files = await self._read_files(known)
        content = StandingContent(files.files if files is not None else (), self._instructions)
        for _ in range(_ATTEMPTS):
            block = None if known is None else await self._rendered(content)
            if block is None:
                break
            self._tell_skipped(Skipped(path, Refusal.NO_ROOM) for path in content.paths if path not in block.paths)
            # What is missing comes back, and freezing the conversation to this would keep it out.
            kept = block.text if files is None else await self._keep(block)
            if kept is not None:
                return kept if files is None else await self._settle(kept, block)
        # The store does not answer, or others forget faster than this reads.
        return render_standing(content, _budget(self._services.config)).text

    async def _read_files(self, known: _Known | None) -> ContextFiles | None:
        # What once came by touch stays.
        came = {*self._arrivals.came(), *self._standing_paths, *(known.came if known is not None else ())}
        found = await self._services.file_reads.run(functools.partial(read_standing, self._folders, sorted(came)))
        if found is None:
            self._tell_skipped(Skipped(root, Refusal.TIMEOUT) for root in self._folders.roots)
            return None
        self._tell_skipped(found.skipped)
        return found

    async def _rendered(self, content: StandingContent) -> StandingBlock | None:
        """With memories, off the loop. None when these cannot be read."""
        reader, room = _reader(self.scope, now=self._services.clock.now()), _budget(self._services.config)

        def work(unit: Unit) -> StandingBlock:
            return render_standing(replace(content, memories=find_standing_memories(unit, reader)), room)

        if self._services.has_store:
            return await self._asked(lambda store: store.read(work), "is made without memories")
        if not content.files:
            return render_standing(content, room)
        return await self._services.file_reads.run(functools.partial(render_standing, content, room))

    async def _keep(self, block: StandingBlock) -> str | None:
        """The text that the conversation is frozen to from now on; None when a memory in it is gone meanwhile."""
        key, replaces = self.scope.key, self._is_stale
        row = StandingRow(block.text, block.refs, self._services.clock.now())

        def work(unit: Unit) -> tuple[str | None]:
            earlier = unit.conversations.find_standing(key)
            if earlier is not None and not replaces:
                return (earlier.text,)
            unit.conversations.put_standing(key, row)
            kept = unit.conversations.find_standing(key)
            return (None if kept is None else kept.text,)

        if not self._services.has_store:
            self._unstored, self._is_stale = block.text, False
            return block.text
        kept = await self._asked(lambda store: store.write(work), "is not kept")
        if kept is None:
            return block.text
        self._is_stale = False
        return kept[0]

    async def _asked(self, ask: Callable[[Store], Awaitable[R]], trouble: str) -> R | None:
        """The store's answer. None, and a warning, if it fails or is too slow; None without a store."""
        if not self._services.has_store:
            return None
        try:
            async with asyncio.timeout(self._services.config.recall_timeout):
                return await ask(self._services.store)
        except (AfterturnError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            logger.warning("the standing block of %r %s: %s", self.scope.id, trouble, reason)
            return None

    async def _settle(self, text: str, block: StandingBlock) -> str:
        """Tells what changed. Files that came by touch and stand in the block now need not arrive any more."""
        reason = self._reason or ("start" if self._shown_hash == _NOTHING else "dropped")
        changed, self._reason = self._shown_hash != block_hash(text), ""
        self._show(text)
        if text == block.text:
            self._standing_paths |= set(block.paths)
            if changed:
                self._emit("standing_changed", reason=reason, bytes=len(text.encode()), paths=_told(block.paths))
        joined = [path for path in self._arrivals.came() if self._is_standing(path)]
        if joined:
            await self._services.file_reads.run(functools.partial(self._arrivals.join, joined))
        return text

    def _show(self, text: str) -> None:
        shown = block_hash(text)
        if shown != self._shown_hash:
            self._shown_hash, self._standing_paths = shown, shown_paths(text)

    def _is_standing(self, path: str) -> bool:
        return path in self._standing_paths or shown_path(path) in self._standing_paths

    # Just in time.

    def _start_reading(self) -> None:
        self._rested.clear()
        self._services.supervisor.start(self._read_touched(), f"context files of {self.scope.id}")

    async def _read_touched(self) -> None:
        try:
            while touched := self._arrivals.next_touched():
                # A file that is in the system prompt or visible already is not added again.
                await self.block()
                known = await self._recollect()
                loaded = self._standing_paths | (known.in_sight if known is not None else frozenset())
                skipped = await self._services.file_reads.run(
                    functools.partial(self._arrivals.look, self._folders, touched, loaded)
                )
                self._tell_skipped((Skipped(touched[0], Refusal.TIMEOUT),) if skipped is None else skipped)
        except BaseException:
            self._arrivals.stop()
            raise
        finally:
            self._rested.set()

    def _tell_skipped(self, skipped: Iterable[Skipped]) -> None:
        for item in skipped:
            if item not in self._told and len(self._told) < _TOLD_MAX:
                self._told.add(item)
                self._emit("context_file_skipped", path=shown_path(item.path), reason=item.reason)

    def _emit(self, name: str, **data: str | int) -> None:
        self._services.events.emit(name, space=self.scope.owner, conversation=self.scope.id, turn="", **data)


class StandingVerbs:
    """Both kinds of Standing, and their verbs."""

    block = Bridged(StandingCore.block)
    appended = Bridged(StandingCore.appended)
    refresh = Bridged(StandingCore.refresh)
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


def _told(paths: Iterable[str]) -> str:
    shown = [shown_path(path) for path in paths]
    more = len(shown) - _TOLD_PATHS_MAX
    return ", ".join(shown[:_TOLD_PATHS_MAX] + ([f"and {more} more"] if more > 0 else []))
