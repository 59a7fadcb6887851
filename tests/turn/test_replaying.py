"""Past blocks rendered again: the same bytes from what was kept, and other ones under other settings."""

import random
from pathlib import Path

import pytest
from spoken import Message, answer, assistant, call, user
from staged import Stage, learn, learn_herbs, letters, settled
from test_refined import choosing

import afterturn
from afterturn.base.errors import ConfigError, NotFound, StoreUnavailable
from afterturn.testing import ScriptedModel
from afterturn.testing.clock import ManualClock
from afterturn.testing.hashing import HashingEmbedder

ASKED = "What goes into the soup?"
OTHER = "What is my cat called?"
LONG = "The recipe says: " + "stir it well and wait a little while, " * 30 + "then soup is served. " + "Rest. " * 200


async def spoken(memory: afterturn.Memory, messages: list[Message], text: str) -> str:
    """One turn of Ada's with a block if there is one; what was injected."""
    messages.append(user(text))
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        element = await turn.inject(messages)
        messages.append(assistant("Noted."))
    await turn.wait_recorded()
    assert await memory.drain()
    return "" if element is None else str(element["content"])


async def replayed(memory: afterturn.Memory, turn: str | int = "last", **changes: float) -> list[str]:
    """The blocks of a turn as they come out again, after each was found identical."""
    told = await memory.conversation("c", user="ada").replay(turn, changes=changes)
    assert [block.identical for block in told.blocks] == [True] * len(told.blocks)
    return [block.rendered if block.changed is None else block.changed for block in told.blocks]


async def test_a_block_comes_out_again_byte_for_byte(stage: Stage) -> None:
    """H3: days later, when every age has changed, it is what the model has read."""
    async with stage.open() as memory:
        await learn_herbs(memory, stage.clock)
        injected = await spoken(memory, [], ASKED)
        stage.clock.advance(90_000)
        assert await replayed(memory) == [injected]


async def test_carried_and_new_recalls_share_a_block_that_comes_out_again(stage: Stage) -> None:
    """R8, H9: what was carried stands first, under one budget."""
    async with stage.open(recall_entries_max=5) as memory:
        await learn(memory, stage.clock, ["Ada's cat is called Miso", "Ada's cat is a Siamese", "Ada's cat is old"])
        await learn_herbs(memory, stage.clock)
        messages: list[Message] = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await settled(turn)
            messages.append(assistant("I do not know."))
        await turn.wait_recorded()
        stage.clock.advance(130)
        messages.append(user(OTHER))
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await settled(turn)
            element = turn.inject_now(messages)
            messages.append(assistant("Miso."))
        assert await memory.drain()
        assert letters(element) == "ABCDE"
        assert await replayed(memory) == [str(element["content"])]  # type: ignore[index]


async def test_what_was_carried_by_another_process_comes_out_again(stage: Stage) -> None:
    """R8: its windows were cut by the words that were asked then, in a process that is gone."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, [LONG, "Anise goes into the soup"])
        messages: list[Message] = [user(ASKED)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await settled(turn)
            messages.append(assistant("I do not know."))
        await turn.wait_recorded()
    stage.clock.advance(86_400)
    async with stage.open() as memory:
        injected = await spoken(memory, messages, OTHER)
        assert "soup" in injected
        assert await replayed(memory) == [injected]


@pytest.mark.parametrize("phase", ["fast", "refined"])
async def test_both_phases_come_out_again(stage: Stage, phase: str) -> None:
    """R7: in one block, what the model chose first; or in two."""
    model = ScriptedModel(choosing("GB"))
    async with stage.open(model=model, refined=True, recall_entries_max=3) as memory:
        await learn_herbs(memory, stage.clock)
        messages: list[Message] = [user(ASKED)]
        injected = []
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await settled(turn)
            injected.append(await turn.inject(messages, phase=phase))
            messages += [call("one"), answer("one")]
            injected.append(await turn.inject(messages, phase="refined"))
            messages.append(assistant("Herbs."))
        await turn.wait_recorded()
        assert await memory.drain()
        texts = [str(element["content"]) for element in injected if element is not None]
        assert sorted(await replayed(memory)) == sorted(texts)
        assert {letter for text in texts for letter in letters(text)} >= {"G", "B"}


async def test_what_was_asked_ahead_comes_out_again(stage: Stage) -> None:
    """R9: windows were cut by the words as they were typed, not by those that were said."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, ["Soup with carrots. " + "Stir it. " * 100 + "Soup with boiled carrots."])
        conversation = memory.conversation("c", user="ada")
        conversation.expect("What goes into the soup with carrots")
        await stage.heard("speculation_started")
        injected = await spoken(memory, [], "What goes into the soup with boiled carrots?")
        assert stage.count("speculation_ended", outcome="used") == 1
        assert "boiled" not in injected
        assert await replayed(memory) == [injected]


async def test_contradictions_with_their_dates_come_out_again(stage: Stage) -> None:
    """L10: dates are shown for what was weighed together, also with what found no room."""
    async with stage.open(recall_entries_max=2) as memory:
        await learn(memory, stage.clock, [f"Ada's cat is called {name}" for name in ("Miso", "Tofu", "Rex")])
        injected = await spoken(memory, [], OTHER)
        assert "(2024-01-01)" in injected
        assert await replayed(memory) == [injected]


async def test_what_changed_since_comes_out_as_it_was(stage: Stage) -> None:
    """M1: a memory that was updated or deleted since is shown in the version that the model saw."""
    async with stage.open() as memory:
        ada = memory.space("user:ada")
        first = (await ada.add("Ada's cat is called Miso")).entry.id
        second = (await ada.add("The cat weighs five kilos")).entry.id
        injected = await spoken(memory, [], OTHER)
        await ada.update(first, "Ada's cat is called Tofu")
        await ada.delete(second)
        assert await replayed(memory) == [injected]


async def test_a_forgotten_memory_can_not_be_rendered_again(stage: Stage) -> None:
    """M2: it says so, and gives neither the text nor the id."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, ["Ada's cat is called Miso", "The cat weighs five kilos"])
        ada = memory.space("user:ada")
        await spoken(memory, [], OTHER)
        (gone,) = [entry.id for entry in await ada.list() if "Miso" in entry.text]
        await ada.forget(memory=gone)
        told = await memory.conversation("c", user="ada").replay("last")
        (block,) = told.blocks
        assert (block.identical, block.stored) == (False, "")
        assert "forgotten" in block.reason
        assert "five kilos" in block.rendered
        assert "Miso" not in str(told)
        assert gone not in str(told)


async def test_another_configuration_gives_another_block(stage: Stage) -> None:
    """H9: fewer entries, a smaller block, a higher floor; the same candidates."""
    async with stage.open(recall_entries_max=4) as memory:
        await learn(memory, stage.clock, ["My soup needs carrots and peas and beans and leeks"])
        await learn_herbs(memory, stage.clock)
        injected = await spoken(memory, [], ASKED)
        assert letters(injected) == "ABCD"
        assert letters(await replayed(memory, recall_entries_max=6)) == "ABCDEF"
        assert letters(await replayed(memory, recall_entries_max=2)) == "AB"
        assert len((await replayed(memory, block_tokens_max=128))[0]) < len(injected)
        assert await replayed(memory, recall_score_min=1.0) == [""]
        assert "carrots" in (await replayed(memory, recall_entries_max=20, recall_score_min=0.0))[0]
        assert await replayed(memory, recall_entries_max=0) == [""]


async def test_what_was_below_the_floor_comes_out_under_a_lower_one(stage: Stage) -> None:
    """L5: a turn that got nothing has a block to be had, too."""
    async with stage.open(recall_score_min=0.9) as memory:
        await learn(memory, stage.clock, ["The cat weighs five kilos"])
        assert await spoken(memory, [], "How heavy is my old grey cat by now, I wonder?") == ""
        assert await replayed(memory) == [""]
        assert "five kilos" in (await replayed(memory, recall_score_min=0.0))[0]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"embedder": "none"}, "'embedder' can not be replayed"),
        ({"colour": 1}, "'colour' is no setting"),
        ({"recall_entries_max": "many"}, "must be a integer"),
        ({"block_bytes_max": 1}, "at least 512"),
    ],
)
async def test_a_setting_that_can_not_be_replayed_is_named(stage: Stage, changes: dict, said: str) -> None:
    async with stage.open() as memory:
        await learn_herbs(memory, stage.clock)
        await spoken(memory, [], ASKED)
        with pytest.raises(ConfigError, match=said):
            await memory.conversation("c", user="ada").replay("last", changes=changes)


async def test_a_turn_that_is_not_there_is_not_found(stage: Stage) -> None:
    async with stage.open() as memory:
        await learn_herbs(memory, stage.clock)
        await spoken(memory, [], ASKED)
        conversation = memory.conversation("c", user="ada")
        for turn in (0, 2, "2", "nonesuch"):
            with pytest.raises(NotFound, match="has no turn"):
                await conversation.replay(turn)
        with pytest.raises(NotFound):
            await memory.conversation("c", user="bob").replay("last")


async def test_without_a_store_there_is_nothing_to_look_back_on() -> None:
    async with afterturn.open(None) as memory:
        with pytest.raises(StoreUnavailable):
            await memory.conversation("c", user="ada").replay("last")


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_was_injected_comes_out_again(tmp_path: Path, seed: int) -> None:
    """H3: over random memories, questions, budgets and hosts, then again once everything has changed."""
    chance, clock = random.Random(seed), ManualClock()
    embedder = HashingEmbedder() if seed % 2 else None
    settings = {
        "grace": 5.0,
        "embedder": "static" if embedder else "none",
        "recall_entries_max": chance.choice([1, 3, 8]),
        "recall_score_min": chance.choice([0.0, 0.16, 0.3]),
        "entry_bytes_max": chance.choice([64, 512]),
        "block_bytes_max": chance.choice([512, 4096]),
        "visible_bytes_max": chance.choice([2000, 61440]),
    }
    parts = afterturn.Parts(embedder=embedder, clock=clock)
    async with afterturn.open(tmp_path / "memory.db", settings, parts=parts) as memory:
        ids = [await _learned(memory, chance, clock) for _ in range(30)]
        await memory.ready()
        await memory.drain()
        injected = await _talk(memory, chance, clock, ids)
        assert any(injected)
        for entry_id in chance.sample(ids, 10):
            await memory.space("user:ada").update(entry_id, _sentence(chance) + " " + entry_id)
        for number, texts in enumerate(injected, start=1):
            again = [text for text in await replayed(memory, number) if text]
            assert sorted(again) == sorted(texts)


WORDS = (
    "cat soup tea 茶 вино car is called likes not eats red old Ada Miso sleeps my your café 猫好 the in never".split()
)


def _sentence(chance: random.Random) -> str:
    length = chance.choice([4, 6, 9, 200])
    return " ".join(chance.choice(WORDS) for _ in range(length))


async def _learned(memory: afterturn.Memory, chance: random.Random, clock: ManualClock) -> str:
    origin = chance.choice(["user", "user", "agent", "web", "import"])
    added = await memory.space("user:ada").add(_sentence(chance), origin=origin)
    clock.advance(chance.choice([1, 59.9, 3_600, 200_000]))
    return added.entry.id


async def _talk(memory: afterturn.Memory, chance: random.Random, clock: ManualClock, ids: list[str]) -> list[list[str]]:
    """Six turns of a host that hands over early, late or not at all; by turn, what was injected."""
    history = chance.choice(["shown", "hidden"])
    conversation = memory.conversation("c", user="ada", history=history)
    messages: list[Message] = []
    injected = []
    for number in range(6):
        messages.append(user(" ".join(chance.choice(WORDS) for _ in range(chance.choice([3, 8, 60])))))
        texts = []
        async with conversation.turn(messages) as turn:
            await settled(turn)
            clock.advance(chance.choice([0, 0.5, 61]))
            if chance.random() < 0.6:
                texts.append(turn.inject_now(messages))
            if chance.random() < 0.5:
                messages += [call(f"call{number}"), answer(f"call{number}", _sentence(chance))]
                turn.interject(" ".join(chance.sample(WORDS, 4)))
                await settled(turn)
                texts.append(turn.inject_now(messages))
            messages.append(assistant(_sentence(chance)))
        await turn.wait_recorded()
        await memory.drain()
        injected.append([str(element["content"]) for element in texts if element is not None])
        await memory.space("user:ada").update(chance.choice(ids), f"{_sentence(chance)} {number}")
    return injected
