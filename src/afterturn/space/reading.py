"""What is asked of one space: recall, and looking entries up. Nothing but a store is needed for it, nor loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from afterturn.base.limits import check_limit
from afterturn.base.moments import moment
from afterturn.base.names import check_id, check_space
from afterturn.base.types import ANYTHING, Entry, Filter, Lane, Scope, SearchResults
from afterturn.guard.secrets import redact_within, scanner, unnamed
from afterturn.guard.texts import check_text
from afterturn.recall.lanes import RecallRequest, recall, recall_as_of
from afterturn.space.parts import ReadingParts
from afterturn.space.questions import LIMIT_MAX, check_conversation, check_filter, check_ids, check_lanes, check_version

QUERY_CHARS_MAX = 10_000


class SpaceReader:
    def __init__(self, parts: ReadingParts, name: str) -> None:
        self._parts = parts
        self.name = check_space(name)
        self._scope = Scope(parts.tenant, (self.name,))

    async def get(self, entry_id: str, *, version: int | None = None) -> Entry:
        check_id(entry_id)
        check_version(version)
        return await self._parts.store.read(lambda unit: unit.memories.get(self._scope, entry_id, version=version))

    async def list(self, *, limit: int = 50, before: str | None = None, filter: Filter = ANYTHING) -> list[Entry]:
        """Lists statements and records, newest `occurred_at` first; `before` is the last id of the previous page.

        A memory that changes between two pages may be listed on both. Numbers in a filter are compared as numbers: 1
        finds 1.0, but not True.
        """
        count, narrowed = check_limit(limit, LIMIT_MAX), check_filter(filter)
        last = None if before is None else check_id(before)
        return await self._parts.store.read(
            lambda unit: unit.memories.newest(self._scope, narrowed, limit=count, before=last)
        )

    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        lanes: Sequence[Lane] | None = None,
        conversation: str | None = None,
        as_of: float | datetime | str | None = None,
        filter: Filter = ANYTHING,
        exclude: Iterable[str] = (),
    ) -> SearchResults:
        """Finds what this space holds on `query`, best first. `as_of` searches what was known at that time.

        `filter` and `exclude`, ids of memories, apply before the best `limit` are chosen.
        """
        asked, at = check_text(query, "query"), moment(as_of)
        text = redact_within(asked, QUERY_CHARS_MAX, scanner(scanning=self._parts.config.scanning), mark=unnamed).text
        embedding = self._parts.embedding if at is None else None
        embed = embedding.find_immediate() if embedding else None
        request = RecallRequest(
            text=text,
            embed=embed,
            query_vector=None if embed or not embedding else await embedding.query_vector(text, self._scope),
            scope=self._scope,
            conversation=check_conversation(conversation),
            lanes=check_lanes(lanes),
            limit=check_limit(limit, LIMIT_MAX),
            score_min=self._parts.config.recall_score_min,
            filter=check_filter(filter),
            excluded_ids=check_ids(exclude),
            now=self._parts.clock.now(),
            correlation=self._parts.ids.new(),
        )
        if at is not None:
            return await self._parts.store.read(lambda unit: recall_as_of(unit, request, at))
        if embedding is not None:
            return await embedding.recall(request)
        return await self._parts.store.read(lambda unit: recall(unit, request))
