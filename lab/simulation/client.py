"""A simulated host: it holds a conversation as real hosts do, badly now and then."""

from __future__ import annotations

import asyncio

from afterturn.conversation.conversation import Conversation
from afterturn.conversation.turn import Turn
from afterturn.errors import AfterturnError
from lab.simulation.loop import VirtualLoop
from lab.simulation.manners import Manners
from lab.simulation.process import Process
from lab.simulation.talk import Talk
from lab.simulation.transcript import Message, Told, Transcript
from lab.simulation.words import question
from lab.simulation.world import World

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
