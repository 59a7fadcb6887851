"""Memory for agents of the OpenAI Agents SDK: a runner with the methods of `agents.Runner`.

Only the runner of a run knows its session, its end and its failure; hooks alone see none of them. `openai_session` has
the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, Unpack
from uuid import uuid4

from afterturn.conversation.turn import Turn
from afterturn.dialects.openai_responses import OpenAIResponses
from afterturn.frameworks.core import FrameworkMemory, MemoryTarget, RunIds, RunOptions, with_rules
from afterturn.frameworks.openai_session import AfterturnSession
from afterturn.frameworks.requirements import check_framework
from afterturn.log import logger
from afterturn.tool_rules.advice import ToolAdvice

check_framework("openai-agents")

from agents import (  # noqa: E402
    Agent,
    FunctionTool,
    ItemHelpers,
    ModelResponse,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    RunResult,
    RunResultStreaming,
    RunState,
    Session,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
    ToolOutputGuardrail,
    ToolOutputGuardrailData,
    TResponseInputItem,
)
from agents.mcp import MCPServer  # noqa: E402
from agents.memory import SessionInputCallback  # noqa: E402
from agents.run import AgentRunner, CallModelData, CallModelInputFilter, ModelInputData  # noqa: E402

__all__ = ["AfterturnRunner", "AfterturnSession", "AgentRun"]

RunInput: TypeAlias = "str | list[TResponseInputItem] | RunState[Any]"


@dataclass(frozen=True, slots=True)
class AgentRun:
    """A run that begins, for functions that choose its ids. `context` is the object that you passed to `run`."""

    agent: Agent[Any]
    context: Any
    session: Session | None


class AfterturnRunner(AgentRunner):
    """Runs agents with memory: `AfterturnRunner("memory.db", user="ada").run(agent, "Hello", session=session)`.

    It has the methods of `agents.Runner`, with the same arguments. `user` says whose memory it is: an id, or a function
    that takes an `AgentRun`, such as `lambda run: run.context.user_id`. The conversation is the session, or the
    conversation that OpenAI stores, unless `conversation` says another.

    Function tools and MCP servers of the agents get a guardrail, by which rules of the user can refuse a call. With
    `agents.run.set_default_agent_runner(runner)`, `agents.Runner` uses this runner, also for agents that are tools.
    """

    def __init__(self, memory: MemoryTarget, **options: Unpack[RunOptions]) -> None:
        super().__init__()
        self.memory = FrameworkMemory(memory, messages={"dialect": "openai_responses"}, **options)

    async def run(self, starting_agent: Agent[Any], input: RunInput, **options: Any) -> RunResult:
        run = _SdkRun(self.memory, starting_agent, input, options)
        with run.entered():
            result = await super().run(starting_agent, input, **{**options, **run.extensions})
        run.end(result)
        return result

    def run_streamed(self, starting_agent: Agent[Any], input: RunInput, **options: Any) -> RunResultStreaming:
        run = _SdkRun(self.memory, starting_agent, input, options)
        with run.entered():
            result = super().run_streamed(starting_agent, input, **{**options, **run.extensions})
        task = result.run_loop_task
        assert task is not None
        task.add_done_callback(functools.partial(run.end_stream, result))
        return result


class _SdkRun(RunHooks[Any]):
    """One run: the hooks and callbacks that the SDK calls in it, each after those of the user."""

    def __init__(self, memory: FrameworkMemory, agent: Agent[Any], input: RunInput, options: dict[str, Any]) -> None:
        self._memory = memory
        self._key = uuid4().hex
        self._outer = _current_run.get()
        self._session: Session | None = options.get("session")
        self._hooks: RunHooks[Any] = options.get("hooks") or RunHooks()
        for name in ("on_handoff", "on_llm_start", "on_tool_start", "on_tool_end"):
            setattr(self, name, getattr(self._hooks, name))
        self._config: RunConfig | dict[str, Any] = options.get("run_config") or {}
        given = self._config if isinstance(self._config, dict) else vars(self._config)
        self._own_merge: SessionInputCallback | None = given.get("session_input_callback")
        self._own_filter: CallModelInputFilter | None = given.get("call_model_input_filter")
        outer = getattr(self._own_filter, "__self__", None)
        if isinstance(outer, _SdkRun):
            # An agent that is a tool is given the configuration of the run that calls it.
            self._own_merge, self._own_filter = outer._own_merge, outer._own_filter
        self._agents = [getattr(input, "_current_agent", None) or agent]
        self._server_id: str | None = options.get("conversation_id") or getattr(input, "_conversation_id", None)
        self._is_on_server = bool(
            self._server_id
            or options.get("previous_response_id")
            or options.get("auto_previous_response_id")
            or getattr(input, "_previous_response_id", None)
        )
        context = options.get("context") or getattr(input, "_context", None)
        self._native = AgentRun(agent, context.context if isinstance(context, RunContextWrapper) else context, None)
        self._seen: list[Any] = []
        self._late: list[Any] = []
        self._is_resumed = isinstance(input, RunState)
        self._has_answered = False
        self.advice: dict[str, ToolAdvice] = {}
        for one in self._agents:
            _guard(one)
        if self._session is None and not isinstance(input, RunState):
            self._begin(ItemHelpers.input_to_new_input_list(input))

    @property
    def extensions(self) -> dict[str, Any]:
        """The arguments for the SDK's own runner that differ from those of the user."""
        ours: dict[str, Any] = {
            "session_input_callback": self.merge_input,
            "call_model_input_filter": self.filter_input,
        }
        # The SDK closes a provider of models that it has made itself, as it does for a dictionary.
        given = self._config
        config = {**given, **ours} if isinstance(given, dict) else replace(given, **ours)
        return {"run_config": config, "hooks": self}

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """While the SDK's runner is called, so that tools and nested runs know in which run they are."""
        run, tool = _current_run.set(self), _tool_call.set(None)
        try:
            yield
        except BaseException as error:
            self._abort(error)
            raise
        finally:
            _tool_call.reset(tool)
            _current_run.reset(run)

    # The turn.

    @property
    def turn(self) -> Turn | None:
        return self._memory.find(self._key)

    @property
    def conversation(self) -> str | None:
        if self._session is None:
            return self._server_id
        try:
            return self._session.session_id
        except ValueError:  # a session of OpenAI that has not been created yet
            return None

    def _ids(self) -> RunIds:
        conversation = self.conversation
        if conversation is None and self._outer is not None:
            conversation = f"{self._outer.conversation or uuid4().hex}/{self._native.agent.name}"
        return RunIds(
            replace(self._native, session=self._session),
            conversation=conversation,
            is_subagent=self._outer is not None,
            history="hidden" if self._is_on_server else None,
        )

    def _begin(self, messages: Sequence[Any]) -> Turn | None:
        ids = self._ids()
        if self._is_resumed and ids.conversation is not None and (waiting := self._memory.continue_paused(ids)):
            self._key = waiting
            return self.turn
        return self._memory.begin(self._key, ids, messages)

    def end(self, result: RunResult | RunResultStreaming) -> None:
        if result.interruptions:
            # It waits for approvals, and continues with its `RunState`.
            self._memory.pause(self._key)
        else:
            self._memory.finish(self._key, self._seen)

    def _abort(self, error: BaseException) -> None:
        self._memory.abort(self._key, type(error).__name__)

    def end_stream(self, result: RunResultStreaming, task: asyncio.Task[Any]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else result.run_loop_exception
        if error is not None:
            self._abort(error)
        elif self._has_answered or result.interruptions:
            self.end(result)
        else:
            # The loop ends without an error when there are too many turns, or the host has cancelled it.
            self._memory.abort(self._key, "the stream ended without an answer")

    # The input of the model.

    async def merge_input(
        self, history: list[TResponseInputItem], new: list[TResponseInputItem]
    ) -> list[TResponseInputItem]:
        """Adds the block to the new items, so that the session stores it after the user's message."""
        own = self._own_merge
        merged = own(history, new) if own is not None else [*_without_orphans(history), *new]
        messages = list(await merged if inspect.isawaitable(merged) else merged)
        if _tool_call.get() is not None or self.turn is not None:
            return messages  # an agent that is a tool inherits the configuration of the run
        turn = self._begin(messages)
        extended: list[Any] = list(messages)
        if turn is None or not messages or await turn.inject(extended) is None or extended[-1] is messages[-1]:
            # Blocks of earlier turns that were put back are not new: the filter does that at each call.
            return messages
        is_merged = not any(item is messages[-1] for item in extended)
        return [*(messages[:-1] if is_merged else messages), extended[-1]]

    async def filter_input(self, data: CallModelData[Any]) -> ModelInputData:
        own = self._own_filter
        filtered = own(data) if own is not None else data.model_data
        sent = await filtered if inspect.isawaitable(filtered) else filtered
        if _tool_call.get() is not None or not any(one is data.agent for one in self._agents):
            return sent  # as in merge_input
        messages: list[Any] = list(sent.input)
        turn = self.turn or self._begin(messages)
        if turn is not None:
            last = messages[-1] if messages else None
            block = await turn.inject(messages)
            # A block that was merged into the user's message is not stored: memory merges it again.
            if block is not None and messages[-1] is block and any(item is last for item in messages[:-1]):
                self._late.append(block)
        self._seen = [*self._seen, *messages] if self._is_on_server else list(messages)
        prompt = await self._memory.system_prompt(self._key, sent.instructions or "")
        return ModelInputData(input=messages, instructions=prompt or sent.instructions)

    async def _store_late_blocks(self) -> None:
        """A session has the input of the call by now, and not yet the answer: a block is stored where it was sent."""
        late, self._late = self._late, []
        if not late or self._session is None:
            return
        try:
            await self._session.add_items(late)
        except Exception:  # the boundary: any session may be behind it, and the run has no need of this block
            logger.exception("a block was not stored in the session; the next run does not see it")

    # Hooks.

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        self._agents.append(agent)
        _guard(agent)
        await self._hooks.on_agent_start(context, agent)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self._has_answered = True
        await self._hooks.on_agent_end(context, agent, output)

    async def on_llm_end(self, context: Any, agent: Any, response: ModelResponse) -> None:
        self._seen += response.to_input_items()
        await self._store_late_blocks()
        await self._hooks.on_llm_end(context, agent, response)


_current_run: ContextVar[_SdkRun | None] = ContextVar("afterturn_openai_agents_run", default=None)
_tool_call: ContextVar[str | None] = ContextVar("afterturn_openai_agents_tool_call", default=None)


def _without_orphans(history: list[TResponseInputItem]) -> list[TResponseInputItem]:
    """The history without results whose call is before the session's limit, as the SDK itself reads it."""
    read = [OpenAIResponses().read(item) for item in history]
    calls = {call for element in read if element is not None for call in element.calls}
    return [
        item
        for item, element in zip(history, read, strict=True)
        if element is None or calls.issuperset(element.answers)
    ]


# Rules of the user at tool calls. A hook cannot refuse a call, so tools get guardrails.


async def _check_rules(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
    # It runs in the task that calls the tool, so that a run inside the tool sees this.
    _tool_call.set(data.context.tool_call_id)
    run = _current_run.get()
    turn = run.turn if run is not None else None
    if run is None or turn is None:
        return ToolGuardrailFunctionOutput.allow()
    arguments: object = data.context.tool_arguments
    with contextlib.suppress(ValueError):
        arguments = json.loads(data.context.tool_arguments)
    advice = await turn.before_tool(data.context.tool_name, arguments)
    if advice.refusal:
        return ToolGuardrailFunctionOutput.reject_content(advice.refusal)
    run.advice[data.context.tool_call_id] = advice
    return ToolGuardrailFunctionOutput.allow()


async def _add_rules(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
    run = _current_run.get()
    advice = run.advice.pop(data.context.tool_call_id, None) if run is not None else None
    if advice is None or not advice.rules or not isinstance(data.output, str):
        return ToolGuardrailFunctionOutput.allow()
    return ToolGuardrailFunctionOutput.reject_content(with_rules(data.output, advice))


_BEFORE: ToolInputGuardrail[Any] = ToolInputGuardrail(_check_rules, name="afterturn")
_AFTER: ToolOutputGuardrail[Any] = ToolOutputGuardrail(_add_rules, name="afterturn")


def _guard(agent: Agent[Any]) -> None:
    """Adds the guardrails to the agent's tools, once. Outside runs with memory they allow everything."""
    guardable: list[FunctionTool | MCPServer] = [tool for tool in agent.tools if isinstance(tool, FunctionTool)]
    for guarded in [*guardable, *agent.mcp_servers]:
        if _BEFORE not in (guarded.tool_input_guardrails or ()):
            guarded.tool_input_guardrails = [*(guarded.tool_input_guardrails or ()), _BEFORE]
            guarded.tool_output_guardrails = [*(guarded.tool_output_guardrails or ()), _AFTER]
