"""A conversation for hosts with no event loop, and its turns: every verb waits for its answer.

Loaded when the first conversation is asked for, as `awaited` is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from types import TracebackType

from afterturn.conversation.conversation import ConversationVerbs, begin, check_messages
from afterturn.conversation.proposals import ProposalContext
from afterturn.conversation.replay import Replay
from afterturn.conversation.standing import StandingVerbs
from afterturn.conversation.subagents import ToolVerbs
from afterturn.conversation.tools import failure
from afterturn.conversation.trace import Trace, TraceAnswer
from afterturn.conversation.turn import M, PhaseName, TurnVerbs
from afterturn.errors import AfterturnError
from afterturn.prompt.compaction import Compacted
from afterturn.runtime.bridge import BlockingFacade
from afterturn.types import Scalar


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

    def why(self, memory: str, *, turn: str | int | None = None, look_in: Sequence[str] = ()) -> Sequence[TraceAnswer]:
        """Why one memory came to the recalls of a turn, or did not. Only spaces that it could read are looked into, and
        those of `look_in`."""
        return self._loop.wait(self._core.lookback.why(memory, turn=turn, look_in=look_in))

    def replay(self, turn: str | int, *, changes: Mapping[str, Scalar] | None = None) -> Replay:
        """The blocks of a turn rendered again, byte for byte, and with `changes` under other settings."""
        return self._loop.wait(self._core.lookback.replay(turn, changes=changes))

    def tools(self, *, remember: bool = False) -> Tools:
        """Memory as tools of a model: looking something up, and with `remember` proposing what to keep."""
        occasion, turn = ProposalContext(self._place), self._core.turn_now
        return Tools(self._core.errands.tools(occasion, remember=remember, turn=turn), self._loop)


class Tools(ToolVerbs):
    """Memory as tools of a model, for hosts without an event loop."""

    def dispatch(self, name: str, arguments: object) -> str:
        """The answer to a model's call, whatever happens. `arguments` is a mapping, or the JSON text of one."""
        try:
            return self._loop.wait(self._core.dispatch(name, arguments))
        except AfterturnError as error:
            return failure(name, error)


class Standing(BlockingFacade, StandingVerbs):
    """A conversation's standing context, and what hosts that write their prompts themselves ask for."""
