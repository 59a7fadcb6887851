"""What a compaction is about to take away is reviewed first (V9). Nobody waits for it."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Collection, Iterable, MutableSequence, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from afterturn.config import Config
from afterturn.conversation.conversation_log import ConversationLog
from afterturn.conversation.delivery import DeliverySlot, Injection
from afterturn.conversation.finished_turn import NO_FINAL_ANSWER, SWITCHED_OFF, recording_of
from afterturn.conversation.ledger import Ledger
from afterturn.conversation.prefetch import PhaseState, Prefetch
from afterturn.conversation.prefetcher import Prefetcher
from afterturn.conversation.read_turn import (
    RecallQuestion,
    ShownMessages,
    TurnReading,
    no_recall,
    question_for,
    read_turn,
)
from afterturn.conversation.scope import ConversationScope
from afterturn.conversation.speculation import SpeculativeRecalls
from afterturn.conversation.standing import StandingCore
from afterturn.conversation.subagents import Subagents
from afterturn.conversation.tools import holds_answer
from afterturn.conversation.trace_reader import TraceReader
from afterturn.conversation.turn_state import TurnState
from afterturn.conversation.visible import VisibleBlocks, is_whole
from afterturn.dialects.detection import DIALECTS, find_dialect
from afterturn.dialects.dialect import Dialect
from afterturn.dialects.history import curated, exchange_from, latest_user
from afterturn.errors import (
    AfterturnError,
    ConfigError,
    Conflict,
    DeadlineExceeded,
    InvalidInput,
    InvalidName,
    NotFound,
)
from afterturn.events import Events
from afterturn.guard.secrets import redact
from afterturn.learning.scheduling import ScheduledReview, join_or_schedule
from afterturn.learning.snapshot import MESSAGES_MAX, snapshot_messages, with_sources
from afterturn.ports import ChatModel, Clock, Ids, Store, Unit
from afterturn.prompt.compaction import TAG as SNAPSHOT_TAG
from afterturn.prompt.compaction import (
    Compacted,
    CompactionReason,
    apply_summary,
    block_facts,
    prepare_summary,
    summarise,
    untouched,
)
from afterturn.recall.block import block_hash, strip_blocks
from afterturn.text import content_hash
from afterturn.types import (
    BlockRow,
    ConversationKey,
    HandoverPoint,
    Message,
    Outcome,
    RecallCause,
    ReviewKind,
    ReviewMessage,
    ReviewRow,
    Scalar,
    Scope,
    TurnRow,
    TurnStatus,
)
from afterturn.validation import check_name

if TYPE_CHECKING:
    from afterturn.services import Services

logger = logging.getLogger("afterturn")


@dataclass(frozen=True, slots=True)
class CompactionReview:
    """Lives on memory's loop. Does nothing unless it is switched on, and for a sub-agent never (V1)."""

    store: Store
    config: Config
    clock: Clock
    ids: Ids
    events: Events

    async def review(self, place: ConversationScope, messages: Sequence[object], blocks: Collection[str]) -> None:
        """Schedules a review of `messages`. What can not be read or stored is logged, and the compaction goes on."""
        if not self.config.review_compaction or place.subagent:
            return
        dialect = find_dialect(messages, place.dialect)
        if dialect is None:
            logger.warning("conversation %r: what is compacted is in no format that memory reads", place.id)
            return
        strip = functools.partial(strip_blocks, known_hashes=blocks)
        said = exchange_from(dialect, curated(dialect, messages), 0, strip).messages
        at = self.clock.now()
        snapped = snapshot_messages([self._clean(one) for one in said if not _is_ours(one)], at)
        review_id = self.ids.new()
        try:
            done = await self.store.write(lambda unit: _schedule(unit, place, snapped, review_id, at))
        except AfterturnError as error:
            logger.warning("conversation %r: what is compacted is not reviewed: %r", place.id, error)
            return
        if done is not None:
            self.events.emit(
                "review_scheduled",
                space=place.owner,
                conversation=place.id,
                review=done.review,
                kind=done.kind.value,
                messages=done.messages,
            )

    def _clean(self, message: Message) -> Message:
        """No secret waits in a review (G1)."""
        if not self.config.scanning:
            return message
        return replace(message, text=redact(message.text).text, speaker=redact(message.speaker).text)


def _schedule(
    unit: Unit, place: ConversationScope, snapped: Sequence[ReviewMessage], review_id: str, at: float
) -> ScheduledReview | None:
    forgets = unit.conversations.forgets(place.tenant, place.owner)
    _, since = unit.reviews.unreviewed(place.key)
    read = _read_before(unit, place, since)
    messages = [
        replace(message, fresh=message.source not in read)
        for message in with_sources(unit, place.key, place.writes, snapped)
    ]
    if not any(message.fresh for message in messages):
        return None
    review = ReviewRow(
        id=review_id,
        kind=ReviewKind.COMPACTION,
        tenant=place.tenant,
        space=place.owner,
        writes=place.writes,
        created_at=at,
        conversation=place.id,
        reads=place.reads,
        agent=place.agent,
        project=place.project,
        forgets=forgets,
    )
    return join_or_schedule(unit, review, messages)


def _read_before(unit: Unit, place: ConversationScope, since: int) -> set[str | None]:
    """The records that a review has read already."""
    records = unit.records.of_conversation(Scope(place.tenant, (place.writes,)), place.id, limit=MESSAGES_MAX)
    return {record.id for record in records if (record.position or 0) < since}


def _is_ours(message: Message) -> bool:
    """What memory answered a tool, and summaries of earlier compactions, which a model wrote in a user's place."""
    return (message.role == "tool" and holds_answer(message.text)) or f"<{SNAPSHOT_TAG}>" in message.text


# What is said and seen in the turns of one conversation: each new thing that is said is an epoch with its recall (R1).
#
# Lives on memory's loop; `conversation` is what hosts call.
# Good enough for a warning; English has about four letters a token.
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class CompactedMessages:
    """What a compaction has left of a host's messages, and which blocks of the turn had been handed over by then."""

    messages: list[object]
    handed_over: frozenset[str]


class Epochs:
    """`current` is the turn that owns recall; an earlier one that is still open is recorded when it ends (R3)."""

    def __init__(self, parts: Services, key: ConversationKey, books: ConversationLog, keeper: object) -> None:
        self._parts = parts
        # While something runs here its conversation lives, so that whoever opens it again finds this one (R3).
        self._keeper = keeper
        self._key = key
        self._books = books
        self.desk = DeliverySlot()
        self.sight = VisibleBlocks()
        self.recalls = Prefetcher(parts.recall_client, books, parts.events, self.desk, self.sight)
        self._typing = SpeculativeRecalls(
            parts.recall_client, parts.supervisor, parts.ids, self._ledger_of, self.emit_here
        )
        self.current: TurnState | None = None
        self.standing: StandingCore | None = None

    # A turn's beginning.

    def own(self, state: TurnState) -> None:
        """From now on recall is this turn's (R3)."""
        earlier, self.current = self.current, state
        if earlier is not None:
            state.carried = self.recalls.take_over(earlier)
        self.desk.open_for(state)

    def new_prefetch(self, cause: RecallCause, turn: str, *, epoch: int) -> Prefetch:
        """From any thread."""
        return Prefetch(self._parts.ids.new(), cause, turn=turn, epoch=epoch, phases=self._parts.recall_client.phases)

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
            if run.stage is PhaseState.ASKED and prefetch.asked:
                self.recalls.end(run, Outcome.CANCELLED, "shutdown")
            # What is ready and held back is waited for until it is known what a compaction left.
            if run.stage is not PhaseState.READY:
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
        if not self._parts.has_store:
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
        logger.warning("the store could not be read; the turn continues without recall: %s", error)
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
    ) -> TurnReading:
        """On a reader's thread: a long list takes a while to read, and other conversations share this loop."""
        assert dialect is not None
        await self._books.cleared()
        place, config = state.place, self._parts.config
        carried = tuple(hit for run in state.carried.runs for hit in run.hits) if state.carried else None
        known, unstored = dict(self.sight.blocks), self.sight.unstored
        shown = ShownMessages(dialect, messages, known, self._parts.clock.now(), carried, turn, unstored)
        try:
            async with asyncio.timeout(config.recall_timeout):
                return await self._parts.store.read(lambda unit: read_turn(unit, shown, place, config))
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"The store did not answer within {config.recall_timeout:g} seconds. The turn continues without it."
            ) from error

    def _take_in(self, state: TurnState, reading: TurnReading) -> None:
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
            question = RecallQuestion(reading.carried.question, state.place, reading.ledger)
            state.carried = self.recalls.adopt(reading.carried, reading.carried_hits, question)

    async def _recall(self, state: TurnState, prefetch: Prefetch, question: RecallQuestion) -> None:
        prepared = await self._typing.take(prefetch, question) if prefetch.cause is RecallCause.MESSAGE else None
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
        if not self._parts.has_store or state.dialect is None or prefetch.fast.consumed:
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
        if messages is None or dialect is None or not self._parts.has_store:
            return ""
        try:
            async with asyncio.timeout(self._parts.config.recall_timeout):
                self._take_in(state, await self._look(state, dialect, messages))
        except (AfterturnError, TimeoutError) as error:
            return type(error).__name__
        state.opening = None
        return ""

    def delivered(self, state: TurnState, parcel: Injection, rows: list[BlockRow]) -> None:
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
        self._parts.recall_client.rest()
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

    def left_over(self, messages: Iterable[object]) -> CompactedMessages:
        """From any thread, when a compaction is told or seen."""
        state = self.current
        return CompactedMessages(
            list(messages), frozenset(row.hash for row in list(state.blocks)) if state else frozenset()
        )

    def compacted(self, place: ConversationScope, left: CompactedMessages | None, how: str) -> None:
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

    def _compacted(self, place: ConversationScope, left: CompactedMessages | None, how: str) -> None:
        state = self.current if self.current is not None and not self.current.left else None
        self.emit_here("compacted", turn=state.id if state else "", how=how)
        self.recalls.drop_carried("compaction")
        self._renew_standing("compaction")
        if state is not None and state.carried is not None:
            self.recalls.stop(state.carried, Outcome.UNDELIVERED, "compaction")
        if state is None or left is None or not self._parts.has_store:
            self._cleared(place, state)
            return
        self.recalls.hold(state)
        looking = self._parts.supervisor.start(self._look_again(state, left), f"compaction in turn {state.id}")
        looking.add_done_callback(lambda _: self.recalls.release(state))

    def _renew_standing(self, reason: str) -> None:
        if self.standing is not None:
            self._parts.supervisor.start(self.standing.invalidate(reason), f"standing context after a {reason}")

    def _cleared(self, place: ConversationScope, state: TurnState | None) -> None:
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

    async def _look_again(self, state: TurnState, left: CompactedMessages) -> None:
        messages = left.messages
        dialect = find_dialect(messages, state.place.dialect) or state.dialect
        if dialect is None:
            return
        try:
            reading = await self._look(state, dialect, messages)
        except AfterturnError as error:
            logger.warning("a compacted history could not be read from the store; it will be read again: %s", error)
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

    def _lost(self, state: TurnState, reading: TurnReading) -> None:
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
        prefetch = self.new_prefetch(RecallCause.COMPACTION, state.id, epoch=epoch)
        # First: a host that waits for an older one goes on to wait for this one.
        state.prefetches.append(prefetch)
        for older in state.prefetches[:-1]:
            self.recalls.stop(older, Outcome.SUPERSEDED, "compaction")
        # What a host has as text stays in every prompt of the turn, whatever was compacted (H8).
        written = frozenset(ref for row in state.blocks if row.point == HandoverPoint.PROMPT for ref in row.refs)
        kept = self.recalls.in_hand(state) | written
        fresh = replace(question, ledger=replace(state.ledger, refs=state.ledger.refs | kept, kept=kept))
        prefetch.task = self._parts.supervisor.start(
            self.recalls.run(state, prefetch, fresh), f"recall after a compaction in turn {state.id}"
        )
        prefetch.task.add_done_callback(lambda _: self._ran(prefetch))

    def reset(self, place: ConversationScope) -> None:
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

    def expect(self, place: ConversationScope, text: str) -> None:
        if self._parts.has_store:
            self._typing.expect(place, text)

    async def _ledger_of(self, place: ConversationScope) -> Ledger:
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


# One thread of messages: starts turns and their epochs, reads what the host shows, hands finished turns on.
#
# It lives on memory's loop, but for what hosts call from any thread, which posts.
M = TypeVar("M")
P = ParamSpec("P")

# Of the time for closing: how long a turn that was left may take to be read, at each of two steps.
READING_SHARE = 0.25


class ConversationCore:
    """One per conversation and memory. Each turn brings its own `ConversationScope`."""

    def __init__(self, parts: Services, key: ConversationKey) -> None:
        self._parts = parts
        self.key = key
        self._books = ConversationLog(
            key,
            parts.store if parts.has_store else None,
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
    def desk(self) -> DeliverySlot:
        return self._epochs.desk

    @property
    def errands(self) -> Subagents:
        return self._parts.subagents

    @property
    def lookback(self) -> TraceReader:
        return TraceReader(self.key, self._parts.store if self._parts.has_store else None)

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
        self,
        place: ConversationScope,
        messages: Sequence[object],
        turn_id: str | None,
        speaker: str | None,
        *,
        recall: bool = True,
    ) -> TurnState:
        """Starts a turn and its recall. Does no I/O and parses nothing on the caller's path (R2)."""
        state = self._state(place, turn_id, speaker)
        if (carried := self._epochs.recalls.at_hand(place)) is not None:
            # For hosts that wait for nothing: their first point comes before anything could be read.
            self.desk.open_for(state, carried)
        self._parts.loop.post(functools.partial(self._start, state, list(messages), recall=recall))
        return state

    def say(self, state: TurnState, text: str, cause: RecallCause) -> None:
        """Something new in the middle of a turn: an epoch of its own (R1)."""
        if cause is RecallCause.CUE:
            if state.cues >= self._parts.config.cues_max:
                self._parts.loop.post(functools.partial(self._epochs.emit, "cue_refused", state, cues=state.cues))
                return
            state.cues += 1
        prefetch = self._epochs.new_prefetch(cause, state.id, epoch=state.epochs)
        state.prefetches.append(prefetch)
        self._parts.loop.post(self._epochs.say, state, prefetch, text)

    def expect(self, place: ConversationScope, text: str) -> None:
        """The user is typing (R9)."""
        self._parts.loop.post(self._epochs.expect, place, text)

    def compacted(self, place: ConversationScope, messages: Sequence[object] | None) -> None:
        """The host's context was compacted; `messages` are what is left of it, when the host shows them (H7)."""
        self._epochs.recalls.withhold()
        left = None if messages is None else self._epochs.left_over(messages)
        self._parts.loop.post(self._epochs.compacted, place, left, "told")

    def compacting(self, place: ConversationScope, messages: Sequence[object]) -> None:
        """A compaction was decided: what it takes away is reviewed first (V9)."""
        if self._parts.has_store and self._parts.config.review_compaction:
            self._parts.loop.post(self._review, place, list(messages))

    def reset(self, place: ConversationScope) -> None:
        self._epochs.recalls.withhold()
        self._parts.loop.post(self._epochs.reset, place)

    def stand(
        self, place: ConversationScope, roots: Iterable[str | os.PathLike[str]], instructions: Iterable[str]
    ) -> StandingCore:
        """The standing context from now on. InvalidInput for what is no folders or texts."""
        self._standing = self._epochs.standing = StandingCore(self._parts, place, roots, instructions)
        self._standing.owner = self
        return self._standing

    def has_nothing_for(self, state: TurnState, messages: Sequence[object]) -> bool:
        """Whether a hand-over would change nothing, at a glance: then nobody has to look for its place."""
        return self._standing is None and not self.desk.has_offer(state) and is_whole(state, messages)

    def take(self, state: TurnState) -> Injection | None:
        """What is to be handed over now, to the first who asks: context files that have arrived, and a block (H2)."""
        arrived = self._standing.take_arrived() if self._standing is not None else None
        offer = self.desk.take(state)
        return Injection(arrived, offer) if arrived or offer else None

    def delivered(self, state: TurnState, parcel: Injection, point: HandoverPoint, anchor: str) -> None:
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
        if self._parts.events.emit_once(event, conversation=self.key.id):
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

    async def compact(self, place: ConversationScope, messages: list[object], limit_tokens: int | None) -> Compacted:
        """Summarises the older part of a history that has grown too long (K1). ConfigError without model or limit."""
        model, limit = self._parts.recall_client.summariser(place), limit_tokens or self._parts.config.window_tokens
        if model is None or limit is None:
            raise ConfigError(
                "Compaction needs a model and its limit. Pass `model=` to `open`, or set model_url; and pass "
                "`limit_tokens=`, or set window_tokens."
            )
        dialect = find_dialect(messages, place.dialect)
        if dialect is None:
            raise InvalidInput(f"The message format is not known. Use one of: {', '.join(DIALECTS)}.")
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
        known, aside = self.known_blocks, self._parts.file_reads.run

        def facts(part: Sequence[object]) -> Sequence[str]:
            return block_facts(dialect, part, known)

        # Away from the loop that all conversations share: weighing a thousand messages takes longer than a grace.
        asked = await aside(lambda: prepare_summary(dialect, messages, limit_tokens=limit, facts=facts))
        if asked is None or isinstance(asked, Compacted):
            return asked or untouched(messages, CompactionReason.TIMEOUT)
        written = await summarise(model, asked.request, within=self._parts.config.model_timeout)
        done = await aside(lambda: apply_summary(dialect, messages, asked, written))
        return done or untouched(messages, CompactionReason.TIMEOUT)

    # On memory's loop: how turns begin.

    async def start_turn(
        self, place: ConversationScope, messages: list[object], turn_id: str | None, speaker: str | None
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
        if await state.read.wait(within=self._parts.config.recall_timeout) and self._parts.has_store:
            await state.stored.wait(within=self._parts.config.busy_timeout + 1.0)
        return state

    async def resume_turn(self, place: ConversationScope, turn_id: str) -> TurnState:
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
            raise Conflict(f"Turn {turn_id!r} is already {row.status}. Start a new one with another id.")

    def _state(self, place: ConversationScope, turn_id: str | None, speaker: str | None) -> TurnState:
        fresh, now = self._parts.ids.new(), self._parts.clock.now()
        named = _usable(turn_id, "turn id") or fresh
        first = Prefetch(fresh, RecallCause.MESSAGE, turn=named, epoch=0, phases=self._parts.recall_client.phases)
        known = self._parts.forgets.get(place.tenant, 0)
        return TurnState(named, place, [first], now, _usable(speaker, "speaker"), forgets_before=known)

    def _start(self, state: TurnState, messages: list[object], *, recall: bool = True) -> None:
        self._parts.recall_client.begin_turn(state)
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
        self._parts.open_turns.add(self)

    def _let_go(self, state: TurnState) -> None:
        self._open_turns.pop(state.id, None)
        if not self._open_turns:
            self._parts.open_turns.discard(self)

    def _review(self, place: ConversationScope, messages: list[object]) -> None:
        parts = self._parts
        work = CompactionReview(parts.store, parts.config, parts.clock, parts.ids, parts.events)
        task = parts.supervisor.start(work.review(place, messages, self.known_blocks), f"compacting {place.id}")
        parts.recorder.expect(task)
        task.add_done_callback(lambda _: parts.wake_jobs())

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
        self._parts.recall_client.end_turn(state)

    async def _record(self, state: TurnState, messages: list[object], *, completed: bool) -> None:
        if not self._parts.has_store:
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
        if reason == NO_FINAL_ANSWER and self._parts.events.is_first(NO_FINAL_ANSWER):
            logger.warning(
                "conversation %r: a turn was not recorded, because the message list that it was given does not end "
                "with the assistant's answer. Append the answer to that list. If you build a new list instead, such "
                "as `messages + [reply]`, pass it: turn.complete(messages).",
                self.key.id,
            )
        self._epochs.come_to_nothing(state)
        await self._books.end_turn(state, TurnStatus.ABORTED)

    @property
    def _reading_within(self) -> float:
        """Twice as long as this, closing must still have the time to keep the turn in a file (C4)."""
        return min(self._parts.config.recall_timeout, self._parts.config.close_timeout * READING_SHARE)

    async def _load_blocks(self, place: ConversationScope) -> None:
        """What we injected so far, by any process. A store that can not be read must not cost the turn (C4)."""
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
        self._parts.recall_client.end_turn(state)
        if self._parts.has_store:
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
        logger.warning("%s The turn continues without it.", error)
        return None
