"""What was recalled a while ago is looked at again before it is handed over."""

from collections.abc import Awaitable, Callable

import pytest
from controlled_store import Stage, caught_up, learn, settled
from spoken import assistant, user

import afterturn
from afterturn.types import Added

ASKED = "What goes into the soup?"
Change = Callable[[afterturn.Memory, Added], Awaitable[object]]


async def _delete(memory: afterturn.Memory, added: Added) -> None:
    await memory.space("user:ada").delete(added.entry.id)


async def _update(memory: afterturn.Memory, added: Added) -> None:
    await memory.space("user:ada").update(added.entry.id, "Basil goes into the soup")


async def _forget(memory: afterturn.Memory, added: Added) -> None:
    await memory.space("user:ada").forget(memory=added.entry.id)


@pytest.mark.parametrize("change", [_delete, _update, _forget])
async def test_what_changed_elsewhere_since_it_was_typed_is_not_handed_over(stage: Stage, change: Change) -> None:
    """R9, L7, M2: a speculation is used only while all that it found still holds."""
    async with stage.open() as memory, stage.open() as other:
        added = await memory.space("user:ada").add("Anise goes into the soup")
        conversation = memory.conversation("c", user="ada")
        conversation.expect("What goes into the soup")
        await caught_up(memory)
        await change(other, added)
        messages = [user(ASKED)]
        async with conversation.turn(messages) as turn:
            await settled(turn)
            element = turn.inject_now(messages)
            turn.abort()
    assert "Anise" not in str(element)


async def test_what_expired_while_it_was_carried_is_not_handed_over(stage: Stage) -> None:
    """R8, L7: a day later a memory may not be true any more."""
    async with stage.open() as memory:
        expires_at = stage.clock.now() + 3600
        await memory.space("user:ada").add("Anise goes into the soup", expires_at=expires_at)
        messages: list[object] = []
        await _late(stage, memory, messages)
        stage.clock.advance(7200)
        element = await _next(memory, messages, "What is my cat called?")
    assert stage.told.named("recall_carried")
    assert element is None


async def test_a_carried_recall_is_traced_though_something_was_forgotten_before(stage: Stage) -> None:
    """R5, R8: only a forget after the question was asked takes its trace along."""
    messages: list[object] = []
    async with stage.open() as memory:
        await memory.space("user:ada").forget(conversation="c")
        await learn(memory, stage.clock, ["Anise goes into the soup"])
        await _late(stage, memory, messages)
    async with stage.open() as memory:
        await _next(memory, messages, "What is my cat called?")
        trace = await memory.conversation("c", user="ada").trace()
    assert "delivered" in [recall.row.outcome for turn in trace.turns for recall in turn.recalls]


async def test_a_carried_cue_is_traced_as_a_cue(stage: Stage) -> None:
    """R8: another process knows why it was asked."""
    messages: list[object] = [user("Hello there, what is my cat called?")]
    async with stage.open() as memory:
        await learn(memory, stage.clock, ["Anise goes into the soup"])
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await settled(turn)
            messages.append(assistant("I do not know."))
            turn.cue(ASKED)
            await settled(turn)
        assert await turn.wait_recorded()
    async with stage.open() as memory:
        await _next(memory, messages, "Where is my car?")
        trace = await memory.conversation("c", user="ada").trace()
    asked = [(recall.row.cause, recall.row.question) for turn in trace.turns for recall in turn.recalls]
    assert ("cue", ASKED) in asked


async def test_a_list_that_only_grew_was_not_compacted(stage: Stage) -> None:
    """H7: a block that stands too far back to be looked at is not gone."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, ["Anise goes into the soup"])
        conversation = memory.conversation("c", user="ada")
        messages = [user(ASKED)]
        async with conversation.turn(messages) as turn:
            await settled(turn)
            assert turn.inject_now(messages) is not None
            messages.append(assistant("Anise"))
        for number in range(1100):
            messages += [user(f"filler {number}"), assistant(f"fine {number}")]
        messages.append(user("Which car do I drive?"))
        async with conversation.turn(messages) as turn:
            await settled(turn)
            turn.inject_now(messages)
            turn.abort()
    assert stage.told.named("compacted") == []


async def _late(stage: Stage, memory: afterturn.Memory, messages: list[object]) -> None:
    """A turn whose recall settles when the agent has answered."""
    stage.store.searching.shut()
    messages.append(user(ASKED))
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        assert turn.inject_now(messages) is None
        stage.store.searching.open()
        await settled(turn)
        messages.append(assistant("I do not know."))
    assert await turn.wait_recorded()
    await caught_up(memory)


async def _next(memory: afterturn.Memory, messages: list[object], said: str) -> object:
    messages.append(user(said))
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        await settled(turn)
        element = turn.inject_now(messages)
        messages.append(assistant("Noted."))
    assert await turn.wait_recorded()
    await caught_up(memory)
    return element
