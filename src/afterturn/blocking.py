"""`open`, Memory and Space for programs without an event loop: every verb waits for its result."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from afterturn.config import Config, Settings
from afterturn.conversation.blocking_conversation import Conversation as Conversation
from afterturn.conversation.blocking_conversation import Standing as Standing
from afterturn.conversation.blocking_conversation import Tools as Tools
from afterturn.conversation.blocking_conversation import Turn as Turn
from afterturn.conversation.scope import ConversationOptions, make_place
from afterturn.errors import StoreUnavailable
from afterturn.maintenance import Maintenance
from afterturn.memory import DEFAULT_STORE, MemoryHandle, OpenOptions, StoreTarget, chosen, resolve_target, settings
from afterturn.runtime.bridge import blocking
from afterturn.runtime.loop_thread import LoopThread
from afterturn.services import rescue as rescue_store
from afterturn.space.verbs import SpaceCore

WORK_POLL = 0.2


class Memory(MemoryHandle):
    """An agent's memory, as `blocking.open` returns it. Use it with `with`, or call `start` and `close`.

    It may be used from any thread.
    """

    def start(self) -> Memory:
        """Opens the store. Raises AfterturnError if that fails, and then leaves no thread or file behind."""
        services = self._make()
        try:
            services.loop.wait(services.start())
        except BaseException as error:
            services.loop.end(services.close)
            if isinstance(error, Exception):
                services.loop.wait_ended(within=self._patience)
            raise
        self._opened(services)
        return self

    def close(self) -> None:
        """Records the turns that are finished and ends all tasks and threads, within `close_timeout` plus 2 seconds.

        May be called twice.
        """
        if self._closable:
            self._loop.check_thread()
            self.start_closing()
            self.wait_closed()

    def __enter__(self) -> Memory:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def conversation(self, id: str, **where: Unpack[ConversationOptions]) -> Conversation:
        """Returns the conversation with this id, as `afterturn.Memory.conversation` does."""
        place = make_place(self._config.tenant, id, where, scanning=self._config.scanning)
        return Conversation(self._services.conversation(place.key), place, self._loop)

    def space(self, name: str) -> Space:
        """Returns the space with this name, such as "user:ada". Raises InvalidName for a name of another form."""
        return Space(self._services.space(name), self._loop)

    def work(self, until: Callable[[], bool]) -> None:
        """Runs the background jobs until `until()` is true. For a process that does nothing else."""
        pause, _ = threading.Event(), self._services
        while not until():
            pause.wait(WORK_POLL)

    ready = blocking(Maintenance.ready)
    drain = blocking(Maintenance.drain)
    backup = blocking(Maintenance.backup)
    restore = blocking(Maintenance.restore)
    stats = blocking(Maintenance.stats)
    spaces = blocking(Maintenance.spaces)
    usage = blocking(Maintenance.usage)
    check = blocking(Maintenance.check)
    retry_dead = blocking(Maintenance.retry_dead)


class Space:
    """One space of a memory: its statements, records, proposals and reviews."""

    def __init__(self, core: SpaceCore, loop: LoopThread) -> None:
        self._core = core
        self._loop = loop

    def __repr__(self) -> str:
        return f"<Space {self.name}>"

    @property
    def name(self) -> str:
        """The kind and the name of the space, such as "user:ada"."""
        return self._core.name

    add = blocking(SpaceCore.add)
    add_many = blocking(SpaceCore.add_many)
    update = blocking(SpaceCore.update)
    delete = blocking(SpaceCore.delete)
    get = blocking(SpaceCore.get)
    list = blocking(SpaceCore.list)
    history = blocking(SpaceCore.history)
    operations = blocking(SpaceCore.operations)
    undo = blocking(SpaceCore.undo)
    forget = blocking(SpaceCore.forget)
    proposals = blocking(SpaceCore.proposals)
    proposal = blocking(SpaceCore.proposal)
    approve = blocking(SpaceCore.approve)
    reject = blocking(SpaceCore.reject)
    reviews = blocking(SpaceCore.reviews)
    review = blocking(SpaceCore.review)
    undo_review = blocking(SpaceCore.undo_review)
    run_review = blocking(SpaceCore.run_review)
    consolidate = blocking(SpaceCore.consolidate)
    usage = blocking(SpaceCore.usage)
    as_markdown = blocking(SpaceCore.as_markdown)
    compare_markdown = blocking(SpaceCore.compare_markdown)
    apply_edits = blocking(SpaceCore.apply_edits)
    search = blocking(SpaceCore.search)
    trace = blocking(SpaceCore.trace)
    conversations = blocking(SpaceCore.conversations)
    export = blocking(SpaceCore.export)
    stats = blocking(SpaceCore.stats)


def open(
    target: StoreTarget = DEFAULT_STORE,
    config: Config | Settings | Mapping[str, Any] | None = None,
    **options: Unpack[OpenOptions],
) -> Memory:
    """Opens the store at `target`: `with afterturn.blocking.open("memory.db") as memory`. See `afterturn.open`."""
    return Memory(target, *chosen(config, options))


def rescue(
    target: StoreTarget, source: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Replaces a store that raises StoreCorrupt when opened with a backup. Returns where the damaged file is now."""
    config = settings(None, None, background=False)
    path = resolve_target(target, config)
    if path is None:
        raise StoreUnavailable("There is no store to rescue. Pass its path.")
    return rescue_store(path, Path(source), config, progress)
