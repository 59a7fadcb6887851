"""Compactions, told and seen: what was shown before may come again, and one fresh query finds it (H7)."""

import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Literal, cast

import pytest
from controlled_store import HERBS, Stage, caught_up, learn, learn_herbs, letters, settled
from hosted import FORMATS, Format, Listed
from spoken import Message, answer, assistant, call, user

import afterturn
from afterturn import blocking
from afterturn.recall import block as recall_block
from afterturn.testing import ScriptedModel

SOUP = "What goes into the soup?"
CAT = "What is my cat called?"
MISO = "Ada's cat is called Miso"
# Without records, which are recalled once their messages are out of sight.
THREE = {"recall_entries_max": 3, "recording": False}
formats = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


def summary() -> list[Message]:
    return [user("Summary: we spoke of soup."), assistant("Let us go on.")]


@contextlib.asynccontextmanager
async def _in_a_turn(stage: Stage) -> AsyncIterator[tuple[afterturn.Conversation, afterturn.Turn]]:
    """A turn that was shown its block and is aborted at the end, for hosts that compact in the middle of it."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        messages = [user(SOUP)]
        async with conversation.turn(messages) as turn:
            assert letters(await turn.inject(messages)) == "ABC"
            yield conversation, turn
            turn.abort()
        await caught_up(memory)


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
                    # It notices the compaction. The recall that follows may be ready at once, or later.
                    turn.inject_now(messages)
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


def _compacted(form: Format, step: int) -> Listed:
    """What is left after a compaction in the middle of a turn. The question itself is gone too."""
    head = [form.user(f"Summary {step}: we spoke of soup."), form.assistant("Let us go on.")]
    return [*head, *form.calls([f"c{step}"]), *form.answers([f"c{step}"])]


HOW = ["told with messages", "told without", "seen"]


@formats
@pytest.mark.parametrize("how", HOW)
async def test_in_the_middle_of_a_turn_the_very_next_point_brings_the_block(
    stage: Stage, form: Format, how: str
) -> None:
    """H7: after every compaction of the turn; one event and one query for each, counted apart from epochs."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada", dialect=form.name)
        messages: Listed = [form.user(SOUP)]
        shown = []
        async with conversation.turn(messages) as turn:
            shown.append(letters(await turn.inject(messages)))
            for step in range(3):
                messages = _compacted(form, step)
                if how != "seen":
                    conversation.compacted(messages if how == "told with messages" else None)
                shown.append(letters(await turn.inject(messages)))
                messages += [*form.calls([f"d{step}"]), *form.answers([f"d{step}"])]
                assert await turn.inject(messages) is None
            turn.abort()
        await caught_up(memory)
    assert shown == ["ABC"] * 4
    assert stage.count("recall_started", cause="message") == 1
    assert stage.count("recall_started", cause="compaction") == 3
    assert stage.count("epoch_started") == 1
    assert stage.count("compacted", how="seen" if how == "seen" else "reported") == stage.count("compacted") == 3
    assert stage.endings() == [("delivered", "user_message"), *[("delivered", "tool_result")] * 3]


@pytest.mark.parametrize("history", ["shown", "hidden"])
def test_the_blocking_facade_brings_the_block_at_once_too(stage: Stage, history: Literal["shown", "hidden"]) -> None:
    """H7: after every compaction; a host that hides its list says only that there was one."""
    settings = {"embedder": "none", "grace": 5.0, "recall_score_min": 0.03, **THREE}
    with blocking.open(stage.path, settings, on_event=stage.told) as memory:
        for herb in reversed(HERBS):
            memory.space("user:ada").add(f"{herb} goes into the soup")
        conversation = memory.conversation("c", user="ada", history=history)
        messages = [user(SOUP)]
        with conversation.turn(messages) as turn:
            shown = [letters(turn.inject(messages))]
            for step in range(3):
                messages = [*summary(), call(f"c{step}"), answer(f"c{step}")]
                conversation.compacted(messages if history == "shown" else None)
                shown.append(letters(turn.inject(messages)))
            turn.abort()
    assert [len(found) for found in shown] == [3, 3, 3, 3]
    assert len(set(shown)) == 1
    assert stage.count("compacted") == 3


@formats
async def test_after_a_compaction_of_ours_the_very_next_point_brings_the_block(stage: Stage, form: Format) -> None:
    """H7, K1: `compact` reports itself; the list that it returns is not taken for another compaction."""
    names = ("overall_goal", "key_knowledge", "file_system_state", "recent_actions", "current_plan")
    text = f"<state_snapshot>{''.join(f'<{name}>Soup.</{name}>' for name in names)}</state_snapshot>"
    async with stage.open(model=ScriptedModel(text), **THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada", dialect=form.name)
        messages: Listed = [form.user(SOUP)]
        async with conversation.turn(messages) as turn:
            first = letters(await turn.inject(messages))
            messages.append(form.assistant("Herbs."))
        messages.append(form.user(f"{SOUP} More?"))
        async with conversation.turn(messages) as turn:
            second = letters(await turn.inject(messages))
            for step in range(30):
                ids = [f"{step}-{'long-' * 60}"]
                messages += [*form.calls(ids), *form.answers(ids)]
            done = await conversation.compact(messages, limit_tokens=4_000)
            messages = cast(Listed, list(done.messages))
            after = letters(await turn.inject(messages))
            turn.abort()
        await caught_up(memory)
    assert done.changed
    assert (first, second, after) == ("ABC", "DEF", "ABC")
    assert stage.count("compacted") == stage.count("recall_started", cause="compaction") == 1


@formats
@pytest.mark.parametrize("kept", [True, False], ids=["as returned", "without the user's message"])
async def test_a_summary_is_not_recorded_as_the_users(stage: Stage, form: Format, kept: bool) -> None:
    """G2, K1: a model wrote it, even if a host puts nothing else in the place of the user's message."""
    names = ("overall_goal", "key_knowledge", "file_system_state", "recent_actions", "current_plan")
    text = f"<state_snapshot>{''.join(f'<{name}>My name is Smith.</{name}>' for name in names)}</state_snapshot>"
    async with stage.open(model=ScriptedModel(text)) as memory:
        conversation = memory.conversation("c", user="ada", dialect=form.name)
        messages: Listed = [form.user(SOUP)]
        async with conversation.turn(messages) as turn:
            for step in range(30):
                ids = [f"{step}-{'long-' * 60}"]
                messages += [*form.calls(ids), *form.answers(ids)]
            done = await conversation.compact(messages, limit_tokens=4_000)
            left = [message for message in cast(Listed, list(done.messages)) if kept or message != form.user(SOUP)]
            turn.complete([*left, form.assistant("Herbs.")])
        assert await turn.wait_recorded()
        records = await memory.space("user:ada").list(filter=afterturn.Filter(kind=afterturn.Kind.RECORD))
    assert done.changed
    assert any("Herbs." in record.text for record in records)
    assert [record.text for record in records if record.origin == "user"] == ([SOUP] if kept else [])


async def test_a_compaction_that_is_reported_after_it_was_seen_is_one(stage: Stage) -> None:
    """H7: the host injects first and reports then; nothing is asked or handed over twice."""
    async with _in_a_turn(stage) as (conversation, turn):
        messages = [*summary(), call("one"), answer("one")]
        seen = letters(await turn.inject(messages))
        conversation.compacted(messages)
        told = await turn.inject(messages)
    assert (seen, told) == ("ABC", None)
    assert stage.count("compacted") == stage.count("recall_started", cause="compaction") == 1


async def test_the_wait_after_a_compaction_is_the_grace(stage: Stage) -> None:
    """H7, R2: a slow store costs the next point the grace and no more; the block comes at a later one."""
    async with _in_a_turn(stage) as (conversation, turn):
        stage.store.searching.shut()
        messages = [*summary(), call("one"), answer("one")]
        conversation.compacted(messages)
        waits = [turn._find_wait(messages, None, "fast", now) for now in (0.0, 5.0)]
        stage.store.searching.open()
        await settled(turn)
        later = letters(turn.inject_now(messages))
    assert [wait and wait.seconds for wait in waits] == [5.0, None]
    assert later == "ABC"


async def test_a_compaction_while_another_is_examined_is_waited_for_too(stage: Stage) -> None:
    """H7: each has its own grace, and the newest one asks."""
    async with _in_a_turn(stage) as (conversation, turn):
        stage.store.reading.shut()
        runs = []
        for step in range(2):
            messages = [*summary(), call(f"c{step}"), answer(f"c{step}")]
            conversation.compacted()
            runs += [wait.run for wait in [turn._find_wait(messages, None, "fast", 0.0)] if wait is not None]
        stage.store.reading.open()
        element = await turn.inject(messages, within=20.0)
    assert len(set(runs)) == 2
    assert letters(element) == "ABC"
    assert stage.count("compacted") == 2


async def test_a_recall_in_flight_is_corrected_by_a_compaction_that_is_only_seen(stage: Stage) -> None:
    """H7: it was asked without what the compacted messages showed; the point at which that is seen hands over all."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        messages: list[Message] = []
        await _shown(conversation, messages, SOUP)
        messages.append(user(f"{SOUP} More?"))
        async with conversation.turn(messages) as turn:
            messages = [*summary(), messages[-1]]
            element = await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert letters(element) == "ABC"
    assert stage.endings()[1:] == [("superseded", "compaction"), ("delivered", "user_message")]
    assert stage.count("compacted") == 1


async def test_what_is_said_after_a_compaction_may_bring_what_it_removed(stage: Stage) -> None:
    """H7, L3: blocks of this turn that are gone exclude nothing from a later recall of the turn."""
    dog = "Where does the dog sleep?"
    async with stage.open(recording=False) as memory:
        await learn(memory, stage.clock, [MISO, "Rex the dog sleeps in the barn"])
        conversation = memory.conversation("c", user="ada")
        messages = [user(CAT)]
        async with conversation.turn(messages) as turn:
            first = await turn.inject(messages)
            messages.append(user(dog))
            turn.interject(dog)
            second = await turn.inject(messages)
            messages = [*summary(), call("one"), answer("one")]
            third = await turn.inject(messages)
            messages.append(user(CAT))
            turn.interject(CAT)
            fourth = await turn.inject(messages)
            turn.abort()
        await caught_up(memory)
    assert ["Miso" in str(element) for element in (first, second, third, fourth)] == [True, False, False, True]
    assert ["Rex" in str(element) for element in (first, second, third, fourth)] == [False, True, True, False]


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


async def test_compaction_frees_the_visible_budget(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """H9, H7: what all visible blocks may come to is freed by a compaction in the middle of a turn."""
    monkeypatch.setattr(recall_block, "VISIBLE_BYTES_MAX", 420)
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada", history="hidden")
        first = await _shown(conversation, [], SOUP)
        second = await _shown(conversation, [], f"{SOUP} More?")
        conversation.compacted()
        third = await _shown(conversation, [], f"{SOUP} And?")
    assert (first, second, third) == ("ABC", "", "ABC")
