"""What a search costs: by which index the store finds rows, however large the space is."""

from collections.abc import Iterator, Sequence

import apsw
import pytest

from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.index import SqlIndex
from afterturn.stores.sql.memories import SqlMemories
from afterturn.stores.sql.operations import SqlOperations
from afterturn.stores.sql.session import Row, Value
from afterturn.stores.sqlite.schema import SCHEMA
from afterturn.stores.sqlite.session import ApswSession, FtsText
from afterturn.testing.entries import admit, operation
from afterturn.types import Scope, Status

TENANT, SPACE = "default", "user:ada"


class ExplainingSession(ApswSession):
    """Notes the steps of the query planner for each statement on entries or operations."""

    steps: list[str]

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        if sql.startswith(("SELECT e.key", "SELECT o.id")):
            self.steps += [str(row[3]) for row in super().rows(f"EXPLAIN QUERY PLAN {sql}", values)]
        return super().rows(sql, values)


@pytest.fixture
def session() -> Iterator[ExplainingSession]:
    connection = apsw.Connection(":memory:")
    connection.execute(SCHEMA.create)
    session = ExplainingSession(connection)
    session.steps = []
    yield session
    connection.close()


def test_what_an_older_version_was_learned_from_is_found_by_its_name(session: ExplainingSession):
    """L10, §13: every search asks for it, in a space of 100,000 too."""
    SqlMemories(Entries(session, FtsText(session))).learned_from(Scope(TENANT, (SPACE,)), ["r000"], [Status.SUPERSEDED])
    assert any("INDEX source_name " in step for step in session.steps)
    assert not [step for step in session.steps if "(space_key" in step]


def test_the_operations_on_an_entry_are_found_by_its_id(session: ExplainingSession):
    """§13: a standing block asks for those of each line."""
    SqlOperations(Entries(session, FtsText(session))).steps(Scope(TENANT, (SPACE,)), entry_id="m1")
    assert any("INDEX entry_id " in step for step in session.steps)
    assert not [step for step in session.steps if "(space_key" in step]


def test_a_page_of_an_index_does_not_look_through_those_before_it(session: ExplainingSession):
    """§13: an index of 100,000 entries is read in pages."""
    entries = Entries(session, FtsText(session))
    SqlMemories(entries).add(operation(), admit("I like tea"))
    SqlIndex(entries).entries(TENANT, SPACE, after=0, limit=10)
    assert any("(space_key=? AND rowid>?)" in step for step in session.steps)
