"""Recalls that begin while the user is still typing (R9)."""

import pytest
from controlled_store import Stage, caught_up, learn_herbs, letters, settled
from spoken import Message, assistant, user

import afterturn
from afterturn.conversation.prefetcher import is_close

SOUP = "What goes into the soup?"
THREE = {"recall_entries_max": 3, "recording": False}


async def _shown(conversation: afterturn.Conversation, messages: list[Message], text: str) -> str:
    messages.append(user(text))
    async with conversation.turn(messages) as turn:
        element = await turn.inject(messages)
        messages.append(assistant("Herbs."))
    return letters(element)


async def test_what_was_typed_close_to_the_end_is_used_and_nothing_else_is_asked(stage: Stage) -> None:
    """R9: one query for both, delivered as the epoch's recall and counted apart."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        conversation.expect("What goes into the soup")
        await caught_up(memory)
        shown = await _shown(conversation, [], SOUP)
        await caught_up(memory)
    assert shown == "ABC"
    assert stage.store.searches == 1
    assert stage.count("speculation_started") == stage.count("speculation_ended", outcome="used") == 1
    assert stage.count("recall_started", cause="message") == stage.count("epoch_started") == 1
    assert stage.endings() == [("delivered", "user_message")]


async def test_other_words_discard_it(stage: Stage) -> None:
    """R9: what is said in the end is what is recalled for."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        conversation.expect("What is the capital of France?")
        shown = await _shown(conversation, [], SOUP)
        await caught_up(memory)
    assert shown == "ABC"
    assert stage.count("speculation_ended", outcome="discarded", reason="other_words") == 1


async def test_typing_on_asks_anew_only_when_the_words_have_changed(stage: Stage) -> None:
    """R9: at most one at a time; the last one counts."""
    async with stage.open(**THREE) as memory:
        conversation = memory.conversation("c", user="ada")
        for text in ("soup", "What goes into the soup", "What goes into the soup?", "ok", "", "bread and butter"):
            conversation.expect(text)
        await caught_up(memory)
    assert stage.count("speculation_started") == 2 + stage.count("speculation_ended", reason="new_query") - 1
    assert stage.count("recall_started") == 0


@pytest.mark.parametrize("history", ["shown", "hidden"])
async def test_it_never_shows_again_what_is_visible(stage: Stage, history: str) -> None:
    """R9, L3: what the model sees is taken out; where too little is left, the query is made with its exclusions."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada", history=history)  # type: ignore[arg-type]
        messages: list[Message] = []
        shown = []
        for _ in range(3):
            conversation.expect(SOUP)
            await caught_up(memory)
            shown.append(await _shown(conversation, messages if history == "shown" else [], SOUP))
            await caught_up(memory)
    assert shown == ["ABC", "DEF", "GH"]


@pytest.mark.standing
async def test_it_never_shows_what_the_standing_block_says(stage: Stage) -> None:
    """R9, S5: the standing block is made when the turn begins, after the question was asked."""
    async with stage.open() as memory:
        for text in ("My cat Miso is allergic to chicken", "The vet of Miso is Dr. Roth"):
            origin = afterturn.Origin.USER if "My" in text else afterturn.Origin.AGENT
            await memory.space("user:ada").add(text, origin=origin)
        conversation, messages = memory.conversation("c", user="ada"), [user("What food is my cat Miso allergic to?")]
        conversation.expect("What food is my cat Miso allergic to")
        await caught_up(memory)
        async with conversation.turn(messages) as turn:
            shown = str(await turn.inject(messages))
            turn.abort()
        await caught_up(memory)
    assert (shown.count("allergic to chicken"), shown.count("The vet of Miso")) == (1, 1)
    assert stage.count("speculation_ended", outcome="used") == 1


async def test_it_never_shows_what_was_learned_from_visible_messages(stage: Stage) -> None:
    """R9, L9: which messages there are is known only when they come; then the query is made with its exclusions."""
    async with stage.open() as memory:
        conversation, asked = memory.conversation("c", user="ada"), "Which bicycle do I have, a Pashley?"
        messages = [user("Remember that my bicycle is a green Pashley")]
        async with conversation.turn(messages) as turn:
            messages.append(assistant("Noted."))
        assert await turn.wait_recorded()
        assert await memory.drain()
        shown = []
        for seen in (messages, []):
            conversation.expect(asked)
            await caught_up(memory)
            now = [*seen, user(asked)]
            async with conversation.turn(now) as turn:
                shown.append(str(await turn.inject(now)))
                turn.abort()
            await caught_up(memory)
    assert ["Pashley" in one for one in shown] == [False, True]
    assert stage.count("speculation_ended", outcome="discarded", reason="stale") == 1
    assert stage.count("speculation_ended", outcome="used") == 1


async def test_a_broken_one_costs_nothing(stage: Stage) -> None:
    """R9, L8: it is discarded, and the turn asks for itself."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        stage.store.fails_searches = True
        conversation.expect(SOUP)
        await caught_up(memory)
        stage.store.mend()
        shown = await _shown(conversation, [], SOUP)
        await caught_up(memory)
    assert shown == "ABC"
    assert stage.count("speculation_ended", outcome="discarded", reason="failed") == 1


async def test_a_host_that_gives_up_while_it_is_awaited_starts_no_recall(stage: Stage) -> None:
    """R9, R5: nothing begins that could not end."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        stage.store.searching.shut()
        conversation.expect(SOUP)
        await stage.held()
        async with conversation.turn([user(SOUP)]) as turn:
            await turn._turn.shared.opened.wait(within=5.0)  # type: ignore[union-attr]
            turn.abort()
            await settled(turn)
        stage.store.searching.open()
        await caught_up(memory)
    assert stage.count("recall_started") == len(stage.endings())


async def test_closing_and_reset_end_it(stage: Stage) -> None:
    """R9, R4: it is in flight, and nobody waits for it."""
    async with stage.open(**THREE) as memory:
        conversation = memory.conversation("c", user="ada")
        stage.store.searching.shut()
        conversation.expect(SOUP)
        await stage.held()
        conversation.reset()
        await caught_up(memory)
        conversation.expect(SOUP)
        await caught_up(memory)
    assert stage.count("speculation_ended", reason="reset") == 1
    assert stage.count("recall_started") == 0


GROWN = [
    ("What food is my cat allergic to", " again, please?"),
    ("Who is my dentist", ", do you know?"),
    ("Who is my dentist", ", can you remind me?"),
    ("my wifi password", ", thanks"),
    ("Which hotel did we book", ", by the way?"),
    ("our deploy command", " please, I forgot it"),
    ("What does Ruth drink", ", if you remember?"),
    ("staging database", ", right?"),
    ("api port", ", exactly?"),
    ("mein Zahnarzt", ", bitte?"),
    ("mi dentista", ", por favor?"),
    ("mon dentiste", ", s'il vous plaît?"),
]
CHANGED = [
    ("Where do I", " park?"),
    ("Who is my dentist", " in Ghent?"),
    ("my wifi password", " at work"),
    ("What does Ruth drink", " before the gym?"),
    ("What does Ruth drink", " instead of tea?"),
    ("my sister", "'s birthday"),
    ("staging database", " yesterday?"),
    ("our deploy", " command"),
    ("api port", " without TLS?"),
    ("mein Zahnarzt", " in Berlin?"),
    ("Who is my dent", "ist?"),
    ("dentist", ", do you know, or can you please tell me if you remember it again?"),
]


def test_a_text_that_grew_by_a_few_words_is_close_if_it_asks_the_same() -> None:
    """R9: all twelve that only say please or the like, and none of the twelve that ask for something else."""
    assert [pair for pair in GROWN if not is_close(pair[0], "".join(pair))] == []
    assert [pair for pair in CHANGED if is_close(pair[0], "".join(pair))] == []


async def test_a_recall_for_a_beginning_is_used_when_only_pleasantries_follow(stage: Stage) -> None:
    """R9: no second query."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        conversation = memory.conversation("c", user="ada")
        conversation.expect("Herbs for the soup")
        await caught_up(memory)
        shown = await _shown(conversation, [], "Herbs for the soup, do you remember, by the way?")
        await caught_up(memory)
    assert shown == "ABC"
    assert stage.store.searches == 1
    assert stage.count("speculation_ended", outcome="used") == 1
