"""Base of all framework adapters: it opens memory, finds the conversation of a run, and keeps open turns.

An adapter says when a turn begins and ends and in which list a block may be added; nothing here raises into a run.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack, cast
from uuid import UUID, uuid4

from afterturn import blocking
from afterturn.conversation.conversation import Conversation, Standing
from afterturn.conversation.scope import ConversationOptions
from afterturn.conversation.turn import Turn, recalled_hits
from afterturn.errors import AfterturnError, ConfigError, InvalidInput, InvalidName
from afterturn.guard.output_filter import OutputFilter, neutralise, neutralise_quote
from afterturn.log import logger
from afterturn.memory import Memory, MemoryFacade, Space, share_memory
from afterturn.recall.block import describe_author
from afterturn.services import Services
from afterturn.tool_rules.advice import ToolAdvice
from afterturn.types import Hit
from afterturn.validation import check_name

MemoryTarget: TypeAlias = Memory | blocking.Memory | str | os.PathLike[str]
"""An open memory, which its owner closes, or the path of a store, which the adapter opens."""

IdChoice: TypeAlias = str | Callable[[Any], str | None] | None
"""An id, or a function that takes the framework's own object for a run and returns one. None: the framework's own."""

# The most runs that are open at once. A run that failed is not reported by every framework; the oldest is removed.
OPEN_RUNS_MAX = 1_000

K = TypeVar("K")
P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")
T = TypeVar("T", Turn, blocking.Turn)


class RunOptions(TypedDict, total=False):
    """`user` and `conversation` choose the ids of a run; `memory.conversation(...)` describes all other options."""

    user: IdChoice
    conversation: IdChoice
    owner: str | None
    reads: Sequence[str]
    writes: str | None
    environment: str | None
    agent: str | None
    project: str | None
    placement: Literal["append", "merge"]
    subagent: bool
    trusted_only: bool
    incognito: bool


class MessageFormat(TypedDict, total=False):
    """Describes the lists that an adapter passes: their format, and whether they are all that a model sees."""

    dialect: str
    history: Literal["shown", "hidden", "reported"]


@dataclass(frozen=True, slots=True)
class RunIds:
    """How the framework identifies a run. `native` is its own object, which the functions of the user are given."""

    native: object
    conversation: str | None = None
    user: str | None = None
    agent: str | None = None
    project: str | None = None
    is_subagent: bool = False
    # Only if this run differs from what the adapter says about all runs, for example because a server has the history.
    history: Literal["shown", "hidden", "reported"] | None = None


@dataclass(frozen=True, slots=True)
class OpenRun:
    """One run of an agent: its conversation, and the turn that it is."""

    conversation: Conversation | blocking.Conversation
    turn: Turn | blocking.Turn


class BoundedDict(OrderedDict[K, V]):
    """The newest entries, at most OPEN_RUNS_MAX."""

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > OPEN_RUNS_MAX:
            self.popitem(last=False)


def without_failing(
    method: Callable[Concatenate[FrameworkMemory, P], R],
) -> Callable[Concatenate[FrameworkMemory, P], R | None]:
    """Memory's fault never fails a run of the framework: it is logged, and the call returns None."""

    @functools.wraps(method)
    def call(self: FrameworkMemory, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(self, *args, **kwargs)
        except AfterturnError as error:
            logger.warning("the run continues without memory: %s", error)
        except Exception:  # the boundary: functions of the user choose the ids, and may raise anything
            logger.exception("memory failed; the run continues without it")
        return None

    return call


class FrameworkMemory:
    """The memory behind one adapter. May be used by many runs at once, from any thread and event loop."""

    def __init__(
        self,
        memory: MemoryTarget,
        *,
        messages: MessageFormat | None = None,
        needs_user: bool = True,
        standing: Literal["inject", "system"] = "system",
        **options: Unpack[RunOptions],
    ) -> None:
        """`needs_user`: the framework has no ids of users. `standing` is that of `memory.conversation`: "system" for an
        adapter that calls `system_prompt`. Raises AfterturnError if the store cannot be opened."""
        self._target = memory
        self._user = options.pop("user", None)
        self._conversation = options.pop("conversation", None)
        if needs_user and self._user is None and options.get("owner") is None:
            raise InvalidInput('Say whose memory it is: user="ada", or a function that takes a run and returns the id.')
        self._options: dict[str, Any] = {"standing": standing, **options, **(messages or {})}
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, OpenRun] = OrderedDict()
        self._paused: set[str] = set()
        self._standing: BoundedDict[tuple[str, str, str], Standing | blocking.Standing] = BoundedDict()
        self._own: blocking.Memory | None = None
        self.opened()

    def opened(self) -> MemoryFacade:
        """The open memory. A forked child opens a store of its own again."""
        if isinstance(self._target, MemoryFacade):
            return self._target
        with self._lock:
            if self._own is None or self._own.is_forked:
                self._own = blocking.open(self._target).start()
                self._runs.clear()
                self._standing.clear()
            return self._own

    @property
    def services(self) -> Services:
        """The components of the open memory, for adapters whose store or session is not a conversation."""
        return self.opened()._services

    def close(self) -> None:
        """Closes a store that this adapter has opened; the next run opens it again.

        Without it, the store is closed when the process exits.
        """
        with self._lock:
            own, self._own = self._own, None
        if own is not None:
            own.close()

    # Conversations.

    def conversation(self, ids: RunIds) -> Conversation:
        """The conversation of a run. Raises AfterturnError for an id that cannot be used."""
        name, where = self._choose(ids)
        return share_memory(self.opened(), Memory).conversation(name, **where)

    def blocking_conversation(self, ids: RunIds) -> blocking.Conversation:
        name, where = self._choose(ids)
        return share_memory(self.opened(), blocking.Memory).conversation(name, **where)

    def space(self, ids: RunIds) -> Space:
        """The space of the user, for what happens outside of turns. Raises AfterturnError as `conversation` does."""
        _, where = self._choose(ids)
        return share_memory(self.opened(), Memory).space(where.get("owner") or f"user:{where.get('user')}")

    def readable(self, hits: Iterable[Hit]) -> Iterator[tuple[Hit, str]]:
        """The hits with the text that a model may read: others' words are quoted, and their instructions left out."""
        output_filter = OutputFilter(scanning=self.opened().config.scan_policy)
        for hit in hits:
            text, entry = output_filter.shown(hit.entry), hit.entry
            if text is not None and entry.is_report:
                yield hit, f'According to {describe_author(entry)}: "{neutralise_quote(text)}"'
            elif text is not None:
                yield hit, neutralise(text)

    def _choose(self, ids: RunIds) -> tuple[str, ConversationOptions]:
        where = dict(self._options)
        if where.get("owner") is None:
            where["user"] = _chosen(self._user, ids.native, ids.user)
            if not where["user"]:
                raise ConfigError("The run names no user. Pass `user=` to the adapter: an id, or a function of a run.")
        for option, value in (("agent", ids.agent), ("project", ids.project), ("subagent", ids.is_subagent)):
            if value:
                # Unless the user of the adapter knows better.
                where.setdefault(option, value)
        if ids.history:
            where["history"] = ids.history
        name = _chosen(self._conversation, ids.native, ids.conversation)
        return usable_id(name or uuid4().hex), cast(ConversationOptions, where)

    # Turns. A key identifies one run, for the hooks that the framework calls one after another.

    @without_failing
    def begin(self, key: str, ids: RunIds, messages: Sequence[object], *, turn_id: str | None = None) -> Turn:
        """A turn whose verbs are awaited. Its recall starts now, in the background."""
        conversation = self.conversation(ids)
        turn = conversation.turn(messages, id=turn_id)
        self._keep(key, OpenRun(conversation, turn))
        return turn

    @without_failing
    def begin_blocking(
        self, key: str, ids: RunIds, messages: Sequence[object], *, turn_id: str | None = None
    ) -> blocking.Turn:
        """The same for hooks without an event loop."""
        conversation = self.blocking_conversation(ids)
        turn = conversation.turn(messages, id=turn_id)
        self._keep(key, OpenRun(conversation, turn))
        return turn

    @without_failing
    def expect(self, ids: RunIds, text: str) -> None:
        """The user's message is known before the list of messages is: its recall starts now."""
        self.conversation(ids).expect(text)

    def _keep(self, key: str, run: OpenRun) -> None:
        with self._lock:
            lost = [self._runs.pop(key)] if key in self._runs else []
            self._runs[key] = run
            while len(self._runs) > OPEN_RUNS_MAX:
                lost.append(self._runs.popitem(last=False)[1])
            self._paused &= self._runs.keys()
        for one in lost:
            one.turn.abort("the run was not continued")

    def find(self, key: str) -> Turn | None:
        """The open turn of a run, with verbs that are awaited."""
        run = self._runs.get(key)
        return None if run is None else _view(run.turn, Turn)

    def find_or_begin(
        self, key: str, ids: RunIds, messages: Sequence[object], *, turn_id: str | None = None
    ) -> Turn | None:
        """For frameworks whose hooks come in no fixed order: the first one begins the turn."""
        return self.find(key) or self.begin(key, ids, messages, turn_id=turn_id)

    def find_blocking(self, key: str) -> blocking.Turn | None:
        """The same turn for a hook that cannot await."""
        run = self._runs.get(key)
        return None if run is None else _view(run.turn, blocking.Turn)

    @without_failing
    def continue_paused(self, ids: RunIds) -> str | None:
        """The key of a run of the same conversation that was paused, for the run that continues it."""
        wanted = _identity(self.conversation(ids))
        with self._lock:
            for key, run in reversed(self._runs.items()):
                if key in self._paused and _identity(run.conversation) == wanted:
                    self._paused.discard(key)
                    return key
        return None

    def pause(self, key: str) -> None:
        """The run waits for a person or a tool, and another run continues its turn."""
        with self._lock:
            if key in self._runs:
                self._paused.add(key)

    def finish(self, key: str, messages: Sequence[object] | None = None) -> None:
        """The agent has answered: the turn is recorded in the background."""
        run = self._take(key)
        if run is not None:
            run.turn.finish(messages)

    def abort(self, key: str, reason: str) -> None:
        """The run was given up: nothing of it is recorded."""
        run = self._take(key)
        if run is not None:
            run.turn.abort(reason)

    def _take(self, key: str) -> OpenRun | None:
        with self._lock:
            self._paused.discard(key)
            return self._runs.pop(key, None)

    def origins(self, key: str, block: str) -> list[str]:
        """The conversations in which the lines of a turn's block were said."""
        run = self._runs.get(key)
        recalled = () if run is None else recalled_hits(run.turn)
        shown = [hit.entry.conversation for hit in recalled if f"[{hit.entry.id}]" in block]
        return sorted({conversation for conversation in shown if conversation is not None})

    # Standing context and tools.

    async def system_prompt(self, key: str, prompt: str) -> str:
        """The prompt with the standing context at its end, which stays the same for a conversation."""
        standing = self._standing_of(key, Standing)
        try:
            return prompt if standing is None else await standing.appended(prompt)
        except AfterturnError as error:
            logger.warning("the prompt has no standing context: %s", error)
            return prompt

    def blocking_system_prompt(self, key: str, prompt: str) -> str:
        standing = self._standing_of(key, blocking.Standing)
        try:
            return prompt if standing is None else standing.appended(prompt)
        except AfterturnError as error:
            logger.warning("the prompt has no standing context: %s", error)
            return prompt

    async def call_tool(self, key: str, name: str, arguments: object) -> str:
        """Answers a model's call of a memory tool, such as `search_memory`. Never raises."""
        run = self._runs.get(key)
        if run is None or not isinstance(run.conversation, Conversation):
            return "Memory is not available. Go on without it."
        return await run.conversation.tools().dispatch(name, arguments)

    def _standing_of(self, key: str, kind: type[R]) -> R | None:
        """One object for each conversation: it keeps what it has shown."""
        run = self._runs.get(key)
        if run is None:
            return None
        name = (*_identity(run.conversation), kind.__module__)
        with self._lock:
            if name not in self._standing:
                self._standing[name] = run.conversation.standing()
            standing = self._standing[name]
        return standing if isinstance(standing, kind) else None


def _identity(conversation: Conversation | blocking.Conversation) -> tuple[str, str]:
    return conversation.owner, conversation.id


def _view(turn: Turn | blocking.Turn, kind: type[T]) -> T:
    """Some frameworks call hooks of both kinds in one run, such as those of tools that are not coroutines."""
    if isinstance(turn, kind):
        return turn
    view = kind.__new__(kind)
    view.__dict__.update(turn.__dict__)
    return view


def with_rules(result: str, advice: ToolAdvice) -> str:
    """A tool's result with the rules that concern its call, for the model to read together."""
    return f"{result}\n\n{advice.text}" if advice.rules else result


def with_rules_in(result: object, advice: ToolAdvice) -> object:
    """The same for a result that may be structured. One that is neither a text nor a mapping is returned unchanged."""
    if isinstance(result, str):
        return with_rules(result, advice)
    return {**result, "rules": advice.text} if isinstance(result, dict) and advice.rules else result


def without_secrets(value: Any, redact: Callable[[str], str]) -> Any:
    """The JSON value with `redact` applied to each of its texts, so that it stays JSON. Keys are not changed."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: without_secrets(one, redact) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(one, redact) for one in value]
    return value


def usable_id(name: str) -> str:
    """The name itself if it can be a conversation's id, else a hash of it: frameworks accept any text."""
    try:
        return check_name(name, "conversation")
    except InvalidName:
        return f"id-{hashlib.blake2b(name.encode('utf-8', 'replace'), digest_size=16).hexdigest()}"


def _chosen(choice: IdChoice, native: object, default: str | None) -> str | None:
    chosen: object = choice(native) if callable(choice) else choice
    if chosen is None:
        return default
    if isinstance(chosen, Coroutine):
        chosen.close()
    if isinstance(chosen, bool) or not isinstance(chosen, str | int | UUID):
        # The text of any other object may contain its address, and another one may get the same address later.
        raise ConfigError(f"An id is a {type(chosen).__name__}. Return a str, an int or a UUID, from a plain function.")
    return str(chosen)
