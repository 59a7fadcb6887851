"""Runs a prefetch on memory's loop, and has it prepared on a reader's thread."""

from __future__ import annotations

import asyncio
import logging

from afterturn.base.config import Config
from afterturn.base.events import Events
from afterturn.base.ports import Clock, Store
from afterturn.base.types import Lane, Recollection
from afterturn.context.block import Block
from afterturn.recall.embedding import Embedding
from afterturn.turn.prefetch import Outcome, Prefetch, Prepared
from afterturn.turn.preparing import Asking, Question, prepare
from afterturn.turn.state import TurnState

logger = logging.getLogger("afterturn")


class Recaller:
    def __init__(self, store: Store, embedding: Embedding | None, config: Config, clock: Clock, events: Events) -> None:
        self._store = store
        self._embedding = embedding
        self._config = config
        self._clock = clock
        self._events = events

    async def run(self, state: TurnState, question: Question) -> None:
        """Settles the turn's prefetch, whatever happens. A failure is warned about and leaves the turn whole."""
        state.asked = True
        started = self._clock.monotonic()
        self._emit("recall_started", state, correlation=state.prefetch.correlation)
        try:
            async with asyncio.timeout(self._config.recall_timeout):
                found, block = await self._recall(state.prefetch, question)
        except TimeoutError:
            self._degrade(state, "timeout")
            return
        except Exception as error:  # the boundary: memory's fault must not fail the host's turn
            logger.warning("a recall failed; the turn goes on without it", exc_info=error)
            self._degrade(state, type(error).__name__)
            return
        self._tell(state, found, block, elapsed=self._clock.monotonic() - started)
        self._settle(state, found, block)

    async def _recall(self, prefetch: Prefetch, question: Question) -> tuple[Recollection, Block | None]:
        embedding, config = self._embedding, self._config
        asking = Asking(
            now=self._clock.now(),
            correlation=prefetch.correlation,
            query_vector=await embedding.query_vector(question.text) if embedding else None,
            vectors=embedding.index if embedding else None,
        )
        return await self._store.read(lambda unit: prepare(unit, question, asking, config))

    def _settle(self, state: TurnState, found: Recollection, block: Block | None) -> None:
        if block is None:
            broken = set(found.missing) & set(Lane)
            self.end(state, Outcome.DEGRADED if broken else Outcome.EMPTY, "no_relevant_results")
        assert state.dialect is not None
        state.prefetch.settle(Prepared(state.dialect, block), at=self._clock.now())

    def _tell(self, state: TurnState, found: Recollection, block: Block | None, *, elapsed: float) -> None:
        lanes = {str(lane): sum(hit.lane is lane for hit in found.hits) for lane in Lane}
        self._emit(
            "recall_settled",
            state,
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
        if state.asked and state.prefetch.outcome is None:
            state.prefetch.outcome = outcome
            self._emit("recall_ended", state, outcome=outcome, reason=reason)

    def _degrade(self, state: TurnState, reason: str) -> None:
        self.end(state, Outcome.DEGRADED, reason)
        state.prefetch.settle(None, at=self._clock.now())

    def _emit(self, name: str, state: TurnState, **data: str | int | float) -> None:
        place = state.place
        self._events.emit(name, space=place.owner, conversation=place.id, turn=state.id, **data)
