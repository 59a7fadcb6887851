"""One process of the stress test: it acts at random and logs what memory acknowledged."""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import afterturn
from afterturn.errors import (
    AfterturnError,
    Conflict,
    InvalidInput,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    NotFound,
    StoreLocked,
)
from afterturn.testing.model import call_tools
from afterturn.types import Filter, Kind
from lab.bench.host import timer

MARK = re.compile(r"mark[a-z0-9]+")
_MEMORY = re.compile(r'\{"id": "([0-9a-z]+)".*?"text": "([^"]*)"')
_SAID = re.compile(r'\{"message": (\d+), "from": "user.*?"text": "([^"]*)"')


class RandomModel:
    """The ChatModel port. It sees marks in users' messages, and adds, changes or deletes some of them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        await timer(self._chance.choice((0.0, 0.01, 0.05, 0.2, 0.4)))
        roll = self._chance.random()
        if roll < 0.02:
            raise ModelUnavailable("unavailable", reason="away")
        if roll < 0.05:
            raise ModelRefused("refused", reason="moody", status=418)
        if roll < 0.1 or schema is not None:
            return {"role": "assistant", "content": self._chance.choice(("what?", "{", '{"operations": []}'))}
        if messages[-1]["role"] == "tool":
            return {"role": "assistant", "content": "Nothing to save."}
        calls = self._calls(str(messages[1]["content"]))
        if not calls:
            return {"role": "assistant", "content": "Nothing to save."}
        called = call_tools(*calls)["tool_calls"]
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": str(at), "type": "function", **call} for at, call in enumerate(called)],
        }

    def _calls(self, shown: str) -> list[tuple[str, dict[str, Any]]]:
        known, said = _MEMORY.findall(shown), _SAID.findall(shown)
        calls: list[tuple[str, dict[str, Any]]] = [("run_shell", {"command": "ls"})] * (self._chance.random() < 0.1)
        for number, text in self._chance.sample(said, min(2, len(said))):
            if mark := MARK.search(json.loads(f'"{text}"')):
                target = self._chance.choice(("user", "user", "environment"))
                new = {"text": f"The user likes {mark.group()}", "target": target, "messages": [int(number)]}
                calls.append(("add_memory", new))
                if known and self._chance.random() < 0.4:
                    changed = {"id": self._chance.choice(known)[0], "messages": [int(number)]}
                    calls.append(("update_memory", {**changed, "text": f"The user prefers {mark.group()} now"}))
        if known and said and self._chance.random() < 0.2:
            calls.append(("delete_memory", {"id": self._chance.choice(known)[0], "messages": [int(said[0][0])]}))
        return calls


SPACE = "user:ada"
SHARED = "team:x"
SPACES = (SPACE, "user:bob", SHARED)
CONFIG: dict[str, Any] = {
    "embedder": "none",
    "grace": 0.0,
    "review_interval": 2,
    "review_timeout": 5.0,
    "review_compaction": True,
    "consolidation": True,
    "synchronous": "normal",
    "busy_timeout": 30.0,
    "close_timeout": 60.0,
}
_STATEMENTS = Filter(kind=Kind.STATEMENT)
_TALKS = 8
_TALKS_SHARED = 3
_REVIEW_WITHIN = 2.0
# Somebody else was faster: the entry is gone, has changed, or is locked by a killed process.
_EXPECTED = (Conflict, NotFound, InvalidInput, StoreLocked, ModelError, TimeoutError)


class Child:
    """`log` gets one JSON line for each acknowledged action, before the next one begins.

    Actions that erase are also logged before they begin, because the process may be killed at any moment.
    """

    def __init__(self, memory: afterturn.Memory, name: str, chance: random.Random, log: Path) -> None:
        self._memory = memory
        self._space = memory.space(SPACE)
        self._place = SPACE
        self._name = name
        self._chance = chance
        self._log = log.open("a", encoding="utf-8")
        self._at = 0
        self._began = 0.0

    async def run(self, steps: int) -> None:
        verbs: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (10, self._turn),
            (3, self._add),
            (3, self._restate),
            (3, self._update),
            (2, self._delete),
            (3, self._undo),
            (2, self._undo_review),
            (2, self._forget_conversation),
            (2, self._forget_memory),
            (2, self._review),
            (1, self._consolidate),
            (2, self._decide),
        ]
        weights, does = [weight for weight, _ in verbs], [verb for _, verb in verbs]
        for _ in range(steps):
            self._began = time.time()
            self._go_to(self._chance.choices(SPACES, (4, 1, 2))[0])
            try:
                await self._chance.choices(does, weights)[0]()
            except _EXPECTED as error:
                self._log_action("lost a race", reason=type(error).__name__)
        self._log.close()

    async def _turn(self) -> None:
        mark, name, turn_id = self._mark(), self._talk(), f"{self._name}-{self._at}"
        lead = self._chance.choice(("I prefer", "I just saw", "remember that I like", "where is"))
        speaker = "bob" if self._chance.random() < (0.5 if self._place == SHARED else 0.1) else None
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"{lead} {mark}"}]
        conversation = self._conversation(name)
        async with conversation.turn(messages, id=turn_id, speaker=speaker) as turn:
            await turn.inject(messages)
            messages.append({"role": "assistant", "content": f"I see: {mark}."})
        if await turn.wait_recorded(within=60):
            self._log_action("recorded", mark=mark, conversation=name, turn=turn_id)
        if self._chance.random() < 0.3:
            self._log_action("compacting", mark=mark, conversation=name)
            conversation.compacting(messages)
        if self._chance.random() < 0.2:
            await self._forget(name)

    async def _add(self) -> None:
        mark = self._mark()
        added = await self._space.add(f"Ada owns {mark}", origin=self._chance.choice(("user", "agent")))
        self._log_action("added", mark=mark, id=added.entry.id)

    async def _restate(self) -> None:
        """Adds an earlier statement again with a message as its source; consolidation merges the two."""
        found = await self._space.list(limit=50, filter=_STATEMENTS)
        known = [entry for entry in found if entry.text.startswith("Ada ")]
        if known and (record := await self._any(Filter(kind=Kind.RECORD))):
            entry, mark = self._chance.choice(known), self._chance.choice((".", "!", ";"))
            self._log_action("restating", source=record.id)
            await self._space.add(entry.text.rstrip(".!;") + mark, origin=entry.origin, sources=[record.id])
            self._log_action("restated")

    async def _update(self) -> None:
        if entry := await self._any(_STATEMENTS):
            mark = self._mark()
            await self._space.update(entry.id, f"Ada sold {mark}", expected_version=entry.version)
            self._log_action("updated", mark=mark, id=entry.id)

    async def _delete(self) -> None:
        if entry := await self._any(_STATEMENTS):
            await self._space.delete(entry.id)
            self._log_action("deleted", id=entry.id)

    async def _undo(self) -> None:
        operations = [one for one in await self._space.operations(limit=20) if one.verb != "record"]
        if operations:
            target = self._chance.choice(operations)
            await self._space.undo(target.id)
            self._log_action("undone", operation=target.id)

    async def _undo_review(self) -> None:
        rows = [row for row in await self._space.reviews(limit=10) if row.spaces]
        if rows:
            row = self._chance.choice(rows)
            await self._space.undo_review(row.id)
            self._log_action("review undone", review=row.id)

    async def _forget_conversation(self) -> None:
        await self._forget(self._talk())

    async def _forget(self, conversation: str) -> None:
        """Right after a turn, it may collide with the review of that turn."""
        records = await self._space.list(limit=1000, filter=Filter(kind=Kind.RECORD, conversation=conversation))
        gone = sorted(entry.id for entry in records)
        marks = sorted({mark for entry in records for mark in MARK.findall(entry.text)})
        self._log_action("forgetting", conversation=conversation, ids=gone)
        forgotten = await self._space.forget(conversation=conversation)
        self._log_action("forgot", conversation=conversation, ids=gone, marks=marks, state=forgotten.state)

    async def _forget_memory(self) -> None:
        if entry := await self._any(Filter()):
            about = {"ids": [entry.id], "turn": entry.turn if entry.kind is Kind.RECORD else None}
            self._log_action("forgetting", **about)
            await self._space.forget(memory=entry.id)
            self._log_action("forgot", **about)

    async def _review(self) -> None:
        """Requests a review, and waits no longer than a person would."""
        name, writes, rules = self._talk(), self._place, self._chance.random() < 0.3
        async with asyncio.timeout(_REVIEW_WITHIN):
            review = await self._memory.space(SPACE).run_review(name, writes=writes, rules=rules)
        self._log_action("reviewed", review=review.row.id if review else None)

    async def _consolidate(self) -> None:
        review = await self._space.consolidate()
        self._log_action("consolidated", review=review.row.id)

    async def _decide(self) -> None:
        if waiting := await self._space.proposals():
            chosen = self._chance.choice(waiting)
            verb = self._space.approve if self._chance.random() < 0.5 else self._space.reject
            await verb(chosen.id)
            self._log_action("decided", id=chosen.id)

    def _go_to(self, place: str) -> None:
        self._place, self._space = place, self._memory.space(place)

    def _talk(self) -> str:
        """A conversation of Ada. Conversations with several people are recorded in a shared space."""
        number = self._chance.randrange(_TALKS)
        self._go_to(SHARED if number < _TALKS_SHARED else SPACE)
        return f"talk-{number}"

    def _conversation(self, name: str) -> afterturn.Conversation:
        if self._place == SHARED:
            return self._memory.conversation(name, user="ada", writes=SHARED, reads=SPACES[1:])
        return self._memory.conversation(name, user="ada")

    async def _any(self, filter: Filter) -> afterturn.Entry | None:
        found = await self._space.list(limit=50, filter=filter)
        return self._chance.choice(found) if found else None

    def _mark(self) -> str:
        self._at += 1
        return f"mark{self._name}n{self._at}"

    def _log_action(self, what: str, **about: Any) -> None:
        times = {"began": self._began, "ended": time.time()}
        self._log.write(json.dumps({"what": what, "by": self._name, **about, **times}) + "\n")
        self._log.flush()


def spill_folder(log: Path) -> Path:
    """Where turns wait that cannot be stored: next to the log, and so gone with it."""
    return log.parent / "waiting"


async def main(store: str, name: str, seed: int, steps: int, log: Path) -> None:
    chance = random.Random(seed)
    config = {**CONFIG, "spill_folder": str(spill_folder(log))}
    async with afterturn.open(store, config, model=RandomModel(chance)) as memory:
        await Child(memory, name, chance, log).run(steps)


if __name__ == "__main__":
    given = sys.argv[1:]
    try:
        asyncio.run(main(given[0], given[1], int(given[2]), int(given[3]), Path(given[4])))
    except AfterturnError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from error
