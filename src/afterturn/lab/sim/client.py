"""A simulated host: it holds conversations as real hosts do, badly now and then, and watches what memory does to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from afterturn.lab.sim.loop import VirtualLoop
from afterturn.lab.sim.process import Process
from afterturn.lab.sim.transcript import Broken, Message, Told, Transcript, Watch, is_block
from afterturn.lab.sim.words import answer, question, result
from afterturn.lab.sim.world import World
from afterturn.memory import Conversation
from afterturn.turn.turn import Turn

_EPSILON = 1e-6
_STEPS_MAX = 4
_MODEL_SECONDS = (0.0, 0.5)
_TYPING_SECONDS = (0.0, 2.0)


@dataclass(frozen=True, slots=True)
class Manners:
    """How this host treats its memory. Chances from 0 to 1."""

    grace: float
    own_loop: bool
    aborts: float = 0.08
    cancels: float = 0.12
    stalls: float = 0.2
    completes: float = 0.5
    compacts: float = 0.1


class Client:
    """Drives one conversation on one loop. What it finds broken it raises, where its caller sees it."""

    def __init__(self, world: World, process: Process, transcript: Transcript, manners: Manners) -> None:
        self._world = world
        self._process = process
        self._transcript = transcript
        self._manners = manners
        self.loop: VirtualLoop = process.new_loop(transcript.id) if manners.own_loop else process.main
        self._waited = 0.0

    @property
    def _random(self) -> Random:
        return self._world.random

    def _happens(self, chance: float) -> bool:
        return self._random.random() < chance

    async def run(self, turns: int) -> None:
        conversation = self._process.memory.conversation(self._transcript.id, owner=self._transcript.owner)
        for _ in range(turns):
            await asyncio.sleep(self._random.uniform(*_TYPING_SECONDS))
            if self._happens(self._manners.compacts):
                self._compact()
            task = self.loop.create_task(self._turn(conversation))
            if self._happens(self._manners.cancels):
                await asyncio.wait({task}, timeout=self._random.uniform(0, 1.0))
                task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()

    async def _turn(self, conversation: Conversation) -> None:
        messages = self._transcript.messages
        start = len(messages)
        messages.append({"role": "user", "content": question(self._random)})
        self._waited = 0.0
        turn = conversation.turn(messages)
        told = Told(turn.id, self._process.name)
        self._transcript.turns.append(told)
        self._note(f"begins {turn.id}: {messages[-1]['content']}")
        try:
            async with turn:
                await self._steps(turn, told)
                told.said, told.messages = _said(messages[start:]), len(messages)
                told.promised = not told.refused and not self._process.closing
        except asyncio.CancelledError:
            told.refused = not told.promised
            del messages[start:]
            raise
        await self._after(turn, told)

    async def _steps(self, turn: Turn, told: Told) -> None:
        messages = self._transcript.messages
        for _ in range(self._random.randrange(_STEPS_MAX)):
            await self._hand_over(turn)
            await self._model()
            if self._happens(self._manners.aborts):
                turn.abort("token limit")
                told.refused = True
                return
            await self._tools(turn)
        await self._hand_over(turn)
        await self._model()
        messages.append({"role": "assistant", "content": answer(self._random)})
        if self._happens(self._manners.completes):
            turn.complete(messages)

    async def _tools(self, turn: Turn) -> None:
        messages = self._transcript.messages
        names = [f"call_{len(messages)}_{number}" for number in range(self._random.randint(1, 3))]
        calls = [{"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}} for name in names]
        text = answer(self._random) if self._happens(0.3) else None
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        for name in names:
            if self._happens(0.2):
                await self._hand_over(turn)
            await asyncio.sleep(self._random.uniform(0, 0.05))
            messages.append({"role": "tool", "tool_call_id": name, "content": result(self._random)})

    async def _model(self) -> None:
        """A call of the model: awaited, or by a client library that blocks the loop."""
        seconds = self._random.uniform(*_MODEL_SECONDS)
        if self._manners.own_loop and self._happens(self._manners.stalls):
            self.loop.stall(seconds)
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(seconds)

    async def _hand_over(self, turn: Turn) -> None:
        """R7, H1: it may take its grace once, and no longer."""
        messages = self._transcript.messages
        watch, began = Watch(messages), self._world.monotonic()
        if self._happens(0.3):
            added = turn.inject_now(messages)
        else:
            added = await turn.inject(messages)
        self._waited += self._world.monotonic() - began
        if self._waited > self._manners.grace + _EPSILON:
            raise Broken(f"R7: the host waited {self._waited:.4f} s, its grace is {self._manners.grace} s")
        if added is not None:
            self._note(f"got a block in {turn.id}")
        watch.check(added)

    async def _after(self, turn: Turn, told: Told) -> None:
        if self._happens(0.3):
            told.acknowledged = await turn.wait_recorded(within=self._random.uniform(0, 2.0))
            self._note(f"{turn.id} recorded: {told.acknowledged}")

    def _compact(self) -> None:
        """The host shortens its list by itself: all but the end of it goes, and a summary stands for the rest."""
        messages = self._transcript.messages
        if len(messages) > 2:
            self._note("compacts")
            for told in self._transcript.turns:
                told.messages = 0
            del messages[:]
            messages.append({"role": "user", "content": "Summary: we talked."})
            messages.append({"role": "assistant", "content": "Let us go on."})

    def _note(self, what: str) -> None:
        self._world.note(self._transcript.id, what)


def _said(messages: list[Message]) -> list[str]:
    """What a record of a turn must hold. Blocks are the elements that memory added: the host writes no tags."""
    return [text for message in messages if (text := message["content"]) and not is_block(message)]
