"""What is said and seen in the turns of one conversation: each new thing that is said is an epoch with its recall (R1).

Lives on memory's loop; `conversation` is what hosts call.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from afterturn.base.errors import AfterturnError, DeadlineExceeded
from afterturn.base.terms import content_hash
from afterturn.base.turns import BlockRow, Cause, ConversationKey, Outcome, Point
from afterturn.base.types import Scalar
from afterturn.context.block import strip_blocks
from afterturn.dialects.detection import DIALECTS, find_dialect
from afterturn.dialects.dialect import Dialect
from afterturn.dialects.history import latest_user
from afterturn.turn.bookkeeping import Bookkeeping
from afterturn.turn.handover import Desk, Parcel
from afterturn.turn.ledger import Ledger
from afterturn.turn.parts import ConversationParts
from afterturn.turn.place import Place
from afterturn.turn.prefetch import Prefetch, Stage
from afterturn.turn.preparing import Question, Reading, Shown, no_recall, question_for, read_turn
from afterturn.turn.recalls import Recalls
from afterturn.turn.sight import Sight
from afterturn.turn.speculation import Speculations
from afterturn.turn.standing import StandingCore
from afterturn.turn.state import TurnState

logger = logging.getLogger("afterturn")
# Good enough for a warning; English has about four letters a token.
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Left:
    """What a compaction has left of a host's messages, and which blocks of the turn had been handed over by then."""

    messages: list[object]
    handed_over: frozenset[str]


class Epochs:
    """`current` is the turn that owns recall; an earlier one that is still open is recorded when it ends (R3)."""

    def __init__(self, parts: ConversationParts, key: ConversationKey, books: Bookkeeping, keeper: object) -> None:
        self._parts = parts
        # While something runs here its conversation lives, so that whoever opens it again finds this one (R3).
        self._keeper = keeper
        self._key = key
        self._books = books
        self.desk = Desk()
        self.sight = Sight()
        self.recalls = Recalls(parts.recaller, books, parts.events, self.desk, self.sight)
        self._typing = Speculations(parts.recaller, parts.supervisor, parts.ids, self._ledger_of, self.emit_here)
        self.current: TurnState | None = None
        self.standing: StandingCore | None = None

    # A turn's beginning.

    def own(self, state: TurnState) -> None:
        """From now on recall is this turn's (R3)."""
        earlier, self.current = self.current, state
        if earlier is not None:
            state.carried = self.recalls.take_over(earlier)
        self.desk.open_for(state)

    def new_prefetch(self, cause: Cause, turn: str, *, epoch: int) -> Prefetch:
        """From any thread."""
        return Prefetch(self._parts.ids.new(), cause, turn=turn, epoch=epoch, phases=self._parts.recaller.phases)

    def start(self, state: TurnState, messages: list[object], *, recall: bool) -> None:
        self.own(state)
        # Not the current one: the host may have said more before this is heard.
        prefetch, state.opening = state.first, messages
        prefetch.task = self._parts.supervisor.start(self._open(state, messages, recall=recall), f"turn {state.id}")
        prefetch.task.add_done_callback(lambda _: self._opened(state, prefetch))

    async def resume(self, state: TurnState) -> None:
        """What was recalled for it and not handed over is offered, wherever that was."""
        self.own(state)
        reading = await self._look(state, find_dialect([], state.place.dialect), [])
        self._take_in(state, reading)
        state.forgets_before = reading.forgets
        state.texts = self.sight.written_in(state.id)
        self.recalls.offer(state)
        state.first.let_go()

    def _opened(self, state: TurnState, prefetch: Prefetch) -> None:
        self._ran(prefetch)
        if not state.read.peek():
            state.stored.settle(False)
        state.read.settle(False)

    def _ran(self, prefetch: Prefetch) -> None:
        """Its task is over: what has not settled never will."""
        for run in prefetch.runs:
            if run.stage is Stage.ASKED and prefetch.asked:
                self.recalls.end(run, Outcome.CANCELLED, "shutdown")
            # What is ready and held back is waited for until it is known what a compaction left.
            if run.stage is not Stage.READY:
                run.settled.settle(False)

    async def _open(self, state: TurnState, messages: list[object], *, recall: bool) -> None:
        state.dialect = find_dialect(messages, state.place.dialect)
        if state.dialect is None:
            logger.warning(
                "conversation %r: its messages are in no format that memory reads (%s); the turn goes on without it",
                self._key.id,
                ", ".join(DIALECTS),
            )
            self.emit("unknown_dialect", state)
            return
        if self._parts.store is None:
            state.read.settle(True)
            return
        prefetch = state.first
        try:
            reading = await self._look(state, state.dialect, messages, turn=state.id)
        except AfterturnError as error:
            self._unread(state, error)
            return
        if state.began:
            reading = reading.without_dropped()
        self._take_in(state, reading)
        state.forgets_before = reading.forgets
        state.opening = None
        if reading.said is not None:
            _begin_at(state, messages, *reading.said)
        self.sight.read(state, messages, reading)
        state.read.settle(True)
        self.emit("turn_started", state, no_recall=no_recall(reading.question, self._parts.config))
        self._parts.supervisor.start(self._books.store_turn(state), f"store turn {state.id}")
        if reading.lost:
            self.emit("compacted", state, how="seen")
            self._renew_standing("compaction")
            if state.carried is not None:
                self.recalls.stop(state.carried, Outcome.UNDELIVERED, "compaction")
            self._lost(state, reading)
        self.recalls.offer(state)
        if reading.question is not None and recall and not prefetch.fast.consumed:
            await self._recall(state, prefetch, reading.question)

    def _unread(self, state: TurnState, error: AfterturnError) -> None:
        """A store that can not be read has degraded the recall, and is asked no more in this epoch (L8)."""
        logger.warning("a turn can not be read in the store; it goes on without a recall: %s", error)
        said = self.find_beginning(state)
        if said is None:
            return
        question = question_for(said, state.place, state.ledger, self._parts.config)
        if question is not None and not state.first.fast.consumed:
            self._tell_epoch(state, state.first)
            self.recalls.fail(state, state.first, question, type(error).__name__)

    def find_beginning(self, state: TurnState) -> str | None:
        """What the user said in a turn that could not be read, or not yet, by what this process knows of its blocks."""
        messages = state.opening
        dialect = find_dialect(messages, state.place.dialect) if messages else None
        if messages is None or dialect is None:
            return None
        said = latest_user(dialect, messages, functools.partial(strip_blocks, known_hashes=self.sight.blocks))
        if said is not None:
            _begin_at(state, messages, *said)
        return said[1] if said is not None else None

    async def _look(
        self, state: TurnState, dialect: Dialect | None, messages: list[object], *, turn: str = ""
    ) -> Reading:
        """On a reader's thread: a long list takes a while to read, and other conversations share this loop."""
        assert self._parts.store is not None
        assert dialect is not None
        await self._books.cleared()
        place, config = state.place, self._parts.config
        carried = tuple(hit for run in state.carried.runs for hit in run.hits) if state.carried else None
        known, unstored = dict(self.sight.blocks), self.sight.unstored
        shown = Shown(dialect, messages, known, self._parts.clock.now(), carried, turn, unstored)
        try:
            async with asyncio.timeout(config.recall_timeout):
                return await self._parts.store.read(lambda unit: read_turn(unit, shown, place, config))
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"The store did not answer within {config.recall_timeout:g} seconds. The turn goes on without it."
            ) from error

    def _take_in(self, state: TurnState, reading: Reading) -> None:
        self.sight.learn(reading.blocks.values())
        # What was handed over before this was read is not in the list that was read.
        state.ledger = reading.ledger.with_blocks(row for row in state.blocks if row.hash not in reading.places)
        state.forgets = reading.forgets
        known = self._parts.forgets
        known[state.place.tenant] = max(reading.forgets, known.get(state.place.tenant, 0))
        if state.carried is not None:
            for run in state.carried.runs:
                run.hits = tuple(hit for hit in run.hits if hit in reading.carried_hits)
        elif reading.carried is not None and self.recalls.is_waiting(reading.carried):
            question = Question(reading.carried.question, state.place, reading.ledger)
            state.carried = self.recalls.adopt(reading.carried, reading.carried_hits, question)

    async def _recall(self, state: TurnState, prefetch: Prefetch, question: Question) -> None:
        prepared = await self._typing.take(prefetch, question) if prefetch.cause is Cause.MESSAGE else None
        if not prefetch.fast.consumed:
            self._tell_epoch(state, prefetch)
            await self.recalls.run(state, prefetch, question, prepared)

    def _tell_epoch(self, state: TurnState, prefetch: Prefetch) -> None:
        self.emit("epoch_started", state, cause=prefetch.cause, epoch=prefetch.epoch)

    def come_to_nothing(self, state: TurnState) -> None:
        """A turn that was left had no answer after all: it carries nothing, though the next one may have begun (R8)."""
        self.recalls.abandon(state)
        if self.current is not None and self.current is not state:
            self.recalls.offer(self.current)

    # In the middle of one.

    def say(self, state: TurnState, prefetch: Prefetch, text: str) -> None:
        if self.current is not state or state.left:
            prefetch.let_go()
            return
        self.recalls.give_way(state, prefetch)
        prefetch.task = self._parts.supervisor.start(self._follow(state, prefetch, text), f"epoch of turn {state.id}")
        prefetch.task.add_done_callback(lambda _: self._ran(prefetch))

    async def _follow(self, state: TurnState, prefetch: Prefetch, text: str) -> None:
        known = await state.read.wait(within=self._parts.config.recall_timeout)
        failed = "" if known else await self._read_late(state)
        if self._parts.store is None or state.dialect is None or prefetch.fast.consumed:
            return
        shown = frozenset(ref for row in state.blocks for ref in row.refs) | self.recalls.waiting_refs(state)
        ledger = replace(state.ledger, refs=state.ledger.refs | shown, kept=shown)
        question = question_for(text, state.place, ledger, self._parts.config)
        if question is not None and failed:
            self._tell_epoch(state, prefetch)
            self.recalls.fail(state, prefetch, question, failed)
        elif question is not None:
            await self._recall(state, prefetch, question)

    async def _read_late(self, state: TurnState) -> str:
        """A store that could not be read when the turn began is asked again for what is said next (L8).

        Blank, or why it still can not be read.
        """
        messages, dialect = state.opening, state.dialect
        if messages is None or dialect is None or self._parts.store is None:
            return ""
        try:
            async with asyncio.timeout(self._parts.config.recall_timeout):
                self._take_in(state, await self._look(state, dialect, messages))
        except (AfterturnError, TimeoutError) as error:
            return type(error).__name__
        state.opening = None
        return ""

    def delivered(self, state: TurnState, parcel: Parcel, rows: list[BlockRow]) -> None:
        offer, last = parcel.offer, rows[-1]
        if offer is not None:
            self.emit(
                "handed_over",
                state,
                point=last.point,
                memories=len(offer.block.refs),
                bytes=last.size_bytes,
                tokens=offer.block.tokens,
            )
            self.recalls.delivered(state, offer, last)
        self._parts.recaller.rest()
        state.ledger = state.ledger.with_blocks(rows)
        for row in rows:
            task = self._books.delivered(row)
            if task is not None:
                task.add_done_callback(functools.partial(self._stored, row.hash))
        self._warn_of_share(state)

    def _stored(self, name: str, task: asyncio.Task[None]) -> None:
        self.sight.stored(name)

    def _warn_of_share(self, state: TurnState) -> None:
        window, share = self._parts.config.window_tokens, self._parts.config.window_share_max
        tokens = state.ledger.size_bytes // _BYTES_PER_TOKEN
        if window is not None and tokens > window * share:
            self.emit("window_share", state, tokens=tokens, window=window)

    def left_over(self, messages: Iterable[object]) -> Left:
        """From any thread, when a compaction is told or seen."""
        state = self.current
        return Left(list(messages), frozenset(row.hash for row in list(state.blocks)) if state else frozenset())

    def compacted(self, place: Place, left: Left | None, how: str) -> None:
        state = self.current
        if state is None or state.read.settled:
            self._compacted(place, left, how)
            return
        self.recalls.hold(state)

        async def once_read() -> None:
            """What the turn began with is being read, and must not be taken for what is left."""
            try:
                await state.read.wait(within=self._parts.config.recall_timeout)
                self._compacted(place, left, how)
            finally:
                self.recalls.release(state)

        self._parts.supervisor.start(once_read(), f"compaction at the beginning of turn {state.id}")

    def _compacted(self, place: Place, left: Left | None, how: str) -> None:
        state = self.current if self.current is not None and not self.current.left else None
        self.emit_here("compacted", turn=state.id if state else "", how=how)
        self.recalls.drop_carried("compaction")
        self._renew_standing("compaction")
        if state is not None and state.carried is not None:
            self.recalls.stop(state.carried, Outcome.UNDELIVERED, "compaction")
        if state is None or left is None or self._parts.store is None:
            self._cleared(place, state)
            return
        self.recalls.hold(state)
        looking = self._parts.supervisor.start(self._look_again(state, left), f"compaction in turn {state.id}")
        looking.add_done_callback(lambda _: self.recalls.release(state))

    def _renew_standing(self, reason: str) -> None:
        if self.standing is not None:
            self._parts.supervisor.start(self.standing.invalidate(reason), f"standing context after a {reason}")

    def _cleared(self, place: Place, state: TurnState | None) -> None:
        """Nobody shows us what is left, so nothing is, but what was just said."""
        self.sight.clear()
        self._books.clear(place, compacted=True)
        if state is None:
            return
        state.unsure = not place.is_hidden
        since = self._parts.clock.now() if place.is_hidden else None
        state.ledger = replace(state.ledger, refs=frozenset(), size_bytes=0, seen_since=since)
        if place.is_hidden:
            self._ask_again(state)

    async def _look_again(self, state: TurnState, left: Left) -> None:
        messages = left.messages
        dialect = find_dialect(messages, state.place.dialect) or state.dialect
        if dialect is None:
            return
        try:
            reading = await self._look(state, dialect, messages)
        except AfterturnError as error:
            logger.warning("a compacted history can not be read in the store, and is looked at again: %s", error)
            state.unsure = True
            return
        self.sight.learn(reading.blocks.values())
        # What was handed over after the list was copied went into it.
        known = left.handed_over.union(reading.places)
        since = [row for row in state.blocks if row.hash not in known]
        state.ledger = reading.ledger.with_blocks(since)
        self._lost(state, replace(reading, lost=tuple(row for row in reading.lost if row not in since)))
        self.sight.learn(since)
        self._ask_again(state)

    def _lost(self, state: TurnState, reading: Reading) -> None:
        """Blocks went with the messages they stood after: compacted, rewound, edited. The others are in sight still."""
        gone = {row.hash for row in reading.lost}
        staying = [row.hash for row in reading.blocks.values() if row.in_sight and row.hash not in gone]
        still = self.sight.clear(still=staying)
        self._books.clear(state.place, compacted=True, still=still)

    def _ask_again(self, state: TurnState) -> None:
        """One fresh query in the same epoch, counted apart (H7); none of a store that has failed in it (L8)."""
        if self.current is not state or state.left:
            return
        epoch = state.current.epoch
        asked = [prefetch for prefetch in state.prefetches if prefetch.epoch == epoch and prefetch.question is not None]
        if not asked or epoch in state.requeried or any(one.fast.outcome is Outcome.DEGRADED for one in asked):
            self.recalls.offer(state)
            return
        state.requeried.add(epoch)
        question = asked[-1].question
        assert question is not None
        prefetch = self.new_prefetch(Cause.COMPACTION, state.id, epoch=epoch)
        # First: a host that waits for an older one goes on to wait for this one.
        state.prefetches.append(prefetch)
        for older in state.prefetches[:-1]:
            self.recalls.stop(older, Outcome.SUPERSEDED, "compaction")
        # What a host has as text stays in every prompt of the turn, whatever was compacted (H8).
        written = frozenset(ref for row in state.blocks if row.point == Point.PROMPT for ref in row.refs)
        kept = self.recalls.in_hand(state) | written
        fresh = replace(question, ledger=replace(state.ledger, refs=state.ledger.refs | kept, kept=kept))
        prefetch.task = self._parts.supervisor.start(
            self.recalls.run(state, prefetch, fresh), f"recall after a compaction in turn {state.id}"
        )
        prefetch.task.add_done_callback(lambda _: self._ran(prefetch))

    def reset(self, place: Place) -> None:
        self._typing.drop("reset")
        self.recalls.drop_carried("reset")
        if self.current is not None:
            self.recalls.stop_all(self.current, Outcome.CANCELLED, "reset")
            self.current.ledger = Ledger()
            self.current.spots, self.current.dropped, self.current.texts = {}, (), []
        self.sight.clear()
        self._books.clear(place, compacted=True)
        self._renew_standing("reset")
        self.emit_here("conversation_reset")

    def expect(self, place: Place, text: str) -> None:
        if self._parts.store is not None:
            self._typing.expect(place, text)

    async def _ledger_of(self, place: Place) -> Ledger:
        """Of a host that hides its messages, outside of any turn."""
        nowhere = TurnState("", place, [], 0.0)
        return (await self._look(nowhere, find_dialect([], place.dialect), [])).ledger

    def drop_recalls(self, space: str) -> None:
        """What was recalled from a space before something was forgotten there is not handed over any more (M2)."""
        carried, current = self.recalls.carried, self.current
        if space != self._key.space and (current is None or space not in current.place.reads):
            return
        self._typing.drop("forgotten")
        self.sight.drop_texts()
        if carried is not None and carried.question is not None and space in carried.question.place.reads:
            self.recalls.drop_carried("forgotten")
        if current is not None and space in current.place.reads:
            self.recalls.stop_all(current, Outcome.CANCELLED, "forgotten")
            current.recalled, current.texts = (), []
            current.dropped = ()

    def emit(self, name: str, state: TurnState, **data: Scalar) -> None:
        self.emit_here(name, turn=state.id, **data)

    def emit_here(self, name: str, *, turn: str = "", **data: Scalar) -> None:
        self._parts.events.emit(name, space=self._key.space, conversation=self._key.id, turn=turn, **data)


def _begin_at(state: TurnState, messages: Sequence[object], at: int, said: str) -> None:
    """Where the turn begins in the host's list, by place, by object and by content: hosts rebuild theirs."""
    state.user_hash, state.user_index, state.user_element = content_hash(said), at, messages[at]
