"""Hosts that hide what their model sees: memory goes by what it handed over and by what it is told (L4, L9)."""

from controlled_store import Stage, caught_up, learn, learn_herbs, letters, settled
from spoken import user

import afterturn

SOUP = "What goes into the soup?"
THREE = {"recall_entries_max": 3, "recording": False}


def _hidden(memory: afterturn.Memory) -> afterturn.Conversation:
    return memory.conversation("c", user="ada", history="hidden")


async def _shown(memory: afterturn.Memory, text: str = SOUP) -> str:
    messages = [user(text)]
    async with _hidden(memory).turn(messages) as turn:
        element = await turn.inject(messages)
        turn.abort()
    await caught_up(memory)
    return letters(element)


async def test_when_all_that_is_relevant_was_shown_it_is_offered_again(stage: Stage) -> None:
    """L4, L3: the exclusions are cleared once nothing is left above the floor, and told of."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        shown = [await _shown(memory) for _ in range(5)]
    assert shown == ["ABC", "DEF", "GH", "ABC", "DEF"]
    assert stage.count("exclusions_exhausted") == 1


async def test_a_host_that_reports_every_compaction_is_shown_nothing_twice(stage: Stage) -> None:
    """L4: its model still sees it all, until a compaction is reported."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation, shown = memory.conversation("c", user="ada", history="reported"), []
        for turn_number in range(6):
            if turn_number == 5:
                conversation.compacted()
            messages = [user(SOUP)]
            async with conversation.turn(messages) as turn:
                element = await turn.inject(messages)
                turn.abort()
            await caught_up(memory)
            shown.append("" if element is None else letters(element))
    assert shown == ["ABC", "DEF", "GH", "", "", "ABC"]


async def test_another_process_knows_what_was_shown(stage: Stage) -> None:
    """L3, H5: ledger and exclusions belong to the store, also after they were exhausted."""
    shown = []
    for _ in range(5):
        async with stage.open(**THREE) as memory:
            if not await memory.space("user:ada").list():
                await learn_herbs(memory, stage.clock)
            shown.append(await _shown(memory))
    assert shown == ["ABC", "DEF", "GH", "ABC", "DEF"]


async def test_exhaustion_asks_once_more_and_no_more_than_that(stage: Stage) -> None:
    """L4, R1: if nothing is relevant, it does not ask twice in a row: one recall for each epoch."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        await _shown(memory)
        nothing = await _shown(memory, "Where is the Kremlin?")
    assert nothing == ""
    assert stage.count("recall_started") == 2
    assert stage.store.searches == 2


async def test_a_compaction_in_another_process_is_remembered(stage: Stage) -> None:
    """H7, L4: told in one process, it clears what the next one excludes."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        first = await _shown(memory)
    async with stage.open(**THREE) as memory:
        _hidden(memory).compacted()
    async with stage.open(**THREE) as memory:
        second = await _shown(memory)
    assert (first, second) == ("ABC", "ABC")
    assert stage.count("exclusions_exhausted") == 0


async def test_what_was_said_since_the_last_compaction_is_not_echoed(stage: Stage) -> None:
    """L9: the model still sees it, though nobody shows us; what was said before the compaction may come."""
    asked = "Which bicycle do I have, a Pashley?"
    found = []
    async with stage.open() as memory:
        conversation = _hidden(memory)
        turn = conversation.turn([user("My bicycle is a green Pashley"), {"role": "assistant", "content": "Noted."}])
        turn.finish()
        assert await turn.wait_recorded()
        for _ in range(2):
            messages = [user(asked)]
            async with conversation.turn(messages) as turn:
                await settled(turn)
                found.append("green Pashley" in str(await turn.inject(messages)))
                turn.abort()
            stage.clock.advance(60)
            conversation.compacted()
            await caught_up(memory)
    assert found == [False, True]


async def test_every_compaction_in_the_middle_of_a_turn_asks_once_more(stage: Stage) -> None:
    """H7: the very next point brings the block; each fresh query is in the same epoch, and counted apart."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation, messages = _hidden(memory), [user(SOUP)]
        async with conversation.turn(messages) as turn:
            shown = [letters(await turn.inject(messages))]
            for _ in range(3):
                conversation.compacted()
                shown.append(letters(await turn.inject(messages)))
            turn.abort()
        await caught_up(memory)
    assert shown == ["ABC"] * 4
    assert stage.count("compacted") == stage.count("recall_started", cause="compaction") == 3
    assert stage.count("epoch_started") == 1


async def test_what_went_in_after_being_put_in_the_list_is_read_from_the_list_too(stage: Stage) -> None:
    """L9: messages that a hiding host does show count as seen."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, ["Anise goes into the soup"])
        messages = [user("Anise goes into the soup"), {"role": "assistant", "content": "Yes."}, user(SOUP)]
        async with _hidden(memory).turn(messages) as turn:
            element = await turn.inject(messages)
            turn.abort()
    assert element is None
