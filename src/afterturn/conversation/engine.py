"""The engine of one conversation: begins turns and their epochs, reads what the host shows, notes what is delivered.

The path of a message: `begin_turn` (host) > `_open_turn` reads the list > `Prefetcher.run` recalls > `take` (host).
What ends a turn is in `finished_turns.py`, what follows a compaction in `compactions.py`.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Iterable, MutableSequence, Sequence
from typing import TYPE_CHECKING, TypeVar

from afterturn.conversation.compactions import Compactions
from afterturn.conversation.conversation_log import ConversationLog
from afterturn.conversation.delivery import (
    BlockPosition,
    DeliverySlot,
    HostTurn,
    Injection,
    LoopTurn,
    OpenedTurn,
    PhaseState,
    Prefetch,
    SharedTurn,
    VisibleBlocks,
    positions_of,
)
from afterturn.conversation.finished_turns import FinishedTurns
from afterturn.conversation.prefetcher import Prefetcher, Speculation
from afterturn.conversation.read_turn import (
    Ledger,
    ShownMessages,
    TurnReading,
    make_question,
    no_recall_reason,
    read_turn,
)
from afterturn.conversation.recall_client import LATE_SECONDS, RecallShed, reason_of
from afterturn.conversation.recording import find_stored_taint
from afterturn.conversation.scope import ConversationScope, StandingDelivery, find_usable_name, is_private
from afterturn.conversation.standing import StandingCore
from afterturn.conversation.stored_conversation import StoredConversation
from afterturn.dialects.dialect import CachedDialects, Dialect
from afterturn.dialects.history import DIALECTS, find_dialect, find_latest_user
from afterturn.errors import AfterturnError, Conflict, DeadlineExceeded, NotFound
from afterturn.guard.output_filter import STANDING_TAG
from afterturn.log import logger
from afterturn.recall.answer import all_readable
from afterturn.recall.block import spoken_words
from afterturn.recall.features import shows_report
from afterturn.recall.query import RecallRequest
from afterturn.text import content_hash
from afterturn.types.conversations import HandoverPoint, NoRecallReason, Outcome, RecallCause, Taint, TurnStatus
from afterturn.types.entries import ConversationKey, Entry
from afterturn.types.rows import BlockRow, TurnRow
from afterturn.validation import check_name, check_no_secret

if TYPE_CHECKING:
    from afterturn.services import Services

M = TypeVar("M")

# Good enough for a warning: English has about four letters a token.
_BYTES_PER_TOKEN = 4
# Above a tenth of the model's window, blocks crowd out the conversation.
_WINDOW_SHARE_MAX = 0.1
# A cue starts a recall; a host that gives more in one turn has a loop in it.
CUES_MAX = 4


class ConversationEngine(StoredConversation):
    """One per conversation and open memory. Each turn brings its own `ConversationScope`.

    The first group of methods is called by hosts, on any thread: they copy what they need and post the rest. Everything
    else runs on memory's loop. `current` is the turn that owns recall; an earlier one that is still open is recorded
    when it ends, but gets no block. Hosts read `current` and set `newest` and `standing`: all are single references.
    """

    def __init__(self, services: Services, key: ConversationKey) -> None:
        super().__init__(services, key)
        self.slot = DeliverySlot()
        self.visible = VisibleBlocks()
        # The log refers to this engine: while it writes, the engine lives and is found again by its key.
        self.log = ConversationLog(services, key, self)
        self.prefetcher = Prefetcher(
            services.recall_client, services.recall_queue, self.log, services.events, self.slot, self.visible
        )
        self.speculation = Speculation(
            services.recall_client, services.supervisor, services.ids, self._read_hidden_ledger, self.emit
        )
        self.current: LoopTurn | None = None
        # The turn that a host began last; memory's loop may not have heard of it yet.
        self.newest: HostTurn | None = None
        # By id. None for a turn whose host began another one without leaving it: only its end is still to be stored.
        self._open_turns: dict[str, LoopTurn | None] = {}
        self.standing: StandingCore | None = None
        self._known_delivery: StandingDelivery | None = None
        self._storing_blocks: set[asyncio.Task[None]] = set()
        # Counts forgets, so that a standing block that was made before one is not handed over.
        self._forgotten = 0
        # The model has seen memories that are not trusted, in the host's prompt or from a tool: its turns are tainted.
        self.has_untrusted = False
        self._has_read = False
        self.dialects = CachedDialects()
        self.compactions = Compactions(services, self)
        self.finished_turns = FinishedTurns(services, self)

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
        turn = self.newest = self._new_turn(scope, turn_id, speaker, messages=copied, incognito=incognito)
        if not self._services.recall_queue.admit():
            # Too many turns begin: this one gets no recall, and is recorded when it ends.
            turn.shared.opened.settle(None)
            turn.shared.stored.settle(False)
            turn.shared.first.release_waiters()
            self.post(self.emit, "turn_started", turn=turn.id, no_recall=NoRecallReason.OVERLOAD)
            return turn
        carried = self.prefetcher.find_at_hand(scope)
        if carried is not None or self.slot.has_standing(scope):
            # For hosts that never wait: their first step comes before anything could be read.
            self.slot.open_for(turn.shared, carried)
        self.post(self._begin, turn, copied, recall=recall)
        return turn

    def start_epoch(self, turn: HostTurn, text: str, cause: RecallCause) -> None:
        """Something new was said in the middle of a turn: it gets a recall of its own."""
        if cause is RecallCause.CUE:
            if turn.cues >= CUES_MAX:
                self.post(self.emit, "cue_refused", turn=turn.id, cues=turn.cues)
                return
            turn.cues += 1
        prefetch = self.new_prefetch(cause, turn.id, epoch=turn.shared.epochs)
        turn.shared.add_prefetch(prefetch)
        self.post(self._start_epoch, turn.loop, prefetch, text)

    def expect(self, scope: ConversationScope, text: str) -> None:
        """The user is typing `text`."""
        if self._services.has_store:
            self.post(self.speculation.start, scope, text)

    def make_standing(
        self, scope: ConversationScope, roots: Iterable[str | os.PathLike[str]], instructions: Iterable[str]
    ) -> StandingCore:
        """The standing context from now on. Raises InvalidInput if `roots` or `instructions` are not lists."""
        self.standing = StandingCore(self._services, scope, roots, instructions)
        self.standing.owner = self
        self.standing.on_untrusted = self.note_untrusted
        return self.standing

    def current_turn_id(self) -> str:
        """Blank between turns."""
        return "" if self.current is None or self.current.left else self.current.id

    def is_incognito(self) -> bool:
        """Whether the current turn is."""
        return self.current is not None and not self.current.left and self.current.shared.incognito

    def has_nothing_for(self, turn: HostTurn, messages: Sequence[object]) -> bool:
        """True if there is nothing to inject. Cheap, so that most steps need not look for a place."""
        has_files = self.standing is not None and self.standing.has_arrived
        return not has_files and not self.slot.has_block(turn.shared) and turn.shared.is_intact(messages)

    def notice_compaction(self, turn: HostTurn, dialect: Dialect, messages: Sequence[object]) -> None:
        """Starts a new recall if blocks are gone for good, or if a compaction was announced whose result this is."""
        is_held = self.slot.is_held(turn.shared)
        is_lost = self.visible.find_lost(turn.shared, dialect, messages, is_compacting=is_held)
        is_expected = turn.shared.take_expected()
        if is_expected or is_lost:
            # While a compaction is being examined, a list that lacks blocks is its result.
            self.compactions.examine(turn, list(messages), dialect, "" if is_expected or is_held else "seen")

    def restore_blocks(self, turn: HostTurn, dialect: Dialect, messages: MutableSequence[M]) -> M | None:
        """Puts back blocks that a host dropped while it rebuilt its list. Returns the last element."""
        put_back = self.visible.restore(turn.shared, dialect, messages)
        if put_back:
            self.post(self.emit, "blocks_put_back", turn=turn.id, blocks=len(put_back))
        return put_back[-1] if put_back else None

    def take(self, turn: HostTurn) -> Injection | None:
        """Takes everything that is ready, for the first caller: the standing block, context files that have arrived,
        and a block."""
        files = self.standing.take_arrived() if self.standing is not None else None
        ready, standing = self.slot.take(turn.shared), self.slot.take_standing(turn.shared, turn.scope)
        return Injection(files, ready, standing) if files or ready or standing else None

    def note_delivery(self, turn: HostTurn, injection: Injection, point: HandoverPoint, anchor: str) -> list[BlockRow]:
        """An injection is being added to the host's messages. Called first, so that the block is known as ours."""
        rows = injection.rows(turn.id, self.clock.now(), point, anchor)
        self.visible.hand_over(rows)
        turn.shared.hand_over(rows)
        self.post(self._note_delivery, turn.loop, injection, rows)
        return rows

    def mark_tainted(self, turn: SharedTurn, taint: Taint) -> None:
        """Text of others has reached the assistant. Stored at once for a turn that another process may finish."""
        if turn.mark_tainted(taint) and turn.durable:
            self.post(self.log.taint_turn, turn, taint)

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

    def new_prefetch(self, cause: RecallCause, turn: str, *, epoch: int) -> Prefetch:
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
        first = self.new_prefetch(RecallCause.MESSAGE, "", epoch=0)
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
            row = await self.log.find_turn(turn_id)
            _check_open(turn_id, row)
            incognito = incognito or (row is not None and row.incognito)
        turn = self._new_turn(scope, turn_id, speaker, messages=messages, durable=True, incognito=incognito)
        self.newest = turn
        self._start(turn, messages)
        if await turn.shared.opened.wait(within=self.config.recall_timeout) and self._services.has_store:
            await turn.shared.stored.wait(within=self.config.busy_timeout + 1.0)
        return turn

    async def resume_turn(self, scope: ConversationScope, turn_id: str) -> HostTurn:
        """An open turn that this or another process started. Starts no recall, because nothing new was said.

        What was recalled for it and not handed over yet is offered, in whichever process that was.
        """
        check_name(turn_id, "turn id")
        row = await self.log.find_turn(turn_id)
        if row is None:
            raise NotFound(f"Conversation {self.key.id!r} has no turn {turn_id!r}. Start it with `start_turn`.")
        _check_open(turn_id, row)
        self.log.touch_turn(turn_id)
        current = self.current
        is_current = current is not None and current.id == turn_id and not current.left
        if current is not None and is_current and set(current.scope.reads) <= set(scope.reads):
            self.newest = HostTurn(current.shared, current)
            return self.newest
        turn = self.newest = self._new_turn(scope, turn_id, None, durable=True, resumed=row)
        self._own(turn.loop)
        dialect = DIALECTS[scope.dialect or "openai_chat"]
        try:
            await self.log.wait_cleared()
            reading = await self.read(turn.loop, dialect, [])
            rows = [one for one in {**self.visible.copy(), **reading.blocks}.values() if one.turn == turn_id]
            # A host that may not read a space gets nothing of it back either.
            readable = await self._services.store.read(
                lambda unit: {one.hash for one in rows if all_readable(unit, scope, one.refs)}, at=scope.readable
            )
        except BaseException:
            self._disown(turn)
            raise
        self._take_in(turn.loop, reading)
        # A host that has lost the answer with a block gets that again, as it gets those that its list lacks.
        turn.shared.read_positions({}, reading.dropped, None)
        # No list was read yet.
        turn.loop.is_read = False
        turn.loop.forgets_before = reading.forgets
        texts = self.visible.prompt_texts(turn.id)
        turn.shared.set_prompt_texts({hash: text for hash, text in texts.items() if hash in readable})
        self.prefetcher.offer(turn.loop)
        turn.shared.first.release_waiters()
        turn.shared.stored.settle(True)
        turn.shared.opened.settle(OpenedTurn(dialect, None, reading.forgets))
        return turn

    def _begin(self, turn: HostTurn, messages: list[object], *, recall: bool) -> None:
        self._services.recall_queue.arrive()
        self._start(turn, messages, recall=recall)

    def _start(self, turn: HostTurn, messages: list[object], *, recall: bool = True) -> None:
        self._services.recall_client.begin_turn(turn.shared, turn.loop.scope.readable)
        if (earlier := self.current) is not None and earlier.id in self._open_turns:
            # Its host began another turn without leaving it: its end is stored, its messages are not.
            self._open_turns[earlier.id] = None
            if earlier.shared.durable:
                self.remove_open(earlier)
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
        earlier, self.current = self.current, turn
        if earlier is not None:
            turn.carried = self.prefetcher.take_over(earlier)
        self.slot.open_for(turn.shared)

    def _disown(self, turn: HostTurn) -> None:
        """It could not be read: the next call that resumes it reads it again, and nobody waits for this one."""
        self.remove_open(turn.loop)
        if self.current is turn.loop:
            self.current = None
        if self.newest is turn:
            self.newest = None
        turn.shared.stored.settle(False)
        turn.shared.opened.settle(None)
        turn.shared.first.release_waiters()

    def remove_open(self, turn: LoopTurn) -> None:
        self._open_turns.pop(turn.id, None)
        if not self._open_turns:
            self._services.open_turns.discard(self)

    def _opening_ended(self, turn: LoopTurn, prefetch: Prefetch) -> None:
        self.task_ended(prefetch)
        if not turn.shared.opened.peek():
            turn.shared.stored.settle(False)
        turn.shared.opened.settle(None)

    def task_ended(self, prefetch: Prefetch) -> None:
        """Ends the phases that have not settled, since nothing settles them any more."""
        for run in prefetch.runs:
            if run.state is PhaseState.ASKED and prefetch.asked:
                self.prefetcher.end(run, Outcome.CANCELLED, "shutdown")
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
            self.emit("unknown_dialect", turn=turn.id)
            return
        if not self._services.has_store:
            turn.shared.opened.settle(OpenedTurn(dialect))
            return
        prefetch = turn.shared.first
        try:
            with self.prefetcher.late_after_timeout(prefetch):
                await self.log.wait_cleared()
                read = functools.partial(self.read, turn, dialect, messages, turn_id=turn.id, late=True)
                reading = await self._services.recall_queue.run(read)
        except (AfterturnError, RecallShed) as error:
            self._open_unread(turn, error)
            return
        if prefetch.is_late and (self.current is not turn or turn.compactions):
            return  # what was read is out of date
        if turn.shared.model_called:
            reading = reading.without_dropped()
        self._take_in(turn, reading)
        turn.forgets_before = reading.forgets
        turn.opening = None
        user = _begin_at(turn, messages, *reading.user) if reading.user is not None else None
        turn.shared.read_positions(positions_of(reading.indexes, messages), reading.dropped, reading.chain)
        turn.shared.opened.settle(OpenedTurn(dialect, user, reading.forgets))
        question = reading.question
        self.emit("turn_started", turn=turn.id, no_recall=no_recall_reason(question, self.config))
        if prefetch.is_late and turn.left:
            turn.shared.stored.settle(False)  # its end may be stored already
        else:
            self._services.supervisor.start(self.log.store_turn(turn), f"store turn {turn.id}")
        if reading.lost:
            self.compactions.note_seen(turn, reading)
        self.prefetcher.offer(turn)
        is_given = any(row.point == HandoverPoint.STANDING for row in turn.shared.blocks)
        await self.offer_standing(turn, is_visible=reading.sees_standing or is_given, corrections=reading.corrections)
        if self._is_standing_asked:
            self._report_share(turn)  # perhaps nothing else is delivered
        if question is not None and recall and not prefetch.fast.consumed:
            await self._recall(turn, prefetch, question._replace(standing=turn.ledger.standing))

    async def offer_standing(
        self, turn: LoopTurn, *, is_visible: bool, corrections: Sequence[Entry] = (), after_compaction: bool = False
    ) -> None:
        """Lets the next hand-over bring the standing block, unless the model sees one or the host asks for it itself.

        It is made when the model sees none, and what the model sees is not changed: a block that has left the host's
        list comes back as it would be made now. If lines of one that the model sees were replaced, `corrections` are
        brought instead.
        """
        self.slot.put_standing(None, turn.scope)
        delivery, standing, forgotten = self.find_delivery(turn.scope), self.standing, self._forgotten
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
        # A compaction may have removed what was given in this turn; it knows what it left.
        given = [] if after_compaction else turn.shared.blocks
        is_given = is_wanted and any(row.point == HandoverPoint.STANDING for row in given)
        if self.current is turn and forgotten == self._forgotten and not is_given:
            self.slot.put_standing(made, turn.scope)

    def find_delivery(self, scope: ConversationScope) -> StandingDelivery:
        if scope.subagent or not self.config.standing:
            return StandingDelivery.OFF
        asked = StandingDelivery.SYSTEM if self._is_standing_asked else StandingDelivery.INJECT
        return scope.standing or self._known_delivery or asked

    @property
    def _is_standing_asked(self) -> bool:
        """Whether the host has put the standing block into its prompt, in this process or another."""
        is_asked = self.standing is not None and self.standing.is_asked
        return is_asked or self._known_delivery is StandingDelivery.SYSTEM

    def _open_unread(self, turn: LoopTurn, error: Exception) -> None:
        """A store that cannot be read degrades the recall, and is not asked again in this epoch."""
        logger.warning("a turn continues without recall: %s", error)
        text = self.find_user_text(turn)
        question = make_question(text, turn.scope, turn.ledger, self.config) if text is not None else None
        if question is not None and not turn.shared.first.fast.consumed:
            self.emit("epoch_started", turn=turn.id, cause=RecallCause.MESSAGE, epoch=0)
            self.prefetcher.fail(turn, turn.shared.first, question, reason_of(error))

    def find_user_text(self, turn: LoopTurn) -> str | None:
        """The user's text in a turn that could not be read, by the blocks that this process knows."""
        turn.dialect = turn.dialect or find_dialect(turn.opening or [], turn.scope.dialect)
        if turn.opening is None or turn.dialect is None:
            return None
        strip = functools.partial(spoken_words, known_hashes=self.visible.blocks)
        user = find_latest_user(turn.dialect, turn.opening, strip)
        if user is None:
            return None
        _begin_at(turn, turn.opening, *user)
        return user[1]

    async def read(
        self, turn: LoopTurn, dialect: Dialect, messages: list[object], *, turn_id: str = "", late: bool = False
    ) -> TurnReading:
        """Reads on a reader's thread: a long list takes a while, and other conversations share this loop.

        Does not wait until compactions that this process knows of are stored: blocks that it knows are read as such.
        """
        scope, config = turn.scope, self.config
        carried = tuple(hit for run in turn.carried.runs for hit in run.hits) if turn.carried else None
        shown = ShownMessages(
            self.dialects[dialect],
            messages,
            self.visible.copy(),
            self.clock.now(),
            carried,
            turn_id,
            self.visible.unstored,
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
        self.visible.add(reading.blocks.values())
        turn.is_read = self._has_read = True
        self._known_delivery = reading.standing
        self.known_incognito = reading.incognito
        if reading.incognito:
            turn.shared.mark_incognito()
        if self.has_untrusted:
            self.mark_tainted(turn.shared, Taint.MEMORY)
        if reading.is_tainted:
            self.mark_tainted(turn.shared, Taint.EARLIER)
        # Blocks that were handed over before this was read are not in the list that was read.
        turn.ledger = reading.ledger.with_blocks(row for row in turn.shared.blocks if row.hash not in reading.indexes)
        turn.forgets = reading.forgets
        known, tenant = self._services.forgets, turn.scope.tenant
        known[tenant] = max(reading.forgets, known.get(tenant, 0))
        # A turn that was read late leaves what was carried to the one that has begun since.
        carried = reading.carried if turn is self.current and not turn.left else None
        if turn.carried is not None:
            for run in turn.carried.runs:
                run.hits = tuple(hit for hit in run.hits if hit in reading.carried_hits)
        elif carried is not None and self.prefetcher.is_waiting(carried):
            turn.carried = self.prefetcher.adopt(turn, carried, reading.carried_hits)

    def note_untrusted(self) -> None:
        """A model was given memories that are not trusted, besides a block."""
        self.has_untrusted = True
        if self.current is not None:
            self.mark_tainted(self.current.shared, Taint.MEMORY)

    async def _recall(self, turn: LoopTurn, prefetch: Prefetch, question: RecallRequest) -> None:
        # A compaction corrects it until it is asked.
        prefetch.question, speculated = question, None
        if prefetch.cause is RecallCause.MESSAGE:
            await self._services.recall_client.wait_for_ended(turn.scope)
            speculated = await self.speculation.take(prefetch, turn.scope, question)
        if not prefetch.fast.consumed:
            self.emit("epoch_started", turn=turn.id, cause=prefetch.cause, epoch=prefetch.epoch)
            await self.prefetcher.run(turn, prefetch, prefetch.question, speculated)

    # ---------------------------------------------------------------- During a turn.

    def _start_epoch(self, turn: LoopTurn, prefetch: Prefetch, text: str) -> None:
        if self.current is not turn or turn.left:
            prefetch.release_waiters()
            return
        self.prefetcher.supersede_before(turn, prefetch)
        prefetch.task = self._services.supervisor.start(
            self._run_epoch(turn, prefetch, text), f"epoch of turn {turn.id}"
        )
        prefetch.task.add_done_callback(lambda _: self.task_ended(prefetch))

    async def _run_epoch(self, turn: LoopTurn, prefetch: Prefetch, text: str) -> None:
        opened = await turn.shared.opened.wait(within=self.config.recall_timeout)
        failure = "" if opened else await self._read_late(turn)
        if prefetch.cause is RecallCause.INTERJECTION and is_private(text) and not turn.shared.incognito:
            turn.shared.mark_incognito()
            self.log.mark_incognito(turn)
        if not self._services.has_store or turn.dialect is None or prefetch.fast.consumed:
            return
        shown = frozenset(ref for row in turn.shared.blocks if row.hash not in turn.gone for ref in row.refs)
        shown |= self.prefetcher.waiting_refs(turn)
        ledger = turn.ledger._replace(refs=turn.ledger.refs | shown, shown_this_turn=shown)
        question = make_question(text, turn.scope, ledger, self.config)
        if question is not None and failure:
            self.emit("epoch_started", turn=turn.id, cause=prefetch.cause, epoch=prefetch.epoch)
            self.prefetcher.fail(turn, prefetch, question, failure)
        elif question is not None:
            await self._recall(turn, prefetch, question)

    async def _read_late(self, turn: LoopTurn) -> str:
        """Tries again to read the turn, for what is said next. Blank, or why the store still cannot be read."""
        if turn.opening is None or turn.dialect is None or not self._services.has_store:
            return ""
        try:
            await self.log.wait_cleared()
            self._take_in(turn, await self.read(turn, turn.dialect, turn.opening))
        except AfterturnError as error:
            return type(error).__name__
        turn.opening = None
        return ""

    def _note_delivery(self, turn: LoopTurn, injection: Injection, rows: list[BlockRow]) -> None:
        ready, last = injection.ready, rows[-1]
        if ready is not None:
            self.emit(
                "handed_over",
                turn=turn.id,
                point=last.point,
                memories=ready.block.lines,
                bytes=last.size_bytes,
                tokens=ready.block.tokens,
            )
            self.prefetcher.delivered(turn, ready, last)
            if ready.shows_report:
                self.mark_tainted(turn.shared, Taint.MEMORY)
        self._services.recall_client.note_block_delivered()
        turn.ledger = turn.ledger.with_blocks(rows)
        turn.gone = turn.gone.difference(row.hash for row in rows)
        if injection.standing is not None:
            self.emit("standing_delivered", turn=turn.id, point=last.point, bytes=rows[0].size_bytes)
        for row in rows:
            task = self.log.add_block(turn, row)
            if task is not None:
                self._storing_blocks.add(task)
                task.add_done_callback(self._storing_blocks.discard)
                task.add_done_callback(functools.partial(lambda row, _: self.visible.mark_stored(row), row))
        self._report_share(turn)

    async def wait_stored(self, within: float = 5.0) -> bool:
        """Waits until the blocks of its turns are stored, so that another process which resumes one recognises them."""
        writing = set(self._storing_blocks)
        return not writing or not (await asyncio.wait(writing, timeout=within))[1]

    def _report_share(self, turn: LoopTurn) -> None:
        """Warns if memory takes much of the model's window. The ledger counts a standing block in the host's list, and
        not one that the host has put into its prompt."""
        window, size, standing = self.config.window_tokens, turn.ledger.size_bytes, turn.ledger.standing
        if standing is not None and self._is_standing_asked:
            size += len(standing.text.encode())
        tokens = size // _BYTES_PER_TOKEN
        if window is not None and tokens > window * _WINDOW_SHARE_MAX:
            self.emit("window_share", turn=turn.id, tokens=tokens, window=window)

    async def _read_hidden_ledger(self, scope: ConversationScope) -> Ledger:
        """The ledger of a host that hides its messages, outside of any turn."""
        nowhere = SharedTurn("", scope, self.new_prefetch(RecallCause.MESSAGE, "", epoch=0), 0.0)
        dialect = DIALECTS[scope.dialect or "openai_chat"]
        await self.log.wait_cleared()
        return (await self.read(LoopTurn(nowhere), dialect, [])).ledger

    def drop_recalls(self, space: str) -> None:
        """Something was forgotten in `space`: what was recalled from it before is not handed over any more."""
        carried, current = self.prefetcher.carried, self.current
        self.dialects.clear()
        if space != self.key.space and (current is None or space not in current.scope.reads):
            return
        self.speculation.drop("forgotten")
        self.visible.correct(())
        self._forgotten += 1
        self.slot.put_standing(None, None)
        if carried is not None and carried.question is not None and space in carried.question.scope.spaces:
            self.prefetcher.drop_carried("forgotten")
        if current is not None and space in current.scope.reads:
            self.prefetcher.stop_all(current, Outcome.CANCELLED, "forgotten")
            current.recalled = ()
            current.shared.set_prompt_texts({})
            current.shared.keep_dropped(())

    def close(self) -> None:
        """Ends the turns that no host has ended: they are abandoned, except durable ones."""
        if self.current is not None:
            self.prefetcher.shut(self.current)
        for turn_id, turn in list(self._open_turns.items()):
            if turn is None or not turn.shared.durable:
                self.log.abandon_turn(turn_id)


def _check_open(turn_id: str, row: TurnRow | None) -> None:
    if row is not None and row.status is not TurnStatus.OPEN:
        raise Conflict(f"Turn {turn_id!r} is already {row.status}. Start a new one with another id.")


def _begin_at(turn: LoopTurn, messages: Sequence[object], index: int, text: str) -> BlockPosition:
    """Where the turn begins in the host's list, by index, object and content: hosts rebuild their lists."""
    turn.user_hash, turn.user_index = content_hash(text), index
    if is_private(text):
        turn.shared.mark_incognito()
    return BlockPosition(index, messages[index])
