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
from afterturn.types import LaneQuery, Scope

pytestmark = pytest.mark.postgres

LARGE, SMALL = 20_000, 4_000
SCOPE = Scope("default", ("team:handbook",))
RunSql = Callable[..., list[tuple[Any, ...]]]

# Every hundredth entry of the large space names bees, every second one tea. The small ones are newer.
FILL = """
SET search_path TO {schema};
INSERT INTO space (key, tenant, name, documents, terms_total) SELECT 1, 'default', 'team:handbook', {large}, {large};
INSERT INTO space (key, tenant, name, documents, terms_total)
    SELECT 1 + i, 'default', 'user:' || i, 10, 10 FROM generate_series(1, {small}) AS i;
INSERT INTO entry (tenant, id, version, space_key, kind, status, text, target, origin, trust, content_hash, occurred_at,
    recorded_at, pinned, metadata, reason, has_sources)
    SELECT 'default', 'e' || i, 1, CASE WHEN i <= {large} THEN 1 ELSE 2 + (i - {large} - 1) / 10 END, 'statement',
    'active', 'bees', 'user', 'user', 100, 'hash' || i, 9, 9, 0, '{{}}', '', 0
    FROM generate_series(1, {large} + 10 * {small}) AS i;
INSERT INTO entry_terms (entry_key, hashes, terms)
    SELECT key, CASE WHEN space_key > 1 THEN ARRAY[key] WHEN key % 100 = 0 THEN ARRAY[{bee}, {tea}]
    WHEN key % 2 = 0 THEN ARRAY[{tea}] ELSE ARRAY[key] END,
    CASE WHEN key % 100 = 0 THEN '["bee", "tea"]' ELSE '["tea"]' END FROM entry;
INSERT INTO frequency (space_key, term, documents) VALUES (1, 'bee', {large} / 100), (1, 'tea', {large} / 2);
"""
READ = (
    "SELECT relname, seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE schemaname = current_schema() "
    "AND relname IN ('entry', 'entry_terms')"
)


@pytest.fixture
def engine(url: str, run_sql: RunSql) -> Iterator[PostgresEngine]:
    engine = open_engine(StoreUrl(url), Config(), SystemClock())
    schema = StoreUrl(url).schema
    run_sql(FILL.format(schema=schema, large=LARGE, small=SMALL, bee=_hash(1, "bee"), tea=_hash(1, "tea")))
    run_sql(f"VACUUM ANALYZE {schema}.entry")
    run_sql(f"VACUUM ANALYZE {schema}.entry_terms")
    run_sql(f"ANALYZE {schema}.space")
    yield engine
    engine.close()


def count_reads(unit: Unit, work: Callable[[Unit], int]) -> tuple[int, dict[str, int]]:
    session = unit._entries.session  # type: ignore[attr-defined]
    before: dict[str, int] = dict(session.rows(READ))
    found = work(unit)
    return found, {table: int(rows - before[table]) for table, rows in session.rows(READ)}


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
