"""The embedder behind a real server on loopback: what is sent, what is made of each answer, how it gives up."""

import base64
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_server import (
    Answer,
    Answering,
    EmbeddingServer,
    embeddings,
    in_turn,
    make_certificate,
    refusal,
    unit,
    vector,
)

from afterturn.embedders.http import HttpEmbedder
from afterturn.errors import ConfigError, EmbedderUnavailable
from afterturn.ports import Embedder
from afterturn.types import EmbedderIdentity

Serve = Callable[..., EmbeddingServer]
KEY = "sk-very-secret-0123456789"
WITHIN = 100.0
MADE: list[HttpEmbedder] = []


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(answering: Answering = embeddings) -> EmbeddingServer:
            return stack.enter_context(EmbeddingServer(answering))

        yield start


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().close()


def made(url: str, model: str, **settings: Any) -> HttpEmbedder:
    MADE.append(HttpEmbedder(url, model, **settings))
    return MADE[-1]


def answered(*rows: Any) -> Answer:
    return Answer({"data": [{"index": at, "embedding": row} for at, row in enumerate(rows)]})


def warmed(server: EmbeddingServer, **settings: Any) -> HttpEmbedder:
    """As memory begins: one short text, from which it learns what the server gives."""
    embedder = made(server.url, "small", **settings)
    embedder.embed(["warm"])
    server.received.clear()
    server.reached.clear()
    return embedder


def test_vectors_come_back_with_unit_length_in_the_order_of_the_texts(serve: Serve):
    """M3: whatever order and length the server gives them."""
    server = serve()
    embedder: Embedder = made(server.url, "small", key=KEY)
    found = embedder.embed(["tea", "a cat", "the train"])
    assert np.allclose(found, [unit("tea"), unit("a cat"), unit("the train")], atol=1e-6)
    (request,) = server.received
    assert (request.path, request.headers["authorization"]) == ("/v1/embeddings", f"Bearer {KEY}")
    assert request.body == {"model": "small", "input": ["tea", "a cat", "the train"], "encoding_format": "base64"}


def test_the_identity_names_model_and_server_and_is_known_by_the_first_answer(serve: Serve):
    """M3: what two servers call by one name may be two models."""
    server = serve()
    embedder = made(server.url, "small")
    with pytest.raises(EmbedderUnavailable, match="has not answered yet"):
        _ = embedder.identity
    embedder.embed([""])
    assert embedder.identity == EmbedderIdentity(f"small@{server.url.removeprefix('http://')}", "http-1", 8)
    assert warmed(serve()).identity != embedder.identity


def test_shorter_vectors_are_asked_for(serve: Serve):
    server = serve()
    embedder = made(server.url, "small", dimensions=3)
    assert (embedder.embed(["tea"]).shape, embedder.identity.dimensions) == ((1, 3), 3)
    assert server.received[0].body["dimensions"] == 3


def test_a_server_that_gives_another_length_than_asked_for_is_refused(serve: Serve):
    """M3: a wrong dimension is a clear error."""
    server = serve(lambda request: answered([1.0, 2.0]))
    with pytest.raises(EmbedderUnavailable, match=r"answers with 2 numbers .* dimensions is 3.*set it to 2"):
        made(server.url, "small", dimensions=3).embed(["tea"])


def test_a_model_that_changes_behind_its_name_is_noticed_by_its_length(serve: Serve):
    """M3: two spaces of vectors never mix."""
    server = serve(in_turn(embeddings, lambda request: embeddings(request, 5)))
    embedder = made(server.url, "small")
    embedder.embed(["tea"])
    with pytest.raises(EmbedderUnavailable, match=r"5 numbers per text; it was 8 before.*Open memory again"):
        embedder.embed(["tea"])


def test_blank_texts_are_not_sent(serve: Serve):
    server = serve()
    embedder = warmed(server)
    found = embedder.embed(["", "tea", " \n"])
    assert np.allclose(found, [np.zeros(8), unit("tea"), np.zeros(8)], atol=1e-6)
    assert not embedder.embed(["", " "]).any()
    assert server.inputs == [["tea"]]


def test_no_texts_give_no_rows(serve: Serve):
    assert warmed(serve()).embed([]).shape == (0, 8)


def test_requests_are_bounded_in_texts_and_in_characters(serve: Serve):
    server = serve()
    embedder = warmed(server)
    texts = [f"text {number}" for number in range(70)] + [f"{number} " + "long " * 2000 for number in range(9)]
    found = embedder.embed(texts)
    assert np.allclose(found[:70], [unit(text) for text in texts[:70]], atol=1e-6)
    assert [text for batch in server.inputs for text in batch] == [text[:8192].strip() for text in texts]
    assert max(map(len, server.inputs)) == 32
    assert max(sum(map(len, batch)) for batch in server.inputs) <= 32_768


def test_half_a_pair_goes_out_as_text(serve: Serve):
    server = serve()
    warmed(server).embed(["猫 \ud83d"])
    assert server.inputs == [["猫 ?"]]


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_that_knows_no_base64_is_asked_without_from_then_on(serve: Serve, status: int):
    server = serve(
        lambda request: refusal(status, "unknown field") if "encoding_format" in request else embeddings(request)
    )
    embedder = made(server.url, "small")
    found = [embedder.embed([text])[0] for text in ("tea", "cat")]
    assert np.allclose(found, [unit("tea"), unit("cat")], atol=1e-6)
    assert ["encoding_format" in request.body for request in server.received] == [True, False, False]


def test_an_answer_without_places_is_taken_in_its_order(serve: Serve):
    rows = [vector("tea").tolist(), vector("cat").tolist()]
    server = serve(lambda request: Answer({"data": [{"embedding": row} for row in rows]}))
    found = made(server.url, "small").embed(["tea", "cat"])
    assert np.allclose(found, [unit("tea"), unit("cat")], atol=1e-6)


@pytest.mark.parametrize(
    "body,complaint",
    [
        (b"<html>", "sent no embeddings"),
        ({"data": "none"}, "sent no embeddings"),
        ({"data": [1]}, "sent no embeddings"),
        ({"data": []}, "sent 0 embeddings for 1 texts"),
        ({"data": [{"embedding": [1.0]}, {"embedding": [1.0]}]}, "sent 2 embeddings for 1 texts"),
        ({"data": [{}]}, "not a list of numbers"),
        ({"data": [{"embedding": []}]}, "not a list of numbers"),
        ({"data": [{"embedding": ["a"]}]}, "not a list of numbers"),
        ({"data": [{"embedding": [[1.0]]}]}, "not a list of numbers"),
        ({"data": [{"embedding": "not base64!"}]}, "not a list of numbers"),
        ({"data": [{"embedding": base64.b64encode(b"abc").decode()}]}, "not a list of numbers"),
        (b'{"data": [{"embedding": [NaN, 1.0]}]}', "not finite"),
        (b'{"data": [{"embedding": [1e999, 1.0]}]}', "not finite"),
    ],
)
def test_an_answer_that_is_none_is_refused(serve: Serve, body: Any, complaint: str):
    """M3: nothing is stored that is no vector of this model."""
    server = serve(lambda request: Answer(body))
    with pytest.raises(EmbedderUnavailable, match=rf"{complaint}.*Check embedder_url and embedder_model"):
        made(server.url, "small").embed(["tea"])


def test_vectors_of_different_lengths_in_one_answer_are_refused(serve: Serve):
    server = serve(lambda request: answered([1.0, 2.0], [1.0]))
    with pytest.raises(EmbedderUnavailable, match=r"different sizes: \[1, 2\]"):
        made(server.url, "small").embed(["tea", "cat"])


def test_a_reply_without_end_is_not_read_to_its_end(serve: Serve):
    server = serve(lambda request: Answer(b" " * (5 << 20)))
    with pytest.raises(EmbedderUnavailable, match="more than 4194304 bytes"):
        made(server.url, "small").embed(["tea"])


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble_is_asked_again(serve: Serve, status: int):
    server = serve(in_turn(refusal(status, "later", retry_after="0"), embeddings))
    assert np.allclose(made(server.url, "small").embed(["tea"]), [unit("tea")], atol=1e-6)
    assert len(server.received) == 2


def test_a_server_that_stays_in_trouble_is_given_up(serve: Serve):
    server = serve(lambda request: refusal(503, "no room", retry_after="0"))
    with pytest.raises(EmbedderUnavailable, match=r"status 503: 'no room'.*recall uses words"):
        made(server.url, "small", retries=2).embed(["tea"])
    assert len(server.received) == 3


@pytest.mark.parametrize(
    "status,remedy",
    [
        (401, "Set embedder_key"),
        (404, "Check embedder_model"),
        (308, "Set embedder_url to the address it redirects to"),
    ],
)
def test_a_refusal_is_final_and_says_what_to_do(serve: Serve, status: int, remedy: str):
    """Redirects are not followed either: texts go where the settings say."""
    elsewhere = serve()
    server = serve(lambda request: refusal(status, "not like this", location=f"{elsewhere.url}/embeddings"))
    with pytest.raises(EmbedderUnavailable, match=remedy):
        made(server.url, "small", key=KEY).embed(["tea"])
    assert (len(server.received), elsewhere.received) == (1, [])


def test_a_server_that_hangs_is_left_when_the_time_is_up(serve: Serve):
    server = serve(in_turn(embeddings, Answer(held=True)))
    embedder = warmed(server, timeout=2.0)
    with pytest.raises(EmbedderUnavailable, match="timeout"):
        embedder.embed(["tea"])
    assert server.left.wait(WITHIN)


def test_nobody_listening_is_said(serve: Serve):
    with EmbeddingServer() as server:
        url = server.url
    with pytest.raises(EmbedderUnavailable, match=r"cannot be reached.*check embedder_url"):
        made(url, "small", retries=0).embed(["tea"])


def test_one_text_that_is_too_long_does_not_keep_out_the_others(serve: Serve):
    """Tokens are counted by the server alone: what it refuses is sent in halves, then shorter."""

    def answering(request: dict[str, Any]) -> Answer:
        too_long = any(len(text) > 600 for text in request["input"])
        return refusal(400, "too many tokens") if too_long else embeddings(request)

    embedder = warmed(serve(answering))
    found = embedder.embed(["tea", "x" * 5000, "cat"])
    assert np.allclose(found, [unit("tea"), unit("x" * 512), unit("cat")], atol=1e-6)


def test_a_text_that_is_refused_however_short_has_no_vector_and_its_neighbours_have(
    serve: Serve, caplog: pytest.LogCaptureFixture
):
    def answering(request: dict[str, Any]) -> Answer:
        return refusal(400, "no") if any("odd" in text for text in request["input"]) else embeddings(request)

    embedder = warmed(serve(answering))
    found = embedder.embed(["tea", "an odd secret", "cat"])
    assert np.allclose(found, [unit("tea"), np.zeros(8), unit("cat")], atol=1e-6)
    assert "refuses a text of 13 characters" in caplog.text
    assert "odd" not in caplog.text


def test_a_server_that_refuses_everything_stores_nothing(serve: Serve):
    """Zeros for all texts would look like the work done."""
    embedder = warmed(serve(in_turn(embeddings, refusal(400, "out of order"))))
    with pytest.raises(EmbedderUnavailable, match="refused"):
        embedder.embed(["tea", "cat"])


def test_neither_texts_nor_the_key_are_in_an_error(serve: Serve, caplog: pytest.LogCaptureFixture):
    """A server may quote what it was sent; job errors are kept."""
    caplog.set_level(logging.DEBUG)
    server = serve(in_turn(embeddings, refusal(403, f"'my secret tea' with {KEY} is not allowed")))
    embedder = warmed(server, key=KEY)
    with pytest.raises(EmbedderUnavailable, match="key_refused") as caught:
        embedder.embed(["my secret tea"])
    told = f"{caught.value!r} {caught.value.__cause__} {embedder!r} {caplog.text}"
    assert "secret" not in told


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://host/v1", "http://", "http://me:secret@host/v1"])
def test_an_address_that_is_none_names_the_setting(url: str):
    with pytest.raises(ConfigError, match="embedder_url") as caught:
        made(url, "small")
    assert "secret" not in str(caught.value)


def test_a_connection_by_https_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A question does not pay for the keys to be agreed upon anew; a server that hung up is connected to again."""
    certificate = make_certificate(tmp_path / "server.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    hanging_up = threading.Event()
    with EmbeddingServer(
        lambda request: replace(embeddings(request), hangs_up=hanging_up.is_set()), certificate=certificate
    ) as server:
        embedder = warmed(server)
        found = [embedder.embed([text])[0] for text in ("tea", "cat")]
        one = server.connections
        hanging_up.set()
        found += [embedder.embed([text])[0] for text in ("train", "rain")]
        embedder.close()
    assert np.allclose(found, [unit(text) for text in ("tea", "cat", "train", "rain")], atol=1e-6)
    assert (one, server.connections) == (1, 2)


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path):
    with (
        EmbeddingServer(certificate=make_certificate(tmp_path / "server.pem")) as server,
        pytest.raises(EmbedderUnavailable, match=r"cannot be reached.*certificate"),
    ):
        made(server.url, "small", retries=0).embed(["tea"])
    assert server.received == []


def test_a_connection_in_the_open_is_made_anew_for_each_question(serve: Serve):
    """To a server that sends head and body apart, one that is kept would wait 40 ms each time."""
    server = serve()
    embedder = warmed(server)
    for number in range(3):
        embedder.embed([f"question {number}"])
    assert server.connections == 4


def test_threads_may_share_it(serve: Serve):
    """M3: each gets its own answer, though the requests are under way at the same time."""
    server = serve()
    embedder = warmed(server)
    together = threading.Barrier(6)
    found: dict[int, bool] = {}

    def ask(number: int) -> None:
        together.wait(WITHIN)
        texts = [f"{number} and {other}" for other in range(40)]
        found[number] = np.allclose(embedder.embed(texts), [unit(text) for text in texts], atol=1e-6)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN)
    assert found == dict.fromkeys(range(6), True)


def test_closing_ends_its_thread(serve: Serve):
    # Threads of other tests may still be ending.
    before = set(threading.enumerate())
    embedder = HttpEmbedder(serve().url, "small")
    embedder.embed(["tea"])
    (thread,) = (one for one in set(threading.enumerate()) - before if one.name == "afterturn-http")
    embedder.close()
    embedder.close()
    assert not thread.is_alive()


def test_closing_ends_a_call_that_is_under_way(serve: Serve):
    server = serve(in_turn(embeddings, Answer(held=True)))
    embedder = warmed(server)
    failures: list[EmbedderUnavailable] = []

    def call() -> None:
        try:
            embedder.embed(["tea"])
        except EmbedderUnavailable as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert server.reached.wait(WITHIN)
    embedder.close()
    thread.join(WITHIN)
    assert "is closed" in str(failures[0])
    with pytest.raises(EmbedderUnavailable, match="is closed"):
        embedder.embed(["tea"])
