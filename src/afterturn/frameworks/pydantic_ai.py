"""Memory for agents of Pydantic AI: a capability, `Agent(..., capabilities=[AfterturnCapability(...)])`.

Blocks become messages of the run, so `result.all_messages()` has them and the next run begins with the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Unpack, cast
from uuid import uuid4

from afterturn.conversation.tools import SEARCH_MEMORY
from afterturn.conversation.turn import Turn
from afterturn.dialects import dialect as reading
from afterturn.dialects.dialect import Element, ToolDefinition, Utterance, join_parts, read_user, text_field
from afterturn.dialects.history import register_dialect
from afterturn.dialects.openai_chat import OpenAIChat
from afterturn.frameworks.core import BoundedDict, FrameworkMemory, MemoryTarget, RunIds, RunOptions, with_rules_in
from afterturn.frameworks.requirements import check_framework
from afterturn.log import logger

check_framework("pydantic-ai")

from pydantic_ai import DeferredToolRequests, FunctionToolset, RunContext, Tool, ToolFailed, ToolReturn  # noqa: E402
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, ProcessHistory  # noqa: E402
from pydantic_ai.messages import (  # noqa: E402
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    tool_return_ta,
)
from pydantic_ai.tools import ToolDefinition as OfferedTool  # noqa: E402

_DIALECT = "pydantic_ai"
# The run whose tool is being executed here: a run that begins inside it is a sub-agent's.
_outer: ContextVar[RunContext[Any] | None] = ContextVar("afterturn_pydantic_ai_outer", default=None)


@dataclass(slots=True)
class _Run:
    """The state of a run: the key of its turn, and the tools by which the model gives a structured answer."""

    key: str
    output_tools: set[str] = field(default_factory=set)


class AfterturnCapability(AbstractCapability[Any]):
    """Recalls once for each message of the user, and records each finished run.

    `user` says whose memory it is: an id, or a function that takes the `RunContext`, such as
    `lambda ctx: ctx.deps.user_id`. The conversation is the run's `conversation_id` unless `conversation` says another.
    `search_tool=True` also gives the model the tool `search_memory`, which only reads.
    """

    def __init__(
        self,
        memory: MemoryTarget,
        *,
        search_tool: bool = False,
        **options: Unpack[RunOptions],
    ) -> None:
        self.memory = FrameworkMemory(memory, messages={"dialect": _DIALECT}, **options)
        self._search_tool = search_tool
        self._runs: BoundedDict[str, _Run] = BoundedDict()

    def get_ordering(self) -> CapabilityOrdering:
        """After functions that shorten the history, so that what they removed can be recalled for the same request."""
        return CapabilityOrdering(wrapped_by=[ProcessHistory])

    def get_instructions(self) -> Any:
        return self._standing

    async def _standing(self, ctx: RunContext[Any]) -> str | None:
        self._turn(ctx)
        return (await self.memory.system_prompt(self._run(ctx).key, "")).strip() or None

    def get_toolset(self) -> FunctionToolset[Any] | None:
        if not self._search_tool:
            return None
        schema = dict(SEARCH_MEMORY.parameters)
        tool = Tool.from_schema(self._search, SEARCH_MEMORY.name, SEARCH_MEMORY.description, schema, takes_ctx=True)
        return FunctionToolset([tool])

    async def _search(self, ctx: RunContext[Any], **arguments: object) -> str:
        self._turn(ctx)
        return await self.memory.call_tool(self._run(ctx).key, SEARCH_MEMORY.name, arguments)

    # The hooks of Pydantic AI.

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        run = self._runs[_run_id(ctx)] = self._continued(ctx)
        try:
            result = await handler()
        except BaseException as error:
            self._runs.pop(_run_id(ctx), None)
            self.memory.abort(run.key, type(error).__name__)
            raise
        if not isinstance(result.output, DeferredToolRequests):
            self._runs.pop(_run_id(ctx), None)
            self.memory.finish(run.key, _finished(result.all_messages(), result.output, run.output_tools))
        return result

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        turn = self._turn(ctx)
        if turn is None:
            return request_context
        start = _visible_from(request_context.messages)
        given = request_context.messages[start:]
        messages = list(given)
        block = await turn.inject(messages)
        if block is not None and block is messages[-1]:
            # This adds it to the request and to the history of the run.
            ctx.enqueue(messages.pop())
        if len(messages) != len(given):
            # Something else has removed a block from the history: it is put back for this request.
            request_context.messages = [*request_context.messages[:start], *messages]
        return request_context

    async def prepare_output_tools(self, ctx: RunContext[Any], tool_defs: list[OfferedTool]) -> list[OfferedTool]:
        self._run(ctx).output_tools.update(tool.name for tool in tool_defs)
        return tool_defs

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: OfferedTool, args: dict[str, Any], handler: Any
    ) -> Any:
        turn = self._turn(ctx)
        advice = await turn.before_tool(call.tool_name, args) if turn is not None else None
        if advice is not None and advice.refusal:
            raise ToolFailed(advice.refusal)
        token = _outer.set(ctx)
        try:
            result = await handler(args)
        finally:
            _outer.reset(token)
        if advice is None or not advice.rules:
            return result
        if isinstance(result, ToolReturn):
            return replace(result, return_value=with_rules_in(result.return_value, advice))
        return with_rules_in(result, advice)

    # Runs and turns.

    def _run(self, ctx: RunContext[Any]) -> _Run:
        """Without `wrap_run`, as in a request that only asks for the instructions, nothing is kept."""
        return self._runs.get(_run_id(ctx)) or _Run(_run_id(ctx))

    def _continued(self, ctx: RunContext[Any]) -> _Run:
        """A run that was paused for a tool's result, and goes on now, is the same turn."""
        last = next((message for message in reversed(ctx.messages) if isinstance(message, ModelResponse)), None)
        paused = self._runs.pop(last.run_id or "", None) if last is not None else None
        return paused or _Run(_run_id(ctx))

    def _turn(self, ctx: RunContext[Any]) -> Turn | None:
        """The turn begins when it is first asked for: the history ends with the user's message then."""
        run = self._runs.get(_run_id(ctx))
        if run is None:
            return None
        return self.memory.find_or_begin(run.key, _ids(ctx), ctx.messages)


def _run_id(ctx: RunContext[Any]) -> str:
    return ctx.run_id or ""


def _ids(ctx: RunContext[Any]) -> RunIds:
    outer = _outer.get()
    if outer is None or outer.run_id == ctx.run_id:
        return RunIds(ctx, conversation=ctx.conversation_id)
    name = ctx.agent.name if ctx.agent is not None else None
    conversation = ctx.conversation_id or uuid4().hex
    if conversation == outer.conversation_id:
        conversation = f"{conversation}/{name or 'subagent'}"
    return RunIds(ctx, conversation=conversation, agent=name, is_subagent=True)


def _visible_from(messages: Sequence[ModelMessage]) -> int:
    """Where the model's view begins: a provider that compacted the history ignores what is before its summary."""
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if isinstance(message, ModelResponse) and any(isinstance(part, CompactionPart) for part in message.parts):
            return at
    return 0


def _finished(messages: list[ModelMessage], output: object, output_tools: set[str]) -> list[ModelMessage]:
    """The messages with the answer at the end. A structured answer is a call of an output tool, not of a real one."""
    if not messages or not isinstance(messages[-1], ModelRequest):
        return messages
    kept = [_without(message, output_tools) for message in messages]
    return [*(message for message in kept if message.parts), ModelResponse(parts=[TextPart(_text_of(output))])]


def _without(message: ModelMessage, tools: set[str]) -> ModelMessage:
    kinds = (ToolReturnPart, ToolCallPart)
    parts = [one for one in message.parts if not (isinstance(one, kinds) and one.tool_name in tools)]
    changed: ModelMessage = message if len(parts) == len(message.parts) else replace(cast(Any, message), parts=parts)
    return changed


def _text_of(output: object) -> str:
    if isinstance(output, str):
        return output
    try:
        return tool_return_ta.dump_json(output).decode()
    except ValueError:
        logger.warning("the answer of a run cannot be written as JSON, and is recorded as Python shows it")
        return str(output)


# The message format.

_CHAT = OpenAIChat()
_TYPED = frozenset(["text-content"])
# Parts of a request by which the program or the framework speaks. Any other may quote somebody.
_OF_THE_PROGRAM = frozenset(
    "system-prompt retry-prompt retry-feedback instruction instruction-delta instruction-baseline "
    "tool-availability-delta capability-load-delta model-settings-delta".split()
)
_OF_THE_MODEL = frozenset(["text", "speech", "thinking", "tool-call"])


class PydanticAIMessages:
    """Lists of `ModelRequest` and `ModelResponse`. A request may have tools' results and a user's prompt together."""

    name = _DIALECT
    alternates = False

    def recognises(self, message: object) -> bool | None:
        return text_field(message, "kind") in ("request", "response") and reading.field(message, "parts") is not None

    def read(self, message: object) -> Element | None:
        kind, parts = text_field(message, "kind"), reading.list_field(message, "parts")
        return _read_request(parts) if kind == "request" else _read_response(parts) if kind == "response" else None

    def make_message(self, role: str, text: str) -> object:
        if role == "assistant":
            return ModelResponse(parts=[TextPart(text)])
        return ModelRequest(parts=[UserPromptPart(text)])

    def merged(self, message: object, text: str) -> object | None:
        """Pydantic AI joins requests that follow each other when it sends them, so none needs to be extended."""
        return None

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        return _CHAT.tool(definition)


def _read_request(parts: Sequence[object]) -> Element:
    answers: list[str] = []
    results: list[Utterance] = []
    program: list[Utterance] = []
    prompts: list[object] = []
    quotes = False
    for part in parts:
        kind = text_field(part, "part_kind")
        if kind in ("user-prompt", "speech"):
            prompts.append(part)
        elif kind == "tool-return" or (kind == "retry-prompt" and text_field(part, "tool_name")):
            answers.append(text_field(part, "tool_call_id") or "")
            results.append(Utterance("tool", _result(part)))
        else:
            program.append(Utterance("system", text_field(part, "content") or ""))
            quotes = quotes or kind not in _OF_THE_PROGRAM
    said = (*results, *(() if results else program))
    before = Element(said, answers=tuple(answers), outside=quotes)
    if prompts:
        # A tool may add content to its result, and Pydantic AI sends it as a prompt: next to results, nobody typed it.
        typed = () if results else _TYPED
        return read_user([one for part in prompts for one in _contents(part)], typed, before=before)
    return before if said else Element((Utterance("system", ""),), outside=quotes)


def _contents(part: object) -> list[object]:
    """The pieces of a prompt, each with its type."""
    whole = text_field(part, "content")
    contents = [whole] if whole is not None else reading.list_field(part, "content")
    read: list[object] = []
    for one in contents:
        if isinstance(one, str):
            read.append({"type": "text-content", "text": one})
        elif (kind := text_field(one, "kind")) != "cache-point":
            read.append({"type": kind or "", "text": text_field(one, "content")})
    return read


def _result(part: object) -> str:
    content = text_field(part, "content")
    if content is not None or not isinstance(part, ToolReturnPart):
        return content if content is not None else reading.json_field(part, "content")
    try:
        return part.model_response_str(wrap_if_error=False)
    except Exception:  # the boundary: a tool's result may be any object, and reading never raises
        logger.exception("the result of %s could not be read", part.tool_name)
        return ""


def _read_response(parts: Sequence[object]) -> Element:
    kinds = [text_field(part, "part_kind") or "" for part in parts]
    calls = [part for part, kind in zip(parts, kinds, strict=True) if kind == "tool-call"]
    text = join_parts(
        text_field(part, "content") if kind in ("text", "speech") else None
        for part, kind in zip(parts, kinds, strict=True)
    )
    cites = any(reading.field(part, "citations") for part in parts)
    others = set(kinds) - _OF_THE_MODEL
    return Element(
        () if not text and (calls or others) else (Utterance("assistant", text),),
        calls=tuple(text_field(call, "tool_call_id") or "" for call in calls),
        outside=bool(others) or cites,
    )


register_dialect(PydanticAIMessages())
