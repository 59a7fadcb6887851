"""The engine of one conversation: begins turns and their epochs, reads what the host shows, records finished turns.

The path of a message: `begin_turn` (host) > `_open_turn` reads the list > `Prefetcher.run` recalls > `take` (host).
The path of a finished turn: `leave_turn` (host) > `_record` > `recorder.make_recording` > `Recorder.enqueue`.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Collection, Coroutine, Iterable, MutableSequence, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from afterturn.config import Config
from afterturn.conversation.compaction_review import review_compaction
from afterturn.conversation.conversation_log import ConversationLog
from afterturn.conversation.delivery import DeliverySlot, Injection, PhaseState, Prefetch
from afterturn.conversation.ledger import BlockPosition, Ledger
from afterturn.conversation.prefetcher import LATE_SECONDS, Prefetcher, Speculation
from afterturn.conversation.read_turn import (
    ShownMessages,
    TurnReading,
    exclude_visible,
    make_question,
    no_recall_reason,
    read_turn,
)
from afterturn.conversation.recall_queue import OVERLOAD, RecallShed, reason_of
from afterturn.conversation.recorder import INCOGNITO, NO_FINAL_ANSWER, SWITCHED_OFF, make_recording
from afterturn.conversation.recording import Recording, find_stored_taint
from afterturn.conversation.scope import ConversationScope, StandingDelivery, find_usable_name, is_private
from afterturn.conversation.standing import StandingCore
from afterturn.conversation.stored_conversation import StoredConversation
from afterturn.conversation.turn_state import HostTurn, LoopTurn, OpenedTurn, SharedTurn, TurnMessages
from afterturn.conversation.visible import VisibleBlocks, positions_of
from afterturn.dialects.detection import DIALECTS, find_dialect
from afterturn.dialects.dialect import CachedDialects, Dialect
from afterturn.dialects.history import find_latest_user
from afterturn.errors import AfterturnError, ConfigError, Conflict, DeadlineExceeded, InvalidInput, NotFound
from afterturn.guard.output_filter import STANDING_TAG
from afterturn.log import logger
from afterturn.models.meter import MODEL_TIMEOUT
from afterturn.ports import Clock
from afterturn.recall.block import spoken_words
from afterturn.recall.features import shows_report
from afterturn.recall.query import RecallRequest
from afterturn.text import content_hash
from afterturn.types import (
    BlockRow,
    ConversationKey,
    Entry,
    HandoverPoint,
    NoRecallReason,
    Outcome,
    Purpose,
    RecallCause,
    Scalar,
    Taint,
    TurnRow,
    TurnStatus,
)
from afterturn.validation import check_name, check_no_secret

if TYPE_CHECKING:
    from afterturn.conversation.compactor import Compacted
    from afterturn.services import Services

M = TypeVar("M")

# Good enough for a warning: English has about four letters a token.
_BYTES_PER_TOKEN = 4
# Above a tenth of the model's window, blocks crowd out the conversation.
_WINDOW_SHARE_MAX = 0.1
# A cue starts a recall; a host that gives more in one turn has a loop in it.
CUES_MAX = 4


@dataclass(frozen=True, slots=True)
class CompactedMessages:
    """A host's list after a compaction, and the hashes of this turn's blocks that had been handed over by then.

    `dialect` is None if it is not detected yet.
    """

    messages: list[object]
    handed_over: frozenset[str]
    dialect: Dialect | None = None


class ConversationEngine(StoredConversation):
    """One per conversation and open memory. Each turn brings its own `ConversationScope`.

    The first group of methods is called by hosts, on any thread: they copy what they need and post the rest. Everything
    else runs on memory's loop. `_current` is the turn that owns recall; an earlier one that is still open is recorded
    when it ends, but gets no block. Hosts read `_current` and set `_newest` and `_standing`: all are single references.
    """

    def __init__(self, services: Services, key: ConversationKey) -> None:
        super().__init__(services, key)
        self._slot = DeliverySlot()
        self._visible = VisibleBlocks()
        # The log refers to this engine: while it writes, the engine lives and is found again by its key.
        self._log = ConversationLog(services, key, self)
        self._prefetcher = Prefetcher(
            services.recall_client, services.recall_queue, self._log, services.events, self._slot, self._visible
        )
        self._speculation = Speculation(
            services.recall_client, services.supervisor, services.ids, self._read_hidden_ledger, self._emit
        )
        self._current: LoopTurn | None = None
        # The turn that a host began last; memory's loop may not have heard of it yet.
        self._newest: HostTurn | None = None
        # By id. None for a turn whose host began another one without leaving it: only its end is still to be stored.
        self._open_turns: dict[str, LoopTurn | None] = {}
        self._standing: StandingCore | None = None
        self._known_delivery: StandingDelivery | None = None
        # Counts forgets, so that a standing block that was made before one is not handed over.
        self._forgotten = 0
        # The model has seen memories that are not trusted, in the host's prompt or from a tool: its turns are tainted.
        self._has_untrusted = False
        self._has_read = False
        self.dialects = CachedDialects()

    @property
    def config(self) -> Config:
        return self._services.config

    @property
    def clock(self) -> Clock:
        return self._services.clock

    @property
    def known_blocks(self) -> Collection[str]:
        """The hashes of our own blocks."""
        return self._visible.blocks

    # ---------------------------------------------------------------- Called by the host, on any thread.

    def begin_turn(
        self,
        scope: ConversationScope,
        messages: Sequence[object],
        turn_id: str | None,
        speaker: str | None,
        *,
        recall: bool = True,
        incognito: bool = False,
    ) -> HostTurn:
        """Starts a turn and its recall. Does no I/O and parses nothing: one shallow copy, one post."""
        copied = list(messages)
        turn = self._newest = self._new_turn(scope, turn_id, speaker, messages=copied, incognito=incognito)
        if not self._services.recall_queue.admit():
            # Too many turns begin: this one gets no recall, and is recorded when it ends.
            turn.shared.opened.settle(None)
            turn.shared.stored.settle(False)
            turn.shared.first.release_waiters()
            self._post(self._emit, "turn_started", turn=turn.id, no_recall=NoRecallReason.OVERLOAD)
            return turn
        carried = self._prefetcher.find_at_hand(scope)
        if carried is not None or self._slot.has_standing(scope):
            # For hosts that never wait: their first step comes before anything could be read.
            self._slot.open_for(turn.shared, carried)
        self._post(self._begin, turn, copied, recall=recall)
        return turn

    def start_epoch(self, turn: HostTurn, text: str, cause: RecallCause) -> None:
        """Something new was said in the middle of a turn: it gets a recall of its own."""
        if cause is RecallCause.CUE:
            if turn.cues >= CUES_MAX:
                self._post(self._emit, "cue_refused", turn=turn.id, cues=turn.cues)
                return
            turn.cues += 1
        prefetch = self._new_prefetch(cause, turn.id, epoch=turn.shared.epochs)
        turn.shared.add_prefetch(prefetch)
        self._post(self._start_epoch, turn.loop, prefetch, text)

    def expect(self, scope: ConversationScope, text: str) -> None:
        """The user is typing `text`."""
        if self._services.has_store:
            self._post(self._speculation.start, scope, text)

    def note_compaction(
        self, scope: ConversationScope, messages: Sequence[object] | None, dialect: Dialect | None = None
    ) -> None:
        """The host's context was compacted; `messages` are what is left of it, if the host shows them."""
        self._prefetcher.withhold()
        turn = self._newest
        if turn is None or turn.loop.left:
            self._post(self._note_compaction, scope, None)
        elif messages is None and not turn.scope.is_hidden:
            # The list that the host shows next is the one that is left.
            turn.shared.expect_compaction()
            self._post(self._note_compaction, scope, turn.loop)
        else:
            shown = None if messages is None or turn.scope.is_hidden else list(messages)
            self._examine_compaction(turn, shown, dialect, "reported")

    def review_compaction(
        self, scope: ConversationScope, messages: Sequence[object], dialect: Dialect | None = None
    ) -> None:
        """A compaction was decided: what it removes is reviewed first."""
        if self._services.has_store and self.config.review_compaction:
            self._post(self._review_compaction, scope, list(messages), dialect)

    def reset(self, scope: ConversationScope) -> None:
        self._prefetcher.withhold()
        self._post(self._reset, scope)

    def make_standing(
        self, scope: ConversationScope, roots: Iterable[str | os.PathLike[str]], instructions: Iterable[str]
    ) -> StandingCore:
        """The standing context from now on. Raises InvalidInput if `roots` or `instructions` are not lists."""
        self._standing = StandingCore(self._services, scope, roots, instructions)
        self._standing.owner = self
        self._standing.on_untrusted = self.note_untrusted
        return self._standing

    def current_turn_id(self) -> str:
        """Blank between turns."""
        return "" if self._current is None or self._current.left else self._current.id

    def is_incognito(self) -> bool:
        """Whether the current turn is."""
        return self._current is not None and not self._current.left and self._current.shared.incognito

    def has_nothing_for(self, turn: HostTurn, messages: Sequence[object]) -> bool:
        """Whether a hand-over would change nothing. Cheap, so that most steps need not look for a place."""
        has_files = self._standing is not None and self._standing.has_arrived
        return not has_files and not self._slot.has_block(turn.shared) and turn.shared.is_intact(messages)

    def notice_compaction(self, turn: HostTurn, dialect: Dialect, messages: Sequence[object]) -> None:
        """Starts a new recall if blocks are gone for good, or if a compaction was announced whose result this is."""
        is_held = self._slot.is_held(turn.shared)
        is_lost = self._visible.find_lost(turn.shared, dialect, messages, is_compacting=is_held)
        is_expected = turn.shared.take_expected()
        if is_expected or is_lost:
            # While a compaction is being examined, a list that lacks blocks is its result.
            self._examine_compaction(turn, list(messages), dialect, "" if is_expected or is_held else "seen")

    def restore_blocks(self, turn: HostTurn, dialect: Dialect, messages: MutableSequence[M]) -> M | None:
        """Puts back blocks that a host dropped while it rebuilt its list. Returns the last element."""
        put_back = self._visible.restore(turn.shared, dialect, messages)
        if put_back:
            self._post(self._emit, "blocks_put_back", turn=turn.id, blocks=len(put_back))
        return put_back[-1] if put_back else None

    def take(self, turn: HostTurn) -> Injection | None:
        """Takes everything that is ready, for the first caller: the standing block, context files that have arrived,
        and a block."""
        files = self._standing.take_arrived() if self._standing is not None else None
        ready, standing = self._slot.take(turn.shared), self._slot.take_standing(turn.shared, turn.scope)
        return Injection(files, ready, standing) if files or ready or standing else None

    def note_delivery(self, turn: HostTurn, injection: Injection, point: HandoverPoint, anchor: str) -> list[BlockRow]:
        """An injection is being added to the host's messages. Called first, so that the block is known as ours."""
        rows = injection.rows(turn.id, self.clock.now(), point, anchor)
        self._visible.hand_over(rows)
        turn.shared.hand_over(rows)
        self._post(self._note_delivery, turn.loop, injection, rows)
        return rows

    def mark_tainted(self, turn: SharedTurn, taint: Taint) -> None:
        """Text of others has reached the assistant. Stored at once for a turn that another process may finish."""
        if turn.mark_tainted(taint) and turn.durable:
            self._post(self._log.taint_turn, turn, taint)

    async def is_clean(self, turn: HostTurn) -> bool:
        """Whether no text of others has reached the assistant, as far as this process and the store know."""
        await turn.shared.opened.wait(within=self.config.recall_timeout)
        if turn.loop.left or not turn.loop.is_read or turn.shared.taint is not None or not self._services.has_store:
            return False
        if any(map(shows_report, turn.loop.recalled)):
            return False
        shown = {ref for row in turn.shared.blocks for ref in row.refs}
        async with asyncio.timeout(self.config.recall_timeout):
            found = await self._services.store.read(
                lambda unit: find_stored_taint(unit, self.key, turn.scope.readable, shown), at=turn.scope.readable
            )
        # It may have been marked meanwhile.
        return found is None and turn.shared.taint is None

    def leave_turn(self, turn: HostTurn, messages: TurnMessages, *, completed: bool, failed: bool) -> None:
        """The host is done with the turn: memory's loop records it, or a file takes it if too many wait there."""
        recorder, is_added, reason = self._services.recorder, False, ""
        if failed and not completed:
            self._post(self._abort, turn.loop, "left_with_exception")
            return
        if not self._services.has_store or recorder.admit():
            self._post(self._leave, turn.loop, messages, completed=completed, admitted=self._services.has_store)
            return
        try:
            recording, reason = self._make_recording(replace(turn.loop), messages, completed=completed)
            is_added = recording is not None and recorder.append(recording)
        except Exception:  # the boundary: memory's loop tries it, and reports why it fails
            logger.exception("conversation %r: a turn cannot be added to a file", self.key.id)
        if is_added or reason:
            self._post(self._leave_added, turn.loop, reason)
        else:
            self._post(self._leave, turn.loop, messages, completed=completed, admitted=False)

    def abort_turn(self, turn: HostTurn, reason: str) -> None:
        self._post(self._abort, turn.loop, reason)

    def check(self) -> None:
        """Raises MemoryClosed or ForkedProcess when memory cannot do anything for a turn."""
        self._services.loop.check()

    def _post(self, method: object, /, *values: object, **options: object) -> None:
        assert callable(method)
        self._services.loop.post(functools.partial(method, *values, **options))

    def _examine_compaction(
        self, turn: HostTurn, messages: list[object] | None, dialect: Dialect | None, how: str
    ) -> None:
        """Nothing is handed over until it is known what is left. `how` is blank if the compaction was reported before.

        The new recall is added here, on the host's thread, so that the very next hand-over waits for it.
        """
        left = None
        if messages is not None:
            left = CompactedMessages(messages, frozenset(row.hash for row in turn.shared.blocks), dialect)
        self._slot.hold(turn.shared)
        prefetch = self._new_prefetch(RecallCause.COMPACTION, turn.id, epoch=turn.shared.current.epoch)
        turn.shared.add_prefetch(prefetch)
        self._post(self._start_examination, turn.loop, prefetch, left, how)

    def _new_prefetch(self, cause: RecallCause, turn: str, *, epoch: int) -> Prefetch:
        phases = self._services.recall_client.phases
        return Prefetch(self._services.ids.new(), cause, turn=turn, epoch=epoch, phases=phases)

    def _new_turn(
        self,
        scope: ConversationScope,
        turn_id: str | None,
        speaker: str | None,
        *,
        messages: list[object] | None = None,
        durable: bool = False,
        incognito: bool = False,
        resumed: TurnRow | None = None,
    ) -> HostTurn:
        first = self._new_prefetch(RecallCause.MESSAGE, "", epoch=0)
        first.turn = find_usable_name(turn_id, "turn id", scanning=self.config.scan_policy) or first.correlation
        started_at = self.clock.now() if resumed is None else resumed.started_at
        shared = SharedTurn(
            first.turn,
            scope,
            first,
            started_at,
            speaker=find_usable_name(speaker, "speaker", scanning=False),
            durable=durable,
            taint=None if resumed is None else resumed.taint,
            incognito=incognito or (resumed is not None and resumed.incognito),
        )
        loop = LoopTurn(
            shared,
            user_hash="" if resumed is None else resumed.user_hash,
            opening=messages,
            forgets_before=self._services.forgets.get(scope.tenant, 0),
        )
        began_at = BlockPosition(len(messages) - 1, messages[-1]) if messages else None
        return HostTurn(shared, loop, began_at, followed=began_at)

    # ---------------------------------------------------------------- A turn begins.

    async def start_turn(
        self,
        scope: ConversationScope,
        messages: list[object],
        turn_id: str | None,
        speaker: str | None,
        *,
        incognito: bool = False,
    ) -> HostTurn:
        """Like `begin_turn`, but returns when the turn is a stored row that another process can resume.

        A turn that is open already may be started again, by a host that retries: it gets the same one.
        """
        if turn_id is not None:
            check_no_secret(check_name(turn_id, "turn id"), "turn id", scanning=self.config.scan_policy)
            row = await self._log.find_turn(turn_id)
            self._check_open(turn_id, row)
            incognito = incognito or (row is not None and row.incognito)
        turn = self._new_turn(scope, turn_id, speaker, messages=messages, durable=True, incognito=incognito)
        self._newest = turn
        self._start(turn, messages)
        if await turn.shared.opened.wait(within=self.config.recall_timeout) and self._services.has_store:
            await turn.shared.stored.wait(within=self.config.busy_timeout + 1.0)
        return turn

    async def resume_turn(self, scope: ConversationScope, turn_id: str) -> HostTurn:
        """An open turn that this or another process started. Starts no recall, because nothing new was said.

        What was recalled for it and not handed over yet is offered, in whichever process that was.
        """
        check_name(turn_id, "turn id")
        row = await self._log.find_turn(turn_id)
        if row is None:
            raise NotFound(f"Conversation {self.key.id!r} has no turn {turn_id!r}. Start it with `start_turn`.")
        self._check_open(turn_id, row)
        self._log.touch_turn(turn_id)
        if self._current is not None and self._current.id == turn_id and not self._current.left:
            self._newest = HostTurn(self._current.shared, self._current)
            return self._newest
        turn = self._newest = self._new_turn(scope, turn_id, None, durable=True, resumed=row)
        self._own(turn.loop)
        dialect = find_dialect([], scope.dialect)
        assert dialect is not None
        await self._log.wait_cleared()
        reading = await self._read(turn.loop, dialect, [])
        self._take_in(turn.loop, reading)
        # No list was read yet.
        turn.loop.is_read = False
        turn.loop.forgets_before = reading.forgets
        turn.shared.set_prompt_texts(self._visible.prompt_texts(turn.id))
        self._prefetcher.offer(turn.loop)
        turn.shared.first.release_waiters()
        turn.shared.stored.settle(True)
        turn.shared.opened.settle(OpenedTurn(dialect, None, reading.forgets))
        return turn

    def _check_open(self, turn_id: str, row: TurnRow | None) -> None:
        if row is not None and row.status is not TurnStatus.OPEN:
            raise Conflict(f"Turn {turn_id!r} is already {row.status}. Start a new one with another id.")

    def _begin(self, turn: HostTurn, messages: list[object], *, recall: bool) -> None:
        self._services.recall_queue.arrive()
        self._start(turn, messages, recall=recall)

    def _start(self, turn: HostTurn, messages: list[object], *, recall: bool = True) -> None:
        self._services.recall_client.begin_turn(turn.shared, turn.loop.scope.readable)
        if (earlier := self._current) is not None and earlier.id in self._open_turns:
            # Its host began another turn without leaving it: its end is stored, its messages are not.
            self._open_turns[earlier.id] = None
            if earlier.shared.durable:
                self._remove_open(earlier)
        self._own(turn.loop)
        prefetch = turn.shared.first
        prefetch.task = self._services.supervisor.start(
            self._open_turn(turn.loop, messages, recall=recall), f"turn {turn.id}"
        )
        prefetch.task.add_done_callback(lambda _: self._opening_ended(turn.loop, prefetch))

    def _own(self, turn: LoopTurn) -> None:
        """From now on this turn owns recall. The engine is kept alive while a turn is open."""
        self._open_turns[turn.id] = turn
        self._services.open_turns.add(self)
        earlier, self._current = self._current, turn
        if earlier is not None:
            turn.carried = self._prefetcher.take_over(earlier)
        self._slot.open_for(turn.shared)

    def _remove_open(self, turn: LoopTurn) -> None:
        self._open_turns.pop(turn.id, None)
        if not self._open_turns:
            self._services.open_turns.discard(self)

    def _opening_ended(self, turn: LoopTurn, prefetch: Prefetch) -> None:
        self._task_ended(prefetch)
        if not turn.shared.opened.peek():
            turn.shared.stored.settle(False)
        turn.shared.opened.settle(None)

    def _task_ended(self, prefetch: Prefetch) -> None:
        """Ends the phases that have not settled, since nothing settles them any more."""
        for run in prefetch.runs:
            if run.state is PhaseState.ASKED and prefetch.asked:
                self._prefetcher.end(run, Outcome.CANCELLED, "shutdown")
            # A ready run may be held back by a compaction; its waiters are released when that is examined.
            if run.state is not PhaseState.READY:
                run.settled.settle(False)

    async def _open_turn(self, turn: LoopTurn, messages: list[object], *, recall: bool) -> None:
        """Reads the host's list, stores the turn, and recalls for its latest user message."""
        dialect = turn.dialect = find_dialect(messages, turn.scope.dialect)
        if dialect is None:
            logger.warning(
                "conversation %r: the format of its messages is unknown; the turn continues without memory. "
                "Known formats: %s.",
                self.key.id,
                ", ".join(DIALECTS),
            )
            self._emit("unknown_dialect", turn=turn.id)
            return
        if not self._services.has_store:
            turn.shared.opened.settle(OpenedTurn(dialect))
            return
        prefetch = turn.shared.first
        try:
            with self._prefetcher.late_after_timeout(prefetch):
                await self._log.wait_cleared()
                read = functools.partial(self._read, turn, dialect, messages, turn_id=turn.id, late=True)
                reading = await self._services.recall_queue.run(read)
        except (AfterturnError, RecallShed) as error:
            self._open_unread(turn, error)
            return
        if prefetch.is_late and (self._current is not turn or turn.compactions):
            return  # what was read is out of date
        if turn.shared.model_called:
            reading = reading.without_dropped()
        self._take_in(turn, reading)
        turn.forgets_before = reading.forgets
        turn.opening = None
        user = self._begin_at(turn, messages, *reading.user) if reading.user is not None else None
        turn.shared.read_positions(positions_of(reading.indexes, messages), reading.dropped, reading.chain)
        turn.shared.opened.settle(OpenedTurn(dialect, user, reading.forgets))
        question = reading.question
        self._emit("turn_started", turn=turn.id, no_recall=no_recall_reason(question, self.config))
        if prefetch.is_late and turn.left:
            turn.shared.stored.settle(False)  # its end may be stored already
        else:
            self._services.supervisor.start(self._log.store_turn(turn), f"store turn {turn.id}")
        if reading.lost:
            turn.is_seen = True
            self._emit("compacted", turn=turn.id, how="seen")
            self._renew_standing("compaction")
            if turn.carried is not None:
                self._prefetcher.stop(turn.carried, Outcome.UNDELIVERED, "compaction")
            self._remove_lost(turn, reading)
        self._prefetcher.offer(turn)
        is_given = any(row.point == HandoverPoint.STANDING for row in turn.shared.blocks)
        await self._offer_standing(turn, is_visible=reading.sees_standing or is_given, corrections=reading.corrections)
        if question is not None and recall and not prefetch.fast.consumed:
            await self._recall(turn, prefetch, question._replace(standing=turn.ledger.standing))

    async def _offer_standing(self, turn: LoopTurn, *, is_visible: bool, corrections: Sequence[Entry] = ()) -> None:
        """Lets the next hand-over bring the standing block, unless the model sees one or the host asks for it itself.

        It is made when the model sees none, and what the model sees is not changed: a block that has left the host's
        list comes back as it would be made now. If lines of one that the model sees were replaced, `corrections` are
        brought instead.
        """
        self._slot.put_standing(None, turn.scope)
        delivery, standing, forgotten = self._find_delivery(turn.scope), self._standing, self._forgotten
        if delivery is StandingDelivery.OFF:
            return
        if standing is None or standing.scope != turn.scope:
            standing = StandingCore(self._services, turn.scope)
        in_prompt = any(STANDING_TAG in text for text in turn.shared.prompt_texts)
        is_wanted = delivery is StandingDelivery.INJECT and not is_visible and not in_prompt
        try:
            made = await standing.offer(turn.ledger, corrections, is_wanted=is_wanted)
        except Exception:  # the boundary: what stands must not cost the turn its recall
            logger.exception("conversation %r: its standing block is not made", self.key.id)
            return
        turn.ledger = turn.ledger._replace(standing=made) if is_wanted else turn.ledger
        is_given = is_wanted and any(row.point == HandoverPoint.STANDING for row in turn.shared.blocks)
        if self._current is turn and forgotten == self._forgotten and not is_given:
            self._slot.put_standing(made, turn.scope)

    def _find_delivery(self, scope: ConversationScope) -> StandingDelivery:
        if scope.subagent or not self.config.standing:
            return StandingDelivery.OFF
        is_asked = self._standing is not None and self._standing.is_asked
        return (
            scope.standing or self._known_delivery or (StandingDelivery.SYSTEM if is_asked else StandingDelivery.INJECT)
        )

    def _open_unread(self, turn: LoopTurn, error: Exception) -> None:
        """A store that cannot be read degrades the recall, and is not asked again in this epoch."""
        logger.warning("a turn continues without recall: %s", error)
        text = self._find_user_text(turn)
        question = make_question(text, turn.scope, turn.ledger, self.config) if text is not None else None
        if question is not None and not turn.shared.first.fast.consumed:
            self._emit_epoch(turn, turn.shared.first)
            self._prefetcher.fail(turn, turn.shared.first, question, reason_of(error))

    def _find_user_text(self, turn: LoopTurn) -> str | None:
        """The user's text in a turn that could not be read, by the blocks that this process knows."""
        turn.dialect = turn.dialect or find_dialect(turn.opening or [], turn.scope.dialect)
        if turn.opening is None or turn.dialect is None:
            return None
        strip = functools.partial(spoken_words, known_hashes=self._visible.blocks)
        user = find_latest_user(turn.dialect, turn.opening, strip)
        if user is None:
            return None
        self._begin_at(turn, turn.opening, *user)
        return user[1]

    def _begin_at(self, turn: LoopTurn, messages: Sequence[object], index: int, text: str) -> BlockPosition:
        """Where the turn begins in the host's list, by index, object and content: hosts rebuild their lists."""
        turn.user_hash, turn.user_index = content_hash(text), index
        if is_private(text):
            turn.shared.mark_incognito()
        return BlockPosition(index, messages[index])

    async def _read(
        self,
        turn: LoopTurn,
        dialect: Dialect,
        messages: list[object],
        *,
        turn_id: str = "",
        late: bool = False,
    ) -> TurnReading:
        """Reads on a reader's thread: a long list takes a while, and other conversations share this loop.

        Does not wait until compactions that this process knows of are stored: blocks that it knows are read as such.
        """
        scope, config = turn.scope, self.config
        carried = tuple(hit for run in turn.carried.runs for hit in run.hits) if turn.carried else None
        shown = ShownMessages(
            self.dialects[dialect],
            messages,
            self._visible.copy(),
            self.clock.now(),
            carried,
            turn_id,
            self._visible.unstored,
            is_new=not self._has_read,
        )
        try:
            async with asyncio.timeout(config.recall_timeout + LATE_SECONDS * late):
                return await self._services.store.read(
                    functools.partial(read_turn, shown=shown, scope=scope, config=config), at=scope.readable
                )
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"The store did not answer within {config.recall_timeout:g} seconds. The turn continues without it."
            ) from error

    def _take_in(self, turn: LoopTurn, reading: TurnReading) -> None:
        self._visible.add(reading.blocks.values())
        turn.is_read = self._has_read = True
        self._known_delivery = reading.standing
        self._is_kept_incognito = reading.incognito
        if reading.incognito:
            turn.shared.mark_incognito()
        if self._has_untrusted:
            self.mark_tainted(turn.shared, Taint.MEMORY)
        if reading.is_tainted:
            self.mark_tainted(turn.shared, Taint.EARLIER)
        # Blocks that were handed over before this was read are not in the list that was read.
        turn.ledger = reading.ledger.with_blocks(row for row in turn.shared.blocks if row.hash not in reading.indexes)
        turn.forgets = reading.forgets
        known, tenant = self._services.forgets, turn.scope.tenant
        known[tenant] = max(reading.forgets, known.get(tenant, 0))
        # A turn that was read late leaves what was carried to the one that has begun since.
        carried = reading.carried if turn is self._current and not turn.left else None
        if turn.carried is not None:
            for run in turn.carried.runs:
                run.hits = tuple(hit for hit in run.hits if hit in reading.carried_hits)
        elif carried is not None and self._prefetcher.is_waiting(carried):
            turn.carried = self._prefetcher.adopt(turn, carried, reading.carried_hits)

    def note_untrusted(self) -> None:
        """A model was given memories that are not trusted, besides a block."""
        self._has_untrusted = True
        if self._current is not None:
            self.mark_tainted(self._current.shared, Taint.MEMORY)

    async def _recall(self, turn: LoopTurn, prefetch: Prefetch, question: RecallRequest) -> None:
        # A compaction corrects it until it is asked.
        prefetch.question, speculated = question, None
        if prefetch.cause is RecallCause.MESSAGE:
            await self._services.recall_client.wait_for_ended(turn.scope)
            speculated = await self._speculation.take(prefetch, turn.scope, question)
        if not prefetch.fast.consumed:
            self._emit_epoch(turn, prefetch)
            await self._prefetcher.run(turn, prefetch, prefetch.question, speculated)

    # ---------------------------------------------------------------- During a turn.

    def _start_epoch(self, turn: LoopTurn, prefetch: Prefetch, text: str) -> None:
        if self._current is not turn or turn.left:
            prefetch.release_waiters()
            return
        self._prefetcher.supersede_before(turn, prefetch)
        prefetch.task = self._services.supervisor.start(
            self._run_epoch(turn, prefetch, text), f"epoch of turn {turn.id}"
        )
        prefetch.task.add_done_callback(lambda _: self._task_ended(prefetch))

    async def _run_epoch(self, turn: LoopTurn, prefetch: Prefetch, text: str) -> None:
        opened = await turn.shared.opened.wait(within=self.config.recall_timeout)
        failure = "" if opened else await self._read_late(turn)
        if prefetch.cause is RecallCause.INTERJECTION and is_private(text) and not turn.shared.incognito:
            turn.shared.mark_incognito()
            self._log.mark_incognito(turn)
        if not self._services.has_store or turn.dialect is None or prefetch.fast.consumed:
            return
        shown = frozenset(ref for row in turn.shared.blocks if row.hash not in turn.gone for ref in row.refs)
        shown |= self._prefetcher.waiting_refs(turn)
        ledger = turn.ledger._replace(refs=turn.ledger.refs | shown, shown_this_turn=shown)
        question = make_question(text, turn.scope, ledger, self.config)
        if question is not None and failure:
            self._emit_epoch(turn, prefetch)
            self._prefetcher.fail(turn, prefetch, question, failure)
        elif question is not None:
            await self._recall(turn, prefetch, question)

    async def _read_late(self, turn: LoopTurn) -> str:
        """Tries again to read the turn, for what is said next. Blank, or why the store still cannot be read."""
        if turn.opening is None or turn.dialect is None or not self._services.has_store:
            return ""
        try:
            await self._log.wait_cleared()
            self._take_in(turn, await self._read(turn, turn.dialect, turn.opening))
        except AfterturnError as error:
            return type(error).__name__
        turn.opening = None
        return ""

    def _note_delivery(self, turn: LoopTurn, injection: Injection, rows: list[BlockRow]) -> None:
        ready, last = injection.ready, rows[-1]
        if ready is not None:
            self._emit(
                "handed_over",
                turn=turn.id,
                point=last.point,
                memories=ready.block.lines,
                bytes=last.size_bytes,
                tokens=ready.block.tokens,
            )
            self._prefetcher.delivered(turn, ready, last)
            if ready.shows_report:
                self.mark_tainted(turn.shared, Taint.MEMORY)
        self._services.recall_client.note_block_delivered()
        turn.ledger = turn.ledger.with_blocks(rows)
        turn.gone = turn.gone.difference(row.hash for row in rows)
        if injection.standing is not None:
            self._emit("standing_delivered", turn=turn.id, point=last.point, bytes=rows[0].size_bytes)
        for row in rows:
            task = self._log.add_block(turn, row)
            if task is not None:
                task.add_done_callback(functools.partial(self._block_stored, row))
        self._warn_of_share(turn)

    def _block_stored(self, row: BlockRow, task: asyncio.Task[None]) -> None:
        self._visible.mark_stored(row)

    def _warn_of_share(self, turn: LoopTurn) -> None:
        window = self.config.window_tokens
        tokens = turn.ledger.size_bytes // _BYTES_PER_TOKEN
        if window is not None and tokens > window * _WINDOW_SHARE_MAX:
            self._emit("window_share", turn=turn.id, tokens=tokens, window=window)

    # ---------------------------------------------------------------- Compaction and reset.

    async def compact(self, scope: ConversationScope, messages: list[object], limit_tokens: int | None) -> Compacted:
        """Summarises the older part of a history that has grown too long. ConfigError without a model or a limit."""
        services, limit = self._services, limit_tokens or self.config.window_tokens
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

        known = self.known_blocks
        done = await compact(
            model,
            dialect,
            messages,
            limit_tokens=limit,
            facts=lambda part: block_facts(dialect, part, known),
            within=MODEL_TIMEOUT,
            on_thread=self._services.file_reads.run,
        )
        self._emit(
            "history_compacted",
            reason=done.reason,
            before=len(messages),
            after=len(done.messages),
            tokens_before=done.tokens_before,
            tokens_after=done.tokens_after,
        )
        if done.changed:
            self.review_compaction(scope, messages, dialect)
            self.note_compaction(scope, done.messages, dialect)
        return done

    def _review_compaction(self, scope: ConversationScope, messages: list[object], dialect: Dialect | None) -> None:
        services, turn = self._services, self._current
        if scope.incognito or self.is_incognito():
            return
        is_tainted = turn is not None and (turn.shared.taint is not None or any(map(shows_report, turn.recalled)))
        task = services.supervisor.start(
            review_compaction(services, scope, messages, dialect, self.known_blocks, is_tainted=is_tainted),
            f"review compaction of {scope.id}",
        )
        services.recorder.expect(task)
        task.add_done_callback(lambda _: services.wake_jobs())

    def _note_compaction(self, scope: ConversationScope, turn: LoopTurn | None) -> None:
        """A compaction was reported between turns, or in a `turn` whose host has not shown what is left of its list."""
        self._apply_compaction("reported")
        self._clear_visible(scope, turn)

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
        await turn.shared.opened.wait(within=self.config.recall_timeout)
        # Seen first, and then reported: one compaction, which was examined when it was seen.
        is_known = how == "reported" and turn.is_seen
        turn.is_seen = how == "seen"
        if is_known:
            return
        if how:
            self._apply_compaction(how)
        if not self._services.has_store:
            return
        if left is None:
            self._clear_visible(turn.scope, turn)
            await self._offer_standing(turn, is_visible=False)
        elif not await self._read_compacted(turn, left, number):
            return
        if number == turn.compactions:
            self._ask_again(turn, prefetch)

    def _end_examination(self, turn: LoopTurn, prefetch: Prefetch) -> None:
        if prefetch.task is None:
            prefetch.release_waiters()
        self._prefetcher.release(turn)

    def _apply_compaction(self, how: str) -> None:
        turn = self._current if self._current is not None and not self._current.left else None
        self._emit("compacted", turn=turn.id if turn else "", how=how)
        self._prefetcher.drop_carried("compaction")
        self._renew_standing("compaction")
        if turn is not None and turn.carried is not None:
            self._prefetcher.stop(turn.carried, Outcome.UNDELIVERED, "compaction")

    def _renew_standing(self, reason: str) -> None:
        # One that turns bring is made again when it is next needed.
        if self._standing is not None and self._find_delivery(self._standing.scope) is StandingDelivery.SYSTEM:
            self._services.supervisor.start(self._standing.invalidate(reason), f"standing context after a {reason}")

    def _clear_visible(self, scope: ConversationScope, turn: LoopTurn | None) -> None:
        """The host does not show what is left, so we assume that only the newest messages are."""
        self._visible.clear()
        self.dialects.clear()
        self._log.clear(scope, compacted=True)
        if turn is not None:
            since = self.clock.now() if scope.is_hidden else None
            turn.ledger = turn.ledger._replace(refs=frozenset(), size_bytes=0, seen_since=since, standing=None)
            turn.gone = _removable(turn)

    async def _read_compacted(self, turn: LoopTurn, left: CompactedMessages, number: int) -> bool:
        """Whether the list was read, and no later compaction is being examined."""
        dialect = left.dialect or find_dialect(left.messages, turn.scope.dialect) or turn.dialect
        if dialect is None:
            return False
        try:
            reading = await self._read(turn, dialect, left.messages)
        except AfterturnError as error:
            logger.warning("a compacted history could not be read from the store; it will be read again: %s", error)
            turn.shared.expect_compaction()
            return False
        if number != turn.compactions:
            return False
        self._visible.add(reading.blocks.values())
        if reading.is_tainted:
            self.mark_tainted(turn.shared, Taint.EARLIER)
        # Blocks that were handed over after the list was copied are in it too.
        known = left.handed_over.union(reading.indexes)
        since = [row for row in turn.shared.blocks if row.hash not in known]
        turn.ledger = reading.ledger.with_blocks(since)
        lost = tuple(row for row in reading.lost if row not in since)
        self._remove_lost(turn, replace(reading, lost=lost))
        self._visible.add(since)
        turn.shared.apply_compaction(positions_of(reading.indexes, left.messages), {row.hash for row in lost})
        turn.gone = _removable(turn).intersection(row.hash for row in lost)
        is_visible = reading.sees_standing or any(row.point == HandoverPoint.STANDING for row in since)
        await self._offer_standing(turn, is_visible=is_visible)
        return True

    def _remove_lost(self, turn: LoopTurn, reading: TurnReading) -> None:
        """Blocks are gone together with the messages around them: compacted, rewound, edited. The others stay."""
        gone = {row.hash for row in reading.lost}
        staying = [row.hash for row in reading.blocks.values() if row.in_sight and row.hash not in gone]
        still = self._visible.clear(still=staying)
        self._log.clear(turn.scope, compacted=True, still=still)

    def _ask_again(self, turn: LoopTurn, prefetch: Prefetch) -> None:
        """One more query in the same epoch, counted separately; none if the store has failed in this epoch."""
        if self._current is not turn or turn.left:
            return
        if prefetch.fast.consumed:
            if prefetch.fast.outcome is not Outcome.SUPERSEDED:
                return
            # The user has said something new meanwhile, which may have been asked with the old exclusions.
            prefetch = self._new_prefetch(RecallCause.COMPACTION, turn.id, epoch=turn.shared.current.epoch)
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
            self._speculation.drop("compaction")
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
        prefetch.task.add_done_callback(lambda _: self._task_ended(prefetch))

    def _reset(self, scope: ConversationScope) -> None:
        self._speculation.drop("reset")
        self._prefetcher.drop_carried("reset")
        if self._current is not None:
            self._prefetcher.stop_all(self._current, Outcome.CANCELLED, "reset")
            self._current.ledger = Ledger()
            self._current.shared.clear_blocks()
        self._visible.clear()
        self._log.clear(scope, compacted=True)
        self._renew_standing("reset")
        self._emit("conversation_reset")

    async def _read_hidden_ledger(self, scope: ConversationScope) -> Ledger:
        """The ledger of a host that hides its messages, outside of any turn."""
        nowhere = SharedTurn("", scope, self._new_prefetch(RecallCause.MESSAGE, "", epoch=0), 0.0)
        dialect = find_dialect([], scope.dialect)
        assert dialect is not None
        await self._log.wait_cleared()
        return (await self._read(LoopTurn(nowhere), dialect, [])).ledger

    def drop_recalls(self, space: str) -> None:
        """Something was forgotten in `space`: what was recalled from it before is not handed over any more."""
        carried, current = self._prefetcher.carried, self._current
        self.dialects.clear()
        if space != self.key.space and (current is None or space not in current.scope.reads):
            return
        self._speculation.drop("forgotten")
        self._visible.correct(())
        self._forgotten += 1
        self._slot.put_standing(None, None)
        if carried is not None and carried.question is not None and space in carried.question.scope.spaces:
            self._prefetcher.drop_carried("forgotten")
        if current is not None and space in current.scope.reads:
            self._prefetcher.stop_all(current, Outcome.CANCELLED, "forgotten")
            current.recalled = ()
            current.shared.set_prompt_texts({})
            current.shared.keep_dropped(())

    # ---------------------------------------------------------------- A turn ends.

    def _leave(self, turn: LoopTurn, messages: TurnMessages, *, completed: bool, admitted: bool) -> None:
        make = functools.partial(self._make_recording, turn, messages, completed=completed)
        task = self._start_ending(turn, self._record(turn, make))
        self._services.recorder.track_reading(turn, lambda: make()[0], task, admitted=admitted)
        self._services.recall_client.note_ended(turn.scope, turn.shared.recorded)

    def _leave_added(self, turn: LoopTurn, reason: str) -> None:
        """A turn that memory had no room for has ended: it is in a file, or is not recorded for this reason."""
        if reason:
            self._services.recorder.expect(self._start_ending(turn, self._end_unrecorded(turn, reason)))
            return
        self._prefetcher.leave(turn)
        self._remove_open(turn)
        self._services.recorder.note_appended(turn)
        self._services.recall_client.end_turn(turn.shared)
        self._emit("recording_waits", turn=turn.id, reason=OVERLOAD, spilled=True)

    def _start_ending(self, turn: LoopTurn, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._prefetcher.leave(turn)
        self._remove_open(turn)
        task = self._services.supervisor.start(work, f"leave turn {turn.id}")
        task.add_done_callback(lambda task: self._left(turn, cancelled=task.cancelled()))
        return task

    def _left(self, turn: LoopTurn, *, cancelled: bool) -> None:
        if cancelled:
            turn.shared.recorded.settle(False)
        self._services.recall_client.end_turn(turn.shared)

    def _make_recording(
        self, turn: LoopTurn, messages: TurnMessages, *, completed: bool
    ) -> tuple[Recording | None, str]:
        """The recording by what is known now, or None and the reason. On a host's thread, pass a copy of the turn."""
        if not turn.shared.opened.peek():
            self._find_user_text(turn)
            if self._is_kept_incognito:
                turn.shared.mark_incognito()
            if self._has_untrusted:
                turn.shared.mark_tainted(Taint.MEMORY)
        blocks, at = self._visible.copy(), self.clock.now()
        return make_recording(turn, messages, blocks, self.config, ended_at=at, completed=completed)

    async def _record(self, turn: LoopTurn, make: Callable[[], tuple[Recording | None, str]]) -> None:
        if not self._services.has_store:
            turn.shared.recorded.settle(False)
            return
        try:
            await turn.shared.opened.wait(within=self.config.recall_timeout)
            await self._load_blocks(turn.scope)
            recording, reason = make()
        except Exception as error:
            turn.shared.recorded.settle(False)
            self._emit("not_recorded", turn=turn.id, reason=type(error).__name__)
            raise
        if recording is not None:
            self._services.recorder.enqueue(recording, turn.shared.recorded)
            return
        await self._end_unrecorded(turn, reason)

    async def _end_unrecorded(self, turn: LoopTurn, reason: str) -> None:
        turn.shared.recorded.settle(False)
        self._emit("not_recorded", turn=turn.id, reason=reason)
        if reason == INCOGNITO and not turn.shared.incognito:
            # The user's words were not reported, and are found only in the finished list.
            turn.shared.mark_incognito()
            self._log.mark_incognito(turn)
        if reason in (SWITCHED_OFF, INCOGNITO):
            await self._log.end_turn(turn, TurnStatus.COMPLETED)
            return
        if reason == NO_FINAL_ANSWER and self._services.events.is_first(NO_FINAL_ANSWER):
            logger.warning(
                "conversation %r: a turn was not recorded, because the message list that it was given does not end "
                "with the assistant's answer. Append the answer to that list. If you build a new list instead, such "
                "as `messages + [reply]`, pass it: turn.complete(messages).",
                self.key.id,
            )
        # It had no answer, so it carries nothing over, though the next turn may have begun.
        self._prefetcher.abandon(turn)
        if self._current is not None and self._current is not turn:
            self._prefetcher.offer(self._current)
        await self._log.end_turn(turn, TurnStatus.ABORTED)

    async def _load_blocks(self, scope: ConversationScope) -> None:
        """The blocks that any process has injected. A store that cannot be read must not cost the turn."""
        try:
            async with asyncio.timeout(self.config.recall_timeout):
                rows = await self._services.store.read(
                    lambda unit: unit.conversations.blocks(scope.key), at=scope.key.scope
                )
        except (AfterturnError, TimeoutError) as error:
            logger.warning("conversation %r: blocks of other processes are not known: %r", self.key.id, error)
            return
        self._visible.add_unknown(rows)

    def _abort(self, turn: LoopTurn, reason: str) -> None:
        self._prefetcher.stop_all(turn, Outcome.CANCELLED, "abort")
        turn.left = True
        self._remove_open(turn)
        turn.shared.recorded.settle(False)
        self._services.recall_client.end_turn(turn.shared)
        if self._services.has_store:
            self._emit("turn_aborted", turn=turn.id, reason=reason)
            self._services.supervisor.start(self._log.end_turn(turn, TurnStatus.ABORTED), f"abort turn {turn.id}")

    def close(self) -> None:
        """Ends the turns that no host has ended: they are abandoned, except durable ones."""
        if self._current is not None:
            self._prefetcher.shut(self._current)
        for turn_id, turn in list(self._open_turns.items()):
            if turn is None or not turn.shared.durable:
                self._log.abandon_turn(turn_id)

    # ---------------------------------------------------------------- Events.

    def _emit(self, name: str, *, turn: str = "", **data: Scalar) -> None:
        self._services.events.emit(name, space=self.key.space, conversation=self.key.id, turn=turn, **data)

    def _emit_epoch(self, turn: LoopTurn, prefetch: Prefetch) -> None:
        self._emit("epoch_started", turn=turn.id, cause=prefetch.cause, epoch=prefetch.epoch)


def _removable(turn: LoopTurn) -> frozenset[str]:
    """The hashes of this turn's blocks that a compaction can remove: not those that a host has as text."""
    return frozenset(row.hash for row in turn.shared.blocks if row.point != HandoverPoint.PROMPT)
