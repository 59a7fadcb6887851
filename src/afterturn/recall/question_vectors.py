"""Vectors of questions: embedded apart from any backlog, and remembered for a while without their words."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from typing import TYPE_CHECKING

from afterturn.base.errors import EmbedderUnavailable
from afterturn.base.loop import run_on
from afterturn.base.ports import Embedder, Worker
from afterturn.recall.promised import embed_as_promised

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The turns of many conversations; at 384 dimensions less than half a megabyte.
KEPT_MAX = 256
_KEY_BYTES = 32
_DIGEST_BYTES = 16


class QuestionVectors:
    """Of one embedder, so that vectors of two never mix (M3). Lives on memory's loop.

    A question is known again by a hash whose key never leaves this object: its words are not kept (M2).
    """

    def __init__(self, embedder: Embedder, worker: Worker) -> None:
        self._embedder = embedder
        self._worker = worker
        self._secret = os.urandom(_KEY_BYTES)
        self._kept: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()
        self._forgets = 0
        self._late: list[_Call] = []

    async def get(self, text: str) -> NDArray[np.float32]:
        """Waits without a limit: the caller sets it. EmbedderUnavailable when it fails.

        Also while a call is under way that nobody waits for any more: those who ask meanwhile would only queue up
        behind an embedder that hangs.
        """
        name = self._name(text)
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        self._late = [call for call in self._late if not call.is_over]
        if self._late:
            raise EmbedderUnavailable("The embedder is still busy with an earlier question. Nothing has to be done.")
        return await self._embedded(name, text)

    def clear(self) -> None:
        """What was asked may be what is forgotten; nothing of it is left, nor comes from calls that are under way."""
        self._forgets += 1
        self._kept.clear()

    async def _embedded(self, name: bytes, text: str) -> NDArray[np.float32]:
        call, forgets = _Call(self._embedder, text), self._forgets
        try:
            vector = await run_on(self._worker, call)
        finally:
            if not call.is_over:
                self._late.append(call)
        vector.setflags(write=False)
        if forgets == self._forgets:
            self._kept[name] = vector
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return vector

    def _name(self, text: str) -> bytes:
        words = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(words, key=self._secret, digest_size=_DIGEST_BYTES).digest()


class _Call:
    """One question on its way through the embedder, on the worker's thread."""

    def __init__(self, embedder: Embedder, text: str) -> None:
        self._embedder = embedder
        self._text = text
        self.is_over = False

    def __call__(self) -> NDArray[np.float32]:
        try:
            rows = embed_as_promised(self._embedder, [self._text])
            vector: NDArray[np.float32] = rows[0]
            return vector
        finally:
            self.is_over = True
