"""`open`, and the Memory and Space it returns, for programs with an event loop. `blocking` has the same without one."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, TypedDict, TypeVar, Unpack

from afterturn.config import KEYS, Config, Settings, StoreUrl, default_store, find_store, load_config, unknown_variables
from afterturn.conversation.conversation import Conversation
from afterturn.conversation.scope import ConversationOptions, make_scope
from afterturn.errors import ConfigError, InvalidInput, MemoryClosed
from afterturn.events import Events
from afterturn.log import logger
from afterturn.maintenance import Maintenance
from afterturn.ports import ChatModel, RecordingProvider
from afterturn.runtime.bridge import AsyncFacade, Bridged
from afterturn.runtime.exits import exit_closer
from afterturn.runtime.loop_thread import LoopThread
from afterturn.services import Components, Services
from afterturn.space.verbs import SpaceCore
from afterturn.types import Event
from afterturn.validation import check_name, check_no_secret

# The components that `open` takes too, and the method that each must have.
_METHODS = {"model": "complete", "review_model": "complete", "compaction_model": "complete", "provider": "record"}


class _DefaultStore:
    """The default of `target`: the store that the settings name."""

    def __repr__(self) -> str:
        return "<the configured store>"


DEFAULT_STORE: Final = _DefaultStore()
StoreTarget: TypeAlias = str | os.PathLike[str] | StoreUrl | _DefaultStore | None
F = TypeVar("F", bound=Callable[..., Any])
EventHandler: TypeAlias = Callable[[Event], None]


class OpenOptions(TypedDict, total=False):
    """The keyword arguments of `open`, which describes them."""

    tenant: str | None
    on_event: EventHandler | None
    background: bool | None
    model: ChatModel | None
    review_model: ChatModel | None
    compaction_model: ChatModel | None
    provider: RecordingProvider | None
    components: Components | None


def show_options(function: F) -> F:
    """Shows the options by name in `help()` and `inspect.signature`, as type checkers and editors do."""
    signature = inspect.signature(function)
    shown = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    for name, annotation in OpenOptions.__annotations__.items():
        shown.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return function


def read_options(
    config: Config | Settings | Mapping[str, Any] | None, options: OpenOptions
) -> tuple[Config, Components, EventHandler | None]:
    """Checks the arguments of `open`. Returns the settings, the components and the event handler."""
    if unknown := sorted(set(options) - set(OpenOptions.__annotations__)):
        name = unknown[0]
        if name in KEYS:
            raise TypeError(f'{name} is a setting: open(path, {{"{name}": {options.get(name)!r}}}).')
        raise TypeError(f"open() has no argument {name!r}. It takes {', '.join(OpenOptions.__annotations__)}.")
    _check_types(options)
    for name, hint in unknown_variables(new=True).items():
        logger.warning("the environment variable %s is not a setting. %s", name, hint)
    given: dict[str, Any] = {name: options.get(name) for name in _METHODS if options.get(name) is not None}
    components = replace(options.get("components") or Components(), **given)
    merged = merge_settings(config, options.get("tenant"), background=options.get("background"))
    return merged, components, options.get("on_event")


def _check_types(options: OpenOptions) -> None:
    """Raises InvalidInput for an argument that could only fail later, in the background."""
    components, handler = options.get("components"), options.get("on_event")
    if components is not None and not isinstance(components, Components):
        raise InvalidInput(f"`components` is a {type(components).__name__}. Pass afterturn.Components(...).")
    if handler is not None and not callable(handler):
        raise InvalidInput(f"`on_event` is a {type(handler).__name__}. Pass a function that takes an event.")
    for name, method in _METHODS.items():
        value = options.get(name)
        if value is not None and not callable(getattr(value, method, None)):
            raise InvalidInput(f"`{name}` is a {type(value).__name__}. Pass an object with the method `{method}`.")


def merge_settings(
    config: Config | Settings | Mapping[str, Any] | None, tenant: str | None, *, background: bool | None
) -> Config:
    """Merges the settings of one memory: arguments first, then environment, file and defaults."""
    given: dict[str, Any] = {
        name: value for name, value in (("tenant", tenant), ("background", background)) if value is not None
    }
    if isinstance(config, Config):
        merged = replace(config, **given) if given else config
    else:
        merged = load_config({**config, **given} if isinstance(config, Mapping) else config or given)
    check_no_secret(check_name(merged.tenant, "tenant"), "tenant", scanning=merged.scan_policy)
    return merged


def resolve_target(target: StoreTarget, config: Config) -> Path | StoreUrl | None:
    """Returns the path or URL of the store, None when memory is off. Raises StoreUnavailable for an unknown kind of
    URL."""
    if isinstance(target, _DefaultStore):
        target = config.store or default_store()
    if target is None:
        return None
    return find_store(target)


def _check_model(config: Config, components: Components) -> None:
    """Raises ConfigError for settings that need a model which nothing connects to."""
    remedy = "Set model_url, such as http://localhost:8080/v1, or pass an object: `afterturn.open(..., model=...)`."
    if config.model_url is None and components.model is None:
        if config.model is not None:
            raise ConfigError(f"model is {config.model!r}, but model_url is not set, so nothing can call it. {remedy}")
        if config.refined == "only":
            raise ConfigError(
                f'refined is "only", which delivers what a model selects, but there is no model. {remedy}'
            )


# How long closing may take beyond `close_timeout`, to interrupt a statement and end threads.
STOP_WITHIN = 2.0


class MemoryFacade:
    """The base of both kinds of Memory: settings, services once it is started, and the verbs on the whole store."""

    def __init__(
        self, target: StoreTarget, config: Config, components: Components, on_event: EventHandler | None
    ) -> None:
        _check_model(config, components)
        self._target = resolve_target(target, config)
        self._config = config
        self._components = components
        self._on_event = on_event
        self._started: Services | None = None
        self._state = "not open"

    def __repr__(self) -> str:
        return f"<Memory {'off' if self._target is None else self._target}, {self._state}>"

    @property
    def config(self) -> Config:
        """The settings that this memory was opened with."""
        return self._config

    @property
    def is_forked(self) -> bool:
        """Whether it was opened before this process was forked, and has to be opened again."""
        return self._started is not None and self._started.loop.forked

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
        """Starts to close, which continues in the background."""
        self._state = "closed"
        self._services.loop.end(self._services.close)

    def wait_closed(self) -> None:
        """Waits until it is closed, for a limited time."""
        self._ended(ended=self._services.loop.wait_ended(within=self._patience))

    @property
    def _patience(self) -> float:
        return self._config.close_timeout + STOP_WITHIN

    @property
    def _closable(self) -> bool:
        return self._started is not None and not self._started.loop.forked

    def _make(self) -> Services:
        """Makes services that are not started yet, on a loop that is."""
        if self._started is not None:
            raise MemoryClosed("A memory is opened once. Call `afterturn.open(...)` again.")
        loop = self._components.loop("afterturn")
        loop.start()
        events = Events(self._components.clock, self._config.tenant, self._on_event)
        return Services(loop, self._target, self._config, self._components, events)

    def _opened(self, services: Services) -> None:
        self._started = services
        self._state = "open"
        exit_closer.watch(self)

    def _ended(self, *, ended: bool) -> None:
        exit_closer.forget(self)
        if not ended:
            logger.warning("closing %s took longer than %g seconds; a thread is left", self._target, self._patience)

    ready = Bridged(Maintenance.ready)
    drain = Bridged(Maintenance.drain)
    backup = Bridged(Maintenance.backup)
    restore = Bridged(Maintenance.restore)
    stats = Bridged(Maintenance.stats)
    spaces = Bridged(Maintenance.spaces)
    watch = Bridged(Maintenance.watch)
    usage = Bridged(Maintenance.usage)
    check = Bridged(Maintenance.check)
    retry_dead = Bridged(Maintenance.retry_dead)
    jobs = Bridged(Maintenance.jobs)
    timeline = Bridged(Maintenance.timeline)
    showings = Bridged(Maintenance.showings)


K = TypeVar("K", bound=MemoryFacade)


def share_memory(memory: MemoryFacade, kind: type[K]) -> K:
    """The same open memory, for callers of the other kind. Close the original."""
    if isinstance(memory, kind):
        return memory
    view = kind.__new__(kind)
    view.__dict__.update(memory.__dict__)
    return view


class Memory(AsyncFacade, MemoryFacade):
    """An agent's memory, as `afterturn.open` returns it. Use it with `async with`, or call `start` and `close`.

    It may be used from any event loop and any thread.
    """

    async def start(self) -> Memory:
        """Opens the store. Raises AfterturnError if that fails, and then leaves no thread or file behind."""
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
        """Records the turns that are finished and ends all tasks and threads, within `close_timeout` plus 2 seconds.

        May be called twice and from any event loop. Cancelling it stops the waiting, not the closing.
        """
        if self._closable:
            self.start_closing()
            self._ended(ended=await self._loop.ended(within=self._patience))

    async def __aenter__(self) -> Memory:
        return await self.start()

    def __enter__(self) -> NoReturn:
        raise TypeError("Use `async with afterturn.open(...)`, or `with afterturn.blocking.open(...)`.")

    def __exit__(self, *left: object) -> None:
        """Needed so that `with` calls `__enter__`, which raises."""

    if not TYPE_CHECKING:  # a type checker reports the await itself

        def __await__(self) -> NoReturn:
            raise TypeError(
                "afterturn.open(...) is not awaited. Use `async with afterturn.open(...) as memory`, or call "
                "`memory = afterturn.open(...)`, `await memory.start()` and, in the end, `await memory.close()`."
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def conversation(self, id: str, **where: Unpack[ConversationOptions]) -> Conversation:
        """Returns the conversation with this id.

        Name its owner with `user="ada"` or `owner="project:api"`. `user="ada"` means `owner="user:ada"`. The same id
        under another owner is another conversation. It reads the owner's space and the spaces in `reads`, and writes
        the owner's space, or `writes`. Raises InvalidInput for a missing owner or an invalid name.

        `agent` and `project` label what is recorded. `history="hidden"` says that your program does not pass all the
        messages that the model sees; report compactions with `compacted()` then. Shown memories are repeated if nothing
        else is relevant, except with `history="reported"`, which says that you report every compaction.
        `placement="merge"` puts a block into the last user message instead of after it. `dialect` names the message
        format instead of detecting it. `subagent=True` is for a conversation between two agents: its messages are
        trusted less, and nothing is learned from them automatically. `trusted_only=True` is for hosts that can put a
        block only into a system or developer message: lines with words of others, such as a tool's, are left out.
        """
        place = make_scope(self._config.tenant, id, where, scanning=self._config.scan_policy)
        return Conversation(self._services.conversation(place.key), place, self._loop)

    def space(self, name: str) -> Space:
        """Returns the space with this name, such as "user:ada". Raises InvalidName for a name of another form."""
        return Space(self._services.space(name), self._loop)


class SpaceFacade:
    """The verbs of both kinds of Space."""

    def __init__(self, core: SpaceCore, loop: LoopThread) -> None:
        self._core = core
        self._loop = loop

    def __repr__(self) -> str:
        return f"<Space {self.name}>"

    @property
    def name(self) -> str:
        """The kind and the name of the space, such as "user:ada"."""
        return self._core.name

    add = Bridged(SpaceCore.add)
    add_many = Bridged(SpaceCore.add_many)
    update = Bridged(SpaceCore.update)
    set_firm = Bridged(SpaceCore.set_firm)
    set_pinned = Bridged(SpaceCore.set_pinned)
    delete = Bridged(SpaceCore.delete)
    get = Bridged(SpaceCore.get)
    list = Bridged(SpaceCore.list)
    history = Bridged(SpaceCore.history)
    operations = Bridged(SpaceCore.operations)
    undo = Bridged(SpaceCore.undo)
    forget = Bridged(SpaceCore.forget)
    proposals = Bridged(SpaceCore.proposals)
    proposal = Bridged(SpaceCore.proposal)
    approve = Bridged(SpaceCore.approve)
    reject = Bridged(SpaceCore.reject)
    approve_all = Bridged(SpaceCore.approve_all)
    reject_all = Bridged(SpaceCore.reject_all)
    reviews = Bridged(SpaceCore.reviews)
    review = Bridged(SpaceCore.review)
    undo_review = Bridged(SpaceCore.undo_review)
    run_review = Bridged(SpaceCore.run_review)
    consolidate = Bridged(SpaceCore.consolidate)
    usage = Bridged(SpaceCore.usage)
    standing_audit = Bridged(SpaceCore.standing_audit)
    hide_standing = Bridged(SpaceCore.hide_standing)
    as_markdown = Bridged(SpaceCore.as_markdown)
    compare_markdown = Bridged(SpaceCore.compare_markdown)
    apply_edits = Bridged(SpaceCore.apply_edits)
    search = Bridged(SpaceCore.search)
    profile = Bridged(SpaceCore.profile)
    trace = Bridged(SpaceCore.trace)
    conversations = Bridged(SpaceCore.conversations)
    export = Bridged(SpaceCore.export)
    stats = Bridged(SpaceCore.stats)


class Space(AsyncFacade, SpaceFacade):
    """One space of the store: its statements, records, proposals and reviews."""


@show_options
def open(
    target: StoreTarget = DEFAULT_STORE,
    config: Config | Settings | Mapping[str, Any] | None = None,
    **options: Unpack[OpenOptions],
) -> Memory:
    """Opens the store at `target`. Use it as a context manager: `async with afterturn.open("memory.db") as memory`.

    `target` is a path, or a URL that begins with `sqlite:///` or `postgresql://`. Omit it for the configured store.
    `None` turns memory off: conversations and turns work, but nothing is recalled or recorded, and verbs that need a
    store raise StoreUnavailable. `config` is a dictionary of settings, which is merged with the environment and the
    settings file, or a Config, which is used as it is.

    `tenant` overrides the setting of that name. `on_event` is called with every event, on memory's own thread.
    `background=False` leaves background jobs to other processes. `model` is used for refined recall, summaries and
    reviews; `review_model` replaces it for reviews, and `compaction_model` for summaries. `provider` stores finished
    turns instead of the store. `components` replaces other parts, such as the embedder. Raises ConfigError for an
    invalid setting.
    """
    return Memory(target, *read_options(config, options))
