"""Agents that run at the same time in one turn, each with a list of its own."""

import asyncio

from controlled_store import Stage, learn
from spoken import assistant, user

import afterturn

ASKED = "What goes into the soup?"
ANISE = "Anise goes into the soup"


async def _inject_at_once(stage: Stage, turn: afterturn.Turn, *lists: list[dict[str, object]]) -> None:
    """All of them ask while the store is still reading the list that the turn began with."""
    calls = [asyncio.create_task(turn.inject(messages)) for messages in lists]
    # Each of them runs until it waits.
    await asyncio.sleep(0)
    stage.store.reading.open()
    await asyncio.gather(*calls)


async def test_each_gets_the_block_of_the_turn(stage: Stage) -> None:
    """R2, H3: the second one waits for the same recall, and has the same bytes in the same place."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, [ANISE])
        stage.store.reading.shut()
        one, other = [user(ASKED)], [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(one) as turn:
            await _inject_at_once(stage, turn, one, other)
            turn.abort()
    assert ANISE in str(one[1])
    assert other == one
    assert stage.count("recall_started") == 1


async def test_each_gets_the_blocks_of_earlier_turns_back(stage: Stage) -> None:
    """H3, H6: no call of a model goes out before the list was read in which earlier blocks are missing."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, [ANISE])
        conversation = memory.conversation("c", user="ada")
        messages = [user(ASKED)]
        async with conversation.turn(messages) as turn:
            block = await turn.inject(messages)
            messages.append(assistant("Anise."))
        assert await turn.wait_recorded()
        stage.store.reading.shut()
        rebuilt = [user(ASKED), assistant("Anise."), user("Thank you.")]
        one, other = list(rebuilt), list(rebuilt)
        async with conversation.turn(one) as turn:
            await _inject_at_once(stage, turn, one, other)
            turn.abort()
    assert one == other == [rebuilt[0], block, *rebuilt[1:]]


async def test_agents_that_answer_differently_get_all_blocks_back(stage: Stage) -> None:
    """H3, H6: their lists have only the user's messages in common, and a place is known by these too."""
    async with stage.open(recall_entries_max=1) as memory:
        await learn(memory, stage.clock, [ANISE, "Basil goes onto the pizza"])
        conversation = memory.conversation("c", user="ada")
        said: list[list[dict[str, object]]] = [[], []]
        sent: list[list[list[dict[str, object]]]] = []
        for text in (ASKED, "What goes onto the pizza?", "Thank you."):
            stage.store.reading.shut()
            lists = [[*own, user(text)] for own in said]
            said = [[*own, user(text), assistant(f"{name} on {text}")] for own, name in zip(said, "XY", strict=True)]
            async with conversation.turn(lists[0]) as turn:
                await _inject_at_once(stage, turn, *lists)
                turn.complete([*lists[0], said[0][-1], said[1][-1]])
            assert await turn.wait_recorded()
            sent.append(lists)
    for first, second, third in zip(*sent, strict=True):
        assert [ANISE in str(first), "Basil" in str(second)] == [True, True]
        assert second[: len(first)] == first
        assert third[: len(second)] == second
    assert stage.count("compacted") == 0
