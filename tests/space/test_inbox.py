"""The inbox of a space: what waits in it, and what becomes of that."""

import pytest

import afterturn
from afterturn.errors import Conflict, InvalidName, NotFound
from afterturn.types import Draft, Entry, Origin, Status, Target


async def propose(space: afterturn.Space, *texts: str) -> list[Entry]:
    """Oldest first, as they were proposed."""
    await space.add_many([Draft(text, origin=Origin.SUBAGENT, proposed=True) for text in texts])
    return list(reversed(await space.proposals()))


async def found(space: afterturn.Space, query: str) -> list[str]:
    return [hit.entry.text for hit in (await space.search(query)).hits]


async def test_what_is_proposed_waits_and_is_neither_listed_nor_recalled(ada: afterturn.Space) -> None:
    """A3, L7: only the inbox shows it."""
    (waiting,) = await propose(ada, "Node 22 is used")
    assert (waiting.status, waiting.origin) == (Status.PROPOSED, Origin.SUBAGENT)
    assert (await ada.list(), await found(ada, "Node")) == ([], [])


async def test_an_approved_proposal_is_a_memory_that_keeps_its_origin(
    memory: afterturn.Memory, ada: afterturn.Space
) -> None:
    """A3, G2: approving says that it may be remembered, not that somebody else said it; vectors follow."""
    (waiting,) = await propose(ada, "Node 22 is used")
    changed = await ada.approve(waiting.id)
    assert (changed.entry.status, changed.entry.origin) == (Status.ACTIVE, Origin.SUBAGENT)
    assert await memory.drain()
    (hit,) = (await ada.search("Which Node is used?")).hits
    assert (hit.entry.id, hit.similarity is not None) == (waiting.id, True)
    assert await ada.proposals() == []


async def test_a_rejected_proposal_is_gone_from_the_inbox(ada: afterturn.Space) -> None:
    """A3: and was never remembered."""
    first, second = await propose(ada, "Node 22 is used", "The port is 5433")
    changed = await ada.reject(first.id)
    assert changed.entry.status is Status.DELETED
    assert [entry.id for entry in await ada.proposals()] == [second.id]
    assert await found(ada, "Node") == []


@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_either_word_can_be_taken_back(ada: afterturn.Space, verb: str) -> None:
    """A3, M1: then it waits again."""
    (waiting,) = await propose(ada, "Node 22 is used")
    changed = await getattr(ada, verb)(waiting.id)
    await ada.undo(changed.operation)
    assert [entry.id for entry in await ada.proposals()] == [waiting.id]
    assert await found(ada, "Node") == []


@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_a_decision_on_what_is_not_a_proposal_is_refused(ada: afterturn.Space, verb: str) -> None:
    """A3: a memory is deleted, not rejected; and nobody decides twice."""
    memory = (await ada.add("Ada likes tea")).entry
    (waiting,) = await propose(ada, "Node 22 is used")
    await ada.reject(waiting.id)
    for id in (memory.id, waiting.id):
        with pytest.raises(Conflict, match="only a proposal"):
            await getattr(ada, verb)(id)
    assert [entry.text for entry in await ada.list()] == ["Ada likes tea"]


@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_a_word_reaches_its_own_space_only(memory: afterturn.Memory, ada: afterturn.Space, verb: str) -> None:
    """A3, L2: another space's inbox is another's."""
    (waiting,) = await propose(ada, "Node 22 is used")
    with pytest.raises(NotFound):
        await getattr(memory.space("user:grace"), verb)(waiting.id)
    with pytest.raises(InvalidName):
        await getattr(ada, verb)("no id!")
    assert len(await ada.proposals()) == 1


async def test_what_was_said_meanwhile_is_not_remembered_twice(ada: afterturn.Space) -> None:
    """A3, G6: the user's own words stand."""
    (waiting,) = await propose(ada, "Node 22 is used")
    said = (await ada.add("Node 22 is used", target=Target.USER)).entry
    with pytest.raises(Conflict, match=said.id):
        await ada.approve(waiting.id)
    assert [entry.origin for entry in await ada.list()] == [Origin.USER]


async def test_the_inbox_comes_in_pages(ada: afterturn.Space) -> None:
    """A3: newest first."""
    waiting = await propose(ada, *(f"Fact {n}" for n in range(5)))
    first = await ada.proposals(limit=2)
    second = await ada.proposals(limit=2, before=first[-1].id)
    assert [entry.id for entry in (*first, *second)] == [entry.id for entry in reversed(waiting[1:])]
