"""The recalls of one conversation, from the question to their one outcome each. Used on memory's loop.

`Prefetcher` offers what `RecallClient` finds to the turn that owns recall; `Speculation` asks ahead, while the user is
typing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from afterturn.conversation.conversation_log import ConversationLog, Delivered
from afterturn.conversation.delivery import (
    DeliverySlot,
    LoopTurn,
    PhaseRun,
    PhaseState,
    Prefetch,
    ReadyBlock,
    VisibleBlocks,
)
from afterturn.conversation.read_turn import Ledger, exclude_visible, make_question, make_request
from afterturn.conversation.recall_client import RecallClient, RecallQueue, reason_of
from afterturn.conversation.scope import ConversationScope
from afterturn.errors import AfterturnError, ModelError
from afterturn.events import Events
from afterturn.guard.output_filter import OutputFilter, event_content
from afterturn.log import logger
from afterturn.ports import Ids, Unit
from afterturn.recall.answer import (
    ForgetEffects,
    RecallAnswer,
    all_valid,
    any_learned_from_visible,
    compose,
    is_standing,
    mark_late,
)
from afterturn.recall.query import RecallRequest
from afterturn.runtime.once_future import OnceFuture
from afterturn.runtime.supervisor import Supervisor
from afterturn.text import STOP_WORDS, terms, words
from afterturn.types import BlockRow, CarriedRow, Decision, EventContent, Hit, Lane, Outcome, Phase, RecallCause, Scalar

_OFFER_ATTEMPTS = 8
# For this long a carried block may be given to a host that never waits, before the store was asked whether it is valid.
_AT_HAND_SECONDS = 600.0
# How many ended carried recalls are remembered. Only one is carried at a time, and its end is stored soon.
_DROPPED_MAX = 100
# From this share of common words on, two texts find the same: one more word at the end, an ending, a typing mistake.
_CLOSE = 0.75
# What people add to a question without asking for anything else, besides stop words; and stop words that do.
_ADDED_WORDS_MAX = 8
_ASIDES = frozenset(
    """
    actually anyway btw cheers exactly forget forgot forgotten hey hi know mind ok okay quick quickly really recall
    remember remind right sorry sure tell thank thanks thx way wonder wondering bitte danke denn doch eigentlich mal
    nochmal noch schnell por favor gracias oye svp s il vous plait merci deja encore grazie prego obrigado obrigada
    """.split()
)
_CHANGING = frozenset("after and before but no nor not or than until".split())


class Prefetcher:
    """At most one prefetch is in flight. The side that claims a phase in the delivery slot decides how it ends.

    Used on memory's loop, except `withhold` and `find_at_hand`, which hosts call from any thread: `_at_hand` is one
    reference, and is replaced, never changed.
    """

    def __init__(
        self,
        client: RecallClient,
        queue: RecallQueue,
        log: ConversationLog,
        events: Events,
        slot: DeliverySlot,
        visible: VisibleBlocks,
    ) -> None:
        self._client = client
        self._queue = queue
        self._log = log
        self._events = events
        self._slot = slot
        self._visible = visible
        self._config = client.config
        self._clock = client.clock
        self.carried: Prefetch | None = None
        self._at_hand: ReadyBlock | None = None
        self._dropped: dict[str, None] = {}

    # Asking.

    async def run(
        self, turn: LoopTurn, prefetch: Prefetch, question: RecallRequest, speculated: RecallAnswer | None = None
    ) -> None:
        """Settles both phases. A failure is logged and does not fail the turn. Does nothing if it was given up."""
        if prefetch.fast.consumed:
            return
        self._ask(turn, prefetch, question)
        answer, ready = speculated, None
        if answer is None:
            try:
                with self.late_after_timeout(prefetch):
                    # A turn's own message was read before; an interjection or a cue is new.
                    begun = prefetch.cause is RecallCause.MESSAGE
                    recalled = await self._queue.run(lambda: self._recall(turn, prefetch), begun=begun)
                answer, ready = recalled
            except TimeoutError:
                self._degrade(prefetch, "timeout")
                return
            except Exception as error:  # the boundary: memory's fault must not fail the host's turn
                logger.warning("a recall failed; the turn continues without it", exc_info=error)
                self._degrade(prefetch, reason_of(error))
                return
        self._emit_withheld(turn, prefetch, answer.withheld)
        if answer.forgotten is not None:
            self._apply_forget(turn, answer.forgotten)
            ready = None
        prefetch.answer = answer
        self._emit_settled(turn, prefetch, answer)
        if answer.exhausted:
            self._forget_visible(turn)
        if prefetch.fast.phase is Phase.FAST:
            self._settle(turn, prefetch.fast, answer.hits, ready)
        if prefetch.runs[-1].phase is Phase.REFINED:
            await self._refine(turn, prefetch, answer)

    @contextmanager
    def late_after_timeout(self, prefetch: Prefetch) -> Iterator[None]:
        """After `recall_timeout`, nobody waits for `prefetch` any more. It goes on, and what it finds is not lost."""
        timer = asyncio.get_running_loop().call_later(self._config.recall_timeout, self._note_late, prefetch)
        try:
            yield
        finally:
            timer.cancel()

    def _note_late(self, prefetch: Prefetch) -> None:
        prefetch.is_late = True
        prefetch.release_waiters()

    async def _recall(self, turn: LoopTurn, prefetch: Prefetch) -> tuple[RecallAnswer, ReadyBlock | None]:
        assert prefetch.question is not None
        waiting, visible_bytes = self._waiting(turn), turn.ledger.size_bytes
        now = self._clock.now()
        answer, block = await self._client.recall(
            prefetch.question.asked(now=now, correlation=prefetch.correlation),
            visible_bytes=visible_bytes,
            turn=turn,
            waiting=[hit for run in waiting for hit in _offered(run, is_late=run.prefetch.turn != turn.id)],
        )
        if block is None:
            return answer, None
        return answer, ReadyBlock(block, (*waiting, prefetch.fast), now, visible_bytes=visible_bytes)

    def _apply_forget(self, turn: LoopTurn, forgotten: ForgetEffects) -> None:
        """Something was erased since the turn was read: what contained it is not shown any more."""
        turn.forgets = forgotten.forgets
        self._visible.correct(forgotten.blocks)
        turn.shared.keep_dropped(hash for hash, row in self._visible.copy().items() if row.text)
        turn.shared.keep_prompt_texts(self._visible.prompt_texts(turn.id))
        turn.recalled = tuple(hit for hit in turn.recalled if hit.entry.ref not in forgotten.gone)
        for run in self._waiting(turn):
            if any(hit.entry.ref in forgotten.gone for hit in run.hits):
                self.end(run, Outcome.CANCELLED, "forgotten")

    def fail(self, turn: LoopTurn, prefetch: Prefetch, question: RecallRequest, reason: str) -> None:
        """For a question that is known to fail: it is not asked, and ends as if it had been."""
        self._ask(turn, prefetch, question)
        self._degrade(prefetch, reason)

    def _ask(self, turn: LoopTurn, prefetch: Prefetch, question: RecallRequest) -> None:
        prefetch.question, prefetch.scope = question, turn.scope
        prefetch.incognito = turn.shared.incognito
        prefetch.visible_bytes = turn.ledger.size_bytes
        prefetch.asked_at = self._clock.now()
        prefetch.started = self._clock.monotonic()
        prefetch.forgets, prefetch.speakers = turn.forgets, (turn.shared.speaker or "user",)
        self._emit("recall_started", turn, correlation=prefetch.correlation, cause=prefetch.cause)

    async def _refine(self, turn: LoopTurn, prefetch: Prefetch, answer: RecallAnswer) -> None:
        run, hits = prefetch.run_of(Phase.REFINED), answer.found.hits
        if not hits:
            self._settle(turn, run, ())
            return
        assert prefetch.question is not None
        try:
            chosen = await self._client.refine(prefetch.question, turn.scope, hits)
        except Exception as error:  # noqa: BLE001  the boundary: a model may do anything
            # Not the error's message: a server may quote what it was shown.
            reason = error.reason if isinstance(error, ModelError) else type(error).__name__
            reason = "timeout" if isinstance(error, TimeoutError) else reason
            logger.warning("a recall was not refined: %s", reason)
            self._emit("refined_failed", turn, correlation=prefetch.correlation, reason=reason)
            self.end(run, Outcome.DEGRADED, reason)
            return
        self._drop_unselected(prefetch, chosen)
        added = tuple(hit for hit in chosen if hit.entry.ref not in _visible_refs(turn, run))
        if chosen and not added:
            self.end(run, Outcome.EMPTY, "already_visible")
            return
        self._settle(turn, run, added)

    def _drop_unselected(self, prefetch: Prefetch, chosen: Sequence[Hit]) -> None:
        """The model's selection replaces the fast result, unless the host has taken that already."""
        fast = prefetch.fast
        if fast.phase is Phase.REFINED:
            return
        if fast.state is PhaseState.CARRIED and chosen and not fast.consumed:
            # It stays carried, together with what the selection adds.
            selected = {hit.entry.ref for hit in chosen}
            fast.hits = tuple(hit for hit in fast.hits if hit.entry.ref in selected)
            return
        self.end(fast, Outcome.SUPERSEDED, "selected")
        if self.carried is prefetch:
            self.carried = self._at_hand = None

    def _settle(self, turn: LoopTurn, run: PhaseRun, hits: tuple[Hit, ...], ready: ReadyBlock | None = None) -> None:
        run.settled_at = self._clock.now()
        if run.ended:
            return
        answer = run.prefetch.answer
        standing = answer.standing if answer is not None else ()
        # A sub-agent sees no standing block, so what stands may be a part of its task.
        turn.recalled = tuple({hit.entry.ref: hit for hit in (*turn.recalled, *standing, *hits)}.values())
        if not hits:
            assert answer is not None
            broken = set(answer.found.missing) & set(Lane)
            reason = "already_visible" if standing and not broken else "no_relevant_results"
            self.end(run, Outcome.DEGRADED if broken else Outcome.EMPTY, reason)
            return
        run.hits = hits
        run.move(PhaseState.READY)
        if turn.left:
            self._carry(turn, run.prefetch)
        else:
            self.offer(turn, ready)
        if not self._slot.is_held(turn.shared):
            run.settled.settle(True)

    # Offering.

    def release(self, turn: LoopTurn) -> None:
        """A compaction was examined, for which the slot was held. If it is free now, offers what is ready."""
        if not self._slot.release(turn.shared):
            return
        if not turn.left:
            self.offer(turn)
        for run in self._waiting(turn):
            run.settled.settle(True)

    def offer(self, turn: LoopTurn, ready: ReadyBlock | None = None) -> None:
        """Puts one block of all that is ready into the slot. `ready` was rendered before, and may be out of date."""
        if self._slot.is_held(turn.shared):
            return
        for _ in range(_OFFER_ATTEMPTS):
            waiting = self._waiting(turn)
            if not waiting:
                self._slot.put(turn.shared, None)
                return
            if ready is None or ready.runs != tuple(waiting):
                ready = self._compose(turn, waiting)
            if ready is None:
                for run in waiting:
                    self.end(run, Outcome.EMPTY, self._empty_reason(turn, run))
                return
            if self._slot.put(turn.shared, ready):
                return
            ready = None

    def _compose(self, turn: LoopTurn, runs: Iterable[PhaseRun], *, is_late: bool = False) -> ReadyBlock | None:
        """Hits that the model chose come before the others of their epoch. None if nothing is left to show.

        `is_late`: the block is for the turn after this one.
        """
        ordered = sorted(runs, key=lambda run: (run.prefetch.epoch, run.phase is Phase.FAST))
        now, visible_bytes = self._clock.now(), turn.ledger.size_bytes
        hits = [(run, hit) for run in ordered for hit in _offered(run, is_late=is_late or run.prefetch.turn != turn.id)]
        seen = frozenset(hit.entry.ref for run, hit in hits if hit.entry.ref in _visible_refs(turn, run))
        shown = [hit for run, hit in hits if hit.entry.ref not in _visible_refs(turn, run)]
        if not shown:
            return None
        scanning = self._config.scan_policy
        screen = OutputFilter(scanning=scanning, projects=turn.scope.projects(scanning))
        block = compose(shown, self._config, visible_bytes=visible_bytes, now=now, screen=screen)
        for prefetch in {run.prefetch for run in ordered}:
            self._emit_withheld(turn, prefetch, screen.withheld)
        return ReadyBlock(block, tuple(ordered), now, seen, visible_bytes) if block is not None else None

    def _empty_reason(self, turn: LoopTurn, run: PhaseRun) -> str:
        if not run.hits:
            return Decision.STALE
        if all(hit.entry.ref in run.prefetch.withheld for hit in run.hits):
            return "withheld"
        is_visible = all(hit.entry.ref in _visible_refs(turn, run) for hit in run.hits)
        return "already_visible" if is_visible else "budget"

    def _waiting(self, turn: LoopTurn) -> list[PhaseRun]:
        """The phases that are ready to be handed over, carried ones first."""
        prefetches = [*([turn.carried] if turn.carried else []), *turn.shared.prefetches]
        return [
            run
            for prefetch in prefetches
            for run in prefetch.runs
            if run.state in (PhaseState.READY, PhaseState.CARRIED) and not run.consumed
        ]

    def waiting_refs(self, turn: LoopTurn) -> frozenset[str]:
        return frozenset(hit.entry.ref for run in self._waiting(turn) for hit in run.hits)

    def taken_refs(self, turn: LoopTurn) -> frozenset[str]:
        """The references of memories that the host has taken and whose delivery is not noted on the loop yet."""
        taken = [one for one in turn.shared.prefetches if any(run.consumed and not run.ended for run in one.runs)]
        return frozenset(ref for prefetch in taken for ref in prefetch.shown)

    def delivered(self, turn: LoopTurn, ready: ReadyBlock, row: BlockRow) -> None:
        """The host has taken a block: its phases were claimed in the slot, and end here."""
        for order, run in enumerate(ready.runs):
            delivered = Delivered(row, ready, order)
            if any(hit.entry.ref in row.refs for hit in run.hits):
                self._finish(run, Outcome.DELIVERED, row.point, delivered)
            else:
                self._finish(run, Outcome.EMPTY, self._empty_reason(turn, run), delivered)

    # Ending.

    def end(self, run: PhaseRun, outcome: Outcome, reason: str) -> None:
        """Gives a phase up, unless the host has taken it already."""
        if not run.ended and self._slot.claim(run):
            self._finish(run, outcome, reason)

    def _finish(self, run: PhaseRun, outcome: Outcome, reason: str, delivered: Delivered | None = None) -> None:
        if run.ended:
            return
        if run.state is PhaseState.CARRIED:
            self._forget_carried(run.prefetch)
            outcome = outcome if outcome is Outcome.DELIVERED else Outcome.UNDELIVERED
        elif run.state is PhaseState.ASKED and run.prefetch.is_late and outcome is Outcome.SUPERSEDED:
            outcome, reason = Outcome.DEGRADED, "timeout"
        run.move(PhaseState.ENDED)
        run.outcome, run.reason = outcome, reason
        if run.prefetch.asked:
            self._log.add_recall(run, delivered)
        answer = run.prefetch.answer
        if answer is not None and all(one.ended for one in run.prefetch.runs):
            # Nothing needs what was weighed and not shown any more, and a conversation may rest for long.
            run.prefetch.answer = answer._replace(found=replace(answer.found, hits=()))
        # Last: a host that waited for it may ask at once how it ended.
        run.settled.settle(False)

    def stop(self, prefetch: Prefetch, outcome: Outcome, reason: str) -> None:
        """Ends the open phases of a prefetch, and its task. Its hits are not delivered any more."""
        for run in prefetch.runs:
            self.end(run, outcome, reason)
        prefetch.release_waiters()
        if prefetch.task is not None and prefetch.asked:
            prefetch.task.cancel()

    def supersede_before(self, turn: LoopTurn, newest: Prefetch) -> None:
        """Ends what was asked before `newest` and has not settled; what has settled may still be handed over."""
        prefetches = turn.shared.prefetches
        for prefetch in prefetches[: prefetches.index(newest)]:
            for run in prefetch.runs:
                if run.state is PhaseState.ASKED:
                    self.end(run, Outcome.SUPERSEDED, "new_query")
            if prefetch.task is not None and prefetch.asked and all(run.ended or run.hits for run in prefetch.runs):
                prefetch.task.cancel()

    def stop_all(self, turn: LoopTurn, outcome: Outcome, reason: str) -> None:
        for prefetch in [*turn.shared.prefetches, *([turn.carried] if turn.carried else [])]:
            self.stop(prefetch, outcome, reason)

    def _degrade(self, prefetch: Prefetch, reason: str) -> None:
        for run in prefetch.runs:
            run.settled_at = self._clock.now()
            self.end(run, Outcome.DEGRADED, reason)

    # Between turns.

    def leave(self, turn: LoopTurn) -> None:
        """The turn ended well: what has settled is carried to the next one, what has not may still settle."""
        turn.left = True
        if turn.carried is not None:
            self.stop(turn.carried, Outcome.UNDELIVERED, "no_safe_point")
        for prefetch in turn.shared.prefetches:
            self._carry(turn, prefetch)

    def _carry(self, turn: LoopTurn, prefetch: Prefetch) -> None:
        if turn.shared.incognito:
            # A later turn would be given what was found for words that must not be kept.
            for run in prefetch.runs:
                if run.state is PhaseState.READY:
                    self.end(run, Outcome.CANCELLED, "incognito")
            return
        for run in prefetch.runs:
            if run.state is PhaseState.READY and not run.consumed:
                run.move(PhaseState.CARRIED)
        runs = [run for run in prefetch.runs if run.state is PhaseState.CARRIED]
        if not runs or prefetch.question is None:
            return
        if self.carried not in (None, prefetch):
            # Only one is carried: the one that was asked last.
            self.drop_carried("new_query")
        self.carried = prefetch
        self._at_hand = self._compose(turn, runs, is_late=True)
        row = self._log.carry(prefetch, runs)
        self._emit("recall_carried", turn, correlation=prefetch.correlation, memories=len(row.candidates))

    def withhold(self) -> None:
        """The context was compacted or reset: nothing carried may be delivered unchecked. From any thread."""
        self._at_hand = None

    def find_at_hand(self, scope: ConversationScope) -> ReadyBlock | None:
        """The carried block, if it is recent enough to be handed over unchecked. From any thread."""
        ready = self._at_hand
        if ready is None or self._clock.now() - ready.made_at > _AT_HAND_SECONDS:
            return None
        return ready if ready.runs[0].prefetch.scope == scope else None

    def take_over(self, earlier: LoopTurn) -> Prefetch | None:
        """A new turn owns recall from now on. Returns what the earlier one carries to it."""
        if earlier.carried is not None:
            self.stop(earlier.carried, Outcome.UNDELIVERED, "no_safe_point")
        for prefetch in earlier.shared.prefetches:
            if prefetch is not self.carried:
                self.stop(prefetch, Outcome.SUPERSEDED, "new_query")
            else:
                for run in prefetch.runs:
                    if run.state is PhaseState.ASKED:
                        self.end(run, Outcome.SUPERSEDED, "new_query")
                if prefetch.task is not None:
                    prefetch.task.cancel()
        carried, self.carried, self._at_hand = self.carried, None, None
        return carried

    def adopt(self, turn: LoopTurn, row: CarriedRow, hits: tuple[Hit, ...]) -> Prefetch:
        """Makes a prefetch of a stored carried recall, of this or another process."""
        prefetch = Prefetch(row.correlation, row.cause, turn=row.turn, epoch=row.epoch, phases=row.phases)
        prefetch.question = make_request(row.question, turn.scope, turn.ledger, self._config)
        prefetch.scope, prefetch.visible_bytes = turn.scope, turn.ledger.size_bytes
        prefetch.asked_at = row.asked_at
        prefetch.forgets, prefetch.speakers = row.forgets, row.speakers
        for run in prefetch.runs:
            run.move(PhaseState.READY)
            run.move(PhaseState.CARRIED)
            is_refined = run.phase is Phase.REFINED
            run.hits = tuple(hit for hit in hits if (hit.entry.ref in row.refined) is is_refined)
            run.settled_at = row.settled_at
            run.settled.settle(True)
        return prefetch

    def is_waiting(self, row: CarriedRow) -> bool:
        """Whether a carried recall in the store is still to be offered: its end may not be stored yet."""
        return row.correlation not in self._dropped

    def drop_carried(self, reason: str) -> None:
        self._at_hand = None
        if self.carried is not None:
            self.stop(self.carried, Outcome.UNDELIVERED, reason)
            self.carried = None

    def _forget_carried(self, prefetch: Prefetch) -> None:
        self._dropped[prefetch.correlation] = None
        while len(self._dropped) > _DROPPED_MAX:
            del self._dropped[next(iter(self._dropped))]
        self._log.drop_carried(prefetch.correlation)

    def abandon(self, turn: LoopTurn) -> None:
        """Nothing of this turn is handed over any more, neither in it nor in a later one."""
        self.stop_all(turn, Outcome.CANCELLED, "abort")
        if self.carried in turn.shared.prefetches:
            self.carried = self._at_hand = None

    def shut(self, turn: LoopTurn) -> None:
        """Memory closes. A durable turn carries what is ready, for the process that resumes it."""
        if turn.shared.durable and not turn.left:
            self.leave(turn)
        # A compaction that is still being examined starts no recall.
        turn.left = True
        for prefetch in turn.shared.prefetches:
            if prefetch is not self.carried:
                self.stop(prefetch, Outcome.CANCELLED, "shutdown")
            for run in prefetch.runs:
                if run.state is PhaseState.ASKED and prefetch.asked:
                    self.end(run, Outcome.CANCELLED, "shutdown")
                # Taken at the very end, so that its delivery could not be noted.
                if run.consumed and not run.ended:
                    self._finish(run, Outcome.CANCELLED, "shutdown")

    # Reporting.

    def _forget_visible(self, turn: LoopTurn) -> None:
        """Everything relevant was shown before, so it is offered again: nothing counts as visible."""
        self._emit("exclusions_exhausted", turn)
        turn.ledger = turn.ledger._replace(refs=frozenset())
        self._visible.clear()
        self._log.clear(turn.scope, compacted=False)

    def _emit_withheld(self, turn: LoopTurn, prefetch: Prefetch, withheld: Mapping[str, str]) -> None:
        for ref, reason in withheld.items():
            if ref not in prefetch.withheld:
                self._emit("withheld", turn, memory=ref, reason=reason)
        prefetch.withheld |= frozenset(withheld)

    def _emit_settled(self, turn: LoopTurn, prefetch: Prefetch, answer: RecallAnswer) -> None:
        lanes = {str(lane): sum(hit.lane is lane for hit in answer.hits) for lane in Lane}
        content = None
        if self._events.wants_content and not prefetch.incognito:
            entries = [hit.entry for hit in answer.hits]
            content = event_content(answer.found.query, entries, scanning=self._config.scan_policy)
        self._emit(
            "recall_settled",
            turn,
            content,
            correlation=prefetch.correlation,
            milliseconds=round((self._clock.monotonic() - prefetch.started) * 1000, 2),
            missing=",".join(answer.found.missing),
            memories=len(answer.hits),
            **lanes,
        )

    def _emit(self, name: str, turn: LoopTurn, content: EventContent | None = None, **data: Scalar) -> None:
        scope = turn.scope
        self._events.emit(name, content, space=scope.owner, conversation=scope.id, turn=turn.id, **data)


def _visible_refs(turn: LoopTurn, run: PhaseRun) -> frozenset[str]:
    """The memories that the model sees, and those that the host has just taken, which the ledger does not have yet."""
    return turn.ledger.refs | run.prefetch.shown


def _offered(run: PhaseRun, *, is_late: bool) -> Sequence[Hit]:
    """The hits of a phase, with the question that they belong to if its turn is over."""
    prefetch = run.prefetch
    assert prefetch.question is not None
    return mark_late(run.hits, prefetch.question.text, prefetch.cause) if is_late else run.hits


@dataclass(slots=True, eq=False)
class SpeculativeRecall:
    """`answer` settles with None if the recall failed."""

    question: RecallRequest
    scope: ConversationScope
    correlation: str
    answer: OnceFuture[RecallAnswer | None] = field(default_factory=OnceFuture)
    task: asyncio.Task[None] | None = None


def is_close(partial: str, final: str) -> bool:
    """Whether a recall for `partial` is good enough for `final`: they have most words in common, or `final` goes on
    with words that ask for nothing else."""
    typed, said = frozenset(terms(partial)), frozenset(terms(final))
    if not typed or len(typed & said) >= _CLOSE * len(typed | said):
        return bool(typed)
    begun, whole = words(partial), words(final)
    added = whole[len(begun) :]
    return (
        whole[: len(begun)] == begun
        and len(added) <= _ADDED_WORDS_MAX
        and all(word in _ASIDES or (word in STOP_WORDS and word not in _CHANGING) for word in added)
    )


@dataclass(slots=True)
class Speculation:
    """Recalls for what the user is still typing: used when the final words are close to it, else discarded.

    At most one recall at a time, of one conversation. `read_ledger` finds what the model of a host that hides its
    messages can see.
    """

    client: RecallClient
    supervisor: Supervisor
    ids: Ids
    read_ledger: Callable[[ConversationScope], Awaitable[Ledger]]
    emit: Callable[..., None]
    current: SpeculativeRecall | None = None

    def start(self, scope: ConversationScope, text: str) -> None:
        """Asks nothing while what is typed stays close to what was asked."""
        question = make_question(text, scope, Ledger(), self.client.config)
        if question is None or (self.current is not None and is_close(self.current.question.text, question.text)):
            return
        self.drop("new_query")
        speculation = self.current = SpeculativeRecall(question, scope, self.ids.new())
        self.emit("speculation_started", correlation=speculation.correlation)
        speculation.task = self.supervisor.start(self._run(speculation), "speculation")
        speculation.task.add_done_callback(lambda _: speculation.answer.settle(None))

    async def _run(self, speculation: SpeculativeRecall) -> None:
        scope = speculation.scope
        try:
            if scope.is_hidden:
                ledger = await self.read_ledger(scope)
                speculation.question = exclude_visible(speculation.question, scope, ledger)
            now, correlation = self.client.clock.now(), speculation.correlation
            answer, _ = await self.client.recall(speculation.question.asked(now=now, correlation=correlation))
        except (AfterturnError, TimeoutError) as error:
            logger.warning("a recall for a message that is being typed failed: %s", type(error).__name__)
            return
        speculation.answer.settle(answer)

    async def take(self, prefetch: Prefetch, scope: ConversationScope, question: RecallRequest) -> RecallAnswer | None:
        """The answer that was found while this was typed, if it can be used; then nothing else is asked."""
        speculation = self.current
        if speculation is None:
            return None
        if speculation.scope != scope or not is_close(speculation.question.text, question.text):
            self.drop("other_words")
            return None
        await speculation.answer.wait(within=self.client.config.recall_timeout)
        if prefetch.fast.consumed or self.current is not speculation:
            return None
        answer = _unseen(speculation, question, enough=self.client.config.recall_entries_max)
        if answer is None:
            self.drop("already_visible" if speculation.answer.peek() else "failed")
            return None
        if not await self._is_valid(question, answer) or self.current is not speculation:
            self.drop("stale")
            return None
        self.current = None
        prefetch.speculated = True
        self.emit(
            "speculation_ended", turn=prefetch.turn, correlation=speculation.correlation, outcome="used", reason="close"
        )
        return answer

    async def _is_valid(self, question: RecallRequest, answer: RecallAnswer) -> bool:
        """Whether none of it was changed or forgotten since, or learned from messages that the model sees."""
        now = self.client.clock.now()

        def work(unit: Unit) -> bool:
            if not all_valid(unit, question.scope, answer.found.hits, now):
                return False
            return not any_learned_from_visible(unit, question, answer.hits)

        try:
            async with asyncio.timeout(self.client.config.recall_timeout):
                return await self.client.store.read(work, at=question.scope)
        except (AfterturnError, TimeoutError):
            return False  # the recall that follows reports what is wrong with the store

    def drop(self, reason: str) -> None:
        speculation, self.current = self.current, None
        if speculation is None:
            return
        if speculation.task is not None:
            speculation.task.cancel()
        self.emit("speculation_ended", correlation=speculation.correlation, outcome="discarded", reason=reason)


def _unseen(speculation: SpeculativeRecall, question: RecallRequest, *, enough: int) -> RecallAnswer | None:
    """The answer without what the model sees. None when too little is left: only a query can find what comes next."""
    answer = speculation.answer.peek()
    if answer is None or question.admitted.seen_since != speculation.question.admitted.seen_since:
        return None
    others = [hit for hit in answer.hits if question.standing is None or not is_standing(hit, question.standing)]
    hits = tuple(hit for hit in others if not _is_visible(hit, question))
    if len(hits) < min(enough, len(others)):
        return None
    found = replace(answer.found, hits=tuple(hit for hit in answer.found.hits if not _is_visible(hit, question)))
    return answer._replace(hits=hits, found=found, standing=tuple(hit for hit in answer.hits if hit not in others))


def _is_visible(hit: Hit, question: RecallRequest) -> bool:
    return (
        hit.entry.ref in question.admitted.excluded_refs or hit.entry.content_hash in question.admitted.visible_hashes
    )
