"""A simulated host. It runs a conversation as real hosts do, sometimes incorrectly."""

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
    Habits,
    Kind,
    ListCheck,
    Message,
    PromiseBroken,
    SimulatedTurn,
    Transcript,
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
    """`shown` is the list that memory gets: the host's own list, or only this turn's part if the host hides the rest.

    `before` counts the host's own messages at the beginning of the turn; `compacted` reports a compaction to memory.
    """

    def __init__(
        self, world: World, process: Process, loop: VirtualLoop, transcript: Transcript, habits: Habits
    ) -> None:
        self._world = world
        self._process = process
        self._loop = loop
        self._random = world.random
        self._transcript = transcript
        self._habits = habits
        self._waited = 0.0
        self._text = ""
        self.shown: list[Message] = transcript.messages if habits.is_shown else []
        self.before = 0
        self.compacted: Callable[[list[Message] | None], None] | None = None

    def begins(self, text: str) -> None:
        """Adds a user message."""
        if self._habits.kind is Kind.REBUILDING:
            # Until the turn is read, nobody knows which blocks of earlier turns this list lacks.
            self._rebuild()
            self._transcript.sent = []
        self.before = self._transcript.own
        self._add({"role": "user", "content": text})

    async def steps(self, turn: Turn, noted: SimulatedTurn) -> bool:
        """From the user's message to the answer. False if the host cancels the turn."""
        for _ in range(self._random.randrange(_STEPS_MAX)):
            await self._hand_over(turn)
            await self._model()
            if self._happens(self._habits.aborts):
                turn.abort("token limit")
                return False
            await self._tools(turn, noted)
            self._turn_to(turn, noted)
            self._compact()
        await self._hand_over(turn)
        await self._model()
        self._answer(noted)
        return True

    def _answer(self, noted: SimulatedTurn) -> None:
        text = answer(self._random)
        self._add({"role": "assistant", "content": text})
        noted.said.append(text)

    def _turn_to(self, turn: Turn, noted: SimulatedTurn) -> None:
        """The user says something new, or the host sets a new focus: a new epoch with a new grace."""
        text = question(self._random)
        if self._happens(self._habits.interjects):
            self._add({"role": "user", "content": text})
            noted.said.append(text)
            turn.interject(text)
            self._waited = 0.0
        elif self._happens(self._habits.cues):
            turn.cue(text)
            self._waited = 0.0

    async def _tools(self, turn: Turn, noted: SimulatedTurn) -> None:
        names = [f"call_{len(self._transcript.messages)}_{number}" for number in range(self._random.randint(1, 3))]
        calls = [{"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}} for name in names]
        text = answer(self._random) if self._happens(0.3) else None
        self._add({"role": "assistant", "content": text, "tool_calls": calls})
        noted.said += [text] if text else []
        for name in names:
            if self._happens(0.2):
                await self._hand_over(turn)
            await asyncio.sleep(self._random.uniform(0, 0.05))
            found = result(self._random)
            self._add({"role": "tool", "tool_call_id": name, "content": found})
            noted.said.append(found)

    async def _model(self) -> None:
        """A model call: awaited, or made by a client library that blocks the loop."""
        if self._habits.kind is Kind.REBUILDING and not self._process.is_open:
            # Blocks are no longer restored.
            self._transcript.sent = []
        if self._habits.is_shown:
            self._transcript.send()
        seconds = self._random.uniform(*_MODEL_SECONDS)
        if self._happens(self._habits.stalls):
            self._loop.stall(seconds)
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(seconds)

    async def _hand_over(self, turn: Turn) -> None:
        if self._habits.kind is Kind.WRITING:
            await self._write(turn)
            return
        if self._habits.kind is Kind.REBUILDING and self._process.is_open:
            self._rebuild()
            if self._transcript.has_erased:
                # A block with something forgotten in it cannot be put back: that counts as a compaction.
                self._waited = 0.0
        watch, began, limit = ListCheck(self.shown, self._habits.kind), self._world.monotonic(), self._habits.grace
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
        if self._habits.is_shown and not self._transcript.is_forgotten:
            check_references(self.shown)

    def _compact(self) -> None:
        """Compacts in the middle of a turn: earlier messages are removed, and the host may report it."""
        if not self._happens(self._habits.compacts):
            return
        is_told = self._happens(0.5) or not self._habits.is_shown
        self._note("compacts in a turn" + (" and says so" if is_told else ""))
        self._waited = 0.0
        if self._habits.is_shown:
            messages = self._transcript.messages
            own = [at for at, message in enumerate(messages) if not is_block(message)]
            self._transcript.compact(messages[own[self.before] :])
            self.before = len(SUMMARY)
        if is_told and self.compacted is not None:
            self.compacted(self.shown if self._habits.is_shown else None)

    def _rebuild(self) -> None:
        self.shown[:] = [message for message in self.shown if not is_block(message)]

    async def _write(self, turn: Turn) -> None:
        """H8: the same bytes at each step; more is added only at the end."""
        began = self._world.monotonic()
        text = turn.block_now() if self._happens(0.3) else await turn.block()
        self._check_grace(began)
        if not text.startswith(self._text) and not self._transcript.has_erased and not self._is_over(turn):
            raise PromiseBroken(f"H8: the block of {turn.id} has changed")
        self._text = text

    def _is_over(self, turn: Turn) -> bool:
        """Memory is closed, or the conversation was reset: then nothing has to stay the same."""
        return turn.block_now() == ""

    def _check_grace(self, began: float) -> None:
        """R7: a host waits for its grace once per user message and once per compaction, and no longer."""
        self._waited += self._world.monotonic() - began
        if self._waited > self._habits.grace + _EPSILON:
            raise PromiseBroken(f"R7: the host waited {self._waited:.4f} s, its grace is {self._habits.grace} s")

    def _check_patience(self, began: float, limit: float) -> None:
        waited = self._world.monotonic() - began
        if waited > limit + _EPSILON:
            raise PromiseBroken(f"R7: the host waited {waited:.4f} s, and was ready to wait {limit:.4f} s")

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
    """Runs one conversation on one loop. Raises what it finds broken."""

    def __init__(
        self, world: World, process: Process, loop: VirtualLoop, transcript: Transcript, habits: Habits
    ) -> None:
        self.loop = loop
        self._world = world
        self._random = world.random
        self._process = process
        self._transcript = transcript
        self._habits = habits
        self._lingering: tuple[Turn, SimulatedTurn, list[Message]] | None = None

    async def run(self, turns: int) -> None:
        place = self._habits.options
        conversation = self._process.memory.conversation(self._transcript.id, owner=self._transcript.owner, **place)
        if self._transcript.resumable is not None:
            await self._resume(conversation, self._transcript.resumable)
        for _ in range(turns):
            await self._between(conversation)
            task = self.loop.begin(self._turn(conversation))
            if self._happens(self._habits.cancels):
                await asyncio.wait({task}, timeout=self._random.uniform(0, 1.0))
                task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()
            self._let_go()
            if self._transcript.resumable is not None:
                return

    async def _between(self, conversation: Conversation) -> None:
        """Between turns: the user reads and types; the host may compact or go back."""
        await asyncio.sleep(self._random.uniform(*_TYPING_SECONDS))
        if self._happens(self._habits.compacts):
            self._compact(conversation)
        if self._happens(self._habits.resets):
            self._note("resets")
            conversation.reset()
            self._transcript.cut(0)
        if self._happens(self._habits.types):
            conversation.expect(question(self._random))
            await asyncio.sleep(self._random.uniform(*_TYPING_SECONDS))

    async def _turn(self, conversation: Conversation) -> None:
        talk = Talk(self._world, self._process, self.loop, self._transcript, self._habits)
        text = question(self._random)
        talk.begins(text)
        talk.compacted = conversation.compacted
        try:
            if self._happens(self._habits.outlives):
                await self._outlive(conversation, talk, text)
            else:
                await self._hold(conversation.turn(talk.shown), talk, text)
        except asyncio.CancelledError:
            self._transcript.cut(talk.before)
            raise

    async def _hold(self, turn: Turn, talk: Talk, text: str) -> None:
        noted = self._note_turn(turn.id, text)
        if self._happens(self._habits.lingers):
            await self._linger(turn, talk, noted)
            return
        try:
            async with turn:
                noted.refused = not await talk.steps(turn, noted)
                if not noted.refused and self._happens(self._habits.completes):
                    turn.complete(talk.shown)
                self._left(noted)
        except asyncio.CancelledError:
            noted.refused = not noted.promised
            raise
        await self._after(turn, noted)

    async def _linger(self, turn: Turn, talk: Talk, noted: SimulatedTurn) -> None:
        """A streaming host that leaves its turn only after the next one has begun, or never."""
        self._note(f"does not leave {turn.id}")
        if await talk.steps(turn, noted):
            turn.complete(talk.shown)
            self._lingering = (turn, noted, list(talk.shown))

    def _let_go(self) -> None:
        if self._lingering is not None and self._happens(0.5):
            turn, noted, messages = self._lingering
            self._lingering = None
            turn.finish(messages)
            self._left(noted)

    async def _outlive(self, conversation: Conversation, talk: Talk, text: str) -> None:
        """A turn that is not one block of code, and perhaps continues in another process."""
        try:
            turn = await conversation.start_turn(talk.shown)
        except AfterturnError as error:
            self._note(f"cannot start a turn: {error}")
            return
        noted = self._note_turn(turn.id, text)
        try:
            noted.refused = not await talk.steps(turn, noted)
        except asyncio.CancelledError:
            turn.abort("cancelled")
            noted.refused = True
            raise
        if noted.refused:
            return
        # Another process finds a turn by its user message: the same text again would begin it.
        if self._happens(0.5) and noted.said.count(text) == 1:
            self._note(f"leaves {turn.id} to another process")
            self._transcript.resumable = noted
            return
        turn.finish(talk.shown)
        self._left(noted)

    async def _resume(self, conversation: Conversation, noted: SimulatedTurn) -> None:
        self._transcript.resumable = None
        try:
            turn = await conversation.resume_turn(noted.id)
        except AfterturnError as error:
            self._note(f"cannot resume {noted.id}: {error}")
            return
        self._note(f"resumes {noted.id}")
        turn.finish(self._transcript.messages)
        noted.process = self._process.name
        self._left(noted)

    def _note_turn(self, turn_id: str, text: str) -> SimulatedTurn:
        self._note(f"begins {turn_id}: {text}")
        noted = SimulatedTurn(turn_id, self._process.name, self._world.monotonic(), [text])
        self._transcript.turns.append(noted)
        return noted

    def _left(self, noted: SimulatedTurn) -> None:
        noted.promised = not noted.refused and self._process.is_open
        noted.end, noted.left = self._transcript.own, self._world.monotonic()

    async def _after(self, turn: Turn, noted: SimulatedTurn) -> None:
        if self._happens(0.3):
            noted.acknowledged = await turn.wait_recorded(within=self._random.uniform(*_RECORDED_WITHIN))
            self._note(f"{turn.id} recorded: {noted.acknowledged}")

    def _compact(self, conversation: Conversation) -> None:
        """The host replaces earlier messages by a summary, and may report it."""
        messages = self._transcript.messages
        if len(messages) <= 2:
            return
        is_told = self._happens(0.5) or not self._habits.is_shown
        self._note("compacts" + (" and says so" if is_told else ""))
        self._transcript.compact([])
        if is_told:
            conversation.compacted(messages if self._habits.is_shown else None)

    def _happens(self, chance: float) -> bool:
        return self._random.random() < chance

    def _note(self, what: str) -> None:
        self._world.note(self._transcript.id, what)
