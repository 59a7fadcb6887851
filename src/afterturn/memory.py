"""What `open` takes, checked: where the store is, the settings of one memory, and the parts that a host brings."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, TypeAlias, TypedDict, Unpack

from afterturn.config import KEYS, Config, SettingsDict, default_store, find_store, load_config, unknown_variables
from afterturn.conversation.conversation import Conversation
from afterturn.conversation.scope import ConversationOptions, make_place
from afterturn.errors import MemoryClosed
from afterturn.events import Events
from afterturn.maintenance import Maintenance
from afterturn.ports import ChatModel, RecordingProvider
from afterturn.runtime.bridge import awaiting
from afterturn.runtime.exits import last_chance
from afterturn.runtime.loop_thread import LoopThread
from afterturn.services import Components, Services
from afterturn.space.verbs import SpaceCore
from afterturn.types import Event
from afterturn.validation import check_name

logger = logging.getLogger("afterturn")
_warned_of: set[str] = set()


class _Configured:
    """Stands for: the store that the settings name."""


CONFIGURED: Final = _Configured()
Target: TypeAlias = str | os.PathLike[str] | _Configured | None
Settings: TypeAlias = Config | SettingsDict | Mapping[str, Any] | None
Handler: TypeAlias = Callable[[Event], None]


class Options(TypedDict, total=False):
    """How a memory is opened. `model` chooses among what was found, writes summaries and reviews conversations, unless
    `review_model` does; `provider` keeps finished turns in memory's place; `on_event` hears of all that memory does;
    `background=False` leaves jobs to other processes; `components` are for tests and unusual hosts."""

    tenant: str | None
    on_event: Handler | None
    background: bool | None
    model: ChatModel | None
    review_model: ChatModel | None
    provider: RecordingProvider | None
    components: Components | None


def chosen(config: Settings, options: Options) -> tuple[Config, Components, Handler | None]:
    """What a memory is made of, from the arguments of `open`."""
    if unknown := sorted(set(options) - set(Options.__annotations__)):
        name = unknown[0]
        if name in KEYS:
            raise TypeError(f'{name} is a setting: open(path, {{"{name}": {options.get(name)!r}}}).')
        raise TypeError(f"open() has no argument {name!r}. It takes {', '.join(Options.__annotations__)}.")
    _warn_of_unknown_variables()
    parts = options.get("components") or Components()
    if (model := options.get("model")) is not None:
        parts = replace(parts, model=model)
    if (reviewer := options.get("review_model")) is not None:
        parts = replace(parts, review_model=reviewer)
    if (provider := options.get("provider")) is not None:
        parts = replace(parts, provider=provider)
    merged = settings(config, options.get("tenant"), background=options.get("background"))
    return merged, parts, options.get("on_event")


def _warn_of_unknown_variables() -> None:
    """Once a process for each variable."""
    for name, hint in unknown_variables().items():
        if name not in _warned_of:
            _warned_of.add(name)
            logger.warning("the environment variable %s is not a setting. %s", name, hint)


def settings(config: Settings, tenant: str | None, *, background: bool | None) -> Config:
    """The settings of one memory: arguments first, then environment, file and defaults."""
    given: dict[str, Any] = {
        name: value for name, value in (("tenant", tenant), ("background", background)) if value is not None
    }
    if isinstance(config, Config):
        merged = replace(config, **given) if given else config
    else:
        merged = load_config({**(config or {}), **given})
    check_name(merged.tenant, "tenant")
    return merged


def resolve_target(target: Target, config: Config) -> Path | None:
    """Where the store is. StoreUnavailable for a URL of a kind that this version does not know."""
    if isinstance(target, _Configured):
        target = config.store or default_store()
    if target is None:
        return None
    return find_store(target)


# The part that both public memory objects share: checked settings, and a core once it is started.

# What closing may take beyond `close_timeout`: interrupting a statement, ending threads.
STOP_WITHIN = 2.0


class MemoryHandle:
    def __init__(self, target: Target, config: Config, parts: Components, on_event: Handler | None) -> None:
        self._target = resolve_target(target, config)
        self._config = config
        self._parts = parts
        self._on_event = on_event
        self._started: Services | None = None

    @property
    def _services(self) -> Services:
        if self._started is None:
            raise MemoryClosed(
                "This memory is not open yet. Enter it: `async with afterturn.open(...)`, or without an event loop "
                "`with afterturn.blocking.open(...)`."
            )
        return self._started

    @property
    def _core(self) -> Maintenance:
        return self._services.maintenance

    @property
    def _loop(self) -> LoopThread:
        return self._services.loop

    def start_closing(self) -> None:
        """From now on closing goes on by itself, whatever becomes of whoever asked for it."""
        self._services.loop.end(self._services.close)

    def wait_closed(self) -> None:
        self._ended(ended=self._services.loop.wait_ended(within=self._patience))

    @property
    def _patience(self) -> float:
        return self._config.close_timeout + STOP_WITHIN

    @property
    def _closable(self) -> bool:
        return self._started is not None and not self._started.loop.forked

    def _make(self) -> Services:
        """A core that is not started yet, on a loop that is."""
        if self._started is not None:
            raise MemoryClosed("A memory is opened once. Call `afterturn.open(...)` again.")
        loop = self._parts.loop("afterturn")
        loop.start()
        events = Events(self._parts.clock, self._config.tenant, self._on_event)
        return Services(loop, self._target, self._config, self._parts, events)

    def _opened(self, services: Services) -> None:
        self._started = services
        last_chance.watch(self)

    def _ended(self, *, ended: bool) -> None:
        last_chance.forget(self)
        if not ended:
            logger.warning("closing %s took longer than %g seconds; a thread is left", self._target, self._patience)


# The public objects for hosts with an event loop: `open`, and the memory and spaces it gives.
#
# They hold nothing but a core and the loop it lives on; `blocking` is the same for hosts without a loop.


class Memory(MemoryHandle):
    """An agent's memory. `async with afterturn.open("memory.db") as memory`, or `start` and `close`."""

    async def start(self) -> Memory:
        """Opens the store. Raises AfterturnError when that can not be done, and leaves nothing behind."""
        services = self._make()
        try:
            await services.loop.run(services.start())
        except BaseException as error:
            services.loop.end(services.close)
            if isinstance(error, Exception):
                await services.loop.ended(within=self._patience)
            raise
        self._opened(services)
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

    def conversation(self, id: str, **where: Unpack[ConversationOptions]) -> Conversation:
        """One thread of messages, of `user="ada"` or of `owner="project:api"`."""
        place = make_place(self._config.tenant, id, where, scanning=self._config.scanning)
        return Conversation(self._services.conversation(place.key), place, self._loop)

    def space(self, name: str) -> Space:
        """One space, spoken to directly."""
        return Space(self._services.space(name), self._loop)

    ready = awaiting(Maintenance.ready)
    drain = awaiting(Maintenance.drain)
    backup = awaiting(Maintenance.backup)
    restore = awaiting(Maintenance.restore)
    stats = awaiting(Maintenance.stats)
    spaces = awaiting(Maintenance.spaces)
    usage = awaiting(Maintenance.usage)
    check = awaiting(Maintenance.check)
    retry_dead = awaiting(Maintenance.retry_dead)


class Space:
    """One space, spoken to directly. There is no verb without a space."""

    def __init__(self, core: SpaceCore, loop: LoopThread) -> None:
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
