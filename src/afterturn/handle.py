"""The part that both public memory objects share: checked settings, and a core once it is started."""

from __future__ import annotations

import logging

from afterturn.base.config import Config
from afterturn.base.errors import MemoryClosed
from afterturn.base.events import Events
from afterturn.base.exits import last_chance
from afterturn.base.loop import PrivateLoop
from afterturn.opening import Handler, Target, resolve_target
from afterturn.parts import Parts
from afterturn.runtime import MemoryCore

logger = logging.getLogger("afterturn")

# What closing may take beyond `close_timeout`: interrupting a statement, ending threads.
STOP_WITHIN = 2.0


class MemoryHandle:
    def __init__(self, target: Target, config: Config, parts: Parts, on_event: Handler | None) -> None:
        self._target = resolve_target(target, config)
        self._config = config
        self._parts = parts
        self._on_event = on_event
        self._started: MemoryCore | None = None

    @property
    def _core(self) -> MemoryCore:
        if self._started is None:
            raise MemoryClosed(
                "This memory is not open yet. Enter it: `async with afterturn.open(...)`, or without an event loop "
                "`with afterturn.blocking.open(...)`."
            )
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

    def _make(self) -> MemoryCore:
        """A core that is not started yet, on a loop that is."""
        if self._started is not None:
            raise MemoryClosed("A memory is opened once. Call `afterturn.open(...)` again.")
        loop = self._parts.loop("afterturn")
        loop.start()
        events = Events(self._parts.clock, self._config.tenant, self._on_event)
        return MemoryCore(loop, self._target, self._config, self._parts, events)

    def _opened(self, core: MemoryCore) -> None:
        self._started = core
        last_chance.watch(self)

    def _ended(self, *, ended: bool) -> None:
        last_chance.forget(self)
        if not ended:
            logger.warning("closing %s took longer than %g seconds; a thread is left", self._target, self._patience)
