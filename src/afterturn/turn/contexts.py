"""Context for hosts that build their prompts themselves (S4). It reads, and changes nothing of a conversation."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import TypeVar

from afterturn.base.errors import AfterturnError
from afterturn.base.limits import check_limit
from afterturn.base.names import check_name
from afterturn.base.ports import Unit
from afterturn.base.types import Entry, Scope, SearchResults
from afterturn.context.files import ContextFile, Places, Tier, read_standing
from afterturn.context.lasting import Lasting, find_lasting, find_of_agent
from afterturn.context.standing import Content, render_standing
from afterturn.guard.screening import Screen
from afterturn.guard.secrets import redact_within, scanner, unnamed
from afterturn.guard.texts import check_text
from afterturn.recall.lanes import RecallRequest, recall
from afterturn.turn.ledger import Ledger
from afterturn.turn.place import Place
from afterturn.turn.preparing import QUESTION_CHARS_MAX, Asking, compose, prepare, question_for
from afterturn.turn.recaller import ask
from afterturn.turn.standing_parts import StandingParts

logger = logging.getLogger("afterturn")
R = TypeVar("R")

LIMIT_MAX = 100


class Contexts:
    """Bound to a conversation's place and to the folders that its host trusts. Lives on memory's loop."""

    def __init__(self, parts: StandingParts, place: Place, places: Places) -> None:
        self._parts = parts
        self._place = place
        self._places = places

    async def relevant(self, text: str) -> str:
        """A block for `text`, as a turn would recall it for a model that sees nothing else; "" when there is none.

        Nothing counts as shown by it, and no epoch begins. A failing store gives "" and a warning.
        """
        config, store = self._parts.config, self._parts.store
        question = question_for(text, self._place, Ledger(), config)
        if store is None or question is None:
            return ""
        screen = Screen(scanning=config.scanning)

        def work(unit: Unit) -> str:
            hits = prepare(unit, question, asking, config).hits
            block = compose(hits, config, visible_bytes=0, now=asking.now, screen=screen)
            return block.text if block else ""

        try:
            async with asyncio.timeout(config.recall_timeout):
                asking = await self._asking(question.text)
                text_of_block = await store.read(work)
        except (AfterturnError, TimeoutError) as error:
            logger.warning("no relevant context for %r: %s", self._place.id, error)
            return ""
        place, events = self._place, self._parts.events
        for ref, reason in screen.withheld.items():
            events.emit("withheld", space=place.owner, conversation=place.id, turn="", memory=ref, reason=reason)
        return text_of_block

    async def search(self, query: str, *, limit: int) -> SearchResults:
        """The best matches in the spaces that this conversation may read. Raises AfterturnError."""
        count = check_limit(limit, LIMIT_MAX)
        place, store, config = self._place, self._parts.store, self._parts.config
        asked = check_text(query, "query")
        text = redact_within(asked, QUESTION_CHARS_MAX, scanner(scanning=config.scanning), mark=unnamed).text
        if store is None:
            return SearchResults(text, (), missing=("store",))
        asking = await self._asking(text)
        request = RecallRequest(
            text=text,
            query_vector=asking.query_vector,
            embed=asking.embed,
            scope=Scope(place.tenant, place.reads),
            conversation=place.id,
            owner=place.owner,
            limit=count,
            score_min=self._parts.config.recall_score_min,
            now=asking.now,
            correlation=asking.correlation,
        )
        return await store.read(lambda unit: recall(unit, request, asking.vectors))

    async def project(self) -> str:
        """The context files of the trusted roots and the project's conventions, as they are now."""
        files = await self._environment()
        reader = self._parts.reader(self._place)
        lasting = await self._read(lambda unit: find_lasting(unit, reader), Lasting())
        return self._rendered(files, lasting.conventions, ())

    async def task(self, agent_name: str) -> str:
        """What a sub-agent of that name should know: the project's context, and what was said of its own work."""
        agent = check_name(agent_name, "agent")
        files = await self._environment()
        reader = self._parts.reader(self._place)

        def work(unit: Unit) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
            return find_lasting(unit, reader).conventions, find_of_agent(unit, reader, agent)

        nothing: tuple[tuple[Entry, ...], tuple[Entry, ...]] = ((), ())
        conventions, own = await self._read(work, nothing)
        return self._rendered(files, conventions, tuple(entry for entry in own if entry not in conventions))

    def _rendered(self, files: tuple[ContextFile, ...], conventions: tuple[Entry, ...], own: tuple[Entry, ...]) -> str:
        content = Content(files, (), Lasting(conventions=conventions), own)
        return render_standing(content, self._parts.room).text

    async def _environment(self) -> tuple[ContextFile, ...]:
        found = await self._parts.reads.run(functools.partial(read_standing, self._places))
        return tuple(file for file in found.files if file.tier is Tier.ENVIRONMENT) if found is not None else ()

    async def _read(self, work: Callable[[Unit], R], nothing: R) -> R:
        if self._parts.store is None:
            return nothing
        try:
            return await self._parts.store.read(work)
        except AfterturnError as error:
            logger.warning("context for %r is made without memories: %s", self._place.id, error)
            return nothing

    async def _asking(self, text: str) -> Asking:
        parts = self._parts
        return await ask(parts.embedding, text, self._place, now=parts.clock.now(), correlation=parts.ids.new())
