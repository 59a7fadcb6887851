"""Vectors for an import while it goes on: another process embeds what is checked, and each chunk stores what is back.

What does not come back is left to the job that every chunk leaves behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from afterturn.base.embedder_ports import Aside, Separable
from afterturn.base.errors import EmbedderUnavailable
from afterturn.base.ports import Embedder, Unit
from afterturn.base.slot import is_set

logger = logging.getLogger("afterturn")

# Starting the process takes a core a third of a second: as long as embedding some thousand entries.
LONG = 4096
# So far may the other process be behind before an import waits for it.
_BEHIND_MAX = 16_384

Put: TypeAlias = Callable[[Unit], None]


class Following:
    """Lives on memory's loop, beside one import, which has to `end` it.

    The other process is spoken to between two writes only, when nobody else wants Python's lock.
    """

    def __init__(self, embedder: Embedder, tenant: str, space: str) -> None:
        self.place = (tenant, space)
        self._embedder = embedder
        self._aside: Aside | None = None
        self._count = 0
        self._unsent: list[list[str]] = []
        self._awaited: deque[str] = deque()
        self._ready: dict[str, bytes] = {}
        self._over = asyncio.Event()

    def expect(self, count: int) -> None:
        """An import of so many entries begins, or has come so far. Long ones are worth a process."""
        if count >= LONG and self._aside is None and not self._over.is_set():
            self._aside = start_aside(self._embedder)
            if self._aside is None:
                self.end()

    async def take(self, texts: list[str]) -> None:
        """The texts of entries that are about to be stored. Waits only while the other process is far behind."""
        self._count += len(texts)
        self.expect(self._count)
        if not self._over.is_set():
            self._unsent.append(texts)
            await self._exchange(behind_max=_BEHIND_MAX)

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

    async def wait(self) -> bool:
        """Until all is back that will come; nothing may be taken afterwards. Whether anything is left to be stored."""
        await self._exchange(behind_max=0)
        if self._aside is not None:
            # A process takes 5 ms to end. The rest is stored meanwhile.
            self._aside.stop()
        return bool(self._ready)

    async def is_over(self, *, within: float) -> bool:
        """Whether the entries are left to others: it never began, or it ends in time."""
        return self._aside is None or await is_set(self._over, within=within)

    def end(self) -> None:
        """What is not back by now does not come any more."""
        self._over.set()
        self._unsent.clear()
        self._awaited.clear()
        if self._aside is not None:
            self._aside.close()
            self._aside = None

    async def _exchange(self, *, behind_max: int) -> None:
        try:
            while self._aside is not None:
                self._send_and_receive(self._aside)
                if len(self._awaited) <= behind_max:
                    return
                await self._aside.wait()
        except EmbedderUnavailable as error:
            logger.warning("%s", error)
            self.end()

    def _send_and_receive(self, aside: Aside) -> None:
        for texts in self._unsent:
            aside.send(texts)
            self._awaited.extend(texts)
        self._unsent.clear()
        for vector in aside.received():
            self._ready[self._awaited.popleft()] = vector


def start_aside(embedder: Embedder) -> Aside | None:
    """None when the embedder can not work in another process, or not at all: then words are enough."""
    try:
        return embedder.start_aside() if isinstance(embedder, Separable) else None
    except EmbedderUnavailable:
        return None


async def embed_aside(aside: Aside, texts: Sequence[str]) -> list[bytes]:
    """One batch, awaited, when nothing else is outstanding."""
    aside.send(texts)
    vectors = aside.received()
    while len(vectors) < len(texts):
        await aside.wait()
        vectors += aside.received()
    return vectors
