"""Statements are prepared once, whatever values they are run with."""

import apsw

from afterturn.config import Config
from afterturn.runtime.clock import SystemClock
from afterturn.stores.sqlite.engine import open_engine
from afterturn.testing.entries import admit, operation
from afterturn.types import LaneQuery, Scope

ADA = Scope("default", ("user:ada",))


def test_a_query_that_meets_a_partial_index_is_not_prepared_anew(tmp_path):
    """L6: that would take longer than to run it, at every recall."""
    engine = open_engine(tmp_path / "memory.db", Config(), SystemClock())
    for number in range(3):
        engine.write_now(lambda unit, number=number: add(unit, f"Ada keeps {number} bees"))
    prepared: list[int] = []

    def work(unit):
        connection = unit.index._session._connection
        keys = unit.index.newest("default", "user:ada", limit=3)
        connection.trace_v2(
            apsw.SQLITE_TRACE_PROFILE,
            lambda event: prepared.append(event["stmt_status"]["SQLITE_STMTSTATUS_REPREPARE"]),
        )
        for at, key in enumerate(keys):
            query = LaneQuery(ADA, 1000.0 + at, excluded_refs=frozenset({str(at)}))
            assert list(unit.index.resolve(query, [key])) == [key]
            assert len(unit.index.matches(query, ["bee"], limit=9)) == 3
        connection.trace_v2(0, None)

    engine.read_now(work)
    engine.close()
    assert len(prepared) >= 6
    assert not any(prepared)


def add(unit, text: str) -> None:
    unit.memories.add(operation(), admit(text))
