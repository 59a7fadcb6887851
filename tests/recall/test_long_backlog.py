"""Long backlogs get their vectors from another process, and from this one when that fails."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import apsw
import psutil
import pytest

import afterturn
from afterturn.embedders.service import LONG
from afterturn.errors import EmbedderUnavailable
from afterturn.testing.hashing import HashingEmbedder
from afterturn.types import Draft

SPACE = "user:ada"


class Helper:
    """Stands for another process. It fails at the batch `fails_at`, and hangs from `hangs_at` on."""

    def __init__(self, *, fails_at: int | None = None, hangs_at: int | None = None) -> None:
        self.embedder = HashingEmbedder()
        self.batches = 0
        self.received = 0
        self.hanging = threading.Event()
        self.gone = threading.Event()
        self._back: list[list[bytes]] = []
        self._fails_at = fails_at
        self._hangs_at = hangs_at

    def send(self, texts: Sequence[str]) -> None:
        self.batches += 1
        if self._hangs_at is None or self.batches < self._hangs_at:
            self._back.append([row.tobytes() for row in self.embedder.embed(texts).astype("<f2")])

    async def receive(self) -> list[bytes]:
        self.received += 1
        if self.received == self._fails_at:
            raise EmbedderUnavailable("The embedding process ended.")
        if not self._back:
            self.hanging.set()
            await asyncio.Event().wait()
        return self._back.pop(0)

    async def close(self) -> None:
        self.gone.set()


class Divisible(HashingEmbedder):
    """Counts what is embedded in this process. Has another one, once, when it is given a helper."""

    def __init__(self, helper: Helper | None) -> None:
        super().__init__()
        self.helper = helper
        self.here = 0

    def embed(self, texts):
        self.here += len(texts)
        return super().embed(texts)

    async def start_aside(self) -> Helper | None:
        helper, self.helper = self.helper, None
        return helper


def drafts(count: int) -> list[Draft]:
    return [Draft(f"statement {number}") for number in range(count)]


def opened(path: Path, embedder: Divisible, *, background: bool = False) -> afterturn.Memory:
    return afterturn.open(path, background=background, components=afterturn.Components(embedder=embedder))


def vectors(path: Path) -> dict[str, bytes]:
    connection = apsw.Connection(str(path))
    rows = connection.execute("SELECT e.text, v.data FROM embedding AS v JOIN entry AS e ON e.key = v.entry_key")
    found = dict(rows.fetchall())
    connection.close()
    return found


def expected(count: int) -> dict[str, bytes]:
    texts = [draft.text for draft in drafts(count)]
    return dict(zip(texts, (row.tobytes() for row in HashingEmbedder().embed(texts).astype("<f2")), strict=True))


async def test_an_import_is_embedded_by_a_job(tmp_path: Path):
    """M3: it returns when it is stored, however long embedding takes; each entry gets the vector of its own text."""
    async with opened(tmp_path / "memory.db", Divisible(Helper())) as memory:
        await memory.space(SPACE).add_many(drafts(LONG + 100))
        assert vectors(tmp_path / "memory.db") == {}
        await memory.drain()
    assert vectors(tmp_path / "memory.db") == expected(LONG + 100)


async def test_a_short_backlog_starts_no_process(tmp_path: Path):
    helper = Helper()
    async with opened(tmp_path / "memory.db", Divisible(helper)) as memory:
        await memory.space(SPACE).add_many(drafts(LONG - 1))
        await memory.drain()
    assert (helper.batches, vectors(tmp_path / "memory.db")) == (0, expected(LONG - 1))


async def test_a_long_backlog_is_embedded_in_another_process(tmp_path: Path):
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}, background=False) as memory:
        await memory.space(SPACE).add_many(drafts(LONG + 2000))
    embedder = Divisible(helper := Helper())
    async with opened(tmp_path / "memory.db", embedder) as memory:
        await memory.drain()
    assert vectors(tmp_path / "memory.db") == expected(LONG + 2000)
    assert (helper.batches > 0, helper.gone.is_set(), embedder.here < LONG + 100) == (True, True, True)


async def test_a_backlog_goes_on_in_this_process_when_the_other_fails(tmp_path: Path):
    """M3: nothing is lost, and the job goes on."""
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}, background=False) as memory:
        await memory.space(SPACE).add_many(drafts(LONG + 2000))
    async with opened(tmp_path / "memory.db", Divisible(helper := Helper(fails_at=2))) as memory:
        await memory.drain()
    assert (vectors(tmp_path / "memory.db"), helper.gone.is_set()) == (expected(LONG + 2000), True)


async def test_closing_beside_an_import_is_bounded_and_leaves_no_process(tmp_path: Path):
    """C4: what was stored stays stored, and its vectors come with the next opening."""
    earlier = psutil.Process().children(recursive=True)
    memory = afterturn.open(tmp_path / "memory.db")
    await memory.start()
    stored = asyncio.Event()
    loop = asyncio.get_running_loop()
    importing = asyncio.create_task(
        memory.space(SPACE).add_many(drafts(20_000), progress=lambda done: loop.call_soon_threadsafe(stored.set))
    )
    await stored.wait()
    await memory.close()
    with pytest.raises(afterturn.AfterturnError):
        await importing
    assert [child for child in psutil.Process().children(recursive=True) if child not in earlier] == []
