"""An embedder for tests: it needs no files, and texts that share words get similar vectors, the same everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from afterturn.text import terms
from afterturn.types import EmbedderIdentity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class HashingEmbedder:
    """The vector of a text is the sum of its terms' vectors, which come from their hashes, scaled to unit length."""

    def __init__(self, dimensions: int = 64) -> None:
        self.identity = EmbedderIdentity(name="hashing", version="1", dimensions=dimensions)
        self._directions: dict[str, NDArray[np.float32]] = {}

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        vectors = np.zeros((len(texts), self.identity.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            for term in terms(text):
                vectors[row] += self._direction(term)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        np.divide(vectors, norms, out=vectors, where=norms > 0)
        return vectors

    def _direction(self, term: str) -> NDArray[np.float32]:
        import numpy as np

        found = self._directions.get(term)
        if found is None:
            size = self.identity.dimensions
            digest = hashlib.shake_128(term.encode("utf-8", "surrogatepass")).digest(size)
            # Plus or minus one in each dimension: two terms are then nearly at right angles.
            found = (np.frombuffer(digest, dtype=np.uint8) & 1).astype(np.float32) * 2 - 1
            self._directions[term] = found
        return found
