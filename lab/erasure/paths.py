"""The paths by which a sentinel enters a store, and what erases it.

A sentinel is a made-up word that occurs nowhere else. A path stores it, and returns a `Planted`: how to forget it, and
what is still under way then and goes on after it.
"""

from __future__ import annotations

import asyncio
import pathlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import afterturn
from afterturn.testing.model import call_tools
from afterturn.types import Draft, Forgotten, Kind
from lab.slices import StoreTarget

SENTINEL = re.compile(r"qz[bcdfghjklmnpqrstvwz]{12}x")
_LETTERS = "bcdfghjklmnpqrstvwz"


def new_sentinel(random: Random) -> str:
    return f"qz{''.join(random.choices(_LETTERS, k=12))}x"


class EchoModel:
    """The ChatModel port. It wants to save every sentinel that it reads, and answers when `release` is called."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Event] = {}
        self._released: dict[str, asyncio.Event] = {}
        self._loop = asyncio.get_running_loop()

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        found = SENTINEL.findall(str(messages))
        held = next((word for word in found if word in self._asked), None)
        if held is not None:
            # The model is called on memory's loop, and the lab waits on its own.
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._wait(held), self._loop))
        if messages[-1]["role"] == "tool" or not found or schema is not None:
            return {"role": "assistant", "content": "Nothing to save."}
        words = list(dict.fromkeys(found))[:4]
        saved = [{"text": f"The user likes {word}", "target": "user", "messages": [1]} for word in words]
        calls = call_tools(*(("add_memory", one) for one in saved))["tool_calls"]
        numbered = [{"id": str(at), "type": "function", **call} for at, call in enumerate(calls)]
        return {"role": "assistant", "content": None, "tool_calls": numbered}

    def hold(self, sentinel: str) -> None:
        self._asked[sentinel], self._released[sentinel] = asyncio.Event(), asyncio.Event()

    async def asked(self, sentinel: str) -> None:
        await self._asked[sentinel].wait()

    def release(self, sentinel: str) -> None:
        if sentinel in self._released:
            self._released[sentinel].set()

    async def _wait(self, sentinel: str) -> None:
        self._asked[sentinel].set()
        await self._released[sentinel].wait()


@dataclass(slots=True)
class Planted:
    """`forget` erases the sentinel. `afterwards` is work that was under way, and ends after it.

    `is_stored`: its bytes are in a file before it is forgotten.
    """

    forget: Callable[[], Awaitable[Forgotten]]
    afterwards: Sequence[Callable[[], Awaitable[object]]] = ()
    is_stored: bool = True


@dataclass(slots=True)
class Garden:
    """What a path needs: one memory that stores, another one on the same store that reads, and the model of both.

    `began_closing` and `closed` count the processes that write waiting turns to a file when they end.
    """

    target: StoreTarget
    store: pathlib.Path
    memory: afterturn.Memory
    reader: afterturn.Memory
    model: EchoModel
    random: Random
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    began_closing: int = 0
    closed: int = 0
    _numbers: int = 0

    def space(self, number: int) -> str:
        """Several sentinels share a space, so that forgetting one must leave the others."""
        return f"user:person-{number}"

    def next_id(self) -> str:
        self._numbers += 1
        return f"talk-{self._numbers}"

    def start(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        async def contained() -> None:
            try:
                await work
            except afterturn.AfterturnError:
                return

        task = asyncio.create_task(contained())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


Path = Callable[[Garden, str, str], Awaitable[Planted]]
"""Takes the garden, the name of a space, and the sentinel."""


async def say(
    memory: afterturn.Memory, space: str, talk: str, text: str, *, answer: str = "I see.", speaker: str | None = None
) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
    async with memory.conversation(talk, owner=space).turn(messages, speaker=speaker) as turn:
        await turn.inject(messages)
        messages.append({"role": "assistant", "content": answer})
    await turn.wait_recorded(within=30)
    return messages


async def _statement(garden: Garden, space: str, word: str) -> Planted:
    core = garden.memory.space(space)
    added = await core.add(f"Ada's password hint is {word}", metadata={"hint": word})
    return Planted(lambda: core.forget(memory=added.entry.id))


async def _versions(garden: Garden, space: str, word: str) -> Planted:
    core = garden.memory.space(space)
    added = await core.add(f"Ada lives in {word}")
    await core.update(added.entry.id, f"Ada lives in {word} with her sister")
    await core.update(added.entry.id, "Ada lives in the harbour")
    deleted = await core.delete(added.entry.id)
    await core.undo(deleted.operation)
    return Planted(lambda: core.forget(memory=added.entry.id))


async def _turn(garden: Garden, space: str, word: str) -> Planted:
    talk = garden.next_id()
    await say(garden.memory, space, talk, f"Where is {word}?", answer=f"{word} is on the shelf.")
    return Planted(lambda: garden.memory.space(space).forget(conversation=talk))


async def _named_conversation(garden: Garden, space: str, word: str) -> Planted:
    await say(garden.memory, space, word, "Where is my bicycle?")
    return Planted(lambda: garden.memory.space(space).forget(conversation=word))


async def _speaker(garden: Garden, space: str, word: str) -> Planted:
    await say(garden.memory, space, garden.next_id(), f"My neighbour is {word}.", speaker=word)
    return Planted(lambda: garden.memory.space(space).forget(speaker=word))


async def _learned_by_rules(garden: Garden, space: str, word: str) -> Planted:
    talk = garden.next_id()
    await say(garden.memory, space, talk, f"Remember that I like {word} with milk.")
    if garden.random.random() < 0.5:
        await garden.memory.drain(within=10)
    return Planted(lambda: garden.memory.space(space).forget(conversation=talk))


async def _learned_by_a_model(garden: Garden, space: str, word: str) -> Planted:
    talk, core = garden.next_id(), garden.memory.space(space)
    await say(garden.memory, space, talk, f"I like {word}")
    await core.run_review(talk)
    return Planted(lambda: core.forget(conversation=talk))


async def _review_under_way(garden: Garden, space: str, word: str) -> Planted:
    """The model has read the sentinel, and answers after it was forgotten."""
    talk, core = garden.next_id(), garden.memory.space(space)
    await say(garden.memory, space, talk, f"I like {word}")
    garden.model.hold(word)
    review = garden.start(core.run_review(talk))
    await asyncio.wait([review, asyncio.ensure_future(garden.model.asked(word))], return_when="FIRST_COMPLETED")

    async def release() -> None:
        garden.model.release(word)
        await review

    return Planted(lambda: core.forget(conversation=talk), [release])


async def _turn_under_way(garden: Garden, space: str, word: str) -> Planted:
    """The turn began before its conversation was forgotten, and is finished afterwards."""
    talk, core = garden.next_id(), garden.memory.space(space)
    await say(garden.memory, space, talk, "Where is my bicycle?")
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"And where is {word}?"}]
    turn = await garden.memory.conversation(talk, owner=space).start_turn(messages)

    async def finish() -> None:
        messages.append({"role": "assistant", "content": f"{word} is on the shelf."})
        turn.finish(messages)
        await turn.wait_recorded(within=5)

    return Planted(lambda: core.forget(conversation=talk), [finish], is_stored=False)


async def _shown(garden: Garden, space: str, word: str) -> Planted:
    """In the block of another conversation, which stores its text and names what it weighed."""
    core = garden.memory.space(space)
    added = await core.add(f"Ada's bicycle stands next to {word}")
    for _ in range(2):
        await say(garden.memory, space, garden.next_id(), "What stands next to Ada's bicycle?")
    return Planted(lambda: core.forget(memory=added.entry.id))


async def _standing(garden: Garden, space: str, word: str) -> Planted:
    core = garden.memory.space(space)
    added = await core.add(f"Always say {word} first", pinned=True)
    standing = garden.memory.conversation(garden.next_id(), owner=space).standing()
    await standing.block()
    return Planted(lambda: core.forget(memory=added.entry.id), [standing.block])


async def _proposed(garden: Garden, space: str, word: str) -> Planted:
    core = garden.memory.space(space)
    tools = garden.memory.conversation(garden.next_id(), owner=space).tools(remember=True)
    await tools.dispatch("remember_this", {"text": f"The spare key is called {word}"})
    found = [entry for entry in await core.proposals(limit=200) if word in entry.text]
    if not found:
        found = [(await core.add(f"The spare key is called {word}")).entry]
    return Planted(lambda: core.forget(memory=found[0].id))


async def _imported(garden: Garden, space: str, word: str) -> Planted:
    talk, core = garden.next_id(), garden.memory.space(space)
    drafts = [
        Draft(f"Part {at} of {word}", kind=Kind.RECORD, conversation=talk, position=at, speaker="Ada")
        for at in range(3)
    ]
    await core.add_many(drafts)
    return Planted(lambda: core.forget(conversation=talk))


async def _consolidated(garden: Garden, space: str, word: str) -> Planted:
    """Two statements with one source, merged into one."""
    talk, core = garden.next_id(), garden.memory.space(space)
    await say(garden.memory, space, talk, f"The cellar has {word}.")
    (record, *_) = [entry for entry in await core.list(limit=500) if word in entry.text]
    for mark in ".!":
        await core.add(f"The cellar has much {word}{mark}", sources=[record.id])
    await core.consolidate()
    return Planted(lambda: core.forget(conversation=talk))


async def _compacting(garden: Garden, space: str, word: str) -> Planted:
    """The host hands messages over that are about to be compacted, and a review reads them."""
    talk = garden.next_id()
    messages = await say(garden.memory, space, talk, f"I like {word}")
    garden.memory.conversation(talk, owner=space).compacting(messages)
    await asyncio.sleep(garden.random.uniform(0, 0.05))
    return Planted(lambda: garden.memory.space(space).forget(conversation=talk))


async def _by_another_process(garden: Garden, space: str, word: str) -> Planted:
    """The reader has the space in memory, and the other one forgets."""
    core = garden.memory.space(space)
    added = await core.add(f"The red boat is called {word}")
    await garden.reader.space(space).search(f"boat {word}")
    return Planted(lambda: core.forget(memory=added.entry.id))


async def _everything(garden: Garden, space: str, word: str) -> Planted:
    own = f"{space}-{garden.next_id()}"
    core = garden.memory.space(own)
    await core.add(f"The last word is {word}", project=word, agent=word)
    await say(garden.memory, own, word, f"I like {word}", speaker=word)
    return Planted(lambda: core.forget(everything=True))


async def _source(garden: Garden, space: str, word: str) -> Planted:
    core = garden.memory.space(space)
    added = await core.add(f"A mail says {word}", sources=[f"mail{word}"])
    assert added.created
    return Planted(lambda: core.forget(source=f"mail{word}"))


async def _waiting_in_a_file(garden: Garden, space: str, word: str) -> Planted:
    """Another program holds the store's lock, so a process that ends leaves its turn in a file."""
    talk = garden.next_id()
    settings = {"embedder": "none", "busy_timeout": 0.05, "close_timeout": 0.3, "grace": 0.0, "background": False}
    async with afterturn.open(garden.store, settings) as other:
        messages = [{"role": "user", "content": f"Where is {word}?"}]
        turn = await other.conversation(talk, owner=space).start_turn(messages)
        messages.append({"role": "assistant", "content": f"{word} is on the shelf."})
        with garden.target.transaction(garden.store, writes=True):
            turn.finish(messages)
            garden.began_closing += 1
            await other.close()
            garden.closed += 1
    return Planted(lambda: garden.memory.space(space).forget(conversation=talk))


PATHS: dict[str, Path] = {
    "a statement": _statement,
    "several versions": _versions,
    "a turn": _turn,
    "the id of a conversation": _named_conversation,
    "the name of a speaker": _speaker,
    "learned by rules": _learned_by_rules,
    "learned by a model": _learned_by_a_model,
    "a review that is under way": _review_under_way,
    "a turn that is under way": _turn_under_way,
    "a block of another conversation": _shown,
    "a standing block": _standing,
    "a proposal": _proposed,
    "an import": _imported,
    "a consolidation": _consolidated,
    "messages before a compaction": _compacting,
    "another process with the space in memory": _by_another_process,
    "a whole space": _everything,
    "a source": _source,
    "a turn that waits in a file": _waiting_in_a_file,
}
