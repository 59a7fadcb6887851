"""Runs a prefetch on memory's loop: embed the question, search the lanes, fit the budget, render the block."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence

from afterturn.base.config import Config
from afterturn.base.events import Events
from afterturn.base.ports import Clock, Store, Unit
from afterturn.base.types import Hit, Lane, Recollection
from afterturn.context.block import FRAME, Block, bullet, render
from afterturn.recall.budget import Budget, choose
from afterturn.recall.embedding import Embedding
from afterturn.recall.lanes import RecallRequest, recall
from afterturn.turn.ledger import Ledger
from afterturn.turn.prefetch import Outcome, Prefetch, Prepared
from afterturn.turn.state import Question, TurnState

logger = logging.getLogger("afterturn")

# More candidates than a block holds, so that the budget can choose among the lanes.
CANDIDATES = 4
# A user who pastes a log asks about its beginning, at best; more of it finds nothing better.
QUESTION_CHARS_MAX = 4_000


class Recaller:
    def __init__(self, store: Store, embedding: Embedding | None, config: Config, clock: Clock, events: Events) -> None:
        self._store = store
        self._embedding = embedding
        self._config = config
        self._clock = clock
        self._events = events

    async def run(self, state: TurnState, question: Question) -> None:
        """Settles the turn's prefetch, whatever happens. A failure is warned about and leaves the turn whole."""
        prefetch, state.question = state.prefetch, question
        started = self._clock.monotonic()
        self._emit("recall_started", state, question, correlation=prefetch.correlation)
        try:
            async with asyncio.timeout(self._config.recall_timeout):
                found, block = await self._recall(prefetch, question)
        except TimeoutError:
            self._degrade(state, "timeout")
            return
        except Exception as error:  # the boundary: memory's fault must not fail the host's turn
            logger.warning("a recall failed; the turn goes on without it", exc_info=error)
            self._degrade(state, type(error).__name__)
            return
        self._tell(state, question, found, block, elapsed=self._clock.monotonic() - started)
        self._settle(state, found, block)

    async def _recall(self, prefetch: Prefetch, question: Question) -> tuple[Recollection, Block | None]:
        config, embedding = self._config, self._embedding
        request = RecallRequest(
            text=question.text,
            query_vector=await embedding.query_vector(question.text) if embedding else None,
            scope=question.scope,
            conversation=question.conversation,
            owner=question.owner,
            lanes=tuple(Lane),
            limit=config.recall_entries_max * CANDIDATES,
            score_min=config.recall_score_min,
            excluded_refs=question.ledger.refs,
            visible_hashes=question.ledger.message_hashes,
            now=self._clock.now(),
            correlation=prefetch.correlation,
        )
        vectors = embedding.index if embedding else None

        def work(unit: Unit) -> tuple[Recollection, Block | None]:
            # Rendered here, on a reader's thread: long memories would hold up every other conversation's loop.
            found = recall(unit, request, vectors)
            return found, self._render(found, question.ledger, request.now)

        return await self._store.read(work)

    def _render(self, found: Recollection, ledger: Ledger, now: float) -> Block | None:
        budget = Budget.of(self._config, visible_bytes=ledger.size_bytes)
        line = functools.partial(bullet, now=now)
        excerpts = choose(stated_once(found.hits), budget, frame=FRAME, line=line)
        return render(excerpts, now=now) if excerpts else None

    def _settle(self, state: TurnState, found: Recollection, block: Block | None) -> None:
        if block is None:
            broken = set(found.missing) & set(Lane)
            self.end(state, Outcome.DEGRADED if broken else Outcome.EMPTY, "no_relevant_results")
        assert state.dialect is not None
        state.prefetch.settle(Prepared(state.dialect, block), at=self._clock.now())

    def _tell(
        self, state: TurnState, question: Question, found: Recollection, block: Block | None, *, elapsed: float
    ) -> None:
        lanes = {str(lane): sum(hit.lane is lane for hit in found.hits) for lane in Lane}
        self._emit(
            "recall_settled",
            state,
            question,
            correlation=found.correlation,
            milliseconds=round(elapsed * 1000, 2),
            missing=",".join(found.missing),
            memories=len(block.refs) if block else 0,
            **lanes,
        )

    def begin_turn(self, state: TurnState) -> None:
        """Background work keeps out of this turn's way until `end_turn`."""
        if self._embedding is not None:
            self._embedding.begin_turn(state)

    def rest(self) -> None:
        """A turn has its block: what would disturb a recall may run while the model answers."""
        if self._embedding is not None:
            self._embedding.want()

    def end_turn(self, state: TurnState) -> None:
        if self._embedding is not None:
            self._embedding.end_turn(state)

    def end(self, state: TurnState, outcome: Outcome, reason: str) -> None:
        """Records how the turn's recall ended, if it had one; the first outcome stands."""
        question = state.question
        if question is not None and state.prefetch.outcome is None:
            state.prefetch.outcome = outcome
            self._emit("recall_ended", state, question, outcome=outcome, reason=reason)

    def _degrade(self, state: TurnState, reason: str) -> None:
        self.end(state, Outcome.DEGRADED, reason)
        state.prefetch.settle(None, at=self._clock.now())

    def _emit(self, name: str, state: TurnState, question: Question, **data: str | int | float) -> None:
        self._events.emit(name, space=question.space, conversation=question.conversation, turn=state.id, **data)


def stated_once(hits: Sequence[Hit]) -> list[Hit]:
    """Of hits that say the same word for word, the newest of the most trusted, in the place of the best."""
    chosen: dict[str, Hit] = {}
    for hit in hits:
        known = chosen.setdefault(hit.entry.content_hash, hit)
        if (hit.entry.trust, hit.entry.occurred_at) > (known.entry.trust, known.entry.occurred_at):
            chosen[hit.entry.content_hash] = hit
    return list(chosen.values())
