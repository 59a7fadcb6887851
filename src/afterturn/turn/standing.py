"""The standing context of one conversation: made once, kept in the store, and added to by what its agent touches.

It lives on memory's loop, but for what hosts call from any thread: `touch` and `take_arrived`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Iterable

from afterturn.base.errors import AfterturnError, ForkedProcess
from afterturn.base.ports import Unit
from afterturn.base.slot import is_set
from afterturn.base.turns import StandingRow
from afterturn.base.types import Recollection
from afterturn.context.block import block_hash
from afterturn.context.files import ContextFiles, read_standing
from afterturn.context.lasting import NOTHING_LASTS, Lasting, find_lasting
from afterturn.context.standing import (
    Content,
    StandingBlock,
    append_standing,
    render_standing,
    shown_path,
    shown_paths,
)
from afterturn.context.trusted import Reason, Skipped
from afterturn.turn.arrivals import Arrivals
from afterturn.turn.contexts import Contexts
from afterturn.turn.file_reads import READ_WITHIN
from afterturn.turn.place import Place
from afterturn.turn.standing_parts import StandingParts, check_instructions

logger = logging.getLogger("afterturn")

_TOLD_MAX = 1_000
_TOLD_PATHS_MAX = 20
_ATTEMPTS = 3
_NOTHING = block_hash("")


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
        self._places = parts.places(roots)
        self._instructions = check_instructions(instructions)
        self._contexts = Contexts(parts, place, self._places)
        self._arrivals = Arrivals(parts.config.standing_bytes_max)
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
        """The standing block, "" when there is nothing to say. The same bytes until it is refreshed, in any process."""
        async with self._making:
            text = await self._find()
            return await self._make(replace=False) if text is None else text

    async def refresh(self, reason: str = "asked") -> str:
        """Reads everything anew. `standing_changed` tells when that made a difference."""
        async with self._making:
            await self._find()
            self._reason = reason
            return await self._make(replace=True)

    async def invalidate(self, reason: str) -> None:
        """The block is made anew when it is next asked for: the host's context was compacted, say."""
        async with self._making:
            await self._find()
            self._reason, self._unstored, self._is_stale = reason, None, True
            store, key = self._parts.store, self.place.key
            if store is None:
                return
            try:
                await store.write(lambda unit: unit.conversations.put_standing(key, None))
            except AfterturnError as error:
                logger.warning("the standing block of %r is not dropped in the store yet: %s", key.id, error)
            else:
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

    async def search(self, query: str, *, limit: int = 10) -> Recollection:
        return await self._contexts.search(query, limit=limit)

    async def _find(self) -> str | None:
        """What the conversation is frozen to; None before it is made, or when it has to be made anew."""
        store, key = self._parts.store, self.place.key
        if store is None or self._is_stale:
            return self._unstored
        try:
            row = await store.read(lambda unit: unit.conversations.find_standing(key))
        except AfterturnError as error:
            logger.warning("the standing block of %r can not be read: %s", key.id, error)
            return None
        if row is None:
            return None
        self._show(row.text)
        return row.text

    async def _make(self, *, replace: bool) -> str:
        files = await self._read_files()
        for _ in range(_ATTEMPTS):
            lasting = await self._find_lasting()
            block = self._rendered(files, lasting or NOTHING_LASTS)
            if files is None or lasting is None:
                # What is missing comes back; freezing the conversation to this would keep it out.
                return block.text
            kept = await self._keep(block, replace=replace)
            if kept is not None:
                return await self._settle(kept, block)
        # Others forget faster than this reads; what is being forgotten is not shown.
        return self._rendered(files, NOTHING_LASTS).text

    def _rendered(self, files: ContextFiles | None, lasting: Lasting) -> StandingBlock:
        shown = files.files if files is not None else ()
        block = render_standing(Content(shown, self._instructions, lasting), self._parts.room)
        self._tell_skipped(Skipped(file.path, Reason.NO_ROOM) for file in shown if file.path not in block.paths)
        return block

    async def _read_files(self) -> ContextFiles | None:
        # What once came by touch stays: by what this process knows, and by what the conversation's blocks tell.
        came = {*await self._paths_of_blocks(in_sight=False), *self._arrivals.came(), *self._standing_paths}
        found = await self._parts.reads.run(functools.partial(read_standing, self._places, sorted(came)))
        if found is None:
            self._tell_skipped(Skipped(root, Reason.TIMEOUT) for root in self._places.roots)
            return None
        self._tell_skipped(found.skipped)
        return found

    async def _find_lasting(self) -> Lasting | None:
        store, place = self._parts.store, self.place
        if store is None:
            return NOTHING_LASTS
        reader = self._parts.reader(place)
        try:
            return await store.read(lambda unit: find_lasting(unit, reader))
        except AfterturnError as error:
            logger.warning("the standing block of %r is made without memories: %s", place.id, error)
            return None

    async def _keep(self, block: StandingBlock, *, replace: bool) -> str | None:
        """The text that the conversation is frozen to from now on; None when a memory in it is gone meanwhile."""
        store, key = self._parts.store, self.place.key
        row = StandingRow(block.text, block.refs, self._parts.clock.now())
        replaces = replace or self._is_stale

        def work(unit: Unit) -> str | None:
            earlier = unit.conversations.find_standing(key)
            if earlier is not None and not replaces:
                return earlier.text
            unit.conversations.put_standing(key, row)
            kept = unit.conversations.find_standing(key)
            return None if kept is None else kept.text

        if store is None:
            self._unstored, self._is_stale = block.text, False
            return block.text
        try:
            kept = await store.write(work)
        except AfterturnError as error:
            logger.warning("the standing block of %r is not kept: %s", key.id, error)
            return block.text
        self._is_stale = False
        return kept

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
                # What stands in the system prompt does not arrive a second time.
                await self.block()
                loaded = self._standing_paths | await self._paths_of_blocks(in_sight=True)
                work = functools.partial(self._arrivals.look, self._places, touched, loaded)
                skipped = await self._parts.reads.run(work)
                self._tell_skipped((Skipped(touched[0], Reason.TIMEOUT),) if skipped is None else skipped)
        finally:
            self._arrivals.stop()
            self._rested.set()

    async def _paths_of_blocks(self, *, in_sight: bool) -> frozenset[str]:
        """Of files that came by touch, as the conversation's blocks tell: also those of other processes."""
        store, key = self._parts.store, self.place.key
        if store is None:
            return frozenset()
        try:
            rows = await store.read(lambda unit: unit.conversations.blocks(key))
        except AfterturnError as error:
            logger.warning("the blocks of %r can not be read: %s", key.id, error)
            return frozenset()
        return frozenset().union(*(shown_paths(row.text) for row in rows if row.in_sight or not in_sight))

    def _tell_skipped(self, skipped: Iterable[Skipped]) -> None:
        for item in skipped:
            if item not in self._told and len(self._told) < _TOLD_MAX:
                self._told.add(item)
                self._emit("context_file_skipped", path=shown_path(item.path), reason=item.reason)

    def _emit(self, name: str, **data: str | int) -> None:
        self._parts.events.emit(name, space=self.place.owner, conversation=self.place.id, turn="", **data)


def _told(paths: Iterable[str]) -> str:
    shown = [shown_path(path) for path in paths]
    more = len(shown) - _TOLD_PATHS_MAX
    return ", ".join(shown[:_TOLD_PATHS_MAX] + ([f"and {more} more"] if more > 0 else []))
