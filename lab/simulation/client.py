"""A simulated host: it holds a conversation as real hosts do, sometimes badly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from afterturn.conversation.conversation import Conversation
from afterturn.conversation.turn import Turn
from afterturn.errors import AfterturnError
from lab.simulation.process import Process
from lab.simulation.transcript import (
    SUMMARY,
    Broken,
    Kind,
    Manners,
    Message,
    Told,
    Transcript,
    Watch,
    answer,
    check_references,
    is_block,
    question,
    result,
)
from lab.simulation.world import VirtualLoop, World

_EPSILON = 1e-6
_STEPS_MAX = 4
_MODEL_SECONDS = (0.0, 0.5)
_PATIENCE = (0.0, 3.0)


class Talk:
    """`shown` is the list that memory is given: the host's own, or of a host that hides it, this turn's part of it.

    `before` counts the messages that the host had of its own when the turn began; `compacted` tells memory.
    """

    def __init__(
        self, world: World, process: Process, loop: VirtualLoop, transcript: Transcript, manners: Manners
    ) -> None:
        self._world = world
        self._process = process
        self._loop = loop
        self._random = world.random
        self._transcript = transcript
        self._manners = manners
        self._waited = 0.0
        self._text = ""
        self.shown: list[Message] = transcript.messages if manners.is_shown else []
        self.before = 0
        self.compacted: Callable[[list[Message] | None], None] | None = None

    def begins(self, text: str) -> None:
        """The user speaks."""
        if self._manners.kind is Kind.REBUILDING:
            # Until the turn is read, nobody knows which blocks of earlier turns this list is missing.
            self._rebuild()
            self._transcript.sent = []
        self.before = self._transcript.own
        self._add({"role": "user", "content": text})

    async def steps(self, turn: Turn, told: Told) -> bool:
        """From the user's message to the answer. False when the host gives up."""
        for _ in range(self._random.randrange(_STEPS_MAX)):
            await self._hand_over(turn)
            await self._model()
            if self._happens(self._manners.aborts):
                turn.abort("token limit")
                return False
            await self._tools(turn, told)
            self._turn_to(turn, told)
            self._compact()
        await self._hand_over(turn)
        await self._model()
        self._answer(told)
        return True

    def _answer(self, told: Told) -> None:
        text = answer(self._random)
        self._add({"role": "assistant", "content": text})
        told.said.append(text)

    def _turn_to(self, turn: Turn, told: Told) -> None:
        """Something new is said, or the host has a new focus: an epoch of its own, with a grace of its own."""
        text = question(self._random)
        if self._happens(self._manners.interjects):
            self._add({"role": "user", "content": text})
            told.said.append(text)
            turn.interject(text)
            self._waited = 0.0
        elif self._happens(self._manners.cues):
            turn.cue(text)
            self._waited = 0.0

    async def _tools(self, turn: Turn, told: Told) -> None:
        names = [f"call_{len(self._transcript.messages)}_{number}" for number in range(self._random.randint(1, 3))]
        calls = [{"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}} for name in names]
        text = answer(self._random) if self._happens(0.3) else None
        self._add({"role": "assistant", "content": text, "tool_calls": calls})
        told.said += [text] if text else []
        for name in names:
            if self._happens(0.2):
                await self._hand_over(turn)
            await asyncio.sleep(self._random.uniform(0, 0.05))
            found = result(self._random)
            self._add({"role": "tool", "tool_call_id": name, "content": found})
            told.said.append(found)

    async def _model(self) -> None:
        """A call of the model: awaited, or by a client library that blocks the loop."""
        if self._manners.kind is Kind.REBUILDING and not self._process.is_open:
            # Nobody puts blocks back any more.
            self._transcript.sent = []
        if self._manners.is_shown:
            self._transcript.send()
        seconds = self._random.uniform(*_MODEL_SECONDS)
        if self._happens(self._manners.stalls):
            self._loop.stall(seconds)
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(seconds)

    async def _hand_over(self, turn: Turn) -> None:
        if self._manners.kind is Kind.WRITING:
            await self._write(turn)
            return
        if self._manners.kind is Kind.REBUILDING and self._process.is_open:
            self._rebuild()
        watch, began, limit = Watch(self.shown, self._manners.kind), self._world.monotonic(), self._manners.grace
        chance = self._random.random()
        if chance < 0.3:
            added = turn.inject_now(self.shown)
        elif chance < 0.4:
            limit = self._random.uniform(*_PATIENCE)
            added = await turn.inject(self.shown, within=limit, phase=self._phase())
            self._check_patience(began, limit)
            began = self._world.monotonic()
        else:
            added = await turn.inject(self.shown)
        self._check_grace(began)
        if added is not None:
            self._note(f"got a block in {turn.id}")
        watch.check(added)
        if self._manners.is_shown and not self._transcript.is_forgotten:
            check_references(self.shown)

    def _compact(self) -> None:
        """In the middle of a turn: what was said before it goes, and the host may say so."""
        if not self._happens(self._manners.compacts):
            return
        is_told = self._happens(0.5) or not self._manners.is_shown
        self._note("compacts in a turn" + (" and says so" if is_told else ""))
        if self._manners.is_shown:
            messages = self._transcript.messages
            own = [at for at, message in enumerate(messages) if not is_block(message)]
            self._transcript.compact(messages[own[self.before] :])
            self.before = len(SUMMARY)
        if is_told and self.compacted is not None:
            self.compacted(self.shown if self._manners.is_shown else None)

    def _rebuild(self) -> None:
        self.shown[:] = [message for message in self.shown if not is_block(message)]

    async def _write(self, turn: Turn) -> None:
        """H8: the same bytes at each step, and more only behind them."""
        began = self._world.monotonic()
        text = turn.block_now() if self._happens(0.3) else await turn.block()
        self._check_grace(began)
        if not text.startswith(self._text) and not self._transcript.has_erased and not self._is_over(turn):
            raise Broken(f"H8: the block of {turn.id} has changed")
        self._text = text

    def _is_over(self, turn: Turn) -> bool:
        """Memory is gone, or the conversation was reset: then there is nothing to be kept the same."""
        return turn.block_now() == ""

    def _check_grace(self, began: float) -> None:
        """R7: a host waits for its grace once for each thing that is said, and no longer."""
        self._waited += self._world.monotonic() - began
        if self._waited > self._manners.grace + _EPSILON:
            raise Broken(f"R7: the host waited {self._waited:.4f} s, its grace is {self._manners.grace} s")

    def _check_patience(self, began: float, limit: float) -> None:
        waited = self._world.monotonic() - began
        if waited > limit + _EPSILON:
            raise Broken(f"R7: the host waited {waited:.4f} s, and was ready to wait {limit:.4f} s")

    def _phase(self) -> Literal["fast", "refined"]:
        return "refined" if self._happens(0.5) else "fast"

    def _add(self, message: Message) -> None:
        self._transcript.messages.append(message)
        if self.shown is not self._transcript.messages:
            self.shown.append(message)

    def _happens(self, chance: float) -> bool:
        return self._random.random() < chance

    def _note(self, what: str) -> None:
        self._world.note(self._transcript.id, what)


_TYPING_SECONDS = (0.0, 2.0)
_RECORDED_WITHIN = (0.0, 2.0)


class Client:
    """Drives one conversation on one loop. What it finds broken it raises, where its caller sees it."""

    def __init__(
        self, world: World, process: Process, loop: VirtualLoop, transcript: Transcript, manners: Manners
    ) -> None:
        self.loop = loop
        self._world = world
        self._random = world.random
        self._process = process
        self._transcript = transcript
        self._manners = manners
        self._lingering: tuple[Turn, Told, list[Message]] | None = None

    async def run(self, turns: int) -> None:
        place = self._manners.options
        conversation = self._process.memory.conversation(self._transcript.id, owner=self._transcript.owner, **place)
        if self._transcript.resumable is not None:
            await self._resume(conversation, self._transcript.resumable)
        for _ in range(turns):
            await self._between(conversation)
            task = self.loop.begin(self._turn(conversation))
            if self._happens(self._manners.cancels):
                await asyncio.wait({task}, timeout=self._random.uniform(0, 1.0))
                task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()
            self._let_go()
            if self._transcript.resumable is not None:
                return

    async def _between(self, conversation: Conversation) -> None:
        """The user reads and types; the host tidies up."""
        await asyncio.sleep(self._random.uniform(*_TYPING_SECONDS))
        if self._happens(self._manners.compacts):
            self._compact(conversation)
        if self._happens(self._manners.resets):
            self._note("resets")
            conversation.reset()
            self._transcript.cut(0)
        if self._happens(self._manners.types):
            conversation.expect(question(self._random))
            await asyncio.sleep(self._random.uniform(*_TYPING_SECONDS))

    async def _turn(self, conversation: Conversation) -> None:
        talk = Talk(self._world, self._process, self.loop, self._transcript, self._manners)
        text = question(self._random)
        talk.begins(text)
        talk.compacted = conversation.compacted
        try:
            if self._happens(self._manners.outlives):
                await self._outlive(conversation, talk, text)
            else:
                await self._hold(conversation.turn(talk.shown), talk, text)
        except asyncio.CancelledError:
            self._transcript.cut(talk.before)
            raise

    async def _hold(self, turn: Turn, talk: Talk, text: str) -> None:
        told = self._tell(turn.id, text)
        if self._happens(self._manners.lingers):
            await self._linger(turn, talk, told)
            return
        try:
            async with turn:
                told.refused = not await talk.steps(turn, told)
                if not told.refused and self._happens(self._manners.completes):
                    turn.complete(talk.shown)
                self._left(told)
        except asyncio.CancelledError:
            told.refused = not told.promised
            raise
        await self._after(turn, told)

    async def _linger(self, turn: Turn, talk: Talk, told: Told) -> None:
        """A streaming host that does not leave its turn before the next one has begun, if at all."""
        self._note(f"does not leave {turn.id}")
        if await talk.steps(turn, told):
            turn.complete(talk.shown)
            self._lingering = (turn, told, list(talk.shown))

    def _let_go(self) -> None:
        if self._lingering is not None and self._happens(0.5):
            turn, told, messages = self._lingering
            self._lingering = None
            turn.finish(messages)
            self._left(told)

    async def _outlive(self, conversation: Conversation, talk: Talk, text: str) -> None:
        """A turn that does not live in one block of code, nor maybe in one process."""
        try:
            turn = await conversation.start_turn(talk.shown)
        except AfterturnError as error:
            self._note(f"can not start a turn: {error}")
            return
        told = self._tell(turn.id, text)
        try:
            told.refused = not await talk.steps(turn, told)
        except asyncio.CancelledError:
            turn.abort("cancelled")
            told.refused = True
            raise
        if told.refused:
            return
        # Another process finds a turn by what its user said: the same words again would begin it.
        if self._happens(0.5) and told.said.count(text) == 1:
            self._note(f"leaves {turn.id} to another process")
            self._transcript.resumable = told
            return
        turn.finish(talk.shown)
        self._left(told)

    async def _resume(self, conversation: Conversation, told: Told) -> None:
        self._transcript.resumable = None
        try:
            turn = await conversation.resume_turn(told.id)
        except AfterturnError as error:
            self._note(f"can not resume {told.id}: {error}")
            return
        self._note(f"resumes {told.id}")
        turn.finish(self._transcript.messages)
        told.process = self._process.name
        self._left(told)

    def _tell(self, turn_id: str, text: str) -> Told:
        self._note(f"begins {turn_id}: {text}")
        told = Told(turn_id, self._process.name, self._world.monotonic(), [text])
        self._transcript.turns.append(told)
        return told

    def _left(self, told: Told) -> None:
        told.promised = not told.refused and self._process.is_open
        told.end, told.left = self._transcript.own, self._world.monotonic()

    async def _after(self, turn: Turn, told: Told) -> None:
        if self._happens(0.3):
            told.acknowledged = await turn.wait_recorded(within=self._random.uniform(*_RECORDED_WITHIN))
            self._note(f"{turn.id} recorded: {told.acknowledged}")

    def _compact(self, conversation: Conversation) -> None:
        """The host shortens its list, and may say so: a summary stands for what was said."""
        messages = self._transcript.messages
        if len(messages) <= 2:
            return
        is_told = self._happens(0.5) or not self._manners.is_shown
        self._note("compacts" + (" and says so" if is_told else ""))
        self._transcript.compact([])
        if is_told:
            conversation.compacted(messages if self._manners.is_shown else None)

    def _happens(self, chance: float) -> bool:
        return self._random.random() < chance

    def _note(self, what: str) -> None:
        self._world.note(self._transcript.id, what)
