"""Loops over the providers' own clients and LangChain: those of docs/providers.md as a reader would paste them, and
rewritten for the synchronous clients."""

import json
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from provider_wires import AnthropicWire, ChatWire, GeminiWire, Json, ResponsesWire, Wire

from test_docs import ROOT, fences_of

with warnings.catch_warnings():
    # Their own sources warn when they are compiled for the first time.
    warnings.simplefilter("ignore")
    import anthropic
    import openai
    from google import genai
    from google.genai import types as types
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
    from langchain_core.outputs import ChatGeneration, ChatResult

NAMES = ("openai", "responses", "anthropic", "gemini", "langchain")
TOOL = "look_up"
PARAMETERS = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
_WIRES: dict[str, Wire] = {
    "openai": ChatWire(),
    "responses": ResponsesWire(),
    "anthropic": AnthropicWire(),
    "gemini": GeminiWire(),
    "langchain": ChatWire(),
}


@dataclass(frozen=True)
class Loop:
    """`ask(client, conversation, messages, tools, run_tool)` plays one turn and gives the answer."""

    name: str
    wire: Wire
    ask: Callable[..., Any]

    @property
    def tools(self) -> list[Json]:
        return self.wire.tools(TOOL, PARAMETERS)


async def ask_kept(client: Any, conversation: Any, text: str, tools: Any, run_tool: Any, previous: str | None) -> Any:
    """The provider keeps the history, and is sent what is new; gives its last response."""
    user = {"role": "user", "content": text}
    items: list[Any] = [user]
    async with conversation.turn(items) as turn:
        while True:
            await turn.inject(items)
            reply = await client.responses.create(
                model="gpt-5", input=items, tools=tools, previous_response_id=previous or openai.omit
            )
            calls = [item for item in reply.output if item.type == "function_call"]
            if not calls:
                turn.complete([user, *reply.output])
                return reply
            previous, items = reply.id, []
            for call in calls:
                result = await run_tool(call.name, call.arguments)
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


def unchanged(source: str) -> str:
    return source


def with_sync_client(source: str) -> str:
    """Async code that calls the synchronous client, and blocks its event loop with it."""
    sync = source.replace("await client.", "client.").replace("client.aio.", "client.")
    return sync.replace(".ainvoke(", ".invoke(")


def never_yielding(source: str) -> str:
    """The same, and no other line gives the event loop a chance either."""
    return with_sync_client(source).replace("await turn.inject(", "turn.inject_now(")


def blocking(source: str) -> str:
    """No event loop at all."""
    return with_sync_client(source).replace("async ", "").replace("await ", "")


def get_loop(name: str, rewritten: Callable[[str], str] = unchanged) -> Loop:
    namespace: dict[str, Any] = {}
    line, source = _source(name)
    # Leading line breaks make a traceback name the page's own line.
    exec(compile("\n" * (line - 1) + rewritten(source), f"{name}'s loop", "exec"), namespace)
    return Loop(name, _WIRES[name], namespace[f"ask_{name}"])


def _source(name: str) -> tuple[int, str]:
    page = fences_of((ROOT / "docs" / "providers.md").read_text(encoding="utf-8"))
    (fence,) = [fence for fence in page if fence.body.startswith(f"async def ask_{name}(")]
    return fence.line, fence.body


class LangChainModel(BaseChatModel):
    """A chat model for LangChain, over OpenAI's own client, as integration packages have it."""

    origin: str

    @property
    def _llm_type(self) -> str:
        return "openai-over-loopback"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self.bind(tools=tools, **options)

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
        with openai.OpenAI(**self._settings) as client:
            return _result(client.chat.completions.create(**_request(messages), **options))

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> Any:
        async with openai.AsyncOpenAI(**self._settings) as client:
            return _result(await client.chat.completions.create(**_request(messages), **options))

    @property
    def _settings(self) -> Any:
        return {"api_key": "k", "base_url": f"{self.origin}/v1", "max_retries": 0}


def _request(messages: list[BaseMessage]) -> Any:
    return {"model": "gpt-5", "messages": convert_to_openai_messages(messages)}


def _result(reply: Any) -> ChatResult:
    message = reply.choices[0].message
    calls: Any = [
        {"id": call.id, "name": call.function.name, "args": json.loads(call.function.arguments)}
        for call in message.tool_calls or ()
    ]
    return ChatResult(generations=[ChatGeneration(message=AIMessage(message.content or "", tool_calls=calls))])


@asynccontextmanager
async def connected(name: str, origin: str) -> AsyncIterator[Any]:
    """The provider's client for async code."""
    if name == "gemini":
        client = genai.Client(api_key="k", http_options={"base_url": origin})
        try:
            yield client
        finally:
            await client.aio.aclose()
            client.close()
    elif name == "langchain":
        yield LangChainModel(origin=origin)
    elif name == "anthropic":
        async with anthropic.AsyncAnthropic(api_key="k", base_url=origin, max_retries=0) as talking:
            yield talking
    else:
        async with openai.AsyncOpenAI(api_key="k", base_url=f"{origin}/v1", max_retries=0) as chatting:
            yield chatting


@contextmanager
def connected_sync(name: str, origin: str) -> Iterator[Any]:
    """The provider's client that blocks."""
    if name == "gemini":
        with genai.Client(api_key="k", http_options={"base_url": origin}) as generating:
            yield generating
    elif name == "langchain":
        yield LangChainModel(origin=origin)
    elif name == "anthropic":
        with anthropic.Anthropic(api_key="k", base_url=origin, max_retries=0) as talking:
            yield talking
    else:
        with openai.OpenAI(api_key="k", base_url=f"{origin}/v1", max_retries=0) as chatting:
            yield chatting


def look_up(name: str, arguments: Any) -> str:
    """The tool. OpenAI gives it the text of a JSON object, the others the object."""
    assert name == TOOL
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    return f"The shelf has nothing about {given['what']}."


async def run_tool(name: str, arguments: Any) -> str:
    return look_up(name, arguments)
