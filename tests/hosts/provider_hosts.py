"""Hosts with a raw loop over a provider's client: the README's own, the clients that they are given, and a memory whose
recall a test can hold back."""

import json
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provider_server import ProviderServer
from provider_wires import AnthropicWire, ChatWire, GeminiWire, Json, ResponsesWire, Wire

import afterturn
from afterturn.base.types import Filter, Kind
from afterturn.testing.hashing import HashingEmbedder
from test_docs import ROOT, fences_of

with warnings.catch_warnings():
    # Their own sources warn when they are compiled for the first time.
    warnings.simplefilter("ignore")
    import anthropic
    import openai
    from google import genai

HELD_MAX = 30.0
TOOL = "look_up"
PARAMETERS = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
TAG = "<afterturn-memory>"


async def ask_responses(client: Any, conversation: Any, items: Any, tools: Any, run_tool: Any) -> str:
    """The README's loop in the Responses format."""
    async with conversation.turn(items) as turn:
        while True:
            await turn.inject(items)
            reply = await client.responses.create(model="gpt-5", input=items, tools=tools)
            items.extend(reply.output)
            calls = [item for item in reply.output if item.type == "function_call"]
            if not calls:
                return str(reply.output_text)
            for call in calls:
                result = await run_tool(call.name, call.arguments)
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


def readme_functions() -> dict[str, Any]:
    """What the README's section on providers defines, as a reader would paste it."""
    namespace: dict[str, Any] = {}
    for fence in fences_of((ROOT / "README.md").read_text(encoding="utf-8")):
        if fence.language == "python" and fence.body.startswith("async def ask_"):
            exec(compile("\n" * (fence.line - 1) + fence.body, "README.md", "exec"), namespace)
    return namespace


@asynccontextmanager
async def openai_client(origin: str) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(api_key="k", base_url=f"{origin}/v1", max_retries=0) as client:
        yield client


@asynccontextmanager
async def anthropic_client(origin: str) -> AsyncIterator[Any]:
    async with anthropic.AsyncAnthropic(api_key="k", base_url=origin, max_retries=0) as client:
        yield client


@asynccontextmanager
async def gemini_client(origin: str) -> AsyncIterator[Any]:
    client = genai.Client(api_key="k", http_options={"base_url": origin})
    try:
        yield client
    finally:
        await client.aio.aclose()
        client.close()


@dataclass(frozen=True)
class Loop:
    """`ask(client, conversation, messages, tools, run_tool)` plays one turn and gives the answer."""

    wire: Wire
    ask: Callable[..., Awaitable[str]]
    client: Callable[[str], Any]

    @property
    def tools(self) -> list[Json]:
        return self.wire.tools(TOOL, PARAMETERS)


def loops() -> dict[str, Loop]:
    readme = readme_functions()
    return {
        "openai": Loop(ChatWire(), readme["ask_openai"], openai_client),
        "responses": Loop(ResponsesWire(), ask_responses, openai_client),
        "anthropic": Loop(AnthropicWire(), readme["ask_anthropic"], anthropic_client),
        "gemini": Loop(GeminiWire(), readme["ask_gemini"], gemini_client),
    }


def look_up(name: str, arguments: Any) -> str:
    """The tool: what a model is told. OpenAI's arguments are the text of a JSON object."""
    assert name == TOOL
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    return f"The shelf has nothing about {given['what']}."


async def run_tool(name: str, arguments: Any) -> str:
    return look_up(name, arguments)


class HeldEmbedder(HashingEmbedder):
    """Answers at once, but for the time when a test holds it, and with it every recall."""

    def __init__(self) -> None:
        super().__init__()
        self._free = threading.Event()
        self._free.set()

    def hold(self) -> None:
        self._free.clear()

    def let_go(self) -> None:
        self._free.set()

    def embed(self, texts: Sequence[str]) -> Any:
        assert self._free.wait(HELD_MAX)
        return super().embed(texts)


class Watched:
    """A conversation whose turns a test can look at, though a loop keeps them to itself."""

    def __init__(self, conversation: Any) -> None:
        self._conversation = conversation
        self.settles_first = True
        self.turns: list[Any] = []

    def turn(self, messages: Any) -> Any:
        """With `settles_first` the recall is there before the loop goes on, however busy the machine is."""
        self.turns.append(self._conversation.turn(messages))
        if self.settles_first:
            self.wait_settled()
        return self.turns[-1]

    def wait_settled(self) -> None:
        """Blocks this thread until memory has whatever it will have for what was said last."""
        assert self.turns[-1]._state.current.fast.settled.wait_blocking(within=HELD_MAX) is not None


def settle_before_first_reply(server: ProviderServer, embedder: HeldEmbedder, conversation: Watched) -> None:
    """The recall comes when the model has the first prompt already, and before it answers."""

    def once() -> None:
        server.before_reply = lambda: None
        embedder.let_go()
        conversation.wait_settled()
        conversation.settles_first = True

    conversation.settles_first = False
    embedder.hold()
    server.before_reply = once


async def records(memory: afterturn.Memory, conversation: str) -> list[tuple[str | None, str]]:
    """Who said what, in order."""
    entries = await memory.space("user:ada").list(filter=Filter(kind=Kind.RECORD), limit=100)
    said = sorted((e for e in entries if e.conversation == conversation), key=lambda entry: entry.position or 0)
    return [(entry.speaker, entry.text) for entry in said]


def open_memory(folder: Path, embedder: HeldEmbedder, **settings: object) -> afterturn.Memory:
    return afterturn.open(folder / "memory.db", settings, parts=afterturn.Parts(embedder=embedder))
