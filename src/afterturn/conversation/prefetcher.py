"""What a recall leaves behind, so that a person can see later why each memory came when it came. Pure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from afterturn.config import SHAPING, Config
from afterturn.conversation.conversation_log import ConversationLog
from afterturn.conversation.delivery import DeliverySlot, ReadyBlock
from afterturn.conversation.prefetch import PhaseRun, PhaseState, Prefetch
from afterturn.conversation.read_turn import (
    ForgetEffects,
    RecallAnswer,
    RecallQuestion,
    RecallTiming,
    aftermath,
    compose,
    prepare,
    weighed_max,
)
from afterturn.conversation.scope import ConversationScope
from afterturn.conversation.turn_state import TurnState
from afterturn.conversation.visible import VisibleBlocks
from afterturn.embedders.service import EmbeddingService
from afterturn.errors import ModelError
from afterturn.events import Events
from afterturn.guard.output_filter import OutputFilter, neutralise
from afterturn.models.meter import Meter
from afterturn.ports import ChatModel, Clock, Store, Unit
from afterturn.recall.block import Block, describe_age, describe_author
from afterturn.recall.rerank import select
from afterturn.recall.scoring import above_floor
from afterturn.types import (
    BlockRow,
    Candidate,
    CarriedRow,
    Decision,
    Hit,
    Lane,
    Outcome,
    Phase,
    Purpose,
    RecallRow,
    Scalar,
    Scope,
)

# Of what was carried: changed, deleted or come into sight before it could be handed over.
STALE = Decision.STALE


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a phase was handed over with: which block, of which offer, and as which of the results in it."""

    row: BlockRow
    offer: ReadyBlock
    order: int


def candidates_of(hits: Iterable[Hit]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(hit.entry.ref, hit.entry.space, hit.lane, hit.score, hit.lexical, hit.similarity) for hit in hits
    )


def recall_row(run: PhaseRun, config: Config, delivery: Delivery | None) -> RecallRow:
    """Of a phase that has ended. `made_at` and `order` among the settings say how its block was put together.

    One that was weighed for a block and has nothing in it names that block too: it may have shaped it.
    """
    prefetch, question, prepared = run.prefetch, run.prefetch.question, run.prefetch.prepared
    assert question is not None
    assert prefetch.asked_at is not None
    assert run.outcome is not None
    settings: dict[str, Scalar] = {name: getattr(config, name) for name in SHAPING}
    settings["candidates_max"] = weighed_max(config)
    if prefetch.speculated:
        settings["speculated"] = True
    if prepared is not None and prepared.exhausted:
        settings["exhausted"] = True
    if question.ledger.seen_since is not None:
        settings["seen_since"] = question.ledger.seen_since
    weighed = _weighed(run)
    row = RecallRow(
        correlation=prefetch.correlation,
        turn=prefetch.turn,
        epoch=prefetch.epoch,
        cause=prefetch.cause,
        phase=run.phase,
        question=question.text,
        asked_at=prefetch.asked_at,
        settled_at=run.settled_at,
        outcome=run.outcome,
        reason=run.reason,
        reads=question.place.reads,
        missing=prepared.found.missing if prepared else (),
        excluded=tuple(sorted(question.ledger.refs)),
        visible=tuple(sorted(question.ledger.message_hashes)),
        visible_bytes=question.ledger.size_bytes,
        terms=tuple(sorted({term for hit in weighed for term in hit.terms})),
        candidates=_judged(run, weighed, config, delivery),
        settings=settings,
    )
    return row if delivery is None else _delivered(row, delivery)


def _delivered(row: RecallRow, delivery: Delivery) -> RecallRow:
    block, offer = delivery.row, delivery.offer
    return replace(
        row,
        visible_bytes=offer.visible_bytes,
        settings={**row.settings, "made_at": offer.made_at, "order": delivery.order},
        point=block.point,
        block=block.hash,
        delivered_in=block.turn,
        delivered_at=block.injected_at,
    )


def _weighed(run: PhaseRun) -> tuple[Hit, ...]:
    """What was to be handed over, in its order; then what was left out before."""
    prepared = run.prefetch.prepared
    found = prepared.found.hits if prepared is not None and run.phase is Phase.FAST else ()
    offered = {hit.entry.ref for hit in run.hits}
    return (*run.hits, *(hit for hit in found if hit.entry.ref not in offered))


def _judged(
    run: PhaseRun, weighed: tuple[Hit, ...], config: Config, delivery: Delivery | None
) -> tuple[Candidate, ...]:
    offered = len(run.hits)
    worthy = _worthy(run, config)
    decisions = [
        _handed_over(run, hit, delivery) if place < offered else _left_out(run, hit, worthy)
        for place, hit in enumerate(weighed)
    ]
    return tuple(
        replace(candidate, decision=decision)
        for candidate, decision in zip(candidates_of(weighed), decisions, strict=True)
    )


def _worthy(run: PhaseRun, config: Config) -> frozenset[str]:
    """The references of what was found and is not below the floor."""
    prepared = run.prefetch.prepared
    found = prepared.found.hits if prepared is not None else ()
    return frozenset(hit.entry.ref for hit in above_floor(found, config.recall_score_min))


def _left_out(run: PhaseRun, hit: Hit, worthy: frozenset[str]) -> Decision:
    """Why it was not among what was to be handed over."""
    prepared = run.prefetch.prepared
    if prepared is not None and hit.entry.ref in prepared.restated:
        return Decision.RESTATED
    if prepared is not None and hit.entry.ref not in worthy:
        return Decision.FLOOR
    return STALE


def _handed_over(run: PhaseRun, hit: Hit, delivery: Delivery | None) -> Decision | None:
    if hit.entry.ref in run.prefetch.withheld:
        return Decision.QUARANTINED
    if delivery is not None:
        if hit.entry.ref in delivery.offer.block.refs:
            return Decision.SHOWN
        return Decision.VISIBLE if hit.entry.ref in delivery.offer.shown else Decision.BUDGET
    if run.outcome is not Outcome.DELIVERED and run.reason in (Decision.BUDGET, "already_visible"):
        return Decision.BUDGET if run.reason == Decision.BUDGET else Decision.VISIBLE
    return None


# Asks the store, and the model where recall is refined, on behalf of a conversation. Lives on memory's loop.


@dataclass(frozen=True, slots=True)
class RecallClient:
    """What all conversations of one memory ask through. Without a model, or unless switched on, nothing is refined."""

    store: Store
    embedding: EmbeddingService | None
    model: ChatModel | None
    config: Config
    clock: Clock
    events: Events
    meter: Meter

    @property
    def phases(self) -> tuple[Phase, ...]:
        return tuple(Phase) if self.config.refined and self.model is not None else (Phase.FAST,)

    async def find(
        self, question: RecallQuestion, correlation: str, waiting: Sequence[Hit], *, visible_bytes: int, now: float
    ) -> tuple[RecallAnswer, Block | None]:
        """The fast phase, and the block that it makes together with what waits to be handed over already."""
        config = self.config
        async with asyncio.timeout(config.recall_timeout):
            asking = await ask(self.embedding, question.text, question.place, now=now, correlation=correlation)

            def work(unit: Unit) -> tuple[RecallAnswer, Block | None]:
                prepared = prepare(unit, question, asking, config)
                if question.forgets is not None:
                    after = aftermath(unit, question.place, question.forgets, (*waiting, *question.recalled))
                    prepared = replace(prepared, aftermath=after)
                screen, offered = OutputFilter(scanning=config.scanning), [*waiting, *prepared.hits]
                block = compose(offered, config, visible_bytes=visible_bytes, now=now, screen=screen)
                return replace(prepared, withheld=screen.withheld), block

            return await self.store.read(work)

    async def refine(self, question: RecallQuestion, hits: Sequence[Hit]) -> list[Hit]:
        """What the model chooses of `hits`. Raises whatever is wrong with the model or its answer."""
        assert self.model is not None
        now, place = self.clock.now(), question.place
        model = self.meter.of(self.model, Purpose.RECALL, place.tenant, place.owner)

        def line(hit: Hit) -> str:
            entry = hit.entry
            return f"{describe_age(entry.occurred_at, now)}, {describe_author(entry)}: {neutralise(entry.text)}"

        async with asyncio.timeout(self.config.model_timeout):
            offered = await self._screened(hits)
            chosen = await select(model, question.text, offered, entries_max=self.config.recall_entries_max, line=line)
        found = {hit.entry.ref: hit for hit in hits}
        return [found[hit.entry.ref] for hit in chosen]

    async def _screened(self, hits: Sequence[Hit]) -> list[Hit]:
        """As the model may see them (G3)."""
        screen, offered = OutputFilter(scanning=self.config.scanning), []
        for hit in hits:
            text = screen.shown(hit.entry)
            if text is not None:
                offered.append(replace(hit, entry=replace(hit.entry, text=text)))
            # Long ones take a while, and other conversations share this loop.
            await asyncio.sleep(0)
        return offered

    def summariser(self, place: ConversationScope) -> ChatModel | None:
        """The model that summarises a conversation's history, if there is one."""
        return self.model and self.meter.of(self.model, Purpose.COMPACTION, place.tenant, place.owner)

    def begin_turn(self, state: TurnState) -> None:
        """Background work keeps out of this turn's way until `end_turn`."""
        if self.embedding is not None:
            self.embedding.begin_turn(state)

    def rest(self) -> None:
        """A turn has its block: what would disturb a recall may run while the model answers."""
        if self.embedding is not None:
            self.embedding.want()

    def end_turn(self, state: TurnState) -> None:
        if self.embedding is not None:
            self.embedding.end_turn(state)


async def ask(
    embedding: EmbeddingService | None, text: str, place: ConversationScope, *, now: float, correlation: str
) -> RecallTiming:
    """By words alone where there is no embedder, or it is not ready yet."""
    if embedding is None:
        return RecallTiming(now, correlation)
    vector = await embedding.query_vector(text, Scope(place.tenant, place.reads))
    return RecallTiming(now, correlation, vector, embedding.index)


# The recalls of one conversation, from being asked to their one outcome each (R5). Lives on memory's loop.

logger = logging.getLogger("afterturn")
_OFFERED_AGAIN_MAX = 8
# For so long what is carried may go to a host that does not wait until the store was asked whether it still holds.
_FRESH_WITHIN = 600.0
# Of which carried recalls we remember that they have ended: one at a time is carried, and the store is told soon.
_DROPPED_MAX = 100


@dataclass(frozen=True, slots=True)
class RenderedBlock:
    """A block of what is ready, or None when nothing fits, and what it was made by; `ReadyBlock` says more."""

    block: Block | None
    runs: tuple[PhaseRun, ...]
    made_at: float
    visible_bytes: int
    shown: frozenset[str] = frozenset()


class Prefetcher:
    """At most one prefetch is in flight (R3). Whoever claims a phase at the desk decides how it ends."""

    def __init__(
        self, recaller: RecallClient, books: ConversationLog, events: Events, desk: DeliverySlot, sight: VisibleBlocks
    ) -> None:
        self._recaller = recaller
        self._books = books
        self._events = events
        self._desk = desk
        self._sight = sight
        self._config = recaller.config
        self._clock = recaller.clock
        self.carried: Prefetch | None = None
        self._at_hand: ReadyBlock | None = None
        self._dropped: dict[str, None] = {}

    # Asking.

    async def run(
        self, state: TurnState, prefetch: Prefetch, question: RecallQuestion, speculated: RecallAnswer | None = None
    ) -> None:
        """Settles both phases, whatever happens. A failure is warned about and leaves the turn whole (L8).

        Given up before it could begin, it does not.
        """
        if prefetch.fast.consumed:
            return
        self._ask(state, prefetch, question)
        waiting, made, prepared = self._waiting(state), None, speculated
        try:
            if prepared is None:
                hits = [hit for run in waiting for hit in run.hits]
                now, visible_bytes = self._clock.now(), state.ledger.size_bytes
                prepared, block = await self._recaller.find(
                    replace(question, forgets=state.forgets, recalled=state.recalled),
                    prefetch.correlation,
                    hits,
                    visible_bytes=visible_bytes,
                    now=now,
                )
                made = RenderedBlock(block, (*waiting, prefetch.fast), now, visible_bytes)
        except TimeoutError:
            self._degrade(prefetch, "timeout")
            return
        except Exception as error:  # the boundary: memory's fault must not fail the host's turn
            logger.warning("a recall failed; the turn goes on without it", exc_info=error)
            self._degrade(prefetch, type(error).__name__)
            return
        self._tell_withheld(state, prefetch, prepared.withheld)
        if prepared.aftermath is not None:
            self._forgotten(state, prepared.aftermath)
            made = None
        prefetch.prepared = prepared
        self._tell_settled(state, prefetch)
        if prepared.exhausted:
            self._exhausted(state)
        self._settle(state, prefetch.fast, prepared.hits, made)
        if len(prefetch.runs) > 1:
            await self._refine(state, prefetch, question)

    def _forgotten(self, state: TurnState, aftermath: ForgetEffects) -> None:
        """Something was erased since this turn was read: what held it is not shown any more (M2)."""
        state.forgets = aftermath.forgets
        self._sight.correct(aftermath.blocks)
        state.dropped = tuple(row for row in state.dropped if self._sight.blocks[row.hash].text)
        state.texts = self._sight.written_in(state.id)
        state.recalled = tuple(hit for hit in state.recalled if hit.entry.ref not in aftermath.gone)
        for run in self._waiting(state):
            if any(hit.entry.ref in aftermath.gone for hit in run.hits):
                self.end(run, Outcome.CANCELLED, "forgotten")

    def fail(self, state: TurnState, prefetch: Prefetch, question: RecallQuestion, reason: str) -> None:
        """What is known to be in vain is not asked, and ends as if it had been (L8)."""
        self._ask(state, prefetch, question)
        self._degrade(prefetch, reason)

    def _ask(self, state: TurnState, prefetch: Prefetch, question: RecallQuestion) -> None:
        prefetch.question = question
        prefetch.asked_at = self._clock.now()
        prefetch.started = self._clock.monotonic()
        prefetch.forgets, prefetch.speakers = state.forgets, (state.speaker or "user",)
        self._emit("recall_started", state, correlation=prefetch.correlation, cause=prefetch.cause)

    async def _refine(self, state: TurnState, prefetch: Prefetch, question: RecallQuestion) -> None:
        assert prefetch.prepared is not None
        run, found = prefetch.last(Phase.REFINED), prefetch.prepared.found
        if not found.hits:
            self._settle(state, run, ())
            return
        try:
            chosen = await self._recaller.refine(question, found.hits)
        except Exception as error:  # noqa: BLE001  the boundary: a model may do anything, and the fast recall stands
            reason = _reason(error)
            logger.warning("a recall was not refined: %s", reason)
            self._emit("refined_failed", state, correlation=prefetch.correlation, reason=reason)
            self.end(run, Outcome.DEGRADED, reason)
            return
        added = tuple(hit for hit in chosen if hit.entry.ref not in _seen(state, run))
        if chosen and not added:
            self.end(run, Outcome.EMPTY, "already_visible")
            return
        self._settle(state, run, added)

    def _settle(
        self,
        state: TurnState,
        run: PhaseRun,
        hits: tuple[Hit, ...],
        made: RenderedBlock | None = None,
    ) -> None:
        run.settled_at = self._clock.now()
        if run.ended:
            return
        if not hits:
            assert run.prefetch.prepared is not None
            broken = set(run.prefetch.prepared.found.missing) & set(Lane)
            self.end(run, Outcome.DEGRADED if broken else Outcome.EMPTY, "no_relevant_results")
            return
        run.hits = hits
        run.move(PhaseState.READY)
        state.recalled = tuple({hit.entry.ref: hit for hit in (*state.recalled, *hits)}.values())
        if state.left:
            self._carry(state, run.prefetch)
        else:
            self.offer(state, made)
        if not state.held:
            run.settled.settle(True)

    # Offering.

    def hold(self, state: TurnState) -> None:
        """What is in sight is being looked into: nothing is handed over that left out what went (H7)."""
        state.held += 1
        self._desk.put(state, None)

    def release(self, state: TurnState) -> None:
        state.held -= 1
        if not state.left:
            self.offer(state)
        if not state.held:
            for run in self._waiting(state):
                run.settled.settle(True)

    def offer(self, state: TurnState, made: RenderedBlock | None = None) -> None:
        """Puts one block of all that is ready on the desk; `made` was rendered already, and may be out of date."""
        if state.held:
            return
        for _ in range(_OFFERED_AGAIN_MAX):
            ready = self._waiting(state)
            if not ready:
                self._desk.put(state, None)
                return
            if made is None or made.runs != tuple(ready):
                made = self._composed(state, ready)
            if made.block is None:
                for run in ready:
                    self.end(run, Outcome.EMPTY, self._why_nothing(state, run))
                return
            if self._desk.put(state, ReadyBlock(made.block, made.runs, made.made_at, made.shown, made.visible_bytes)):
                return
            made = None

    def _composed(self, state: TurnState, ready: Iterable[PhaseRun]) -> RenderedBlock:
        """What the model chose comes before the rest of its epoch."""
        by_choice = sorted(ready, key=lambda run: (run.prefetch.epoch, run.phase is Phase.FAST))
        now, ledger = self._clock.now(), state.ledger
        hits = [hit for run in by_choice for hit in run.hits if hit.entry.ref not in _seen(state, run)]
        screen = OutputFilter(scanning=self._config.scanning)
        block = compose(hits, self._config, visible_bytes=ledger.size_bytes, now=now, screen=screen) if hits else None
        for prefetch in {run.prefetch for run in by_choice}:
            self._tell_withheld(state, prefetch, screen.withheld)
        seen = frozenset(hit.entry.ref for run in by_choice for hit in run.hits if hit.entry.ref in _seen(state, run))
        return RenderedBlock(block, tuple(by_choice), now, ledger.size_bytes, seen)

    def _why_nothing(self, state: TurnState, run: PhaseRun) -> str:
        if not run.hits:
            return STALE
        if all(hit.entry.ref in run.prefetch.withheld for hit in run.hits):
            return "withheld"
        shown = all(hit.entry.ref in _seen(state, run) for hit in run.hits)
        return "already_visible" if shown else "budget"

    def _tell_withheld(self, state: TurnState, prefetch: Prefetch, withheld: Mapping[str, str]) -> None:
        for ref, reason in withheld.items():
            if ref not in prefetch.withheld:
                self._emit("withheld", state, memory=ref, reason=reason)
        prefetch.withheld |= frozenset(withheld)

    def _waiting(self, state: TurnState) -> list[PhaseRun]:
        prefetches = [*([state.carried] if state.carried else []), *state.prefetches]
        return [
            run
            for prefetch in prefetches
            for run in prefetch.runs
            if run.stage in (PhaseState.READY, PhaseState.CARRIED) and not run.consumed
        ]

    def waiting_refs(self, state: TurnState) -> frozenset[str]:
        return frozenset(hit.entry.ref for run in self._waiting(state) for hit in run.hits)

    def in_hand(self, state: TurnState) -> frozenset[str]:
        """What the host has taken and we have not heard of yet: it is on its way into the messages."""
        taken = [one for one in state.prefetches if any(run.consumed and not run.ended for run in one.runs)]
        return frozenset(ref for prefetch in taken for ref in prefetch.shown)

    def delivered(self, state: TurnState, offer: ReadyBlock, row: BlockRow) -> None:
        """The host has taken an offer: its phases were claimed there, and end here."""
        for place, run in enumerate(offer.runs):
            delivery = Delivery(row, offer, place)
            if any(hit.entry.ref in row.refs for hit in run.hits):
                self._finish(run, Outcome.DELIVERED, row.point, delivery)
            else:
                self._finish(run, Outcome.EMPTY, self._why_nothing(state, run), delivery)

    # Ending.

    def end(self, run: PhaseRun, outcome: Outcome, reason: str) -> None:
        """Gives a phase up, unless the host has it already."""
        if not run.ended and self._desk.claim(run):
            self._finish(run, outcome, reason)

    def _finish(self, run: PhaseRun, outcome: Outcome, reason: str, delivery: Delivery | None = None) -> None:
        if run.ended:
            return
        if run.stage is PhaseState.CARRIED:
            self._drop(run.prefetch)
            outcome = outcome if outcome is Outcome.DELIVERED else Outcome.UNDELIVERED
        run.move(PhaseState.ENDED)
        run.outcome, run.reason = outcome, reason
        if run.prefetch.asked:
            self._books.ended(run, recall_row(run, self._config, delivery))
        # Last: whoever waited for it may ask at once how it ended.
        run.settled.settle(False)

    def stop(self, prefetch: Prefetch, outcome: Outcome, reason: str) -> None:
        """Ends what is left of a prefetch, and its task. What it found is not handed over any more (R4)."""
        for run in prefetch.runs:
            self.end(run, outcome, reason)
        prefetch.let_go()
        if prefetch.task is not None and prefetch.asked:
            prefetch.task.cancel()

    def give_way(self, state: TurnState, to: Prefetch) -> None:
        """Ends what was asked before it and has not settled; what has stays to be handed over (R3)."""
        for prefetch in state.prefetches[: state.prefetches.index(to)]:
            for run in prefetch.runs:
                if run.stage is PhaseState.ASKED:
                    self.end(run, Outcome.SUPERSEDED, "new_query")
            if prefetch.task is not None and prefetch.asked and all(run.ended or run.hits for run in prefetch.runs):
                prefetch.task.cancel()

    def stop_all(self, state: TurnState, outcome: Outcome, reason: str) -> None:
        for prefetch in [*state.prefetches, *([state.carried] if state.carried else [])]:
            self.stop(prefetch, outcome, reason)

    def _degrade(self, prefetch: Prefetch, reason: str) -> None:
        for run in prefetch.runs:
            run.settled_at = self._clock.now()
            self.end(run, Outcome.DEGRADED, reason)

    # Between turns.

    def leave(self, state: TurnState) -> None:
        """Of a turn that ended well: what has settled is for the next one, what has not may still settle (R8)."""
        state.left = True
        if state.carried is not None:
            self.stop(state.carried, Outcome.UNDELIVERED, "no_safe_point")
        for prefetch in state.prefetches:
            self._carry(state, prefetch)

    def _carry(self, state: TurnState, prefetch: Prefetch) -> None:
        for run in prefetch.runs:
            if run.stage is PhaseState.READY and not run.consumed:
                run.move(PhaseState.CARRIED)
        runs = [run for run in prefetch.runs if run.stage is PhaseState.CARRIED]
        if not runs or prefetch.question is None:
            return
        if self.carried not in (None, prefetch):
            # One is carried, the one that was asked last.
            self.drop_carried("new_query")
        self.carried = prefetch
        assert prefetch.asked_at is not None
        row = CarriedRow(
            correlation=prefetch.correlation,
            turn=prefetch.turn,
            epoch=prefetch.epoch,
            question=prefetch.question.text,
            asked_at=prefetch.asked_at,
            settled_at=self._clock.now(),
            phases=tuple(run.phase for run in runs),
            candidates=candidates_of(hit for run in runs for hit in run.hits),
            refined=tuple(hit.entry.ref for run in runs if run.phase is Phase.REFINED for hit in run.hits),
            cause=prefetch.cause,
            forgets=prefetch.forgets,
            speakers=prefetch.speakers,
        )
        self._emit("recall_carried", state, correlation=prefetch.correlation, memories=len(row.candidates))
        made = self._composed(state, runs)
        shown, size = made.shown, made.visible_bytes
        self._at_hand = ReadyBlock(made.block, made.runs, made.made_at, shown, size) if made.block is not None else None
        self._books.carry(row, state)

    def withhold(self) -> None:
        """The context was compacted or reset: nothing carried is at hand from this very moment. From any thread."""
        self._at_hand = None

    def at_hand(self, place: ConversationScope) -> ReadyBlock | None:
        """What is carried, if it is fresh enough to be handed over unseen. From any thread."""
        offer = self._at_hand
        if offer is None or self._clock.now() - offer.made_at > _FRESH_WITHIN:
            return None
        asked = offer.runs[0].prefetch.question
        return offer if asked is not None and asked.place == place else None

    def take_over(self, earlier: TurnState) -> Prefetch | None:
        """A new turn owns recall from now on: what the earlier one left for it, if anything."""
        if earlier.carried is not None:
            self.stop(earlier.carried, Outcome.UNDELIVERED, "no_safe_point")
        for prefetch in earlier.prefetches:
            if prefetch is not self.carried:
                self.stop(prefetch, Outcome.SUPERSEDED, "new_query")
            else:
                for run in prefetch.runs:
                    if run.stage is PhaseState.ASKED:
                        self.end(run, Outcome.SUPERSEDED, "new_query")
                if prefetch.task is not None:
                    prefetch.task.cancel()
        carried, self.carried, self._at_hand = self.carried, None, None
        return carried

    def shut(self, state: TurnState) -> None:
        """Memory closes: of an open turn, one that another process may resume finds there what was ready."""
        if state.durable and not state.left:
            self.leave(state)
        # Whatever is still being looked into asks nothing more.
        state.left = True
        for prefetch in state.prefetches:
            if prefetch is not self.carried:
                self.stop(prefetch, Outcome.CANCELLED, "shutdown")
            for run in prefetch.runs:
                if run.stage is PhaseState.ASKED and prefetch.asked:
                    self.end(run, Outcome.CANCELLED, "shutdown")
                # Taken at the very end: nobody was left to be told where it went.
                if run.consumed and not run.ended:
                    self._finish(run, Outcome.CANCELLED, "shutdown")

    def abandon(self, state: TurnState) -> None:
        """Nothing of this turn's is handed over any more, here or in a later one."""
        self.stop_all(state, Outcome.CANCELLED, "abort")
        if self.carried in state.prefetches:
            self.carried = None

    def drop_carried(self, reason: str) -> None:
        self._at_hand = None
        if self.carried is not None:
            self.stop(self.carried, Outcome.UNDELIVERED, reason)
            self.carried = None

    def _drop(self, prefetch: Prefetch) -> None:
        self._dropped[prefetch.correlation] = None
        while len(self._dropped) > _DROPPED_MAX:
            del self._dropped[next(iter(self._dropped))]
        self._books.drop_carried(prefetch.correlation)

    def is_waiting(self, row: CarriedRow) -> bool:
        """Whether what the store has carried is still to be offered: its end may be on its way there."""
        return row.correlation not in self._dropped

    def adopt(self, row: CarriedRow, hits: tuple[Hit, ...], question: RecallQuestion) -> Prefetch:
        """What another process, or an earlier day, has carried."""
        prefetch = Prefetch(row.correlation, row.cause, turn=row.turn, epoch=row.epoch, phases=row.phases)
        prefetch.question, prefetch.asked_at = question, row.asked_at
        prefetch.forgets, prefetch.speakers = row.forgets, row.speakers
        for run in prefetch.runs:
            run.move(PhaseState.READY)
            run.move(PhaseState.CARRIED)
            chosen = run.phase is Phase.REFINED
            run.hits = tuple(hit for hit in hits if (hit.entry.ref in row.refined) is chosen)
            run.settled_at = row.settled_at
            run.settled.settle(True)
        return prefetch

    # Telling.

    def _exhausted(self, state: TurnState) -> None:
        self._emit("exclusions_exhausted", state)
        state.ledger = replace(state.ledger, refs=frozenset())
        self._sight.clear()
        self._books.clear(state.place, compacted=False)

    def _tell_settled(self, state: TurnState, prefetch: Prefetch) -> None:
        assert prefetch.prepared is not None
        prepared = prefetch.prepared
        lanes = {str(lane): sum(hit.lane is lane for hit in prepared.hits) for lane in Lane}
        self._emit(
            "recall_settled",
            state,
            correlation=prefetch.correlation,
            milliseconds=round((self._clock.monotonic() - prefetch.started) * 1000, 2),
            missing=",".join(prepared.found.missing),
            memories=len(prepared.hits),
            **lanes,
        )

    def _emit(self, name: str, state: TurnState, **data: str | int | float) -> None:
        place = state.place
        self._events.emit(name, space=place.owner, conversation=place.id, turn=state.id, **data)


def _reason(error: Exception) -> str:
    """Not its message: a server's words may quote what it was shown."""
    if isinstance(error, TimeoutError):
        return "timeout"
    return error.reason if isinstance(error, ModelError) else type(error).__name__


def _seen(state: TurnState, run: PhaseRun) -> frozenset[str]:
    """What the model sees, and what a host has just taken of this recall: the ledger hears of that a moment later."""
    return state.ledger.refs | run.prefetch.shown
