"""One thread of messages: starts turns, reads what the host shows, hands finished turns to the recorder.

It lives on memory's loop, but for what hosts call from any thread: `begin`, `delivered`, `leave`, `abort`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from afterturn.base.config import Config
from afterturn.base.errors import AfterturnError, Conflict, InvalidName, NotFound
from afterturn.base.events import Events
from afterturn.base.loop import PrivateLoop
from afterturn.base.names import check_name
from afterturn.base.ports import Clock, Ids, Store, Unit
from afterturn.base.supervisor import Supervisor
from afterturn.base.terms import content_hash
from afterturn.base.turns import BlockRow, ConversationKey, Message, TurnRow, TurnStatus
from afterturn.context.block import Block, strip_blocks
from afterturn.dialects.detection import find_dialect
from afterturn.dialects.dialect import Dialect, Strip
from afterturn.dialects.history import Exchange, exchange, latest_user
from afterturn.learn.recorder import Recorder
from afterturn.learn.recording import Recording, is_exchange
from afterturn.turn.place import Place
from afterturn.turn.prefetch import Outcome, Prefetch
from afterturn.turn.preparing import Question, Shown, read_turn
from afterturn.turn.recaller import Recaller
from afterturn.turn.state import TurnState

logger = logging.getLogger("afterturn")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ConversationParts:
    """What all conversations of one memory share, handed over by `runtime`. Without a store, memory is off."""

    loop: PrivateLoop
    store: Store | None
    recaller: Recaller
    recorder: Recorder
    supervisor: Supervisor
    clock: Clock
    ids: Ids
    config: Config
    events: Events


class ConversationCore:
    """One per conversation and memory, whatever its hosts were granted: that comes with each turn's `Place`."""

    def __init__(self, parts: ConversationParts, key: ConversationKey) -> None:
        self._parts = parts
        self.key = key
        self._blocks: dict[str, BlockRow] = {}
        self._current: TurnState | None = None

    # From any thread: one shallow copy, one post.

    def begin(self, place: Place, messages: Sequence[object], turn_id: str | None, speaker: str | None) -> TurnState:
        """Starts a turn and its recall. Does no I/O and parses nothing on the caller's path (R2)."""
        state = self._state(place, turn_id, speaker)
        self._parts.loop.post(self._start, state, list(messages))
        return state

    def delivered(self, state: TurnState, block: Block, point: str) -> None:
        """A block really went into the host's messages (H5)."""
        row = BlockRow(block.hash, state.id, block.refs, block.size_bytes, self._parts.clock.now())
        state.blocks.append(row)
        self._parts.loop.post(self._delivered, state, row, block.tokens, point)

    def leave(self, state: TurnState, messages: list[object], *, completed: bool, failed: bool) -> None:
        """The host is done with the turn; the rest happens on memory's loop (C4)."""
        work = functools.partial(self._leave, state, messages, completed=completed, failed=failed)
        self._parts.loop.post(work)

    def abort(self, state: TurnState, reason: str) -> None:
        self._parts.loop.post(self._abort, state, reason)

    def check(self) -> None:
        """Raises MemoryClosed or ForkedProcess where a turn has nothing to hope for."""
        self._parts.loop.check()

    def misused(self, event: str, how: str) -> None:
        """Tells the host, without memory's loop and once per memory, that turns get nothing."""
        if self._parts.events.tell_once(event, conversation=self.key.id):
            logger.warning("conversation %r: a turn was used %s; it goes on without memory", self.key.id, how)

    @property
    def closed(self) -> bool:
        """Nothing of the turn changes any more."""
        return self._parts.loop.gone

    @property
    def forked(self) -> bool:
        return self._parts.loop.forked

    @property
    def in_thread(self) -> bool:
        return self._parts.loop.in_thread

    @property
    def grace(self) -> float:
        return self._parts.config.grace

    # On memory's loop.

    async def start_turn(
        self, place: Place, messages: list[object], turn_id: str | None, speaker: str | None
    ) -> TurnState:
        """Like `begin`, but returns when the turn is a stored row that another process can resume.

        Starting an open turn again is no fault: a host that retries gets the same one.
        """
        if turn_id is not None:
            check_name(turn_id, "turn id")
            self._check_open(turn_id, await self._find_turn(turn_id))
        state = self._state(place, turn_id, speaker)
        self._start(state, messages)
        if await state.read.wait(within=self._parts.config.recall_timeout) and self._parts.store is not None:
            await state.stored.wait(within=self._parts.config.busy_timeout + 1.0)
        return state

    async def resume_turn(self, place: Place, turn_id: str) -> TurnState:
        """An open turn that this or another process started. It starts no recall: nothing new was said."""
        check_name(turn_id, "turn id")
        row = await self._find_turn(turn_id)
        if row is None:
            raise NotFound(f"Conversation {self.key.id!r} has no turn {turn_id!r}. Start it with `start_turn`.")
        self._check_open(turn_id, row)
        self._parts.recorder.expect(self._parts.supervisor.start(self._touch(turn_id), f"touch turn {turn_id}"))
        state = TurnState(turn_id, place, Prefetch(""), row.started_at, user_hash=row.user_hash)
        state.prefetch.discard()
        state.epoch = await self._load_blocks(place)
        state.stored.settle(True)
        state.read.settle(True)
        return state

    def _check_open(self, turn_id: str, row: TurnRow | None) -> None:
        if row is not None and row.status is not TurnStatus.OPEN:
            raise Conflict(f"Turn {turn_id!r} is {row.status} already. Start a new one, with another id.")

    def drop_recalls(self, space: str) -> None:
        """What was recalled from a space before something was forgotten there is not handed over any more (M2)."""
        current = self._current
        if current is not None and space in current.place.reads:
            self._parts.recaller.end(current, Outcome.CANCELLED, "forgotten")
            current.prefetch.discard()

    def _state(self, place: Place, turn_id: str | None, speaker: str | None) -> TurnState:
        fresh, now = self._parts.ids.new(), self._parts.clock.now()
        named = _usable(turn_id, "turn id") or fresh
        return TurnState(named, place, Prefetch(fresh), now, _usable(speaker, "speaker"))

    def _start(self, state: TurnState, messages: list[object]) -> None:
        self._parts.recaller.begin_turn(state)
        earlier, self._current = self._current, state
        if earlier is not None and not earlier.prefetch.consumed:
            self._stop(earlier, Outcome.SUPERSEDED, "new_query")
        state.prefetch.task = self._parts.supervisor.start(self._open(state, messages), f"turn {state.id}")
        state.prefetch.task.add_done_callback(lambda _: self._opened(state))

    def _opened(self, state: TurnState) -> None:
        assert state.prefetch.task is not None
        if state.prefetch.task.cancelled():
            self._parts.recaller.end(state, Outcome.CANCELLED, "shutdown")
        if not state.read.peek():
            state.stored.settle(False)
        state.read.settle(False)
        state.prefetch.settle(None, at=self._parts.clock.now())

    async def _open(self, state: TurnState, messages: list[object]) -> None:
        state.dialect = find_dialect(messages)
        if state.dialect is None:
            logger.warning(
                "conversation %r: its messages are not in OpenAI's chat format (dictionaries or objects with a `role` "
                "and `content`), so this turn goes on without memory",
                self.key.id,
            )
            self._emit("unknown_dialect", state)
            return
        if self._parts.store is None:
            state.read.settle(True)
            return
        question = await self._read(state, state.dialect, messages)
        state.read.settle(True)
        self._emit("turn_started", state)
        self._parts.supervisor.start(self._store_turn(state), f"store turn {state.id}")
        if question is not None and not state.prefetch.consumed:
            await self._parts.recaller.run(state, question)

    async def _read(self, state: TurnState, dialect: Dialect, messages: list[object]) -> Question | None:
        """On a reader's thread: a long list takes a while to read, and other conversations share this loop."""
        assert self._parts.store is not None
        place, config = state.place, self._parts.config
        shown = Shown(dialect, messages, dict(self._blocks))
        reading = await self._parts.store.read(lambda unit: read_turn(unit, shown, place, config))
        self._blocks.update(reading.blocks)
        state.epoch = reading.epoch
        if reading.said is not None:
            at, said = reading.said
            state.user_hash, state.user_index, state.user_element = content_hash(said), at, messages[at]
        return reading.question

    async def _load_blocks(self, place: Place) -> int:
        """What we injected so far, by any process; and how many forgets there have been, for `is_forgotten`."""
        assert self._parts.store is not None

        def work(unit: Unit) -> tuple[list[BlockRow], int]:
            return unit.conversations.blocks(place.key), unit.operations.epoch(place.tenant, place.writes)

        rows, epoch = await self._parts.store.read(work)
        self._blocks.update({row.hash: row for row in rows})
        return epoch

    async def _store_turn(self, state: TurnState) -> None:
        key, at = self.key, self._parts.clock.now()
        row = TurnRow(state.id, TurnStatus.OPEN, state.started_at, state.user_hash)

        def work(unit: Unit) -> bool:
            unit.conversations.open(key, at=at)
            return unit.conversations.start_turn(key, row)

        try:
            state.stored.settle(await self._written(work, f"turn {state.id!r}") is True)
        finally:
            state.stored.settle(False)

    async def _find_turn(self, turn_id: str) -> TurnRow | None:
        key, store = self.key, self._parts.store
        if store is None:
            return None
        return await store.read(lambda unit: unit.conversations.find_turn(key, turn_id))

    async def _touch(self, turn_id: str) -> None:
        """Somebody came back to it, so it is not idle. Nobody waits for this."""
        key, at = self.key, self._parts.clock.now()
        await self._written(
            lambda unit: unit.conversations.touch_turn(key, turn_id, at=at), f"the return to turn {turn_id!r}"
        )

    def _delivered(self, state: TurnState, row: BlockRow, tokens: int, point: str) -> None:
        self._blocks[row.hash] = row
        self._emit("handed_over", state, point=point, memories=len(row.refs), bytes=row.size_bytes, tokens=tokens)
        self._parts.recaller.end(state, Outcome.DELIVERED, point)
        self._parts.recaller.rest()
        # Closing waits for it: whoever resumes the turn elsewhere must know our own words from the user's.
        self._parts.recorder.expect(self._parts.supervisor.start(self._store_block(row), f"block of turn {state.id}"))

    async def _store_block(self, row: BlockRow) -> None:
        key, at = self.key, self._parts.clock.now()

        def work(unit: Unit) -> None:
            unit.conversations.open(key, at=at)
            unit.conversations.add_block(key, row)

        await self._written(work, f"a block of turn {row.turn!r}")

    async def _written(self, work: Callable[[Unit], R], what: str) -> R | None:
        """Bookkeeping that a store in trouble may miss: what matters of a turn is written when it is recorded."""
        assert self._parts.store is not None
        try:
            return await self._parts.store.write(work)
        except AfterturnError as error:
            logger.warning("%s is not noted in the store: %s", what, error)
            return None

    def _leave(self, state: TurnState, messages: list[object], *, completed: bool, failed: bool) -> None:
        if failed and not completed:
            self._abort(state, "left_with_exception")
            return
        task = self._parts.supervisor.start(
            self._record(state, messages, completed=completed), f"leave turn {state.id}"
        )
        self._parts.recorder.expect(task)
        task.add_done_callback(lambda task: self._left(state, recorded=not task.cancelled()))

    def _left(self, state: TurnState, *, recorded: bool) -> None:
        if not recorded:
            state.recorded.settle(False)
        if not state.prefetch.consumed:
            settled = state.prefetch.settled
            self._stop(state, Outcome.UNDELIVERED if settled else Outcome.CANCELLED, "no_safe_point")
        self._parts.recaller.end_turn(state)

    async def _record(self, state: TurnState, messages: list[object], *, completed: bool) -> None:
        if self._parts.store is None:
            state.recorded.settle(False)
            return
        try:
            await state.read.wait(within=self._parts.config.recall_timeout)
            await self._load_blocks(state.place)
            recording, reason = self._recording(state, messages, completed=completed)
        except Exception as error:
            state.recorded.settle(False)
            self._emit("not_recorded", state, reason=type(error).__name__)
            raise
        if recording is not None:
            self._parts.recorder.enqueue(recording, state.recorded)
            return
        state.recorded.settle(False)
        self._emit("not_recorded", state, reason=reason)
        await self._end_turn(state, TurnStatus.ABORTED)

    def _recording(self, state: TurnState, messages: list[object], *, completed: bool) -> tuple[Recording | None, str]:
        config, place = self._parts.config, state.place
        if not config.recording:
            return None, "switched_off"
        dialect = state.dialect or find_dialect(messages)
        if dialect is None:
            return None, "unknown_dialect"
        strip = functools.partial(
            strip_blocks, known_hashes={**self._blocks, **{row.hash: row for row in state.blocks}}
        )
        found = _exchange(dialect, messages, state.user_hash, strip)
        if not found.messages:
            return None, "no_exchange"
        if not completed and not found.ends_complete:
            return None, "no_final_answer"
        if not is_exchange(found.messages):
            return None, "no_exchange"
        return (
            Recording(
                tenant=place.tenant,
                space=place.writes,
                conversation=place.id,
                turn=state.id,
                owner=place.owner,
                started_at=state.started_at,
                epoch=state.epoch,
                user_hash=state.user_hash,
                messages=tuple(_spoken_by(message, state.speaker) for message in found.messages),
                agent=place.agent,
                project=place.project,
                blocks=tuple(state.blocks),
                ended_at=self._parts.clock.now(),
            ),
            "",
        )

    def _abort(self, state: TurnState, reason: str) -> None:
        self._stop(state, Outcome.CANCELLED, "abort")
        state.recorded.settle(False)
        self._parts.recaller.end_turn(state)
        if self._parts.store is not None:
            self._emit("turn_aborted", state, reason=reason)
            self._parts.supervisor.start(self._end_turn(state, TurnStatus.ABORTED), f"abort turn {state.id}")

    async def _end_turn(self, state: TurnState, status: TurnStatus) -> None:
        key, at = self.key, self._parts.clock.now()
        await state.stored.wait(within=self._parts.config.busy_timeout)
        if state.read.peek():
            await self._written(
                lambda unit: unit.conversations.end_turn(key, state.id, status=status, at=at, recorded=False),
                f"the end of turn {state.id!r}",
            )

    def _stop(self, state: TurnState, outcome: Outcome, reason: str) -> None:
        """Cancels a recall and drops what it found. The turn itself is still recorded if it completes (R3, R4)."""
        self._parts.recaller.end(state, outcome, reason)
        state.prefetch.discard()
        if state.prefetch.task is not None and state.read.settled:
            state.prefetch.task.cancel()

    def _emit(self, name: str, state: TurnState, **data: str | int) -> None:
        self._parts.events.emit(name, space=self.key.space, conversation=self.key.id, turn=state.id, **data)


def _exchange(dialect: Dialect, messages: list[object], user_hash: str, strip: Strip) -> Exchange:
    """From the turn's user message on; from the latest one when the host has rewritten it since the turn began."""
    if user_hash and (found := exchange(dialect, messages, user_hash, strip)).messages:
        return found
    latest = latest_user(dialect, messages, strip)
    return exchange(dialect, messages, content_hash(latest[1]), strip) if latest else Exchange((), ends_complete=False)


def _spoken_by(message: Message, speaker: str | None) -> Message:
    return replace(message, speaker=speaker) if speaker is not None and message.role == "user" else message


def _usable(name: object, what: str) -> str | None:
    """A host's name for something, if it is one: a turn goes on without a name that could not be stored."""
    if name is None:
        return None
    try:
        return check_name(name, what)
    except InvalidName as error:
        logger.warning("%s The turn goes on without it.", error)
        return None
