"""Hosts that never wait, repeat themselves, lose their grants, or share their memory with one that forgets."""

import copy
from itertools import pairwise

from controlled_store import Stage, caught_up, learn, settled
from spoken import answer as answered
from spoken import assistant, call, user

import afterturn

ASKED = "What goes into the soup?"
SECRET = "Anise goes into the soup"


async def test_a_host_that_never_waits_gets_what_the_last_turn_carried(stage: Stage) -> None:
    """R8: without a grace and without tools, the first point comes before anything could be read."""
    async with stage.open(grace=0.0) as memory:
        await learn(memory, stage.clock, [SECRET])
        conversation = memory.conversation("c", user="ada")
        messages = [user(ASKED)]
        async with conversation.turn(messages) as turn:
            assert turn.inject_now(messages) is None
            await settled(turn)
            messages.append(assistant("I do not know."))
        assert await turn.wait_recorded()
        await caught_up(memory)
        messages.append(user("Please think again."))
        async with conversation.turn(messages) as turn:
            element = turn.inject_now(messages)
            await settled(turn)
            repeated = turn.inject_now(messages)
            turn.abort()
        await caught_up(memory)
    assert SECRET in str(element)
    assert repeated is None
    assert ("delivered", "user_message") in stage.endings()


async def test_a_forget_in_another_process_reaches_a_turn_at_its_next_recall(stage: Stage) -> None:
    """M2: neither what waits, nor what is written again, nor a sub-agent's task brings it back."""
    async with stage.open() as memory, stage.open() as other:
        added = await memory.space("user:ada").add(SECRET)
        messages = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            before = await turn.block(within=10.0)
            await other.space("user:ada").forget(memory=added.entry.id)
            turn.interject("And what goes into the salad?")
            await settled(turn)
            after, task = turn.block_now(), turn.delegate("Cook the soup")
            turn.abort()
    assert SECRET in before
    assert SECRET not in after + task


async def test_the_same_words_again_and_again_do_not_move_a_block(stage: Stage) -> None:
    """H3, H6: a rebuilt prompt has each block where it stood, however often the same was said before it."""
    async with stage.open(recall_entries_max=1) as memory:
        await learn(memory, stage.clock, [f"Herb number {number} goes into the soup" for number in range(4)])
        conversation = memory.conversation("c", user="ada")
        own: list[dict[str, object]] = []
        prompts: list[list[dict[str, object]]] = []
        for _ in range(4):
            own.append(user(ASKED))
            messages = copy.deepcopy(own)
            async with conversation.turn(messages) as turn:
                await turn.inject(messages, within=10.0)
                own.append(assistant("Fine."))
                turn.complete([*messages, own[-1]])
            assert await turn.wait_recorded()
            prompts.append(messages)
    assert [len(prompt) for prompt in prompts] == [2, 5, 8, 11]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(prompts))


async def test_a_grant_that_is_withdrawn_takes_its_blocks_along(stage: Stage) -> None:
    """L2, H6: what a host may not read any more is not put back into its prompt."""
    async with stage.open() as memory:
        await memory.space("project:api").add(SECRET, target="environment")
        messages = [user(ASKED)]
        granted = memory.conversation("c", user="ada", reads=["project:api"])
        async with granted.turn(messages) as turn:
            assert await turn.inject(messages, within=10.0) is not None
            messages.append(assistant("Anise."))
        assert await turn.wait_recorded()
        rebuilt = [user(ASKED), assistant("Anise."), user("What else?")]
        async with memory.conversation("c", user="ada").turn(rebuilt) as turn:
            await turn.inject(rebuilt, within=10.0)
            turn.abort()
    assert SECRET not in str(rebuilt)


async def test_a_host_quicker_than_memory_gets_what_it_dropped_by_recall(stage: Stage) -> None:
    """H3, H6: too late to go back to its place, a memory is not held for seen."""
    async with stage.open(grace=0.0) as memory:
        await learn(memory, stage.clock, [SECRET])
        conversation = memory.conversation("c", user="ada")
        first = [user(ASKED)]
        async with conversation.turn(first) as turn:
            await settled(turn)
            assert turn.inject_now(first) is not None
            first.append(assistant("Anise."))
        assert await turn.wait_recorded()
        await caught_up(memory)
        rebuilt: list[dict[str, object]] = [user(ASKED), assistant("Anise."), user(f"Again: {ASKED}")]
        stage.store.reading.shut()
        async with conversation.turn(rebuilt) as turn:
            assert turn.inject_now(rebuilt) is None
            stage.store.reading.open()
            await settled(turn)
            rebuilt += [call("one"), answered("one")]
            element = turn.inject_now(rebuilt)
            turn.abort()
    assert element is rebuilt[-1]
    assert SECRET in str(element)


async def test_what_stands_in_the_prompt_is_not_written_again_after_a_compaction(stage: Stage) -> None:
    """H8, H7: the text of the turn is in every prompt, whatever was compacted."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, [SECRET])
        conversation: afterturn.Conversation = memory.conversation("c", user="ada", history="hidden")
        async with conversation.turn([user(ASKED)]) as turn:
            before = await turn.block(within=10.0)
            conversation.compacted()
            await stage.heard("recall_settled", 2)
            await caught_up(memory)
            after = turn.block_now()
            turn.abort()
    assert SECRET in before
    assert after == before
