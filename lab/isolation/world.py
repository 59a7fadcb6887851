"""The tenants and spaces of the isolation lab, what is stored in each, and what each may see."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import afterturn
from afterturn.dialects import Dialect, get_dialect
from afterturn.testing import HashingEmbedder, ManualClock
from afterturn.testing.model import call_tools
from afterturn.types import Draft, Kind

CANARY = re.compile(r"canary[a-z]{4}")
SETTINGS: dict[str, Any] = {
    "embedder": "none",
    "synchronous": "normal",
    "busy_timeout": 30.0,
    "recall_score_min": 0.0,
    "grace": 5.0,
}
# The same in every space, so that a missing scope check finds somebody else's.
TALKS = ("talk-1", "talk-2")
TURNS = ("turn-1", "turn-2")
GROUP = "group-1"
SPEAKER = "bob"
QUESTION = "Which tea does the kitchen have?"
_FORMATS = ("openai_chat", "openai_responses", "anthropic", "gemini", "langchain", "bedrock")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(eq=False, slots=True)
class Party:
    """One space of one tenant. `friend` is the space of the same tenant that its conversations may read.

    `names` has the ids that are known of it, by kind: entry, operation, review, proposal, conversation, turn.
    """

    tenant: str
    space: str
    canary: str
    memory: afterturn.Memory
    clock: ManualClock
    is_quiet: bool
    is_quiet_tenant: bool = False
    friend: Party | None = None
    names: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def core(self) -> afterturn.Space:
        return self.memory.space(self.space)

    @property
    def shared_ids(self) -> list[str]:
        """Ids that a program chose itself: the same in every tenant, and different in the spaces of one."""
        return [f"shared{self.canary[-2:]}{number}" for number in range(3)]

    @property
    def readable(self) -> frozenset[str]:
        return frozenset({self.canary} | ({self.friend.canary} if self.friend else set()))

    @property
    def dialect(self) -> Dialect:
        """The message format of the party's hosts. A world has hosts of every format."""
        name = _FORMATS[zlib.crc32(f"{self.tenant} {self.space}".encode()) % len(_FORMATS)]
        return get_dialect(name)

    def conversation(self, id: str) -> afterturn.Conversation:
        reads = [self.friend.space] if self.friend else []
        return self.memory.conversation(id, owner=self.space, reads=reads, dialect=self.dialect.name)


class WatchingModel:
    """The ChatModel port. It learns one statement a review, and keeps the canaries of every prompt that it was sent."""

    def __init__(self) -> None:
        self.prompts: list[frozenset[str]] = []

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        found = CANARY.findall(str(messages))
        self.prompts.append(frozenset(found))
        if messages[-1]["role"] == "tool" or not found or schema is not None:
            return {"role": "assistant", "content": "Nothing to save."}
        new = {"text": f"The user prefers {found[-1]} tea in the kitchen", "target": "user", "messages": [1]}
        calls = call_tools(("add_memory", new))["tool_calls"]
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", **call} for call in calls],
        }


@dataclass(slots=True)
class World:
    """`quiet` parties do nothing after they are set up: what others do must change nothing that they see.

    All parties of the last tenant are quiet.
    """

    store: Path
    clock: ManualClock
    model: WatchingModel
    parties: list[Party]

    @property
    def quiet(self) -> list[Party]:
        return [party for party in self.parties if party.is_quiet]

    @property
    def active(self) -> list[Party]:
        return [party for party in self.parties if not party.is_quiet]

    def of_tenant(self, tenant: str) -> frozenset[str]:
        return frozenset(party.canary for party in self.parties if party.tenant == tenant)


def canary(tenant: int, space: int) -> str:
    return "canary" + "".join(_LETTERS[number] for value in (tenant, space) for number in divmod(value, 26))


@asynccontextmanager
async def make_world(store: Path, random: Random, *, tenants: int, spaces: int, vectors: bool) -> AsyncIterator[World]:
    """Opens the store once for each tenant, and fills every space in the same way."""
    clock, model = ManualClock(), WatchingModel()
    parts = afterturn.Components(clock=clock, model=model, embedder=HashingEmbedder() if vectors else None)
    names = [f"tenant-{number}" for number in range(tenants)]
    async with AsyncExitStack() as stack:
        parties: list[Party] = []
        for number, tenant in enumerate(names):
            memory = await stack.enter_async_context(afterturn.open(store, SETTINGS, tenant=tenant, components=parts))
            last = number == tenants - 1
            own = [_party(number, at, tenant, memory, clock, quiet=last or at % 6 == 5) for at in range(spaces)]
            # A quiet party was granted nothing: what a friend forgets would leave its blocks, too.
            for party in own:
                others = [other for other in own if other is not party]
                party.is_quiet_tenant = last
                party.friend = None if party.is_quiet else random.choice([None, *others])
            parties += own
        await asyncio.gather(*(_fill_all(parties[at : at + spaces]) for at in range(0, len(parties), spaces)))
    # Closed and opened again, so that every event of the setup is stored.
    async with AsyncExitStack() as stack:
        for number, tenant in enumerate(names):
            memory = await stack.enter_async_context(afterturn.open(store, SETTINGS, tenant=tenant, components=parts))
            if vectors:
                await memory.ready(within=60)
            for party in parties[number * spaces : (number + 1) * spaces]:
                party.memory = memory
        yield World(store, clock, model, parties)


def _party(number: int, at: int, tenant: str, memory: afterturn.Memory, clock: ManualClock, *, quiet: bool) -> Party:
    word = canary(number, at)
    # Most names are the same in every tenant; some exist only in one.
    name = f"project:{word}" if at % 4 == 3 else f"user:u{at}"
    return Party(tenant, name, word, memory, clock, quiet)


async def _fill_all(parties: Sequence[Party]) -> None:
    """Those of one tenant."""
    for party in parties:
        await _fill(party)
    await parties[0].memory.drain(within=60)


async def _fill(party: Party) -> None:
    space, word = party.core, party.canary
    drafts = [
        Draft(f"The kitchen has {word} tea number {at}", id=shared, metadata={"shelf": word})
        for at, shared in enumerate(party.shared_ids[:2])
    ]
    drafts += [Draft(f"A person should decide about {word} tea", id=party.shared_ids[2], proposed=True)]
    await space.add_many(drafts, group=GROUP)
    pinned = await space.add(f"Always serve {word} tea in the kitchen", pinned=True, speaker=SPEAKER)
    changed = await space.add(f"The {word} tea is in the cellar")
    await space.update(changed.entry.id, f"The {word} tea is in the attic")
    deleted = await space.add(f"The {word} tea is sold out")
    await space.delete(deleted.entry.id)
    for talk, turn in zip(TALKS, TURNS, strict=True):
        await say(party, talk, turn, f"I prefer {word} tea in the kitchen, my name is {word}.")
    await space.run_review(TALKS[0])
    party.names["entry"] += [pinned.entry.id, changed.entry.id, deleted.entry.id, *party.shared_ids]
    party.names["entry"] += [entry.id for entry in await space.list()]
    party.names["entry"] += [hit.id for hit in await space.list() if hit.kind is Kind.RECORD]
    party.names["operation"] += [one.id for one in await space.operations()]
    party.names["review"] += [row.id for row in await space.reviews()]
    party.names["proposal"] += [entry.id for entry in await space.proposals()]
    party.names["conversation"] += TALKS
    party.names["turn"] += TURNS


async def say(party: Party, talk: str, turn_id: str | None, text: str) -> list[object]:
    """One turn. Returns the messages as the model saw them, blocks included."""
    messages: list[object] = [party.dialect.make_message("user", text)]
    async with party.conversation(talk).turn(messages, id=turn_id, speaker=SPEAKER) as turn:
        await turn.inject(messages)
        messages.append(party.dialect.make_message("assistant", f"The {party.canary} tea is ready."))
    await turn.wait_recorded(within=30)
    return messages
