"""One thread of messages: starts turns and their epochs, reads what the host shows, hands finished turns on.

It lives on memory's loop, but for what hosts call from any thread, which posts.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Collection, Iterable, MutableSequence, Sequence
from typing import ParamSpec, TypeVar

from afterturn.base.config import Config
from afterturn.base.errors import (
    AfterturnError,
    ConfigError,
    Conflict,
    InvalidInput,
    InvalidName,
    NotFound,
)
from afterturn.base.names import check_name
from afterturn.base.ports import ChatModel, Clock
from afterturn.base.turns import BlockRow, Cause, ConversationKey, Outcome, Point, TurnRow, TurnStatus
from afterturn.context.block import block_hash
from afterturn.context.compaction import Compacted, Reason, answer, ask, block_facts, summarise, untouched
from afterturn.dialects.detection import DIALECTS, find_dialect
from afterturn.dialects.dialect import Dialect
from afterturn.turn.bookkeeping import Bookkeeping
from afterturn.turn.compacting import Compacting
from afterturn.turn.epochs import Epochs
from afterturn.turn.errands import Errands
from afterturn.turn.handover import Desk, Parcel
from afterturn.turn.leaving import SWITCHED_OFF, recording_of
from afterturn.turn.lookback import Lookback
from afterturn.turn.parts import ConversationParts
from afterturn.turn.place import Place
from afterturn.turn.prefetch import Prefetch
from afterturn.turn.sight import is_whole
from afterturn.turn.standing import StandingCore
from afterturn.turn.state import TurnState

logger = logging.getLogger("afterturn")
M = TypeVar("M")
P = ParamSpec("P")

# Of the time for closing: how long a turn that was left may take to be read, at each of two steps.
READING_SHARE = 0.25


class ConversationCore:
    """One per conversation and memory, whatever its hosts were granted: that comes with each turn's `Place`."""

    def __init__(self, parts: ConversationParts, key: ConversationKey) -> None:
        self._parts = parts
        self.key = key
        self._books = Bookkeeping(
            key,
            parts.store,
            parts.supervisor,
            parts.recorder,
            parts.clock,
            parts.config,
            parts.events,
            self,
        )
        self._epochs = Epochs(parts, key, self._books, self)
        self._open_turns: dict[str, TurnState | None] = {}
        self._standing: StandingCore | None = None

    @property
    def desk(self) -> Desk:
        return self._epochs.desk

    @property
    def errands(self) -> Errands:
        return self._parts.errands

    @property
    def lookback(self) -> Lookback:
        return Lookback(self.key, self._parts.store)

    def turn_now(self) -> str:
        """The id of the turn that is under way, blank between turns."""
        current = self._epochs.current
        return "" if current is None or current.left else current.id

    @property
    def known_blocks(self) -> Collection[str]:
        """The hashes of our own blocks."""
        return self._epochs.sight.blocks

    # From any thread: one shallow copy, one post.

    def begin(
        self, place: Place, messages: Sequence[object], turn_id: str | None, speaker: str | None, *, recall: bool = True
    ) -> TurnState:
        """Starts a turn and its recall. Does no I/O and parses nothing on the caller's path (R2)."""
        state = self._state(place, turn_id, speaker)
        if (carried := self._epochs.recalls.at_hand(place)) is not None:
            # For hosts that wait for nothing: their first point comes before anything could be read.
            self.desk.open_for(state, carried)
        self._parts.loop.post(functools.partial(self._start, state, list(messages), recall=recall))
        return state

    def say(self, state: TurnState, text: str, cause: Cause) -> None:
        """Something new in the middle of a turn: an epoch of its own (R1)."""
        if cause is Cause.CUE:
            if state.cues >= self._parts.config.cues_max:
                self._parts.loop.post(functools.partial(self._epochs.emit, "cue_refused", state, cues=state.cues))
                return
            state.cues += 1
        prefetch = self._epochs.new_prefetch(cause, state.id, epoch=state.epochs)
        state.prefetches.append(prefetch)
        self._parts.loop.post(self._epochs.say, state, prefetch, text)

    def expect(self, place: Place, text: str) -> None:
        """The user is typing (R9)."""
        self._parts.loop.post(self._epochs.expect, place, text)

    def compacted(self, place: Place, messages: Sequence[object] | None) -> None:
        """The host's context was compacted; `messages` are what is left of it, when the host shows them (H7)."""
        self._epochs.recalls.withhold()
        left = None if messages is None else self._epochs.left_over(messages)
        self._parts.loop.post(self._epochs.compacted, place, left, "told")

    def compacting(self, place: Place, messages: Sequence[object]) -> None:
        """A compaction was decided: what it takes away is reviewed first (V9)."""
        if self._parts.store is not None and self._parts.config.review_compaction:
            self._parts.loop.post(self._review, place, list(messages))

    def reset(self, place: Place) -> None:
        self._epochs.recalls.withhold()
        self._parts.loop.post(self._epochs.reset, place)

    def stand(self, place: Place, roots: Iterable[str | os.PathLike[str]], instructions: Iterable[str]) -> StandingCore:
        """The standing context from now on. InvalidInput for what is no folders or texts."""
        self._standing = self._epochs.standing = StandingCore(self._parts.standing, place, roots, instructions)
        self._standing.owner = self
        return self._standing

    def has_nothing_for(self, state: TurnState, messages: Sequence[object]) -> bool:
        """Whether a hand-over would change nothing, at a glance: then nobody has to look for its place."""
        return self._standing is None and not self.desk.has_offer(state) and is_whole(state, messages)

    def take(self, state: TurnState) -> Parcel | None:
        """What is to be handed over now, to the first who asks: context files that have arrived, and a block (H2)."""
        arrived = self._standing.take_arrived() if self._standing is not None else None
        offer = self.desk.take(state)
        return Parcel(arrived, offer) if arrived or offer else None

    def delivered(self, state: TurnState, parcel: Parcel, point: Point, anchor: str) -> None:
        """A parcel really goes into the host's messages (H5)."""
        at = self._parts.clock.now()
        rows = [
            BlockRow(block_hash(text), state.id, refs, len(text.encode()), at, point, anchor, text)
            for text, refs in parcel.blocks
        ]
        state.blocks.extend(rows)
        self._epochs.sight.hand_over(rows)
        self._parts.loop.post(self._epochs.delivered, state, parcel, rows)

    def mend(self, state: TurnState, dialect: Dialect, messages: MutableSequence[M]) -> M | None:
        """Puts back what a host dropped while it rebuilt its list, and looks into what is gone (H6, H7).

        The last element that went back.
        """
        put_back, lost = self._epochs.sight.mend(state, dialect, messages)
        if put_back:
            self._parts.loop.post(functools.partial(self._epochs.emit, "blocks_put_back", state, blocks=len(put_back)))
        if lost:
            left = self._epochs.left_over(messages)
            self._parts.loop.post(self._epochs.compacted, state.place, left, "seen")
        return put_back[-1] if put_back else None

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
    def config(self) -> Config:
        return self._parts.config

    @property
    def clock(self) -> Clock:
        return self._parts.clock

    # On memory's loop: what a host without compaction asks for.

    async def compact(self, place: Place, messages: list[object], limit_tokens: int | None) -> Compacted:
        """Summarises the older part of a history that has grown too long (K1). ConfigError without model or limit."""
        model, limit = self._parts.recaller.summariser(place), limit_tokens or self._parts.config.window_tokens
        if model is None or limit is None:
            raise ConfigError(
                "Compaction needs a model and its limit. Pass `model=` to `open`, or set model_url; and pass "
                "`limit_tokens=`, or set window_tokens."
            )
        dialect = find_dialect(messages, place.dialect)
        if dialect is None:
            raise InvalidInput(f"The messages are in no format that memory reads: {', '.join(DIALECTS)}.")
        done = await self._compacted(model, dialect, messages, limit)
        self._epochs.emit_here(
            "history_compacted",
            reason=done.reason,
            before=len(messages),
            after=len(done.messages),
            tokens_before=done.tokens_before,
            tokens_after=done.tokens_after,
        )
        if done.changed:
            self.compacting(place, messages)
            self._epochs.compacted(place, self._epochs.left_over(done.messages), "told")
        return done

    async def _compacted(self, model: ChatModel, dialect: Dialect, messages: list[object], limit: int) -> Compacted:
        known, aside = self.known_blocks, self._parts.standing.reads.run

        def facts(part: Sequence[object]) -> Sequence[str]:
            return block_facts(dialect, part, known)

        # Away from the loop that all conversations share: weighing a thousand messages takes longer than a grace.
        asked = await aside(lambda: ask(dialect, messages, limit_tokens=limit, facts=facts))
        if asked is None or isinstance(asked, Compacted):
            return asked or untouched(messages, Reason.TIMEOUT)
        written = await summarise(model, asked.request, within=self._parts.config.model_timeout)
        done = await aside(lambda: answer(dialect, messages, asked, written))
        return done or untouched(messages, Reason.TIMEOUT)

    # On memory's loop: how turns begin.

    async def start_turn(
        self, place: Place, messages: list[object], turn_id: str | None, speaker: str | None
    ) -> TurnState:
        """Like `begin`, but returns when the turn is a stored row that another process can resume.

        Starting an open turn again is no fault: a host that retries gets the same one.
        """
        if turn_id is not None:
            check_name(turn_id, "turn id")
            self._check_open(turn_id, await self._books.find_turn(turn_id))
        state = self._state(place, turn_id, speaker)
        state.durable = True
        self._start(state, messages)
        if await state.read.wait(within=self._parts.config.recall_timeout) and self._parts.store is not None:
            await state.stored.wait(within=self._parts.config.busy_timeout + 1.0)
        return state

    async def resume_turn(self, place: Place, turn_id: str) -> TurnState:
        """An open turn that this or another process started. It starts no recall: nothing new was said.

        What was recalled for it and not handed over yet is offered, wherever that was.
        """
        check_name(turn_id, "turn id")
        row = await self._books.find_turn(turn_id)
        if row is None:
            raise NotFound(f"Conversation {self.key.id!r} has no turn {turn_id!r}. Start it with `start_turn`.")
        self._check_open(turn_id, row)
        self._books.touch_turn(turn_id)
        if self._epochs.current is not None and self._epochs.current.id == turn_id and not self._epochs.current.left:
            return self._epochs.current
        state = self._state(place, turn_id, None)
        state.durable, state.started_at, state.user_hash = True, row.started_at, row.user_hash
        self._hold(state)
        await self._epochs.resume(state)
        state.stored.settle(True)
        state.read.settle(True)
        return state

    def _check_open(self, turn_id: str, row: TurnRow | None) -> None:
        if row is not None and row.status is not TurnStatus.OPEN:
            raise Conflict(f"Turn {turn_id!r} is {row.status} already. Start a new one, with another id.")

    def _state(self, place: Place, turn_id: str | None, speaker: str | None) -> TurnState:
        fresh, now = self._parts.ids.new(), self._parts.clock.now()
        named = _usable(turn_id, "turn id") or fresh
        first = Prefetch(fresh, Cause.MESSAGE, turn=named, epoch=0, phases=self._parts.recaller.phases)
        known = self._parts.forgets.get(place.tenant, 0)
        return TurnState(named, place, [first], now, _usable(speaker, "speaker"), forgets_before=known)

    def _start(self, state: TurnState, messages: list[object], *, recall: bool = True) -> None:
        self._parts.recaller.begin_turn(state)
        if (earlier := self._epochs.current) is not None and earlier.id in self._open_turns:
            # A host that never leaves its turns is owed their end, not their contents.
            self._open_turns[earlier.id] = None
            if earlier.durable:
                self._let_go(earlier)
        self._hold(state)
        self._epochs.start(state, messages, recall=recall)

    def _hold(self, state: TurnState) -> None:
        """A host may lose sight of an open turn, and of its conversation; closing must not."""
        self._open_turns[state.id] = state
        self._parts.busy.add(self)

    def _let_go(self, state: TurnState) -> None:
        self._open_turns.pop(state.id, None)
        if not self._open_turns:
            self._parts.busy.discard(self)

    def _review(self, place: Place, messages: list[object]) -> None:
        parts = self._parts
        assert parts.store is not None
        work = Compacting(parts.store, parts.config, parts.clock, parts.ids, parts.events)
        task = parts.supervisor.start(work.review(place, messages, self.known_blocks), f"compacting {place.id}")
        parts.recorder.expect(task)
        task.add_done_callback(lambda _: parts.on_write())

    def drop_recalls(self, space: str) -> None:
        self._epochs.drop_recalls(space)

    # On memory's loop: how turns end.

    def _leave(self, state: TurnState, messages: list[object], *, completed: bool, failed: bool) -> None:
        if failed and not completed:
            self._abort(state, "left_with_exception")
            return
        self._epochs.recalls.leave(state)
        self._let_go(state)
        task = self._parts.supervisor.start(
            self._record(state, messages, completed=completed), f"leave turn {state.id}"
        )
        self._parts.recorder.expect(task)
        task.add_done_callback(lambda task: self._left(state, recorded=not task.cancelled()))

    def _left(self, state: TurnState, *, recorded: bool) -> None:
        if not recorded:
            state.recorded.settle(False)
        self._parts.recaller.end_turn(state)

    async def _record(self, state: TurnState, messages: list[object], *, completed: bool) -> None:
        if self._parts.store is None:
            state.recorded.settle(False)
            return
        config = self._parts.config
        try:
            if not await state.read.wait(within=self._reading_within):
                self._epochs.find_beginning(state)
            await self._load_blocks(state.place)
            recording, reason = recording_of(
                state,
                messages,
                self._epochs.sight.blocks,
                config,
                ended_at=self._parts.clock.now(),
                completed=completed,
            )
        except Exception as error:
            state.recorded.settle(False)
            self._epochs.emit("not_recorded", state, reason=type(error).__name__)
            raise
        if recording is not None:
            self._parts.recorder.enqueue(recording, state.recorded)
            return
        state.recorded.settle(False)
        self._epochs.emit("not_recorded", state, reason=reason)
        if reason == SWITCHED_OFF:
            await self._books.end_turn(state, TurnStatus.COMPLETED)
            return
        self._epochs.come_to_nothing(state)
        await self._books.end_turn(state, TurnStatus.ABORTED)

    @property
    def _reading_within(self) -> float:
        """Twice as long as this, closing must still have the time to keep the turn in a file (C4)."""
        return min(self._parts.config.recall_timeout, self._parts.config.close_timeout * READING_SHARE)

    async def _load_blocks(self, place: Place) -> None:
        """What we injected so far, by any process. A store that can not be read must not cost the turn (C4)."""
        assert self._parts.store is not None
        try:
            async with asyncio.timeout(self._reading_within):
                rows = await self._parts.store.read(lambda unit: unit.conversations.blocks(place.key))
        except (AfterturnError, TimeoutError) as error:
            logger.warning("conversation %r: blocks of other processes are not known: %r", self.key.id, error)
            return
        self._epochs.sight.learn(row for row in rows if row.hash not in self._epochs.sight.blocks)

    def _abort(self, state: TurnState, reason: str) -> None:
        self._epochs.recalls.stop_all(state, Outcome.CANCELLED, "abort")
        state.left = True
        self._let_go(state)
        state.recorded.settle(False)
        self._parts.recaller.end_turn(state)
        if self._parts.store is not None:
            self._epochs.emit("turn_aborted", state, reason=reason)
            self._parts.supervisor.start(self._books.end_turn(state, TurnStatus.ABORTED), f"abort turn {state.id}")

    def close(self) -> None:
        """Ends what no host has ended: turns are abandoned, but for those that another process may resume."""
        if self._epochs.current is not None:
            self._epochs.recalls.shut(self._epochs.current)
        for turn_id, state in list(self._open_turns.items()):
            if state is None or not state.durable:
                self._books.abandon_turn(turn_id)


def _usable(name: object, what: str) -> str | None:
    """A host's name for something, if it is one: a turn goes on without a name that could not be stored."""
    if name is None:
        return None
    try:
        return check_name(name, what)
    except InvalidName as error:
        logger.warning("%s The turn goes on without it.", error)
        return None
