"""`open`, Memory and Space for programs without an event loop: every verb waits for its result."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from afterturn.config import Config, Settings
from afterturn.conversation.blocking_conversation import Conversation, Standing, Tools, Turn
from afterturn.conversation.scope import ConversationOptions, make_scope
from afterturn.errors import StoreUnavailable
from afterturn.memory import (
    DEFAULT_STORE,
    MemoryFacade,
    OpenOptions,
    SpaceFacade,
    StoreTarget,
    merge_settings,
    read_options,
    resolve_target,
    show_options,
)
from afterturn.runtime.bridge import BlockingFacade
from afterturn.services import rescue as rescue_store

__all__ = ["Conversation", "Memory", "Space", "Standing", "Tools", "Turn", "open", "rescue"]

WORK_POLL = 0.2


class Memory(BlockingFacade, MemoryFacade):
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
        place = make_scope(self._config.tenant, id, where, scanning=self._config.scan_policy)
        return Conversation(self._services.conversation(place.key), place, self._loop)

    def space(self, name: str) -> Space:
        """Returns the space with this name, such as "user:ada". Raises InvalidName for a name of another form."""
        return Space(self._services.space(name), self._loop)

    def work(self, until: Callable[[], bool]) -> None:
        """Runs the background jobs, and the housekeeping of all tenants, until `until()` is true. Then lets the jobs
        that run end, for up to `close_timeout`. For a process that does nothing else: it runs no jobs after that."""
        pause, services = threading.Event(), self._services
        if not until():
            services.loop.post(services.housekeeping.serve_all_tenants)
        while not until():
            pause.wait(WORK_POLL)
        self._loop.wait(services.finish_jobs())


class Space(BlockingFacade, SpaceFacade):
    """One space of a memory: its statements, records, proposals and reviews."""


@show_options
def open(
    target: StoreTarget = DEFAULT_STORE,
    config: Config | Settings | Mapping[str, Any] | None = None,
    **options: Unpack[OpenOptions],
) -> Memory:
    """Opens the store at `target`: `with afterturn.blocking.open("memory.db") as memory`. See `afterturn.open`."""
    return Memory(target, *read_options(config, options))


def rescue(
    target: StoreTarget, source: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Replaces a store that raises StoreCorrupt when opened with a backup. Returns where the damaged file is now."""
    config = merge_settings(None, None, background=False)
    path = resolve_target(target, config)
    if path is None:
        raise StoreUnavailable("There is no store to rescue. Pass its path.")
    return rescue_store(path, Path(source), config, progress)


def __dir__() -> list[str]:
    return __all__
