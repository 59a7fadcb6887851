"""Memory for agents of LangChain: a middleware for `create_agent`.

Blocks become messages of the agent's state, so checkpoints keep them. `langgraph_store` has the store of LangGraph.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, NotRequired, Unpack
from uuid import uuid4

from afterturn import blocking
from afterturn.conversation.turn import Turn
from afterturn.frameworks.core import FrameworkMemory, MemoryTarget, RunIds, RunOptions, with_rules
from afterturn.frameworks.requirements import check_framework
from afterturn.tool_rules.advice import ToolAdvice

check_framework("langchain")

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse  # noqa: E402
from langchain.agents.middleware.types import PrivateStateAttr  # noqa: E402
from langchain_core.messages import AnyMessage, SystemMessage, ToolMessage  # noqa: E402
from langgraph.prebuilt.tool_node import ToolCallRequest  # noqa: E402
from langgraph.runtime import Runtime  # noqa: E402
from langgraph.types import Command  # noqa: E402

_TURN = "afterturn_turn"
# Inside the graph of another agent, the namespace has one part for each graph.
_NESTED = "|"


class AfterturnState(AgentState[Any]):
    """`afterturn_turn` is the id of the turn, so that a run which was interrupted continues it."""

    afterturn_turn: NotRequired[Annotated[str, PrivateStateAttr]]


class AfterturnMiddleware(AgentMiddleware[AfterturnState, Any, Any]):
    """Recalls once for each message of the user, and records each finished run: `create_agent(..., middleware=[...])`.

    `user` says whose memory it is: an id, or a function that takes LangGraph's `Runtime`, such as
    `lambda runtime: runtime.context.user_id`. The conversation is LangGraph's thread unless `conversation` says
    another. Put it behind a middleware that summarizes, so that it sees the summary at once.
    """

    state_schema = AfterturnState

    def __init__(self, memory: MemoryTarget, **options: Unpack[RunOptions]) -> None:
        super().__init__()
        self.memory = FrameworkMemory(memory, messages={"dialect": "langchain"}, **options)

    # The hooks of LangChain, each for runs with and without an event loop.

    def before_agent(self, state: AfterturnState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        key = uuid4().hex
        self.memory.begin_blocking(key, _ids(runtime), state["messages"])
        return {_TURN: key}

    async def abefore_agent(self, state: AfterturnState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        key = uuid4().hex
        self.memory.begin(key, _ids(runtime), state["messages"])
        return {_TURN: key}

    def before_model(self, state: AfterturnState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        turn, messages = self._blocking_turn(state, runtime), list(state["messages"])
        if turn is None or (block := turn.inject(messages)) is None:
            return None
        return _added(block)

    async def abefore_model(self, state: AfterturnState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        turn, messages = self._turn(state, runtime), list(state["messages"])
        if turn is None or (block := await turn.inject(messages)) is None:
            return None
        return _added(block)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        prompt = request.system_prompt or ""
        return handler(_with_prompt(request, self.memory.blocking_system_prompt(_key(request.state), prompt)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        prompt = request.system_prompt or ""
        standing = await self.memory.system_prompt(_key(request.state), prompt)
        return await handler(_with_prompt(request, standing))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        turn, call = self.memory.find_blocking(_key(request.state)), request.tool_call
        if turn is None:
            return handler(request)
        advice = turn.before_tool(call["name"], call["args"])
        return _refused(request, advice.refusal) if advice.refusal else _advised(handler(request), advice)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        turn, call = self.memory.find(_key(request.state)), request.tool_call
        if turn is None:
            return await handler(request)
        advice = await turn.before_tool(call["name"], call["args"])
        return _refused(request, advice.refusal) if advice.refusal else _advised(await handler(request), advice)

    def after_agent(self, state: AfterturnState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        self.memory.finish(_key(state), state["messages"])
        return None

    async def aafter_agent(self, state: AfterturnState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        return self.after_agent(state, runtime)

    # A run that was interrupted may continue in another process: the turn has the same id there. A run that began
    # before the middleware was added has no id, and no turn: all such runs would share one.

    def _turn(self, state: AfterturnState, runtime: Runtime[Any]) -> Turn | None:
        key = _key(state)
        return self.memory.find_or_begin(key, _ids(runtime), state["messages"], turn_id=key) if key else None

    def _blocking_turn(self, state: AfterturnState, runtime: Runtime[Any]) -> blocking.Turn | None:
        key = _key(state)
        if not key:
            return None
        found = self.memory.find_blocking(key)
        return found or self.memory.begin_blocking(key, _ids(runtime), state["messages"], turn_id=key)


def _key(state: Any) -> str:
    """The id of the turn. A state may be a mapping or an object of the user's own class."""
    return str(state.get(_TURN, "") if isinstance(state, Mapping) else getattr(state, _TURN, ""))


def _ids(runtime: Runtime[Any]) -> RunIds:
    """A nested run is a sub-agent's: it has a conversation of its own within the thread."""
    info = runtime.execution_info
    thread = info.thread_id if info is not None else None
    outer, nested, _ = (info.checkpoint_ns if info is not None else "").rpartition(_NESTED)
    if not nested:
        return RunIds(runtime, conversation=thread)
    return RunIds(runtime, conversation=f"{thread or uuid4().hex}/{outer.split(':')[0]}", is_subagent=True)


def _added(block: AnyMessage) -> dict[str, Any]:
    """LangGraph appends what a hook returns, or puts it in the place of a message with the same id."""
    return {"messages": [block]}


def _with_prompt(request: ModelRequest[Any], prompt: str) -> ModelRequest[Any]:
    """A prompt in blocks, which may be marked for the provider's cache, gets one more block."""
    given = request.system_prompt or ""
    if prompt == given:
        return request
    old = request.system_message
    content: Any = prompt
    if old is not None and not isinstance(old.content, str):
        content = [*old.content, {"type": "text", "text": prompt.removeprefix(given)}]
    return request.override(system_message=SystemMessage(content=content))


def _refused(request: ToolCallRequest, refusal: str) -> ToolMessage:
    call = request.tool_call
    return ToolMessage(content=refusal, tool_call_id=call["id"], name=call["name"], status="error")


def _advised(result: ToolMessage | Command[Any], advice: ToolAdvice) -> ToolMessage | Command[Any]:
    if not isinstance(result, ToolMessage) or not isinstance(result.content, str):
        return result
    return result.model_copy(update={"content": with_rules(result.content, advice)})
