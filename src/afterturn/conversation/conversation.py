"""What hosts with and without an event loop tell a conversation, from any thread."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping, Sequence

from afterturn.conversation.engine import ConversationCore
from afterturn.conversation.proposals import ProposalContext
from afterturn.conversation.replay import Replay
from afterturn.conversation.scope import ConversationScope
from afterturn.conversation.standing import StandingVerbs
from afterturn.conversation.subagents import Tools
from afterturn.conversation.trace import Trace, TraceAnswer
from afterturn.conversation.turn import Turn, contained
from afterturn.conversation.turn_state import TurnState
from afterturn.errors import AfterturnError, InvalidInput
from afterturn.prompt.compaction import Compacted
from afterturn.runtime.bridge import AsyncFacade
from afterturn.runtime.loop_thread import LoopThread
from afterturn.types import Scalar


class ConversationVerbs:
    """Never raises, never waits. Turns are made by the two kinds of `Conversation`."""

    def __init__(self, core: ConversationCore, place: ConversationScope, loop: LoopThread) -> None:
        self._core = core
        self._place = place
        self._loop = loop

    def __repr__(self) -> str:
        return f"<Conversation {self._place.id} of {self._place.owner}>"

    @property
    def id(self) -> str:
        """The id that the conversation was opened with."""
        return self._place.id

    @contained
    def expect(self, text: str) -> None:
        """What the user is typing: recall starts, and is used when what is said in the end is close to it."""
        self._core.expect(self._place, text)

    @contained
    def compacted(self, messages: Sequence[object] | None = None) -> None:
        """The context was compacted. Pass what is left of it when the history is shown: what went may come again."""
        self._core.compacted(self._place, messages)

    @contained
    def compacting(self, messages: Sequence[object]) -> None:
        """A compaction of these messages was decided. With `review_compaction`, what they teach is kept."""
        self._core.compacting(self._place, messages)

    @contained
    def reset(self) -> None:
        """The conversation begins anew: nothing counts as shown any more, and no memory is lost."""
        self._core.reset(self._place)


# A conversation for hosts with an event loop: what `memory.conversation(...)` gives.
#
# Loaded when the first conversation is asked for: who only speaks to spaces goes without turns.

logger = logging.getLogger("afterturn")


class Conversation(ConversationVerbs):
    """One thread of messages of one owner, with the spaces it was granted. Makes turns."""

    def turn(self, messages: Sequence[object], *, id: str | None = None, speaker: str | None = None) -> Turn:
        """A turn that begins with the user's latest message. Recall starts here, and nothing waits for it."""
        return Turn(self._core, begin(self._core, self._place, messages, id=id, speaker=speaker), messages)

    async def start_turn(
        self, messages: Sequence[object], *, id: str | None = None, speaker: str | None = None
    ) -> Turn:
        """The same without `async with`: end it with `turn.finish(messages)`, here or in another process."""
        check_messages(messages)
        return Turn(
            self._core, await self._loop.run(self._core.start_turn(self._place, list(messages), id, speaker)), messages
        )

    async def resume_turn(self, id: str) -> Turn:
        """An open turn that was started elsewhere. NotFound when there is none, Conflict when it has ended."""
        return Turn(self._core, await self._loop.run(self._core.resume_turn(self._place, id)), None)

    def standing(self, *, roots: Iterable[str | os.PathLike[str]] = (), instructions: Iterable[str] = ()) -> Standing:
        """What always stands in the system prompt: context files of trusted `roots`, instructions, lasting memories."""
        return Standing(self._core.stand(self._place, roots, instructions), self._loop)

    async def compact(self, messages: Sequence[object], *, limit_tokens: int | None = None) -> Compacted:
        """For hosts without compaction: over half of the model's limit, all but the last 30 % becomes a summary.

        The list that was given stays as it is. ConfigError without a model or a limit.
        """
        check_messages(messages)
        return await self._loop.run(self._core.compact(self._place, list(messages), limit_tokens))

    async def trace(self, turn: str | int | None = None, *, limit: int = 20) -> Trace:
        """What was recalled in the newest turns, or in one (id, number or "last"): what came, what did not, and why."""
        return await self._loop.run(self._core.lookback.trace(turn, limit=limit))

    async def why(
        self, memory: str, *, turn: str | int | None = None, look_in: Sequence[str] = ()
    ) -> Sequence[TraceAnswer]:
        """Why one memory came to the recalls of a turn, or did not. Only spaces that it could read are looked into, and
        those of `look_in`."""
        return await self._loop.run(self._core.lookback.why(memory, turn=turn, look_in=look_in))

    async def replay(self, turn: str | int, *, changes: Mapping[str, Scalar] | None = None) -> Replay:
        """The blocks of a turn rendered again, byte for byte, and with `changes` under other settings."""
        return await self._loop.run(self._core.lookback.replay(turn, changes=changes))

    def tools(self, *, remember: bool = False) -> Tools:
        """Memory as tools of a model: looking something up, and with `remember` proposing what to keep."""
        occasion, turn = ProposalContext(self._place), self._core.turn_now
        return Tools(self._core.errands.tools(occasion, remember=remember, turn=turn), self._loop)


class Standing(AsyncFacade, StandingVerbs):
    """A conversation's standing context, and what hosts that write their prompts themselves ask for."""


def begin(
    core: ConversationCore, place: ConversationScope, messages: Sequence[object], *, id: str | None, speaker: str | None
) -> TurnState | None:
    """Starts the turn; None when memory is gone, which the turn's verbs then say. Raises only for what is no list."""
    check_messages(messages)
    try:
        return core.begin(place, messages, id, speaker, recall=not _is_cancelled())
    except AfterturnError:
        return None
    except Exception:  # the boundary to the host's own list, which may raise whatever it likes
        logger.exception("the messages cannot be read; the turn continues without memory")
        return None


def _is_cancelled() -> bool:
    """Whether the host's own task is being cancelled: it will not stay to hear what would be recalled (R4)."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


def check_messages(messages: object) -> None:
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise InvalidInput(f"`messages` must be a list of messages, not {type(messages).__name__}.")
