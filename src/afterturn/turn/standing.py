"""The standing context of one conversation: made once, kept in the store, and added to by what its agent touches.

It lives on memory's loop, but for what hosts call from any thread: `touch` and `take_arrived`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from afterturn.base.errors import AfterturnError, ForkedProcess
from afterturn.base.loop import PrivateLoop
from afterturn.base.ports import Store, Unit
from afterturn.base.slot import is_set
from afterturn.base.turns import StandingRow
from afterturn.base.types import SearchResults
from afterturn.context.block import block_hash
from afterturn.context.files import ContextFiles, read_standing
from afterturn.context.lasting import find_lasting
from afterturn.context.standing import (
    Content,
    StandingBlock,
    append_standing,
    render_standing,
    shown_path,
    shown_paths,
)
from afterturn.context.trusted import Refusal, Skipped
from afterturn.guard.secrets import scanner
from afterturn.turn.arrivals import Arrivals
from afterturn.turn.contexts import Contexts
from afterturn.turn.file_reads import READ_WITHIN
from afterturn.turn.place import Place
from afterturn.turn.preparing import all_readable
from afterturn.turn.standing_parts import StandingParts, check_instructions

logger = logging.getLogger("afterturn")
R = TypeVar("R")

_TOLD_MAX = 1_000
_TOLD_PATHS_MAX = 20
_ATTEMPTS = 3
_NOTHING = block_hash("")


@dataclass(frozen=True, slots=True)
class _Known:
    """What the store tells of a conversation: its block, and the files that came by touch, as its blocks show them."""

    text: str | None
    came: frozenset[str] = frozenset()
    in_sight: frozenset[str] = frozenset()
    withdrawn: bool = False


class StandingCore:
    """`roots` are the folders that the host trusts, `instructions` what it adds itself, such as those of MCP servers.

    InvalidInput when they are no lists of paths and texts.
    """

    def __init__(
        self,
        parts: StandingParts,
        place: Place,
        roots: Iterable[str | os.PathLike[str]] = (),
        instructions: Iterable[str] = (),
    ) -> None:
        self._parts = parts
        self.place = place
        # Whose it is lives as long: what arrives here is handed over by its turns, and memory holds it but weakly.
        self.owner: object = None
        self._places = parts.places(roots)
        self._instructions = check_instructions(instructions)
        self._contexts = Contexts(parts, place, self._places)
        self._arrivals = Arrivals(parts.config.standing_bytes_max, scanning=parts.config.scanning)
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
            self._parts.loop.check()
            if self._arrivals.touch(os.fsdecode(path)):
                self._parts.loop.post(self._start_reading)
        except AfterturnError as error:
            event = "memory_forked" if isinstance(error, ForkedProcess) else "memory_closed"
            if self._parts.events.tell_once(event, conversation=self.place.id):
                logger.warning("conversation %r: a path was touched in vain: %s", self.place.id, error)
        except Exception:  # the boundary to the host's own objects, which may raise whatever they like
            logger.warning("conversation %r: what was touched is no path", self.place.id, exc_info=True)

    def take_arrived(self) -> str | None:
        """The files that came since the last call, as one block's text; None when there are none. Never waits."""
        return self._arrivals.take()

    # On memory's loop.

    async def block(self) -> str:
        """The standing block, "" when there is nothing to say. The same bytes until it is refreshed, in any process.

        Files or memories that can not be read are left out, and the conversation is not frozen to that.
        """
        async with self._making:
            known = await self._recollect()
            return known.text if known is not None and known.text is not None else await self._make(known)

    async def refresh(self, reason: str = "asked") -> str:
        """Reads everything anew. `standing_changed` tells when that made a difference."""
        async with self._making:
            known = await self._recollect()
            self._reason, self._is_stale = reason, True
            return await self._make(known)

    async def invalidate(self, reason: str) -> None:
        """The block is made anew when it is next asked for: the host's context was compacted, say."""
        async with self._making:
            await self._recollect()
            self._reason, self._unstored, self._is_stale = reason, None, True
            key = self.place.key

            def work(unit: Unit) -> bool:
                unit.conversations.put_standing(key, None)
                return True

            if await self._asked(lambda store: store.write(work), "is not dropped in the store yet"):
                self._is_stale = False

    async def appended(self, system_prompt: str) -> str:
        """The prompt with the standing block at its end."""
        return append_standing(system_prompt, await self.block())

    async def flush(self, *, within: float = READ_WITHIN) -> bool:
        """Waits until all that was touched so far has been looked at. False when it took longer."""
        return await is_set(self._rested, within=within)

    async def relevant_context(self, text: str) -> str:
        return await self._contexts.relevant(text)

    async def project_context(self) -> str:
        return await self._contexts.project()

    async def task_context(self, agent_name: str) -> str:
        return await self._contexts.task(agent_name)

    async def search(self, query: str, *, limit: int = 10) -> SearchResults:
        return await self._contexts.search(query, limit=limit)

    async def _recollect(self) -> _Known | None:
        """What the conversation is frozen to and which files its blocks have brought; None when that can't be told."""
        key, place, scan = self.place.key, self.place, scanner(scanning=self._parts.config.scanning)
        if self._parts.store is None:
            return _Known(self._unstored)

        def work(unit: Unit) -> _Known:
            row = unit.conversations.find_standing(key)
            blocks = unit.conversations.blocks(key)
            withdrawn = row is not None and (not all_readable(unit, place, row.refs) or bool(scan.find(row.text)))
            return _Known(
                None if row is None or withdrawn else row.text,
                withdrawn=withdrawn,
                came=frozenset().union(*(shown_paths(block.text) for block in blocks)),
                in_sight=frozenset().union(*(shown_paths(block.text) for block in blocks if block.in_sight)),
            )

        known = await self._asked(lambda store: store.read(work), "can not be read")
        # Frozen while another space was granted: that is not for this host's model (L2). Or while less was known of
        # secrets (G3).
        self._is_stale = self._is_stale or (known is not None and known.withdrawn)
        if known is not None and known.text is not None:
            self._show(known.text)
        return replace(known, text=None) if known is not None and self._is_stale else known

    async def _make(self, known: _Known | None) -> str:
        files = await self._read_files(known)
        content = Content(files.files if files is not None else (), self._instructions)
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
        return render_standing(content, self._parts.room).text

    async def _read_files(self, known: _Known | None) -> ContextFiles | None:
        # What once came by touch stays.
        came = {*self._arrivals.came(), *self._standing_paths, *(known.came if known is not None else ())}
        found = await self._parts.reads.run(functools.partial(read_standing, self._places, sorted(came)))
        if found is None:
            self._tell_skipped(Skipped(root, Refusal.TIMEOUT) for root in self._places.roots)
            return None
        self._tell_skipped(found.skipped)
        return found

    async def _rendered(self, content: Content) -> StandingBlock | None:
        """With memories, off the loop. None when these can not be read."""
        reader, room = self._parts.reader(self.place), self._parts.room

        def work(unit: Unit) -> StandingBlock:
            return render_standing(replace(content, lasting=find_lasting(unit, reader)), room)

        if self._parts.store is not None:
            return await self._asked(lambda store: store.read(work), "is made without memories")
        if not content.files:
            return render_standing(content, room)
        return await self._parts.reads.run(functools.partial(render_standing, content, room))

    async def _keep(self, block: StandingBlock) -> str | None:
        """The text that the conversation is frozen to from now on; None when a memory in it is gone meanwhile."""
        key, replaces = self.place.key, self._is_stale
        row = StandingRow(block.text, block.refs, self._parts.clock.now())

        def work(unit: Unit) -> tuple[str | None]:
            earlier = unit.conversations.find_standing(key)
            if earlier is not None and not replaces:
                return (earlier.text,)
            unit.conversations.put_standing(key, row)
            kept = unit.conversations.find_standing(key)
            return (None if kept is None else kept.text,)

        if self._parts.store is None:
            self._unstored, self._is_stale = block.text, False
            return block.text
        kept = await self._asked(lambda store: store.write(work), "is not kept")
        if kept is None:
            return block.text
        self._is_stale = False
        return kept[0]

    async def _asked(self, ask: Callable[[Store], Awaitable[R]], trouble: str) -> R | None:
        """What the store answers. None, and a warning, when it can not or not in time; None without a store."""
        if self._parts.store is None:
            return None
        try:
            async with asyncio.timeout(self._parts.config.recall_timeout):
                return await ask(self._parts.store)
        except (AfterturnError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            logger.warning("the standing block of %r %s: %s", self.place.id, trouble, reason)
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
        joined = [path for path in self._arrivals.came() if self._stands(path)]
        if joined:
            await self._parts.reads.run(functools.partial(self._arrivals.join, joined))
        return text

    def _show(self, text: str) -> None:
        shown = block_hash(text)
        if shown != self._shown_hash:
            self._shown_hash, self._standing_paths = shown, shown_paths(text)

    def _stands(self, path: str) -> bool:
        return path in self._standing_paths or shown_path(path) in self._standing_paths

    # Just in time.

    def _start_reading(self) -> None:
        self._rested.clear()
        self._parts.supervisor.start(self._read_touched(), f"context files of {self.place.id}")

    async def _read_touched(self) -> None:
        try:
            while touched := self._arrivals.next_touched():
                # What stands in the system prompt does not arrive a second time, nor what is in sight already.
                await self.block()
                known = await self._recollect()
                loaded = self._standing_paths | (known.in_sight if known is not None else frozenset())
                skipped = await self._parts.reads.run(
                    functools.partial(self._arrivals.look, self._places, touched, loaded)
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
        self._parts.events.emit(name, space=self.place.owner, conversation=self.place.id, turn="", **data)


class StandingVerbs:
    """What hosts with and without an event loop call alike."""

    def __init__(self, core: StandingCore, loop: PrivateLoop) -> None:
        self._core = core
        self._loop = loop

    def touch(self, path: str | os.PathLike[str]) -> None:
        """The agent works there: context files from there upwards arrive at a later point. Never raises or waits."""
        self._core.touch(path)


def _told(paths: Iterable[str]) -> str:
    shown = [shown_path(path) for path in paths]
    more = len(shown) - _TOLD_PATHS_MAX
    return ", ".join(shown[:_TOLD_PATHS_MAX] + ([f"and {more} more"] if more > 0 else []))
