"""What forgetting costs: rows looked at, counted and not timed."""

from collections.abc import Callable, Iterator, Sequence

import apsw
import pytest

from afterturn.stores.sql.conversations import SqlRecalls
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.forget import BY_SOURCE, CALLED, GONE_SOURCES, RESTING, Eraser
from afterturn.stores.sql.jobs import SqlJobs
from afterturn.stores.sql.records import SqlRecords
from afterturn.stores.sql.session import Row, Value
from afterturn.stores.sql.timeline import SqlTimeline
from afterturn.stores.sqlite.schema import SCHEMA
from afterturn.stores.sqlite.session import ApswSession, FtsText
from afterturn.testing.entries import admit, operation
from afterturn.types import ConversationKey, Event, Job, Kind, Outcome, Phase, RecallCause, RecallRow, Selector, Verb

TENANT, SPACE = "default", "user:ada"
EVENTS, JOBS, RECORDS, RECALLS = 300, 20, 60, 40


class CountingSession(ApswSession):
    """Counts the rows that it read from the tables whose rows have to be parsed."""

    parsed = 0

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        found = super().rows(sql, values)
        if "FROM timeline" in sql or "FROM job" in sql or "FROM recall" in sql:
            self.parsed += len(found)
        return found


@pytest.fixture
def session() -> Iterator[CountingSession]:
    connection = apsw.Connection(":memory:")
    connection.execute(SCHEMA.create)
    yield CountingSession(connection)
    connection.close()


@pytest.fixture
def forget(session: CountingSession) -> Callable[[Selector], int]:
    """Forgets in a space with a busy history; how many entries went."""
    entries = Entries(session, FtsText(session))
    said = [admit(f"hello number{at}", id=f"r{at:03d}", kind=Kind.RECORD, conversation="talk") for at in range(RECORDS)]
    SqlRecords(entries).add(operation(Verb.RECORD), said)
    events = [Event("delivered", float(at), TENANT, SPACE, data={"refs": f"x{at}"}) for at in range(EVENTS)]
    SqlTimeline(entries).add(events, entries_max=EVENTS)
    for at in range(JOBS):
        SqlJobs(entries).add(Job(f"j{at}", "embed", TENANT, SPACE, "{}", 1.0))
    for at in range(RECALLS):
        row = RecallRow(f"c{at}", "turn", 1, RecallCause.MESSAGE, Phase.FAST, "hm?", 1.0, 2.0, Outcome.EMPTY, "")
        SqlRecalls(entries).add(ConversationKey(TENANT, SPACE, "talk"), row, entries_max=RECALLS)
    entries.flush()
    session.parsed = 0
    return lambda selector: len(Eraser(entries).forget(TENANT, SPACE, selector, at=9.0).ids)


@pytest.mark.parametrize("count", [1, RECORDS])
def test_forgetting_many_looks_through_the_space_once(
    session: CountingSession, forget: Callable[[Selector], int], count: int
):
    """M2, M4: a day's retention is one look through jobs, timeline and recalls, not one for each record."""
    erased = forget(Selector(memories=tuple(f"r{at:03d}" for at in range(count))))
    assert (erased, session.parsed) == (count, EVENTS + JOBS + RECALLS)


def test_forgetting_a_record_does_not_look_through_what_reviews_are_to_read(session: CountingSession):
    """M2, §13: its messages are found by their record, however many spaces a tenant has."""
    condition, value = session.among("source", ["r000"])
    plan = session.rows(f"EXPLAIN QUERY PLAN {BY_SOURCE.format(condition=condition)}", (value, TENANT))
    assert "review_message_source" in str(plan)
    assert "SCAN review_message" not in str(plan)


@pytest.mark.parametrize(
    "sql,column,index",
    [
        (RESTING.replace("{named}", "{condition}"), "source", "source_name"),
        (GONE_SOURCES, "source", "source_name"),
        (CALLED, "e.id", "entry_id"),
    ],
    ids=["resting", "gone", "called"],
)
def test_what_rests_on_a_record_is_found_by_its_name(session: CountingSession, sql: str, column: str, index: str):
    """M2, §13: in whichever space it is, without a look through all that the tenant's spaces hold."""
    condition, value = session.among(column, ["r000"])
    plan = [
        str(row[3]) for row in session.rows(f"EXPLAIN QUERY PLAN {sql.format(condition=condition)}", (value, TENANT))
    ]
    assert any(f"INDEX {index} " in step for step in plan)
    assert not [step for step in plan if "(space_key=?" in step or "(tenant=?)" in step]
    assert {step for step in plan if step.startswith("SCAN")} == {"SCAN json_each VIRTUAL TABLE INDEX 1:"}
