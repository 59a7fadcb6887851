"""Units of several processes at the same moment, held and released by events: what waits, and what goes on."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from afterturn.config import Config, StoreUrl
from afterturn.ports import Unit
from afterturn.runtime.clock import SystemClock
from afterturn.stores.engine import Write, WriteOutcome
from afterturn.stores.postgres.engine import open_engine
from afterturn.testing.entries import admit, operation
from afterturn.types import (
    EmbedderIdentity,
    Job,
    JobQueue,
    Scope,
    Selector,
    Tenant,
    UnitScope,
)

pytestmark = pytest.mark.postgres

TENANT, ADA, BOB = "default", "user:ada", "user:bob"
WAIT = 100.0
R = TypeVar("R")
RunSql = Callable[..., list[tuple[Any, ...]]]


class Held:
    """A unit that stops after its first half, until it is let go."""

    def __init__(self, first: Callable[[Unit], Any], then: Callable[[Unit], Any] = lambda unit: None) -> None:
        self._first, self._then = first, then
        self.attempts = 0
        self.reached, self._go = threading.Event(), threading.Event()

    def __call__(self, unit: Unit) -> Any:
        self.attempts += 1
        found = self._first(unit)
        self.reached.set()
        assert self._go.wait(WAIT)
        self._then(unit)
        return found

    def let_go(self) -> None:
        self._go.set()


class Hosts:
    """Two processes on one store."""

    def __init__(self, url: str, pool: ThreadPoolExecutor, run_sql: RunSql) -> None:
        self.engines = [open_engine(StoreUrl(url), Config(), SystemClock()) for _ in range(2)]
        self._pool, self._run_sql = pool, run_sql

    def start(self, host: int, work: Callable[[Unit], R], *spaces: str) -> "Future[R]":
        return self._pool.submit(self.engines[host].write_now, work, at=Scope(TENANT, spaces) if spaces else None)

    def commit_all(self, host: int, writes: list[Write]) -> list[WriteOutcome]:
        """One call commits all of them, or the first ones if that took long."""
        done: list[WriteOutcome] = []
        while len(done) < len(writes):
            done += self.engines[host].commit(writes[len(done) :])
        return done

    def claim(self, host: int, work: Callable[[Unit], R]) -> "Future[R]":
        return self._pool.submit(self.engines[host].write_now, work, at=JobQueue())

    def wait_until_one_waits(self) -> None:
        gate = threading.Event()
        for _ in range(600):
            if self._run_sql("SELECT 1 FROM pg_locks WHERE NOT granted"):
                return
            gate.wait(0.05)
        raise AssertionError("nobody waits")


@pytest.fixture
def hosts(url: str, run_sql: RunSql) -> Iterator[Hosts]:
    with ThreadPoolExecutor(4) as pool:
        opened = Hosts(url, pool, run_sql)
        yield opened
    for engine in opened.engines:
        engine.close()


def add(text: str, space: str = ADA) -> Callable[[Unit], Any]:
    made, admitted = operation(space=space), admit(text)
    return lambda unit: unit.memories.add(made, admitted).entry


def next_position(unit: Unit) -> int:
    return unit.records.next_position(TENANT, ADA, "talk")


def test_units_of_two_spaces_run_at_the_same_time(hosts: Hosts) -> None:
    """§13: a host that is slow in one space keeps nobody in another one waiting."""
    held = Held(add("Ada keeps bees"))
    slow = hosts.start(0, held, ADA)
    assert held.reached.wait(WAIT)
    assert hosts.start(1, add("Bob likes tea", BOB), BOB).result(WAIT).text == "Bob likes tea"
    assert not slow.done()
    held.let_go()
    slow.result(WAIT)


def test_a_forget_waits_for_writes_of_its_tenant_only(hosts: Hosts) -> None:
    """M2, §13: other tenants have nothing that was learned from it."""
    held = Held(add("Ada keeps bees"))
    slow = hosts.start(0, held, ADA)
    assert held.reached.wait(WAIT)

    def forget(unit: Unit, tenant: str) -> None:
        unit.operations.forget(tenant, BOB, Selector(everything=True), at=1.0)

    hosts.engines[1].write_now(lambda unit: forget(unit, "acme"), at=Tenant("acme"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(hosts.engines[1].write_now, lambda unit: forget(unit, TENANT), at=Tenant(TENANT))
        hosts.wait_until_one_waits()
        assert not waiting.done()
        held.let_go()
        waiting.result(WAIT)
    slow.result(WAIT)


def test_jobs_are_claimed_while_a_space_is_written(hosts: Hosts) -> None:
    """§13: the queue is of all tenants, and its rows protect themselves."""
    hosts.start(0, lambda unit: unit.jobs.add(Job("job", "embed", TENANT, ADA, "{}", 1.0))).result(WAIT)
    held = Held(add("Ada keeps bees"))
    slow = hosts.start(0, held, ADA)
    assert held.reached.wait(WAIT)
    claimed = hosts.engines[1].write_now(
        lambda unit: unit.jobs.claim(["embed"], owner="one", now=2.0, lease=60.0, limit=3), at=JobQueue()
    )
    assert [job.id for job in claimed] == ["job"]
    held.let_go()
    slow.result(WAIT)


def test_locks_are_taken_in_one_order(hosts: Hosts) -> None:
    """§13: whatever the order in which units name their spaces and tenants, also in a shared commit."""
    scopes: list[UnitScope] = [Scope(TENANT, (ADA, BOB)), Scope("acme", (BOB, ADA)), Tenant("other"), JobQueue()]
    reversed_scopes: list[UnitScope] = [
        JobQueue(),
        Tenant("other"),
        Scope("acme", (ADA, BOB)),
        Scope(TENANT, (BOB, ADA)),
    ]
    begin = hosts.engines[0].server.begin_write
    assert begin(scopes) == begin(reversed_scopes)
    # The store, three tenants, two spaces of each of the two that are not locked whole.
    assert begin(scopes).count(b"pg_advisory_xact_lock") == 8


def test_two_spaces_in_opposite_order_do_not_wait_for_each_other(hosts: Hosts) -> None:
    """§13: locks are taken in one order, so no unit has to run again."""
    attempts: list[str] = []

    def run(number: int, *spaces: str) -> None:
        for turn in range(25):
            text = f"statement {number} {turn}"

            def work(unit: Unit, text: str = text) -> None:
                attempts.append(text)
                for space in spaces:
                    unit.memories.add(operation(space=space), admit(text))

            hosts.engines[number].write_now(work, at=Scope(TENANT, spaces))

    threads = [
        threading.Thread(target=run, args=(number, *spaces)) for number, spaces in enumerate([(ADA, BOB), (BOB, ADA)])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert len(attempts) == len(set(attempts)) == 50
    counts = hosts.engines[0].read_now(lambda unit: unit.memories.counts(Scope(TENANT, (ADA, BOB))))
    assert set(counts.values()) == {50}


def test_writes_that_share_a_commit_lock_all_their_spaces(hosts: Hosts) -> None:
    """C2: one unit of the group may be in a space that another process holds."""
    held = Held(add("Ada keeps bees"))
    slow = hosts.start(0, held, ADA)
    assert held.reached.wait(WAIT)
    group = [Write(add("Bob likes tea", BOB), at=Scope(TENANT, (BOB,))), Write(next_position, at=Scope(TENANT, (ADA,)))]
    with ThreadPoolExecutor(1) as pool:
        both = pool.submit(hosts.engines[1].commit, group)
        hosts.wait_until_one_waits()
        held.let_go()
        assert [outcome.error for outcome in both.result(WAIT)] == [None, None]
    slow.result(WAIT)


def test_a_new_embedder_of_two_spaces_is_stored_once(hosts: Hosts) -> None:
    """M3: the first vectors of two spaces, in both of which the embedder is new."""
    embedder = EmbedderIdentity("tiny", "1", 2, True)

    def put(space: str) -> Callable[[Unit], Any]:
        def work(unit: Unit) -> int:
            [key] = unit.index.newest(TENANT, space, limit=1)
            return unit.index.put_vectors(TENANT, space, embedder, [(key, b"\0" * 4)])

        return work

    for space in (ADA, BOB):
        hosts.start(0, add(f"a statement of {space}", space)).result(WAIT)
    held = Held(put(ADA))
    first = hosts.start(0, held, ADA)
    assert held.reached.wait(WAIT)
    second = hosts.start(1, put(BOB), BOB)
    hosts.wait_until_one_waits()
    held.let_go()
    assert [first.result(WAIT), second.result(WAIT)] == [1, 1]
    waiting = hosts.engines[0].read_now(lambda unit: unit.index.waiting(TENANT, embedder))
    assert waiting == 0


def test_a_job_is_claimed_once(hosts: Hosts) -> None:
    """C8: two workers, several jobs at a time."""

    def add_jobs(unit: Unit) -> None:
        for number in range(60):
            unit.jobs.add(Job(f"job{number:03}", "embed", TENANT, ADA, "{}", 1.0))

    hosts.start(0, add_jobs).result(WAIT)
    claimed: list[list[str]] = [[], []]

    def run(number: int) -> None:
        while found := hosts.engines[number].write_now(
            lambda unit: unit.jobs.claim(["embed"], owner=f"owner{number}", now=2.0, lease=60.0, limit=3),
            at=JobQueue(),
        ):
            assert len(found) <= 3
            claimed[number] += [job.id for job in found]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert sorted(claimed[0] + claimed[1]) == [f"job{number:03}" for number in range(60)]


def test_a_claim_leaves_out_what_another_is_claiming(hosts: Hosts) -> None:
    """C8: the second neither waits for the first nor gets the same jobs, and neither gets more than its limit."""

    def add_jobs(unit: Unit) -> None:
        for number in range(12):
            unit.jobs.add(Job(f"job{number:02}", "embed", TENANT, ADA, "{}", 1.0))

    def claim(owner: str) -> Callable[[Unit], list[str]]:
        return lambda unit: [job.id for job in unit.jobs.claim(["embed"], owner=owner, now=2.0, lease=60.0, limit=3)]

    hosts.start(0, add_jobs).result(WAIT)
    held = Held(claim("one"))
    first = hosts.claim(0, held)
    assert held.reached.wait(WAIT)
    second = hosts.claim(1, claim("two")).result(WAIT)
    assert not first.done()
    held.let_go()
    assert len(second) == len(first.result(WAIT)) == 3
    assert not set(second) & set(first.result(WAIT))


def test_a_claim_reads_few_rows_however_many_wait(hosts: Hosts) -> None:
    """C8: it reads the front of each index."""

    def add_jobs(unit: Unit) -> None:
        session = unit._entries.session  # type: ignore[attr-defined]
        session.run("INSERT INTO space (key, tenant, name) SELECT n, 't' || n, 's' FROM generate_series(1, 100) AS n")
        session.run(
            "INSERT INTO job (id, space_key, tenant, kind, payload, run_at, place) SELECT 'j' || n, 1 + n % 100, "
            "'t' || (1 + n % 100), CASE n % 2 WHEN 0 THEN 'embed' ELSE 'review' END, '{}', n, 1 + n / 100 "
            "FROM generate_series(1, 20000) AS n"
        )

    def rows_read(unit: Unit) -> int:
        claimed = unit.jobs.claim(["embed", "rules"], owner="one", now=1e6, lease=60.0, limit=4)
        assert len(claimed) == 4
        assert unit.jobs.due_kinds(["embed", "rules"], now=1e6) == ["embed"]
        session = unit._entries.session  # type: ignore[attr-defined]
        [(rows,)] = session.rows(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables "
            "WHERE relname = 'job' AND schemaname = current_schema()"
        )
        return int(rows)

    hosts.start(0, add_jobs).result(WAIT)
    assert 0 < hosts.start(0, rows_read).result(WAIT) < 200
