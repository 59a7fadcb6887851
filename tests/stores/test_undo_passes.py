"""What undoing costs: by which index a restored version's rivals are found."""

from collections.abc import Iterator

import apsw
import pytest

from afterturn.stores.sql.operations import _RIVAL, _RIVALRY
from afterturn.stores.sqlite.schema import SCHEMA
from afterturn.stores.sqlite.session import ApswSession
from afterturn.types import Status


@pytest.fixture
def session() -> Iterator[ApswSession]:
    connection = apsw.Connection(":memory:")
    connection.execute(SCHEMA.create)
    yield ApswSession(connection)
    connection.close()


@pytest.mark.parametrize("restored", list(_RIVALRY))
def test_undoing_does_not_look_through_the_space_for_rivals(session: ApswSession, restored: Status) -> None:
    """M1, §13: nine thousand edits of one space were undone in a minute, and now in seconds."""
    plan = session.rows(f"EXPLAIN QUERY PLAN {_RIVAL.format(rivalry=_RIVALRY[restored])}", (1,))
    searched = [str(row[3]) for row in plan if " r " in str(row[3])]
    assert searched
    assert all("space_key=? AND " in step for step in searched)
