"""Vectors for an import while it goes on: another process embeds what is checked, and each chunk stores what is back.

What does not come back is left to the job that every chunk leaves behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from afterturn.base.errors import EmbedderUnavailable
from afterturn.base.ports import Aside, Embedder, Separable, Unit
from afterturn.base.slot import is_set

logger = logging.getLogger("afterturn")

# Starting the process takes a core a third of a second: as long as embedding some thousand entries.
LONG = 4096
# So far may the other process be behind before an import waits for it.
_CHUNKS_MAX = 32

Put: TypeAlias = Callable[[Unit], None]


class Following:
    """Lives on memory's loop, beside one import. Its other methods need `run` beside them, until `end`."""

    def __init__(self, embedder: Embedder, tenant: str, space: str, *, expected: int) -> None:
        self.place = (tenant, space)
        self._over = asyncio.Event()
        self._embedder = embedder
        self._count = 0
        self._chunks: asyncio.Queue[list[str] | None] = asyncio.Queue(_CHUNKS_MAX)
        self._ready: dict[str, bytes] = {}
        self._begun = asyncio.Event()
        self._begin_when_long(expected)

    async def run(self) -> None:
        """Without the other process it does nothing, and the import goes on as it would have."""
        try:
            await self._begun.wait()
            if not self._over.is_set() and (aside := start_aside(self._embedder)) is not None:
                await self._embed_all(aside)
        except Exception:  # the boundary: an import that is stored must not fail for its vectors, which a job gives it
            logger.exception("an import is not embedded while it goes on")
        finally:
            # Nobody may wait for what will not come.
            self._over.set()
            while not self._chunks.empty():
                self._chunks.get_nowait()
                self._chunks.task_done()

    async def take(self, texts: list[str]) -> None:
        """The texts of entries that are about to be stored. Waits only while the other process is far behind."""
        self._count += len(texts)
        self._begin_when_long(self._count)
        if not self._over.is_set():
            await self._chunks.put(texts)

    def put_ready(self) -> Put:
        """Stores, in the unit of a chunk's own writes, the vectors that are back by now."""
        ready, self._ready = self._ready, {}

        def put(unit: Unit) -> None:
            if ready:
                # They come back in the order of the entries, of which the oldest without a vector are given first.
                identity = self._embedder.identity
                rows = unit.index.unembedded(*self.place, identity, limit=len(ready))
                unit.index.put_vectors(identity, [(key, ready[text]) for key, text in rows if text in ready])

        return put

    async def is_over(self, *, within: float) -> bool:
        """Whether the entries are left to others: it never began, or it ends in time."""
        return not self._begun.is_set() or await is_set(self._over, within=within)

    async def wait(self) -> bool:
        """Until all is back that will come. Whether anything is left to be stored."""
        if self._begun.is_set():
            await self._chunks.join()
        return bool(self._ready)

    def end(self) -> None:
        """What is not back by now does not come any more."""
        self._over.set()
        self._begun.set()
        if not self._chunks.full():
            self._chunks.put_nowait(None)

    def _begin_when_long(self, count: int) -> None:
        if count >= LONG:
            self._begun.set()

    async def _embed_all(self, aside: Aside) -> None:
        try:
            while (texts := await self._chunks.get()) is not None and not self._over.is_set():
                try:
                    vectors = await aside.embed(texts)
                    self._ready.update(zip(texts, vectors, strict=True))
                finally:
                    self._chunks.task_done()
        except EmbedderUnavailable as error:
            logger.warning("%s", error)
        finally:
            aside.close()


def start_aside(embedder: Embedder) -> Aside | None:
    """None when the embedder can not work in another process, or not at all: then words are enough."""
    try:
        return embedder.start_aside() if isinstance(embedder, Separable) else None
    except EmbedderUnavailable:
        return None
