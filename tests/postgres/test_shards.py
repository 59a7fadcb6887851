"""Tenants in several stores: finding the bucket, moving a tenant while it is in use, killed in the middle."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

import psycopg
import pytest

from afterturn import blocking
from afterturn.config import Config, StoreUrl, spill_folder
from afterturn.conversation.recording import Recording
from afterturn.conversation.spill import Spill
from afterturn.errors import Conflict, InvalidInput, NotFound, StoreError, StoreLocked, StoreMoved, StoreUnavailable
from afterturn.hosts.cli.app import run
from afterturn.oneshot import recall_once
from afterturn.ports import Unit
from afterturn.runtime.clock import SystemClock
from afterturn.stores.copier import CopySide, StoreCopy, TableDigest, cancel_move, delete_moved
from afterturn.stores.engine import Write
from afterturn.stores.postgres import change_notes
from afterturn.stores.postgres.engine import PostgresEngine, open_to_copy
from afterturn.stores.postgres.shards import (
    Bucket,
    Directory,
    ShardEngine,
    TenantPlacement,
    add_bucket,
    bucket_url,
    cancel_tenant_move,
    move_tenant,
)
from afterturn.stores.sql.moved import FIND_MARKS, HOUSEKEPT, marks
from afterturn.stores.sql.session import Session
from afterturn.stores.sql.tables import Table
from afterturn.testing.entries import admit, operation
from afterturn.text import content_hash
from afterturn.types import Job, JobKind, Message, Tenant, UnitScope
from lab.postgres.server import PostgresServer, free_port
from moved_content import answers, digest_store, fill, open_memory, say
from worker_process import running_worker

pytestmark = pytest.mark.postgres

R = TypeVar("R")
RunSql = Callable[..., list[tuple[Any, ...]]]
CONFIG = Config(synchronous="normal")


@pytest.fixture
def shards(url: str, run_sql: RunSql) -> Iterator[str]:
    """The URL of a directory with the buckets `one` and `two`, in two databases."""
    schema = url.rpartition("=")[2]
    run_sql(f"CREATE DATABASE {schema}_db OWNER memory")
    found = url.replace("schema=", "directory=")
    directory = Directory(StoreUrl(found), CONFIG, SystemClock())
    add_bucket(directory, "one", f"{url}_one", CONFIG, SystemClock())
    second = f"{url.partition('?')[0].rpartition('/')[0]}/{schema}_db?schema=two"
    add_bucket(directory, "two", second, CONFIG, SystemClock())
    yield found
    run_sql(f"DROP SCHEMA {schema}_one CASCADE; DROP SCHEMA {schema} CASCADE")
    run_sql(f"DROP DATABASE {schema}_db WITH (FORCE)")


def find(shards: str) -> Directory:
    return Directory(StoreUrl(shards), CONFIG, SystemClock())


def move(shards: str, tenant: str, to: str, *, progress: Callable[[int, int], None] | None = None) -> int:
    tables = move_tenant(
        find(shards), tenant, to, CONFIG, SystemClock(), progress=progress or (lambda done, total: None)
    )
    assert all(table.is_equal for table in tables)
    return sum(table.source.rows for table in tables)


def content(shards: str, tenant: str, bucket: str) -> list[TableDigest]:
    url = bucket_url(find(shards).bucket(bucket))
    with closing(open_to_copy(url, replace(CONFIG, tenant=tenant), SystemClock())) as engine:
        # The others have keys of embedders, of which each bucket has its own.
        return [table for table in digest_store(engine, tenant) if table.name not in ("embedder", "embedding", "space")]


def other(shards: str, tenant: str) -> str:
    return "two" if find(shards).find(tenant).bucket.name == "one" else "one"


def texts(memory: blocking.Memory) -> list[str]:
    return sorted(entry.text for entry in memory.space("user:ada").list(limit=1000))


def test_tenants_have_buckets_and_keep_them_when_buckets_are_added(shards: str, url: str) -> None:
    tenants = [f"tenant-{number}" for number in range(12)]
    for tenant in tenants[:3]:
        with open_memory(shards, tenant=tenant, background=False) as memory:
            memory.space("user:ada").add(f"I belong to {tenant}")
    before = {tenant: find(shards).find(tenant) for tenant in tenants}
    assert {placement.bucket.name for placement in before.values()} == {"one", "two"}
    add_bucket(find(shards), "three", f"{url}_one_three", CONFIG, SystemClock())
    assert {tenant: find(shards).find(tenant) for tenant in tenants} == before
    for tenant in tenants[:3]:
        with open_memory(shards, tenant=tenant, background=False) as memory:
            assert texts(memory) == [f"I belong to {tenant}"]
        found = recall_once("belong", user="ada", store=shards, config={"tenant": tenant})
        assert [hit.entry.text for hit in found.hits] == [f"I belong to {tenant}"]


def test_a_tenant_is_found_in_a_bucket_that_was_added_meanwhile(shards: str, url: str) -> None:
    class Late(Directory):
        def buckets(self) -> list[Bucket]:
            """The buckets as they were before another process added one, and placed the tenant in it."""
            found = super().buckets()
            find(shards).add(Bucket(2, "three", f"{url}_three"), ["acme"])
            return found

    late = Late(StoreUrl(shards), CONFIG, SystemClock())
    assert late.find("acme") == TenantPlacement(Bucket(2, "three", f"{url}_three"), 0)


def test_tenants_of_a_first_bucket_with_content_stay_in_it(url: str, run_sql: RunSql) -> None:
    """C1: those that were there when it was added, and those that came by its own URL before the second bucket."""
    names = [f"tenant-{number}" for number in range(8)]
    directory = Directory(StoreUrl(url.replace("schema=", "directory=")), CONFIG, SystemClock())
    for number, tenant in enumerate(names):
        with open_memory(f"{url}_one", tenant=tenant, background=False) as memory:
            memory.space("user:ada").add(f"I belong to {tenant}")
        if number == 3:
            add_bucket(directory, "one", f"{url}_one", CONFIG, SystemClock())
    add_bucket(directory, "two", f"{url}_two", CONFIG, SystemClock())
    assert [directory.find(tenant).bucket.name for tenant in names] == ["one"] * 8
    with open_memory(directory.name, tenant=names[0], background=False) as memory:
        assert texts(memory) == [f"I belong to {names[0]}"]
    schema = url.rpartition("=")[2]
    run_sql(f"DROP SCHEMA {schema}_one CASCADE; DROP SCHEMA {schema}_two CASCADE")


def test_a_tenant_moves_there_and_back_with_everything(shards: str) -> None:
    """M1, L6: the same answers; old changes can be undone; the bucket that it left has nothing of it."""
    operations, home, away = fill(shards), find(shards).find("default").bucket.name, other(shards, "default")
    before, asked = content(shards, "default", home), answers(shards)
    for to, left in ((away, home), (home, away)):
        assert move(shards, "default", to) > 100
        assert (content(shards, "default", to), answers(shards)) == (before, asked)
        assert {table.rows for table in content(shards, "default", left)} == {0}
    assert find(shards).find("default").moves == 2
    with open_memory(shards, background=False) as memory:
        memory.space("user:ada").undo(operations["delete"])
        assert "Ada has three hives" in texts(memory)
        assert "Miso" in say(memory, "later", "What food is my cat allergic to?")
    with open_memory(shards, tenant="acme", background=False) as memory:
        assert [entry.text for entry in memory.space("team:support").list()] == ["Jürgen wohnt in Köln"]


@pytest.mark.parametrize("by_worker", [False, True])
def test_a_turn_that_waits_in_a_file_is_stored_in_the_bucket_of_its_tenant(
    shards: str, monkeypatch: pytest.MonkeyPatch, *, by_worker: bool
) -> None:
    """C3: a host of another tenant on the same machine leaves it alone."""
    (acme,), (beta,) = tenants_in(shards, "one", 1), tenants_in(shards, "two", 1)
    spoken = (("user", "Miso belongs to beta."), ("assistant", "Noted."))
    said = tuple(Message(role, text, role, content_hash(text)) for role, text in spoken)
    turn = Recording(beta, "user:ada", "monday", "one", "user:ada", 1.0, 0, "", said, ended_at=2.0)
    waiting = Spill(spill_folder(replace(CONFIG, tenant=beta), StoreUrl(shards)))
    waiting.put(turn)
    with open_memory(shards, tenant=acme) as memory:
        assert memory.drain(within=30.0)
    assert len(waiting.files()) == 1
    if by_worker:
        monkeypatch.setenv("AFTERTURN_STORE", shards)
        assert run(["worker", "--once"]) == 0
    else:
        with open_memory(shards, tenant=beta) as memory:
            assert memory.drain(within=30.0)
    assert waiting.files() == []
    with open_memory(shards, tenant=beta, background=False) as memory:
        assert "Miso belongs to beta." in texts(memory)


def test_an_open_host_follows_its_tenant_there_and_back(shards: str) -> None:
    """C2, M2: what is in memory follows too; what another host forgets there is forgotten here."""
    with open_memory(shards, tenant="acme") as memory, open_memory(shards, tenant="acme") as second:
        say(memory, "one", "My cat Miso is allergic to chicken.")
        for _ in range(2):
            move(shards, "acme", other(shards, "acme"))
            assert "Miso" in say(memory, "two", "What food is my cat allergic to?")
        second.space("user:ada").forget(conversation="one")
        assert "Miso" not in say(memory, "three", "What food is my cat allergic to?")


def test_a_bucket_that_was_left_refuses_the_tenant_and_serves_the_others(shards: str) -> None:
    url = find(shards).find("acme").bucket.url
    with open_memory(shards, tenant="acme", background=False) as memory:
        memory.space("user:ada").add("Moves away")
    with open_memory(url, tenant="stays", background=False) as memory:
        memory.space("user:ada").add("Stays here")
        move(shards, "acme", other(shards, "acme"))
        memory.space("user:ada").add("Still here")
        assert texts(memory) == ["Stays here", "Still here"]
    with pytest.raises(StoreMoved, match=r"'acme' .* was moved to the bucket"):
        open_memory(url, tenant="acme").start()


def tenants_in(shards: str, bucket: str, number: int) -> list[str]:
    """Names of tenants that are placed in a bucket."""
    names = (f"tenant-{count}" for count in itertools.count())
    return list(itertools.islice((name for name in names if find(shards).find(name).bucket.name == bucket), number))


def open_bucket(shards: str, bucket: str, tenant: str) -> PostgresEngine:
    return open_to_copy(bucket_url(find(shards).bucket(bucket)), replace(CONFIG, tenant=tenant), SystemClock())


def copy_to_two(shards: str, tenant: str, *, number: int = 1) -> None:
    """A move that ended after its mark: the tenant lives in the other bucket, and its old rows are still there."""
    mark = json.dumps({"bucket": "two", "number": number})
    with closing(open_bucket(shards, "one", tenant)) as one, closing(open_bucket(shards, "two", tenant)) as two:
        sides = CopySide(one, change_notes), CopySide(two, change_notes)
        tables = StoreCopy(*sides, tenant=tenant, report=lambda done, total: None, mark=mark).run(keep=False)
    assert all(table.is_equal for table in tables)


def test_a_move_leaves_the_rows_of_tenants_that_moved_before(shards: str) -> None:
    """L6: their old rows are deleted in the source while this move notes changes there."""
    acme, beta = tenants_in(shards, "one", 2)
    for tenant in (acme, beta):
        with open_memory(shards, tenant=tenant, background=False) as memory:
            say(memory, "monday", f"My cat Miso belongs to {tenant}.")
            memory.space("user:ada").add(f"I belong to {tenant}")
    copy_to_two(shards, beta)
    before, is_deleted = content(shards, beta, "two"), False

    def delete_old_rows(done: int, total: int) -> None:
        nonlocal is_deleted
        if not is_deleted:
            is_deleted = True
            move(shards, beta, "two")
            with open_memory(shards, tenant=acme, background=False) as memory:
                memory.space("user:ada").add("Written meanwhile")

    move(shards, acme, "two", progress=delete_old_rows)
    assert is_deleted
    assert content(shards, beta, "two") == before
    assert {table.rows for table in content(shards, beta, "one")} == {0}
    with open_memory(shards, tenant=acme, background=False) as memory:
        assert {f"I belong to {acme}", "Written meanwhile"} <= set(texts(memory))


def test_two_tenants_move_in_opposite_directions_at_the_same_time(shards: str) -> None:
    """C2: the second one moves during the last step of the first."""
    (acme,), (beta,) = tenants_in(shards, "one", 1), tenants_in(shards, "two", 1)
    for tenant in (acme, beta):
        with open_memory(shards, tenant=tenant, background=False) as memory:
            memory.space("user:ada").add(f"I belong to {tenant}")
    last, comparisons = 0, 0

    def move_back(done: int, total: int) -> None:
        """At the first report of the comparison, which counts from the beginning."""
        nonlocal last, comparisons
        if done <= last:
            comparisons += 1
            # A last step whose transaction waited for too long, and was ended by the server, runs again.
            assert comparisons == 1
            move(shards, acme, "two")
        last = done

    move(shards, beta, "one", progress=move_back)
    assert comparisons == 1
    assert [find(shards).find(tenant).bucket.name for tenant in (acme, beta)] == ["two", "one"]
    for tenant in (acme, beta):
        with open_memory(shards, tenant=tenant, background=False) as memory:
            assert texts(memory) == [f"I belong to {tenant}"]


class Busy:
    """An engine before whose every write another tenant writes something."""

    def __init__(self, engine: PostgresEngine, write: Callable[[], object]) -> None:
        self.name = engine.name
        self.read_now = engine.read_now
        self.writes = 0
        self._engine = engine
        self._write = write

    def write_now(self, work: Callable[[Unit], R], *, at: UnitScope = None) -> R:
        self.writes += 1
        assert self.writes < 100
        self._write()
        return self._engine.write_now(work, at=at)


def test_the_last_step_ends_while_another_tenant_writes(shards: str) -> None:
    acme, beta = tenants_in(shards, "one", 2)
    with open_memory(shards, tenant=acme, background=False) as memory:
        memory.space("user:ada").add("Moves away")
    with (
        open_memory(shards, tenant=beta, background=False) as other_memory,
        closing(open_bucket(shards, "one", acme)) as one,
        closing(open_bucket(shards, "two", acme)) as two,
    ):
        numbers = itertools.count()
        busy = Busy(two, lambda: other_memory.space("user:ada").add(f"Stays here {next(numbers)}"))
        sides = CopySide(one, change_notes), CopySide(busy, change_notes)
        mark = json.dumps({"bucket": "two", "number": 1})
        tables = StoreCopy(*sides, tenant=acme, report=lambda done, total: None, mark=mark).run(keep=False)
        assert all(table.is_equal for table in tables)
        assert len(texts(other_memory)) == busy.writes


WRITER = """
import sys
from moved_content import open_memory, say
with open_memory(sys.argv[1], tenant=sys.argv[2]) as memory:
    for number in range(int(sys.argv[4])):
        if number == 1:
            sys.stdin.readline()
        say(memory, f"{sys.argv[3]}-{number % 3}", f"Note {sys.argv[3]} {number} is about bees.")
        memory.space("user:ada").add(f"Fact {sys.argv[3]} {number}")
        print(number, flush=True)
    assert memory.drain(within=60.0)
"""


def start_writer(shards: str, tenant: str, name: str, turns: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, shards, tenant, name, str(turns)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))},
    )


def test_two_hosts_that_write_during_moves_lose_nothing_and_write_nothing_twice(shards: str) -> None:
    """C2, C3: no error reaches a turn or a verb, and another tenant goes on."""
    writers = [start_writer(shards, tenant, name, 12) for tenant, name in (("acme", "a"), ("acme", "b"), ("else", "c"))]
    lines: list[list[str]] = [[], [], []]

    def read_lines() -> None:
        for writer, read in zip(writers, lines, strict=True):
            assert writer.stdout is not None
            read.append(writer.stdout.readline())

    def go_on(done: int, total: int) -> None:
        """At the first report of the first move, which goes on when each host has written once more."""
        if len(lines[0]) == 1:
            for writer in writers:
                assert writer.stdin is not None
                writer.stdin.write("\n")
                writer.stdin.flush()
            read_lines()

    read_lines()
    moves = 0
    while moves == 0 or (any(writer.poll() is None for writer in writers[:2]) and moves < 4):
        move(shards, "acme", other(shards, "acme"), progress=go_on)
        moves += 1
    assert lines == [["0\n", "1\n"]] * 3
    for writer in writers:
        writer.communicate(timeout=120)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    for tenant, names in (("acme", "ab"), ("else", "c")):
        with open_memory(shards, tenant=tenant, background=False) as memory:
            found = texts(memory)
        for name in names:
            for number in range(12):
                assert found.count(f"Fact {name} {number}") == 1
                assert found.count(f"Note {name} {number} is about bees.") == 1


KILLED = """
import os, signal, sys
from afterturn.config import Config, StoreUrl, spill_folder
from afterturn.conversation.recording import Recording
from afterturn.conversation.spill import Spill
from afterturn.runtime.clock import SystemClock
from afterturn.stores.postgres.shards import Directory, move_tenant
calls = 0
def report(done, total):
    global calls
    calls += 1
    if calls == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
class Killed(Directory):
    def place(self, *where):
        os.kill(os.getpid(), signal.SIGKILL)
directory = Killed(StoreUrl(sys.argv[1]), Config(), SystemClock())
move_tenant(directory, sys.argv[2], sys.argv[3], Config(), SystemClock(), progress=report)
"""


@pytest.mark.parametrize("call", [3, 20, 0])
def test_a_killed_move_can_be_run_again(shards: str, call: int) -> None:
    """C2: killed while it copies, while it compares, and before the directory knows; hosts go on in each case."""
    fill(shards, turns=2)
    to = other(shards, "default")
    command = [sys.executable, "-c", KILLED, shards, "default", to, str(call)]
    assert subprocess.run(command, timeout=60, check=False).returncode == -signal.SIGKILL
    with open_memory(shards, background=False) as memory:
        memory.space("user:ada").add("Written after the kill")
        before = texts(memory)
        move(shards, "default", to)
        assert texts(memory) == before
    assert find(shards).find("default").bucket.name == to
    with open_memory(shards, background=False) as memory:
        assert texts(memory) == before


def test_a_host_uses_the_other_bucket_only_when_it_is_open(shards: str) -> None:
    """C2: until then writes go to the bucket that was left, which refuses them."""
    (acme,) = tenants_in(shards, "one", 1)
    config = replace(CONFIG, tenant=acme, busy_timeout=0.01)
    with open_memory(shards, tenant=acme, background=False) as memory:
        memory.space("user:ada").add("Moves away")
    write = Write(lambda unit: unit.jobs.retry(acme, now=1.0), at=Tenant(acme))
    with (
        closing(ShardEngine(find(shards), config, SystemClock())) as host,
        closing(open_bucket(shards, "two", acme)) as two,
    ):
        copy_to_two(shards, acme)
        left = host.current

        def hold(unit: Unit) -> None:
            unit.jobs.retry(acme, now=1.0)
            with pytest.raises(StoreLocked):
                host.commit([write])
            assert host.current is left

        two.write_now(hold, at=Tenant(acme))
        # A write that nobody waits for any more has no outcome to go by.
        unwanted, done = host.commit([Write(write.work, lambda: False, write.at), write])
        assert (unwanted.skipped, done.error) == (True, None)
        assert host.current.name == two.name


def test_a_bucket_is_added_when_its_keys_begin_at_a_number_of_their_own(shards: str, url: str, run_sql: RunSql) -> None:
    """L6: a program that ends before that leaves no bucket whose keys another one has."""
    schema, keys = f"{url.rpartition('=')[2]}_three", []

    class Watched(Directory):
        def add(self, bucket: Bucket, tenants: Sequence[str] = ()) -> None:
            keys.extend(run_sql(f"SELECT nextval(pg_get_serial_sequence('{schema}.entry', 'key'))"))
            super().add(bucket, tenants)

    watched = Watched(StoreUrl(shards), CONFIG, SystemClock())
    add_bucket(watched, "three", f"{url}_three", CONFIG, SystemClock())
    run_sql(f"DROP SCHEMA {schema} CASCADE")
    assert keys == [((2 << 40) + 1,)]


def test_a_move_that_has_not_ended_can_be_given_up(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """L6: what was copied is deleted, and the bucket can be left by others; a move that has ended is not given up."""
    monkeypatch.setenv("AFTERTURN_STORE", shards)
    acme, beta = tenants_in(shards, "one", 2)
    for tenant in (acme, beta):
        with open_memory(shards, tenant=tenant, background=False) as memory:
            memory.space("user:ada").add(f"I belong to {tenant}")

    def stop(done: int, total: int) -> None:
        if done == total:
            raise StoreError("Stopped.")

    with pytest.raises(StoreError, match="Stopped"):
        move(shards, acme, "two", progress=stop)
    assert {table.rows for table in content(shards, acme, "two")} != {0}
    with pytest.raises(StoreError, match="being copied to another place"):
        move(shards, beta, "two")
    assert run(["shards", "move", acme, "two", "--cancel"]) == 0
    assert {table.rows for table in content(shards, acme, "two")} == {0}
    copy_to_two(shards, beta)
    for tenant in (acme, beta):
        assert run(["shards", "move", tenant, "two", "--cancel"]) != 0
        move(shards, tenant, "two")
        with open_memory(shards, tenant=tenant, background=False) as memory:
            assert texts(memory) == [f"I belong to {tenant}"]


class Paused:
    """An engine that waits before a write of this name, until others have done something."""

    def __init__(self, engine: PostgresEngine, name: str, meanwhile: Callable[[], object], *, after: int = 0) -> None:
        self.name = engine.name
        self.read_now = engine.read_now
        self._engine = engine
        self._waits_before = name
        self._after = after
        self._meanwhile = meanwhile

    def write_now(self, work: Callable[[Unit], R], *, at: UnitScope = None) -> R:
        if work.__name__ == self._waits_before:
            self._after -= 1
            if self._after < 0:
                self._meanwhile()
        return self._engine.write_now(work, at=at)


def test_a_move_that_was_paused_writes_nothing_to_a_bucket_in_use(shards: str) -> None:
    """C2, M1: another process finishes the move meanwhile; what was forgotten since then does not come back."""
    (acme,) = tenants_in(shards, "one", 1)
    with open_memory(shards, tenant=acme, background=False) as memory:
        memory.space("user:ada").add("Moves away")

    def finish() -> None:
        move(shards, acme, "two")
        with open_memory(shards, tenant=acme, background=False) as memory:
            memory.space("user:ada").forget(everything=True)
            memory.space("user:ben").add("Written afterwards")

    with closing(open_bucket(shards, "one", acme)) as one, closing(open_bucket(shards, "two", acme)) as two:
        # The rows of the table `entry` are read, and not stored yet.
        paused = Paused(two, "store", finish, after=1)
        sides = CopySide(one, change_notes), CopySide(paused, change_notes)
        mark = json.dumps({"bucket": "two", "number": 1})
        with pytest.raises(StoreError, match="Another process has finished"):
            StoreCopy(*sides, tenant=acme, report=lambda done, total: None, mark=mark).run(keep=False)
    with open_memory(shards, tenant=acme, background=False) as memory:
        assert texts(memory) == []
        assert [entry.text for entry in memory.space("user:ben").list()] == ["Written afterwards"]


def test_a_move_that_was_paused_deletes_nothing_of_a_tenant_that_came_back(shards: str, run_sql: RunSql) -> None:
    """C2: neither while the tenant is copied back, nor afterwards, nor when it leaves a second time."""
    (acme,) = tenants_in(shards, "one", 1)
    with open_memory(shards, tenant=acme, background=False) as memory:
        memory.space("user:ada").add("Moves there and back")
    first = json.dumps({"bucket": "two", "number": 1})

    def wake(done: int = 0, total: int = 0) -> None:
        with closing(open_bucket(shards, "one", acme)) as one:
            delete_moved(CopySide(one, change_notes), acme, first)

    move(shards, acme, "two")
    move(shards, acme, "one", progress=wake)
    meta, due = f"{bucket_url(find(shards).bucket('one')).schema}.meta", f"{HOUSEKEPT}/{acme}"
    run_sql(f"INSERT INTO {meta} (key, value) VALUES ('{due}', '1')")
    wake()
    with open_memory(shards, tenant=acme, background=False) as memory:
        assert texts(memory) == ["Moves there and back"]
    assert run_sql(f"SELECT value FROM {meta} WHERE key = '{due}'") == [("1",)]
    copy_to_two(shards, acme, number=3)
    before = content(shards, acme, "one")
    wake()
    assert content(shards, acme, "one") == before


def test_a_move_that_was_paused_opens_no_bucket_that_was_left_since(shards: str) -> None:
    """C2: the mark of a later move stays."""
    (acme,) = tenants_in(shards, "one", 1)
    with open_memory(shards, tenant=acme, background=False) as memory:
        memory.space("user:ada").add("Moves there and back")
    with closing(open_bucket(shards, "one", acme)) as one, closing(open_bucket(shards, "two", acme)) as two:
        paused = Paused(two, "open_target", lambda: [move(shards, acme, bucket) for bucket in ("two", "one")])
        sides = CopySide(one, change_notes), CopySide(paused, change_notes)
        mark = json.dumps({"bucket": "two", "number": 1})
        StoreCopy(*sides, tenant=acme, report=lambda done, total: None, mark=mark).run(keep=False)
        refused = two.read_now(lambda unit: unit.memories._session.row(FIND_MARKS, marks(acme)))  # type: ignore[attr-defined]
    assert refused is not None
    with open_memory(shards, tenant=acme, background=False) as memory:
        assert texts(memory) == ["Moves there and back"]


def test_a_move_can_be_given_up_while_it_runs(shards: str) -> None:
    """C2: it leaves nothing in the other bucket, and can be made again."""
    (acme,) = tenants_in(shards, "one", 1)
    with open_memory(shards, tenant=acme, background=False) as memory:
        memory.space("user:ada").add("Stays here")
    calls = 0

    def cancel(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            cancel_tenant_move(find(shards), acme, "two", CONFIG, SystemClock())

    with pytest.raises(StoreError):
        move(shards, acme, "two", progress=cancel)
    assert {table.rows for table in content(shards, acme, "two")} == {0}
    move(shards, acme, "two")
    with open_memory(shards, tenant=acme, background=False) as memory:
        assert texts(memory) == ["Stays here"]


class LockedNotes:
    """Triggers that cannot be removed, because others read the tables."""

    note_changes = staticmethod(change_notes.note_changes)
    settle_keys = staticmethod(change_notes.settle_keys)

    def forget_changes(self, session: Session, table: Table) -> None:
        raise StoreLocked("Others read.")


def test_a_move_after_an_interrupted_cancel_does_not_take_the_target_for_complete(shards: str) -> None:
    """C2: the tenant stays in its bucket until the move was given up as a whole."""
    (acme,) = tenants_in(shards, "one", 1)
    with open_memory(shards, tenant=acme, background=False) as memory:
        memory.space("user:ada").add("Moves away")

    def stop(done: int, total: int) -> None:
        if done == total:
            raise StoreError("Stopped.")

    with pytest.raises(StoreError, match="Stopped"):
        move(shards, acme, "two", progress=stop)
    with (
        closing(open_bucket(shards, "one", acme)) as one,
        closing(open_bucket(shards, "two", acme)) as two,
        pytest.raises(StoreLocked),
    ):
        cancel_move(CopySide(one, LockedNotes()), CopySide(two, change_notes), acme)
    with pytest.raises(StoreError, match=r"shards move --cancel"):
        move(shards, acme, "two")
    assert find(shards).find(acme).bucket.name == "one"
    cancel_tenant_move(find(shards), acme, "two", CONFIG, SystemClock())
    assert move(shards, acme, "two") > 0
    with open_memory(shards, tenant=acme, background=False) as memory:
        assert texts(memory) == ["Moves away"]


def test_the_end_of_a_move_lets_readers_pass_behind_a_long_reader(
    shards: str, server: PostgresServer, run_sql: RunSql
) -> None:
    """Removing a trigger waits for all readers of its table, and new readers wait behind it."""
    (acme,) = tenants_in(shards, "one", 1)
    with open_memory(shards, tenant=acme, background=False) as memory:
        memory.space("user:ada").add("Moves away")
    table = f"{bucket_url(find(shards).bucket('one')).schema}.entry"
    waits = f"SELECT 1 FROM pg_locks WHERE relation = '{table}'::regclass AND NOT granted"
    patient = replace(CONFIG, busy_timeout=60.0)
    administrator = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
    with ThreadPoolExecutor(1) as mover, psycopg.connect(administrator) as long_reader:
        long_reader.execute(f"SELECT 1 FROM {table}".encode())
        moving = mover.submit(
            move_tenant, find(shards), acme, "two", patient, SystemClock(), progress=lambda done, total: None
        )
        while not run_sql(waits):
            assert not moving.done()
        run_sql(f"SET statement_timeout = '20s'; SELECT 1 FROM {table}")
        assert not moving.done()
        long_reader.rollback()
        assert all(one.is_equal for one in moving.result(timeout=60.0))
    assert find(shards).find(acme).bucket.name == "two"


def test_a_move_reads_no_rows_of_a_large_tenant_in_the_same_bucket(shards: str, run_sql: RunSql) -> None:
    """Also on a server that cannot skip the first column of an index: each vector has another embedder."""
    (acme,) = tenants_in(shards, "one", 1)
    with open_memory(shards, tenant=acme) as memory:
        say(memory, "monday", "My cat Miso is allergic to chicken.")
        assert memory.drain(within=30.0)
    schema = bucket_url(find(shards).bucket("one")).schema
    run_sql(f"""
        SET search_path TO {schema};
        INSERT INTO space (key, tenant, name) SELECT n, 'large', n FROM generate_series(1000, 1199) AS n;
        INSERT INTO conversation (key, space_key, id, opened_at, active_at)
            SELECT n, n, 'long', 0, 0 FROM generate_series(1000, 1199) AS n;
        INSERT INTO embedding SELECT n, 1000 + n % 200, n, '' FROM generate_series(1000, 20999) AS n;
        INSERT INTO turn (tenant, conversation_key, id, status, started_at, touched_at, user_hash)
            SELECT 'large', 1000 + n % 200, n, 'recorded', 0, 0, '' FROM generate_series(1000, 20999) AS n;
        INSERT INTO job (id, space_key, tenant, kind, payload, run_at, state)
            SELECT n, 1000 + n % 200, 'large', 'review', '', 0, 'failed' FROM generate_series(1000, 20999) AS n;
        ANALYZE space, conversation, embedding, turn, job""")

    def rows_read() -> dict[str, int]:
        # A session adds its numbers before it is gone.
        while run_sql("SELECT 1 FROM pg_stat_activity WHERE application_name = 'afterturn'"):
            continue
        rows = run_sql(f"""SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
            FROM pg_stat_user_tables WHERE schemaname = '{schema}' AND relname IN ('embedding', 'turn', 'job')""")
        return dict(rows)

    before = rows_read()
    assert move(shards, acme, "two") > 0
    assert {name: rows - before[name] for name, rows in rows_read().items() if rows - before[name] > 1000} == {}


def test_wrong_buckets_and_directories_are_refused(
    shards: str, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = find(shards)
    with pytest.raises(NotFound, match="There is no bucket 'ten'"):
        move(shards, "acme", "ten")
    with pytest.raises(Conflict, match="already"):
        add_bucket(directory, "one", f"{url}_one", CONFIG, SystemClock())
    with pytest.raises(InvalidInput, match="not a store on a server"):
        add_bucket(directory, "file", "memory.db", CONFIG, SystemClock())
    with open_memory(directory.bucket("two").url, background=False) as memory:
        memory.space("user:ada").add("Here already")
    with pytest.raises(StoreError, match="has content"):
        add_bucket(directory, "three", directory.bucket("two").url, CONFIG, SystemClock())
    with pytest.raises(StoreUnavailable, match="no bucket yet"):
        open_memory(f"{shards}_empty").start()
    monkeypatch.setenv("AFTERTURN_STORE", shards)
    assert run(["shards", "list"]) == 0
    assert "two" in capsys.readouterr().out
    assert run(["shards", "move", "acme", other(shards, "acme")]) == 0
    assert run(["shards", "list", "--store", "memory.db"]) == 2
    assert run(["migrate", shards, "copy.db"]) == 2


# The command, with pauses that a test can wait for.
WORKER = """
import afterturn.hosts.cli.commands.worker as worker
worker.DIRECTORY_EVERY = worker.RETRY_AFTER = 0.2
from afterturn.hosts.cli import main
main()
"""


def add_jobs(shards: str, bucket: str, count: int) -> None:
    """Statements without vectors in the space of as many tenants, and a job for each."""

    def work(unit: Unit) -> None:
        for number in range(count):
            tenant = f"{bucket}-{number:03d}"
            unit.memories.add(operation(tenant=tenant, space="user:ada"), admit(f"Number {number} keeps bees"))
            unit.jobs.add(Job(tenant, JobKind.EMBED, tenant, "user:ada", "{}", 1.0))

    with closing(open_bucket(shards, bucket, "none")) as engine:
        engine.write_now(work)


def open_jobs(shards: str, bucket: str) -> int:
    with closing(open_bucket(shards, bucket, "none")) as engine:
        return sum(engine.read_now(lambda unit: unit.jobs.counts(None)).values())


def wait(condition: Callable[[], object], *, within: float = 90.0) -> None:
    gate = threading.Event()
    for _ in range(int(within / 0.05)):
        if condition():
            return
        gate.wait(0.05)
    raise AssertionError("it did not happen")


def test_one_worker_serves_every_bucket(shards: str) -> None:
    """C8, M4: jobs and housekeeping, also in the bucket that the tenant of its settings has left."""
    with open_memory(shards, background=False) as memory:
        memory.space("user:ada").add("Moves away")
    for _ in range(2):
        move(shards, "default", other(shards, "default"))
    for bucket in ("one", "two"):
        add_jobs(shards, bucket, 3)
    with running_worker(WORKER, shards, "--status", "--json") as status:
        assert json.loads(status.communicate(timeout=60)[0])["waiting"] >= 6
    with running_worker(WORKER, shards, "--once", "--json") as worker:
        said = worker.communicate(timeout=120)
    assert worker.returncode == 0, said
    assert json.loads(said[0])["done"] >= 6
    assert [open_jobs(shards, bucket) for bucket in ("one", "two")] == [0, 0]
    for bucket in ("one", "two"):
        with closing(open_bucket(shards, bucket, "none")) as engine:
            # An hour later.
            assert engine.read_now(lambda unit: unit.jobs.due_tenants(now=SystemClock().now(), limit=9)) == []


def test_no_bucket_waits_for_another(shards: str, url: str, run_sql: RunSql) -> None:
    """C8: not for its many jobs, nor for its server; a bucket that is added is served, too."""
    schema = url.rpartition("=")[2]
    lost = f"postgresql://memory@127.0.0.1:{free_port()}/postgres?schema=lost"
    run_sql(f"INSERT INTO {schema}.bucket (number, name, url) VALUES (7, 'lost', '{lost}')")
    add_jobs(shards, "one", 300)
    with running_worker(WORKER, shards) as worker:
        wait(lambda: open_jobs(shards, "one") < 300)
        add_jobs(shards, "two", 1)
        add_bucket(find(shards), "three", f"{url}_one_three", CONFIG, SystemClock())
        add_jobs(shards, "three", 1)
        wait(lambda: open_jobs(shards, "two") + open_jobs(shards, "three") == 0)
        left = open_jobs(shards, "one")
        wait(lambda: open_jobs(shards, "one") == 0)
        worker.terminate()
        said = worker.communicate(timeout=60)
    run_sql(f"DROP SCHEMA {schema}_one_three CASCADE")
    assert left > 0
    assert worker.returncode == 0, said
    assert "the bucket lost is tried again" in said[1]
    assert "Traceback" not in said[1]
