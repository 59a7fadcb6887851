"""How often a turn waits for the server, counted on the wire."""

from collections.abc import Iterator

import pytest

from afterturn import Draft, blocking
from lab.bench.texts import SPACE, USER, memories, questions
from lab.postgres.server import PostgresServer
from lab.postgres.wire_proxy import WireProxy

pytestmark = pytest.mark.postgres

# The grace is not what is tested: a busy machine may take longer than the default.
PATIENT = {"grace": 20.0, "recall_timeout": 20.0}
WITHIN = 100.0
ANSWER = "It is noted in the plan."


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[WireProxy]:
    with WireProxy(server.port) as started:
        yield started


def through(proxy: WireProxy, url: str) -> str:
    return url.replace(url.rpartition("127.0.0.1:")[2].partition("/")[0], str(proxy.port))


def take_turn(memory: blocking.Memory, messages: list[dict[str, str]], question: str) -> bool:
    """True if it was given a block."""
    messages.append({"role": "user", "content": question})
    with memory.conversation("talk", user=USER).turn(messages) as turn:
        block = turn.inject(messages)
        messages.append({"role": "assistant", "content": ANSWER})
    assert turn.wait_recorded(within=WITHIN)
    return block is not None


def wait_until_stored(proxy: WireProxy) -> None:
    """Returns when the events of the turn are stored, and the index in memory has what the turn recorded."""
    assert proxy.wait_for("INSERT INTO timeline", "COMMIT", within=WITHIN)
    assert proxy.wait_for("SELECT entry_key, data FROM embedding", within=WITHIN)


def warm_up(memory: blocking.Memory, proxy: WireProxy, asked: list[str]) -> list[dict[str, str]]:
    memory.space(SPACE).add_many([Draft(text) for text in memories(100)])
    assert memory.drain(within=WITHIN)
    memory.ready(within=WITHIN)
    messages: list[dict[str, str]] = []
    for question in asked:
        proxy.clear()
        take_turn(memory, messages, question)
        wait_until_stored(proxy)
    return messages


def test_a_warm_turn_takes_few_round_trips(proxy: WireProxy, url: str) -> None:
    """From `turn()` to the stored events: reading the conversation, recall, block, recording, vectors, index."""
    *before, question = questions(5)
    with blocking.open(through(proxy, url), PATIENT) as memory:
        messages = warm_up(memory, proxy, before)
        proxy.clear()
        assert take_turn(memory, messages, question)
        wait_until_stored(proxy)
        sent = proxy.round_trips()
    assert len(sent) <= 23, "\n".join(one.text[:200] for one in sent)


def test_a_warm_recall_takes_two_round_trips(proxy: WireProxy, url: str) -> None:
    """R2: the newest change of the space with the newest forget, the entries that are not cached."""
    *before, question = questions(5)
    with blocking.open(through(proxy, url), PATIENT) as memory:
        messages = warm_up(memory, proxy, before)
        proxy.clear()
        assert take_turn(memory, messages, question)
        sent = proxy.round_trips()
    begun = next(one for one in sent if "'generation'" in one.text)
    of_reader = [one.text for one in sent if one.connection == begun.connection]
    of_reader = of_reader[of_reader.index(begun.text) :]
    later = (at for at, text in enumerate(of_reader) if at and "BEGIN" in text)
    assert next(later, len(of_reader)) <= 2, of_reader


def test_rows_of_one_table_are_one_statement(proxy: WireProxy, url: str) -> None:
    """The server plans it once: a turn counts some forty terms."""
    *before, question = questions(5)
    with blocking.open(through(proxy, url), PATIENT) as memory:
        messages = warm_up(memory, proxy, before)
        proxy.clear()
        take_turn(memory, messages, question)
        (counted,) = [one.text for one in proxy.round_trips() if "INSERT INTO frequency" in one.text]
    assert [counted.count(f"INSERT INTO {table} ") for table in ("frequency", "entry_terms", "embedding")] == [1, 1, 1]


def test_turns_work_over_a_network(server: PostgresServer, url: str) -> None:
    with WireProxy(server.port, delay=0.001) as slow, blocking.open(through(slow, url), PATIENT) as memory:
        memory.space(SPACE).add_many([Draft(text) for text in memories(100)])
        memory.ready(within=WITHIN)
        messages: list[dict[str, str]] = []
        given = [take_turn(memory, messages, question) for question in questions(3)]
        assert any(given)
        assert memory.space(SPACE).search(ANSWER).hits
