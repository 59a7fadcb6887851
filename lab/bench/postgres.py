"""`make bench-postgres`: recording, recall, load and growth on a real PostgreSQL server, beside bare scripts on it.

The server is started for the run, from the wheel, with fsync on. `python -m lab.bench.postgres host …` is one host
process of the load.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from typing import Any, TypeAlias

import psutil
import psycopg
from psycopg import sql

import afterturn
from afterturn.embedders.sentence_encoder import SentenceEncoder
from lab.bench.large_space import measure_large_space
from lab.bench.network import measure_network
from lab.bench.report import Figure, Goal, Progress, Report, Table, judge, make_report, milliseconds, percentile
from lab.bench.texts import sentences
from lab.postgres.server import PostgresServer
from lab.postgres.spaces import clone_space

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
SECTIONS = ("record", "recall", "large", "load", "growth", "langgraph", "network")
ROOT = Path(__file__).resolve().parents[2]
SCHEMA = "afterturn"
TEMPLATE = "user:template"
LARGE = "user:large"
# A turn in a small space asks about one of its ten memories.
ABOUT = (
    "The user's cat is called Felix.",
    "The user drinks green tea in the morning.",
    "The user works as a nurse in Bergen.",
    "The user is allergic to peanuts.",
    "The user's sister lives in Lisbon.",
    "The user prefers short answers.",
    "The user plays the cello in an orchestra.",
    "The user's car is a red Volvo.",
    "The user runs a marathon every autumn.",
    "The user's garden has two pear trees.",
)
QUESTIONS = (
    "What is the name of my cat?",
    "Which tea do I drink in the morning?",
    "What am I allergic to?",
    "Where does my sister live?",
    "Which instrument do I play?",
    "Which car do I have?",
)
# A server as a small production machine would have it. Commits wait for the disk.
SETTINGS = {"fsync": "on", "shared_buffers": "1GB", "max_wal_size": "8GB", "work_mem": "32MB"}
EXPLAINED = (
    "One PostgreSQL server on this machine, with fsync on, and hosts on the same machine; every figure is measured "
    "beside a bare script on the same server, in the same run."
)


@dataclass(frozen=True, slots=True)
class Scale:
    turns: int
    sizes: tuple[int, ...]
    searches: int
    cold_rounds: int
    other_spaces: int
    conversations: tuple[int, ...]
    rate: float
    seconds: float
    spaces: tuple[int, ...]
    growth_rounds: int
    network_users: int
    large: tuple[int, ...]


FULL = Scale(
    turns=100,
    sizes=(1_000, 100_000),
    searches=300,
    cold_rounds=20,
    other_spaces=10_000,
    conversations=(1_000, 10_000),
    rate=20.0,
    seconds=60.0,
    spaces=(1_000, 10_000, 100_000),
    growth_rounds=300,
    network_users=40,
    large=(100_000,),
)
QUICK = Scale(
    turns=2,
    sizes=(30,),
    searches=3,
    cold_rounds=1,
    other_spaces=5,
    conversations=(20,),
    rate=10.0,
    seconds=1.0,
    spaces=(5, 10),
    growth_rounds=4,
    network_users=1,
    large=(3_000,),
)


@dataclass(frozen=True, slots=True)
class Measured:
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...] = ()


def measure_postgres(
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    spaces: Sequence[int] = (),
    sizes: Sequence[int] = (),
    progress: Progress = lambda step: None,
) -> Report:
    """`spaces` replaces the numbers of spaces among which growth is measured, `sizes` those of memories in a large
    space."""
    scale = QUICK if quick else FULL
    if sizes:
        scale = replace(scale, large=tuple(sizes))
    if spaces:
        scale = replace(scale, spaces=tuple(spaces))
    sections: dict[str, Callable[[PostgresServer, Scale, Progress], Measured]] = {
        "record": _measure_record,
        "recall": _measure_recall,
        "large": _measure_large,
        "load": _measure_load,
        "growth": _measure_growth,
        "langgraph": _measure_langgraph,
        "network": _measure_network,
    }
    found: list[Measured] = []
    for name in only or SECTIONS:
        progress(f"{name}: starting the server")
        with PostgresServer(settings=SETTINGS) as server:
            found.append(sections[name](server, scale, progress))
    arguments = ["--quick"] if quick else []
    arguments += [f"--only {name}" for name in only] + [f"--spaces {count}" for count in spaces]
    arguments += [f"--size {size}" for size in sizes]
    figures = [figure for one in found for figure in one.figures]
    tables = [table for one in found for table in one.tables]
    return make_report("postgres", arguments, EXPLAINED, figures, tables)


@contextmanager
def _connected(server: PostgresServer) -> Iterator[Connection]:
    with psycopg.connect(server.url().partition("?")[0], autocommit=True) as connection:
        yield connection


def _median(times: Sequence[float]) -> float:
    return percentile(times, 0.5)


# Network


def _measure_network(server: PostgresServer, scale: Scale, progress: Progress) -> Measured:
    return Measured(tuple(measure_network(server, ABOUT, QUESTIONS, scale.network_users, progress)))


# Recording


class BareRows:
    """Stores the rows that our last recording wrote once more, in copies of the tables: one transaction, one statement
    for each table, as a script would."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        connection.execute("CREATE SCHEMA bare")
        self._tables: dict[str, tuple[list[str], list[str]]] = {}
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY tablename", (SCHEMA,)
        ).fetchall()
        for (name,) in names:
            copy, original = sql.Identifier("bare", name), sql.Identifier(SCHEMA, name)
            connection.execute(sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(copy, original))
            described = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(original)).description or []
            keys = connection.execute(
                "SELECT a.attname FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid "
                "AND a.attnum = ANY (i.indkey) WHERE i.indisprimary AND i.indrelid = CAST(%s AS regclass)",
                (f"{SCHEMA}.{name}",),
            ).fetchall()
            self._tables[name] = ([column.name for column in described], [key for (key,) in keys])

    def read_last(self) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """The rows that the transaction of the newest record wrote, by table."""
        row = self._connection.execute(
            sql.SQL("SELECT CAST(xmin AS text) FROM {} WHERE kind = 'record' ORDER BY key DESC LIMIT 1").format(
                sql.Identifier(SCHEMA, "entry")
            )
        ).fetchone()
        assert row is not None
        query = sql.SQL("SELECT * FROM {} WHERE CAST(xmin AS text) = %s")
        found = [
            (name, self._connection.execute(query.format(sql.Identifier(SCHEMA, name)), row).fetchall())
            for name in self._tables
        ]
        return [(name, rows) for name, rows in found if rows]

    def write(self, written: Sequence[tuple[str, list[tuple[Any, ...]]]]) -> None:
        with self._connection.transaction():
            for name, rows in written:
                columns, keys = self._tables[name]
                row = sql.SQL("({})").format(sql.SQL(", ").join([sql.Placeholder()] * len(columns)))
                changed = [column for column in columns if column not in keys]
                update = sql.SQL(", ").join(
                    sql.SQL("{0} = excluded.{0}").format(sql.Identifier(column)) for column in changed
                )
                conflict = (
                    sql.SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(
                        sql.SQL(", ").join(map(sql.Identifier, keys)), update
                    )
                    if changed and keys
                    else sql.SQL(" ON CONFLICT DO NOTHING")
                )
                statement = sql.SQL("INSERT INTO {} ({}) VALUES {}{}").format(
                    sql.Identifier("bare", name),
                    sql.SQL(", ").join(map(sql.Identifier, columns)),
                    sql.SQL(", ").join([row] * len(rows)),
                    conflict,
                )
                self._connection.execute(statement, [value for values in rows for value in values])


def _measure_record(server: PostgresServer, scale: Scale, progress: Progress) -> Measured:
    ours, bare, rows = asyncio.run(_record(server, scale, progress))
    return Measured(
        (
            judge(
                "durable record of a turn, median",
                "ms",
                1000 * _median(ours),
                Goal(1.5),
                "baseline: the same rows in one transaction of a script, one statement for each table",
                f"a turn of 4 messages, {rows} rows; from leaving the turn until `wait_recorded` is true",
                f"p99 {milliseconds(percentile(ours, 0.99))}, baseline {milliseconds(percentile(bare, 0.99))}; "
                f"{len(ours)} turns",
                baseline=1000 * _median(bare),
            ),
        )
    )


async def _record(server: PostgresServer, scale: Scale, progress: Progress) -> tuple[list[float], list[float], int]:
    ours, bare_times, written = list[float](), list[float](), list[tuple[str, list[tuple[Any, ...]]]]()
    lines = iter(sentences(4 * (scale.turns + 5), seed=3))
    async with afterturn.open(server.url()) as memory:
        await memory.ready(within=60)
        with _connected(server) as connection:
            bare = BareRows(connection)
            for at in range(scale.turns + 5):
                if at % 20 == 0:
                    progress(f"record: turn {at} of {scale.turns + 5}")
                took = await _recorded_turn(memory.conversation("bench", user="record"), lines)
                written = bare.read_last()
                began = perf_counter()
                await asyncio.to_thread(bare.write, written)
                if at >= 5:
                    bare_times.append(perf_counter() - began)
                    ours.append(took)
    return ours, bare_times, sum(len(rows) for _, rows in written)


async def _recorded_turn(conversation: afterturn.Conversation, lines: Iterator[str]) -> float:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [{"role": "user", "content": next(lines)}]
    async with conversation.turn(messages) as turn:
        await turn.inject(messages)
        messages.append({"role": "assistant", "content": next(lines), "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "1", "content": next(lines)})
        messages.append({"role": "assistant", "content": next(lines)})
        # The writes of the turn's beginning are over, so that only the recording is measured.
        await asyncio.sleep(0.2)
        began = perf_counter()
    assert await turn.wait_recorded(within=30)
    return perf_counter() - began


# Recall


class BareSearch:
    """A table of texts and vectors with an index on the space; pgvector compares all vectors of the space."""

    def __init__(self, connection: Connection, embedder: SentenceEncoder) -> None:
        self._connection, self._embedder = connection, embedder
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        dimensions = embedder.identity.dimensions
        connection.execute(f"CREATE TABLE bare_memory (space text, text text, embedding vector({dimensions}))".encode())
        connection.execute("CREATE INDEX ON bare_memory (space)")

    def add(self, space: str, texts: Sequence[str]) -> None:
        with self._connection.cursor() as cursor, cursor.copy("COPY bare_memory FROM STDIN") as copy:
            for start in range(0, len(texts), 1000):
                part = texts[start : start + 1000]
                for text, vector in zip(part, self._embedder.embed(part), strict=True):
                    copy.write_row((space, text, str(vector.tolist())))

    def search(self, space: str, question: str) -> list[str]:
        vector = str(self._embedder.embed([question])[0].tolist())
        rows = self._connection.execute(
            "SELECT text FROM bare_memory WHERE space = %s ORDER BY embedding <=> %s LIMIT 10", (space, vector)
        ).fetchall()
        return [text for (text,) in rows]


def _measure_recall(server: PostgresServer, scale: Scale, progress: Progress) -> Measured:
    figures: list[Figure] = []
    embedder = SentenceEncoder()
    embedder.load_gradually()
    asyncio.run(_fill_template(server))
    progress(f"recall: {scale.other_spaces:,} other spaces")
    with _connected(server) as connection:
        clone_space(connection, SCHEMA, TEMPLATE, scale.other_spaces)
        bare = BareSearch(connection, embedder)
        for size in scale.sizes:
            space, texts = f"{LARGE}-{size}", sentences(size, seed=size)
            progress(f"recall: storing {size:,} memories")
            asyncio.run(_fill(server, space, texts))
            bare.add(space, texts)
            connection.execute("VACUUM ANALYZE")
            questions = _questions(texts, scale.searches)
            progress(f"recall: {size:,} memories, warm")
            warm = asyncio.run(_search_warm(server, space, questions))
            progress(f"recall: {size:,} memories, cold")
            cold = [asyncio.run(_search_cold(server, space, one)) for one in questions[: scale.cold_rounds]]
            base = [_timed(bare.search, space, one) for one in questions]
            name = f"recall in a space of {size:,}"
            figures += [
                judge(
                    f"{name}, warm p50",
                    "ms",
                    1000 * _median(warm),
                    None,
                    "baseline: exact search with pgvector in a table indexed by space, embedding included",
                    baseline=1000 * _median(base),
                ),
                judge(f"{name}, warm p99", "ms", 1000 * percentile(warm, 0.99), baseline=1000 * percentile(base, 0.99)),
                judge(
                    f"{name}, cold p50",
                    "ms",
                    1000 * _median(cold),
                    None,
                    f"the first search of a process, {len(cold)} processes; worst {milliseconds(max(cold))}",
                ),
            ]
    return Measured(tuple(figures))


def _measure_large(server: PostgresServer, scale: Scale, progress: Progress) -> Measured:
    asyncio.run(_fill_template(server))
    figures: list[Figure] = []
    tables: list[Table] = []
    with _connected(server) as connection:
        progress(f"large: {scale.other_spaces:,} other spaces")
        clone_space(connection, SCHEMA, TEMPLATE, scale.other_spaces)
        for size in scale.large:
            texts = list(dict.fromkeys(sentences(size, seed=size)))
            questions = _questions(texts, min(scale.searches, 100))
            found, table = measure_large_space(
                connection, server.url(), texts, questions, rounds=scale.cold_rounds, progress=progress
            )
            figures += found
            tables.append(table)
    rows = tuple(row for table in tables for row in table.rows)
    return Measured(tuple(figures), (replace(tables[0], rows=rows),))


def _questions(texts: Sequence[str], count: int) -> list[str]:
    random = Random(7)
    return [" ".join(random.sample(random.choice(texts).rstrip(".").split(), 5)) for _ in range(count)]


async def _fill_template(server: PostgresServer) -> None:
    await _fill(server, TEMPLATE, ABOUT)


async def _fill(server: PostgresServer, space: str, texts: Sequence[str]) -> None:
    async with afterturn.open(server.url()) as memory:
        await memory.ready(within=120)
        for start in range(0, len(texts), 5000):
            drafts = [afterturn.Draft(text) for text in texts[start : start + 5000]]
            await memory.space(space).add_many(drafts)
        await memory.drain(within=1800)


async def _search_warm(server: PostgresServer, space: str, questions: Sequence[str]) -> list[float]:
    async with afterturn.open(server.url(), {"background": True}) as memory:
        await memory.ready(within=120)
        for question in questions[:3]:
            await memory.space(space).search(question)
        await _indexed(memory, space)
        return [await _awaited(memory.space(space).search(question)) for question in questions]


async def _indexed(memory: afterturn.Memory, space: str) -> None:
    """Waits until the index of the space is in memory: a search of it then has vectors."""
    for _ in range(600):
        if not (await memory.space(space).search("garden")).missing:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"The index of {space} was not ready within a minute.")


async def _search_cold(server: PostgresServer, space: str, question: str) -> float:
    async with afterturn.open(server.url()) as memory:
        await memory.ready(within=120)
        return await _awaited(memory.space(space).search(question))


async def _awaited(work: Awaitable[object]) -> float:
    began = perf_counter()
    await work
    return perf_counter() - began


def _timed(work: Callable[..., object], *arguments: object) -> float:
    began = perf_counter()
    work(*arguments)
    return perf_counter() - began


# Load: open conversations on two host processes


@dataclass(slots=True)
class HostResult:
    """One host process. `waits` are the seconds that its turns waited for memory, `cpu` its processor time."""

    turns: int = 0
    delivered: int = 0
    recorded: int = 0
    errors: int = 0
    waits: tuple[float, ...] = ()
    cpu: float = 0.0


def _measure_load(server: PostgresServer, scale: Scale, progress: Progress) -> Measured:
    asyncio.run(_fill_template(server))
    with _connected(server) as connection:
        progress(f"load: {max(scale.conversations):,} users")
        clone_space(connection, SCHEMA, TEMPLATE, max(scale.conversations))
        connection.execute("VACUUM ANALYZE")
    figures: list[Figure] = []
    costs: list[tuple[str, ...]] = []
    for conversations in scale.conversations:
        progress(f"load: {conversations:,} open conversations, {scale.rate:g} turns a second")
        before = _server_costs(server)
        hosts = _run_hosts(server, conversations, scale)
        after = _server_costs(server)
        turns = sum(host.turns for host in hosts)
        costs.append(
            (
                f"{conversations:,}",
                f"{(after.wal_bytes - before.wal_bytes) / turns / 1024:,.0f} KiB",
                f"{(after.commits - before.commits) / turns:.1f}",
                milliseconds((after.cpu - before.cpu) / turns),
                milliseconds(sum(host.cpu for host in hosts) / turns),
            )
        )
        waits = [wait for host in hosts for wait in host.waits]
        name = f"{conversations:,} open conversations on two hosts"
        notes = (
            f"{turns:,} turns at {scale.rate:g} a second in all, {scale.seconds:g} seconds, one tool call each",
            f"wait of a host: p50 {milliseconds(_median(waits))}, p99 {milliseconds(percentile(waits, 0.99))}",
        )
        delivered = 100 * sum(host.delivered for host in hosts) / turns
        recorded = 100 * sum(host.recorded for host in hosts) / turns
        errors = float(sum(host.errors for host in hosts))
        figures += [
            judge(f"{name}, delivered in the same turn", "%", delivered, Goal(99, "%", at_least=True), *notes),
            judge(f"{name}, errors", "", errors, Goal(0, "")),
            judge(f"{name}, recorded", "%", recorded, Goal(100, "%", at_least=True)),
        ]
    table = Table(
        "What a turn costs",
        "A turn with one tool call, with everything that follows from it: recall, recording, vectors, events, jobs. "
        "The processor time of the hosts includes opening the store and loading the embedder once.",
        ("open conversations", "WAL", "transactions", "CPU of the server", "CPU of the host"),
        tuple(costs),
    )
    return Measured(tuple(figures), (table,))


@dataclass(frozen=True, slots=True)
class ServerCosts:
    """Totals since the server started. `cpu` has the seconds of all connections that have ended."""

    wal_bytes: int
    commits: int
    cpu: float


def _server_costs(server: PostgresServer) -> ServerCosts:
    with _connected(server) as connection:
        row = connection.execute(
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'), "
            "(SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()), pg_backend_pid()"
        ).fetchone()
        assert row is not None
        postmaster = psutil.Process(row[2]).parent()
        assert postmaster is not None
        times = postmaster.cpu_times()
    return ServerCosts(int(row[0]), int(row[1]), times.children_user + times.children_system)


def _run_hosts(server: PostgresServer, conversations: int, scale: Scale) -> list[HostResult]:
    command = [sys.executable, "-m", "lab.bench.postgres", "host", server.url()]
    common = [str(conversations), str(scale.rate / 2), str(scale.seconds)]
    running = [
        subprocess.Popen([*command, str(host), *common], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for host in range(2)
    ]
    found: list[HostResult] = []
    for process in running:
        printed, _ = process.communicate(timeout=scale.seconds * 10 + 300)
        if process.returncode:
            raise RuntimeError(f"A host process ended with code {process.returncode}. Its message is above.")
        found.append(HostResult(**json.loads(printed.splitlines()[-1])))
    return found


async def run_host(url: str, host: int, conversations: int, rate: float, seconds: float) -> HostResult:
    """Takes turns in this host's half of the conversations, at the given rate, whatever becomes of the earlier ones."""
    result, waits, random = HostResult(), list[float](), Random(host)

    def on_event(event: afterturn.Event) -> None:
        result.recorded += event.name == "recorded"

    async with afterturn.open(url, on_event=on_event) as memory:
        await memory.ready(within=60)
        opened = [
            memory.conversation(f"load-{number}", user=f"template-{number}")
            for number in range(host + 1, conversations + 1, 2)
        ]
        # One after the other: a newer turn of the same conversation would take the recall of the one before.
        random.shuffle(opened)
        running: set[asyncio.Task[None]] = set()
        began, started = perf_counter(), 0
        while (elapsed := perf_counter() - began) < seconds:
            while started < elapsed * rate:
                task = asyncio.get_running_loop().create_task(_load_turn(opened[started % len(opened)], result, waits))
                running.add(task)
                task.add_done_callback(running.discard)
                started += 1
            await asyncio.sleep(0.005)
        await asyncio.gather(*running)
        await memory.drain(within=120)
    result.waits, result.cpu = tuple(waits), process_time()
    return result


async def _load_turn(conversation: afterturn.Conversation, result: HostResult, waits: list[float]) -> None:
    question = QUESTIONS[result.turns % len(QUESTIONS)]
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    result.turns += 1
    try:
        async with conversation.turn(messages) as turn:
            began = perf_counter()
            delivered = await turn.inject(messages) is not None
            waits.append(perf_counter() - began)
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            await asyncio.sleep(0.5)
            messages.append({"role": "tool", "tool_call_id": "1", "content": "done"})
            delivered = await turn.inject(messages) is not None or delivered
            messages.append({"role": "assistant", "content": "I have looked it up."})
        result.delivered += delivered
    except Exception as error:  # noqa: BLE001 the boundary of one turn: it is counted and shown
        result.errors += 1
        print(f"turn failed: {error!r}", file=sys.stderr)


# Growth: the same work among more and more spaces


@dataclass(frozen=True, slots=True)
class GrownTimes:
    """Seconds. The bare ones are of a script, in other spaces that nobody has read before, between our turns."""

    recalls: list[float]
    records: list[float]
    bare_reads: list[float]
    bare_writes: list[float]

    def cells(self) -> list[str]:
        times = (self.recalls, self.bare_reads, self.records, self.bare_writes)
        return [milliseconds(value) for some in times for value in (_median(some), percentile(some, 0.99))]


def _measure_growth(server: PostgresServer, scale: Scale, progress: Progress) -> Measured:
    asyncio.run(_fill_template(server))
    rows: list[tuple[str, ...]] = []
    found: list[GrownTimes] = []
    made = 0
    with _connected(server) as connection:
        for spaces in scale.spaces:
            progress(f"growth: {spaces:,} spaces of {len(ABOUT)} memories")
            new = range(made + 1, spaces + 1)
            clone_space(connection, SCHEMA, TEMPLATE, len(new), first=new.start)
            made = spaces
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")
            progress(f"growth: {spaces:,} spaces, turns")
            found.append(asyncio.run(_grown_turns(server, connection, new, scale.growth_rounds)))
            size = connection.execute("SELECT pg_database_size(current_database())").fetchone()
            assert size is not None
            database = (f"{size[0] / 2**20:,.0f} MiB", f"{size[0] / (spaces * len(ABOUT)):,.0f}")
            rows.append((f"{spaces:,}", *database, *found[-1].cells()))
    span = f"from {scale.spaces[0]:,} to {scale.spaces[-1]:,} spaces"
    times = [f"{what} {each}" for what in ("recall", "bare read", "record", "bare write") for each in ("p50", "p99")]
    table = Table(
        "Growth",
        "The same turns among more and more spaces of ten memories. Each turn is in a space that nobody has read "
        "before: *recall* is the time until the block is ready, *record* from leaving the turn until it is durable. "
        "Beside them a script in other such spaces: *bare read* reads the texts and vectors of one with one "
        "statement, *bare write* changes one row and commits.",
        ("spaces", "database", "bytes a memory", *times),
        tuple(rows),
    )
    first, last = found[0], found[-1]
    return Measured(
        (
            _grown(f"recall p99, {span}", last.recalls, first.recalls, Goal(1.5)),
            _grown(f"bare read p99, {span}", last.bare_reads, first.bare_reads),
            _grown(f"record p99, {span}", last.records, first.records, Goal(1.5)),
            _grown(f"bare write p99, {span}", last.bare_writes, first.bare_writes),
        ),
        (table,),
    )


def _grown(name: str, last: Sequence[float], first: Sequence[float], goal: Goal | None = None) -> Figure:
    return judge(name, "ms", 1000 * percentile(last, 0.99), goal, baseline=1000 * percentile(first, 0.99))


async def _grown_turns(server: PostgresServer, connection: Connection, new: range, rounds: int) -> GrownTimes:
    times = GrownTimes([], [], [], [])
    numbers = Random(len(new)).sample(new, min(2 * rounds, len(new)))
    turns, bare = numbers[::2], numbers[1::2]
    async with afterturn.open(server.url()) as memory:
        await memory.ready(within=60)
        for at, (number, other) in enumerate(zip(turns, bare, strict=False)):
            messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTIONS[at % len(QUESTIONS)]}]
            async with memory.conversation("growth", user=f"template-{number}").turn(messages) as turn:
                began = perf_counter()
                assert await turn.block(within=30), "nothing was recalled"
                times.recalls.append(perf_counter() - began)
                messages.append({"role": "assistant", "content": "I have looked it up."})
                await asyncio.sleep(0.05)
                began = perf_counter()
            assert await turn.wait_recorded(within=30)
            times.records.append(perf_counter() - began)
            times.bare_reads.append(await asyncio.to_thread(_timed, _read_bare, connection, f"{TEMPLATE}-{other}"))
            times.bare_writes.append(await asyncio.to_thread(_timed, _write_bare, connection, f"{TEMPLATE}-{other}"))
    # The first turns of a process load modules and tables of words.
    unmeasured = min(20, len(times.recalls) // 4)
    for some in (times.recalls, times.records, times.bare_reads, times.bare_writes):
        del some[:unmeasured]
    return times


def _read_bare(connection: Connection, space: str) -> None:
    rows = connection.execute(
        "SELECT e.text, v.data FROM space AS s JOIN entry AS e ON e.space_key = s.key JOIN embedding AS v "
        "ON v.space_key = s.key AND v.entry_key = e.key WHERE s.tenant = 'default' AND s.name = %s",
        (space,),
    ).fetchall()
    assert len(rows) == len(ABOUT)


def _write_bare(connection: Connection, space: str) -> None:
    done = connection.execute("UPDATE space SET seq = seq WHERE tenant = 'default' AND name = %s", (space,))
    assert done.rowcount == 1


# LangGraph's own store on the same server


def _measure_langgraph(server: PostgresServer, scale: Scale, progress: Progress) -> Measured:
    from langgraph.store.postgres import PostgresStore

    embedder = SentenceEncoder()
    embedder.load_gradually()
    texts = sentences(scale.sizes[0], seed=5)
    questions = _questions(texts, scale.searches)

    def embed(some: Sequence[str]) -> list[list[float]]:
        return [vector.tolist() for vector in embedder.embed(list(some))]

    progress("langgraph: PostgresStore")
    with PostgresStore.from_conn_string(
        server.url().partition("?")[0],
        index={"dims": embedder.identity.dimensions, "embed": embed, "fields": ["text"]},
    ) as store:
        store.setup()
        added = [
            _timed(lambda text=text, at=at: store.put(("user", "ada"), str(at), {"text": text}))
            for at, text in enumerate(texts)
        ]
        theirs = [_timed(lambda one=one: store.search(("user", "ada"), query=one, limit=10)) for one in questions]
    progress("langgraph: ours")
    ours_added, ours = asyncio.run(_langgraph_ours(server, texts, questions))
    return Measured(
        (
            judge(
                "durable add, beside LangGraph's PostgresStore",
                "ms",
                1000 * _median(ours_added),
                None,
                "one memory after the other, with its vector; the same embedder",
                baseline=1000 * _median(added),
            ),
            judge(
                f"search of {len(texts):,} memories, p50, beside LangGraph's PostgresStore",
                "ms",
                1000 * _median(ours),
                None,
                "LangGraph searches by vectors with an index, ours by words and vectors",
                baseline=1000 * _median(theirs),
            ),
            judge(
                f"search of {len(texts):,} memories, p99, beside LangGraph's PostgresStore",
                "ms",
                1000 * percentile(ours, 0.99),
                baseline=1000 * percentile(theirs, 0.99),
            ),
        )
    )


async def _langgraph_ours(
    server: PostgresServer, texts: Sequence[str], questions: Sequence[str]
) -> tuple[list[float], list[float]]:
    async with afterturn.open(server.url()) as memory:
        await memory.ready(within=60)
        space = memory.space("user:ada")
        added = [await _awaited(space.add(text)) for text in texts]
        await memory.drain(within=300)
        await _indexed(memory, "user:ada")
        return added, [await _awaited(space.search(question, limit=10)) for question in questions]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["host", url, host, conversations, rate, seconds]:
            ended = asyncio.run(run_host(url, int(host), int(conversations), float(rate), float(seconds)))
            print(json.dumps(asdict(ended)))
        case _:
            sys.exit("Use: python -m lab.bench postgres")
