"""Compactions, told and seen: what was shown before may come again, and one fresh query finds it (H7)."""

import threading
from typing import Literal

import pytest
from controlled_store import Stage, caught_up, learn, learn_herbs, letters, settled
from spoken import Message, answer, assistant, call, user

import afterturn

SOUP = "What goes into the soup?"
CAT = "What is my cat called?"
MISO = "Ada's cat is called Miso"
# Without records, which are recalled once their messages are out of sight.
THREE = {"recall_entries_max": 3, "recording": False}


def summary() -> list[Message]:
    return [user("Summary: we spoke of soup."), assistant("Let us go on.")]


async def _shown(conversation: afterturn.Conversation, messages: list[Message], text: str) -> str:
    messages.append(user(text))
    async with conversation.turn(messages) as turn:
        element = await turn.inject(messages)
        messages.append(assistant("Herbs."))
    return letters(element)


@pytest.mark.parametrize("how", ["told with messages", "told without", "seen"])
async def test_between_turns_the_full_relevant_set_is_offered_again(stage: Stage, how: str) -> None:
    """H7, H6: told or not, what went with the messages is not excluded any more."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        messages: list[Message] = []
        first = await _shown(conversation, messages, SOUP)
        messages = summary()
        if how != "seen":
            conversation.compacted(messages if how == "told with messages" else None)
        second = await _shown(conversation, messages, f"{SOUP} Again?")
    assert (first, second) == ("ABC", "ABC")


async def test_what_the_compaction_left_in_sight_stays_excluded(stage: Stage) -> None:
    """H6, H7: the ledger is what is visible; a tail that holds a block holds its memories."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        messages: list[Message] = []
        await _shown(conversation, messages, SOUP)
        await _shown(conversation, messages, f"{SOUP} More?")
        messages = summary() + messages[3:]
        conversation.compacted(messages)
        third = await _shown(conversation, messages, f"{SOUP} And?")
    assert third == "ABC"
    assert letters(messages[:5]) == "DEF"


@pytest.mark.parametrize("when", ["told in the turn", "seen in the turn", "seen in the next"])
async def test_the_same_words_after_the_same_summary_bring_no_block_of_before_back(stage: Stage, when: str) -> None:
    """H3, H6, H7: a block that was compacted away did not stand behind what was said later, however alike."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        messages = summary()
        await _shown(conversation, messages, SOUP)
        said = len(messages)
        messages.append(user(SOUP))
        stage.clock.advance(1.0)
        async with conversation.turn(messages) as turn:
            await turn.inject(messages)
            messages += [call("c1"), answer("c1")]
            if when.endswith("turn"):
                messages[:] = [*summary(), *messages[said:]]
                left = list(messages)
                if when.startswith("told"):
                    conversation.compacted(messages)
                else:
                    assert turn.inject_now(messages) is None
                await stage.heard("recall_settled", 3)
                await caught_up(memory)
                turn.inject_now(messages)
            messages.append(assistant("Herbs."))
        if not when.endswith("turn"):
            messages = [*summary(), *messages[said:], user(f"{SOUP} Again?")]
            left = list(messages)
            async with conversation.turn(messages) as turn:
                await turn.inject(messages)
                turn.abort()
        await caught_up(memory)
    assert stage.count("blocks_put_back") == 0
    assert messages[: len(left)] == left
    assert letters(messages) == "DEFABC"


@pytest.mark.parametrize("is_told", [True, False])
async def test_in_the_middle_of_a_turn_one_fresh_query_offers_what_went(stage: Stage, *, is_told: bool) -> None:
    """H7: in the same epoch, counted apart, at the next point; a second compaction of the epoch asks nothing."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        messages = [user(SOUP)]
        shown = []
        async with conversation.turn(messages) as turn:
            shown.append(letters(await turn.inject(messages)))
            for step in range(2):
                # The question itself went too, so this is no prompt that was rebuilt.
                messages = [*summary(), call(f"c{step}"), answer(f"c{step}")]
                if is_told:
                    conversation.compacted(messages)
                else:
                    assert turn.inject_now(messages) is None
                await stage.heard("compacted", step + 1)
                if step == 0:
                    await stage.heard("recall_settled", 2)
                await caught_up(memory)
                shown.append(letters(turn.inject_now(messages)))
            turn.abort()
        await caught_up(memory)
    assert shown == ["ABC", "ABC", ""]
    assert stage.count("recall_started", cause="message") == 1
    assert stage.count("recall_started", cause="compaction") == 1
    assert stage.count("epoch_started") == 1


async def test_a_recall_in_flight_is_corrected_before_it_is_handed_over(stage: Stage) -> None:
    """H7: it was asked with exclusions that hold no longer; what is handed over was asked without them."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        messages: list[Message] = []
        await _shown(conversation, messages, SOUP)
        messages.append(user(f"{SOUP} More?"))
        stage.store.searching.shut()
        async with conversation.turn(messages) as turn:
            await stage.held()
            messages = [*summary(), messages[-1]]
            conversation.compacted(messages)
            await stage.heard("recall_started", 3)
            stage.store.searching.open()
            element = await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert letters(element) == "ABC"
    assert stage.endings()[1:] == [("superseded", "compaction"), ("delivered", "user_message")]


@pytest.mark.parametrize("history", ["shown", "hidden"])
async def test_a_compaction_right_after_the_turn_began_is_heard(
    stage: Stage, history: Literal["shown", "hidden"]
) -> None:
    """H7: memory is still reading what the turn began with, which is not what is left."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada", history=history)
        messages: list[Message] = []
        await _shown(conversation, messages, SOUP)
        await caught_up(memory)
        messages.append(user(f"{SOUP} More?"))
        stage.store.reading.shut()
        async with conversation.turn(messages) as turn:
            messages = [*summary(), messages[-1]]
            conversation.compacted(messages if history == "shown" else None)
            stage.store.reading.open()
            await stage.heard("recall_settled", 2)
            element = await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert letters(element) == "ABC"
    assert stage.endings()[1:] == [("superseded", "compaction"), ("delivered", "user_message")]


async def test_while_a_compaction_is_looked_into_nothing_is_handed_over(stage: Stage) -> None:
    """H7: what lies ready was found under the old exclusions, and waits until it is known what is left."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        messages: list[Message] = []
        await _shown(conversation, messages, SOUP)
        messages.append(user(f"{SOUP} More?"))
        async with conversation.turn(messages) as turn:
            await settled(turn)
            messages = [*summary(), user(f"{SOUP} More?")]
            stage.store.reading.shut()
            conversation.compacted(messages)
            await stage.heard("compacted")
            element = turn.inject_now(messages)
            stage.store.reading.open()
            await stage.heard("recall_settled", 3)
            messages += [call("one"), answer("one")]
            again = await turn.inject(messages, within=1.0)
            turn.abort()
        await caught_up(memory)
    assert element is None
    assert letters(again) == "ABC"


async def test_a_recall_that_was_ready_is_corrected_too(stage: Stage) -> None:
    """H7: what lay on the desk was found under the old exclusions."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        messages: list[Message] = []
        await _shown(conversation, messages, SOUP)
        messages.append(user(f"{SOUP} More?"))
        async with conversation.turn(messages) as turn:
            await settled(turn)
            messages = [*summary(), messages[-1]]
            conversation.compacted(messages)
            await stage.heard("recall_settled", 3)
            element = await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert letters(element) == "ABC"
    assert stage.endings()[1:] == [("superseded", "compaction"), ("delivered", "user_message")]


async def test_an_epoch_whose_store_failed_is_not_asked_again(stage: Stage) -> None:
    """L8, H7: a broken store is asked once per input, compacted or not."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, [MISO])
        conversation = memory.conversation("c", user="ada")
        stage.store.fails_searches = True
        messages = [user(CAT)]
        async with conversation.turn(messages) as turn:
            await settled(turn)
            stage.store.mend()
            messages = [*summary(), call("one"), answer("one")]
            conversation.compacted(messages)
            for _ in range(3):
                assert await turn.inject(messages, within=1.0) is None
                await caught_up(memory)
            turn.abort()
        await caught_up(memory)
    assert stage.store.searches == 1
    assert stage.count("recall_started") == 1


async def test_a_store_that_fails_is_asked_once_for_each_thing_that_is_said(stage: Stage) -> None:
    """L8: not once per step; the next thing that is said asks it again."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, [MISO])
        stage.store.fails_searches = True
        messages = [user(CAT)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            for step in range(4):
                assert await turn.inject(messages, within=1.0) is None
                messages += [call(f"c{step}"), answer(f"c{step}")]
            asked = stage.store.searches
            stage.store.mend()
            turn.interject(f"{CAT} Please.")
            element = await turn.inject(messages)
            turn.abort()
    assert asked == 1
    assert "Miso" in str(element)
    assert stage.store.searches == 2


async def test_a_store_that_can_not_be_read_at_all_is_asked_once_too(stage: Stage) -> None:
    """L8, R5: the turn goes on, its recall is degraded, and counted as the epoch's one."""
    async with stage.open() as memory:
        stage.store.fails_reads = True
        messages = [user(CAT)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await settled(turn)
            assert await turn.inject(messages) is None
            stage.store.mend()
            messages.append(assistant("I do not know."))
        assert await turn.wait_recorded()
    assert stage.store.searches == 0
    assert stage.count("epoch_started") == stage.count("recall_started") == 1
    assert stage.endings() == [("degraded", "StoreUnavailable")]


async def test_a_store_that_recovers_is_asked_for_what_is_said_next(stage: Stage) -> None:
    """L8, R1: a failure is remembered for its epoch, not for its turn; while it lasts, each epoch is degraded."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, [MISO])
        stage.store.fails_reads = True
        messages = [user(CAT)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await settled(turn)
            turn.cue(f"{CAT} Really?")
            await settled(turn)
            stage.store.mend()
            messages.append(user(f"{CAT} Please."))
            turn.interject(f"{CAT} Please.")
            element = await turn.inject(messages)
            messages.append(assistant("Miso."))
        assert await turn.wait_recorded()
    assert "Miso" in str(element)
    assert stage.count("epoch_started") == 3
    degraded = ("degraded", "StoreUnavailable")
    assert stage.endings() == [degraded, degraded, ("delivered", "user_message")]


async def test_a_compaction_right_before_the_host_gives_up_leaves_no_recall_behind(stage: Stage) -> None:
    """H7, R5: the fresh query has not begun when its turn is aborted; it never begins, and nothing lacks an outcome."""
    async with stage.open() as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada", history="hidden")
        messages = [user(SOUP)]
        async with conversation.turn(messages) as turn:
            await turn.inject(messages)
            held = threading.Event()
            memory._loop.post(held.wait, 20.0)
            conversation.compacted()
            turn.abort()
            held.set()
        await stage.heard("turn_aborted")
        await caught_up(memory)
    assert stage.count("recall_started") == 1
    assert stage.endings() == [("delivered", "user_message")]


async def test_compaction_frees_the_visible_budget(stage: Stage) -> None:
    """H9, H7: what all visible blocks may come to is freed by a compaction in the middle of a turn."""
    async with stage.open(visible_bytes_max=420, **THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada", history="hidden")
        first = await _shown(conversation, [], SOUP)
        second = await _shown(conversation, [], f"{SOUP} More?")
        conversation.compacted()
        third = await _shown(conversation, [], f"{SOUP} And?")
    assert (first, second, third) == ("ABC", "", "ABC")
