"""What recall is compared with: the plain ways to search by words and by meaning, a few lines each."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from afterturn.ports import Embedder
from afterturn.text import terms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

K1 = 1.2
B = 0.75


class Bm25:
    """Okapi BM25 over stems without stop words: any word may match. Grows with the conversation."""

    def __init__(self) -> None:
        self._postings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._lengths: list[int] = []
        self._length_total = 0

    def add_all(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._add(text)

    def _add(self, text: str) -> None:
        found = terms(text)
        for term, count in Counter(found).items():
            self._postings[term].append((len(self._lengths), count))
        self._lengths.append(len(found))
        self._length_total += len(found)

    def rank(self, question: str, limit: int) -> list[int]:
        """Positions of the texts, best first; the earlier of equals first."""
        scores: defaultdict[int, float] = defaultdict(float)
        documents = len(self._lengths)
        mean = max(1.0, self._length_total / max(1, documents))
        for term in dict.fromkeys(terms(question)):
            postings = self._postings.get(term, ())
            weight = math.log1p((documents - len(postings) + 0.5) / (len(postings) + 0.5))
            for at, count in postings:
                scores[at] += weight * count * (K1 + 1) / (count + K1 * (1 - B + B * self._lengths[at] / mean))
        return sorted(scores, key=lambda at: (-scores[at], at))[:limit]


class Dense:
    """The cosine of question and text, by the embedder that recall uses too."""

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self._embedder = embedder
        self._matrix: NDArray[np.float32] = embedder.embed(texts)

    def rank(self, question: str, limit: int, *, known: int) -> list[int]:
        """Among the first `known` texts."""
        import numpy as np

        cosines = self._matrix[:known] @ self._embedder.embed([question])[0]
        return [int(at) for at in np.argsort(-cosines, kind="stable")[:limit]]
