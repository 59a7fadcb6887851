"""Recall without a loop in between: what a question takes whose vector is there already, or is yet to be made."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import afterturn
from afterturn.base.clock import SystemClock
from afterturn.base.config import Config
from afterturn.base.types import Scope, SearchResults
from afterturn.embedders.static import StaticEmbedder
from afterturn.recall.lanes import RecallRequest, recall
from afterturn.recall.shelves import Shelves
from afterturn.stores.sqlite.store import open_store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LIMIT = 10
# The ten best whatever they are worth, so that ten texts are read for every question.
NO_FLOOR = 0.0
_CLOSE_WITHIN = 10.0
_SHELVED_WITHIN = 300.0
_POLL = 0.05


@dataclass(frozen=True, slots=True)
class Question:
    """Without its vector, whoever answers embeds it."""

    text: str
    vector: NDArray[np.float32] | None


class Asker:
    """One store with shelves of its own. `ask` is `space.search` without the hops and the floor."""

    def __init__(self, path: Path, *, index_bytes_max: int | None = None, exact: bool = False) -> None:
        """`exact` weighs every entry of a space in full."""
        self.config = Config() if index_bytes_max is None else Config(index_bytes_max=index_bytes_max)
        self._embedder = StaticEmbedder()
        self._clock = SystemClock()
        self._store = open_store(path, self.config, self._clock)
        self.index = Shelves(self._embedder.identity, self.config.index_bytes_max, exact=exact)

    def close(self) -> None:
        self._store.close_now(within=_CLOSE_WITHIN)

    def shelve(self, space: str, question: Question) -> None:
        """Brings the space into memory, as asking twice does behind a host's back."""
        for _ in range(2):
            self.ask(space, question)
        asyncio.run(self._build())

    async def _build(self) -> None:
        while await self.index.build_wanted(self._store):
            pass

    def embed(self, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self._embedder.embed([text])[0]
        return vector

    def questions(self, texts: Sequence[str]) -> list[Question]:
        return [Question(text, vector) for text, vector in zip(texts, self._embedder.embed(texts), strict=True)]

    def ask(self, space: str, question: Question, excluded: frozenset[str] = frozenset()) -> SearchResults:
        request = RecallRequest(
            text=question.text,
            query_vector=question.vector,
            embed=self.embed if question.vector is None else None,
            scope=Scope(self.config.tenant, (space,)),
            limit=LIMIT,
            score_min=NO_FLOOR,
            excluded_refs=excluded,
            now=self._clock.now(),
        )
        return self._store.read_now(lambda unit: recall(unit, request, self.index))

    def timed(self, space: str, question: Question, excluded: frozenset[str] = frozenset()) -> float:
        """In seconds. A recall that had to go without something would be measured for less than its work."""
        began = perf_counter()
        found = self.ask(space, question, excluded)
        took = perf_counter() - began
        assert not found.missing, f"a recall went without {', '.join(found.missing)}"
        return took


@contextmanager
def asking(path: Path, *, index_bytes_max: int | None = None, exact: bool = False) -> Iterator[Asker]:
    asker = Asker(path, index_bytes_max=index_bytes_max, exact=exact)
    try:
        yield asker
    finally:
        asker.close()


def public_times(path: Path, calls: Sequence[tuple[str, str]]) -> list[float]:
    """As a host would ask, space by space and question by question, in milliseconds: embedding and hops included."""
    return asyncio.run(_public_times(path, calls))


async def shelved(space: afterturn.Space, text: str) -> None:
    """Until the space is in memory. A small one answers whole before that, so it is given a moment more."""
    async with asyncio.timeout(_SHELVED_WITHIN):
        await space.search(text)
        while (await space.search(text)).missing:  # noqa: ASYNC110 a host is not told when a space is in memory
            await asyncio.sleep(_POLL)
        await asyncio.sleep(4 * _POLL)


async def _public_times(path: Path, calls: Sequence[tuple[str, str]]) -> list[float]:
    found: list[float] = []
    async with afterturn.open(path, background=False) as memory:
        assert await memory.ready(within=60.0), "the embedder could not be loaded"
        await shelved(memory.space(calls[-1][0]), calls[-1][1])
        for space, text in calls:
            began = perf_counter()
            await memory.space(space).search(text, limit=LIMIT)
            found.append((perf_counter() - began) * 1000)
    return found
