"""Embedders as settings choose them, in a memory that is open: what a host sees of them."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from embedding_server import Answer, EmbeddingServer, embeddings
from tiny_bert import make_wheel, recipe

import afterturn
from afterturn.config import models_folder
from afterturn.embedders import service
from afterturn.embedders.http import HttpEmbedder
from afterturn.embedders.minilm import MiniLmEmbedder
from afterturn.embedders.minilm_install import get_minilm
from afterturn.testing import EventLog
from afterturn.testing.hashing import HashingEmbedder

WITHIN = 100.0
SPACE = "user:ada"


class Gate:
    """Answers questions at once, and batches of memories when it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.reached = threading.Event()

    def __call__(self, request: dict[str, Any]) -> Answer:
        if len(request["input"]) > 1:
            self.reached.set()
            assert self.opened.wait(WITHIN)
        return embeddings(request, 16)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def by_http(server: EmbeddingServer, **settings: Any) -> dict[str, Any]:
    return {"embedder": "http", "embedder_url": server.url, "embedder_model": "small", **settings}


async def test_a_server_embeds_memories_and_questions(path: Path):
    """M3: vectors of that server's own, in the store and in the recall."""
    with EmbeddingServer() as server:
        async with afterturn.open(path, by_http(server)) as memory:
            assert await memory.ready()
            await memory.space(SPACE).add("Ada's cat is called Miso")
            assert await memory.drain(within=WITHIN)
            found = await memory.space(SPACE).search("Ada's cat is called Miso")
    assert (found.missing, round(found.hits[0].similarity or 0, 3)) == ((), 1.0)


async def test_a_question_goes_beside_a_batch_that_takes_long(path: Path, gate: Gate):
    """R2: it does not wait for the server to be done with what nobody waits for."""
    with EmbeddingServer(gate) as server:
        async with afterturn.open(path, by_http(server)) as memory:
            await memory.ready()
            await memory.space(SPACE).add_many([afterturn.Draft(f"statement {number}") for number in range(20)])
            assert await asyncio.to_thread(gate.reached.wait, WITHIN)
            server.received.clear()
            await memory.space(SPACE).search("which statement is it?")
            asked = server.inputs
            gate.opened.set()
    assert asked == [["which statement is it?"]]


async def test_closing_does_not_wait_for_a_server_that_hangs(path: Path, gate: Gate):
    """R4: what is under way there is ended; the entries keep their job."""
    with EmbeddingServer(gate) as server:
        async with afterturn.open(path, by_http(server, close_timeout=5.0)) as memory:
            await memory.ready()
            await memory.space(SPACE).add_many([afterturn.Draft(f"statement {number}") for number in range(20)])
            assert await asyncio.to_thread(gate.reached.wait, WITHIN)
            began = monotonic()
        took = monotonic() - began
        gate.opened.set()
        async with afterturn.open(path, by_http(server)) as memory:
            assert await memory.drain(within=WITHIN)
            waiting = (await memory.stats())["vectors_waiting"]
    assert took < 4.0
    assert waiting == 0


async def test_a_server_that_is_started_later_is_found(path: Path, monkeypatch: pytest.MonkeyPatch):
    """L1: until then words find what they find, and `doctor` says where nobody answers."""
    monkeypatch.setattr(service, "RETRY_AFTER", 0.05)
    server = EmbeddingServer()
    is_ready = threading.Event()

    def hear(event: afterturn.Event) -> None:
        if event.name == "vectors_ready":
            is_ready.set()

    # It listens from the start, but nobody answers before it is entered.
    parts = afterturn.Components(embedder=HttpEmbedder(server.url, "small", timeout=1.0))
    async with afterturn.open(path, components=parts, on_event=hear) as memory:
        await memory.space(SPACE).add("Ada's cat is called Miso")
        assert not await memory.ready(within=WITHIN)
        found = await memory.space(SPACE).search("what is Ada's cat called?")
        told = [finding.message for finding in await memory.check() if finding.subject == "embedder"]
        with server:
            assert await asyncio.to_thread(is_ready.wait, WITHIN)
            assert await memory.drain(within=WITHIN)
    assert (found.hits[0].entry.text, found.missing) == ("Ada's cat is called Miso", ("vectors",))
    assert "embedding server" in told[0]


async def test_minilm_is_chosen_by_a_setting_and_found_where_models_are_kept(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """M3: and the vectors in the store are its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    get_minilm(models_folder(), source=make_wheel(tmp_path), report=lambda step: None, recipe=recipe())
    async with afterturn.open(path, {"embedder": "minilm"}) as memory:
        assert await memory.ready()
        await memory.space(SPACE).add("the cat is called miso")
        assert await memory.drain(within=WITHIN)
        found = await memory.space(SPACE).search("the cat is called miso")
    assert (found.missing, round(found.hits[0].similarity or 0, 2)) == ((), 1.0)


async def test_files_that_are_brought_later_are_taken_into_use(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """L1: nobody has to open memory again after `afterturn models get minilm`."""
    monkeypatch.setattr(service, "RETRY_AFTER", 0.05)
    is_ready = threading.Event()

    def hear(event: afterturn.Event) -> None:
        if event.name == "vectors_ready":
            is_ready.set()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    async with afterturn.open(path, {"embedder": "minilm"}, on_event=hear) as memory:
        assert not await memory.ready()
        get_minilm(models_folder(), source=make_wheel(tmp_path), report=lambda step: None, recipe=recipe())
        assert await asyncio.to_thread(is_ready.wait, WITHIN)


async def test_an_embedder_that_a_host_has_brought_stays_the_hosts(path: Path, tmp_path: Path):
    """It may serve the next memory too."""
    with EmbeddingServer() as server:
        from afterturn.embedders.http import HttpEmbedder

        shared = HttpEmbedder(server.url, "small")
        for name in ("one.db", "two.db"):
            async with afterturn.open(tmp_path / name, components=afterturn.Components(embedder=shared)) as memory:
                assert await memory.ready()
        shared.close()


def test_the_port_is_kept_by_all_of_them():
    """As recall finds them: which take batches, and which hold on to something."""
    from afterturn.embedders.http import HttpEmbedder
    from afterturn.embedders.sentence_encoder import SentenceEncoder
    from afterturn.ports import Batching, Closable

    all_of_them = (SentenceEncoder(), MiniLmEmbedder(Path("nowhere")), HttpEmbedder("http://127.0.0.1:9/v1", "small"))
    assert [isinstance(one, Batching) for one in all_of_them] == [False, True, True]
    assert [isinstance(one, Closable) for one in all_of_them] == [False, False, True]


class Gradually(HashingEmbedder):
    """Pauses once while it loads, as soon as the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.goes_on, self.resumed = threading.Event(), threading.Event(), threading.Event()

    def load_gradually(self, pause: Callable[[], object]) -> None:
        self.started.set()
        assert self.goes_on.wait(WITHIN)
        pause()
        self.resumed.set()


class Late(HashingEmbedder):
    """Embeds a question when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def embed(self, texts):
        assert not any("?" in text for text in texts) or self.goes_on.wait(WITHIN)
        return super().embed(texts)


async def test_loading_stops_while_a_turn_waits_for_its_block(path, monkeypatch):
    """R2: a thread that works beside a recall takes Python's lock again and again, and the block comes too late."""
    monkeypatch.setattr(service, "BLOCK_WITHIN", WITHIN)
    embedder, turn_started = Gradually(), threading.Event()

    def note(event: afterturn.Event) -> None:
        if event.name == "turn_started":
            turn_started.set()

    async with afterturn.open(path, on_event=note, components=afterturn.Components(embedder=embedder)) as memory:
        await memory.space(SPACE).add("Ada likes green tea")
        loading = asyncio.create_task(memory.ready(within=WITHIN))
        assert await asyncio.to_thread(embedder.started.wait, WITHIN)
        messages = [{"role": "user", "content": "Which tea does Ada like?"}]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            assert await asyncio.to_thread(turn_started.wait, WITHIN)
            embedder.goes_on.set()
            assert not await asyncio.to_thread(embedder.resumed.wait, 0.1)
            assert await turn.inject(messages, within=WITHIN)
            assert await asyncio.to_thread(embedder.resumed.wait, WITHIN)
            turn.abort()
        assert await loading


async def test_a_first_message_that_comes_before_the_embedder_says_that_it_had_no_vectors(path):
    """L1: the event and the trace name what is missing; the next message has them."""
    embedder, log = Gradually(), EventLog()
    async with afterturn.open(path, on_event=log, components=afterturn.Components(embedder=embedder)) as memory:
        await memory.space(SPACE).add("Ada likes green tea")
        conversation = memory.conversation("c", user="ada", standing="off")
        for text in ("Which tea does Ada like?", "Which tea, again, does Ada like best?"):
            messages = [{"role": "user", "content": text}]
            async with conversation.turn(messages) as turn:
                await turn.inject(messages, within=WITHIN)
                messages.append({"role": "assistant", "content": "Green."})
            assert await turn.wait_recorded(within=WITHIN)
            embedder.goes_on.set()
            assert await memory.ready(within=WITHIN)
            assert await memory.drain(within=WITHIN)
        traced = (await conversation.trace()).turns
    assert [event.data["missing"] for event in log.named("recall_settled")] == ["vectors", ""]
    assert sorted(one.row.missing for turn in traced for one in turn.recalls) == [(), ("vectors",)]


async def test_a_question_whose_vector_is_late_is_one_line_in_the_log(path, monkeypatch, caplog):
    """L1: a busy machine is no fault of the program, so there is no traceback."""
    monkeypatch.setattr(service, "QUERY_WITHIN", 0.01)
    embedder = Late()
    async with afterturn.open(path, components=afterturn.Components(embedder=embedder)) as memory:
        await memory.space(SPACE).add("Ada likes green tea")
        assert await memory.ready(within=WITHIN)
        try:
            found = await memory.space(SPACE).search("Which tea does Ada like?")
        finally:
            embedder.goes_on.set()
    assert (len(found), found.missing) == (1, ("vectors",))
    (line,) = [record for record in caplog.records if "by words alone" in record.message]
    assert line.message == "a question is answered by words alone: its vector took over 0.01 seconds"
    assert line.exc_info is None
