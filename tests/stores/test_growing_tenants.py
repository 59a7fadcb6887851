"""What tenant-wide questions cost as a tenant's spaces grow in number: SQLite's steps, counted and not timed."""

from collections.abc import Callable, Iterator

import apsw
import pytest

from afterturn.stores.sql.unit import SqlUnit
from afterturn.stores.sqlite.schema import SCHEMA
from afterturn.stores.sqlite.session import ApswSession, FtsText
from afterturn.testing.entries import admit, operation
from afterturn.types import EmbedderIdentity, Kind, Selector, Verb

TENANT, OTHER, SPACE = "default", "acme", "user:ada"
TODAY = "2026-01-02"
SMALL = EmbedderIdentity("small", "1", 4)
FEW, MANY = 10, 10_000
STEPS = "SQLITE_STMTSTATUS_VM_STEP"


class Database:
    """A store in memory, with the statements that ran and SQLite's steps in them."""

    def __init__(self) -> None:
        self.connection = apsw.Connection(":memory:")
        self.connection.execute(SCHEMA.create)
        self.session = ApswSession(self.connection)
        self.statements: list[str] = []
        self.steps = 0
        self.connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._note)

    def _note(self, event: dict[str, object]) -> None:
        status = event["stmt_status"]
        assert isinstance(status, dict)
        self.statements.append(str(event["sql"]))
        self.steps += status[STEPS]

    def write(self, work: Callable[[SqlUnit], object]) -> None:
        unit = SqlUnit(self.session, FtsText(self.session))
        work(unit)
        unit.flush()

    def count(self, ask: Callable[[SqlUnit], object]) -> int:
        """The steps of one read."""
        self.steps = 0
        ask(SqlUnit(self.session, FtsText(self.session)))
        return self.steps


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database()
    yield database
    database.connection.close()


def fill(database: Database, spaces: int) -> None:
    """So many spaces of the tenant, and as many of another, with a record, a statement, a turn and usage each.

    Nothing is due of this tenant; the other's record, proposal and open turn are old.
    """
    run = database.connection.execute
    identity = (SMALL.name, SMALL.version, SMALL.dimensions, 1)
    run("INSERT OR IGNORE INTO embedder (key, name, version, dimensions, normalised) VALUES (1, ?, ?, ?, ?)", identity)
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
    for tenant, at in ((TENANT, 900), (OTHER, 9)):
        run(
            f"{numbers} INSERT OR IGNORE INTO space (tenant, name, embedder_key, changed_at, consolidated_at) "
            "SELECT ?, 'user:' || i, 1, 800, 900 FROM n",
            (spaces, tenant),
        )
        for kind, status in (("record", "active"), ("statement", "active"), ("statement", "proposed")):
            run(
                "INSERT OR IGNORE INTO entry (id, version, tenant, space_key, kind, status, text, target, origin, "
                "trust, content_hash, occurred_at, recorded_at, pinned, metadata, reason, has_sources) "
                "SELECT ?1 || ?2 || key, 1, tenant, key, ?1, ?2, 'bees', 'user', 'user', 100, 'hash', ?3, ?3, 0, '{}', "
                "'', 0 FROM space WHERE tenant = ?4",
                (kind, status, at, tenant),
            )
        run(
            "INSERT OR IGNORE INTO conversation (key, space_key, id, opened_at, active_at) "
            "SELECT key, key, 'talk', 1, 1 FROM space WHERE tenant = ?",
            (tenant,),
        )
        run(
            "INSERT OR IGNORE INTO turn (tenant, conversation_key, id, status, started_at, touched_at, user_hash) "
            "SELECT tenant, key, 'turn', 'open', ?, ?, '' FROM space WHERE tenant = ?",
            (at, at, tenant),
        )
        run(
            "INSERT OR IGNORE INTO review (tenant, space_key, id, kind, writes, created_at, conversation, turn, reads, "
            "forgets, state, written, proposed, refusals, calls, tokens, reason, spaces, notes) SELECT tenant, key, "
            "'r' || key, 'asked', name, 9, 'talk', '', '[]', 0, 'waiting', 0, 0, '[]', 0, 0, '', '[]', '[]' "
            "FROM space WHERE tenant = ?",
            (tenant,),
        )
        run(
            "INSERT OR IGNORE INTO review_message (space_key, review, ordinal, role, speaker, text, trust, "
            "occurred_at, fresh) SELECT key, 'r' || key, 0, 'user', 'bob', 'bees', 100, 9, 1 "
            "FROM space WHERE tenant = ?",
            (tenant,),
        )
        run(
            "INSERT OR IGNORE INTO usage (tenant, space_key, day, purpose, calls, tokens_in, tokens_out, estimated) "
            "SELECT tenant, key, ?, 'review', 1, 2, 3, 0 FROM space WHERE tenant = ?",
            ("2026-01-01" if tenant == TENANT else TODAY, tenant),
        )
    run(
        "INSERT OR IGNORE INTO embedding (embedder_key, space_key, entry_key, data) "
        "SELECT 1, space_key, key, x'00' FROM entry"
    )


def cost(database: Database, ask: Callable[[SqlUnit], object]) -> tuple[int, int]:
    """The steps of the same question in a tenant with few spaces, and with many."""
    fill(database, FEW)
    few = database.count(ask)
    fill(database, MANY)
    return few, database.count(ask)


@pytest.mark.parametrize(
    "ask",
    [
        lambda unit: unit.conversations.abandon_turns(TENANT, idle_since=500.0, at=1000.0) == 0,
        lambda unit: unit.records.older_than(TENANT, 500.0, limit=100) == [],
        lambda unit: unit.memories.waiting_since(TENANT, 500.0, limit=100) == [],
        lambda unit: unit.reviews.unconsolidated(TENANT, before=500.0, limit=100) == [],
        lambda unit: unit.usage.tokens(TENANT, TODAY) == 0,
        lambda unit: unit.records.spaces_of(TENANT, "user:1") == [],
    ],
    ids=["abandoned turns", "retention", "inbox", "consolidation", "usage", "shared records"],
)
def test_finding_out_that_nothing_is_due_does_not_read_every_space(
    database: Database, ask: Callable[[SqlUnit], bool]
) -> None:
    """§13: housekeeping asks each hour, for its own tenant."""
    answers: list[bool] = []
    few, many = cost(database, lambda unit: answers.append(ask(unit)))
    assert answers == [True, True]
    assert many <= few


@pytest.mark.parametrize(
    "selector", [Selector(conversation="talk"), Selector(speaker="bob"), Selector(everything=True)], ids=repr
)
def test_a_forget_does_not_read_every_space(database: Database, selector: Selector) -> None:
    """M2, §13: what reviews are still to read is found by space, and by the space that they write to."""
    steps = []
    for spaces, space in ((FEW, "user:1"), (MANY, "user:2")):
        fill(database, spaces)
        steps.append(database.count(lambda unit, space=space: unit.operations.forget(TENANT, space, selector, at=9.0)))
        assert (
            database.session.rows(
                "SELECT 1 FROM review_message JOIN space ON space.key = space_key WHERE tenant = ? AND name = ?",
                (TENANT, space),
            )
            == []
        )
    assert steps[1] < 2 * steps[0]


def test_a_space_that_is_due_is_found_among_many(database: Database) -> None:
    """V10, §13: a change, and a consolidation that was long ago."""
    fill(database, MANY)
    run = database.connection.execute
    run("UPDATE space SET changed_at = 950 WHERE tenant = ? AND name = 'user:77'", (TENANT,))
    run("UPDATE space SET consolidated_at = 100, changed_at = 50 WHERE tenant = ? AND name = 'user:78'", (TENANT,))
    found: list[str] = []
    steps = database.count(lambda unit: found.extend(unit.reviews.unconsolidated(TENANT, before=500.0, limit=100)))
    assert found == ["user:78", "user:77"]
    assert steps < MANY


def test_entries_that_wait_for_vectors_are_counted_without_reading_the_others(database: Database) -> None:
    """M3, §13: in a tenant of any size."""
    few, many = cost(database, lambda unit: unit.index.waiting(TENANT, SMALL))
    assert many <= few


def test_entries_that_wait_for_vectors_are_found_without_reading_the_space(database: Database) -> None:
    """M3, §13: of two thousand records one waits."""

    def add(number: int) -> None:
        drafts = [admit(f"bees {number} {at}", kind=Kind.RECORD, conversation="talk") for at in range(number)]
        database.write(lambda unit: unit.records.add(operation(Verb.RECORD), drafts))

    def embed(unit: SqlUnit) -> None:
        found = unit.index.unembedded(TENANT, SPACE, SMALL, limit=2_000)
        unit.index.put_vectors(TENANT, SPACE, SMALL, [(key, bytes(8)) for key, _ in found])

    steps = []
    for number in (10, 2_000):
        add(number)
        database.write(embed)
        add(1)
        assert len(database.session.rows("SELECT 1 FROM unembedded")) == 1
        steps.append(database.count(lambda unit: unit.index.unembedded(TENANT, SPACE, SMALL, limit=99)))
        steps.append(database.count(lambda unit: unit.index.waiting(TENANT, SMALL, space=SPACE)))
        database.write(embed)
    assert steps[:2] == steps[2:]


def test_records_that_get_their_vectors_in_the_same_unit_write_no_row_of_the_backlog(database: Database) -> None:
    """M4: the built-in embedder makes vectors while a turn is recorded."""

    def work(unit: SqlUnit) -> None:
        unit.records.add(operation(Verb.RECORD), [admit("hello bees", kind=Kind.RECORD, conversation="talk")])
        found = unit.index.unembedded(TENANT, SPACE, SMALL, limit=9)
        assert [text for _, text in found] == ["hello bees"]
        unit.index.put_vectors(TENANT, SPACE, SMALL, [(key, bytes(8)) for key, _ in found])

    database.write(work)
    database.statements.clear()
    database.write(work)
    named = [sql for sql in database.statements if "unembedded" in sql]
    assert len(named) == 1
    assert named[0].startswith("SELECT")
