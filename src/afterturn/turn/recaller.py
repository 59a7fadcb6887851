"""Asks the store, and the model where recall is refined, on behalf of a conversation. Lives on memory's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from afterturn.base.config import Config
from afterturn.base.events import Events
from afterturn.base.meter import Meter
from afterturn.base.ports import ChatModel, Clock, Store, Unit
from afterturn.base.reviews import Purpose
from afterturn.base.turns import Phase
from afterturn.base.types import Hit, Scope
from afterturn.context.age import describe_age
from afterturn.context.author import describe_author
from afterturn.context.block import Block
from afterturn.context.neutral import neutralise
from afterturn.guard.screening import Screen
from afterturn.recall.embedding import Embedding
from afterturn.recall.selector import select
from afterturn.turn.place import Place
from afterturn.turn.preparing import Asking, Prepared, Question, aftermath, compose, prepare
from afterturn.turn.state import TurnState


@dataclass(frozen=True, slots=True)
class Recaller:
    """What all conversations of one memory ask through. Without a model, or unless switched on, nothing is refined."""

    store: Store
    embedding: Embedding | None
    model: ChatModel | None
    config: Config
    clock: Clock
    events: Events
    meter: Meter

    @property
    def phases(self) -> tuple[Phase, ...]:
        return tuple(Phase) if self.config.refined and self.model is not None else (Phase.FAST,)

    async def find(
        self, question: Question, correlation: str, waiting: Sequence[Hit], *, visible_bytes: int, now: float
    ) -> tuple[Prepared, Block | None]:
        """The fast phase, and the block that it makes together with what waits to be handed over already."""
        config = self.config
        async with asyncio.timeout(config.recall_timeout):
            asking = await ask(self.embedding, question.text, question.place, now=now, correlation=correlation)

            def work(unit: Unit) -> tuple[Prepared, Block | None]:
                prepared = prepare(unit, question, asking, config)
                if question.forgets is not None:
                    after = aftermath(unit, question.place, question.forgets, (*waiting, *question.recalled))
                    prepared = replace(prepared, aftermath=after)
                screen, offered = Screen(scanning=config.scanning), [*waiting, *prepared.hits]
                block = compose(offered, config, visible_bytes=visible_bytes, now=now, screen=screen)
                return replace(prepared, withheld=screen.withheld), block

            return await self.store.read(work)

    async def refine(self, question: Question, hits: Sequence[Hit]) -> list[Hit]:
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
        screen, offered = Screen(scanning=self.config.scanning), []
        for hit in hits:
            text = screen.shown(hit.entry)
            if text is not None:
                offered.append(replace(hit, entry=replace(hit.entry, text=text)))
            # Long ones take a while, and other conversations share this loop.
            await asyncio.sleep(0)
        return offered

    def summariser(self, place: Place) -> ChatModel | None:
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


async def ask(embedding: Embedding | None, text: str, place: Place, *, now: float, correlation: str) -> Asking:
    """By words alone where there is no embedder, or it is not ready yet."""
    if embedding is None:
        return Asking(now, correlation)
    embed = embedding.find_immediate()
    if embed is not None:
        # On the reader's thread: two ways to other threads and back take longer than that.
        return Asking(now, correlation, vectors=embedding.index, embed=embed)
    vector = await embedding.query_vector(text, Scope(place.tenant, place.reads))
    return Asking(now, correlation, vector, embedding.index)
