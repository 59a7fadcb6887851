"""What was said a moment ago in another conversation, while its turn is still being stored."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spoken import assistant, user

import afterturn
from afterturn.config import Config
from afterturn.conversation import recall_client
from afterturn.ports import Clock, Store
from afterturn.runtime.once_future import OnceFuture
from afterturn.stores.sqlite.store import open_store
from afterturn.types import Filter, Kind

WITHIN = 100.0
SAID = [{"role": "user", "content": "My cat Miso is allergic to chicken."}, {"role": "assistant", "content": "Noted."}]
QUESTION = "What food is my cat Miso allergic to?"


class SlowStore:
    """The real store, which stores finished turns only after `release`. Counts searches."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.searches = 0
        self.came: OnceFuture[bool] = OnceFuture()
        self.release: OnceFuture[bool] = OnceFuture()

    async def write(self, work: Callable[..., Any], **where: Any) -> Any:
        if "StoreSink.record" in getattr(work, "__qualname__", ""):
            self.came.settle(True)
            await self.release.wait(within=WITHIN)
        return await self._inner.write(work, **where)

    async def read(self, work: Callable[..., Any], **where: Any) -> Any:
        self.searches += "answer_question" in getattr(getattr(work, "func", work), "__qualname__", "")
        return await self._inner.read(work, **where)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("is_same", [False, True])
async def test_a_recall_waits_for_a_turn_that_has_just_ended_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_same: bool
):
    """R1, C4: another conversation of the same user is waited for; the same one shows its messages itself."""
    monkeypatch.setattr(recall_client, "STORED_WITHIN", WITHIN)
    stores: list[SlowStore] = []

    def opened(path: Path, config: Config, clock: Clock) -> Any:
        stores.append(SlowStore(open_store(path, config, clock)))
        return stores[-1]

    settings = {"grace": 2 * WITHIN, "embedder": "none", "recall_score_min": 0.03}
    components = afterturn.Components(store=opened)
    async with afterturn.open(tmp_path / "memory.db", settings, components=components) as memory:
        first = list(SAID[:1])
        async with memory.conversation("monday", user="ada").turn(first) as told:
            assert await told.inject(first) is None  # waits for its search, which counts
            first.append(SAID[1])
        assert await stores[0].came.wait(within=WITHIN)
        earlier, second = stores[0].searches, [{"role": "user", "content": QUESTION}]
        turn = memory.conversation("monday" if is_same else "tuesday", user="ada").turn(second)
        # Two calls through memory's loop and its store: a recall that waits for nothing has begun by then.
        for _ in range(2):
            await memory.space("user:ada").list(limit=1)
        if is_same:
            assert await turn.inject(second, within=1.0) is None
            assert stores[0].searches == earlier + 1
        else:
            assert stores[0].searches == earlier
        stores[0].release.settle(True)
        if not is_same:
            block = await turn.inject(second)
            assert block is not None
            assert "allergic to chicken" in block["content"]
        turn.abort("the test is over")


async def test_a_recall_does_not_wait_for_others_or_for_long(tmp_path: Path):
    """R2: a store that cannot be written delays recalls by half of the grace at most."""
    stores: list[SlowStore] = []

    def opened(path: Path, config: Config, clock: Clock) -> Any:
        stores.append(SlowStore(open_store(path, config, clock)))
        return stores[-1]

    settings = {"grace": WITHIN, "embedder": "none", "recall_score_min": 0.03}
    components = afterturn.Components(store=opened)
    async with afterturn.open(tmp_path / "memory.db", settings, components=components) as memory:
        await memory.space("user:ada").add("Ada's cat Miso is allergic to fish")
        first = list(SAID[:1])
        async with memory.conversation("monday", user="ada").turn(first):
            first.append(SAID[1])
        assert await stores[0].came.wait(within=WITHIN)
        second = [{"role": "user", "content": QUESTION}]
        async with memory.conversation("tuesday", user="ada").turn(second) as turn:
            async with asyncio.timeout(WITHIN / 2):
                block = await turn.inject(second)
            assert block is not None
            assert "fish" in block["content"]
            assert "chicken" not in block["content"]
        stores[0].release.settle(True)


async def test_a_statement_is_not_shown_after_the_message_it_was_learned_from(tmp_path: Path) -> None:
    """L10, L3: the message was in a block, and the review after it says the same in a memory of its own."""
    async with afterturn.open(tmp_path / "memory.db", background=False) as memory:
        messages: list[dict[str, Any]] = [user("My cat Miso is allergic to chicken.")]
        async with memory.conversation("monday", user="ada").turn(messages) as turn:
            messages.append(assistant("I see."))
        assert await turn.wait_recorded()
        conversation = memory.conversation("tuesday", user="ada", standing="off")
        messages = [user("What food is my cat Miso allergic to?")]
        async with conversation.turn(messages) as turn:
            assert await turn.inject(messages, within=10) is not None
            messages.append(assistant("Chicken."))
        assert await turn.wait_recorded()
        assert await memory.drain()
        learned = await memory.space("user:ada").list(filter=Filter(kind=Kind.STATEMENT))
        assert [one.text for one in learned] == ["My cat Miso is allergic to chicken."]
        messages.append(user("So is my cat Miso allergic to chicken soup?"))
        async with conversation.turn(messages) as turn:
            assert await turn.inject(messages, within=10) is None
            messages.append(assistant("Yes."))
