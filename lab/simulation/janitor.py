"""A simulated user who forgets memories and undoes reviews while hosts are working."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from afterturn.errors import AfterturnError
from afterturn.memory import Space
from afterturn.types import Entry, Filter, Kind
from lab.simulation.process import Process
from lab.simulation.transcript import MARK, Transcript
from lab.simulation.world import World

_PAUSE_SECONDS = (0.0, 3.0)
_ROUNDS_MAX = 4


@dataclass(slots=True)
class Forget:
    """A `forget` of a conversation, or of one memory (with its `turn` if it is a record). `done`: memory confirmed it.

    `ids` and `marks` are those that existed when it began.
    """

    began: float
    ids: list[str]
    marks: set[str] = field(default_factory=set)
    conversation: str = ""
    turn: str = ""
    ended: float = math.inf
    done: bool = False


class Janitor:
    """`forgets` lists those that were begun, even if their result is unknown."""

    def __init__(self, world: World, transcripts: Sequence[Transcript]) -> None:
        self.forgets: list[Forget] = []
        self._world = world
        self._random = world.random
        self._transcripts = transcripts

    async def run(self, process: Process) -> None:
        for _ in range(self._random.randint(1, _ROUNDS_MAX)):
            await asyncio.sleep(self._random.uniform(*_PAUSE_SECONDS))
            transcript = self._random.choice(self._transcripts)
            space = process.memory.space(transcript.owner)
            act = self._random.choice([self._forget_conversation, self._forget_memory, self._undo_review])
            try:
                await act(space, transcript)
            except AfterturnError as error:
                # The store refuses, memory is closed, or somebody else was faster.
                self._note(f"failed: {type(error).__name__}")

    async def _forget_conversation(self, space: Space, transcript: Transcript) -> None:
        chosen = Filter(kind=Kind.RECORD, conversation=transcript.id)
        entries = await space.list(limit=1000, filter=chosen)
        forget = self._begin(space, entries)
        forget.conversation = transcript.id
        transcript.is_forgotten = True
        forget.marks = {mark for entry in entries for mark in MARK.findall(entry.text)}
        await space.forget(conversation=transcript.id)
        self._end(forget, f"forgot {transcript.id}")

    async def _forget_memory(self, space: Space, transcript: Transcript) -> None:
        entries = await space.list(limit=20)
        if entries:
            entry = self._random.choice(entries)
            forget = self._begin(space, [entry])
            forget.turn = entry.turn or ""
            await space.forget(memory=entry.id)
            self._end(forget, f"forgot {entry.id}")

    async def _undo_review(self, space: Space, transcript: Transcript) -> None:
        rows = [row for row in await space.reviews(limit=10) if row.spaces]
        if rows:
            row = self._random.choice(rows)
            await space.undo_review(row.id)
            self._note(f"undid {row.id}")

    def _begin(self, space: Space, entries: Sequence[Entry]) -> Forget:
        forget = Forget(self._world.monotonic(), [entry.id for entry in entries])
        self.forgets.append(forget)
        for transcript in self._transcripts:
            transcript.has_erased |= transcript.owner == space.name
        return forget

    def _end(self, forget: Forget, what: str) -> None:
        forget.ended, forget.done = self._world.monotonic(), True
        self._note(what)

    def _note(self, what: str) -> None:
        self._world.note("janitor", what)
