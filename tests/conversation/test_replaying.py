"""Past blocks rendered again: the same bytes from what was kept, and other ones under other settings."""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from controlled_store import Stage, learn, learn_herbs, letters, settled
from spoken import Message, answer, assistant, call, user

import afterturn
from afterturn.errors import ConfigError, InvalidInput, NotFound, StoreUnavailable
from afterturn.recall import block as recall_block
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


def choosing(*wanted: str) -> Callable[[Sequence[Mapping[str, Any]]], str]:
    """A model that chooses the memories with these words, in this order."""

    def choose(messages: Sequence[Mapping[str, Any]]) -> str:
        lines = re.findall(r"^\[(\d+)\] (.*)$", str(messages[-1]["content"]), re.MULTILINE)
        return json.dumps({"ids": [int(number) for word in wanted for number, text in lines if word in text]})

    return choose


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
    model = ScriptedModel(choosing("Garlic", "Basil"))
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


async def test_context_files_are_not_rendered_again(stage: Stage, tmp_path: Path) -> None:
    """S3: they came beside the memories, stay in their bytes, and are told apart."""
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    (folder / "AGENTS.md").write_text("Dates are ISO 8601.\n", encoding="utf-8")
    async with stage.open() as memory:
        await learn(memory, stage.clock, ["Ada's cat is called Miso"])
        standing = memory.conversation("c", user="ada").standing(roots=[tmp_path / "project"])
        standing.touch(folder / "dates.py")
        assert await standing.flush()
        injected = await spoken(memory, [], OTHER)
        told = await memory.conversation("c", user="ada").replay("last")
        (traced,) = (await memory.conversation("c", user="ada").trace("last")).turns
    memories, files = told.blocks
    assert injected == f"{files.rendered}\n\n{memories.rendered}"
    assert (memories.identical, files.identical) == (True, True)
    assert "context files" in files.reason
    assert sorted(block.memories for block in traced.blocks) == [0, 1]


async def test_another_configuration_gives_another_block(stage: Stage) -> None:
    """H9: fewer entries, a smaller block, a higher floor; the same candidates."""
    async with stage.open(recall_entries_max=4) as memory:
        await learn(memory, stage.clock, ["My soup needs carrots and peas and beans and leeks"])
        await learn_herbs(memory, stage.clock)
        injected = await spoken(memory, [], ASKED)
        assert letters(injected) == "ABCD"
        assert letters(await replayed(memory, recall_entries_max=6)) == "ABCDEF"
        assert letters(await replayed(memory, recall_entries_max=2)) == "AB"
        (larger,), (smaller,) = [
            await replayed(memory, recall_entries_max=8, block_bytes_max=size) for size in (4096, 512)
        ]
        assert len(smaller.encode()) <= 512 < len(larger.encode())
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
        ({"embedder": "none"}, "'embedder' cannot be replayed"),
        ({"colour": 1}, "'colour' is not a setting"),
        ({"recall_entries_max": "many"}, "must be an integer"),
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


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_was_injected_comes_out_again(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H3: over random memories, questions, budgets, hosts and processes, then again once everything has changed."""
    chance = random.Random(seed)
    monkeypatch.setattr(recall_block, "ENTRY_BYTES_MAX", chance.choice([64, 512]))
    monkeypatch.setattr(recall_block, "VISIBLE_BYTES_MAX", chance.choice([2000, 61440]))
    scene = Scene(tmp_path / "memory.db", chance)
    async with scene.open() as memory:
        for _ in range(30):
            await scene.learn(memory)
    injected = []
    for _ in range(2):
        async with scene.open() as memory:
            injected += [await scene.turn(memory) for _ in range(4)]
    async with scene.open() as memory:
        for _ in range(10):
            await scene.change(memory)
        for number, texts in enumerate(injected, start=1):
            assert sorted(text for text in await replayed(memory, number) if text) == sorted(texts)
    assert any(injected)


WORDS = (
    "cat soup tea 茶 вино car is called likes not eats red old Ada Miso sleeps my your café 猫好 the in never".split()
)
SPACES = ("user:ada", "team:x")


class Scene:
    """A store, settings and a host that a seed decides; each turn may take another way through."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self._path = path
        self._chance = chance
        self._clock = ManualClock()
        self._embedder = HashingEmbedder() if chance.random() < 0.5 else None
        self._refined = chance.random() < 0.3
        self._history = chance.choice(["shown", "hidden"])
        self._known: list[tuple[str, str]] = []
        self._messages: list[Message] = []
        self._settings = {
            "grace": 5.0,
            "embedder": "static" if self._embedder else "none",
            "refined": self._refined,
            "recall_entries_max": chance.choice([1, 3, 8]),
            "recall_score_min": chance.choice([0.0, 0.16, 0.3]),
            "block_bytes_max": chance.choice([512, 4096]),
        }

    def open(self) -> afterturn.Memory:
        parts = afterturn.Components(embedder=self._embedder, clock=self._clock)
        model = ScriptedModel(*[self._chosen] * 100) if self._refined else None
        return afterturn.open(self._path, self._settings, components=parts, model=model)

    def _chosen(self, messages: Sequence[Mapping[str, Any]]) -> str:
        offered = re.findall(r"^\[(\d+)\] ", str(messages[-1]["content"]), re.MULTILINE)
        return json.dumps({"ids": [int(number) for number in self._chance.sample(offered, min(3, len(offered)))]})

    async def learn(self, memory: afterturn.Memory) -> None:
        space, origin = self._chance.choice(SPACES), self._chance.choice(["user", "user", "agent", "web", "import"])
        added = await memory.space(space).add(self._said(4, 6, 9, 200), origin=origin)
        self._known.append((space, added.entry.id))
        self._clock.advance(self._chance.choice([1, 59.9, 3_600, 200_000]))

    async def change(self, memory: afterturn.Memory) -> None:
        space, entry_id = self._chance.choice(self._known)
        await memory.space(space).update(entry_id, f"{self._said(4, 9)} {self._clock.advance(1):.0f}")

    async def turn(self, memory: afterturn.Memory) -> list[str]:
        """What was injected: early, late, as text for a prompt, or not at all."""
        chance, injected = self._chance, list[str]()
        conversation = memory.conversation("c", user="ada", reads=["team:x"], history=self._history)  # type: ignore[arg-type]
        if chance.random() < 0.2:
            conversation.compacted()
        self._messages.append(user(self._said(3, 8, 60)))
        async with conversation.turn(self._messages) as turn:
            for step in range(chance.choice([0, 1, 2, 3])):
                await settled(turn)
                self._clock.advance(chance.choice([0, 0.5, 61]))
                injected += await self._taken(turn)
                if step:
                    self._messages += [call(f"{turn.id}{step}"), answer(f"{turn.id}{step}", self._said(9))]
                say = chance.choice([turn.interject, turn.cue, None])
                if say is not None:
                    say(self._said(4))
            await settled(turn)
            self._messages.append(assistant(self._said(5)))
        await turn.wait_recorded()
        await self.change(memory)
        assert await memory.drain()
        return injected

    async def _taken(self, turn: afterturn.Turn) -> list[str]:
        way = self._chance.choice(["now", "refined", "prompt", "later"])
        if way == "later":
            return []
        if way == "prompt":
            before = len(turn._turn.shared.prompt_texts)  # type: ignore[union-attr]
            turn.block_now()
            return list(turn._turn.shared.prompt_texts[before:])  # type: ignore[union-attr]
        element = await turn.inject(self._messages, phase="refined" if way == "refined" else "fast")
        return [] if element is None else [str(element["content"])]

    def _said(self, *lengths: int) -> str:
        return " ".join(self._chance.choice(WORDS) for _ in range(self._chance.choice(lengths)))


async def test_replaying_no_turn_in_particular_is_refused(stage: Stage) -> None:
    """H3: with what to pass."""
    async with stage.open() as memory:
        with pytest.raises(InvalidInput, match="No turn was given"):
            await memory.conversation("c", user="ada").replay(None)  # type: ignore[arg-type]
