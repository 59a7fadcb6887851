"""The proxy behind the official Python clients of OpenAI and Anthropic, in front of a scripted model server."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from proxy_clients import CLIENTS, SYSTEM, ResponsesClient
from proxy_world import ASKED, LINE, SAID, Proxy

from afterturn.hosts.server.proxy_body import read_body
from lab.clients.model_server import Call, ModelRequest, ModelServer, Rule, Say, follow

STEPS = 10
LOOKS = tuple(Call("look_up", {"what": f"shelf {number}"}) for number in range(STEPS))
RULES = (
    Rule("chicken", (Say("Noted."),)),
    Rule("What food", (*LOOKS, Say("No chicken for Miso."))),
    Rule("compacted", (Say("Rice."),)),
)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(follow(RULES)) as server:
        yield server


def start(tmp_path: Path, model: ModelServer) -> Proxy:
    return Proxy(tmp_path, {"openai": f"{model.url}/v1", "anthropic": model.url})


@pytest.fixture
def proxy(tmp_path: Path, model: ModelServer) -> Iterator[Proxy]:
    with start(tmp_path, model) as server:
        yield server


def list_of(request: ModelRequest, field: str) -> bytes:
    """The bytes of a request up to the end of its last message."""
    body = read_body(request.raw, field)
    return body.text[: body.ends[-1]].encode()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_second_conversation_sees_what_the_first_one_said(proxy: Proxy, model: ModelServer, name: str, stream: bool):
    """H1, C1: the user's message is recalled for, the block is appended, and the whole exchange is recorded."""
    client = CLIENTS[name](proxy.url, proxy.headers("monday"))
    assert client.ask([{"role": "user", "content": SAID}], stream=stream).text == "Noted."
    proxy.wait_recorded(1)
    later = CLIENTS[name](proxy.url, proxy.headers("tuesday"))
    messages = [{"role": "user", "content": ASKED}]
    reply = later.ask(messages, stream=stream)
    asked = model.requests[1]
    assert LINE in asked.text
    assert [one.role for one in asked.parts if LINE in one.text] == ["user"]
    assert [one.text for one in asked.parts if one.role == "system"] == [SYSTEM]
    assert asked.body["tools"] == model.requests[0].body["tools"]
    while reply.calls:
        messages += [*reply.elements, *client.results(reply.calls)]
        reply = later.ask(messages, stream=stream)
    assert reply.text == "No chicken for Miso."
    proxy.wait_recorded(2)
    recorded = proxy.records()
    assert recorded[:3] == [SAID, "Noted.", ASKED]
    assert recorded[-1] == "No chicken for Miso."
    assert not any("afterturn-" in text for text in recorded)


@pytest.mark.parametrize("name", CLIENTS)
def test_each_request_of_a_tool_loop_begins_with_the_bytes_of_the_one_before(
    proxy: Proxy, model: ModelServer, name: str
):
    """H3, H6: the client sends its own list again, and the provider's prompt cache stays valid."""
    proxy.add(SAID)
    client = CLIENTS[name](proxy.url, proxy.headers("tuesday"))
    messages = [{"role": "user", "content": ASKED}]
    for _ in range(STEPS):
        reply = client.ask(messages, stream=True)
        messages += [*reply.elements, *client.results(reply.calls)]
    messages += client.ask(messages, stream=True).elements
    client.ask([*messages, {"role": "user", "content": "And which soup does Miso like?"}], stream=True)
    lists = [list_of(request, client.field) for request in model.requests]
    assert len(lists) == STEPS + 2
    assert all(request.text.count(LINE) == 1 for request in model.requests)
    for earlier, later in pairwise(lists):
        assert later.startswith(earlier)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_tool_loop_goes_on_after_a_restart_with_the_same_bytes(tmp_path: Path, model: ModelServer, name: str):
    """H6, C3: blocks of this and of earlier turns go back to their places, and the turn is recorded once, whole."""
    messages = [{"role": "user", "content": ASKED}]
    with start(tmp_path, model) as proxy:
        proxy.add(SAID)
        headers = proxy.headers("tuesday")
        client = CLIENTS[name](proxy.url, headers)
        while (reply := client.ask(messages, stream=False)).calls:
            messages += [*reply.elements, *client.results(reply.calls)]
        messages += [*reply.elements, {"role": "user", "content": "What food is Miso's brother allergic to?"}]
        proxy.wait_recorded(1)
        proxy.add("Miso's brother Tofu is allergic to salmon food")
        for _ in range(3):
            reply = client.ask(messages, stream=False)
            messages += [*reply.elements, *client.results(reply.calls)]
    with start(tmp_path, model) as proxy:
        client = CLIENTS[name](proxy.url, headers)
        while (reply := client.ask(messages, stream=False)).calls:
            messages += [*reply.elements, *client.results(reply.calls)]
        proxy.wait_recorded(1)
        assert proxy.records()[-1] == "No chicken for Miso."
    lists = [list_of(request, client.field) for request in model.requests]
    assert len(lists) == 2 * (STEPS + 1)
    assert model.requests[-1].count("salmon") == 1
    for earlier, later in pairwise(lists):
        assert later.startswith(earlier)


def test_parallel_conversations_do_not_mix(proxy: Proxy, model: ModelServer):
    """B1: each has its own block and its own records, while all of them are under way."""

    def talk(number: int) -> str:
        client = CLIENTS["chat"](proxy.url, proxy.headers(f"talk-{number}"))
        messages = [{"role": "user", "content": f"{ASKED} This is talk {number}."}]
        while (reply := client.ask(messages, stream=True)).calls:
            messages += [*reply.elements, *client.results(reply.calls)]
        return reply.text

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(talk, range(8))) == {"No chicken for Miso."}
    proxy.wait_recorded(8)
    recorded = proxy.records()
    for number in range(8):
        assert recorded.count(f"{ASKED} This is talk {number}.") == 1
    for request in model.requests:
        said = {part.text.rpartition("talk ")[2] for part in request.parts if part.text.startswith(ASKED)}
        assert len(said) == 1


@pytest.mark.parametrize("name", CLIENTS)
def test_without_a_conversation_it_only_recalls(proxy: Proxy, model: ModelServer, name: str):
    """B5, P2: clients also ask for titles and commit messages."""
    proxy.add(SAID)
    client = CLIENTS[name](proxy.url, proxy.headers())
    messages = [{"role": "user", "content": ASKED}]
    while (reply := client.ask(messages, stream=False)).calls:
        messages += [*reply.elements, *client.results(reply.calls)]
    proxy.events.wait("not_recorded")
    assert all(request.count(LINE) == 1 for request in model.requests)
    assert proxy.records() == []


def test_a_response_that_the_provider_keeps_is_continued(proxy: Proxy, model: ModelServer):
    """C1: with `previous_response_id` a request has only what is new, and its turn is recorded whole."""
    proxy.add(SAID)
    client = ResponsesClient(proxy.url, proxy.headers("kept"))
    client.ask("Hello chicken", stream=False)
    proxy.wait_recorded(1)
    reply = client.ask(ASKED, stream=True, previous_response_id=client.id)
    reply = client.ask(client.results(reply.calls), stream=True, previous_response_id=client.id)
    assert reply.text == "Understood."
    proxy.wait_recorded(2)
    recorded = proxy.records()
    assert recorded[:3] == ["Hello chicken", "Noted.", ASKED]
    assert recorded[-1] == "Understood."
    assert [request.count(LINE) for request in model.requests] == [0, 1, 0]


def test_the_chain_of_responses_names_the_conversation(proxy: Proxy, model: ModelServer):
    """Only the first request has no conversation yet."""
    client = ResponsesClient(proxy.url, proxy.headers())
    client.ask("Hello chicken", stream=False)
    for text in ("My chicken is called Berta.", "Berta the chicken is brown."):
        client.ask(text, stream=False, previous_response_id=client.id)
    proxy.wait_recorded(2)
    assert "Hello chicken" not in proxy.records()
    ended = [event.conversation for event in proxy.events.named("recorded")]
    assert len(set(ended)) == 1


def test_a_compaction_item_lets_memory_bring_its_block_again(proxy: Proxy, model: ModelServer):
    """H7: the model does not see what is before the item."""
    proxy.add(SAID)
    model.script = follow((), otherwise="Fine.")
    client = ResponsesClient(proxy.url, proxy.headers("long"))
    messages = [{"role": "user", "content": ASKED}]
    messages += client.ask(messages, stream=False).elements
    messages += [{"type": "compaction", "id": "cmp_1", "encrypted_content": "secret"}]
    client.ask([*messages, {"role": "user", "content": f"{ASKED} Again, after it was compacted."}], stream=False)
    last = model.requests[-1].body["input"]
    assert LINE in str(last[-1])
    assert "afterturn-" in str(last[-1])
    assert [event.data["how"] for event in proxy.events.named("compacted")] == ["seen"]
