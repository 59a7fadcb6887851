"""What a search of a large space costs among many small ones: rows read, counted and not timed."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from afterturn.config import Config, StoreUrl
from afterturn.ports import Unit
from afterturn.recall.query import RecallRequest
from afterturn.recall.search import search
from afterturn.runtime.clock import SystemClock
from afterturn.stores.postgres.engine import PostgresEngine, open_engine
from afterturn.stores.postgres.session import _hash
from afterturn.types import EmbedderIdentity, LaneQuery, Scope

pytestmark = pytest.mark.postgres

LARGE, SMALL = 20_000, 4_000
SCOPE = Scope("default", ("team:handbook",))
RunSql = Callable[..., list[tuple[Any, ...]]]

# In the order of their keys: every hundredth entry of the large space names bees, every second one tea. The small ones
# are newer, and are stored first here.
ENTRIES = """
INSERT INTO entry (key, tenant, id, version, space_key, kind, status, text, target, origin, trust, content_hash,
    occurred_at, recorded_at, pinned, metadata, reason, has_sources)
    SELECT i, 'default', 'e' || i, 1, {space}, 'statement', 'active', 'bees', 'user', 'user', 100, 'hash' || i, 9, 9, 0,
    '{{}}', '', 0 FROM generate_series({first}, {last}) AS i;
"""
SMALL_SPACES = """
SET search_path TO {schema};
INSERT INTO space (key, tenant, name, documents, terms_total)
    SELECT 1 + i, 'default', 'user:' || i, 10, 10 FROM generate_series(1, {small}) AS i;
{entries}
INSERT INTO entry_terms (entry_key, hashes, terms) SELECT key, ARRAY[key], '["tea"]' FROM entry;
INSERT INTO embedder (key, name, version, dimensions, normalised) VALUES (1, 'small', '1', 4, 1);
INSERT INTO embedding (embedder_key, space_key, entry_key, data) SELECT 1, space_key, key, '\\x00' FROM entry;
"""
LARGE_SPACE = """
SET search_path TO {schema};
INSERT INTO space (key, tenant, name, documents, terms_total) VALUES (1, 'default', 'team:handbook', {large}, {large});
{entries}
INSERT INTO entry_terms (entry_key, hashes, terms)
    SELECT key, CASE WHEN key % 100 = 0 THEN ARRAY[{bee}, {tea}] WHEN key % 2 = 0 THEN ARRAY[{tea}] ELSE ARRAY[key] END,
    CASE WHEN key % 100 = 0 THEN '["bee", "tea"]' ELSE '["tea"]' END FROM entry WHERE space_key = 1;
INSERT INTO embedding (embedder_key, space_key, entry_key, data)
    SELECT 1, space_key, key, '\\x00' FROM entry WHERE space_key = 1;
INSERT INTO frequency (space_key, term, documents) VALUES (1, 'bee', {large} / 100), (1, 'tea', {large} / 2);
"""
READ = "SELECT relname, seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE schemaname = current_schema()"


@pytest.fixture(params=["analyzed", "imported a moment ago"])
def engine(request: pytest.FixtureRequest, url: str, run_sql: RunSql) -> Iterator[PostgresEngine]:
    """With and without the large space in the statistics of the planner."""
    engine = open_engine(StoreUrl(url), Config(), SystemClock())
    schema = StoreUrl(url).schema
    entries = ENTRIES.format(space=f"2 + (i - {LARGE} - 1) / 10", first=LARGE + 1, last=LARGE + 10 * SMALL)
    run_sql(SMALL_SPACES.format(schema=schema, small=SMALL, entries=entries))
    if request.param != "analyzed":
        run_sql("ANALYZE")
    entries = ENTRIES.format(space=1, first=1, last=LARGE)
    hashes = {"bee": _hash(1, "bee"), "tea": _hash(1, "tea")}
    run_sql(LARGE_SPACE.format(schema=schema, large=LARGE, entries=entries, **hashes))
    if request.param == "analyzed":
        run_sql("VACUUM ANALYZE")
    yield engine
    engine.close()


def count_reads(unit: Unit, work: Callable[[Unit], int]) -> tuple[int, dict[str, int]]:
    session = unit._entries.session  # type: ignore[attr-defined]
    before: dict[str, int] = dict(session.rows(READ))
    found = work(unit)
    return found, {table: int(rows - before.get(table, 0)) for table, rows in session.rows(READ)}


def search_for(text: str) -> Callable[[Unit], int]:
    request = RecallRequest(text, LaneQuery(SCOPE, 10.0), limit=10, score_min=0.0)
    return lambda unit: len(search(unit, request).hits)


def test_a_search_reads_what_it_found_and_not_the_space(engine: PostgresEngine) -> None:
    """§13: also when the planner expects as few entries in the space as in any other."""
    found, read = engine.read_now(lambda unit: count_reads(unit, search_for("bees")), at=SCOPE)
    assert found == 10
    # 200 entries have the term; the newest 1,000 of the space are read too, because new ones score higher.
    assert read["entry"] < 2000
    assert read["entry_terms"] < 1000


def test_a_search_by_a_common_word_reads_few_entries(engine: PostgresEngine) -> None:
    found, read = engine.read_now(lambda unit: count_reads(unit, search_for("tea")), at=SCOPE)
    assert found == 10
    assert read["entry"] < 2000


def test_a_page_and_the_newest_of_a_space_are_found_among_newer_spaces(engine: PostgresEngine) -> None:
    tenant, space = SCOPE.tenant, SCOPE.spaces[0]

    def read_ends(unit: Unit) -> int:
        page = unit.index.entries(tenant, space, after=LARGE - 10, limit=256)
        return len(page) + len(unit.index.newest(tenant, space, limit=20))

    found, read = engine.read_now(lambda unit: count_reads(unit, read_ends), at=SCOPE)
    assert found == 10 + 20
    assert read["entry"] < 200


def test_entries_and_vectors_are_read_by_their_keys(engine: PostgresEngine) -> None:
    tenant, space = SCOPE.tenant, SCOPE.spaces[0]
    keys = list(range(100, 200))

    def read_keys(unit: Unit) -> int:
        found = unit.index.entries(tenant, space, keys=keys, limit=len(keys))
        return len(found) + len(unit.index.vectors(tenant, space, EmbedderIdentity("small", "1", 4), keys))

    found, read = engine.read_now(lambda unit: count_reads(unit, read_keys), at=SCOPE)
    assert found == 2 * len(keys)
    assert read["entry"] + read["embedding"] < 1000
