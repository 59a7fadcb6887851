"""What SQL derives beside entries: bounded change rows, the encoding of terms."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.config import Config
from afterturn.stores.sql.entries import CHANGES_MAX, StatsDelta
from afterturn.stores.sqlite.engine import open_engine
from afterturn.stores.sqlite.schema import SCHEMA
from afterturn.stores.sqlite.session import ApswSession, FtsText
from afterturn.testing.clock import ManualClock
from afterturn.testing.entries import admit, operation
from afterturn.types import Scope

ADA = Scope("default", ("user:ada",))


@pytest.fixture
def session() -> Iterator[ApswSession]:
    connection = apsw.Connection(":memory:")
    connection.execute(SCHEMA.create)
    connection.execute("INSERT INTO space (tenant, name) VALUES ('default', 'user:ada')")
    yield ApswSession(connection)
    connection.close()


def test_the_trail_of_changes_is_bounded(session: ApswSession):
    """The oldest changes go, and the newest of a space stay."""
    stats = StatsDelta(session)
    for _ in range(5):
        for key in range(CHANGES_MAX // 4):
            stats.changed(key, 1)
        stats.flush()
    count, oldest, newest = session.rows("SELECT count(*), min(seq), max(seq) FROM change")[0]
    assert (count, newest - oldest + 1, newest) == (CHANGES_MAX, CHANGES_MAX, CHANGES_MAX // 4 * 5)


def test_whoever_is_too_far_behind_is_told_to_rebuild(tmp_path: Path):
    """A gap in the trail is never passed off as the whole of it."""
    store = open_engine(tmp_path / "memory.db", Config(synchronous="normal"), ManualClock())
    store.write_now(lambda unit: unit.memories.add(operation(), admit("Ada keeps bees")))

    def work(unit):
        for number in range(CHANGES_MAX + 1):
            unit.memories.add(operation(), admit(f"fact {number}"))

    store.write_now(work)
    seen = [store.read_now(lambda unit, s=s: unit.index.changes("default", "user:ada", since=s)) for s in (0, 2_001)]
    store.close()
    assert seen[0].keys is None
    assert len(seen[1].keys or ()) == CHANGES_MAX + 2 - 2_001


@given(st.lists(st.text(st.characters(), min_size=1, max_size=8), max_size=6))
def test_terms_come_back_as_they_were_put(terms: list[str]):
    """L5: whatever a term holds, the index neither cuts nor folds it."""
    connection = apsw.Connection(":memory:")
    connection.execute(SCHEMA.create)
    text = FtsText(ApswSession(connection))
    text.put(1, 7, terms)
    text.put(2, 70, terms)
    assert text.find([1]) == {1: tuple(terms)}
    for term in terms:
        condition, value = text.matching([7], [term], 1)
        assert connection.execute(f"SELECT rowid FROM entry_terms WHERE {condition}", (value,)).fetchall() == [(1,)]
    connection.close()
