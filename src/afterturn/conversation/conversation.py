"""A conversation for hosts with an event loop: what `memory.conversation(...)` returns."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from afterturn.conversation.delivery import HostTurn
from afterturn.conversation.engine import ConversationEngine
from afterturn.conversation.proposals import ProposalContext
from afterturn.conversation.scope import ConversationScope
from afterturn.conversation.standing import StandingVerbs
from afterturn.conversation.subagents import Tools
from afterturn.conversation.turn import Turn, never_raises
from afterturn.errors import AfterturnError, InvalidInput
from afterturn.log import logger
from afterturn.runtime.bridge import AsyncFacade, Bridged
from afterturn.runtime.loop_thread import LoopThread
from afterturn.tool_rules.advice import NO_ADVICE, GivenRules, ToolAdvice, ToolRule

if TYPE_CHECKING:
    from afterturn.conversation.compactor import Compacted
    from afterturn.conversation.tools import MemoryTools


class ConversationVerbs:
    """The verbs of both kinds of Conversation. Those that are no coroutines never raise and never wait."""

    def __init__(self, core: ConversationEngine, scope: ConversationScope, loop: LoopThread) -> None:
        self._core = core
        self._scope = scope
        self._loop = loop

    def __repr__(self) -> str:
        return f"<Conversation {self._scope.id} of {self._scope.owner}>"

    @property
    def id(self) -> str:
        """The id that the conversation was opened with."""
        return self._scope.id

    @property
    def owner(self) -> str:
        """The space that the conversation belongs to, such as "user:ada"."""
        return self._scope.owner

    wait_stored = Bridged(ConversationEngine.wait_stored)
    set_incognito = Bridged(ConversationEngine.set_incognito)
    is_incognito = Bridged(ConversationEngine.is_kept_incognito)
    trace = Bridged(ConversationEngine.trace)
    why = Bridged(ConversationEngine.why)
    replay = Bridged(ConversationEngine.replay)

    @never_raises
    def expect(self, text: str) -> None:
        """Starts a recall for what the user is typing. It is used if the final message is close to `text`."""
        self._core.expect(self._scope, text)

    @never_raises
    def compacted(self, messages: Sequence[object] | None = None) -> None:
        """The context was compacted: what was removed may be recalled again.

        Pass the messages that are left, unless the conversation's history is hidden.
        """
        self._core.compactions.note(self._scope, messages)

    @never_raises
    def compacting(self, messages: Sequence[object]) -> None:
        """These messages are about to be compacted. With `review_compaction`, what they teach is learned first."""
        self._core.compactions.review(self._scope, messages)

    @never_raises
    def reset(self) -> None:
        """The conversation starts again: nothing counts as shown any more. Memories are kept."""
        self._core.compactions.reset(self._scope)

    def _advise(self, rules: Sequence[ToolRule], name: str, arguments: object) -> ToolAdvice:
        return self._advised(rules, name, arguments) or NO_ADVICE

    @never_raises
    def _advised(self, rules: Sequence[ToolRule], name: str, arguments: object) -> ToolAdvice:
        advice = GivenRules().choose(rules, str(name), arguments)
        if advice.rules:
            self._loop.post(self._core.note_tool_rules, "", str(name), advice)
        return advice

    def _make_tools(self, *, remember: bool) -> MemoryTools:
        return self._core.subagents.tools(
            ProposalContext(self._scope),
            remember=remember,
            turn=self._core.current_turn_id,
            on_untrusted=self._core.note_untrusted,
            is_incognito=self._core.is_incognito,
        )

    def _begin_turn(
        self, messages: Sequence[object], *, id: str | None, speaker: str | None, incognito: bool
    ) -> HostTurn | None:
        """None if memory is closed or the list cannot be copied; raises only if `messages` is not a list."""
        check_messages(messages)
        try:
            recall = not _is_cancelled()
            return self._core.begin_turn(self._scope, messages, id, speaker, recall=recall, incognito=bool(incognito))
        except AfterturnError:
            return None
        except Exception:  # the boundary to the host's own list, which may raise anything
            logger.exception("the messages cannot be read; the turn continues without memory")
            return None


class Conversation(AsyncFacade, ConversationVerbs):
    """One thread of messages of one owner, with the spaces it was granted. Makes turns."""

    def turn(
        self, messages: Sequence[object], *, id: str | None = None, speaker: str | None = None, incognito: bool = False
    ) -> Turn:
        """A turn that begins with the latest user message in `messages`. Its recall starts now, in the background.

        Use it with `async with`, and append the agent's answer to `messages` inside the block, or pass the list that
        has it to `turn.complete(messages)`. `speaker` names the person who wrote the message.
        `incognito`: nothing of the turn is recorded or learned.
        """
        begun = self._begin_turn(messages, id=id, speaker=speaker, incognito=incognito)
        return Turn(self._core, begun, messages)

    async def start_turn(
        self, messages: Sequence[object], *, id: str | None = None, speaker: str | None = None, incognito: bool = False
    ) -> Turn:
        """A turn that is not a `with` block: end it with `turn.finish(messages)`, in this or in another process."""
        check_messages(messages)
        turn = await self._loop.run(
            self._core.start_turn(self._scope, list(messages), id, speaker, incognito=incognito)
        )
        return Turn(self._core, turn, messages)

    async def resume_turn(self, id: str) -> Turn:
        """An open turn that was started elsewhere. Raises NotFound if there is none, Conflict if it has ended."""
        return Turn(self._core, await self._loop.run(self._core.resume_turn(self._scope, id)), None)

    async def before_tool(self, name: str, arguments: object) -> ToolAdvice:
        """As `Turn.before_tool`, for a call outside of any turn: all rules that concern it. Never raises."""
        rules: list[ToolRule] = []
        try:
            rules = await self._loop.run(self._core.find_tool_rules(self._scope, "", str(name), arguments))
        except AfterturnError:
            logger.warning("a tool call was not checked against rules, because memory is closing")
        return self._advise(rules, name, arguments)

    def standing(self, *, roots: Iterable[str | os.PathLike[str]] = (), instructions: Iterable[str] = ()) -> Standing:
        """The standing context for the system prompt: lasting memories, `instructions`, and the context files of
        `roots`, folders that you trust."""
        return Standing(self._core.make_standing(self._scope, roots, instructions), self._loop)

    async def compact(self, messages: Sequence[object], *, limit_tokens: int | None = None) -> Compacted:
        """For hosts without compaction of their own: summarises the older part of a history that is too long.

        Above half of `limit_tokens` (default: `window_tokens`), all but the last 30 % becomes a summary. The given list
        is not changed. Raises ConfigError without a model or a limit.
        """
        check_messages(messages)
        return await self._loop.run(self._core.compactions.compact(self._scope, list(messages), limit_tokens))

    async def briefing(self) -> str:
        """Returns how the last other conversation in the same project ended, and what was to come next; else nothing.

        Call it once, at the start of a conversation that was opened with `project=`, and put the text where the model
        reads it. At most 400 tokens, without a model. Never raises.
        """
        try:
            return await self._loop.run(self._core.briefing(self._scope, self._core.note_untrusted))
        except AfterturnError:
            logger.warning("there is no briefing, because memory is closed")
            return ""

    def tools(self, *, remember: bool = False) -> Tools:
        """Memory as tools for a model: searching, and with `remember` proposing memories."""
        return Tools(self._make_tools(remember=remember), self._loop)


class Standing(AsyncFacade, StandingVerbs):
    """A conversation's standing context, and context for hosts that write their prompts themselves."""


def _is_cancelled() -> bool:
    """Whether the host's own task is being cancelled: it will not wait for what would be recalled."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


def check_messages(messages: object) -> None:
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise InvalidInput(f"`messages` must be a list of messages, not {type(messages).__name__}.")
