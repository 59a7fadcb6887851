"""The public objects for hosts with an event loop: `open`, and the memory and spaces it gives.

They hold nothing but a core and the loop it lives on; `blocking` is the same for hosts without a loop.
"""

from __future__ import annotations

from types import TracebackType
from typing import NoReturn, Unpack

from afterturn.base.bridged import awaiting
from afterturn.base.loop import PrivateLoop
from afterturn.handle import MemoryHandle
from afterturn.opening import CONFIGURED, Options, Settings, Target, chosen
from afterturn.runtime import MemoryCore
from afterturn.space.verbs import SpaceCore
from afterturn.turn.awaited import Conversation
from afterturn.turn.place import Whereabouts, make_place


class Memory(MemoryHandle):
    """An agent's memory. `async with afterturn.open("memory.db") as memory`, or `start` and `close`."""

    async def start(self) -> Memory:
        """Opens the store. Raises AfterturnError when that can not be done, and leaves nothing behind."""
        core = self._make()
        try:
            await core.loop.run(core.start())
        except BaseException as error:
            core.loop.end(core.close)
            if isinstance(error, Exception):
                await core.loop.ended(within=self._patience)
            raise
        self._opened(core)
        return self

    async def close(self) -> None:
        """Records what was handed over, ends every task and thread. Bounded; twice is harmless; from any loop.

        Cancelling it ends the waiting, not the closing.
        """
        if self._closable:
            self.start_closing()
            self._ended(ended=await self._loop.ended(within=self._patience))

    async def __aenter__(self) -> Memory:
        return await self.start()

    def __enter__(self) -> NoReturn:
        raise TypeError("Use `async with afterturn.open(...)`, or `with afterturn.blocking.open(...)`.")

    def __exit__(self, *left: object) -> None:
        """Never reached; `with` looks for it before it enters."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def conversation(self, id: str, **where: Unpack[Whereabouts]) -> Conversation:
        """One thread of messages, of `user="ada"` or of `owner="project:api"`."""
        place = make_place(self._config.tenant, id, where, scanning=self._config.scanning)
        return Conversation(self._core.conversation(place.key), place, self._loop)

    def space(self, name: str) -> Space:
        """One space, spoken to directly."""
        return Space(self._core.space(name), self._loop)

    ready = awaiting(MemoryCore.ready)
    drain = awaiting(MemoryCore.drain)
    backup = awaiting(MemoryCore.backup)
    restore = awaiting(MemoryCore.restore)
    stats = awaiting(MemoryCore.stats)
    spaces = awaiting(MemoryCore.spaces)
    usage = awaiting(MemoryCore.usage)
    check = awaiting(MemoryCore.check)
    retry_dead = awaiting(MemoryCore.retry_dead)


class Space:
    """One space, spoken to directly. There is no verb without a space."""

    def __init__(self, core: SpaceCore, loop: PrivateLoop) -> None:
        self._core = core
        self._loop = loop

    @property
    def name(self) -> str:
        return self._core.name

    add = awaiting(SpaceCore.add)
    add_many = awaiting(SpaceCore.add_many)
    update = awaiting(SpaceCore.update)
    delete = awaiting(SpaceCore.delete)
    get = awaiting(SpaceCore.get)
    list = awaiting(SpaceCore.list)
    history = awaiting(SpaceCore.history)
    operations = awaiting(SpaceCore.operations)
    undo = awaiting(SpaceCore.undo)
    forget = awaiting(SpaceCore.forget)
    proposals = awaiting(SpaceCore.proposals)
    proposal = awaiting(SpaceCore.proposal)
    approve = awaiting(SpaceCore.approve)
    reject = awaiting(SpaceCore.reject)
    reviews = awaiting(SpaceCore.reviews)
    review = awaiting(SpaceCore.review)
    undo_review = awaiting(SpaceCore.undo_review)
    run_review = awaiting(SpaceCore.run_review)
    consolidate = awaiting(SpaceCore.consolidate)
    usage = awaiting(SpaceCore.usage)
    as_markdown = awaiting(SpaceCore.as_markdown)
    compare_markdown = awaiting(SpaceCore.compare_markdown)
    apply_edits = awaiting(SpaceCore.apply_edits)
    search = awaiting(SpaceCore.search)
    trace = awaiting(SpaceCore.trace)
    conversations = awaiting(SpaceCore.conversations)
    export = awaiting(SpaceCore.export)
    stats = awaiting(SpaceCore.stats)


def open(target: Target = CONFIGURED, config: Settings = None, **options: Unpack[Options]) -> Memory:
    """A memory on a file, to be entered. `None`: the same API with no memory; nothing: the store in the settings."""
    return Memory(target, *chosen(config, options))
