"""Pieces, the vocabulary of the sentence encoder with a vector for each, and WordTable, which compares the words of two
texts by these vectors. The files are part of the package; the build writes them (hatch_build.py)."""

from __future__ import annotations

import mmap
import unicodedata
from array import array
from collections.abc import Callable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from afterturn.errors import EmbedderUnavailable
from afterturn.text import regex

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WEIGHTS = Path(__file__).parent.parent / "embedders" / "weights"
DIMENSIONS = 512
_UNKNOWN = 0
# It marks the beginning of a word in the list of pieces.
_WORD_START = " "
# What the model's own normaliser does and NFKC does not: these become spaces.
_SPACES = dict.fromkeys(map(ord, "\t\n\f\r\u1680\u200b\u200e\u200f\u2028\u2029\u2581\ufeff\ufffd"), " ")
_PIECE_CHARS_MAX = 16
_PIECES_BYTES_AT_ONCE = 16_384

_WORD = regex(r"\w+")
# Thai, Lao, Chinese and Japanese have no spaces between words: there each piece is a word.
_SPACELESS = regex("[\u0e00-\u0fff\u2e80-\uabff]")
_TEXT_CHARS_MAX = 1000
_WORDS_MAX = 150
# Two words with a smaller cosine are not related.
_RELATED_MIN = 0.35
# The first numbers of the vectors compare words as well as all 512.
_WORD_DIMENSIONS = 128
# The logarithm of how rare the most frequent words are, which weigh next to nothing.
_COMMON = 5.0
_LEAST_WEIGHT = 0.1
_LEAST_NORM = 1e-6


def no_pause() -> bool:
    """For a caller that nobody waits for."""
    return False


class Pieces:
    """The pieces of a SentencePiece vocabulary, the logarithms of their frequencies, and their vectors.

    The table of vectors is memory-mapped: 512 numbers of four bits for each piece, which are indexes into `levels`, and
    their unit.
    """

    def __init__(
        self, ids: dict[str, int], scores: Sequence[float], levels: NDArray[np.float32], mapped: mmap.mmap
    ) -> None:
        """Raises ValueError if they are not of the same vocabulary."""
        import numpy as np

        self.scores = scores
        self._ids = ids
        self._unknown_score = min(scores) - 10.0
        self._levels = levels
        self._mapped = mapped
        self._table = np.frombuffer(mapped, dtype=[("numbers", "u1", DIMENSIONS // 2), ("unit", "<f2")])
        if not len(ids) == len(scores) == len(self._table) or levels.shape != (16,):
            raise ValueError(f"{len(ids)} pieces have {len(self._table)} vectors and {len(scores)} frequencies")

    @classmethod
    def load(cls, folder: Path, pause: Callable[[], object]) -> Pieces:
        """Calls `pause` whenever it has held Python's lock for a millisecond or two. Raises EmbedderUnavailable if a
        file is missing or damaged."""
        import numpy as np

        if folder == WEIGHTS and _installed:
            return _installed[0]
        try:
            with (folder / "table.bin").open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            scores = array("f", (folder / "scores.bin").read_bytes())
            levels = np.frombuffer((folder / "levels.bin").read_bytes(), dtype="<f4")
            found = cls(_read_pieces((folder / "pieces.txt").read_bytes(), pause), scores, levels, mapped)
        except (OSError, ValueError) as error:
            raise unavailable(error) from error
        if folder == WEIGHTS:
            _installed[:] = [found]
        return found

    def tokens(self, text: str, known: dict[str, list[int]]) -> list[int]:
        """The ids of a text's most probable pieces. `known` is a cache of words, which is filled here."""
        found: list[int] = []
        for word in unicodedata.normalize("NFKC", text.translate(_SPACES)).split(" "):
            if word:
                if word not in known:
                    known[word] = self._split(_WORD_START + word)
                found += known[word]
        return found

    def vectors(self, ids: NDArray[np.int64], dimensions: int = DIMENSIONS) -> NDArray[np.float32]:
        """Only the first numbers of each with fewer `dimensions`."""
        import numpy as np

        rows = self._table[ids]
        # Pages of the table that were read do not count as memory of this process any more.
        self._mapped.madvise(mmap.MADV_DONTNEED)
        packed = rows["numbers"][:, :dimensions]
        numbers = packed & 15
        if dimensions > packed.shape[1]:
            numbers = np.concatenate((numbers, packed >> 4), axis=1)
        found: NDArray[np.float32] = self._levels[numbers] * rows["unit"].astype(np.float32)[:, None]
        return found

    def _split(self, word: str) -> list[int]:
        """Viterbi's algorithm: `best` has the score of the best split of each beginning of the word."""
        size, ids, scores = len(word), self._ids, self.scores
        best = [0.0] + [-1e30] * size
        last = [(0, _UNKNOWN)] * (size + 1)
        for start in range(size):
            score = best[start] + self._unknown_score
            if score > best[start + 1] and word[start] not in ids:
                best[start + 1], last[start + 1] = score, (start, _UNKNOWN)
            for end in range(start + 1, min(size, start + _PIECE_CHARS_MAX) + 1):
                piece = ids.get(word[start:end])
                if piece is not None:
                    score = best[start] + scores[piece]
                    if score > best[end]:
                        best[end], last[end] = score, (start, piece)
        found: list[int] = []
        while size:
            size, piece = last[size]
            found.append(piece)
        found.reverse()
        return found


# The files of the package are opened once in a process: the pieces take 17 MB.
_installed: list[Pieces] = []


def _read_pieces(document: bytes, pause: Callable[[], object]) -> dict[str, int]:
    """Line n of the document is piece n."""
    ids: dict[str, int] = {}
    start = 0
    while start < len(document):
        pause()
        end = document.find(b"\n", start + _PIECES_BYTES_AT_ONCE)
        end = len(document) if end < 0 else end
        lines = document[start:end].decode().split("\n")
        ids.update(zip(lines, range(len(ids), len(ids) + len(lines)), strict=True))
        start = end + 1
    return ids


def unavailable(error: Exception) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"The weights of the default embedder cannot be read ({error}). Recall uses words only; for vectors run "
        "`pip install --force-reinstall --no-deps afterturn`."
    )


class TextWords(NamedTuple):
    """The words of a text as rows of the table: `rows` of all pieces, `starts` of each word in them, the `norms` of the
    words' vectors, and `weights`, which are larger for rare words."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    norms: NDArray[np.float32]
    weights: NDArray[np.float32]


class WordMatch(NamedTuple):
    """How well a candidate matches a question: means over the question's words, weighted by how rare they are.

    `pair` is the mean of the best cosine with any word of the candidate, `soft` the same of the part of the cosine
    above 0.35, scaled to at most 1. 0 without words.
    """

    pair: float
    soft: float


NO_MATCH = WordMatch(0.0, 0.0)


class WordTable:
    """The vector of a word is the sum of those of its pieces.

    Constructing reads nothing. `read` and `match` may be called once `is_loaded`, on any thread. It caches no words,
    because they are private.
    """

    def __init__(self, folder: Path = WEIGHTS) -> None:
        self._folder = folder
        self._pieces: Pieces | None = None

    @property
    def is_loaded(self) -> bool:
        return self._pieces is not None

    def load(self, pause: Callable[[], object] = no_pause) -> None:
        """See `Pieces.load`."""
        self._pieces = Pieces.load(self._folder, pause)

    def read(self, text: str) -> TextWords:
        """The first 150 words in the first 1,000 characters. Words of unknown characters are left out."""
        return self.read_all([text])[0]

    def read_all(self, texts: Sequence[str]) -> list[TextWords]:
        """As `read`. A word that several texts have is split once, and a piece of several words is converted once."""
        import numpy as np

        known: dict[str, list[tuple[list[int], float]]] = {}
        split = [self._split_words(text, known) for text in texts]
        rows = [np.fromiter(chain.from_iterable(pieces for pieces, _ in words), np.int64) for words in split]
        sizes = [np.fromiter((len(pieces) for pieces, _ in words), np.int64, len(words)) for words in split]
        distinct, places = np.unique(np.concatenate(rows), return_inverse=True)
        ends = np.cumsum(np.concatenate(sizes))
        vectors = self._vectors(distinct).take(places, axis=0)
        norms = _norms(_add_pieces(vectors, np.append(0, ends[:-1])[: ends.size]))
        found: list[TextWords] = []
        start = 0
        for words, pieces, size in zip(split, rows, sizes, strict=True):
            weights = np.array([weight for _, weight in words], np.float32)
            # A copy, which does not keep the others in memory.
            found.append(TextWords(pieces, np.cumsum(size) - size, norms[start : start + len(words)].copy(), weights))
            start += len(words)
        return found

    def _split_words(self, text: str, known: dict[str, list[tuple[list[int], float]]]) -> list[tuple[list[int], float]]:
        """The words of a text, each with its pieces and its weight. `known` is a cache, which is filled here."""
        found: list[tuple[list[int], float]] = []
        for match in islice(_WORD.finditer(text[:_TEXT_CHARS_MAX].lower()), _WORDS_MAX):
            word = match.group()
            if word not in known:
                known[word] = self._split_word(word)
            found += known[word]
        return found

    def _split_word(self, word: str) -> list[tuple[list[int], float]]:
        assert self._pieces is not None
        scores = self._pieces.scores
        pieces = [piece for piece in self._pieces.tokens(word, {}) if piece != _UNKNOWN]
        words = [[piece] for piece in pieces] if _SPACELESS.match(word) else filter(None, [pieces])
        return [(one, max(_LEAST_WEIGHT, -min(scores[piece] for piece in one) - _COMMON)) for one in words]

    def match(
        self, question: TextWords, candidates: Sequence[tuple[TextWords | None, TextWords | None]]
    ) -> list[WordMatch]:
        """For each candidate, which is what was said and its answer. 64 with 25 words each take about a millisecond."""
        import numpy as np

        texts = [text for candidate in candidates for text in candidate]
        filled = {at: text for at, text in enumerate(texts) if text is not None and text.starts.size}
        if not filled or not question.starts.size:
            return [NO_MATCH] * len(candidates)
        asked = _add_pieces(self._vectors(question.rows), question.starts)
        # Of each text, the best cosine with each word of the question.
        best = np.full((len(texts), len(asked)), -np.inf, dtype=np.float32)
        best[list(filled)] = self._best_cosines(asked / question.norms[:, None], list(filled.values()))
        of_pair = np.maximum(best[::2], best[1::2])
        of_pair[np.isneginf(of_pair)] = 0.0
        shares = question.weights / question.weights.sum()
        # Not `@`, which warns of invalid values that are in none of the arrays, now and then.
        pair = np.einsum("ij,j->i", of_pair, shares)
        soft = np.einsum("ij,j->i", np.maximum(of_pair - _RELATED_MIN, 0.0), shares) / (1.0 - _RELATED_MIN)
        return list(map(WordMatch, pair.tolist(), soft.tolist()))

    def _best_cosines(self, asked: NDArray[np.float32], texts: Sequence[TextWords]) -> NDArray[np.float32]:
        """A row for each text and a column for each of the unit vectors in `asked`."""
        import numpy as np

        counts = np.array([text.starts.size for text in texts])
        sizes = np.array([text.rows.size for text in texts])
        starts = np.concatenate([text.starts for text in texts]) + np.repeat(np.cumsum(sizes) - sizes, counts)
        # Each piece is converted and compared once, however often it occurs: converting takes longest.
        distinct, places = np.unique(np.concatenate([text.rows for text in texts]), return_inverse=True)
        pieces = self._vectors(distinct)
        # On this thread. `@` shares it among the threads of a BLAS, which then wait busily: 40 ms of CPU time.
        compared = np.einsum("ik,jk->ij", pieces, asked)
        products = np.add.reduceat(compared.take(places, axis=0), starts, axis=0)
        cosines = products / np.concatenate([text.norms for text in texts])[:, None]
        best: NDArray[np.float32] = np.maximum.reduceat(cosines, np.cumsum(counts) - counts, axis=0)
        return best

    def _vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        assert self._pieces is not None
        return self._pieces.vectors(rows, _WORD_DIMENSIONS)


def _add_pieces(vectors: NDArray[np.float32], starts: NDArray[np.int64]) -> NDArray[np.float32]:
    """The vectors of words, from those of their pieces."""
    import numpy as np

    # Without words there is nothing to add, which numpy refuses.
    words: NDArray[np.float32] = np.add.reduceat(vectors, starts, axis=0) if starts.size else vectors
    return words


def _norms(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Never 0, because others are divided by them."""
    import numpy as np

    norms: NDArray[np.float32] = np.maximum(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)), _LEAST_NORM)
    return norms
