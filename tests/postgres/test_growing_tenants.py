"""What tenant-wide questions cost on a server as spaces grow in number: rows read, counted and not timed."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from afterturn.config import Config, StoreUrl
from afterturn.ports import Unit
from afterturn.runtime.clock import SystemClock
from afterturn.stores.postgres.engine import PostgresEngine, open_engine
from afterturn.types import EmbedderIdentity, Selector, Tenant

pytestmark = pytest.mark.postgres

TENANT, SPACES = "default", 10_000
TODAY = "2026-01-02"
SMALL = EmbedderIdentity("small", "1", 4)
RunSql = Callable[..., list[tuple[Any, ...]]]

# A record, a statement, a proposal, an open turn and usage in each space. Of the other tenant's all is old.
FILL = """
SET search_path TO {schema};
INSERT INTO embedder (key, name, version, dimensions, normalised) VALUES (1, 'small', '1', 4, 1);
INSERT INTO space (tenant, name, embedder_key, changed_at, consolidated_at)
    SELECT tenant, 'user:' || i, 1, 800, 900
    FROM (VALUES ('default'), ('acme')) AS t (tenant), generate_series(1, {n}) AS i;
INSERT INTO entry (tenant, id, version, space_key, kind, status, text, target, origin, trust, content_hash, occurred_at,
    recorded_at, pinned, metadata, reason, has_sources)
    SELECT tenant, kind || status || key, 1, key, kind, status, 'bees', 'user', 'user', 100, 'hash', 9,
    CASE tenant WHEN 'acme' THEN 9 ELSE 900 END, 0, '{{}}', '', 0
    FROM space, (VALUES ('record', 'active'), ('statement', 'active'), ('statement', 'proposed')) AS k (kind, status);
INSERT INTO embedding (embedder_key, space_key, entry_key, data) SELECT 1, space_key, key, '\\x00' FROM entry;
INSERT INTO conversation (key, space_key, id, opened_at, active_at) SELECT key, key, 'talk', 1, 1 FROM space;
INSERT INTO turn (tenant, conversation_key, id, status, started_at, touched_at, user_hash)
    SELECT tenant, key, 'turn', 'open', 9, CASE tenant WHEN 'acme' THEN 9 ELSE 900 END, '' FROM space;
INSERT INTO usage (tenant, space_key, day, purpose, calls, tokens_in, tokens_out, estimated)
    SELECT tenant, key, CASE tenant WHEN 'acme' THEN '2026-01-02' ELSE '2026-01-01' END, 'review', 1, 2, 3, 0
    FROM space;
INSERT INTO review (tenant, space_key, id, kind, writes, created_at, conversation, turn, reads, forgets, state, written,
    proposed, refusals, calls, tokens, reason, spaces, notes)
    SELECT tenant, key, 'r' || key, 'asked', name, 9, 'talk', '', '[]', 0, 'waiting', 0, 0, '[]', 0, 0, '', '[]', '[]'
    FROM space;
INSERT INTO review_message (space_key, review, ordinal, role, speaker, text, trust, occurred_at, fresh)
    SELECT key, 'r' || key, 0, 'user', 'bob', 'bees', 100, 9, 1 FROM space;
INSERT INTO job (id, space_key, tenant, kind, payload, run_at, attempts, state, error)
    SELECT state || key, key, tenant, 'review', '', 9, 0, state, ''
    FROM space, (VALUES ('ready'), ('dead')) AS s (state) WHERE tenant = 'acme';
"""


READ = "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE schemaname = current_schema()"


@pytest.fixture
def engine(url: str, run_sql: RunSql) -> Iterator[PostgresEngine]:
    engine = open_engine(StoreUrl(url), Config(), SystemClock())
    run_sql(FILL.format(schema=StoreUrl(url).schema, n=SPACES))
    run_sql("ANALYZE")
    yield engine
    engine.close()


def test_what_is_due_is_found_without_reading_every_space(engine: PostgresEngine) -> None:
    """§13: in a tenant of many spaces, next to another whose rows are all due. Nothing is due here."""

    def ask(unit: Unit, what: str) -> tuple[object, int]:
        session = unit._entries.session  # type: ignore[attr-defined]
        before = session.row(READ)[0]
        found = QUESTIONS[what](unit)
        return found, int(session.row(READ)[0] - before)

    answers = {what: engine.write_now(lambda unit, what=what: ask(unit, what), at=Tenant(TENANT)) for what in QUESTIONS}
    assert {what: found for what, (found, _) in answers.items()} == {
        "abandoned turns": 0,
        "retention": [],
        "inbox": [],
        "consolidation": [],
        "usage": 0,
        "vectors": 0,
        "shared records": [],
        "forget": (),
        "unfinished jobs": False,
        "counts of jobs": {},
        "jobs": [],
        "dead jobs": 0,
    }
    assert {what: read for what, (_, read) in answers.items() if read > 100} == {}


QUESTIONS: dict[str, Callable[[Unit], object]] = {
    "abandoned turns": lambda unit: unit.conversations.abandon_turns(TENANT, idle_since=500.0, at=1000.0),
    "retention": lambda unit: unit.records.older_than(TENANT, 500.0, limit=100),
    "inbox": lambda unit: unit.memories.waiting_since(TENANT, 500.0, limit=100),
    "consolidation": lambda unit: unit.reviews.unconsolidated(TENANT, before=500.0, limit=100),
    "usage": lambda unit: unit.usage.tokens(TENANT, TODAY),
    "vectors": lambda unit: unit.index.waiting(TENANT, SMALL),
    "shared records": lambda unit: unit.records.spaces_of(TENANT, "user:1"),
    "forget": lambda unit: unit.operations.forget(TENANT, "user:1", Selector(speaker="bob"), at=9.0).ids,
    "unfinished jobs": lambda unit: unit.jobs.has_unfinished(TENANT, ["embed", "review"], by=1000.0),
    "counts of jobs": lambda unit: unit.jobs.counts(TENANT),
    "jobs": lambda unit: unit.jobs.page(TENANT),
    "dead jobs": lambda unit: unit.jobs.retry(TENANT, now=1000.0),
}
