"""The chat client against a real server on loopback: its requests, how it reads replies, and when it gives up."""

import asyncio
import gc
import json
import logging
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest
from chat_server import ChatServer, Scripted, answer, failing

from afterturn.errors import (
    AfterturnError,
    ConfigError,
    InvalidInput,
    ModelAnswerInvalid,
    ModelError,
    ModelRefused,
    ModelUnavailable,
)
from afterturn.models.chat import ANSWER_BYTES_MAX, OpenAICompatible
from afterturn.ports import ChatModel
from afterturn.runtime.loop_thread import LoopThread

Serve = Callable[..., ChatServer]
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
HELLO = [{"role": "user", "content": "Hello"}]
KEY = "sk-very-secret-0123456789"
SCHEMA = {"type": "object", "properties": {"ids": {"type": "array"}}}


async def test_a_message_comes_back_from_a_base_url(serve: Serve) -> None:
    server = serve(answer("Hello, Ada"))
    model: ChatModel = OpenAICompatible(server.url, "small", key=KEY)
    assert await model.complete(HELLO) == {"role": "assistant", "content": "Hello, Ada", "usage": USAGE}
    (request,) = server.received
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {"model": "small", "messages": HELLO, "stream": False}


@pytest.mark.parametrize(
    "suffix, path",
    [
        ("", "/chat/completions"),
        ("/", "/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/deep/proxy/v1", "/deep/proxy/v1/chat/completions"),
        ("/v1?api-version=7", "/v1/chat/completions?api-version=7"),
    ],
)
async def test_any_base_url_leads_to_its_completions(serve: Serve, suffix: str, path: str) -> None:
    server = serve(answer())
    await OpenAICompatible(server.origin + suffix, "small").complete(HELLO)
    assert server.received[0].path == path


async def test_no_key_means_no_header(serve: Serve) -> None:
    server = serve(answer())
    await OpenAICompatible(server.url, "small", key=" ").complete(HELLO)
    assert "authorization" not in server.received[0].headers


async def test_a_key_with_the_line_break_of_its_file_is_taken(serve: Serve) -> None:
    server = serve(answer())
    await OpenAICompatible(server.url, "small", key=f"{KEY}\n").complete(HELLO)
    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"


async def test_tools_go_out_and_their_calls_come_back(serve: Serve) -> None:
    calls = [{"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{}"}}]
    server = serve(answer(None, tool_calls=calls))
    tool = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
    reply = await OpenAICompatible(server.url, "small").complete(HELLO, [tool])
    assert reply == {"role": "assistant", "content": None, "tool_calls": calls, "usage": USAGE}
    assert server.received[0].body["tools"] == [tool]


async def test_text_in_all_scripts_and_half_a_pair_go_out(serve: Serve) -> None:
    server = serve(answer("はい ✓"))
    reply = await OpenAICompatible(server.url, "small").complete([{"role": "user", "content": "猫 \ud83d"}])
    assert (server.received[0].body["messages"][0]["content"], reply["content"]) == ("猫 ?", "はい ✓")


async def test_messages_that_are_not_json_are_the_callers_fault(serve: Serve) -> None:
    server = serve(answer())
    with pytest.raises(InvalidInput, match="cannot be written as JSON"):
        await OpenAICompatible(server.url, "small").complete([{"role": "user", "content": object()}])
    assert server.received == []


async def test_a_schema_is_asked_for_in_the_servers_form(serve: Serve) -> None:
    """V12: where a server can hold a model to a form, it is told to."""
    server = serve(answer('{"ids": []}'))
    await OpenAICompatible(server.url, "small").complete(HELLO, schema=SCHEMA)
    form = server.received[0].body["response_format"]
    assert (form["type"], form["json_schema"]["schema"]) == ("json_schema", SCHEMA)


@pytest.mark.parametrize("status", [400, 422])
async def test_a_server_that_knows_no_schema_is_asked_without_from_then_on(serve: Serve, status: int) -> None:
    """V12: a server without structured output still answers."""
    server = serve(failing(status, "response_format is not supported"), answer("one"), answer("two"))
    model = OpenAICompatible(server.url, "small")
    answers = [(await model.complete(HELLO, schema=SCHEMA))["content"] for _ in range(2)]
    assert answers == ["one", "two"]
    assert ["response_format" in request.body for request in server.received] == [True, False, False]


async def test_a_request_that_is_refused_without_a_schema_too_is_refused(serve: Serve) -> None:
    server = serve(failing(400, "too many tokens"))
    with pytest.raises(ModelRefused, match="too many tokens") as caught:
        await OpenAICompatible(server.url, "small").complete(HELLO, schema=SCHEMA)
    assert (caught.value.status, len(server.received)) == (400, 2)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_a_server_in_trouble_is_asked_again(serve: Serve, status: int) -> None:
    server = serve(failing(status, "later", retry_after="0"), answer("here"))
    assert (await OpenAICompatible(server.url, "small").complete(HELLO))["content"] == "here"
    assert len(server.received) == 2


async def test_a_connection_that_breaks_off_is_tried_again(serve: Serve) -> None:
    server = serve(Scripted(drops=True), answer("here"))
    assert (await OpenAICompatible(server.url, "small").complete(HELLO))["content"] == "here"


@pytest.mark.parametrize("status, reason", [(429, "overloaded"), (500, "server_error")])
async def test_a_server_that_stays_in_trouble_is_given_up(serve: Serve, status: int, reason: str) -> None:
    server = serve(failing(status, "no room", retry_after="0"))
    with pytest.raises(ModelUnavailable, match=f"status {status}: 'no room'") as caught:
        await OpenAICompatible(server.url, "small", retries=2).complete(HELLO)
    assert (caught.value.reason, len(server.received)) == (reason, 3)


async def test_nobody_waits_for_a_pause_that_outlasts_the_call(serve: Serve) -> None:
    server = serve(failing(429, "slow down", retry_after="3600"))
    with pytest.raises(ModelUnavailable, match="a pause of 3600 seconds") as caught:
        await OpenAICompatible(server.url, "small", timeout=20.0).complete(HELLO)
    assert (caught.value.reason, caught.value.retry_after, len(server.received)) == ("overloaded", 3600.0, 1)


@pytest.mark.parametrize(
    "status, reason, remedy",
    [
        (401, "key_refused", "Set model_key to a valid key"),
        (403, "key_refused", "may use this model"),
        (404, "refused", "which for most servers is /v1"),
        (307, "redirected", "Set model_url to the address it redirects to"),
        (418, "refused", "Check model_url and model"),
    ],
)
async def test_a_refusal_is_final_and_says_what_to_do(serve: Serve, status: int, reason: str, remedy: str) -> None:
    server = serve(failing(status, "not like this", location="http://127.0.0.1:9/"))
    with pytest.raises(ModelRefused, match=remedy) as caught:
        await OpenAICompatible(server.url, "small").complete(HELLO)
    assert (caught.value.reason, caught.value.status, len(server.received)) == (reason, status, 1)
    assert "not like this" in str(caught.value)


@pytest.mark.parametrize("begins", [False, True], ids=["says nothing", "stops within its answer"])
async def test_a_server_that_hangs_is_left_when_the_time_is_up(serve: Serve, begins: bool) -> None:
    """R7: the net under a selection."""
    server = serve(Scripted(body=b'{"choices"', held=True, begins=begins))
    model = OpenAICompatible(server.url, "small", timeout=0.3)
    # So that the time is spent on the call alone, and not on loading the client.
    model._client._transport = await model._client.load_transport()
    with pytest.raises(ModelUnavailable, match=r"did not answer within 0.3 seconds") as caught:
        await model.complete(HELLO)
    assert caught.value.reason == "timeout"
    assert await asyncio.to_thread(server.left.wait, 10)


async def test_the_time_of_a_call_bounds_its_retries_too(serve: Serve) -> None:
    server = serve(failing(503, "later", retry_after="0"))
    with pytest.raises(ModelUnavailable) as caught:
        await OpenAICompatible(server.url, "small", timeout=0.5, retries=1_000_000).complete(HELLO)
    assert caught.value.reason in ("timeout", "server_error")


async def test_a_cancelled_call_closes_its_connection(serve: Serve) -> None:
    """R4: giving up is told to the server, and raises nothing but the cancellation."""
    server = serve(Scripted(held=True))
    call = asyncio.ensure_future(OpenAICompatible(server.url, "small").complete(HELLO))
    assert await asyncio.to_thread(server.reached.wait, 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(server.left.wait, 10)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Welcome</html>",
        b"{}",
        b"[]",
        b"null",
        b'{"choices": []}',
        b'{"choices": [{"text": "old"}]}',
        b'{"choices": {"0": 1}}',
        b'{"choices": [{"message": "text"}]}',
        b'{"error": {"message": "upstream failed"}}',
        b'{"choices": [{"message": {"content": "unfinished',
        b"[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
async def test_a_reply_that_is_not_a_completion_is_an_error(serve: Serve, body: bytes) -> None:
    """V12: malformed answers are expected, and never taken for one."""
    server = serve(Scripted(body=body))
    with pytest.raises(ModelAnswerInvalid, match="did not send a chat completion") as caught:
        await OpenAICompatible(server.url, "small").complete(HELLO)
    assert caught.value.reason == "no_completion"
    assert len(str(caught.value)) < 500


async def test_a_reply_that_is_too_long_is_not_read_to_its_end(serve: Serve) -> None:
    server = serve(Scripted(body=b" " * (ANSWER_BYTES_MAX + 1), held=True, begins=True))
    with pytest.raises(ModelAnswerInvalid, match="more than 1048576 bytes") as caught:
        await OpenAICompatible(server.url, "small").complete(HELLO)
    assert caught.value.reason == "too_long"
    assert await asyncio.to_thread(server.left.wait, 10)


async def test_a_long_error_is_not_read_to_its_end(serve: Serve) -> None:
    server = serve(Scripted(status=404, body=b"no such thing " * 100_000, held=True, begins=True))
    with pytest.raises(ModelRefused, match="no such thing") as caught:
        await OpenAICompatible(server.url, "small").complete(HELLO)
    assert len(str(caught.value)) < 500
    assert await asyncio.to_thread(server.left.wait, 10)


async def test_nothing_compressed_is_taken(serve: Serve) -> None:
    """A few bytes could become gigabytes."""
    server = serve(Scripted(body=b"\x1f\x8b", headers={"content-encoding": "gzip"}))
    with pytest.raises(ModelAnswerInvalid, match="gzip"):
        await OpenAICompatible(server.url, "small").complete(HELLO)
    assert server.received[0].headers["accept-encoding"] == "identity"


async def test_nobody_listening_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(ModelUnavailable, match=f"{url} cannot be reached: .+ Start it, or check") as caught:
            await OpenAICompatible(url, "small", retries=1).complete(HELLO)
    assert caught.value.reason == "unreachable"


async def test_a_host_without_an_address_is_unreachable() -> None:
    with pytest.raises(ModelUnavailable, match=r"nowhere\.invalid/v1 cannot be reached"):
        await OpenAICompatible("http://nowhere.invalid/v1", "small", retries=0).complete(HELLO)


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8080/v1", "ftp://host/v1", "http://", "http://host:port/v1", "http://[::1/v1", "http://a b/v1"],
)
def test_a_url_that_is_none_says_how_to_write_one(url: str) -> None:
    with pytest.raises(ConfigError, match=r"Use the form http://localhost:8080/v1"):
        OpenAICompatible(url, "small")


@pytest.mark.parametrize("host", ["host", "[host", "", "host:port"])
def test_a_password_in_a_url_is_refused_and_not_shown(host: str) -> None:
    with pytest.raises(ConfigError, match="Set model_key instead") as caught:
        OpenAICompatible(f"http://ada:{KEY}@{host}/v1", "small")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("key", [f"{KEY}\nX-Other: 1", f"{KEY}\x00", f"{KEY}é"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigError, match="model_key") as caught:
        OpenAICompatible("http://host/v1", "small", key=key)
    assert KEY not in str(caught.value)


async def test_the_key_is_in_no_log_error_or_representation(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A server that repeats the key is quoted without it."""
    caplog.set_level(logging.DEBUG)
    server = serve(failing(401, f"Incorrect key: {KEY}."), failing(500, KEY, retry_after="0"))
    model = OpenAICompatible(server.url, "small", key=KEY, retries=1)
    failures = [await _failure(model) for _ in range(2)]
    assert "Incorrect key: ***." in str(failures[0])
    told = [caplog.text, repr(model), str(model), *map(str, failures), *map(repr, failures)]
    assert [text for text in told if KEY in text] == []
    assert "POST" in caplog.text


async def test_a_closed_model_is_not_called(serve: Serve) -> None:
    server = serve(answer())
    async with OpenAICompatible(server.url, "small") as model:
        await model.complete(HELLO)
    await model.aclose()
    with pytest.raises(ModelUnavailable, match="is closed") as caught:
        await model.complete(HELLO)
    assert (caught.value.reason, len(server.received)) == ("closed", 1)


def test_one_model_serves_several_loops_one_after_the_other_and_at_once(serve: Serve) -> None:
    """No connection outlives its call, so nothing is bound to a loop that may be gone."""
    server = serve(answer("here"))
    model = OpenAICompatible(server.url, "small")
    first = [asyncio.run(model.complete(HELLO))["content"] for _ in range(2)]
    private = LoopThread("test")
    private.start()
    future = private.submit(model.complete(HELLO))
    beside = asyncio.run(model.complete(HELLO))["content"]
    assert [*first, beside, future.result(10)["content"]] == ["here"] * 4
    private.end(_nothing)
    assert private.wait_ended(within=10)
    gc.collect()


def test_without_its_package_it_says_what_to_install() -> None:
    program = """
import asyncio, sys
sys.modules["httpx2"] = None
from afterturn.errors import ModelUnavailable
from afterturn.models.chat import OpenAICompatible
try:
    asyncio.run(OpenAICompatible("http://127.0.0.1:9/v1", "small").complete([]))
except ModelUnavailable as error:
    print(error.reason, error)
"""
    assert "not_installed A model server needs a package" in (printed := _printed(program))
    assert "Run `pip install 'afterturn[models]'`." in printed


def test_importing_memory_loads_neither_models_nor_their_client() -> None:
    program = "import sys, afterturn; print([name for name in sys.modules if 'httpx' in name or '.models' in name])"
    assert _printed(program) == "[]\n"


def test_a_model_is_made_without_its_client() -> None:
    program = """
import sys
from afterturn.models.chat import OpenAICompatible
OpenAICompatible("http://127.0.0.1:9/v1", "small")
print([name for name in sys.modules if "httpx" in name or "anyio" in name])
"""
    assert _printed(program) == "[]\n"


def test_the_first_call_imports_its_client_away_from_the_loop(serve: Serve) -> None:
    """§2: what takes long is not done on memory's loop."""
    server = serve(answer())
    program = """
import asyncio, json, sys, threading
from afterturn.models.chat import OpenAICompatible

looked_for = []

class ImportLog:
    def find_spec(self, name, path=None, target=None):
        looked_for.append((name.partition(".")[0], threading.current_thread() is threading.main_thread()))

sys.meta_path.insert(0, ImportLog())
asyncio.run(OpenAICompatible(sys.argv[1], "small").complete([]))
print(json.dumps(looked_for))
"""
    looked_for = [tuple(found) for found in json.loads(_printed(program, server.url))]
    heavy = {"httpx2", "httpcore2", "anyio", "h11", "idna", "truststore"}
    assert ("httpx2", False) in looked_for
    assert [name for name, is_main in looked_for if is_main and name in heavy] == []


async def _failure(model: OpenAICompatible) -> AfterturnError:
    with pytest.raises(ModelError) as caught:
        await model.complete(HELLO)
    return caught.value


async def _nothing() -> None:
    return None


def _printed(program: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
