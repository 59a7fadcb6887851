"""The boundary between memory and its host: what goes wrong behind it costs the host its memory, and nothing else."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, MutableSequence, Sequence
from itertools import islice
from types import TracebackType
from typing import Concatenate, Literal, ParamSpec, Protocol, TypeAlias, TypeVar

from afterturn.conversation.delivery import BETWEEN, Injection, put_in
from afterturn.conversation.engine import ConversationCore
from afterturn.conversation.ledger import BlockPosition, anchor_at
from afterturn.conversation.prefetch import PhaseRun
from afterturn.conversation.proposals import ProposalContext
from afterturn.conversation.subagents import assemble
from afterturn.conversation.turn_state import TurnState, snapshot
from afterturn.dialects.detection import find_dialect, follow_dialect
from afterturn.dialects.dialect import Dialect
from afterturn.dialects.history import find_point
from afterturn.errors import ForkedProcess, InvalidInput, MemoryClosed
from afterturn.guard.secrets import redact_within, scanner
from afterturn.recall.block import block_hash
from afterturn.types import HandoverPoint, Phase, RecallCause

logger = logging.getLogger("afterturn")


class Misusable(Protocol):
    def check(self) -> None:
        """Raises MemoryClosed or ForkedProcess where there is nothing to hope for."""

    def misused(self, event: str, how: str) -> None:
        """Tells the host, once."""


class HostBoundary(Protocol):
    """A public object: what it stands for is behind the boundary."""

    @property
    def _core(self) -> Misusable: ...


F = TypeVar("F", bound=HostBoundary)
P = ParamSpec("P")
R = TypeVar("R")


def contained(method: Callable[Concatenate[F, P], R]) -> Callable[Concatenate[F, P], R | None]:
    """Memory's fault never fails the host's turn: it is logged, told as an event, and gives None."""

    @functools.wraps(method)
    def call(self: F, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            self._core.check()
            return method(self, *args, **kwargs)
        except ForkedProcess:
            self._core.misused("memory_forked", "in a forked child; open memory again there")
        except MemoryClosed:
            self._core.misused("memory_closed", "after its memory was closed")
        except Exception:  # the boundary: whatever it is, the host goes on
            logger.exception("memory failed; the turn goes on without it")
        return None

    return call


# A turn as its host holds it. Its verbs never raise and wait for nothing but the grace that was agreed on.
M = TypeVar("M")

PhaseName: TypeAlias = Literal["fast", "refined"]
WITHIN_MAX = 86_400.0
REASON_CHARS_MAX = 200
# Enough to tell a format by; lists may be endless, and need not know slices.
NEWEST_LOOKED_AT = 32


class TurnVerbs:
    """What hosts with and without an event loop call alike, from any thread."""

    def __init__(self, core: ConversationCore, state: TurnState | None, messages: Sequence[object] | None) -> None:
        self._core = core
        self._state = state
        self._messages = messages
        self._completed: list[object] | None = None
        self._left = False
        self._graced: set[int] = set()

    def __repr__(self) -> str:
        if self._state is None:
            return f"<Turn of {self._core.key.id}, without memory>"
        return f"<Turn {self._state.id} of {self._core.key.id}, {'ended' if self._left else 'open'}>"

    @property
    def id(self) -> str:
        """Identifies the turn: recording it twice under one id stores it once. Blank if memory is closed."""
        return self._state.id if self._state else ""

    @contained
    def inject_now(self, messages: MutableSequence[M]) -> M | None:
        """Adds the block if it is there and this is a place for it; never waits. Gives the new element.

        Blocks that a host dropped while it rebuilt its list go back to where they stood.
        """
        if self._state is None or self._left:
            return None
        if not isinstance(messages, MutableSequence):
            raise InvalidInput(f"`messages` must be a list that can grow, not {type(messages).__name__}.")
        self._messages = messages
        # First: whatever is read from now on comes too late for what the model is about to see.
        self._state.began = True
        if self._core.has_nothing_for(self._state, messages):
            return None
        dialect = _dialect(self._state, messages)
        point = find_point(dialect, messages) if dialect is not None else None
        if dialect is None or point is None:
            return None
        put_back = self._core.mend(self._state, dialect, messages)
        parcel = self._core.take(self._state)
        return put_back if parcel is None else self._hand_over(self._state, parcel, dialect, messages, point)

    def _hand_over(
        self, state: TurnState, parcel: Injection, dialect: Dialect, messages: MutableSequence[M], point: HandoverPoint
    ) -> M:
        # Told first: were memory closing, the block would be in the list and nobody would know it for ours.
        # One that hides its history never gets a block put back.
        hidden, known = state.place.is_hidden, self._core.known_blocks
        anchor = "" if hidden else anchor_at(dialect, messages, known, state.trail)
        self._core.delivered(state, parcel, point, anchor)
        last, length = messages[-1], len(messages)
        index, element = put_in(dialect, messages, parcel.text, state.place.placement)
        if last is state.user_element and len(messages) == length:
            state.user_element, state.user_index = element, index
        spots = {block_hash(text): BlockPosition(index, element) for text, _ in parcel.blocks}
        state.spots.update(spots)
        # The same bytes may have stood elsewhere before, and gone.
        state.reported.difference_update(spots)
        return element

    def block_now(self) -> str:
        """The blocks of this turn as text, for hosts that write their prompt again at every step. Never waits.

        Once the text is not empty, later calls return the same bytes, possibly with more at the end.
        """
        return self._block_now() or ""

    @contained
    def _block_now(self) -> str:
        state = self._state
        if state is None or self._left:
            return ""
        parcel = self._core.take(state)
        if parcel is not None:
            self._core.delivered(state, parcel, HandoverPoint.PROMPT, "")
            state.texts.append(parcel.text)
        return BETWEEN.join(state.texts)

    @contained
    def interject(self, text: str) -> None:
        """The user has said more while the turn was under way, and the host has appended it: recall starts anew."""
        self._say(text, RecallCause.INTERJECTION)

    @contained
    def cue(self, text: str) -> None:
        """The turn has a new focus, in the host's words; at most `cues_max` times in a turn."""
        self._say(text, RecallCause.CUE)

    def _say(self, text: str, cause: RecallCause) -> None:
        if not isinstance(text, str):
            raise InvalidInput(f"{cause} takes the words as text, not {type(text).__name__}.")
        if self._state is not None and not self._left:
            self._core.say(self._state, text, cause)

    def delegate(self, task: str, *, remember: bool = False) -> str:
        """The prompt for a sub-agent: the task, what this turn has recalled about it, and its memory tools.

        With `remember` the sub-agent may propose memories. Never waits.
        """
        return self._delegate(task, remember=remember) or assemble(task if isinstance(task, str) else "", ())

    @contained
    def _delegate(self, task: str, *, remember: bool) -> str | None:
        state = self._state
        if state is None:
            return None
        return self._core.errands.delegate(occasion_of(state), state.recalled, task, remember=remember)

    @contained
    def returned(self, task: str, result: object) -> None:
        """A sub-agent has finished: what it learned is proposed, and waits for approval.

        `result` is a list of statements, or a text; of a long text, its bullet points are proposed.
        """
        if self._state is not None:
            self._core.errands.returned(occasion_of(self._state), task, result)

    @contained
    def complete(self, messages: Sequence[object] | None = None) -> None:
        """The agent has answered. `messages` may be left out when it is the list that `turn` was given."""
        self._complete(messages)

    @contained
    def abort(self, reason: str = "aborted") -> None:
        """The host gives up: nothing is handed over any more and nothing recorded."""
        if self._state is not None and not self._left:
            self._left = True
            # It is an event that is stored, and may well be an error's message.
            scan = scanner(scanning=self._core.config.scanning)
            told = redact_within(str(reason), REASON_CHARS_MAX, scan).text
            self._core.abort(self._state, told.encode("utf-8", "replace").decode())

    @contained
    def finish(self, messages: Sequence[object] | None = None) -> None:
        """`complete` and leave, for a turn that does not live in one block of code."""
        self._complete(messages)
        self._leave(failed=False)

    def _complete(self, messages: Sequence[object] | None) -> None:
        if messages is not None:
            self._messages = messages
        if self._state is not None:
            self._completed = snapshot(self._messages or (), self._state)

    @contained
    def _leave(self, *, failed: bool) -> None:
        if self._state is None or self._left:
            return
        self._left = True
        try:
            messages = self._completed if self._completed is not None else snapshot(self._messages or (), self._state)
        except Exception:
            self._core.abort(self._state, "unreadable_messages")
            raise
        self._core.leave(self._state, messages, completed=self._completed is not None, failed=failed)

    @contained
    def _wait_at(
        self, messages: Sequence[object] | None, within: float | None, phase: PhaseName
    ) -> tuple[PhaseRun, float] | None:
        """What a hand-over may wait for, and how long: the grace once per epoch, at its first point."""
        state = self._state
        if state is None or self._left:
            return None
        run = state.current.last(Phase(phase))
        if run.settled.settled or run.consumed:
            return None
        by_grace = within is None and phase == "fast"
        if by_grace and (self._core.config.grace == 0 or state.current.epoch in self._graced):
            return None
        if messages is not None:
            dialect = _dialect(state, messages)
            if dialect is None or find_point(dialect, messages) is None:
                return None
        if within is not None:
            return run, _bounded(within)
        if phase == "refined":
            # What both phases may take at most: then it has settled, one way or the other.
            return run, self._core.config.recall_timeout + self._core.config.model_timeout
        self._graced.add(state.current.epoch)
        return run, self._core.config.grace

    def _replaced(self, waiting: tuple[PhaseRun, float], phase: PhaseName) -> tuple[PhaseRun, float] | None:
        """What took the place of a recall that was waited for: after a compaction, the fresh one (H7)."""
        run = self._state.current.last(Phase(phase)) if self._state is not None else waiting[0]
        return None if run is waiting[0] or run.settled.settled else (run, waiting[1])

    def _wait_for_recording(self, within: float) -> float | None:
        """How long there is something to wait for; None when nothing will ever be known here."""
        if self._state is None or not self._left or self._core.forked:
            return None
        try:
            return 0.0 if self._core.closed else _bounded(within)
        except (TypeError, ValueError, OverflowError):
            logger.warning("wait_recorded(%r): pass a number of seconds", within)
            return 0.0


class Turn(TurnVerbs):
    """For hosts with an event loop: `async with conversation.turn(messages) as turn`."""

    async def inject(
        self, messages: MutableSequence[M], *, within: float | None = None, phase: PhaseName = "fast"
    ) -> M | None:
        """Adds the block if it is there, waiting for it at most `grace` seconds, once for each thing that is said.

        `within` waits that long instead, at this call; `phase="refined"` puts quality before speed.
        """
        await self._wait(messages, within, phase)
        return self.inject_now(messages)

    async def block(self, *, within: float | None = None, phase: PhaseName = "fast") -> str:
        """`block_now`, waiting as `inject` does."""
        await self._wait(None, within, phase)
        return self.block_now()

    async def _wait(self, messages: Sequence[object] | None, within: float | None, phase: PhaseName) -> None:
        waiting = self._wait_at(messages, within, phase)
        deadline = asyncio.get_running_loop().time() + (waiting[1] if waiting is not None else 0.0)
        while waiting is not None and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await waiting[0].settled.wait(within=left)
            waiting = self._replaced(waiting, phase)

    async def wait_recorded(self, within: float = 5.0) -> bool:
        """Whether the turn is durably stored, as far as that is known within so many seconds."""
        wait = self._wait_for_recording(within)
        if self._state is None or wait is None:
            return False
        return await self._state.recorded.wait(within=wait) is True

    async def __aenter__(self) -> Turn:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(failed=kind is not None)


def occasion_of(state: TurnState) -> ProposalContext:
    """Until its messages are read, nobody knows what was forgotten when the turn began."""
    return ProposalContext(state.place, state.id, state.forgets_before if state.read.peek() else None)


def _bounded(within: float) -> float:
    """What a thread can wait for; infinity it can not."""
    return min(max(float(within), 0.0), WITHIN_MAX)


def _dialect(state: TurnState, messages: Sequence[object]) -> Dialect | None:
    """The format that the host named, or that the turn began in, unless the newest messages tell otherwise."""
    if not messages:
        return None
    if state.place.dialect is not None:
        return find_dialect(messages, state.place.dialect)
    newest = list(islice(reversed(messages), NEWEST_LOOKED_AT))[::-1]
    return find_dialect(newest) if state.dialect is None else follow_dialect(state.dialect, newest)
