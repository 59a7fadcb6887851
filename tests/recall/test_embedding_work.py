"""Changing the embedder: everything is embedded anew behind the host's back, visibly, and old vectors leave."""

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from numpy.typing import NDArray

import afterturn
from afterturn.embedders import service
from afterturn.errors import EmbedderUnavailable
from afterturn.ports import Store, Unit
from afterturn.testing.hashing import HashingEmbedder
from afterturn.types import Draft, EmbedderIdentity, JobKind, UnitScope, new_job

SPACE = "user:ada"
WITHIN = 100.0


class Named(HashingEmbedder):
    """One of several embedders. `stops_at` so many texts it waits until it is let go; `fails` while it is out."""

    def __init__(self, name: str = "one", *, dimensions: int = 16, stops_at: int | None = None) -> None:
        super().__init__(dimensions)
        self.identity = EmbedderIdentity(name, "1", dimensions)
        self.count = 0
        self.batches: list[int] = []
        self.stopped = threading.Event()
        self.go = threading.Event()
        self.fails = False
        self._stops_at = stops_at

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.fails:
            raise EmbedderUnavailable("The server is out of order. Start it.")
        is_question = len(texts) == 1 and "?" in texts[0]
        if not is_question:
            self.count += len(texts)
            self.batches.append(len(texts))
        if self._stops_at is not None and self.count >= self._stops_at and not is_question:
            self.stopped.set()
            assert self.go.wait(WITHIN)
        return super().embed(texts)


class Batched(Named):
    batch_texts = 3


def opened(path: Path, embedder: Named, *, background: bool = False, **options: object) -> afterturn.Memory:
    return afterturn.open(path, background=background, components=afterturn.Components(embedder=embedder), **options)


async def filled(path: Path, embedder: Named, count: int = 5, *, space: str = SPACE) -> None:
    async with opened(path, embedder) as memory:
        await memory.space(space).add_many([Draft(f"statement {number} of {space}") for number in range(count)])
        assert await memory.drain(within=WITHIN)


def vectors(path: Path) -> dict[str, int]:
    """How many each embedder has."""
    return dict(
        rows(
            path, "SELECT r.name, count(*) FROM embedding AS v JOIN embedder AS r ON r.key = v.embedder_key GROUP BY 1"
        )
    )


def rows(path: Path, sql: str) -> list[tuple]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


async def test_another_embedder_takes_the_place_of_the_first_and_its_vectors(path: Path):
    """M3: changing it re-embeds everything; what the old one made leaves when the new is complete."""
    await filled(path, Named("one"))
    await filled(path, Named("two"), 3, space="user:bob")
    assert vectors(path) == {"two": 8}


async def test_lexical_recall_goes_on_while_everything_is_embedded_anew(path: Path):
    """M3: nobody waits; the answer says that vectors are missing, and old ones are not used for it."""
    await filled(path, Named("one"), 40)
    slow = Named("two", stops_at=20)
    async with opened(path, slow, background=True) as memory:
        await memory.ready()
        assert await asyncio.to_thread(slow.stopped.wait, WITHIN)
        found = await memory.space(SPACE).search("statement 7 ?")
        waiting = (await memory.stats())["vectors_waiting"]
        slow.go.set()
    assert found.hits[0].entry.text == f"statement 7 of {SPACE}"
    assert "vectors" in found.missing
    assert waiting == 40


async def test_going_back_before_the_change_is_complete_works(path: Path):
    """M3: what is still there of the first embedder is used, what the second began leaves."""
    await filled(path, Named("one"), 12)
    second = Named("two", stops_at=2)
    async with opened(path, second, background=True) as memory:
        await memory.ready()
        assert await asyncio.to_thread(second.stopped.wait, WITHIN)
        second.go.set()
    first = Named("one")
    async with opened(path, first) as memory:
        assert await memory.drain(within=WITHIN)
        found = await memory.space(SPACE).search("statement 7 ?")
    assert (vectors(path), found.missing) == ({"one": 12}, ())


async def test_old_vectors_leave_in_bounded_steps_and_all_of_them(path: Path, monkeypatch: pytest.MonkeyPatch):
    """M3: no space is leaked, and no transaction is long."""
    monkeypatch.setattr(service, "DROPPED", 3)
    await filled(path, Named("one"), 20)
    await filled(path, Named("two"), 0)
    assert vectors(path) == {"two": 20}
    assert rows(path, "SELECT count(*) FROM unembedded") == [(0,)]


async def test_a_return_after_the_old_vectors_have_left_makes_them_anew(path: Path):
    """M3: nothing claims to be embedded that is not."""
    for name in ("one", "two", "one"):
        await filled(path, Named(name), 0 if name != "one" else 6)
    assert vectors(path) == {"one": 6}


async def test_an_embedder_that_is_not_the_stores_any_more_takes_nothing_away(path: Path):
    """M3: two processes that disagree do not undo each other's work for ever."""
    await filled(path, Named("one"))
    first = Named("one")
    async with opened(path, first) as memory:
        assert await memory.drain(within=WITHIN)
        await filled(path, Named("two"), 0)
        await memory.space(SPACE).add("one more")
        assert await memory.drain(within=WITHIN)
    assert vectors(path) == {"one": 6, "two": 5}


async def test_a_process_that_only_asks_takes_nothing_from_the_stores_embedder(path: Path):
    """M3: with another setting it recalls by words, says so and what to do, and leaves no job behind."""
    await filled(path, Named("one"), 40)
    async with opened(path, Named("two")) as memory:
        is_ready = await memory.ready()
        found = await memory.space(SPACE).search("statement 7 ?")
        stats = await memory.stats()
        finding = next(finding for finding in await memory.check() if finding.subject == "embedder")
    assert (found.hits[0].entry.text, found.missing) == (f"statement 7 of {SPACE}", ("vectors",))
    assert (is_ready, stats["vectors"], stats["jobs"], vectors(path)) == (False, False, {}, {"one": 40})
    assert (finding.level, finding.message[:47]) == ("warning", "the store's vectors are of one, and this proces")
    assert "afterturn worker --once" in finding.remedy


async def test_a_store_without_an_embedder_takes_the_first_that_comes(path: Path):
    """M3: also that of a process which works on no jobs, so that others know what to make."""
    async with opened(path, Named("one")) as memory:
        assert await memory.ready()
    async with opened(path, Named("two")) as memory:
        assert not await memory.ready()
    async with opened(path, Named("one")) as memory:
        assert await memory.ready()


@pytest.mark.parametrize("background", [True, False])
async def test_a_process_that_works_on_jobs_embeds_everything_anew(path: Path, background: bool):
    """C8, M3: at once with jobs behind it, else when it is told to drain."""
    await filled(path, Named("one"))
    async with opened(path, Named("two"), background=background) as memory:
        assert await memory.ready() == background
        assert await memory.drain(within=WITHIN)
        assert await memory.ready()
    assert vectors(path) == {"two": 5}


async def test_a_backup_with_vectors_of_another_embedder_is_embedded_anew(path: Path, tmp_path: Path):
    """M3: by whoever restores it, without being opened again."""
    await filled(path, Named("one"))
    async with opened(path, Named("one")) as memory:
        await memory.backup(tmp_path / "backup.db")
    async with opened(path, Named("two")) as memory:
        assert await memory.drain(within=WITHIN)
        await memory.restore(tmp_path / "backup.db")
        assert await memory.drain(within=WITHIN)
    assert vectors(path) == {"two": 5}


async def test_a_restore_by_a_process_that_only_asks_embeds_nothing_anew(path: Path, tmp_path: Path):
    """M3: it goes on by words until somebody who works on jobs has come."""
    await filled(path, Named("one"))
    async with opened(path, Named("one")) as memory:
        await memory.backup(tmp_path / "backup.db")
    async with opened(tmp_path / "fresh.db", Named("two")) as memory:
        assert await memory.ready()
        await memory.restore(tmp_path / "backup.db")
        assert not await memory.ready()
    assert vectors(tmp_path / "fresh.db") == {"one": 5}


async def test_how_many_entries_wait_is_told(path: Path):
    """M3: by `stats` and by `doctor`, before and after."""
    async with opened(path, Named()) as memory:
        await memory.ready()
        await memory.space(SPACE).add_many([Draft(f"statement {number}") for number in range(1200)])
        before = (await memory.stats())["vectors_waiting"], await embedder_finding(memory)
        assert await memory.drain(within=WITHIN)
        after = (await memory.stats())["vectors_waiting"], await embedder_finding(memory)
    assert (before[0], after[0]) == (1200, 0)
    assert "1,200 entries wait" in before[1]
    assert "every entry has its vector" in after[1]


async def test_a_long_backlog_tells_how_far_it_is(path: Path, monkeypatch: pytest.MonkeyPatch):
    """M3: progress, with what is done and what is left, down to nothing."""
    monkeypatch.setattr(service, "PROGRESS_EVERY", 0.0)
    told: list[afterturn.Event] = []
    async with opened(path, Named(), on_event=told.append) as memory:
        await memory.space(SPACE).add_many([Draft(f"statement {number}") for number in range(300)])
        assert await memory.drain(within=WITHIN)
    progress = [(event.data["done"], event.data["left"]) for event in told if event.name == "embedding_progress"]
    assert len(progress) > 1
    assert all(done + left == 300 for done, left in progress)
    assert progress[-1] == (300, 0)


async def test_a_short_backlog_tells_nothing(path: Path):
    told: list[afterturn.Event] = []
    async with opened(path, Named(), on_event=told.append) as memory:
        await memory.space(SPACE).add("Ada likes tea")
        assert await memory.drain(within=WITHIN)
    assert "embedding_progress" not in [event.name for event in told]


async def test_a_question_does_not_wait_for_a_backlog(path: Path):
    """R2: however slow the embedder is: each has a thread of its own."""
    slow = Named(stops_at=4)
    async with opened(path, slow, background=True) as memory:
        await memory.ready()
        await memory.space(SPACE).add_many([Draft(f"statement {number}") for number in range(40)])
        assert await asyncio.to_thread(slow.stopped.wait, WITHIN)
        found = await memory.space(SPACE).search("statement 7 ?")
        is_under_way = not slow.go.is_set()
        slow.go.set()
    assert is_under_way
    assert found.hits[0].entry.text == "statement 7"


async def test_an_embedder_gets_as_many_texts_at_a_time_as_it_takes(path: Path):
    embedder = Batched()
    async with opened(path, embedder) as memory:
        await memory.ready()
        embedder.batches.clear()
        await memory.space(SPACE).add_many([Draft(f"statement {number}") for number in range(10)])
        assert await memory.drain(within=WITHIN)
    assert embedder.batches == [3, 3, 3, 1]


async def test_jobs_wait_for_an_embedder_that_is_out_and_go_on_when_it_is_back(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """L1, M3: an outage is told once, costs no job its life, and heals by itself."""
    monkeypatch.setattr(service, "RETRY_AFTER", 0.01)
    monkeypatch.setattr(service, "RETRY_AFTER_MAX", 0.01)
    told: list[afterturn.Event] = []
    embedder = Named()
    async with opened(path, embedder, on_event=told.append) as memory:
        await memory.ready()
        embedder.fails = True
        await memory.space(SPACE).add("Ada likes tea")
        assert not await memory.drain(within=0.5)
        trouble = await embedder_finding(memory)
        embedder.fails = False
        assert await memory.drain(within=WITHIN)
    names = [event.name for event in told]
    assert (names.count("embedder_unavailable"), "job_failed" in names) == (1, False)
    assert "out of order" in trouble
    assert vectors(path) == {"one": 1}


async def test_an_embedder_that_comes_up_later_than_memory_is_taken_then(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """L1, M3: a server may be started afterwards, and files may be brought; nobody has to open memory again."""
    monkeypatch.setattr(service, "RETRY_AFTER", 0.01)
    caplog.set_level(logging.WARNING)
    embedder = Named()
    embedder.fails = True
    came = threading.Event()

    def hear(event: afterturn.Event) -> None:
        if event.name == "vectors_ready":
            came.set()

    async with opened(path, embedder, on_event=hear) as memory:
        assert not await memory.ready()
        assert "Start it" in await embedder_finding(memory)
        await memory.space(SPACE).add("Ada likes tea")
        embedder.fails = False
        assert await asyncio.to_thread(came.wait, WITHIN)
        assert await memory.drain(within=WITHIN)
    assert vectors(path) == {"one": 1}
    assert caplog.text.count("The server is out of order") == 1


@pytest.mark.parametrize(
    "rows,complaint",
    [
        (np.ones((1, 15), dtype=np.float32), r"returned 1 × 15 numbers for 1 texts, but its identity says 16"),
        (np.ones((2, 16), dtype=np.float32), r"returned 2 × 16 numbers for 1 texts"),
        (np.ones(16, dtype=np.float32), r"returned 16 numbers for 1 texts"),
        (np.full((1, 16), np.nan, dtype=np.float32), r"not finite"),
    ],
)
async def test_an_embedder_that_breaks_its_word_is_not_used(path: Path, rows: NDArray[np.float32], complaint: str):
    """M3: a wrong dimension is a clear error, and nothing of it is stored."""

    class Wrong(Named):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return rows

    async with opened(path, Wrong()) as memory:
        assert not await memory.ready()
        told = await embedder_finding(memory)
    assert re.search(complaint, told)
    assert "If it is your own, correct its `embed`." in told
    assert vectors(path) == {}


@pytest.mark.parametrize("seconds,count,size", [(0.0, 64, 128), (0.01, 64, 128), (4.0, 64, 32), (400.0, 64, 8)])
def test_a_batch_takes_about_as_long_whatever_the_embedder(make: Callable, seconds: float, count: int, size: int):
    """A job's lease must outlast it, and little is lost when a process ends."""
    work = make(Named())
    work._adapt(count, seconds)
    assert work._size == size


class _Busy:
    """A store that somebody writes to, some times, before it is read again."""

    def __init__(self, store: Store, space: afterturn.Space) -> None:
        self._store = store
        self._writes = iter([None, *(space.add(f"number {number}") for number in range(3))])

    async def read(self, work: Callable[[Unit], Any], *, at: UnitScope) -> Any:
        if (write := next(self._writes, None)) is not None:
            await write
        return await self._store.read(work, at=at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def close(self) -> None:
        for write in filter(None, self._writes):
            write.close()


async def test_what_is_written_while_a_job_embeds_is_left_to_its_own_job(path: Path):
    """M3: beside a steady writer it would never end, and store vectors one by one."""
    embedded: list[str] = []

    async def embed(texts: Sequence[str]) -> list[bytes]:
        embedded.extend(texts)
        return [bytes(2 * 16) for _ in texts]

    async with opened(path, Named()) as memory:
        await memory.space(SPACE).add("first")
        store = _Busy(memory._services.store, memory.space(SPACE))
        work = service.Backlog(
            new_job(JobKind.EMBED, "1", "default", SPACE, 0.0),
            Named(),
            store,
            embed,
            lambda done, left: None,
        )
        await memory._loop.run(work.work_off())
        store.close()
    assert embedded == ["first"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def make() -> Callable[[Named], service.Backlog]:
    def made(embedder: Named) -> service.Backlog:
        return service.Backlog(new_job(JobKind.EMBED, "1", "default", SPACE, 0.0), embedder, None, None, None)

    return made


async def embedder_finding(memory: afterturn.Memory) -> str:
    return next(finding.message for finding in await memory.check() if finding.subject == "embedder")
