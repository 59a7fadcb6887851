"""Compactions and resets of a host's context: finds what is left of it, and reviews what a compaction removes."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from afterturn.conversation.delivery import HostTurn, LoopTurn, Prefetch, positions_of
from afterturn.conversation.read_turn import Ledger, TurnReading, exclude_visible
from afterturn.conversation.scope import ConversationScope, StandingDelivery
from afterturn.conversation.tools import holds_answer
from afterturn.dialects.dialect import Dialect
from afterturn.dialects.history import DIALECTS, any_untrusted, curated, find_dialect, read_exchange
from afterturn.errors import AfterturnError, ConfigError, InvalidInput
from afterturn.guard.output_filter import SNAPSHOT_TAG
from afterturn.guard.pasted import has_pasted
from afterturn.learning.scheduling import ScheduledReview, join_or_schedule
from afterturn.learning.snapshot import MESSAGES_MAX, snapshot_messages, with_sources
from afterturn.log import logger
from afterturn.models.meter import MODEL_TIMEOUT
from afterturn.ports import Unit
from afterturn.recall.block import spoken_words
from afterturn.recall.features import shows_report
from afterturn.types import (
    BlockRow,
    HandoverPoint,
    Message,
    Origin,
    Outcome,
    Purpose,
    RecallCause,
    ReviewKind,
    ReviewMessage,
    ReviewRow,
    Scope,
    Taint,
)

if TYPE_CHECKING:
    from afterturn.conversation.compactor import Compacted
    from afterturn.conversation.engine import ConversationEngine
    from afterturn.services import Services


@dataclass(frozen=True, slots=True)
class CompactedMessages:
    """A host's list after a compaction, and the hashes of this turn's blocks that had been handed over by then.

    `dialect` is None if it is not detected yet.
    """

    messages: list[object]
    handed_over: frozenset[str]
    dialect: Dialect | None = None


class Compactions:
    """Those of one conversation. `note`, `review`, `examine` and `reset` are called by hosts, on any thread; everything
    else runs on memory's loop."""

    def __init__(self, services: Services, engine: ConversationEngine) -> None:
        self._services, self._engine = services, engine
        self._visible, self._log, self._prefetcher = engine.visible, engine.log, engine.prefetcher

    def note(self, scope: ConversationScope, messages: Sequence[object] | None, dialect: Dialect | None = None) -> None:
        """The host's context was compacted; `messages` are what is left of it, if the host shows them."""
        self._prefetcher.withhold()
        turn, before = self._engine.newest, self._visible.copy()
        if turn is None or turn.loop.left:
            self._engine.post(self._note, scope, None, before)
        elif messages is None and not turn.scope.is_hidden:
            # The list that the host shows next is the one that is left.
            turn.shared.expect_compaction()
            self._engine.post(self._note, scope, turn.loop, before)
        else:
            shown = None if messages is None or turn.scope.is_hidden else list(messages)
            self.examine(turn, shown, dialect, "reported")

    def review(self, scope: ConversationScope, messages: Sequence[object], dialect: Dialect | None = None) -> None:
        """A compaction was decided: what it removes is reviewed first."""
        if self._services.has_store and self._services.config.review_compaction:
            self._engine.post(self._review, scope, list(messages), dialect)

    def reset(self, scope: ConversationScope) -> None:
        self._prefetcher.withhold()
        self._engine.post(self._reset, scope)

    async def compact(self, scope: ConversationScope, messages: list[object], limit_tokens: int | None) -> Compacted:
        """Summarises the older part of a history that has grown too long. ConfigError without a model or a limit."""
        services, limit = self._services, limit_tokens or self._services.config.window_tokens
        if services.compaction_model is None or limit is None:
            raise ConfigError(
                "Compaction needs a model and its limit. Pass `model=` to `open`, or set model_url; and pass "
                "`limit_tokens=`, or set window_tokens."
            )
        model = services.meter.of(services.compaction_model, Purpose.COMPACTION, scope.tenant, scope.owner)
        dialect = find_dialect(messages, scope.dialect)
        if dialect is None:
            raise InvalidInput(f"The message format is not known. Use one of: {', '.join(DIALECTS)}.")
        from afterturn.conversation.compactor import block_facts, compact

        known = self._engine.visible.blocks
        done = await compact(
            model,
            dialect,
            messages,
            limit_tokens=limit,
            facts=lambda part: block_facts(dialect, part, known),
            within=MODEL_TIMEOUT,
            on_thread=self._services.file_reads.run,
        )
        self._engine.emit(
            "history_compacted",
            reason=done.reason,
            before=len(messages),
            after=len(done.messages),
            tokens_before=done.tokens_before,
            tokens_after=done.tokens_after,
        )
        if done.changed:
            self.review(scope, messages, dialect)
            self.note(scope, done.messages, dialect)
        return done

    def examine(self, turn: HostTurn, messages: list[object] | None, dialect: Dialect | None, how: str) -> None:
        """Nothing is handed over until it is known what is left. `how` is blank if the compaction was reported before.

        The new recall is added here, on the host's thread, so that the very next hand-over waits for it.
        """
        left = None
        if messages is not None:
            left = CompactedMessages(messages, frozenset(row.hash for row in turn.shared.blocks), dialect)
        self._engine.slot.hold(turn.shared)
        prefetch = self._engine.new_prefetch(RecallCause.COMPACTION, turn.id, epoch=turn.shared.current.epoch)
        turn.shared.add_prefetch(prefetch)
        self._engine.post(self._start_examination, turn.loop, prefetch, left, how)

    def _review(self, scope: ConversationScope, messages: list[object], dialect: Dialect | None) -> None:
        services, turn = self._services, self._engine.current
        if scope.incognito or self._engine.is_incognito():
            return
        is_tainted = turn is not None and (turn.shared.taint is not None or any(map(shows_report, turn.recalled)))
        task = services.supervisor.start(
            _schedule_review(services, scope, messages, dialect, self._engine.visible.blocks, is_tainted=is_tainted),
            f"review compaction of {scope.id}",
        )
        services.recorder.expect(task)
        task.add_done_callback(lambda _: services.wake_jobs())

    def _note(self, scope: ConversationScope, turn: LoopTurn | None, before: Mapping[str, BlockRow]) -> None:
        """A compaction was reported between turns, or in a `turn` whose host has not shown what is left of its list.

        Of the blocks, it removed those that were there `before`; the host may have taken another one since.
        """
        self._apply("reported")
        at = {row.hash: (row.turn, row.injected_at) for row in before.values()}
        since = {row.hash for row in self._visible.copy().values() if at.get(row.hash) != (row.turn, row.injected_at)}
        self._clear_visible(scope, turn, still=since)

    def _start_examination(self, turn: LoopTurn, prefetch: Prefetch, left: CompactedMessages | None, how: str) -> None:
        turn.compactions += 1
        task = self._services.supervisor.start(
            self._examine(turn, prefetch, left, how, turn.compactions), f"compaction in turn {turn.id}"
        )
        task.add_done_callback(lambda _: self._end_examination(turn, prefetch))

    async def _examine(
        self, turn: LoopTurn, prefetch: Prefetch, left: CompactedMessages | None, how: str, number: int
    ) -> None:
        """Finds what the model still sees, and asks again. Of several compactions at once, the newest asks."""
        # The list that the turn began with may still be being read.
        await turn.shared.opened.wait(within=self._services.config.recall_timeout)
        # Seen first, and then reported: one compaction, which was examined when it was seen.
        is_known = how == "reported" and turn.is_seen
        turn.is_seen = how == "seen"
        if is_known:
            return
        if how:
            self._apply(how)
        if not self._services.has_store:
            return
        if left is None:
            self._clear_visible(turn.scope, turn)
            await self._engine.offer_standing(turn, is_visible=False, after_compaction=True)
        elif not await self._read_left(turn, left, number):
            return
        if number == turn.compactions:
            self._ask_again(turn, prefetch)

    def _end_examination(self, turn: LoopTurn, prefetch: Prefetch) -> None:
        if prefetch.task is None:
            prefetch.release_waiters()
        self._prefetcher.release(turn)

    def _apply(self, how: str) -> None:
        turn = self._engine.current
        turn = None if turn is None or turn.left else turn
        self._engine.emit("compacted", turn=turn.id if turn else "", how=how)
        self._prefetcher.drop_carried("compaction")
        self._renew_standing("compaction")
        if turn is not None and turn.carried is not None:
            self._prefetcher.stop(turn.carried, Outcome.UNDELIVERED, "compaction")

    def _renew_standing(self, reason: str) -> None:
        # One that turns bring is made again when it is next needed.
        standing = self._engine.standing
        if standing is not None and self._engine.find_delivery(standing.scope) is StandingDelivery.SYSTEM:
            self._services.supervisor.start(standing.invalidate(reason), f"standing context after a {reason}")

    def _reset(self, scope: ConversationScope) -> None:
        self._engine.speculation.drop("reset")
        self._prefetcher.drop_carried("reset")
        if (current := self._engine.current) is not None:
            self._prefetcher.stop_all(current, Outcome.CANCELLED, "reset")
            current.ledger = Ledger()
            current.shared.clear_blocks()
        self._visible.clear()
        self._log.clear(scope, compacted=True)
        self._renew_standing("reset")
        self._engine.emit("conversation_reset")

    def _clear_visible(self, scope: ConversationScope, turn: LoopTurn | None, *, still: Collection[str] = ()) -> None:
        """The host does not show what is left, so we assume that only the newest messages and blocks are."""
        self._engine.dialects.clear()
        self._log.clear(scope, compacted=True, still=self._visible.clear(still=still))
        if turn is not None:
            since = self._services.clock.now() if scope.is_hidden else None
            turn.ledger = turn.ledger._replace(refs=frozenset(), size_bytes=0, seen_since=since, standing=None)
            turn.gone = _removable(turn)

    async def _read_left(self, turn: LoopTurn, left: CompactedMessages, number: int) -> bool:
        """Whether the list was read, and no later compaction is being examined."""
        dialect = left.dialect or find_dialect(left.messages, turn.scope.dialect) or turn.dialect
        if dialect is None:
            return False
        try:
            reading = await self._engine.read(turn, dialect, left.messages)
        except AfterturnError as error:
            logger.warning("a compacted history could not be read from the store; it will be read again: %s", error)
            turn.shared.expect_compaction()
            return False
        if number != turn.compactions:
            return False
        self._visible.add(reading.blocks.values())
        if reading.is_tainted:
            self._engine.mark_tainted(turn.shared, Taint.EARLIER)
        # Blocks that were handed over after the list was copied are in it too.
        known = left.handed_over.union(reading.indexes)
        since = [row for row in turn.shared.blocks if row.hash not in known]
        turn.ledger = reading.ledger.with_blocks(since)
        lost = tuple(row for row in reading.lost if row not in since)
        self._remove_lost(turn, reading._replace(lost=lost))
        self._visible.add(since)
        turn.shared.apply_compaction(positions_of(reading.indexes, left.messages), {row.hash for row in lost})
        turn.gone = _removable(turn).intersection(row.hash for row in lost)
        is_visible = reading.sees_standing or any(row.point == HandoverPoint.STANDING for row in since)
        await self._engine.offer_standing(turn, is_visible=is_visible, after_compaction=True)
        return True

    def note_seen(self, turn: LoopTurn, reading: TurnReading) -> None:
        """A turn began with a list that lacks blocks and the messages around them."""
        turn.is_seen = True
        self._engine.emit("compacted", turn=turn.id, how="seen")
        self._renew_standing("compaction")
        if turn.carried is not None:
            self._prefetcher.stop(turn.carried, Outcome.UNDELIVERED, "compaction")
        self._remove_lost(turn, reading)

    def _remove_lost(self, turn: LoopTurn, reading: TurnReading) -> None:
        """Blocks are gone together with the messages around them: compacted, rewound, edited. The others stay."""
        gone = {row.hash for row in reading.lost}
        staying = [row.hash for row in reading.blocks.values() if row.in_sight and row.hash not in gone]
        still = self._visible.clear(still=staying)
        self._log.clear(turn.scope, compacted=True, still=still)

    def _ask_again(self, turn: LoopTurn, prefetch: Prefetch) -> None:
        """One more query in the same epoch, counted separately; none if the store has failed in this epoch."""
        if self._engine.current is not turn or turn.left:
            return
        if prefetch.fast.consumed:
            if prefetch.fast.outcome is not Outcome.SUPERSEDED:
                return
            # The user has said something new meanwhile, which may have been asked with the old exclusions.
            prefetch = self._engine.new_prefetch(RecallCause.COMPACTION, turn.id, epoch=turn.shared.current.epoch)
        earlier = [one for one in turn.shared.prefetches if one is not prefetch]
        asked = [one for one in earlier if one.epoch == prefetch.epoch and one.question is not None]
        has_failed = any(one.fast.outcome is Outcome.DEGRADED for one in asked)
        if not asked or has_failed:
            return
        # Blocks that a host has as text stay in every prompt of the turn, also after a compaction.
        blocks = turn.shared.blocks
        written = frozenset(ref for row in blocks if row.point == HandoverPoint.PROMPT for ref in row.refs)
        kept = self._prefetcher.taken_refs(turn) | written
        ledger = turn.ledger._replace(refs=turn.ledger.refs | kept, shown_this_turn=kept)
        last = asked[-1]
        assert last.question is not None
        question = exclude_visible(last.question, turn.scope, ledger)
        if not last.asked and not last.fast.consumed:
            # It waits for what was asked while the user was typing, which may miss what was visible then.
            last.question = question
            self._engine.speculation.drop("compaction")
            return
        if prefetch not in turn.shared.prefetches:
            # Added first, so that a host that waits for an older one then waits for this one.
            turn.shared.add_prefetch(prefetch)
        for older in earlier:
            self._prefetcher.stop(older, Outcome.SUPERSEDED, "compaction")
        prefetch.task = self._services.supervisor.start(
            self._prefetcher.run(turn, prefetch, question),
            f"recall after a compaction in turn {turn.id}",
        )
        prefetch.task.add_done_callback(lambda _: self._engine.task_ended(prefetch))


def _removable(turn: LoopTurn) -> frozenset[str]:
    """The hashes of this turn's blocks that a compaction can remove: not those that a host has as text."""
    return frozenset(row.hash for row in turn.shared.blocks if row.point != HandoverPoint.PROMPT)


async def _schedule_review(
    services: Services,
    scope: ConversationScope,
    messages: Sequence[object],
    dialect: Dialect | None,
    blocks: Collection[str],
    *,
    is_tainted: bool,
) -> None:
    """Schedules a review of `messages`, never for a sub-agent. A failure is logged and does not stop the compaction.

    `blocks` are the hashes of our own blocks. Without `dialect` the format is detected. `is_tainted`: the turn that is
    open now is tainted.
    """
    if scope.subagent:
        return
    dialect = dialect or find_dialect(messages, scope.dialect)
    if dialect is None:
        logger.warning("conversation %r: the format of the compacted messages is unknown", scope.id)
        return
    strip = functools.partial(spoken_words, known_hashes=blocks)
    exchanged = read_exchange(dialect, curated(dialect, messages), 0, strip).messages
    at = services.clock.now()
    redact = services.gate.redact
    to_review = snapshot_messages(
        [
            replace(message, text=redact(message.text).text, speaker=redact(message.speaker).text)
            for message in exchanged
            if not _is_ours(message)
        ],
        at,
        is_tainted=is_tainted
        or any_untrusted(map(dialect.read, messages))
        or any(message.role == "user" and has_pasted(message.text) for message in exchanged),
    )
    review_id = services.ids.new()
    try:
        scheduled = await services.store.write(
            lambda unit: _store_review(unit, scope, to_review, review_id, at), at=Scope(scope.tenant, (scope.owner,))
        )
    except AfterturnError as error:
        logger.warning("conversation %r: the compacted messages are not reviewed: %r", scope.id, error)
        return
    if scheduled is not None:
        services.events.emit(
            "review_scheduled",
            space=scope.owner,
            conversation=scope.id,
            review=scheduled.review,
            kind=scheduled.kind.value,
            messages=scheduled.messages,
        )


def _store_review(
    unit: Unit, scope: ConversationScope, to_review: Sequence[ReviewMessage], review_id: str, at: float
) -> ScheduledReview | None:
    """None when earlier reviews have read all of the messages, or some of them may be of an incognito turn."""
    state = unit.conversations.state(scope.key)
    if state.incognito or state.had_incognito:
        return None
    if unit.conversations.is_tainted(scope.key):
        to_review = [
            replace(message, trust=min(message.trust, Origin.TOOL.trust)) if message.role == "assistant" else message
            for message in to_review
        ]
    _, since = unit.reviews.unreviewed(scope.key)
    records = unit.records.of_conversation(Scope(scope.tenant, (scope.writes,)), scope.id, limit=MESSAGES_MAX)
    reviewed = {record.id for record in records if (record.position or 0) < since}
    messages = [
        replace(message, fresh=message.source not in reviewed)
        for message in with_sources(unit, scope.key, scope.writes, to_review)
    ]
    if not any(message.fresh for message in messages):
        return None
    review = ReviewRow(
        id=review_id,
        kind=ReviewKind.COMPACTION,
        tenant=scope.tenant,
        space=scope.owner,
        writes=scope.writes,
        created_at=at,
        conversation=scope.id,
        reads=scope.reads,
        agent=scope.agent,
        project=scope.project,
        environment=scope.environment,
        forgets=unit.conversations.forgets(scope.tenant),
    )
    return join_or_schedule(unit, review, messages)


def _is_ours(message: Message) -> bool:
    """Answers of memory's tools, and summaries of earlier compactions, which a model wrote as the user."""
    return (message.role == "tool" and holds_answer(message.text)) or f"<{SNAPSHOT_TAG}>" in message.text
