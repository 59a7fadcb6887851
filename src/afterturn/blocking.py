"""The same memory for hosts with no event loop: every verb waits for its answer. A second bridge, not a second core."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from afterturn.base.bridged import blocking_later
from afterturn.base.errors import MemoryClosed, StoreUnavailable
from afterturn.base.exits import last_chance
from afterturn.base.loading import load_logging
from afterturn.base.logs import find_logger
from afterturn.base.names import check_space
from afterturn.early import Early, at_once, open_early
from afterturn.handle import MemoryHandle
from afterturn.opening import CONFIGURED, Options, Settings, Target, chosen, resolve_target, settings
from afterturn.parts import Parts, make_store
from afterturn.parts import rescue as rescue_store
from afterturn.space.reading import SpaceReader

if TYPE_CHECKING:
    from pathlib import Path

    from afterturn.base.config import Config
    from afterturn.base.loop import PrivateLoop
    from afterturn.opening import Handler
    from afterturn.runtime import MemoryCore
    from afterturn.space.verbs import SpaceCore
    from afterturn.turn.place import Whereabouts
    from afterturn.turn.waited import Conversation as Conversation
    from afterturn.turn.waited import Standing as Standing
    from afterturn.turn.waited import Tools as Tools
    from afterturn.turn.waited import Turn as Turn

P = ParamSpec("P")
R = TypeVar("R")
logger = find_logger("afterturn")

WORK_POLL = 0.2
# Public names that are loaded when they are first used.
_LATER = ("Conversation", "Standing", "Tools", "Turn")


class Memory(MemoryHandle):
    """`with afterturn.blocking.open("memory.db") as memory`, or `start` and `close`.

    What only reads is answered as soon as the store is open. The rest is started behind it, or by who needs it first.
    """

    def __init__(self, target: Target, config: Config, parts: Parts, on_event: Handler | None) -> None:
        super().__init__(target, config, parts, on_event)
        self._early: Early | None = None
        # Held by who starts the rest, and by who closes; a signal's handler may close while its own thread does.
        self._starting = threading.RLock()

    def start(self) -> Memory:
        self._check_new()
        self._early = open_early(self._file, self._config, self._parts, self._on_event)
        if self._early is None:
            self._started = self._start_core(self._parts)
        else:
            self._early.start_later(self._start_behind)
        last_chance.watch(self)
        return self

    def close(self) -> None:
        if self._closable:
            if self._started is not None:
                self._loop.check_thread()
            self.start_closing()
            self.wait_closed()

    def start_closing(self) -> None:
        if self._early is not None:
            with self._starting:
                if self._started is None:
                    self._early.close(within=self._config.close_timeout)
                    return
        super().start_closing()

    def wait_closed(self) -> None:
        ended = self._early is None or self._early.wait_ended(within=self._patience)
        if self._started is None:
            self._ended(ended=ended)
        else:
            super().wait_closed()

    def __enter__(self) -> Memory:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _is_opened(self) -> bool:
        return self._early is not None or super()._is_opened

    @property
    def _closable(self) -> bool:
        return super()._closable if self._early is None or self._started is not None else self._early.is_usable

    @property
    def _core(self) -> MemoryCore:
        early = self._early
        if self._started is None and early is not None:
            self._start_rest(early)
            if self._started is None:
                self._started = self._make_ended(early.process, early.failure)
        return super()._core

    def _load_rest(self) -> None:
        """Before what needs a core is looked at, and with it loaded."""
        if self._early is not None and self._started is None:
            self._start_rest(self._early)

    def _start_rest(self, early: Early) -> None:
        """Unless it is started, or too late for it."""
        if early.is_usable:
            early.wait_settled()
            if early.failure is not None:
                raise early.failure

    def _start_behind(self, early: Early) -> None:
        """The thread that starts the rest."""
        has_time = not early.is_awaited
        try:
            with self._starting:
                if early.is_usable:
                    self._hand_over(early)
        except BaseException as error:  # noqa: BLE001  the boundary of a thread; whoever needs the rest is told
            self._give_up(early, error)
        finally:
            early.settle()
        if has_time and self._started is not None:
            self._warm_up(self._started)

    def _hand_over(self, early: Early) -> None:
        load_logging()
        store = make_store(early.engine, self._parts)
        self._started = self._start_core(replace(self._parts, store=lambda *place: store))

    def _give_up(self, early: Early, error: BaseException) -> None:
        if not early.is_awaited:
            logger.error("what goes on behind a memory could not be started", exc_info=error)
        early.failure = error
        # A core that could not be started has closed its store.
        early.close(within=0.0)
        last_chance.forget(self)

    def _warm_up(self, core: MemoryCore) -> None:
        """Vectors have waited long enough."""
        try:
            core.loop.wait(core.ready(within=0.0))
        except MemoryClosed:
            logger.debug("memory was closed while it was started")
        except Exception:  # the boundary of a thread; whoever asks for vectors is told
            logger.exception("what makes vectors could not be started")

    def _start_core(self, parts: Parts) -> MemoryCore:
        core = self._make(parts)
        try:
            core.loop.wait(core.start())
        except BaseException as error:
            core.loop.end(core.close)
            if isinstance(error, Exception):
                core.loop.wait_ended(within=self._patience)
            raise
        return core

    def _find_reader(self, name: str) -> SpaceReader | None:
        """What reads until there is a core; None from then on."""
        if self._early is None or self._started is not None or not self._early.is_usable:
            return None
        return self._early.space(name)

    def conversation(self, id: str, **where: Unpack[Whereabouts]) -> Conversation:
        """One thread of messages, of `user="ada"` or of `owner="project:api"`."""
        self._load_rest()
        from afterturn.turn.place import make_place
        from afterturn.turn.waited import Conversation

        place = make_place(self._config.tenant, id, where, scanning=self._config.scanning)
        return Conversation(self._core.conversation(place.key), place, self._loop)

    def space(self, name: str) -> Space:
        self._check_opened()
        return Space(self, name)

    def work(self, until: Callable[[], bool]) -> None:
        """Lets the background jobs run until `until()` is true; for processes that do nothing else."""
        pause, _ = threading.Event(), self._core
        while not until():
            pause.wait(WORK_POLL)

    ready = blocking_later(lambda: _memory().ready)
    drain = blocking_later(lambda: _memory().drain)
    backup = blocking_later(lambda: _memory().backup)
    restore = blocking_later(lambda: _memory().restore)
    stats = blocking_later(lambda: _memory().stats)
    spaces = blocking_later(lambda: _memory().spaces)
    usage = blocking_later(lambda: _memory().usage)
    check = blocking_later(lambda: _memory().check)
    retry_dead = blocking_later(lambda: _memory().retry_dead)


def _memory() -> type[MemoryCore]:
    from afterturn.runtime import MemoryCore

    return MemoryCore


def _space() -> type[SpaceCore]:
    from afterturn.space.verbs import SpaceCore

    return SpaceCore


def _reading(
    method: Callable[Concatenate[SpaceReader, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Space, P], R]:
    """A verb that needs nothing but the store: until memory has a loop, it is answered without one."""

    @functools.wraps(method)
    def call(self: Space, /, *args: P.args, **kwargs: P.kwargs) -> R:
        reader = self._find_reader()
        if reader is not None:
            return at_once(method(reader, *args, **kwargs))
        return self._loop.wait(method(self._core, *args, **kwargs))

    return call


class Space:
    """One space, spoken to directly."""

    def __init__(self, memory: Memory, name: str) -> None:
        self._memory = memory
        self._name = check_space(name)

    @property
    def name(self) -> str:
        return self._name

    @functools.cached_property
    def _core(self) -> SpaceCore:
        return self._memory._core.space(self._name)

    @property
    def _loop(self) -> PrivateLoop:
        return self._memory._loop

    def _load_rest(self) -> None:
        self._memory._load_rest()

    def _find_reader(self) -> SpaceReader | None:
        return self._memory._find_reader(self._name)

    add = blocking_later(lambda: _space().add)
    add_many = blocking_later(lambda: _space().add_many)
    update = blocking_later(lambda: _space().update)
    delete = blocking_later(lambda: _space().delete)
    get = _reading(SpaceReader.get)
    list = _reading(SpaceReader.list)
    history = blocking_later(lambda: _space().history)
    operations = blocking_later(lambda: _space().operations)
    undo = blocking_later(lambda: _space().undo)
    forget = blocking_later(lambda: _space().forget)
    proposals = blocking_later(lambda: _space().proposals)
    proposal = blocking_later(lambda: _space().proposal)
    approve = blocking_later(lambda: _space().approve)
    reject = blocking_later(lambda: _space().reject)
    reviews = blocking_later(lambda: _space().reviews)
    review = blocking_later(lambda: _space().review)
    undo_review = blocking_later(lambda: _space().undo_review)
    run_review = blocking_later(lambda: _space().run_review)
    consolidate = blocking_later(lambda: _space().consolidate)
    usage = blocking_later(lambda: _space().usage)
    as_markdown = blocking_later(lambda: _space().as_markdown)
    compare_markdown = blocking_later(lambda: _space().compare_markdown)
    apply_edits = blocking_later(lambda: _space().apply_edits)
    search = _reading(SpaceReader.search)
    trace = blocking_later(lambda: _space().trace)
    conversations = blocking_later(lambda: _space().conversations)
    export = blocking_later(lambda: _space().export)
    stats = blocking_later(lambda: _space().stats)


def open(target: Target = CONFIGURED, config: Settings = None, **options: Unpack[Options]) -> Memory:
    """A memory on a file, to be entered with `with`."""
    return Memory(target, *chosen(config, options))


def rescue(
    target: Target, source: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Puts a backup in the place of a store that raises StoreCorrupt when opened; where the damaged file went."""
    from pathlib import Path

    config = settings(None, None, background=False)
    path = resolve_target(target, config)
    if path is None:
        raise StoreUnavailable("There is no store to rescue. Pass its path.")
    return rescue_store(path, Path(source), config, progress)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'afterturn.blocking' has no attribute {name!r}")
    from afterturn.turn import waited

    return getattr(waited, name)
