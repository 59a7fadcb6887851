"""A turn as its host holds it. Its verbs never raise and wait for nothing but the grace that was agreed on."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, MutableSequence, Sequence
from types import TracebackType
from typing import Concatenate, Literal, ParamSpec, TypeAlias, TypeVar, cast

from afterturn.base.errors import ForkedProcess, InvalidInput, MemoryClosed
from afterturn.dialects.detection import find_dialect
from afterturn.dialects.history import find_point
from afterturn.turn.conversation import ConversationCore
from afterturn.turn.state import TurnState, snapshot

logger = logging.getLogger("afterturn")
M = TypeVar("M")
P = ParamSpec("P")
R = TypeVar("R")

Phase: TypeAlias = Literal["fast", "refined"]
REFINED_WITHIN = 30.0
WITHIN_MAX = 86_400.0


def _contained(
    method: Callable[Concatenate[TurnVerbs, P], R],
) -> Callable[Concatenate[TurnVerbs, P], R | None]:
    """Memory's fault never fails the host's turn: it is logged, told as an event, and gives None."""

    @functools.wraps(method)
    def call(self: TurnVerbs, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            self._core.check()
            return method(self, *args, **kwargs)
        except ForkedProcess:
            self._core.misused("memory_forked", "in a forked child; open memory again there")
        except MemoryClosed:
            self._core.misused("memory_closed", "after its memory was closed")
        except Exception:  # the boundary between memory and the host's turn
            logger.exception("memory failed; the turn goes on without it")
        return None

    return call


class TurnVerbs:
    """What hosts with and without an event loop call alike, from any thread."""

    def __init__(self, core: ConversationCore, state: TurnState | None, messages: Sequence[object] | None) -> None:
        self._core = core
        self._state = state
        self._messages = messages
        self._completed: list[object] | None = None
        self._left = False
        self._graced = False

    @property
    def id(self) -> str:
        """Names the turn: recording it twice under one id stores it once. Blank when memory is gone."""
        return self._state.id if self._state else ""

    @_contained
    def inject_now(self, messages: MutableSequence[M]) -> M | None:
        """Adds the block if it is there and this is a place for it; never waits. Gives the new element."""
        if self._state is None or self._left:
            return None
        if not isinstance(messages, MutableSequence):
            raise InvalidInput(f"`messages` must be a list that can grow, not {type(messages).__name__}.")
        self._messages = messages
        prefetch = self._state.prefetch
        prepared = prefetch.peek()
        if prepared is None or prepared.block is None or not find_point(prepared.dialect, messages):
            return None
        taken = prefetch.take()
        if taken is None or taken.block is None:
            return None
        point = _point(messages)
        element = cast(M, taken.dialect.said("user", taken.block.text))
        # Told first: were memory closing, the block would be in the list and nobody would know it for ours.
        self._core.delivered(self._state, taken.block, point)
        messages.append(element)
        return element

    @_contained
    def complete(self, messages: Sequence[object] | None = None) -> None:
        """The agent has answered. `messages` may be left out when it is the list that `turn` was given."""
        self._complete(messages)

    @_contained
    def abort(self, reason: str = "aborted") -> None:
        """The host gives up: nothing is handed over any more and nothing recorded."""
        if self._state is not None and not self._left:
            self._left = True
            self._core.abort(self._state, str(reason)[:200].encode("utf-8", "replace").decode())

    @_contained
    def finish(self, messages: Sequence[object] | None = None) -> None:
        """`complete` and leave, for a turn that does not live in one block of code."""
        self._complete(messages)
        self._leave(failed=False)

    def _complete(self, messages: Sequence[object] | None) -> None:
        if messages is not None:
            self._messages = messages
        if self._state is not None:
            self._completed = snapshot(self._messages or (), self._state)

    @_contained
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

    @_contained
    def _wait_for(self, messages: Sequence[object], within: float | None, phase: Phase) -> float:
        """How long this hand-over may wait: the grace once per turn, at its first point."""
        if self._state is None or self._left or self._state.prefetch.settled or self._state.prefetch.consumed:
            return 0.0
        dialect = find_dialect([messages[-1]]) if messages else None
        if dialect is None or not find_point(dialect, messages):
            return 0.0
        if within is not None:
            return _bounded(within)
        if phase == "refined":
            return REFINED_WITHIN
        if self._graced:
            return 0.0
        self._graced = True
        return self._core.grace

    def _wait_for_recording(self, within: float) -> float | None:
        """How long there is something to wait for; None when nothing will ever be known here."""
        if self._state is None or not self._left or self._core.forked:
            return None
        try:
            return 0.0 if self._core.closed else _bounded(within)
        except (TypeError, ValueError):
            logger.warning("wait_recorded(%r): pass a number of seconds", within)
            return 0.0


class Turn(TurnVerbs):
    """For hosts with an event loop: `async with conversation.turn(messages) as turn`."""

    async def inject(
        self, messages: MutableSequence[M], *, within: float | None = None, phase: Phase = "fast"
    ) -> M | None:
        """Adds the block if it is there, waiting for it at most `grace` seconds, once per turn.

        `within` waits that long instead, at this call; `phase="refined"` puts quality before speed.
        """
        wait = self._wait_for(messages, within, phase) or 0.0
        if wait > 0 and self._state is not None:
            await self._state.prefetch.ready(within=wait)
        return self.inject_now(messages)

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


def _bounded(within: float) -> float:
    """What a thread can wait for; infinity it can not."""
    return min(max(float(within), 0.0), WITHIN_MAX)


def _point(messages: Sequence[object]) -> str:
    last = messages[-1]
    role = last.get("role") if isinstance(last, dict) else getattr(last, "role", "")
    return "user_message" if role == "user" else "tool_result"
