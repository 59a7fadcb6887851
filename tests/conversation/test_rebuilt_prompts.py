"""Hosts that rebuild, rewind, edit and fork their lists: the ledger is what is visible in them (H6)."""

import copy
import random

import pytest
from controlled_store import Stage, caught_up, learn, learn_herbs, letters, settled
from hosted import ANTHROPIC, FORMATS, Format, Listed, check_pairs, is_block, written
from spoken import answer, assistant, call, user

SOUP = "What goes into the soup?"
THREE = {"recall_entries_max": 3, "recording": False}
formats = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


def _own(messages: Listed, form: Format) -> Listed:
    """As a host writes them anew: equal, but none of the same objects, and nothing that is not its own."""
    return [copy.deepcopy(message) for message in messages if not is_block(message, form)]


@formats
async def test_blocks_go_back_to_where_they_stood_without_a_query(stage: Stage, form: Format) -> None:
    """H6, H3: at the user's message and after a tool step, over turns: same bytes, same places."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada", dialect=form.name)
        messages = [form.user(SOUP)]
        async with conversation.turn(messages) as turn:
            await turn.inject(messages)
            messages.append(form.assistant("Herbs."))
        messages += [form.user(f"{SOUP} More?")]
        async with conversation.turn(messages) as turn:
            await settled(turn)
            messages += [*form.calls(["one", "two"]), *form.answers(["one", "two"])]
            await turn.inject(messages)
            whole, searches = written(messages), stage.store.searches
            rebuilt = _own(messages, form)
            back = turn.inject_now(rebuilt)
            turn.abort()
        await caught_up(memory)
    assert back is not None
    assert written(rebuilt) == whole
    assert letters(rebuilt) == "ABCDEF"
    assert stage.store.searches == searches == 2
    check_pairs(rebuilt, form)


@formats
async def test_another_process_puts_them_back_too(stage: Stage, form: Format) -> None:
    """H6: a new turn in a new process, with a list that was written anew from the host's own store."""
    messages = [form.user(SOUP)]
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        async with memory.conversation("c", user="ada", dialect=form.name).turn(messages) as turn:
            await turn.inject(messages)
            messages.append(form.assistant("Herbs."))
    whole = written(messages)
    rebuilt = [*_own(messages, form), form.user("thanks")]
    async with stage.open(**THREE) as memory:
        async with memory.conversation("c", user="ada", dialect=form.name).turn(rebuilt) as turn:
            await turn._turn.shared.opened.wait(within=5.0)  # type: ignore[union-attr]
            turn.inject_now(rebuilt)
            turn.abort()
        await caught_up(memory)
    assert written(rebuilt)[: len(whole)] == whole


@pytest.mark.parametrize("how", ["rewound", "edited", "forked"])
async def test_other_histories_correct_the_ledger_by_themselves(stage: Stage, how: str) -> None:
    """H6: what is not in the list is not excluded, and what is in a copy of it is."""
    form = FORMATS[0]
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        messages = [form.user(SOUP)]
        async with conversation.turn(messages) as turn:
            await turn.inject(messages)
            messages.append(form.assistant("Herbs."))
        if how == "rewound":
            messages = []
        elif how == "edited":
            messages = [form.user("What is soup?"), form.assistant("A dish.")]
        else:
            messages = copy.deepcopy(messages)
        messages.append(form.user(f"{SOUP} More?"))
        async with conversation.turn(messages) as turn:
            element = await turn.inject(messages)
            turn.abort()
    assert letters(element) == ("DEF" if how == "forked" else "ABC")


@formats
async def test_a_long_tool_loop_leaves_every_earlier_byte_as_it_was(stage: Stage, form: Format) -> None:
    """H3, H1: over forty random steps with interjections, each prompt begins with the one before it."""
    chance = random.Random(form.name)
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        messages, sent = [form.user(SOUP)], []
        async with memory.conversation("c", user="ada", dialect=form.name).turn(messages) as turn:
            for step in range(40):
                if chance.random() < 0.2:
                    messages.append(form.user(f"{SOUP} {step}"))
                    turn.interject(SOUP)
                    await settled(turn)
                await turn.inject(messages)
                assert written(messages)[: len(sent)] == sent
                check_pairs(messages, form)
                sent = written(messages)
                ids = [f"call-{step}-{number}" for number in range(chance.randint(1, 3))]
                messages += form.calls(ids)
                assert turn.inject_now(messages) is None
                messages += form.answers(ids)
            turn.abort()
    assert letters(messages) == "ABCDEFGH"


@formats
async def test_merged_blocks_extend_a_copy_of_the_last_element(stage: Stage, form: Format) -> None:
    """H1, H3: roles alternate as the template demands, and the host's own object stays as it was."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        said = form.user(SOUP)
        messages, before = [said], copy.deepcopy(said)
        conversation = memory.conversation("c", user="ada", dialect=form.name, placement="merge")
        async with conversation.turn(messages) as turn:
            element = await turn.inject(messages)
            again = await turn.inject(messages)
            turn.abort()
    assert messages == [element]
    assert said == before
    assert again is None
    assert letters(element) == "ABC"


async def test_merging_after_tool_results_is_one_message_where_a_provider_wants_one(stage: Stage) -> None:
    """H1: Anthropic's tool results and the block are parts of one user message, results first."""
    form = ANTHROPIC
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        messages = [form.user(SOUP)]
        conversation = memory.conversation("c", user="ada", dialect=form.name, placement="merge")
        async with conversation.turn(messages) as turn:
            await settled(turn)
            messages += [*form.calls(["one"]), *form.answers(["one"])]
            await turn.inject(messages)
            turn.abort()
    assert [part["type"] for part in messages[-1]["content"]] == ["tool_result", "text"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]


async def test_a_warning_tells_when_memory_takes_much_of_the_window(stage: Stage) -> None:
    """H9: an event names the tokens and the window; below the share there is none."""
    form = FORMATS[0]
    for window, warned in ((100_000, 0), (500, 1)):
        async with stage.open(window_tokens=window, **THREE) as memory:
            if not await memory.space("user:ada").list():
                await learn_herbs(memory, stage.clock)
            messages = [form.user(SOUP)]
            async with memory.conversation(f"c{window}", user="ada").turn(messages) as turn:
                await turn.inject(messages)
                turn.abort()
            await caught_up(memory)
        assert stage.count("window_share", window=window) == warned


async def test_the_standing_block_counts_as_memory_in_the_window(stage: Stage) -> None:
    """H9, S1: in the host's own prompt as well as in its list, also if nothing else was recalled."""
    for asks, window, warned in ((True, 500, 1), (False, 500, 1), (True, 100_000, 0)):
        async with stage.open(window_tokens=window, standing=True) as memory:
            await memory.space("user:ada").add("Ada is allergic to anise. " * 4, target="user", pinned=True)
            await memory.space("user:ada").add(
                "Ada lives in Ghent near the old canal. " * 3, target="user", pinned=True
            )
            conversation = memory.conversation(f"{asks}-{window}", user="ada")
            if asks:
                assert await conversation.standing().block()
            messages = [user("ok")]
            async with conversation.turn(messages) as turn:
                await settled(turn)
                assert (await turn.inject(messages) is None) is asks
                messages.append(assistant("Fine."))
            assert await turn.wait_recorded()
            await caught_up(memory)
        found = [event for event in stage.told.named("window_share") if event.conversation == f"{asks}-{window}"]
        assert len(found) == warned, (asks, window)


async def test_a_block_before_a_message_without_text_goes_back_before_it(stage: Stage) -> None:
    """H6: an image or a blank message is a place of its own."""
    async with stage.open(recording=False) as memory:
        await learn(memory, stage.clock, ["Anise goes into the soup"])
        messages = [user("What goes into the soup?")]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            block = await turn.inject(messages)
            whole = [*messages, user("")]
            rebuilt = [message for message in whole if message is not block]
            await turn.inject(rebuilt)
            turn.abort()
    assert block is not None
    assert rebuilt == whole


async def test_what_a_compaction_kept_goes_back_where_it_is_now(stage: Stage) -> None:
    """H6, H7: the messages before the block are others than when it was injected."""
    async with stage.open(recording=False, recall_entries_max=1) as memory:
        await learn(memory, stage.clock, ["Anise goes into the soup"])
        conversation = memory.conversation("c", user="ada")
        messages = [user("Hello there, Ada here."), assistant("Hello."), user("What goes into the soup?")]
        async with conversation.turn(messages) as turn:
            block = await turn.inject(messages)
            messages = [user("Summary: we spoke."), assistant("Yes."), *messages[2:], call("one"), answer("one")]
            conversation.compacted(messages)
            await turn.inject(messages)
            rebuilt = [message for message in messages if message is not block]
            await turn.inject(rebuilt)
            turn.abort()
        await caught_up(memory)
    assert block is not None
    assert rebuilt == messages
    assert stage.count("compacted") == 1
