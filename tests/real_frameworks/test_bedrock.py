"""The loop of docs/providers.md for Amazon Bedrock with boto3, and our types of its messages against botocore's model.

It runs in the environment of Strands Agents, which has boto3."""

import functools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.validate import ParamValidator
from framework_world import ANSWER, BLOCK, FACT, LOOK_UP, QUESTION, WITHIN, World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typing_extensions import get_type_hints

import afterturn
from afterturn.conversation.delivery import insert_block
from afterturn.conversation.scope import Placement
from afterturn.dialects import ToolDefinition, get_dialect
from afterturn.dialects.history import find_point
from tests.dialects import converse_types
from tests.dialects.histories import histories, unpaired
from tests.test_docs import ROOT, fences_of

pytestmark = pytest.mark.frameworks
PARAMETERS = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOLS = [get_dialect("bedrock").tool(ToolDefinition(LOOK_UP, "Looks something up.", PARAMETERS))]
CALLS = [{"toolUse": {"toolUseId": f"call-{at}", "name": LOOK_UP, "input": {"query": "cats"}}} for at in range(2)]
STEPS = 3


class ConverseServer:
    """Answers with two calls three times, then with the answer. Keeps the messages of every request."""

    def __init__(self) -> None:
        self.prompts: list[list[dict[str, Any]]] = []
        self.refusals: list[str] = []

    @contextmanager
    def serving(self) -> Iterator[str]:
        http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}"
        finally:
            http.shutdown()
            thread.join()
            http.server_close()

    def answer(self, path: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        messages = request["messages"]
        self.prompts.append(messages)
        self.refusals += [] if path.endswith("/converse") else [f"nothing is served at {path}"]
        self.refusals += [] if alternate(messages) else ["roles must alternate"]
        self.refusals += unpaired("bedrock", messages)
        if self.refusals:
            return 400, {"message": self.refusals[0]}
        is_over = len(self.prompts) > STEPS
        reasoning = {"reasoningContent": {"reasoningText": {"text": "They want to know.", "signature": "s"}}}
        content = [reasoning, *([{"text": ANSWER}] if is_over else [{"text": "Let me look."}, *CALLS])]
        return 200, {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": "end_turn" if is_over else "tool_use",
            "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
            "metrics": {"latencyMs": 1},
        }


def _handler(server: ConverseServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, document = server.answer(self.path, request)
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            """Says nothing."""

    return Handler


def alternate(messages: list[dict[str, Any]]) -> bool:
    return all(before["role"] != after["role"] for before, after in pairwise(messages))


def connect(origin: str) -> Any:
    return boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=origin,
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"max_attempts": 0}),
    )


@pytest.fixture
def server() -> ConverseServer:
    return ConverseServer()


@pytest.fixture
def client(server: ConverseServer) -> Iterator[Any]:
    with server.serving() as origin:
        connected = connect(origin)
        yield connected
        connected.close()


def get_loop(rewritten: Callable[[str], str] = str) -> Any:
    """As a reader would paste it."""
    page = fences_of((ROOT / "docs" / "providers.md").read_text(encoding="utf-8"))
    (source,) = [fence.body for fence in page if "async def ask_bedrock(" in fence.body]
    namespace: dict[str, Any] = {}
    exec(rewritten(source), namespace)
    return namespace["ask_bedrock"]


def blocking(source: str) -> str:
    """As the page says."""
    called = source.replace("await asyncio.to_thread(client.converse, **request)", "client.converse(**request)")
    return called.replace("async ", "").replace("await ", "")


def blocks_in(prompt: list[dict[str, Any]]) -> list[int]:
    return [at for at, message in enumerate(prompt) if BLOCK in json.dumps(message)]


def assert_append_only(prompts: list[list[dict[str, Any]]]) -> None:
    for earlier, later in pairwise(prompts):
        assert later[: len(earlier)] == earlier


SAID = [("user", QUESTION), *[("assistant", "Let me look."), *[("tool", "nothing")] * 2] * STEPS, ("assistant", ANSWER)]


async def test_the_pages_loop_is_reminded_at_the_users_message(server: ConverseServer, client: Any, tmp_path: Path):
    """H1, H2, H3, C1, C5: once, in the user's message, from the first request on; roles alternate in all of them."""

    async def run_tool(name: str, arguments: Any) -> str:
        assert (name, arguments) == (LOOK_UP, {"query": "cats"})
        return "nothing"

    async with afterturn.open(tmp_path / "memory.db", {"grace": WITHIN}) as memory:
        await memory.space("user:ada").add(FACT)
        await memory.ready()
        messages: list[Any] = [{"role": "user", "content": [{"text": QUESTION}]}]
        conversation = memory.conversation("c", user="ada")
        assert await get_loop()(client, conversation, messages, TOOLS, run_tool) == ANSWER
        assert await memory.drain(within=WITHIN)
        records = await memory.space("user:ada").list(filter=afterturn.Filter(kind=afterturn.Kind.RECORD), limit=100)
    assert server.refusals == []
    assert [blocks_in(prompt) for prompt in server.prompts] == [[0]] * (STEPS + 1)
    assert FACT in server.prompts[0][0]["content"][1]["text"]
    assert_append_only(server.prompts)
    ordered = sorted(records, key=lambda record: record.position or 0)
    assert [(record.speaker, record.text) for record in ordered] == SAID


def test_a_slow_recall_comes_with_the_first_results(
    server: ConverseServer, client: Any, open_world: Callable[..., World]
):
    """H1, H3: in the message with the tool results, after them, and without an event loop."""
    world = open_world(grace=0.2)
    world.knows()
    world.store.hold()
    results = iter([world.release_recall])

    def run_tool(name: str, arguments: Any) -> str:
        next(results, str)()
        return "nothing"

    messages: list[Any] = [{"role": "user", "content": [{"text": QUESTION}]}]
    conversation = world.memory.conversation("c", user="ada")
    assert get_loop(blocking)(client, conversation, messages, TOOLS, run_tool) == ANSWER
    assert world.memory.drain(within=WITHIN)
    assert server.refusals == []
    assert [blocks_in(prompt) for prompt in server.prompts] == [[], *[[2]] * STEPS]
    assert [next(iter(block)) for block in server.prompts[1][2]["content"]] == ["toolResult", "toolResult", "text"]
    assert_append_only(server.prompts)
    assert world.records() == SAID


def test_the_server_refuses_what_the_provider_refuses(server: ConverseServer, client: Any):
    """H1: two messages of one role, and a call without its result."""
    user = {"role": "user", "content": [{"text": "hi"}]}
    for messages in ([user, user], [user, {"role": "assistant", "content": CALLS}, user]):
        server.refusals.clear()
        with pytest.raises(client.exceptions.ClientError):
            client.converse(modelId="m", messages=messages)


@functools.cache
def _shape(name: str) -> Any:
    """From the model of the service, which is part of botocore. Nothing is connected."""
    return connect("http://127.0.0.1:9").meta.service_model.shape_for(name)


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (converse_types.ConverseMessage, "Message"),
        (converse_types.ContentBlock, "ContentBlock"),
        (converse_types.ToolUse, "ToolUseBlock"),
        (converse_types.ToolResult, "ToolResultBlock"),
        (converse_types.ToolResultPart, "ToolResultContentBlock"),
        (converse_types.Document, "DocumentBlock"),
        (converse_types.Source, "DocumentSource"),
        (converse_types.SearchResult, "SearchResultBlock"),
        (converse_types.GuardContent, "GuardrailConverseContentBlock"),
        (converse_types.GuardedText, "GuardrailConverseTextBlock"),
        (converse_types.CachePoint, "CachePointBlock"),
        (converse_types.Reasoning, "ReasoningContentBlock"),
        (converse_types.CitedContent, "CitationsContentBlock"),
        (converse_types.Citation, "Citation"),
    ],
)
def test_our_types_have_the_members_that_the_service_has(ours: Any, theirs: str):
    """H1, G2: a new kind of block must be given an origin."""
    assert set(get_type_hints(ours)) == set(_shape(theirs).members)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_botocore_takes_a_history_with_a_block_at_any_point(data: Any):
    """H1: by its own validation of a request."""
    dialect, request = get_dialect("bedrock"), _shape("ConverseRequest")
    messages: list[Mapping[str, Any]] = data.draw(histories("bedrock"))
    for at in range(1, len(messages) + 1):
        if find_point(dialect, messages[:at]) is not None:
            changed = list(messages)
            insert_block(dialect, changed, BLOCK, Placement.APPEND, at=at - 1)
            asked = {"modelId": "m", "messages": changed, "toolConfig": {"tools": TOOLS}}
            assert not ParamValidator().validate(asked, request).has_errors()
