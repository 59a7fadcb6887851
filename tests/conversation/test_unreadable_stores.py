"""Turns beside a store that refuses to be read or written for a while: what they lose, and what they never do."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from spoken import Message, Told, answer, assistant, call, user

import afterturn
from afterturn.errors import StoreUnavailable
from afterturn.ports import Unit
from afterturn.stores.sqlite.store import open_store
from afterturn.types import Filter, Kind, UnitScope


class MoodyStore:
    """A real store that refuses what it is told to refuse: "read", "write", a function that reads, or nothing."""

    def __init__(self, *values: Any) -> None:
        self._inner = open_store(*values)
        self.refused = 0
        self._mood = ""

    @contextmanager
    def refusing(self, what: str) -> Iterator[None]:
        self._mood = what
        yield
        self._mood = ""

    def read(self, work: Callable[[Unit], Any], *, at: UnitScope) -> Awaitable[Any]:
        name = getattr(getattr(work, "func", work), "__name__", "read")
        return self._inner.read(self._refuse if self._mood in ("read", name) else work, at=at)

    def write(self, work: Callable[[Unit], Any], *, at: UnitScope) -> Awaitable[Any]:
        return self._inner.write(self._refuse if self._mood == "write" else work, at=at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _refuse(self, unit: Unit) -> NoReturn:
        self.refused += 1
        raise StoreUnavailable("The store is away. Come back later.")


@pytest.fixture
def stores() -> list[MoodyStore]:
    return []


@pytest.fixture
def parts(stores: list[MoodyStore]) -> afterturn.Components:
    def opened(*values: Any) -> MoodyStore:
        stores.append(MoodyStore(*values))
        return stores[-1]

    return afterturn.Components(store=opened)


async def _recorded(memory: afterturn.Memory) -> list[str]:
    entries = await memory.space("user:ada").list(filter=Filter(kind=Kind.RECORD), limit=100)
    return [entry.text for entry in sorted(entries, key=lambda entry: entry.position or 0)]


async def test_a_turn_is_recorded_though_the_store_can_not_be_read(
    tmp_path: Path, told: Told, parts: afterturn.Components, stores: list[MoodyStore]
) -> None:
    """C4, L8: its recall is degraded, and nothing of it is lost, from its first message on."""
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}, on_event=told, components=parts) as memory:
        with stores[0].refusing("read"):
            messages = [user("old"), assistant("old"), user("Do I like tea?")]
            async with memory.conversation("c", user="ada").turn(messages) as turn:
                assert await turn.inject(messages) is None
                messages.extend([call("one"), answer("one"), user("And coffee?"), assistant("You do.")])
                turn.interject("And coffee?")
            assert await turn.wait_recorded(within=20.0)
        assert await _recorded(memory) == ["Do I like tea?", "42", "And coffee?", "You do."]
    ended = told.named("recall_ended")[0]
    assert (ended.data["outcome"], ended.data["reason"]) == ("degraded", "StoreUnavailable")


async def test_what_was_forgotten_long_ago_costs_no_turn_that_can_not_be_read(
    tmp_path: Path, parts: afterturn.Components, stores: list[MoodyStore]
) -> None:
    """C4, M2: of a forget that was there before it began, a turn is free, though its own beginning was not read."""
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}, components=parts) as memory:
        conversation = memory.conversation("c", user="ada")
        await memory.space("user:ada").forget(conversation="c")
        messages: list[Message] = []
        for mood in ("", "read"):
            messages.append(user("Do I like tea?"))
            with stores[0].refusing(mood):
                async with conversation.turn(messages) as turn:
                    await turn.inject(messages)
                    messages.append(assistant("You do."))
                assert await turn.wait_recorded(within=20.0)
        assert await _recorded(memory) == ["Do I like tea?", "You do."] * 2


async def test_the_same_words_twice_in_a_turn_are_recorded_twice(
    tmp_path: Path, parts: afterturn.Components, stores: list[MoodyStore]
) -> None:
    """C1, C3: a turn begins with its own message, not with one that says the same."""
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}, components=parts) as memory:
        messages = [user("go on"), assistant("earlier"), user("go on")]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            messages.extend([call("one"), answer("one"), user("go on")])
            turn.interject("go on")
            messages.append(assistant("done"))
        assert await turn.wait_recorded(within=20.0)
        assert await _recorded(memory) == ["go on", "42", "go on", "done"]
    assert stores[0].refused == 0


async def test_a_block_that_was_refused_once_is_known_to_the_next_process(
    tmp_path: Path, told: Told, parts: afterturn.Components, stores: list[MoodyStore]
) -> None:
    """H6, C5: the store is told again of what went into the host's messages, so that it is not shown again."""
    settings = {"embedder": "none", "grace": 5.0}
    messages = [user("Which tea do I like?")]
    async with afterturn.open(tmp_path / "memory.db", settings, on_event=told, components=parts) as memory:
        await memory.space("user:ada").add("The tea that Ada likes is oolong")
        turn = await memory.conversation("c", user="ada").start_turn(messages)
        with stores[0].refusing("write"):
            assert await turn.inject(messages) is not None
            told.wait("handed_over")
            while not stores[0].refused:
                await memory.ready(within=0.01)
    async with afterturn.open(tmp_path / "memory.db", settings, components=parts) as memory:
        again = await memory.conversation("c", user="ada").resume_turn(turn.id)
        messages.append(assistant("Oolong."))
        again.finish(messages)
        assert await again.wait_recorded(within=20.0)
        assert await _recorded(memory) == ["Which tea do I like?", "Oolong."]


async def test_a_turn_that_could_not_be_read_is_resumed_at_the_next_try(
    tmp_path: Path, parts: afterturn.Components, stores: list[MoodyStore]
) -> None:
    """C4, H5: after a read that failed, the retry reads what the turn needs, and shows what was recalled for it."""
    settings = {"embedder": "none", "grace": 5.0}
    messages = [user("Which tea do I like?")]
    async with afterturn.open(tmp_path / "memory.db", settings, components=parts) as memory:
        await memory.space("user:ada").add("Ada likes oolong tea")
        turn = await memory.conversation("c", user="ada").start_turn(messages, id="t1")
        assert turn._turn is not None
        assert await turn._turn.shared.first.fast.settled.wait(within=20.0)
    async with afterturn.open(tmp_path / "memory.db", settings, components=parts) as memory:
        conversation = memory.conversation("c", user="ada")
        with stores[-1].refusing("read_turn"), pytest.raises(StoreUnavailable):
            await conversation.resume_turn("t1")
        turn = await conversation.resume_turn("t1")
        assert "oolong" in await turn.block(within=20.0)
        turn.abort()
