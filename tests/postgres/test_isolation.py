"""Row-level security: a query that forgets its tenant sees nothing of others."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from afterturn import blocking
from afterturn.config import Config, StoreUrl
from afterturn.errors import InvalidInput
from afterturn.ports import Unit
from afterturn.runtime.clock import SystemClock
from afterturn.stores.engine import Write
from afterturn.stores.postgres.engine import PostgresEngine, open_engine
from afterturn.stores.postgres.schema import ISOLATED
from afterturn.stores.postgres.store import find_faults
from afterturn.testing.clock import ManualClock
from afterturn.testing.entries import admit, operation
from afterturn.types import JobQueue, Scope, Tenant
from lab.postgres.server import PostgresServer

pytestmark = pytest.mark.postgres

RunSql = Callable[..., list[tuple[Any, ...]]]
ADA, BEN = Scope("acme", ("user:ada",)), Scope("globex", ("user:ben",))


@pytest.fixture
def engine(url: str) -> Iterator[PostgresEngine]:
    opened = open_engine(StoreUrl(url), Config(), SystemClock())
    yield opened
    opened.close()


@pytest.fixture
def session(url: str, server: PostgresServer) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection as the store has it, in its schema, without a pooler. Its transactions end with `rollback`."""
    with psycopg.connect(server.url(user="memory").partition("?")[0]) as connection:
        connection.execute(f"SET search_path TO {StoreUrl(url).schema}".encode())
        connection.commit()
        yield connection


def add(text: str, at: Scope) -> Write:
    made, admitted = operation(tenant=at.tenant, space=at.spaces[0]), admit(text)
    return Write(lambda unit: unit.memories.add(made, admitted).entry.id, at=at)


def every_text(unit: Unit) -> list[str]:
    """A query that somebody wrote without a condition."""
    return sorted(text for (text,) in unit.memories._session.rows("SELECT text FROM entry"))  # type: ignore[attr-defined]


def test_a_query_without_a_tenant_sees_its_own_rows_only(engine: PostgresEngine) -> None:
    """C5: a second line behind the conditions of every query."""
    for write in (add("Ada keeps bees", ADA), add("Ben likes tea", BEN)):
        assert engine.commit([write])[0].error is None
    assert engine.read_now(every_text, at=ADA) == ["Ada keeps bees"]
    assert engine.read_now(every_text, at=Tenant("globex")) == ["Ben likes tea"]
    assert engine.write_now(every_text, at=BEN) == ["Ben likes tea"]
    assert engine.read_now(every_text, at=Tenant("nobody")) == []
    assert engine.read_now(every_text, at=None) == ["Ada keeps bees", "Ben likes tea"]


def named_tenant(unit: Unit) -> tuple[str, str]:
    """The tenant that the transaction names, and the transaction's number."""
    query = "SELECT current_setting('afterturn.tenant'), CAST(pg_current_xact_id() AS text)"
    [(tenant, number)] = unit.memories._session.rows(query)  # type: ignore[attr-defined]
    return tenant, number


def test_a_commit_has_units_of_one_tenant_only(url: str) -> None:
    """C5: each of its transactions names the tenant."""
    left = [Write(named_tenant, at=at) for at in (ADA, Tenant("acme"), BEN, BEN, ADA)]
    groups = []
    # A clock that stands still: a slow group would be shared among several commits.
    with closing(open_engine(StoreUrl(url), Config(), ManualClock())) as engine:
        while left:
            outcomes = engine.commit(left)
            assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
            groups.append([outcome.value for outcome in outcomes])
            left = left[len(outcomes) :]
    assert [[tenant for tenant, _ in group] for group in groups] == [["acme"] * 2, ["globex"] * 2, ["acme"]]
    assert [len({number for _, number in group}) for group in groups] == [1, 1, 1]


def test_work_on_all_tenants_shares_a_commit_and_leaves_its_sight_to_no_other_unit(url: str) -> None:
    """C5: workers claim jobs of all tenants, also in a commit with units of the tenant that the settings name."""
    own = Tenant(Config().tenant)

    def look(unit: Unit) -> tuple[str, str, list[str]]:
        return (*named_tenant(unit), every_text(unit))

    def fail(unit: Unit) -> None:
        look(unit)
        raise InvalidInput("Something is wrong.")

    def between(work: Callable[[Unit], object]) -> list[Write]:
        return [Write(look, at=own), Write(work, at=JobQueue()), Write(look, at=own)]

    with closing(open_engine(StoreUrl(url), Config(), ManualClock())) as engine:
        assert engine.commit([add("Ben likes tea", BEN)])[0].error is None
        for failing in (False, True):
            before, queue, after = engine.commit(between(fail if failing else look))
            tenant, number, texts = before.value
            assert (tenant, texts) == (own.name, [])
            assert after.value == before.value, "another transaction, or rows of others"
            if failing:
                assert isinstance(queue.error, InvalidInput)
            else:
                assert queue.value == ("*", number, ["Ben likes tea"])


def test_without_a_tenant_nothing_is_seen_or_written(
    engine: PostgresEngine, session: psycopg.Connection[tuple[Any, ...]]
) -> None:
    """C5: fails closed, with the setting never made, and with the empty one that a transaction leaves behind."""
    assert engine.commit([add("Ada keeps bees", ADA)])[0].error is None
    assert session.execute("SELECT count(*) FROM entry").fetchone() == (0,)
    assert session.execute("UPDATE entry SET text = ''").rowcount == 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        session.execute("INSERT INTO space (tenant, name) VALUES ('acme', 'user:eve')")
    session.rollback()
    session.execute("SET LOCAL afterturn.tenant = 'acme'")
    assert session.execute("SELECT count(*) FROM entry").fetchone() == (1,)
    session.rollback()
    assert session.execute("SELECT current_setting('afterturn.tenant')").fetchone() == ("",)
    assert session.execute("SELECT count(*) FROM entry").fetchone() == (0,)
    assert session.execute("DELETE FROM entry").rowcount == 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        session.execute("INSERT INTO space (tenant, name) VALUES ('acme', 'user:eve')")


def test_a_row_of_another_tenant_cannot_be_written(session: psycopg.Connection[tuple[Any, ...]], url: str) -> None:
    open_engine(StoreUrl(url), Config(), SystemClock()).close()
    session.execute("SET LOCAL afterturn.tenant = 'acme'")
    session.execute("INSERT INTO space (tenant, name) VALUES ('acme', 'user:ada')")
    for statement in (
        "INSERT INTO space (tenant, name) VALUES ('globex', 'user:ben')",
        "UPDATE space SET tenant = 'globex'",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"), session.transaction():
            session.execute(statement.encode())


def test_a_row_without_an_owner_is_refused_when_all_tenants_are_open(
    session: psycopg.Connection[tuple[Any, ...]], url: str
) -> None:
    """Otherwise it would belong to nobody, and no tenant could find or forget it."""
    open_engine(StoreUrl(url), Config(), SystemClock()).close()
    session.execute("SET LOCAL afterturn.tenant = '*'")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        session.execute("INSERT INTO space (tenant, name) VALUES ('*', 'user:eve')")


def test_the_name_that_means_all_tenants_is_not_a_tenant(engine: PostgresEngine) -> None:
    with pytest.raises(InvalidInput, match="another name"):
        engine.read_now(every_text, at=Tenant("*"))
    with pytest.raises(InvalidInput, match="another name"):
        engine.write_now(every_text, at=Tenant("*"))


def test_a_store_is_not_opened_for_the_name_that_means_all_tenants(url: str) -> None:
    with pytest.raises(InvalidInput, match="Choose another name"):
        open_engine(StoreUrl(url), Config(tenant="*"), SystemClock())


def test_every_table_of_content_is_protected_except_for_the_index_of_words(
    engine: PostgresEngine, url: str, run_sql: RunSql
) -> None:
    """C5: the others belong to the store as a whole."""
    schema = StoreUrl(url).schema
    tables = {name for (name,) in run_sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")}
    assert tables - set(ISOLATED) == {"entry_terms", "meta", "embedder", "last_commit", "migration"}
    protected = run_sql(
        "SELECT relname FROM pg_class AS c JOIN pg_policy AS p ON p.polrelid = c.oid "
        f"WHERE relrowsecurity AND relforcerowsecurity AND relnamespace = '{schema}'::regnamespace"
    )
    assert sorted(name for (name,) in protected) == sorted(ISOLATED)


def test_no_table_shows_rows_of_another_tenant(
    engine: PostgresEngine, url: str, session: psycopg.Connection[tuple[Any, ...]], run_sql: RunSql
) -> None:
    """C5: a query without a condition, on a store in which two tenants did the same; and none without a tenant."""
    schema = StoreUrl(url).schema
    for tenant in ("acme", "globex"):
        with blocking.open(url, {"embedder": "none", "grace": 5.0}, tenant=tenant) as memory:
            memory.space("user:ada").add("Ada is allergic to nuts", pinned=True)
            for conversation, text in (
                ("sunday", "The tram to Lisbon was late."),
                ("monday", "Remember that my cat Miso is allergic to chicken."),
                ("tuesday", "What food is my cat allergic to?"),
            ):
                messages: list[dict[str, str]] = [{"role": "user", "content": text}]
                chat = memory.conversation(conversation, user="ada")
                if conversation == "monday":
                    chat.standing().block()
                with chat.turn(messages) as turn:
                    turn.inject(messages)
                    messages.append({"role": "assistant", "content": "Noted."})
                assert turn.wait_recorded(within=30.0)
                assert memory.drain(within=30.0)
            memory.space("user:ada").forget(conversation="sunday")
    seen = {}
    for table in ISOLATED:
        [(total,)] = run_sql(f"SELECT count(*) FROM {schema}.{table}")
        counts = []
        for tenant in ("acme", "globex", "*", ""):
            session.execute("SELECT set_config('afterturn.tenant', %s, true)", (tenant,))
            counts += session.execute(f"SELECT count(*) FROM {table}".encode()).fetchall()
        session.rollback()
        seen[table] = [count for (count,) in counts]
        own, others, *rest = seen[table]
        assert (own + others, rest) == (total, [total, 0]), table
    empty = {table for table, counts in seen.items() if not counts[2]}
    assert empty <= {"job", "carried", "unembedded", "embedding", "usage", "review_message", "spent_block"}


def test_statistics_show_values_of_unprotected_tables_only(
    engine: PostgresEngine, url: str, session: psycopg.Connection[tuple[Any, ...]], run_sql: RunSql
) -> None:
    """C5: an ordinary role sees no sample of a table with a policy. docs/production.md names the others."""
    for number in range(20):
        assert engine.commit([add(f"Ada keeps bees in box {number}", ADA)])[0].error is None
    schema = StoreUrl(url).schema
    run_sql(f"ANALYZE {schema}.entry; ANALYZE {schema}.entry_terms; ANALYZE {schema}.frequency")
    query = f"SELECT DISTINCT tablename FROM pg_stats WHERE schemaname = '{schema}'"
    assert {name for (name,) in run_sql(query)} >= {"entry", "entry_terms", "frequency"}
    session.execute("SET LOCAL afterturn.tenant = 'globex'")
    seen = {name for (name,) in session.execute(query.encode()).fetchall()}
    assert "entry_terms" in seen
    assert not seen & set(ISOLATED)


def test_a_row_that_belongs_to_another_tenants_cannot_be_written(
    engine: PostgresEngine, session: psycopg.Connection[tuple[Any, ...]]
) -> None:
    """C5: rows without a tenant of their own."""
    assert engine.commit([add("Ada keeps bees", ADA)])[0].error is None
    session.execute("SET LOCAL afterturn.tenant = '*'")
    [(key,)] = session.execute("SELECT key FROM space").fetchall()
    session.execute("SET LOCAL afterturn.tenant = 'globex'")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute("INSERT INTO frequency VALUES (%s, 'bees', 1)", (key,))


def test_indexes_are_used_under_row_level_security(engine: PostgresEngine) -> None:
    """L1: a condition is checked before the policy only if its operator cannot leak. Those of the store cannot, except
    for the one of `entry_terms`: with a policy there, no search could use its index."""

    def plan(query: str) -> str:
        def explain(unit: Unit) -> str:
            session = unit.memories._session  # type: ignore[attr-defined]
            # The tables are empty: without this, reading them from end to end would be best.
            session.rows("SELECT set_config('enable_seqscan', 'off', true)")
            return "\n".join(line for (line,) in session.rows(f"EXPLAIN {query}"))

        return engine.read_now(explain, at=ADA)

    for query, index in (
        ("SELECT text FROM entry WHERE key = ANY ('{7,8}')", "entry_pkey"),
        ("SELECT text FROM entry WHERE space_key = 7 AND key > 3 AND status = 'active' ORDER BY key", "entry_active"),
        ("SELECT key FROM space WHERE tenant = 'acme' AND name = 'user:ada'", "space_tenant_name_key"),
        ("SELECT term FROM frequency WHERE space_key = 7 AND term = ANY ('{bees,tea}')", "frequency_pkey"),
        ("SELECT data FROM timeline WHERE space_key = 7 ORDER BY seq DESC LIMIT 3", "timeline_pkey"),
        ("SELECT text FROM block WHERE conversation_key = 7 AND hash = 'x'", "block_pkey"),
        ("SELECT source FROM source WHERE source = ANY ('{bees,tea}')", "source_name"),
        (
            "SELECT data FROM embedding WHERE embedder_key = 1 AND space_key = 7 AND entry_key = ANY ('{1}')",
            "embedding_pkey",
        ),
        ("SELECT id FROM turn WHERE tenant = 'acme' AND touched_at < 3 AND status = 'open'", "turn_open"),
        (
            "SELECT e.id FROM entry_terms AS t JOIN entry AS e ON e.key = t.entry_key WHERE t.hashes && '{17}'",
            "entry_terms_hashes",
        ),
    ):
        found = plan(query)
        assert "InitPlan" in found, "the policy is not part of the plan"
        assert index in found
        assert "Seq Scan" not in found


def test_the_store_works_where_policies_are_not_allowed(url: str, run_sql: RunSql) -> None:
    """`doctor` says that the second line is off."""
    run_sql(
        "CREATE FUNCTION no_policies() RETURNS event_trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'not here' USING ERRCODE = 'insufficient_privilege'; END $$; "
        "CREATE EVENT TRIGGER no_policies ON ddl_command_start WHEN TAG IN ('CREATE POLICY') "
        "EXECUTE FUNCTION no_policies()"
    )
    try:
        engine = open_engine(StoreUrl(url), Config(), SystemClock())
    finally:
        run_sql("DROP EVENT TRIGGER no_policies; DROP FUNCTION no_policies")
    try:
        assert engine.commit([add("Ada keeps bees", ADA)])[0].error is None
        assert engine.read_now(every_text, at=ADA) == ["Ada keeps bees"]
        [finding] = [one for one in find_faults(engine.server) if one.subject == "row-level security"]
        assert (finding.level, "is off" in finding.message) == ("warning", True)
    finally:
        engine.close()


def test_doctor_says_that_it_is_on(engine: PostgresEngine) -> None:
    [finding] = [one for one in find_faults(engine.server) if one.subject == "row-level security"]
    assert finding.level == "ok"
