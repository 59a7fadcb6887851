"""Sealed stores on PostgreSQL: the promises of a store, what its tables show, and what a forget leaves."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import afterturn
from afterturn.config import Config, StoreUrl
from afterturn.errors import KeyMissing, KeysUnavailable
from afterturn.services import migrate
from afterturn.stores.keys import FolderKeys
from afterturn.stores.postgres.store import PostgresStore, open_store
from afterturn.testing.clock import ManualClock

pytest.register_assert_rewrite("afterturn.testing.conformance")
from afterturn.testing.conformance import (  # noqa: E402, F401
    TestBlocks,
    TestCarriedRecalls,
    TestExclusion,
    TestFilters,
    TestForgetting,
    TestForgottenTraces,
    TestJobs,
    TestMemories,
    TestRecalls,
    TestReviews,
    TestSearch,
    TestStandingBlocks,
    TestTimeline,
    TestTurns,
    TestVectors,
)
from lab.slices import without_log  # noqa: E402
from planted_words import NAMES, plant  # noqa: E402

pytestmark = pytest.mark.postgres


@pytest.fixture
async def store(url: str, tmp_path: Path) -> AsyncIterator[PostgresStore]:
    opened = open_store(StoreUrl(url), Config(), ManualClock(), keys=FolderKeys(tmp_path / "keys"))
    yield opened
    await opened.close(within=5.0)


def _dump(run_sql: Callable[..., list[tuple[Any, ...]]], url: str) -> str:
    """Every value of every column of the store's tables."""
    schema = StoreUrl(url).schema
    tables = run_sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
    return "\n".join(
        row[0] for (table,) in tables for row in run_sql(f"SELECT CAST(t AS text) FROM {schema}.{table} AS t")
    ).lower()


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_no_word_of_a_sealed_store_is_in_its_tables(
    sealed: bool, url: str, tmp_path: Path, run_sql: Callable[..., list[tuple[Any, ...]]]
) -> None:
    """M2: words that came in by every path, in no column of any table."""
    settings = {"keys": str(tmp_path / "keys")} if sealed else {}
    seen: set[str] = set()

    def look(words: dict[str, str]) -> None:
        content = _dump(run_sql, url)
        seen.update(path for path, word in words.items() if word[:9] in content)

    with without_log():
        words, found = await plant(url, settings, leave_out=(*NAMES, "a turn that waits in a file"), look=look)
    look(words)
    under_way = {"a review that is under way", "a turn that is under way"}
    assert seen - under_way == (set() if sealed else set(words) - under_way)
    assert not sealed or not seen
    assert any(found)


async def test_forgetting_a_space_leaves_nothing_to_the_server(url: str, tmp_path: Path) -> None:
    """M2: pages, logs, replicas and backups of the server cannot be read any more."""
    async with afterturn.open(url, {"keys": str(tmp_path / "keys")}) as memory:
        ada = memory.space("user:ada")
        added = await ada.add("The boat is red.")
        assert (await ada.forget(memory=added.entry.id)).remaining
        await ada.add("The boat is red.")
        forgotten = await ada.forget(everything=True)
        assert (forgotten.key_destroyed, forgotten.remaining, forgotten.out_of_reach) == (True, (), ())
        await ada.add("The boat is green.")
        assert [entry.text for entry in await ada.list()] == ["The boat is green."]
    with pytest.raises(KeysUnavailable, match="is sealed with keys"):
        async with afterturn.open(url):
            pass


async def test_rows_that_a_restore_brings_back_cannot_be_read(
    url: str, tmp_path: Path, run_sql: Callable[..., list[tuple[Any, ...]]]
) -> None:
    """M2: an error for that space only, until it is forgotten again."""
    schema = StoreUrl(url).schema
    async with afterturn.open(url, {"keys": str(tmp_path / "keys")}) as memory:
        ada, bob = memory.space("user:ada"), memory.space("user:bob")
        await ada.add("The boat is red.")
        await bob.add("The house is blue.")
        tables = ("entry", "entry_terms", "meta")
        for table in tables:
            run_sql(f"CREATE TABLE public.{schema}_{table} AS SELECT * FROM {schema}.{table}")
        await ada.forget(everything=True)
        run_sql(f"DELETE FROM {schema}.meta")
        for table in tables:
            run_sql(f"INSERT INTO {schema}.{table} SELECT * FROM public.{schema}_{table} ON CONFLICT DO NOTHING")
            run_sql(f"DROP TABLE public.{schema}_{table}")
        with pytest.raises(KeyMissing, match="The key of user:ada is gone"):
            await ada.list()
        assert [entry.text for entry in await bob.list()] == ["The house is blue."]
        await ada.forget(everything=True)
        await ada.add("The boat is green.")
        assert [entry.text for entry in await ada.list()] == ["The boat is green."]


async def test_a_sealed_file_can_be_moved_to_a_server(url: str, tmp_path: Path) -> None:
    """M4: sealed as it is, and searched there by the same keyed words."""
    settings = {"keys": str(tmp_path / "keys")}
    async with afterturn.open(tmp_path / "memory.db", settings) as memory:
        await memory.space("user:ada").add("The boat is red.", metadata={"place": "harbour"})
        await memory.space("user:ada").add("The house is blue.")
    done = migrate(
        tmp_path / "memory.db", StoreUrl(url), Config(**settings), tenant=None, keep=False, progress=lambda *_: None
    )
    assert done.is_equal
    async with afterturn.open(url, settings) as memory:
        ada = memory.space("user:ada")
        found = await ada.search("boat", filter=afterturn.Filter(metadata={"place": "harbour"}))
        assert [hit.entry.text for hit in found.hits] == ["The boat is red."]
        assert (await ada.forget(everything=True)).key_destroyed
    found_once = afterturn.recall_once("boat", user="ada", store=url, config=settings)
    assert not found_once.hits
