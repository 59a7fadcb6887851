"""The same conversation and turns for hosts without an event loop: every verb waits for its result."""

from __future__ import annotations

import os
from collections.abc import Iterable, MutableSequence, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from afterturn.conversation.conversation import ConversationVerbs, check_messages
from afterturn.conversation.standing import StandingVerbs
from afterturn.conversation.subagents import ToolVerbs
from afterturn.conversation.tools import failure
from afterturn.conversation.turn import M, PhaseName, TurnVerbs
from afterturn.errors import AfterturnError
from afterturn.log import logger
from afterturn.runtime.bridge import BlockingFacade
from afterturn.tool_rules.advice import ToolAdvice, ToolRule

if TYPE_CHECKING:
    from afterturn.conversation.compactor import Compacted


class Turn(TurnVerbs):
    """One user message and the agent's answer: `with conversation.turn(messages) as turn`."""

    def inject(
        self, messages: MutableSequence[M], *, within: float | None = None, phase: PhaseName = "fast"
    ) -> M | None:
        """Adds the block to `messages` and returns the new element, or None if there is nothing to add.

        Waits for it up to `grace` seconds, once for each thing that the user says and for each compaction; calls at the
        same time wait together. `within` replaces the grace at this call. `phase="refined"` waits for the choice of a
        model.
        """
        self._wait(messages, within, phase)
        return self._inject(messages)

    def block(self, *, within: float | None = None, phase: PhaseName = "fast") -> str:
        """`block_now`, waiting as `inject` does."""
        self._wait(None, within, phase)
        return self.block_now()

    def delegate_with_recall(self, task: str, *, remember: bool = False, within: float | None = None) -> str:
        """As `delegate`, with what memory knows about the task, whether this turn has recalled it or not.

        Waits for that up to `within` seconds (default: `recall_timeout`), then uses what the turn has recalled. Never
        raises.
        """
        asked, answer = self._recall_for(task, within), None
        if asked is not None:
            try:
                answer = self._core.loop.wait(asked)
            except AfterturnError:
                logger.warning("a task was delegated without a recall, because memory is closing")
        return self._delegate_with(task, answer, remember=remember)

    def before_tool(self, name: str, arguments: object) -> ToolAdvice:
        """Call it before a tool runs: the standing rules that concern this very call, and whether one refuses it.

        `arguments` are those of the call. Each rule is returned once per turn, and again if the same call repeats.
        Needs no model and takes milliseconds. Never raises: if memory fails, there are no rules.
        """
        asked, rules = self._rules_for(name, arguments), list[ToolRule]()
        if asked is not None:
            try:
                rules = self._core.loop.wait(asked)
            except AfterturnError:
                logger.warning("a tool call was not checked against rules, because memory is closing")
        return self._advise(rules, name, arguments)

    def _wait(self, messages: Sequence[object] | None, within: float | None, phase: PhaseName) -> None:
        for wait in self._waits(messages, within, phase, self._core.clock.monotonic):
            if self._core.loop.in_thread:
                break
            wait.run.settled.wait_blocking(within=wait.seconds)

    def is_clean(self, messages: Sequence[object] | None = None) -> bool:
        """Whether no text of others has reached the assistant so far, in this turn or earlier in the conversation.

        Pass the messages of the turn so far if `inject` has not seen them all. False if it is not known. Never raises.
        """
        asked = self._ask_clean(messages)
        try:
            return asked is not None and self._core.loop.wait(asked)
        except (AfterturnError, TimeoutError):
            return False

    def wait_recorded(self, within: float = 5.0) -> bool:
        """Call it after the turn: whether it is durably stored, as far as that is known within `within` seconds."""
        wait = self._recording_within(within)
        if self._turn is None or wait is None:
            return False
        return self._turn.shared.recorded.wait_blocking(within=0.0 if self._core.loop.in_thread else wait) is True

    def __enter__(self) -> Turn:
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(failed=kind is not None)


class Conversation(BlockingFacade, ConversationVerbs):
    """One thread of messages of one owner, with the spaces it was granted. Makes turns."""

    def turn(
        self, messages: Sequence[object], *, id: str | None = None, speaker: str | None = None, incognito: bool = False
    ) -> Turn:
        """A turn that begins with the latest user message in `messages`. Its recall starts now, in the background.

        Use it with `with`, and append the agent's answer to `messages` inside the block, or pass the list that has it
        to `turn.complete(messages)`. `speaker` names the person who wrote the message.
        `incognito`: nothing of the turn is recorded or learned.
        """
        begun = self._begin_turn(messages, id=id, speaker=speaker, incognito=incognito)
        return Turn(self._core, begun, messages)

    def start_turn(
        self, messages: Sequence[object], *, id: str | None = None, speaker: str | None = None, incognito: bool = False
    ) -> Turn:
        """A turn that is not a `with` block: end it with `turn.finish(messages)`, in this or in another process."""
        check_messages(messages)
        turn = self._loop.wait(self._core.start_turn(self._scope, list(messages), id, speaker, incognito=incognito))
        return Turn(self._core, turn, messages)

    def resume_turn(self, id: str) -> Turn:
        """An open turn that was started elsewhere. Raises NotFound if there is none, Conflict if it has ended."""
        return Turn(self._core, self._loop.wait(self._core.resume_turn(self._scope, id)), None)

    def before_tool(self, name: str, arguments: object) -> ToolAdvice:
        """As `Turn.before_tool`, for a call outside of any turn: all rules that concern it. Never raises."""
        rules: list[ToolRule] = []
        try:
            rules = self._loop.wait(self._core.find_tool_rules(self._scope, "", str(name), arguments))
        except AfterturnError:
            logger.warning("a tool call was not checked against rules, because memory is closing")
        return self._advise(rules, name, arguments)

    def standing(self, *, roots: Iterable[str | os.PathLike[str]] = (), instructions: Iterable[str] = ()) -> Standing:
        """The standing context for the system prompt: lasting memories, `instructions`, and the context files of
        `roots`, folders that you trust."""
        return Standing(self._core.make_standing(self._scope, roots, instructions), self._loop)

    def compact(self, messages: Sequence[object], *, limit_tokens: int | None = None) -> Compacted:
        """For hosts without compaction of their own: summarises the older part of a history that is too long.

        Above half of `limit_tokens` (default: `window_tokens`), all but the last 30 % becomes a summary. The given list
        is not changed. Raises ConfigError without a model or a limit.
        """
        check_messages(messages)
        return self._loop.wait(self._core.compactions.compact(self._scope, list(messages), limit_tokens))

    def briefing(self) -> str:
        """Returns how the last other conversation in the same project ended, and what was to come next; else nothing.

        Call it once, at the start of a conversation that was opened with `project=`, and put the text where the model
        reads it. At most 400 tokens, without a model. Never raises.
        """
        try:
            return self._loop.wait(self._core.briefing(self._scope, self._core.note_untrusted))
        except AfterturnError:
            logger.warning("there is no briefing, because memory is closed")
            return ""

    def tools(self, *, remember: bool = False) -> Tools:
        """Memory as tools for a model: searching, and with `remember` proposing memories."""
        return Tools(self._make_tools(remember=remember), self._loop)


class Tools(ToolVerbs):
    """Memory as tools for a model, for hosts without an event loop."""

    def dispatch(self, name: str, arguments: object) -> str:
        """The text to give the model in answer to its call. Never raises.

        `arguments` is a mapping, or the JSON text of one.
        """
        try:
            return self._loop.wait(self._core.dispatch(name, arguments))
        except AfterturnError as error:
            return failure(name, error)


class Standing(BlockingFacade, StandingVerbs):
    """A conversation's standing context, and context for hosts that write their prompts themselves."""
