"""What both kinds of memory are made of, `memory` and `blocking`: checked settings, and a core once it is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from afterturn.base.errors import MemoryClosed
from afterturn.base.exits import last_chance
from afterturn.base.loading import load, load_logging
from afterturn.base.logs import find_logger
from afterturn.opening import Handler, Target, find_file

if TYPE_CHECKING:
    from pathlib import Path

    from afterturn.base.config import Config
    from afterturn.base.loop import PrivateLoop
    from afterturn.parts import Parts
    from afterturn.runtime import MemoryCore

logger = find_logger("afterturn")

# What closing may take beyond `close_timeout`: interrupting a statement, ending threads.
STOP_WITHIN = 2.0


class MemoryHandle:
    def __init__(self, target: Target, config: Config, parts: Parts, on_event: Handler | None) -> None:
        self._file = find_file(target, config)
        self._config = config
        self._parts = parts
        self._on_event = on_event
        self._started: MemoryCore | None = None

    @property
    def _target(self) -> Path | None:
        from pathlib import Path

        return None if self._file is None else Path(self._file)

    @property
    def _core(self) -> MemoryCore:
        self._check_opened()
        assert self._started is not None
        return self._started

    @property
    def _loop(self) -> PrivateLoop:
        return self._core.loop

    def start_closing(self) -> None:
        """From now on closing goes on by itself, whatever becomes of whoever asked for it."""
        self._core.loop.end(self._core.close)

    def wait_closed(self) -> None:
        self._ended(ended=self._core.loop.wait_ended(within=self._patience))

    @property
    def _patience(self) -> float:
        return self._config.close_timeout + STOP_WITHIN

    @property
    def _closable(self) -> bool:
        return self._started is not None and not self._started.loop.forked

    @property
    def _is_opened(self) -> bool:
        return self._started is not None

    def _check_opened(self) -> None:
        if not self._is_opened:
            raise MemoryClosed(
                "This memory is not open yet. Enter it: `async with afterturn.open(...)`, or without an event loop "
                "`with afterturn.blocking.open(...)`."
            )

    def _check_new(self) -> None:
        if self._is_opened:
            raise MemoryClosed("A memory is opened once. Call `afterturn.open(...)` again.")

    def _make(self, parts: Parts) -> MemoryCore:
        """A core that is not started yet, on a loop that is."""
        load_logging()
        load("afterturn.runtime")
        from afterturn.base.events import Events
        from afterturn.runtime import MemoryCore

        loop = parts.loop("afterturn")
        loop.start()
        events = Events(parts.clock, self._config.tenant, self._on_event)
        return MemoryCore(loop, self._target, self._config, parts, events)

    def _make_ended(self, process: int, failure: BaseException | None) -> MemoryCore:
        """Stands for one that was closed, or left to the process that this was forked from, before it was needed; or
        that could not be started."""
        load_logging()
        load("afterturn.runtime")
        from afterturn.base.events import Events
        from afterturn.base.loop import PrivateLoop
        from afterturn.runtime import MemoryCore, NoStore

        events = Events(self._parts.clock, self._config.tenant, self._on_event)
        loop = PrivateLoop.ended_in(process, failure)
        core = MemoryCore(loop, self._target, self._config, self._parts, events)
        core.connect(NoStore())
        return core

    def _ended(self, *, ended: bool) -> None:
        last_chance.forget(self)
        if not ended:
            logger.warning("closing %s took longer than %g seconds; a thread is left", self._target, self._patience)
