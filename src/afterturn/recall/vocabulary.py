"""The vocabulary of the sentence encoder, with a vector for each piece. Its files are part of the package; the build
writes them (hatch_build.py)."""

from __future__ import annotations

import mmap
import unicodedata
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from afterturn.errors import EmbedderUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WEIGHTS = Path(__file__).parent.parent / "embedders" / "weights"
_DIMENSIONS = 512
_UNKNOWN = 0
# It marks the beginning of a word in the list of pieces.
_WORD_START = " "
# The model's own normaliser, unlike NFKC, turns these into spaces.
_SPACES = dict.fromkeys(map(ord, "\t\n\f\r\u1680\u200b\u200e\u200f\u2028\u2029\u2581\ufeff\ufffd"), " ")
_PIECE_CHARS_MAX = 16
_PIECES_BYTES_AT_ONCE = 16_384


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

        self._scores = scores
        self._ids = ids
        self._unknown_score = min(scores) - 10.0
        self._levels = levels
        self._mapped = mapped
        self._table = np.frombuffer(mapped, dtype=[("numbers", "u1", _DIMENSIONS // 2), ("unit", "<f2")])
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

    def vectors(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        import numpy as np

        rows = self._table[ids]
        # Pages of the table that were read do not count as memory of this process any more.
        self._mapped.madvise(mmap.MADV_DONTNEED)
        packed = rows["numbers"]
        numbers = np.concatenate((packed & 15, packed >> 4), axis=1)
        found: NDArray[np.float32] = self._levels[numbers] * rows["unit"].astype(np.float32)[:, None]
        return found

    def _split(self, word: str) -> list[int]:
        """Viterbi's algorithm: `best` has the score of the best split of each beginning of the word."""
        size, ids, scores = len(word), self._ids, self._scores
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
