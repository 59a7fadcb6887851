"""One large space that all users share: its first turns in new processes, the time and memory of loading it, searches
afterwards, and the same vectors in an HNSW index of pgvector. It is part of `make bench-postgres`.

`python -m lab.bench.large_space URL USER QUESTIONS` is one host process; `QUESTIONS` is JSON.
"""

from __future__ import annotations

import asyncio
import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
import psutil

import afterturn
from afterturn.embedders.sentence_encoder import SentenceEncoder
from lab.bench.report import Figure, Progress, Table, judge, milliseconds, percentile
from lab.postgres.spaces import Connection, fill_space

ROOT = Path(__file__).resolve().parents[2]
NEAREST = 64
# With pgvector's default of 40 an index cannot return more.
EF_SEARCH = 100
LOADED_WITHIN = 600.0
COLUMNS = ("memories", "index loaded after", "memory of the host", "HNSW built in", "HNSW on disk", "HNSW p50", "found")
EXPLAINED = (
    "*Index loaded after* counts from the first turn of a process; until then searches go by words. *Memory* is what "
    "the index added. *HNSW* is an index of pgvector over the same vectors in half precision, for this space alone, "
    f"which is asked for the {NEAREST} nearest; *found* is the share of them that it returns."
)


@dataclass(frozen=True, slots=True)
class HostResult:
    """Seconds and bytes of one host. A host with one question takes only its first turn."""

    delivered: bool
    first: float
    loaded: float = 0.0
    grown_bytes: int = 0
    searches: tuple[float, ...] = ()
    """After the index was loaded."""
    fresh: float = 0.0
    """The first search after another host has added a memory, which it found."""


def measure_large_space(
    connection: Connection, url: str, texts: Sequence[str], questions: Sequence[str], *, rounds: int, progress: Progress
) -> tuple[list[Figure], Table]:
    """The store is not empty: it has an embedder."""
    name = f"{len(texts):,} memories"
    user = f"large-{len(texts)}"
    progress(f"large: storing {name}")
    fill_space(connection, f"user:{user}", texts)
    connection.execute("VACUUM ANALYZE")
    progress(f"large: {name}, first turns")
    first = [_run_host(url, user, questions[at : at + 1]) for at in range(rounds)]
    progress(f"large: {name}, loading")
    host = _run_host(url, user, questions)
    progress(f"large: {name}, HNSW")
    hnsw = _measure_hnsw(connection, f"user:{user}", questions)
    waits = [one.first for one in first]
    figures = [
        judge(
            f"{name}, first turn of a process gets its block",
            "%",
            100 * sum(one.delivered for one in first) / len(first),
            None,
            f"within the default grace; {len(first)} processes; wait p50 {milliseconds(percentile(waits, 0.5))}",
        ),
        judge(f"{name}, search after loading, p50", "ms", 1000 * percentile(host.searches, 0.5)),
        judge(f"{name}, search after loading, p99", "ms", 1000 * percentile(host.searches, 0.99)),
        judge(f"{name}, search after another host has added a memory", "ms", 1000 * host.fresh),
    ]
    row = (f"{len(texts):,}", f"{host.loaded:.0f} s", f"{host.grown_bytes / 2**20:,.0f} MiB", *hnsw)
    return figures, Table("One large space", EXPLAINED, COLUMNS, (row,))


def _run_host(url: str, user: str, questions: Sequence[str]) -> HostResult:
    command = [sys.executable, "-m", "lab.bench.large_space", url, user, json.dumps(list(questions))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=2 * LOADED_WITHIN)
    if done.returncode:
        raise RuntimeError(f"a host failed:\n{done.stderr[-2000:]}")
    return HostResult(**json.loads(done.stdout))


async def run_host(url: str, user: str, questions: Sequence[str]) -> HostResult:
    async with afterturn.open(url) as memory:
        assert await memory.ready(within=60), "the embedder could not be loaded"
        before = psutil.Process().memory_info().rss
        messages: list[dict[str, str]] = [{"role": "user", "content": f"Tell me about {questions[0]}"}]
        began = perf_counter()
        async with memory.conversation("bench", user=user, incognito=True).turn(messages) as turn:
            block = await turn.inject(messages)
            first = perf_counter() - began
        if len(questions) == 1:
            return HostResult(block is not None, first)
        space = memory.space(f"user:{user}")
        while (await space.search(questions[0])).missing:
            assert perf_counter() - began < LOADED_WITHIN, "the index was not loaded in time"
            await asyncio.sleep(0.1)
        loaded, grown_bytes = perf_counter() - began, psutil.Process().memory_info().rss - before
        searches = [await _time_search(space, question) for question in questions]
        async with afterturn.open(url) as other:
            await other.ready(within=60)
            await other.space(f"user:{user}").add("The zanzibarometer hangs in the hall.")
        began = perf_counter()
        found = await space.search("Where is the zanzibarometer?")
        fresh = perf_counter() - began
        assert "zanzibarometer" in found.hits[0].entry.text
        return HostResult(block is not None, first, loaded, grown_bytes, tuple(searches), fresh)


async def _time_search(space: afterturn.Space, question: str) -> float:
    began = perf_counter()
    await space.search(question)
    return perf_counter() - began


def _measure_hnsw(connection: Connection, space: str, questions: Sequence[str]) -> tuple[str, str, str, str]:
    """Seconds to build, size on disk, median of a query, and the share of the nearest that it finds."""
    embedder = SentenceEncoder()
    embedder.load_gradually()
    rows = connection.execute(
        "SELECT v.entry_key, v.data FROM embedding AS v JOIN space AS s ON s.key = v.space_key WHERE s.name = %s",
        (space,),
    ).fetchall()
    matrix = np.frombuffer(b"".join(data for _, data in rows), "<f2").reshape(len(rows), -1)
    keys = np.array([key for key, _ in rows])
    dimensions = matrix.shape[1]
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
    connection.execute("DROP TABLE IF EXISTS hnsw")
    connection.execute(f"CREATE TABLE hnsw (entry_key bigint, vector public.halfvec({dimensions}))".encode())
    with connection.cursor() as cursor, cursor.copy("COPY hnsw FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0))
        for key, vector in zip(keys.tolist(), matrix.astype(">f2"), strict=True):
            value = struct.pack(">hh", dimensions, 0) + vector.tobytes()
            copy.write(struct.pack(">hiqi", 2, 8, key, len(value)) + value)
        copy.write(struct.pack(">h", -1))
    connection.execute("SET maintenance_work_mem = '2GB'")
    began = perf_counter()
    connection.execute("CREATE INDEX hnsw_vector ON hnsw USING hnsw (vector public.halfvec_ip_ops)")
    built = perf_counter() - began
    connection.execute(f"SET hnsw.ef_search = {EF_SEARCH}".encode())
    size = connection.execute("SELECT pg_relation_size('hnsw') + pg_relation_size('hnsw_vector')").fetchone()
    assert size is not None
    times, shares = list[float](), list[float]()
    for query in embedder.embed(list(questions)):
        began = perf_counter()
        found = connection.execute(
            "SELECT entry_key FROM hnsw ORDER BY vector OPERATOR(public.<#>) CAST(%s AS public.halfvec) LIMIT %s",
            (str(query.tolist()), NEAREST),
        ).fetchall()
        times.append(perf_counter() - began)
        nearest = np.argsort(-(matrix.astype(np.float32) @ query))[:NEAREST]
        shares.append(len({key for (key,) in found} & set(keys[nearest].tolist())) / len(nearest))
    share = sum(shares) / len(shares)
    return f"{built:.0f} s", f"{size[0] / 2**20:,.0f} MiB", milliseconds(percentile(times, 0.5)), f"{share:.2f}"


if __name__ == "__main__":
    result = asyncio.run(run_host(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
    print(json.dumps(asdict(result)))
