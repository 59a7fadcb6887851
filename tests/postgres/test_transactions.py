"""Units of work on a server: locks, reruns, lost connections, cancellation, closing."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from afterturn.config import Config, StoreUrl
from afterturn.errors import (
    AfterturnError,
    DeadlineExceeded,
    ForkedProcess,
    MemoryClosed,
    StoreLocked,
    StoreUnavailable,
)
from afterturn.ports import Unit
from afterturn.runtime.clock import SystemClock
from afterturn.stores.engine import Write
from afterturn.stores.postgres.engine import PostgresEngine, open_engine
from afterturn.stores.postgres.store import PostgresStore
from afterturn.testing.entries import admit, operation
from afterturn.types import Filter, Kind, Scope
from lab.postgres.commit_proxy import CommitProxy
from lab.postgres.server import PostgresServer

pytestmark = pytest.mark.postgres

TENANT, SPACE = "default", "user:ada"
ADA = Scope(TENANT, (SPACE,))
WAIT = 100.0
RunSql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def open_one(url: str) -> Iterator[Callable[..., PostgresEngine]]:
    """Opens the store as another process would. All are closed after the test."""
    opened: list[PostgresEngine] = []

    def open_(at: str = url, **settings: Any) -> PostgresEngine:
        opened.append(open_engine(StoreUrl(at), Config(**settings), SystemClock()))
        return opened[-1]

    yield open_
    for engine in opened:
        engine.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def add(text: str) -> Callable[[Unit], str]:
    made, admitted = operation(), admit(text)
    return lambda unit: unit.memories.add(made, admitted).entry.id


def texts(engine: PostgresEngine) -> list[str]:
    return sorted(entry.text for entry in engine.read_now(lambda unit: unit.memories.page(ADA, Filter(), limit=1000)))


def wait_for_lock(run_sql: RunSql) -> None:
    """Returns when a session waits for the lock of a store."""
    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    gate = threading.Event()
    for _ in range(600):
        if run_sql(waiting):
            return
        gate.wait(0.05)
    raise AssertionError("nobody waits")


def record(position: list[int], hold: Callable[[], None]) -> Callable[[Unit], int]:
    def work(unit: Unit) -> int:
        next_one = unit.records.next_position(TENANT, SPACE, "talk")
        hold()
        text = f"message {next_one}"
        unit.records.add(
            operation(), [admit(text, kind=Kind.RECORD, conversation="talk", position=next_one, turn=f"t{next_one}")]
        )
        position.append(next_one)
        return next_one

    return work


def test_a_position_is_given_once(
    open_one: Callable[..., PostgresEngine], pool: ThreadPoolExecutor, run_sql: RunSql
) -> None:
    """C2: the lock comes before a unit's first read, so nobody counts what another is about to write."""
    here, there = open_one(), open_one()
    given: list[int] = []
    read, go = threading.Event(), threading.Event()

    def hold() -> None:
        read.set()
        assert go.wait(WAIT)

    first = pool.submit(here.write_now, record(given, hold), at=ADA)
    assert read.wait(WAIT)
    second = pool.submit(there.write_now, record(given, lambda: None), at=ADA)
    wait_for_lock(run_sql)
    assert given == []
    go.set()
    assert [first.result(WAIT), second.result(WAIT)] == [0, 1]


def test_many_writers_lose_and_repeat_nothing(
    open_one: Callable[..., PostgresEngine], pool: ThreadPoolExecutor
) -> None:
    """C2: four processes record into one conversation."""
    given: list[int] = []

    def run(engine: PostgresEngine) -> None:
        for _ in range(15):
            engine.write_now(record(given, lambda: None), at=ADA)

    list(pool.map(run, [open_one() for _ in range(4)]))
    assert sorted(given) == list(range(60))


def test_several_locks_together_take_no_longer_than_one(open_one: Callable[..., PostgresEngine]) -> None:
    """§13: the client hears nothing until it has them all, and must not take that for a server that hangs."""
    engine = open_one(busy_timeout=6.0)

    def show(unit: Unit) -> str:
        return unit.session.row("SHOW lock_timeout")[0]  # type: ignore[attr-defined]

    assert engine.write_now(show, at=ADA) == "6s"
    assert engine.write_now(show, at=Scope(TENANT, ("user:ada", "user:bob", "user:eve"))) == "2s"


def test_a_commit_after_closing_opens_no_connection(open_one: Callable[..., PostgresEngine], run_sql: RunSql) -> None:
    """C4: a thread may still have the engine of a place that its tenant has left."""
    engine = open_one()
    engine.write_now(add("Ada keeps bees"), at=ADA)
    engine.close()
    (outcome,) = engine.commit([Write(add("Ada likes tea"), at=ADA)])
    assert isinstance(outcome.error, MemoryClosed)
    assert engine.writer._connection is not None
    assert engine.writer._connection.closed


def test_a_reader_does_not_wait_for_a_writer(open_one: Callable[..., PostgresEngine], pool: ThreadPoolExecutor) -> None:
    """§13: a recall goes on while another process is in the middle of a write."""
    here, there = open_one(), open_one()
    here.write_now(add("Ada keeps bees"))
    begun, go = threading.Event(), threading.Event()

    def slow(unit: Unit) -> None:
        add("not yet there")(unit)
        begun.set()
        assert go.wait(WAIT)

    writing = pool.submit(here.write_now, slow)
    assert begun.wait(WAIT)
    assert texts(there) == ["Ada keeps bees"]
    go.set()
    writing.result(WAIT)
    assert texts(there) == ["Ada keeps bees", "not yet there"]


def test_a_lock_that_is_not_released_is_reported(
    open_one: Callable[..., PostgresEngine], pool: ThreadPoolExecutor
) -> None:
    here, there = open_one(), open_one(busy_timeout=0.02)
    begun, go = threading.Event(), threading.Event()

    def slow(unit: Unit) -> None:
        # Its first statement takes the lock.
        unit.memories.spaces(TENANT)
        begun.set()
        assert go.wait(WAIT)

    writing = pool.submit(here.write_now, slow)
    assert begun.wait(WAIT)
    with pytest.raises(StoreLocked, match="busy_timeout"):
        there.write_now(add("Ada keeps bees"))
    go.set()
    writing.result(WAIT)
    there.write_now(add("Ada keeps bees"))
    assert texts(here) == ["Ada keeps bees"]


def test_a_unit_runs_again_after_its_connection_was_lost(
    open_one: Callable[..., PostgresEngine], run_sql: RunSql
) -> None:
    """C2: lost in the middle of a unit, before COMMIT: the first attempt leaves nothing."""
    engine = open_one()
    attempts: list[int] = []
    work = add("Ada keeps bees")

    def lose_it_once(unit: Unit) -> str:
        attempts.append(len(attempts))
        found = work(unit)
        if len(attempts) == 1:
            run_sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
        unit.conversations.forgets(TENANT)
        return found

    engine.write_now(lose_it_once)
    assert (texts(engine), len(attempts)) == (["Ada keeps bees"], 2)


def test_an_error_that_a_unit_hides_does_not_hide_its_loss(open_one: Callable[..., PostgresEngine]) -> None:
    """C2: the server rolls the transaction back, so the write must not be acknowledged."""
    engine = open_one()

    def swallow(unit: Unit) -> str:
        add("Ada keeps bees")(unit)
        session = unit.memories._session  # type: ignore[attr-defined]
        with pytest.raises(AfterturnError):
            session.rows("SELECT 1 / 0")
        return "fine"

    with pytest.raises(AfterturnError, match="division by zero"):
        engine.write_now(swallow)
    alone, other = engine.commit([Write(swallow, at=ADA), Write(add("Ada likes tea"), at=ADA)])
    assert (type(alone.error).__name__, other.error) == ("InvalidInput", None)
    assert texts(engine) == ["Ada likes tea"]


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_whose_answer_was_lost_happens_once(
    url: str, server: PostgresServer, open_one: Callable[..., PostgresEngine], cut: str
) -> None:
    """C2: whether COMMIT reached the server or not, the unit is stored once and acknowledged."""
    attempts: list[int] = []

    def count(unit: Unit) -> int:
        attempts.append(unit.records.next_position(TENANT, SPACE, "talk"))
        return record([], lambda: None)(unit)

    with CommitProxy(server.port) as proxy:
        engine = open_one(url.replace(str(server.port), str(proxy.port)))
        engine.write_now(count)
        proxy.cut = cut
        engine.write_now(count)
        assert proxy.cuts == 1
        assert engine.read_now(lambda unit: unit.records.next_position(TENANT, SPACE, "talk")) == 2
    assert attempts == ([0, 1, 1] if cut == "before" else [0, 1])


def test_a_commit_of_which_nobody_knows_is_not_run_again(
    url: str, server: PostgresServer, open_one: Callable[..., PostgresEngine]
) -> None:
    """C3: the server cannot be asked any more, so the caller gets an error that says so."""
    attempts: list[int] = []

    def count(unit: Unit) -> int:
        attempts.append(len(attempts))
        return record([], lambda: None)(unit)

    with CommitProxy(server.port) as proxy:
        engine = open_one(url.replace(str(server.port), str(proxy.port)), busy_timeout=0.5)
        engine.write_now(count)
        proxy.ends, proxy.cut = True, "after"
        with pytest.raises(StoreUnavailable, match="could not be asked"):
            engine.write_now(count)
    assert attempts == [0, 1]
    assert open_one().read_now(lambda unit: unit.records.next_position(TENANT, SPACE, "talk")) == 2


def test_idle_connections_of_a_server_that_was_restarted_are_replaced(own_server: PostgresServer) -> None:
    """The next read and the next write just work."""
    engine = open_engine(StoreUrl(own_server.url()), Config(), SystemClock())
    try:
        engine.write_now(add("Ada keeps bees"))
        assert texts(engine) == ["Ada keeps bees"]
        own_server.stop()
        own_server.start()
        assert texts(engine) == ["Ada keeps bees"]
        engine.write_now(add("Ada likes tea"))
        assert texts(engine) == ["Ada keeps bees", "Ada likes tea"]
    finally:
        engine.close()


def test_a_session_that_the_server_has_ended_because_it_was_idle_is_replaced(
    url: str, open_one: Callable[..., PostgresEngine], run_sql: Callable[..., list[tuple[Any, ...]]]
) -> None:
    """C2: many servers are set up to end them. The next write and the next read succeed."""
    engine = open_one(f"{url}&options=-c%20idle_session_timeout%3D50ms&application_name=idle_{StoreUrl(url).schema}")
    for text in ("Ada keeps bees", "Ada likes tea"):
        engine.write_now(add(text))
        texts(engine)
        while run_sql(f"SELECT 1 FROM pg_stat_activity WHERE application_name = 'idle_{StoreUrl(url).schema}'"):
            threading.Event().wait(0.02)
    engine.write_now(add("Ada has a cat"))
    assert texts(engine) == ["Ada has a cat", "Ada keeps bees", "Ada likes tea"]


def test_a_server_that_is_away_is_an_error_and_then_works_again(own_server: PostgresServer) -> None:
    """C2: a write that cannot be stored says so soon, and the store recovers by itself."""
    engine = open_engine(StoreUrl(own_server.url()), Config(busy_timeout=0.3), SystemClock())
    try:
        own_server.stop("immediate")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                engine.write_now(add("Ada keeps bees"))
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                texts(engine)
        own_server.start()
        engine.write_now(add("Ada keeps bees"))
        assert texts(engine) == ["Ada keeps bees"]
    finally:
        engine.close()


def test_nothing_acknowledged_is_lost_when_the_server_crashes_under_load(
    own_server: PostgresServer, pool: ThreadPoolExecutor
) -> None:
    """C2, C3: two processes write while the server crashes and comes back, twice; nothing is stored twice either."""
    engines = [open_engine(StoreUrl(own_server.url()), Config(busy_timeout=20.0), SystemClock()) for _ in range(2)]
    acknowledged: list[int] = []
    stop, some = threading.Event(), threading.Semaphore(0)

    def run(number: int) -> None:
        while not stop.is_set():
            acknowledged.append(engines[number].write_now(record([], lambda: None)))
            some.release()

    try:
        running = [pool.submit(run, number) for number in range(2)]
        for _ in range(2):
            for _ in range(10):
                assert some.acquire(timeout=WAIT)
            own_server.stop("immediate")
            own_server.start()
        for _ in range(20):
            assert some.acquire(timeout=WAIT)
        stop.set()
        for each in running:
            each.result(WAIT)
        assert sorted(acknowledged) == list(range(len(acknowledged)))
        stored = engines[0].read_now(lambda unit: unit.records.next_position(TENANT, SPACE, "talk"))
        assert stored == len(acknowledged) >= 40
    finally:
        stop.set()
        for engine in engines:
            engine.close()


async def test_a_cancelled_read_ends_on_the_server_too(url: str, run_sql: RunSql) -> None:
    """L1: a recall that nobody waits for does not keep the server busy, and the next read works."""
    store = PostgresStore(open_engine(StoreUrl(url), Config(), SystemClock()))
    begun, stopped = threading.Event(), threading.Event()

    def sleep(unit: Unit) -> None:
        begun.set()
        try:
            unit.memories._session.rows("SELECT pg_sleep(600)")  # type: ignore[attr-defined]
        except DeadlineExceeded:
            stopped.set()
            raise

    reading = asyncio.ensure_future(store.read(sleep, at=None))
    assert await asyncio.to_thread(begun.wait, WAIT)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await asyncio.to_thread(stopped.wait, WAIT)
    assert await store.read(lambda unit: unit.memories.counts(ADA), at=None) == {}
    await store.close(within=5.0)
    assert run_sql("SELECT query FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'") == []


async def test_a_cancelled_write_is_stored_whole_or_not_at_all(url: str) -> None:
    """§13: one that has begun commits, one that waits never runs, and the connection is used again."""
    store = PostgresStore(open_engine(StoreUrl(url), Config(), SystemClock()))
    begun, go = threading.Event(), threading.Event()
    work = add("Ada keeps bees")

    def slow(unit: Unit) -> str:
        begun.set()
        assert go.wait(WAIT)
        return work(unit)

    first = asyncio.ensure_future(store.write(slow, at=ADA))
    assert await asyncio.to_thread(begun.wait, WAIT)
    second = asyncio.ensure_future(store.write(add("Ada likes tea"), at=ADA))
    await asyncio.sleep(0)
    for writing in (first, second):
        writing.cancel()
    go.set()
    await asyncio.gather(first, second, return_exceptions=True)
    await store.write(add("Ada has a cat"), at=ADA)
    assert texts(store.engine) == ["Ada has a cat", "Ada keeps bees"]
    await store.close(within=5.0)


def test_a_statement_that_the_server_stops_is_an_error_and_the_next_one_works(
    url: str, open_one: Callable[..., PostgresEngine]
) -> None:
    """C2: the timeout of a server or role ends a read and a write; neither is stored in part."""
    engine = open_one(f"{url}&options=-c%20statement_timeout%3D2s")

    def too_slow(unit: Unit) -> None:
        add("Ada keeps bees")(unit)
        unit.memories._session.rows("SELECT pg_sleep(600)")  # type: ignore[attr-defined]

    with pytest.raises(DeadlineExceeded):
        engine.write_now(too_slow)
    with pytest.raises(DeadlineExceeded):
        engine.read_now(lambda unit: unit.memories._session.rows("SELECT pg_sleep(600)"))  # type: ignore[attr-defined]
    engine.write_now(add("Ada likes tea"))
    assert texts(engine) == ["Ada likes tea"]


async def test_closing_does_not_wait_for_a_lock(
    url: str, open_one: Callable[..., PostgresEngine], pool: ThreadPoolExecutor, run_sql: RunSql
) -> None:
    """§13: the write that waits is refused, and nothing of it is stored."""
    here, store = open_one(), PostgresStore(open_one())
    begun, go = threading.Event(), threading.Event()

    def slow(unit: Unit) -> None:
        # Its first statement takes the lock.
        unit.memories.spaces(TENANT)
        begun.set()
        assert go.wait(WAIT)

    holding = pool.submit(here.write_now, slow)
    assert begun.wait(WAIT)
    writing = asyncio.ensure_future(store.write(add("Ada keeps bees"), at=None))
    await asyncio.to_thread(wait_for_lock, run_sql)
    await store.close(within=0.0)
    with pytest.raises((DeadlineExceeded, MemoryClosed)):
        await writing
    go.set()
    holding.result(WAIT)
    assert texts(here) == []


def test_a_forked_child_is_refused_and_leaves_the_parent_alone(open_one: Callable[..., PostgresEngine]) -> None:
    engine = open_one()
    engine.write_now(add("Ada keeps bees"))
    assert texts(engine) == ["Ada keeps bees"]
    child = os.fork()
    if not child:
        try:
            engine.read_now(lambda unit: None)
        except ForkedProcess:
            engine.close()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    engine.write_now(add("Ada likes tea"))
    assert texts(engine) == ["Ada keeps bees", "Ada likes tea"]
