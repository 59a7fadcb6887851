"""A memory without an event loop answers before it has started one; nobody can tell, but by the time it takes."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
from children import StartChild
from ears import WAIT, WORDS, Ears, exchange
from numpy.typing import NDArray

import afterturn
from afterturn import blocking, early
from afterturn.base.errors import AfterturnError, ConfigError, DeadlineExceeded, MemoryClosed, StoreUnavailable
from afterturn.base.ports import Unit
from afterturn.base.types import Filter, Kind, SearchResults
from afterturn.runtime import MemoryCore
from afterturn.testing.hashing import HashingEmbedder

ASKED = "Which tea does Ada like?"


@pytest.fixture
def told(path: Path) -> Path:
    """A store that knows of tea."""
    with blocking.open(path, WORDS) as memory:
        memory.space("user:ada").add("Ada likes green tea")
        memory.space("user:ada").add("The kettle is broken", target="environment")
    return path


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started before somebody needs it."""
    monkeypatch.setattr(early, "START_AFTER", 3600.0)


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("afterturn")]


@pytest.mark.usefixtures("patient")
def test_a_first_answer_needs_no_loop(told: Path) -> None:
    """L1: it is read where it is asked for, by words, and says that vectors are missing."""
    with blocking.open(told, WORDS) as memory:
        found = memory.space("user:ada").search(ASKED)
        threads = _threads()
    assert ([hit.entry.text for hit in found.hits], found.missing) == (["Ada likes green tea"], ("vectors",))
    assert found.correlation
    assert threads == ["afterturn-start"]
    assert not _threads()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "question",
    [
        {"query": ASKED},
        {"query": "kettle", "limit": 1, "filter": Filter(kind=Kind.STATEMENT)},
        {"query": "tea", "as_of": 1.0},
        {"query": "tea", "lanes": ["long_term"], "conversation": "c"},
        {"query": "ok"},
        {"query": ""},
        {"query": "tea", "limit": 0},
        {"query": "tea", "lanes": "long_term"},
        {"query": "tea", "conversation": " "},
        {"query": "tea", "filter": None},
        {"query": "the token is ghp_" + "a1" * 18},
    ],
)
async def test_the_answer_is_the_one_that_memory_gives_on_its_loop(told: Path, question: dict[str, object]) -> None:
    """L1: one recall, two ways to it: the same hits with the same scores, or the same error."""
    with blocking.open(told, WORDS) as memory:
        first = _outcome(lambda: memory.space("user:ada").search(**question))  # type: ignore[arg-type]
        memory.ready(within=0.0)
        second = _outcome(lambda: memory.space("user:ada").search(**question))  # type: ignore[arg-type]
    assert first == second


@pytest.mark.usefixtures("patient")
def test_a_secret_in_a_first_question_is_not_told_again(told: Path) -> None:
    """G1: who logs an answer logs its question, with or without a loop."""
    secret = "ghp_" + "a1B2" * 9
    with blocking.open(told, WORDS) as memory:
        asked = [memory.space("user:ada").search(f"Which tea takes {secret}?").query]
        memory.ready(within=0.0)
        asked.append(memory.space("user:ada").search(f"Which tea takes {secret}?").query)
    assert asked == ["Which tea takes […]?"] * 2


def _outcome(ask: object) -> object:
    assert callable(ask)
    try:
        found = ask()
    except AfterturnError as error:
        return type(error), str(error)
    assert isinstance(found, SearchResults)
    return found.query, found.hits, found.missing


@pytest.mark.usefixtures("patient")
def test_what_is_written_is_read_next(told: Path) -> None:
    """M1: whoever writes starts the rest, and what was read early does not stand in its way."""
    with blocking.open(told, WORDS) as memory:
        ada = memory.space("user:ada")
        before = [entry.text for entry in ada.list()]
        added = ada.add("Ada likes black coffee")
        found = ada.search("black coffee")
        same = ada.get(added.entry.id)
    assert before == ["The kettle is broken", "Ada likes green tea"]
    assert found.hits[0].entry == same == added.entry


@pytest.mark.usefixtures("patient")
def test_a_turn_starts_the_rest(told: Path) -> None:
    """H1: a conversation needs the loop; the first thing that is asked for may be one."""
    with blocking.open(told, WORDS) as memory:
        messages = exchange(ASKED)[:1]
        with memory.conversation("c", user="ada").turn(messages) as turn:
            block = turn.inject(messages, within=WAIT)
    assert block is not None
    assert "Ada likes green tea" in str(block)


class HeardEmbedder(HashingEmbedder):
    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.set()
        return super().embed(texts)


def test_vectors_warm_up_though_nobody_asks(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L1: what is not needed for the first answer is started behind it."""
    monkeypatch.setattr(early, "START_AFTER", 0.0)
    embedder = HeardEmbedder()
    with blocking.open(told, parts=afterturn.Parts(embedder=embedder)) as memory:
        warmed = embedder.asked.wait(WAIT)
        drained = memory.drain(within=WAIT)
        found = memory.space("user:ada").search(ASKED)
    assert (warmed, drained) == (True, True)
    assert found.hits[0].similarity is not None
    assert not _threads()


@pytest.mark.usefixtures("patient")
def test_a_memory_is_opened_once(told: Path) -> None:
    """§2: also before it has a loop, and after it was closed."""
    memory = blocking.open(told, WORDS).start()
    with pytest.raises(MemoryClosed, match="opened once"):
        memory.start()
    memory.close()
    with pytest.raises(MemoryClosed, match="opened once"):
        memory.start()


def test_a_memory_that_is_not_open_says_so(told: Path) -> None:
    """§2: nothing can be asked before it is entered."""
    with pytest.raises(MemoryClosed, match="not open yet"):
        blocking.open(told, WORDS).space("user:ada")


@pytest.mark.usefixtures("patient")
def test_a_memory_that_was_closed_early_is_closed(told: Path) -> None:
    """§2: direct verbs raise, turns get nothing, closing again is harmless, and no thread or file stays open."""
    before = len(os.listdir("/proc/self/fd"))
    with blocking.open(told, WORDS) as memory:
        ada = memory.space("user:ada")
        ada.search(ASKED)
    assert len(os.listdir("/proc/self/fd")) == before
    for verb in (lambda: ada.search(ASKED), lambda: ada.add("tea"), lambda: memory.stats()):
        with pytest.raises(MemoryClosed, match="Open it again with"):
            verb()
    messages = exchange(ASKED)[:1]
    with memory.conversation("c", user="ada").turn(messages) as turn:
        assert turn.inject(messages, within=WAIT) is None
    memory.close()
    assert not _threads()


class Watched:
    """A lock that tells when somebody is about to wait for whoever holds it."""

    def __init__(self, awaited: threading.Event) -> None:
        self._lock = threading.RLock()
        self._awaited = awaited

    def acquire(self, timeout: float) -> bool:
        self._awaited.set()
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()


@pytest.mark.usefixtures("patient")
def test_closing_waits_for_who_reads(told: Path) -> None:
    """§2: another thread has its answer, and the file is closed when `close` returns."""
    memory = blocking.open(told, WORDS).start()
    opened = memory._early
    assert opened is not None
    reading, goes_on = threading.Event(), threading.Event()
    opened._reading = Watched(goes_on)  # type: ignore[assignment]
    ended: list[str] = []

    def work(unit: object) -> None:
        reading.set()
        goes_on.wait(WAIT)
        ended.append("read")

    def close() -> None:
        memory.close()
        ended.append("closed")
        goes_on.set()

    reader = threading.Thread(target=lambda: early.at_once(opened.read(work)))
    reader.start()
    reading.wait(WAIT)
    closer = threading.Thread(target=close)
    closer.start()
    for thread in (reader, closer):
        thread.join(WAIT)
    assert ended == ["read", "closed"]
    with pytest.raises(MemoryClosed):
        opened.engine.read_now(work)


def test_closing_waits_for_the_thread_that_starts_the_rest(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """§2: when `close` returns, nothing of a memory runs any more, however long that thread takes to end."""
    goes_on = threading.Event()
    monkeypatch.setattr(blocking.Memory, "_start_behind", lambda self, opened: goes_on.wait(WAIT))
    memory = blocking.open(told, WORDS).start()
    assert memory._early is not None
    starter = memory._early._starter
    assert starter is not None
    join = starter.join

    def join_once_awaited(within: float) -> None:
        goes_on.set()
        join(within)

    monkeypatch.setattr(starter, "join", join_once_awaited)
    memory.close()
    left = _threads()
    goes_on.set()
    join(WAIT)
    assert not left


@pytest.mark.usefixtures("patient")
def test_closing_interrupts_who_reads_for_too_long(told: Path) -> None:
    """§2: closing is bounded; whoever still reads is told."""
    memory = blocking.open(told, {**WORDS, "close_timeout": 0.05}).start()
    opened = memory._early
    assert opened is not None
    reading, errors = threading.Event(), list[Exception]()

    def work(unit: Unit) -> None:
        deadline = monotonic() + WAIT
        reading.set()
        while monotonic() < deadline:
            unit.check()

    def read() -> None:
        try:
            early.at_once(opened.read(work))
        except AfterturnError as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    reading.wait(WAIT)
    memory.close()
    reader.join(WAIT)
    assert [type(error) for error in errors] == [DeadlineExceeded]


@pytest.mark.parametrize("content", [None, b"no database, but long enough to be one" * 40])
async def test_what_can_not_be_opened_is_told_alike(tmp_path: Path, content: bytes | None) -> None:
    """§2: a folder, or another program's file: the same error with and without a loop, and nothing stays open."""
    target = tmp_path / "odd"
    _ = target.mkdir() if content is None else target.write_bytes(content)
    with pytest.raises(AfterturnError) as waited:
        blocking.open(target, WORDS).start()
    with pytest.raises(AfterturnError) as awaited:
        await afterturn.open(target, WORDS).start()
    assert (type(waited.value), str(waited.value)) == (type(awaited.value), str(awaited.value))
    assert not _threads()


@pytest.mark.parametrize(
    "wrong",
    [
        {"embedder": "http"},
        {"embedder": "http", "embedder_url": "localhost", "embedder_model": "m"},
        {"embedder": "http", "embedder_url": "http://localhost", "embedder_model": "m", "embedder_key": "é"},
        {"model_url": "ftp://localhost"},
        {"model_url": "http://localhost", "model_key": "a\nb"},
    ],
)
async def test_settings_that_can_not_be_used_are_told_when_it_opens(told: Path, wrong: dict[str, str]) -> None:
    """§2: as with a loop, and not by the first verb that needs them."""
    with pytest.raises(ConfigError) as waited:
        blocking.open(told, wrong).start()
    with pytest.raises(ConfigError) as awaited:
        await afterturn.open(told, wrong).start()
    assert str(waited.value) == str(awaited.value)


@pytest.mark.usefixtures("patient")
def test_a_server_that_is_named_need_not_be_there_for_a_first_answer(told: Path) -> None:
    """L1: words are read from the store, whoever is to make vectors or to review."""
    servers = {"model_url": "http://localhost:9", "embedder_url": "http://localhost:9", "embedder_model": "m"}
    with blocking.open(told, {"embedder": "http", **servers}) as memory:
        found = memory.space("user:ada").search(ASKED)
        threads = _threads()
    assert [hit.entry.text for hit in found.hits] == ["Ada likes green tea"]
    assert threads == ["afterturn-start"]


@pytest.mark.usefixtures("patient")
def test_a_host_that_listens_hears_that_memory_is_open(told: Path) -> None:
    """O1: events come from memory's own thread, so it is there from the beginning."""
    ears = Ears()
    with blocking.open(told, WORDS, on_event=ears):
        assert ears.wait("memory_opened")


@pytest.mark.usefixtures("patient")
def test_a_memory_whose_rest_can_not_be_started_is_closed(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """§2: whoever needs it is told why, everybody after that it is closed and why, and nothing stays behind."""

    async def fail(self: MemoryCore) -> None:
        raise StoreUnavailable("The disk is gone.")

    monkeypatch.setattr(MemoryCore, "start", fail)
    with blocking.open(told, WORDS) as memory:
        ada = memory.space("user:ada")
        with pytest.raises(StoreUnavailable, match="disk is gone"):
            ada.add("Ada likes black coffee")
        for verb in (lambda: ada.search(ASKED), lambda: ada.add("tea")):
            with pytest.raises(MemoryClosed, match=r"StoreUnavailable: The disk is gone.*Open it again"):
                verb()
    assert not _threads()


def test_what_fails_behind_a_memory_is_told_to_who_asks_next(
    told: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """§2, O1: nobody needed it yet, so it is logged, and the next answer is why there is none."""

    async def fail(self: MemoryCore) -> None:
        raise StoreUnavailable("The disk is gone.")

    monkeypatch.setattr(MemoryCore, "start", fail)
    monkeypatch.setattr(early, "START_AFTER", 0.0)
    memory = blocking.open(told, WORDS).start()
    assert memory._early is not None
    assert memory._early.wait_ended(within=WAIT)
    with pytest.raises(MemoryClosed, match="The disk is gone"):
        memory.space("user:ada").search(ASKED)
    memory.close()
    assert "could not be started" in caplog.text
    assert not _threads()


FORKED = """
from afterturn import early
from afterturn.base.errors import ForkedProcess
early.START_AFTER = 3600.0
memory = blocking.open(path, WORDS).start()
ada = memory.space("user:ada")
say(ada.search("Which tea does Ada like?").hits[0].entry.text)
pid = os.fork()
if not pid:
    for verb in (lambda: ada.search("tea"), lambda: ada.add("tea"), lambda: memory.drain()):
        try:
            verb()
        except ForkedProcess as error:
            say(error)
    messages = exchange("Which tea does Ada like?")[:1]
    with memory.conversation("c", user="ada").turn(messages) as turn:
        say(turn.inject(messages, within=9))
    memory.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
say(ada.add("Ada likes black coffee").created)
"""


def test_a_forked_child_of_an_early_memory_has_none(told: Path, start: StartChild) -> None:
    """§2: as of any other: direct verbs raise, turns get nothing, and the parent, which closes nothing, is unharmed."""
    ended = start(FORKED).end()
    text, *errors, block, created = ended.out
    assert (ended.code, text, block, created) == (0, "Ada likes green tea", "None", "True")
    assert len(errors) == 3
    assert all("Open it again in the child" in error for error in errors)


def test_a_program_that_asks_and_closes_nothing_leaves_without_a_word(told: Path, start: StartChild) -> None:
    """§2: whether the rest was started behind it or not."""
    child = start(
        """
        from afterturn import early
        early.START_AFTER = 0.01
        for number in range(3):
            memory = blocking.open(path, WORDS).start()
            say(memory.space("user:ada").search("Which tea does Ada like?").hits[0].entry.text)
        """
    )
    assert child.result() == ["Ada likes green tea"] * 3
