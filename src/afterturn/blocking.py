"""The same memory for hosts with no event loop: every verb waits for its answer. A second bridge, not a second core."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from pathlib import Path
from types import TracebackType
from typing import Unpack

from afterturn.base.errors import AfterturnError, StoreUnavailable
from afterturn.base.loop import PrivateLoop, blocking
from afterturn.base.types import Scalar
from afterturn.context.compaction import Compacted
from afterturn.memory import (
    CONFIGURED,
    MemoryHandle,
    Options,
    Settings,
    Target,
    begin,
    check_messages,
    chosen,
    resolve_target,
    settings,
)
from afterturn.parts import rescue as rescue_store
from afterturn.runtime import MemoryCore
from afterturn.space.verbs import SpaceCore
from afterturn.turn.errands import ToolVerbs
from afterturn.turn.explaining import Answer, Trace
from afterturn.turn.place import Whereabouts, make_place
from afterturn.turn.proposals import Occasion
from afterturn.turn.replaying import Replay
from afterturn.turn.standing import StandingCore, StandingVerbs
from afterturn.turn.tools import failure
from afterturn.turn.turn import M, PhaseName, TurnVerbs
from afterturn.turn.verbs import ConversationVerbs

WORK_POLL = 0.2


class Memory(MemoryHandle):
    """`with afterturn.blocking.open("memory.db") as memory`, or `start` and `close`."""

    def start(self) -> Memory:
        core = self._make()
        try:
            core.loop.wait(core.start())
        except BaseException as error:
            core.loop.end(core.close)
            if isinstance(error, Exception):
                core.loop.wait_ended(within=self._patience)
            raise
        self._opened(core)
        return self

    def close(self) -> None:
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

    def conversation(self, id: str, **where: Unpack[Whereabouts]) -> Conversation:
        """One thread of messages, of `user="ada"` or of `owner="project:api"`."""
        place = make_place(self._config.tenant, id, where)
        return Conversation(self._core.conversation(place.key), place, self._loop)

    def space(self, name: str) -> Space:
        return Space(self._core.space(name), self._loop)

    def work(self, until: Callable[[], bool]) -> None:
        """Lets the background jobs run until `until()` is true; for processes that do nothing else."""
        pause = threading.Event()
        while not until():
            pause.wait(WORK_POLL)

    ready = blocking(MemoryCore.ready)
    drain = blocking(MemoryCore.drain)
    backup = blocking(MemoryCore.backup)
    restore = blocking(MemoryCore.restore)
    stats = blocking(MemoryCore.stats)
    check = blocking(MemoryCore.check)
    retry_dead = blocking(MemoryCore.retry_dead)


class Turn(TurnVerbs):
    """For hosts without an event loop: `with conversation.turn(messages) as turn`."""

    def inject(
        self, messages: MutableSequence[M], *, within: float | None = None, phase: PhaseName = "fast"
    ) -> M | None:
        """Adds the block if it is there, waiting for it at most `grace` seconds, once for each thing that is said."""
        self._wait(messages, within, phase)
        return self.inject_now(messages)

    def block(self, *, within: float | None = None, phase: PhaseName = "fast") -> str:
        """`block_now`, waiting as `inject` does."""
        self._wait(None, within, phase)
        return self.block_now()

    def _wait(self, messages: Sequence[object] | None, within: float | None, phase: PhaseName) -> None:
        waiting = self._wait_at(messages, within, phase)
        clock = self._core.clock
        deadline = clock.monotonic() + (waiting[1] if waiting is not None else 0.0)
        while waiting is not None and not self._core.in_thread and (left := deadline - clock.monotonic()) > 0:
            waiting[0].settled.wait_blocking(within=left)
            waiting = self._replaced(waiting, phase)

    def wait_recorded(self, within: float = 5.0) -> bool:
        """Whether the turn is durably stored, as far as that is known within so many seconds."""
        wait = self._wait_for_recording(within)
        if self._state is None or wait is None:
            return False
        return self._state.recorded.wait_blocking(within=0.0 if self._core.in_thread else wait) is True

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(failed=kind is not None)


class Conversation(ConversationVerbs):
    """One thread of messages of one owner, with the spaces it was granted. Makes turns."""

    def turn(self, messages: Sequence[object], *, id: str | None = None, speaker: str | None = None) -> Turn:
        """A turn that begins with the user's latest message. Recall starts here, and nothing waits for it."""
        return Turn(self._core, begin(self._core, self._place, messages, id=id, speaker=speaker), messages)

    def start_turn(self, messages: Sequence[object], *, id: str | None = None, speaker: str | None = None) -> Turn:
        """The same without `with`: end it with `turn.finish(messages)`, here or in another process."""
        check_messages(messages)
        return Turn(
            self._core, self._loop.wait(self._core.start_turn(self._place, list(messages), id, speaker)), messages
        )

    def resume_turn(self, id: str) -> Turn:
        """An open turn that was started elsewhere. NotFound when there is none, Conflict when it has ended."""
        return Turn(self._core, self._loop.wait(self._core.resume_turn(self._place, id)), None)

    def standing(self, *, roots: Iterable[str | os.PathLike[str]] = (), instructions: Iterable[str] = ()) -> Standing:
        """What always stands in the system prompt: context files of trusted `roots`, instructions, lasting memories."""
        return Standing(self._core.stand(self._place, roots, instructions), self._loop)

    def compact(self, messages: Sequence[object], *, limit_tokens: int | None = None) -> Compacted:
        """For hosts without compaction: over half of the model's limit, all but the last 30 % becomes a summary."""
        check_messages(messages)
        return self._loop.wait(self._core.compact(self._place, list(messages), limit_tokens))

    def trace(self, turn: str | int | None = None, *, limit: int = 20) -> Trace:
        """What was recalled in the newest turns, or in one (id, number or "last"): what came, what did not, and why."""
        return self._loop.wait(self._core.lookback.trace(turn, limit=limit))

    def why(self, memory: str, *, turn: str | int | None = None, look_in: Sequence[str] = ()) -> Sequence[Answer]:
        """Why one memory came to the recalls of a turn, or did not. Only spaces that it could read are looked into, and
        those of `look_in`."""
        return self._loop.wait(self._core.lookback.why(memory, turn=turn, look_in=look_in))

    def replay(self, turn: str | int, *, changes: Mapping[str, Scalar] | None = None) -> Replay:
        """The blocks of a turn rendered again, byte for byte, and with `changes` under other settings."""
        return self._loop.wait(self._core.lookback.replay(turn, changes=changes))

    def tools(self, *, remember: bool = False) -> Tools:
        """Memory as tools of a model: looking something up, and with `remember` proposing what to keep."""
        return Tools(self._core.errands.tools(Occasion(self._place), remember=remember), self._loop)


class Tools(ToolVerbs):
    """Memory as tools of a model, for hosts without an event loop."""

    def dispatch(self, name: str, arguments: object) -> str:
        """The answer to a model's call, whatever happens. `arguments` is a mapping, or the JSON text of one."""
        try:
            return self._loop.wait(self._core.dispatch(name, arguments))
        except AfterturnError as error:
            return failure(name, error)


class Standing(StandingVerbs):
    """A conversation's standing context, and what hosts that write their prompts themselves ask for."""

    block = blocking(StandingCore.block)
    appended = blocking(StandingCore.appended)
    refresh = blocking(StandingCore.refresh)
    flush = blocking(StandingCore.flush)
    relevant_context = blocking(StandingCore.relevant_context)
    project_context = blocking(StandingCore.project_context)
    task_context = blocking(StandingCore.task_context)
    search = blocking(StandingCore.search)


class Space:
    """One space, spoken to directly."""

    def __init__(self, core: SpaceCore, loop: PrivateLoop) -> None:
        self._core = core
        self._loop = loop

    @property
    def name(self) -> str:
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
    approve = blocking(SpaceCore.approve)
    reject = blocking(SpaceCore.reject)
    recall = blocking(SpaceCore.recall)
    trace = blocking(SpaceCore.trace)
    conversations = blocking(SpaceCore.conversations)
    export = blocking(SpaceCore.export)
    stats = blocking(SpaceCore.stats)


def open(target: Target = CONFIGURED, config: Settings = None, **options: Unpack[Options]) -> Memory:
    """A memory on a file, to be entered with `with`."""
    return Memory(target, *chosen(config, options))


def rescue(
    target: Target, source: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Puts a backup in the place of a store that raises StoreCorrupt when opened; where the damaged file went."""
    config = settings(None, None, background=False)
    path = resolve_target(target, config)
    if path is None:
        raise StoreUnavailable("There is no store to rescue. Pass its path.")
    return rescue_store(path, Path(source), config, progress)
