"""Memory for agents of Microsoft Agent Framework: a context provider.

Blocks are added by a middleware of the chat client, because a provider does not see the history that others load later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Unpack
from uuid import uuid4

from afterturn.conversation.turn import Turn
from afterturn.dialects.dialect import Element, ToolDefinition, Utterance, join_lines, read_user, text_field
from afterturn.dialects.history import register_dialect
from afterturn.dialects.openai_chat import OpenAIChat
from afterturn.frameworks.core import FrameworkMemory, MemoryTarget, RunIds, RunOptions, with_rules
from afterturn.frameworks.requirements import check_framework
from afterturn.tool_rules.advice import NO_ADVICE, ToolAdvice

check_framework("agent-framework")

from agent_framework import (  # noqa: E402
    AgentResponse,
    AgentSession,
    ChatContext,
    ChatMiddleware,
    Content,
    ContextProvider,
    FunctionInvocationContext,
    FunctionMiddleware,
    HistoryProvider,
    Message,
    SessionContext,
    apply_compaction,
    included_messages,
)

_ATTRIBUTION = "_attribution"
_APPROVAL = "function_approval_response"
_REASONING = "text_reasoning"
# Contents of an assistant's message that are its own.
_OWN = frozenset(["text", _REASONING, "function_call", "usage"])


class AgentFrameworkMessages:
    """`agent_framework.Message`: a role and contents, each with a type."""

    name = "agent_framework"
    alternates = False

    def recognises(self, message: object) -> bool | None:
        return isinstance(message, Message)

    def read(self, message: object) -> Element | None:
        if not isinstance(message, Message):
            return None
        contents = list(message.contents)
        text = join_lines(text_field(content, "text") for content in contents if content.type == "text")
        if message.role == "assistant":
            return _assistant(contents, text)
        if message.role == "tool":
            results = [content for content in contents if content.type == "function_result"]
            return Element(
                tuple(Utterance("tool", str(content.result or "")) for content in results),
                answers=tuple(content.call_id or "" for content in results),
            )
        if message.role == "user" and not any(content.type == _APPROVAL for content in contents):
            is_added = _is_added(message)
            return Element((Utterance("system", text),), outside=True) if is_added else read_user(contents, ("text",))
        return Element((Utterance("system", text),))

    def make_message(self, role: str, text: str) -> object:
        return Message(role, [text])

    def merged(self, message: object, text: str) -> object | None:
        """A list with merged blocks could not be matched with the framework's own."""
        return None

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        return OpenAIChat().tool(definition)


def _assistant(contents: Sequence[Content], text: str) -> Element:
    calls = [content for content in contents if content.type == "function_call" and not content.informational_only]
    kinds = {content.type for content in contents}
    is_silent = not text and bool(kinds - {"text", _REASONING})
    quotes = any(content.annotations for content in contents)
    return Element(
        () if is_silent else (Utterance("assistant", text),),
        calls=tuple(call.call_id or "" for call in calls),
        outside=bool(kinds - _OWN) or quotes,
    )


def _is_added(message: Message) -> bool:
    """Whether another provider wrote it, in the role of the user. Providers of history repeat what was said."""
    attribution = message.additional_properties.get(_ATTRIBUTION) or {}
    kind = str(attribution.get("source_type", ""))
    return bool(kind) and kind != AfterturnContextProvider.__name__ and not kind.endswith("HistoryProvider")


register_dialect(AgentFrameworkMessages())


@dataclass(frozen=True, slots=True)
class ProvidedRun:
    """A run that begins, for functions that choose its ids. `options` are those of `agent.run`."""

    agent: Any
    session: AgentSession
    options: Mapping[str, Any]


class AfterturnContextProvider(ContextProvider):
    """Recalls once for each message of the user, and records each finished run: `Agent(..., context_providers=[...])`.

    `user` says whose memory it is: an id, or a function that takes a `ProvidedRun`, such as
    `lambda run: run.session.state["user_id"]`. The conversation is the session unless `conversation` says another.
    A run inside a tool is a sub-agent's. One object may serve several agents.
    """

    def __init__(
        self,
        memory: MemoryTarget,
        *,
        source_id: str = "afterturn",
        **options: Unpack[RunOptions],
    ) -> None:
        super().__init__(source_id)
        self.memory = FrameworkMemory(memory, messages={"dialect": "agent_framework"}, **options)

    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        run = _ProviderRun(self, agent, session, context)
        context.metadata[self.source_id] = run
        context.extend_middleware(self.source_id, [_BlockMiddleware(run), _RuleMiddleware(run)])

    async def after_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        run, response = context.metadata.pop(self.source_id, None), context.response
        if isinstance(run, _ProviderRun) and response is not None:
            run.end(response)


class _ProviderRun:
    """One run of an agent."""

    def __init__(
        self, provider: AfterturnContextProvider, agent: Any, session: AgentSession, context: SessionContext
    ) -> None:
        self._provider = provider
        self._memory = provider.memory
        self._key = uuid4().hex
        self._context = context
        self._outer = _current_run.get()
        self._native = ProvidedRun(agent, session, context.options)
        self._sent: list[Message] | None = None

    @property
    def turn(self) -> Turn | None:
        return self._memory.find(self._key)

    @property
    def conversation(self) -> str:
        if self._outer is None:
            return self._native.session.session_id
        return f"{self._outer.conversation}/{self._native.agent.name or 'agent'}"

    def _ids(self) -> RunIds:
        return RunIds(
            self._native,
            conversation=self.conversation,
            is_subagent=self._outer is not None,
            history="hidden" if self._is_history_hidden() else None,
        )

    def _is_history_hidden(self) -> bool:
        """Whether a request has only what is new: the service has the rest, or it is loaded for each request."""
        agent, context = self._native.agent, self._context
        given = {**getattr(agent, "default_options", {}), **context.options}
        store = given.get("store")
        stores = getattr(getattr(agent, "client", None), "STORES_BY_DEFAULT", False) if store is None else store
        loads_later = getattr(agent, "require_per_service_call_history_persistence", False) and any(
            isinstance(provider, HistoryProvider) for provider in agent.context_providers
        )
        return bool(stores or loads_later or context.service_session_id or given.get("conversation_id"))

    def _is_resumed(self) -> bool:
        """Whether it only brings the answer of a person who was asked to approve a call."""
        said = self._context.input_messages
        return any(content.type == _APPROVAL for message in said for content in message.contents)

    def _begin(self, messages: Sequence[Message]) -> Turn | None:
        ids = self._ids()
        if self._is_resumed() and (waiting := self._memory.continue_paused(ids)):
            self._key = waiting
            return self.turn
        return self._memory.begin(self._key, ids, messages)

    async def prepare(self, context: ChatContext) -> None:
        """Adds blocks to one request, and the standing context to its instructions."""
        given = list(context.messages)
        # The client would do this next. Messages that it removes can be recalled again.
        strategy = context.kwargs.get("compaction_strategy") or getattr(context.client, "compaction_strategy", None)
        await apply_compaction(given, strategy=strategy, tokenizer=context.kwargs.get("tokenizer"))
        shown = included_messages(given)
        turn = self.turn or self._begin(shown)
        if turn is None:
            return
        extended = list(shown)
        block = await turn.inject(extended)
        context.messages = _inserted(given, shown, extended)
        if self._sent is None:
            self._sent = extended
            if block is not None and extended[-1] is block and not self._is_resumed():
                self._store(block)
        options = dict(context.options or {})
        prompt = await self._memory.system_prompt(self._key, options.get("instructions") or "")
        if prompt:
            context.options = {**options, "instructions": prompt}

    def _store(self, block: Message) -> None:
        """Makes the block a part of the input, so that a provider of history stores it after the user's message.

        A later block is not stored; memory puts it back in its place when the history is sent again.
        """
        source: dict[str, object] = {
            "source_id": self._provider.source_id,
            "source_type": type(self._provider).__name__,
        }
        if origins := self._memory.origins(self._key, block.text):
            source["origin_session_ids"] = origins
        stored = Message("user", list(block.contents), additional_properties={_ATTRIBUTION: source})
        self._context.input_messages = [*self._context.input_messages, stored]

    def end(self, response: AgentResponse[Any]) -> None:
        if response.user_input_requests:
            # It asks a person for approval, and continues with the answer.
            self._memory.pause(self._key)
        else:
            self._memory.finish(self._key, [*(self._sent or ()), *response.messages])

    def abort(self, error: BaseException) -> None:
        self._memory.abort(self._key, type(error).__name__)


_current_run: ContextVar[_ProviderRun | None] = ContextVar("afterturn_agent_framework_run", default=None)


class _BlockMiddleware(ChatMiddleware):
    def __init__(self, run: _ProviderRun) -> None:
        self._run = run

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        await self._run.prepare(context)
        try:
            await call_next()
        except BaseException as error:
            self._run.abort(error)
            raise


class _RuleMiddleware(FunctionMiddleware):
    def __init__(self, run: _ProviderRun) -> None:
        self._run = run

    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        turn = self._run.turn
        advice = NO_ADVICE
        if turn is not None:
            arguments = context.arguments if isinstance(context.arguments, Mapping) else context.arguments.model_dump()
            advice = await turn.before_tool(context.function.name, arguments)
        if advice.refusal:
            context.result = advice.refusal
            return
        token = _current_run.set(self._run)
        try:
            await call_next()
        finally:
            _current_run.reset(token)
        if advice.rules:
            context.result = _advised(context.result, advice)


def _advised(result: object, advice: ToolAdvice) -> object:
    if isinstance(result, str):
        return with_rules(result, advice)
    if not isinstance(result, list) or not all(isinstance(content, Content) for content in result):
        return result
    if len(result) == 1 and result[0].type == "text":
        return [Content.from_text(with_rules(result[0].text or "", advice))]
    return [*result, Content.from_text(advice.text)]


def _inserted(given: list[Message], shown: list[Message], extended: list[Message]) -> list[Message]:
    """The list `given`, with the new elements of `extended` after those that they follow there."""
    known = {id(message) for message in shown}
    result = list(given)
    for at, message in enumerate(extended):
        if id(message) not in known:
            before = next((index for index, one in enumerate(result) if at and one is extended[at - 1]), -1)
            result.insert(before + 1, message)
    return result
