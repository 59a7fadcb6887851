"""What sub-agents learned, as it is filed: statement by statement, for a person to approve."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolbox import Toolbox

from afterturn.conversation.proposals import PROPOSALS_MAX, RESULT_CHARS_MAX, SHORT_CHARS_MAX, statements
from afterturn.errors import InvalidInput, StoreLocked
from afterturn.types import Filter, Lane, LaneQuery, Origin, Scope, Selector, Status, Target


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Toolbox]:
    made = Toolbox(tmp_path / "memory.db")
    yield made
    await made.close()


class LockedStore:
    """Another process holds the write lock, for longer than anybody waits."""

    async def write(self, work: object, *, at: object) -> None:
        raise StoreLocked("locked")


def test_a_short_answer_is_one_statement() -> None:
    """A3: one proposal for a short text."""
    assert statements(" The build needs\nNode 22. ") == ["The build needs\nNode 22."]


def test_a_report_gives_its_bullets_but_not_those_in_code() -> None:
    """A3: of a longer text, the lines that are bullets."""
    report = "I looked around.\n\n- The port is 5433\n* Node 22 is used\n  1. CI runs nightly\n"
    report += "```\n- not: this\n```\n2) Done"
    assert statements(report) == ["The port is 5433", "Node 22 is used", "CI runs nightly", "Done"]
    assert statements(report + "x" * SHORT_CHARS_MAX)[:2] == ["The port is 5433", "Node 22 is used"]


@pytest.mark.parametrize("result", ["word " * SHORT_CHARS_MAX, "", " \n ", None, 7, {"a": 1}, b"bytes", []])
def test_what_states_nothing_gives_nothing(result: object) -> None:
    """A3: prose is a report, not a memory."""
    assert statements(result) == []


def test_a_list_is_taken_as_it_is() -> None:
    """A3: a host that knows the statements passes them."""
    assert statements(("One.", "Two.")) == ["One.", "Two."]


@given(st.text(max_size=2_000) | st.lists(st.text(max_size=50), max_size=50))
def test_however_a_result_looks_there_is_a_bound_to_what_it_states(result: object) -> None:
    """A3, G5: one more than is taken, so that it can be said that there were more."""
    found = statements(result)
    assert len(found) <= PROPOSALS_MAX + 1
    assert not isinstance(result, str) or all(text and text in result for text in found)


def test_an_endless_answer_is_read_up_to_a_bound() -> None:
    """A3, G5: what stands behind it is not looked at."""
    assert statements("x " * RESULT_CHARS_MAX + "\n- The port is 5433") == []


async def test_each_statement_waits_for_approval_with_its_circumstances(box: Toolbox) -> None:
    """A3, G2: origin subagent, in the space that the conversation writes, with turn, project and task."""
    occasion = box.occasion({"user": "ada", "writes": "project:api", "project": "api", "agent": "coder"})
    added = await box.proposals().returned(occasion, "Look into  the\nbuild", ["CI runs nightly", "Node 22 is used"])
    waiting = await box.waiting("project:api")
    assert [entry.text for entry in waiting] == ["CI runs nightly", "Node 22 is used"]
    assert [one.entry for one in added] == waiting
    entry = waiting[0]
    assert (entry.origin, entry.status, entry.target) == (Origin.SUBAGENT, Status.PROPOSED, Target.ENVIRONMENT)
    assert (entry.owner, entry.conversation, entry.turn) == ("user:ada", "c1", "t1")
    assert (entry.agent, entry.project, dict(entry.metadata)) == ("coder", "api", {"task": "Look into the build"})
    assert [event.data["memory"] for event in box.told.named("proposed")] == [one.id for one in waiting]


async def test_what_waits_is_not_recalled(box: Toolbox) -> None:
    """A3, L7: nobody has approved it yet."""
    await box.proposals().returned(box.occasion(), "", ["The port is 5433"])
    query = LaneQuery(Scope("default", ("user:ada",)), box.clock.now(), Lane.LONG_TERM)
    assert await box.read(lambda unit: unit.index.matches(query, ["port", "5433"], limit=10)) == []


async def test_the_same_waits_once_and_what_is_known_is_not_proposed(box: Toolbox) -> None:
    """A3, G6: a duplicate gives the entry that is there, and no event."""
    known = await box.add("Node 22 is used", target=Target.ENVIRONMENT)
    proposals = box.proposals()
    first = await proposals.returned(box.occasion(), "", ["The port is 5433", "node 22 IS used"])
    again = await proposals.returned(box.occasion(), "", ["The port is 5433"])
    assert [one.created for one in (*first, *again)] == [True, False, False]
    assert [one.entry.id for one in (*first, *again)] == [first[0].entry.id, known.id, first[0].entry.id]
    assert len(box.told.named("proposed")) == 1


async def test_what_the_guard_refuses_is_told_and_the_rest_is_filed(box: Toolbox) -> None:
    """A3, G1: over-long and unreadable statements are refused with an event each."""
    texts = ["x" * 9_000, "nul \x00 inside", 7, "The port is 5433"]
    await box.proposals().returned(box.occasion(), "task \ud800", texts)
    (entry,) = await box.waiting()
    assert (entry.text, dict(entry.metadata)) == ("The port is 5433", {})
    reasons = [event.data["reason"] for event in box.told.named("proposal_refused")]
    assert reasons == ["TooLarge", "InvalidText", "InvalidInput"]


async def test_more_than_a_person_would_read_is_cut_and_told(box: Toolbox) -> None:
    """A3: a sub-agent that learned a hundred things learned nothing."""
    await box.proposals().returned(box.occasion(), "", [f"Fact number {n}" for n in range(100)])
    assert len(await box.waiting()) == PROPOSALS_MAX
    assert [event.data["reason"] for event in box.told.named("proposal_refused")] == ["too_many"]


async def test_an_answer_that_states_nothing_is_told(box: Toolbox) -> None:
    """A3: silence would look like a fault."""
    assert await box.proposals().returned(box.occasion(), "", []) == []
    assert box.told.named("proposal_refused")[0].data["reason"] == "no_statements"


async def test_a_store_that_can_not_be_written_costs_the_proposal_only(box: Toolbox) -> None:
    """A3: `returned` never raises for memory's sake; the event says why nothing waits."""
    assert await box.proposals(LockedStore()).returned(box.occasion(), "", ["The port is 5433"]) == []
    assert box.told.named("proposal_refused")[0].data["reason"] == "StoreLocked"


async def test_what_was_forgotten_meanwhile_does_not_come_back_as_a_proposal(box: Toolbox) -> None:
    """A3, M2: in-flight work can't bring it back."""
    since = await box.read(lambda unit: unit.conversations.forgets("default"))
    forgotten = Selector(conversation="c1")
    await box.store.write(
        lambda unit: unit.operations.forget("default", "user:ada", forgotten, at=box.clock.now()), at=None
    )
    proposals = box.proposals()
    assert await proposals.returned(box.occasion(since=since), "", ["The port is 5433"]) == []
    assert await box.waiting() == []
    assert box.told.named("proposal_refused")[0].data["reason"] == "Conflict"
    fresh = await box.read(lambda unit: unit.conversations.forgets("default"))
    assert len(await proposals.returned(box.occasion(since=fresh), "", ["The port is 5433"])) == 1


async def test_what_its_owner_forgot_is_not_proposed_to_the_team(box: Toolbox) -> None:
    """A3, M2: the conversation was forgotten in the space that owns it, not in the one that it writes."""
    occasion = box.occasion({"user": "ada", "writes": "team:ops"}, since=0)
    forgotten = Selector(conversation="c1")
    await box.store.write(
        lambda unit: unit.operations.forget("default", "user:ada", forgotten, at=box.clock.now()), at=None
    )
    assert await box.proposals().returned(occasion, "", ["The port is 5433"]) == []
    assert await box.waiting("team:ops") == []


async def test_what_one_answer_taught_is_undone_as_one(box: Toolbox) -> None:
    """A3, M1: the proposals of one answer share a group."""
    await box.proposals().returned(box.occasion(), "", ["The port is 5433", "CI runs nightly"])
    operations = await box.read(lambda unit: unit.operations.page(Scope("default", ("user:ada",)), limit=10))
    assert len(operations) == 2
    assert len({operation.group for operation in operations}) == 1
    assert {operation.actor for operation in operations} == {Origin.SUBAGENT}


async def test_forgetting_the_conversation_takes_its_proposals_along(box: Toolbox) -> None:
    """A3, M2: they were learned in it."""
    await box.proposals().returned(box.occasion(), "secret task", ["The port is 5433"])
    forgotten = Selector(conversation="c1")
    await box.store.write(
        lambda unit: unit.operations.forget("default", "user:ada", forgotten, at=box.clock.now()), at=None
    )
    every = Filter(statuses=tuple(Status))
    assert await box.read(lambda unit: unit.memories.page(Scope("default", ("user:ada",)), every, limit=9)) == []


async def test_proposing_directly_raises_what_is_wrong_and_writes_nothing(box: Toolbox) -> None:
    """A3, G1: for callers that answer to somebody."""
    with pytest.raises(InvalidInput):
        await box.proposals().propose(box.occasion(), ["The port is 5433", " "])
    assert await box.waiting() == []
