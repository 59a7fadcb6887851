"""Shards: tenants spread over several stores, the buckets, by a directory in a database or in a file.

A bucket is a whole store in a schema of some server. Its keys begin at a number of its own, so that a tenant's rows can
move to another bucket as they are. A tenant has one bucket; while it moves, `ShardEngine` waits and then follows it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import sql

from afterturn.config import Config, StoreUrl, find_store
from afterturn.errors import Conflict, InvalidInput, MemoryClosed, NotFound, StoreError, StoreLocked, StoreUnavailable
from afterturn.ports import Clock, Unit
from afterturn.runtime.files import replace_file
from afterturn.stores.copier import ComparedTable, CopySide, StoreCopy, cancel_move, delete_moved
from afterturn.stores.engine import Progress, ReadCall, Write, WriteOutcome
from afterturn.stores.keys import KeyRing
from afterturn.stores.postgres import change_notes
from afterturn.stores.postgres.connection import StoreServer
from afterturn.stores.postgres.engine import READERS, PostgresEngine, open_engine, open_to_copy
from afterturn.stores.postgres.engine import read_once as read_bucket
from afterturn.stores.postgres.errors import translate
from afterturn.stores.postgres.session import PgConnection
from afterturn.stores.sql.moved import MOVED, NotComplete, TenantMoved, marks
from afterturn.stores.sql.sealing import check_keys
from afterturn.stores.sql.session import find_meta
from afterturn.stores.sql.tables import TABLES
from afterturn.stores.sql.unit import sql_session
from afterturn.types import RemainingBytes, Tenant, UnitScope

R = TypeVar("R")
# How many keys each bucket has for itself: a trillion, and eight million buckets.
_KEYS_BITS = 40
# A tenant's last step of a move is short; a bucket that opens another one takes as long as a connection.
_FOLLOW_TRIES_MAX = 200
_FOLLOW_PAUSE = 0.1
_MOVES_MAX = 10


class Bucket(NamedTuple):
    number: int
    name: str
    url: str


class TenantPlacement(NamedTuple):
    """Where a tenant is. `moves` counts how often it was moved."""

    bucket: Bucket
    moves: int


class Directory:
    """The buckets, and the bucket of each tenant. Connects for each question: it is asked when a tenant is opened."""

    def __init__(self, url: StoreUrl, config: Config, clock: Clock) -> None:
        assert url.directory is not None
        self.name = str(url)
        self._server = StoreServer(url, config, clock)
        self._schema = sql.Identifier(url.directory)

    def buckets(self) -> list[Bucket]:
        with self._connected() as connection:
            if not self._is_there(connection):
                return []
            rows = self._run(connection, "SELECT number, name, url FROM {}.bucket ORDER BY number").fetchall()
        return [Bucket(*row) for row in rows]

    def tenants(self) -> list[tuple[str, str, int]]:
        """Each tenant that was opened, its bucket, and how often it was moved."""
        with self._connected() as connection:
            if not self._is_there(connection):
                return []
            return self._run(connection, "SELECT tenant, bucket, moves FROM {}.tenant ORDER BY tenant").fetchall()

    def bucket(self, name: str) -> Bucket:
        found = {bucket.name: bucket for bucket in self.buckets()}
        if name not in found:
            raise NotFound(f"There is no bucket {name!r} in {self.name}. Known: {', '.join(found) or 'none'}.")
        return found[name]

    def add(self, bucket: Bucket, tenants: Sequence[str] = ()) -> None:
        """Creates the directory, if it is the first bucket. Its tenants stay in it."""
        with self._connected() as connection:
            if not self._is_there(connection):
                for statement in _DIRECTORY:
                    self._run(connection, statement)
            # Together: another host may open one of them as soon as the bucket is known.
            with connection.transaction():
                row = self._run(
                    connection,
                    "INSERT INTO {}.bucket (number, name, url) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING "
                    "RETURNING number",
                    bucket,
                ).fetchone()
                if row is not None:
                    self._settle(connection, bucket.name, tenants)
        if row is None:
            raise Conflict(f"Another bucket was added to {self.name} at the same time. Add {bucket.name!r} again.")

    def settle(self, bucket: str, tenants: Sequence[str]) -> None:
        """Notes that new tenants are in this bucket."""
        with self._connected() as connection:
            self._settle(connection, bucket, tenants)

    def _settle(self, connection: PgConnection, bucket: str, tenants: Sequence[str]) -> None:
        self._run(
            connection,
            "INSERT INTO {}.tenant (tenant, bucket) SELECT unnest(%s::text[]), %s ON CONFLICT DO NOTHING",
            (list(tenants), bucket),
        )

    def find(self, tenant: str) -> TenantPlacement:
        """The tenant's bucket. A new tenant gets one by a hash of its name, and keeps it when buckets are added."""
        buckets = sorted(bucket.name for bucket in self.buckets())
        if not buckets:
            raise StoreUnavailable(f"{self.name} has no bucket yet. Add one with `afterturn shards add NAME URL`.")
        chosen = buckets[_hash(tenant) % len(buckets)]
        with self._connected() as connection:
            row = self._run(connection, _FIND, (tenant,)).fetchone()
            if row is None:
                self._settle(connection, chosen, [tenant])
                row = self._run(connection, _FIND, (tenant,)).fetchone()
        assert row is not None
        return TenantPlacement(Bucket(*row[:3]), row[3])

    def place(self, tenant: str, bucket: str, moves: int) -> None:
        """Notes a finished move, unless a later one is noted already."""
        with self._connected() as connection:
            self._run(
                connection,
                "UPDATE {}.tenant SET bucket = %s, moves = %s WHERE tenant = %s AND moves < %s",
                (bucket, moves, tenant, moves),
            )

    @contextmanager
    def _connected(self) -> Iterator[PgConnection]:
        connection = self._server.open()
        try:
            yield connection
        except psycopg.Error as error:
            raise translate(error, self.name) from error
        finally:
            connection.close()

    def _is_there(self, connection: PgConnection) -> bool:
        table = sql.SQL("{}.tenant").format(self._schema).as_string(connection)
        return bool(connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table,)).fetchall()[0][0])

    def _run(
        self, connection: PgConnection, statement: str, values: Sequence[Any] = ()
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        return connection.execute(sql.SQL(statement).format(*[self._schema] * statement.count("{}")), values)  # type: ignore[arg-type]


# With the bucket: it may have been added since the others were read.
_FIND = "SELECT number, name, url, moves FROM {}.tenant JOIN {}.bucket ON name = bucket WHERE tenant = %s"
_DIRECTORY = (
    "CREATE SCHEMA IF NOT EXISTS {}",
    "CREATE TABLE IF NOT EXISTS {}.bucket (number BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, "
    "url TEXT NOT NULL UNIQUE)",
    "CREATE TABLE IF NOT EXISTS {}.tenant (tenant TEXT PRIMARY KEY, bucket TEXT NOT NULL REFERENCES {}.bucket (name), "
    "moves BIGINT NOT NULL DEFAULT 0)",
)


class FileDirectory(Directory):
    """The same in a file of JSON, which is read for each question:

        {"buckets": {"one": {"number": 0, "url": "postgresql://…"}}, "tenants": {"acme": "one"}}

    A tenant has the name of its bucket, or {"bucket": "two", "moves": 1} when it was moved. New tenants are not placed:
    a host must not decide that for others, who may have another copy of the file.
    """

    def __init__(self, url: StoreUrl) -> None:
        assert url.directory is not None
        self.name = str(url)
        self._path = Path(url.directory)

    def buckets(self) -> list[Bucket]:
        return sorted(Bucket(one["number"], name, one["url"]) for name, one in self._read()["buckets"].items())

    def tenants(self) -> list[tuple[str, str, int]]:
        return sorted((tenant, *_placed(placed)) for tenant, placed in self._read()["tenants"].items())

    def add(self, bucket: Bucket, tenants: Sequence[str] = ()) -> None:
        with self._changed() as content:
            if any(bucket.name == name or bucket.number == one["number"] for name, one in content["buckets"].items()):
                raise Conflict(f"Another bucket was added to {self.name} at the same time. Add {bucket.name!r} again.")
            content["buckets"][bucket.name] = {"number": bucket.number, "url": bucket.url}
            content["tenants"] = {**dict.fromkeys(tenants, bucket.name), **content["tenants"]}

    def settle(self, bucket: str, tenants: Sequence[str]) -> None:
        with self._changed() as content:
            content["tenants"] = {**dict.fromkeys(tenants, bucket), **content["tenants"]}

    def find(self, tenant: str) -> TenantPlacement:
        """Raises StoreUnavailable for a tenant that is not listed."""
        placed = self._read()["tenants"].get(tenant)
        if placed is None:
            if not self._path.exists():
                raise StoreUnavailable(f"There is no file {self._path}. `afterturn shards add` creates it.")
            raise StoreUnavailable(
                f'The tenant {tenant!r} is not in the directory {self._path}. Add it to "tenants" with its bucket.'
            )
        bucket, moves = _placed(placed)
        return TenantPlacement(self.bucket(bucket), moves)

    def place(self, tenant: str, bucket: str, moves: int) -> None:
        try:
            with self._changed() as content:
                if _placed(content["tenants"].get(tenant, ""))[1] < moves:
                    content["tenants"][tenant] = {"bucket": bucket, "moves": moves}
        except StoreError as error:
            raise StoreError(
                f"{tenant!r} is in the bucket {bucket!r} now, and hosts follow it there. But the directory does not "
                f'say so: {error} Write {{"bucket": "{bucket}", "moves": {moves}}} for this tenant there.'
            ) from error

    def _read(self) -> dict[str, Any]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {"buckets": {}, "tenants": {}}
        except OSError as error:
            raise StoreUnavailable(f"The directory {self._path} cannot be read: {error.strerror}.") from error
        try:
            content = json.loads(text)
            for one in content["buckets"].values():
                int(one["number"]), str(one["url"])
            for placed in content["tenants"].values():
                _placed(placed)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            # Without the content, which may have a password.
            raise StoreUnavailable(
                f"{self._path} is not a directory of shards ({type(error).__name__}). Correct it: docs/postgres.md "
                "shows what it has."
            ) from None
        return dict(content)

    @contextmanager
    def _changed(self) -> Iterator[dict[str, Any]]:
        """The content, to be changed: the file is replaced when the block ends. One process at a time."""
        try:
            with open(f"{self._path}.lock", "a", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                content = self._read()
                yield content
                with replace_file(self._path) as stream:
                    stream.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")
        except OSError as error:
            raise StoreError(f"The directory {self._path} cannot be written: {error.strerror}.") from error


def _placed(value: Any) -> tuple[str, int]:
    """The bucket of a tenant, and how often it was moved."""
    return (value, 0) if isinstance(value, str) else (str(value["bucket"]), int(value["moves"]))


def open_directory(url: StoreUrl, config: Config, clock: Clock) -> Directory:
    """Connects to nothing yet."""
    return FileDirectory(url) if (url.directory or "").startswith("/") else Directory(url, config, clock)


def _hash(tenant: str) -> int:
    return int.from_bytes(hashlib.blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


# Opening


def read_once(url: StoreUrl, config: Config, clock: Clock, work: Callable[[Unit], R], *, at: UnitScope) -> R:
    """Runs one read in the caller's thread, in the bucket of the configured tenant."""
    directory = open_directory(url, config, clock)
    bucket = directory.find(config.tenant).bucket
    for _ in range(_MOVES_MAX):
        try:
            return read_bucket(bucket_url(bucket), config, clock, work, at=at)
        except TenantMoved as moved:
            bucket = directory.bucket(moved.target)
    raise StoreLocked(f"The tenant {config.tenant!r} is being moved between buckets of {url}. Try again.")


class ShardEngine:
    """The engine of one tenant's bucket. A unit that meets the mark of a move runs again in the other bucket: the mark
    is read when its transaction begins, before anything has changed."""

    readers_max = READERS
    keys: KeyRing | None = None

    def __init__(self, directory: Directory, config: Config, clock: Clock) -> None:
        self.name = directory.name
        self.clock = clock
        self._directory = directory
        self._config = config
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._stopped = threading.Event()
        self.current = self._open(directory.find(config.tenant).bucket)

    def commit(self, writes: Sequence[Write]) -> list[WriteOutcome]:
        outcomes: list[WriteOutcome] = []
        for engine in self._tries():
            outcomes = engine.commit(writes)
            # The mark refuses a whole transaction, so nothing of it was stored.
            if not any(self._may_follow(engine, outcome.error) for outcome in outcomes):
                break
        return outcomes

    def new_read(self, work: Callable[[Unit], R], at: UnitScope = None) -> ReadCall[R]:
        halted = threading.Event()
        halts: list[Callable[[], None]] = []

        def run() -> R:
            for engine in self._tries():
                call = engine.new_read(work, at)
                halts.append(call.halt)
                if halted.is_set():
                    call.halt()
                try:
                    return call.run()
                except (StoreError, MemoryClosed) as error:
                    if not self._may_follow(engine, error):
                        raise
            raise self._lost()

        def halt() -> None:
            halted.set()
            for one in halts:
                one()

        return ReadCall(run, halt)

    def scrub(self) -> tuple[RemainingBytes, ...]:
        return self.current.scrub()

    def halt(self) -> None:
        self._stopped.set()
        self.current.halt()

    def close(self) -> None:
        self._stopped.set()
        with self._lock:
            self.current.close()

    def is_foreign(self) -> bool:
        return os.getpid() != self._process

    def check_usable(self) -> None:
        self.current.check_usable()

    def _tries(self) -> Iterator[PostgresEngine]:
        """The engine to try, again after each move, with a pause while a move ends."""
        for number in range(_FOLLOW_TRIES_MAX):
            if number > 1 and self._stopped.wait(_FOLLOW_PAUSE):
                return
            yield self.current

    def _lost(self) -> StoreError:
        return StoreLocked(
            f"The tenant {self._config.tenant!r} is being moved to another bucket of {self.name}, and that did not end "
            "in time. Run `afterturn shards move` again to finish it."
        )

    def _may_follow(self, engine: PostgresEngine, error: BaseException | None) -> bool:
        """Whether the work may succeed when it is tried again, and opens the bucket to which the tenant was moved."""
        if isinstance(error, MemoryClosed):
            return engine is not self.current
        if isinstance(error, NotComplete):
            return True
        if not isinstance(error, TenantMoved) or error.tenant != self._config.tenant:
            return False
        with self._lock:
            if self.current is engine:
                following = self._open(self._directory.bucket(error.target))
                try:
                    release_tenant(following, self._config.tenant, error.number)
                except BaseException:
                    following.close()
                    raise
                self.current = following
                engine.close()
        return True

    def _open(self, bucket: Bucket) -> PostgresEngine:
        engine = open_to_copy(bucket_url(bucket), self._config, self.clock, patient=False)
        try:
            engine.read_now(lambda unit: check_keys(sql_session(unit), None, engine.name))
        except BaseException:
            engine.close()
            raise
        engine.writer.may_fill = False
        engine.follows = True
        return engine


def bucket_url(bucket: Bucket) -> StoreUrl:
    url = find_store(bucket.url)
    if not isinstance(url, StoreUrl) or url.directory is not None:
        raise InvalidInput(
            f"The bucket {bucket.name!r} is not a store on a server. Name it by postgresql://…?schema=…."
        )
    return url


def release_tenant(engine: PostgresEngine, tenant: str, number: int) -> None:
    """Opens the bucket that a tenant was moved to, if the program that moved it was killed before it could do that.

    A bucket is marked as left when the other one has everything, so what an earlier move left here is outdated."""

    def release(unit: Unit) -> None:
        session = sql_session(unit)
        found = find_meta(session, f"{MOVED}/{tenant}")
        if found is None or json.loads(found)["number"] < number:
            keys = [key for key in marks(tenant) if "/" in key]
            session.run_many("DELETE FROM meta WHERE key = ?", [(key,) for key in keys])

    engine.writer.may_fill = True
    try:
        engine.write_now(release, at=Tenant(tenant))
    finally:
        engine.writer.may_fill = False


# Changing the directory


def add_bucket(directory: Directory, name: str, url: str, config: Config, clock: Clock) -> Bucket:
    """Creates the store, if it is new, and adds it. Only the first bucket may have content already."""
    with closing(open_engine(bucket_url(Bucket(0, name, url)), config, clock)) as engine:
        known, tenants = directory.buckets(), engine.read_now(_find_tenants)
        if tenants and known:
            raise StoreError(f"{engine.name} has content. Only the first bucket may have some; name an empty schema.")
        if any(name == one.name or url == one.url for one in known):
            raise Conflict(f"{directory.name} has a bucket {name!r}, or one with this URL, already. Name another one.")
        bucket = Bucket(max((one.number for one in known), default=-1) + 1, name, url)
        if bucket.number:
            first = (bucket.number << _KEYS_BITS) + 1
            engine.write_now(lambda unit: change_notes.start_keys(sql_session(unit), TABLES, first))
        if bucket.number == 1:
            # Until now all tenants were in the first bucket, also those that no host has opened by the directory.
            with closing(open_engine(bucket_url(known[0]), config, clock)) as first_engine:
                directory.settle(known[0].name, first_engine.read_now(_find_tenants))
        # Last: from then on tenants are placed in it.
        directory.add(bucket, tenants)
    return bucket


def move_tenant(
    directory: Directory, tenant: str, to: str, config: Config, clock: Clock, *, progress: Progress
) -> Sequence[ComparedTable]:
    """Moves a tenant while it is in use, and deletes it in the old bucket. Run it again if it was interrupted."""
    placement, target = directory.find(tenant), directory.bucket(to)
    if placement.bucket == target:
        return []
    own = replace(config, tenant=tenant)
    number = placement.moves + 1
    mark = json.dumps({"bucket": target.name, "number": number})
    with (
        closing(open_to_copy(bucket_url(placement.bucket), own, clock)) as source,
        closing(open_to_copy(bucket_url(target), own, clock)) as other,
    ):
        sides = CopySide(source, change_notes), CopySide(other, change_notes)
        compared = StoreCopy(*sides, tenant=tenant, report=progress, mark=mark).run(keep=False)
        if not all(table.is_equal for table in compared):
            return compared
        # Last, so that a run that was killed before is continued by the next one. Until then hosts follow the mark.
        delete_moved(sides[0], tenant, mark)
        directory.place(tenant, target.name, number)
    return compared


def cancel_tenant_move(directory: Directory, tenant: str, to: str, config: Config, clock: Clock) -> None:
    """Gives up a move that has not ended, and deletes what was copied. Raises StoreError if there is none."""
    placement, target = directory.find(tenant), directory.bucket(to)
    own = replace(config, tenant=tenant)
    if placement.bucket != target:
        with (
            closing(open_to_copy(bucket_url(placement.bucket), own, clock)) as source,
            closing(open_to_copy(bucket_url(target), own, clock)) as other,
        ):
            if cancel_move(CopySide(source, change_notes), CopySide(other, change_notes), tenant):
                return
    raise StoreError(
        f"There is no unfinished move of {tenant!r} to {to!r}: it is in the bucket {placement.bucket.name!r}."
    )


def _find_tenants(unit: Unit) -> list[str]:
    return [name for (name,) in sql_session(unit).rows("SELECT DISTINCT tenant FROM space")]
