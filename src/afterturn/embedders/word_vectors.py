"""Static word vectors, the default embedder: no model to run, no download, tens of thousands of texts a second.

The vectors and their vocabulary are read from the files of the `wordllama` wheel; the package itself is never imported.
Texts are split into tokens here, since reading the vocabulary with the `tokenizers` package takes Python's lock for
longer than a turn waits for its block. The tokens are the same.
"""

from __future__ import annotations

import importlib.util
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afterturn.embedders.subprocess import start_child
from afterturn.errors import EmbedderUnavailable
from afterturn.ports import Aside
from afterturn.types import EmbedderIdentity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_HEADER_BYTES_MAX = 65536
_ELEMENTS = {"F16": "<f2", "F32": "<f4", "I64": "<i8"}


def map_tensors(path: Path) -> dict[str, NDArray[np.generic]]:
    """The arrays of a safetensors file by name, memory-mapped. Raises OSError, or ValueError for another format."""
    import numpy as np

    header, start = _read_header(path)
    data = np.memmap(path, dtype=np.uint8, mode="r", offset=0)
    return {name: _tensor(data[start:], name, entry) for name, entry in header.items() if name != "__metadata__"}


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _HEADER_BYTES_MAX:
            raise ValueError(f"its header claims {length} bytes")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not a table")
    return header, 8 + length


def _tensor(data: NDArray[np.uint8], name: str, entry: Any) -> NDArray[np.generic]:
    try:
        element, shape, (start, end) = _ELEMENTS[entry["dtype"]], entry["shape"], entry["data_offsets"]
        return data[start:end].view(element).reshape(shape)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its tensor {name!r} is not as announced ({error})") from error


_SPACE = "\u2581"
_MARKUP = re.compile("(<unk>|<s>|</s>)")
# No token contains a space after another character, so no token reaches over two of these.
_PIECE = re.compile(f"{_SPACE}*[^{_SPACE}]+|{_SPACE}+")
# Longer pieces, which only scripts without spaces have, are merged with a heap.
_SHORT_PIECE_CHARS_MAX = 32
_VOCABULARY = b'"vocab": {\n'
_BYTES_AT_ONCE = 32_768


class Vocabulary:
    """Byte-pair encoding with the vocabulary of Llama 2: the tokens that the `tokenizers` package makes of a text.

    The pair whose token comes first in the vocabulary is merged first. Tokens of spaces alone come last.
    """

    def __init__(self, ids: dict[str, int]) -> None:
        """Raises KeyError if it has no token for one of the 256 bytes."""
        self._ids = ids
        self._bytes = [ids[f"<0x{byte:02X}>"] for byte in range(256)]
        self._none = 2 * len(ids)

    def __len__(self) -> int:
        return len(self._ids)

    def tokens(self, text: str, known: dict[str, list[int]]) -> list[int]:
        """The ids of a text's tokens. `known` is a cache of the tokens of words, which is filled here."""
        found: list[int] = []
        for part in _MARKUP.split(text) if "<" in text else (text,):
            if part in ("<unk>", "<s>", "</s>"):
                found.append(self._ids[part])
            elif part:
                for piece in _PIECE.findall(_SPACE + part.replace(" ", _SPACE)):
                    token = self._ids.get(piece)
                    if token is not None:
                        found.append(token)
                    else:
                        if piece not in known:
                            known[piece] = self._split(piece)
                        found += known[piece]
        return found

    def _split(self, piece: str) -> list[int]:
        """A character without a token is encoded by its bytes, and nothing is merged with those."""
        found: list[int] = []
        run: list[str] = []
        for character in piece:
            if character in self._ids:
                run.append(character)
            else:
                found += self._merge(run)
                run = []
                found += [self._bytes[byte] for byte in character.encode()]
        return found + self._merge(run)

    def _merge(self, symbols: list[str]) -> list[int]:
        ids, none = self._ids, self._none
        if len(symbols) > _SHORT_PIECE_CHARS_MAX or symbols[:2] == [_SPACE, _SPACE]:
            return [ids[symbol] for symbol in self._merge_any(symbols)]
        ranks = [ids.get(left + right, none) for left, right in pairwise(symbols)]
        while ranks:
            first = min(ranks)
            if first == none:
                break
            at = ranks.index(first)
            if ranks.count(first) > 1:
                at = min((ids[symbols[at]], at) for at, rank in enumerate(ranks) if rank == first)[1]
            symbols[at] += symbols.pop(at + 1)
            del ranks[at]
            if at:
                ranks[at - 1] = ids.get(symbols[at - 1] + symbols[at], none)
            if at < len(ranks):
                ranks[at] = ids.get(symbols[at] + symbols[at + 1], none)
        return [ids[symbol] for symbol in symbols]

    def _merge_any(self, symbols: list[str]) -> Iterator[str]:
        """The same for pieces of any length and for several spaces. Merged symbols become blank, and the one before
        them holds their text."""
        count = len(symbols)
        before, after = list(range(-1, count - 1)), list(range(1, count + 1))
        heap = [
            (*self._rank(symbols[at], symbols[at + 1]), at, symbols[at], symbols[at + 1]) for at in range(count - 1)
        ]
        heap = [pair for pair in heap if pair[0] != self._none]
        heapify(heap)
        while heap:
            _, _, at, left, right = heappop(heap)
            following = after[at]
            if following >= count or symbols[at] != left or symbols[following] != right or not left:
                continue
            symbols[at], symbols[following] = left + right, ""
            after[at] = after[following]
            if after[at] < count:
                before[after[at]] = at
            for first in (before[at], at):
                second = after[first] if first >= 0 else count
                if second < count:
                    rank = self._rank(symbols[first], symbols[second])
                    if rank[0] != self._none:
                        heappush(heap, (*rank, first, symbols[first], symbols[second]))
        return filter(None, symbols)

    def _rank(self, left: str, right: str) -> tuple[int, int]:
        """The smallest is merged first; of pairs that make the same token, the one whose left part comes first in the
        vocabulary."""
        token = self._ids.get(left + right)
        if token is None:
            return self._none, 0
        is_blank = left[0] == right[-1] == _SPACE
        return token + len(self._ids) if is_blank else token, self._ids[left]


_PACKAGE = "wordllama"
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR = "embedding.weight"
_DIMENSIONS = 256
_TEXT_CHARS_MAX = 4000
# The distinct rows of a batch stay in the processor's cache: those of 256 short texts are about 1.5 MB.
_BATCH_TEXTS = 256


def _no_pause() -> None:
    """For a caller that nobody waits for."""


class StaticEmbedder:
    """The mean of a text's token vectors, of unit length. Only the first 4,000 characters of a text count.

    Constructing reads nothing; the files are opened by the first `embed`, or by `load` ahead of time. Safe to share
    between threads. By default it caches no words, because they are private; a child process that ends with its work
    caches `words_max` of them.
    """

    def __init__(self, folder: Path | None = None, *, words_max: int = 0) -> None:
        self._folder = folder
        self._words_max = words_max
        self._words: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self._loaded: tuple[NDArray[np.float16], Vocabulary] | None = None
        self._identity: EmbedderIdentity | None = None

    @property
    def identity(self) -> EmbedderIdentity:
        if self._identity is None:
            self._identity = EmbedderIdentity(name="wordllama-l2-supercat", version=_version(), dimensions=_DIMENSIONS)
        return self._identity

    @property
    def is_immediate(self) -> bool:
        """The Immediate port."""
        return True

    def load_gradually(self, pause: Callable[[], object] = _no_pause) -> None:
        """The Gradual port: opens the files, in some 10 ms."""
        self._parts(pause)

    async def start_aside(self) -> Aside | None:
        """The Separable port. A child process can only use the vectors of the installed wheel."""
        return None if self._folder else await start_child(self.identity)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        weights, vocabulary = self._parts()
        vectors = np.zeros((len(texts), _DIMENSIONS), dtype=np.float32)
        known = self._known()
        for start in range(0, len(texts), _BATCH_TEXTS):
            plain = [_plain(text) for text in texts[start : start + _BATCH_TEXTS]]
            tokens = [vocabulary.tokens(text, known) for text in plain]
            vectors[start : start + len(tokens)] = _pooled(weights, tokens)
        return vectors

    def _known(self) -> dict[str, list[int]]:
        """A cache of words, for one call or for all."""
        if not self._words_max:
            return {}
        if len(self._words) > self._words_max:
            self._words.clear()
        return self._words

    def _parts(self, pause: Callable[[], object] = _no_pause) -> tuple[NDArray[np.float16], Vocabulary]:
        with self._lock:
            if self._loaded is None:
                folder = self._folder or _find_folder()
                weights = _read_weights(folder / _WEIGHTS)
                self._loaded = weights, _read_vocabulary(folder / _TOKENIZER, len(weights), pause)
            return self._loaded


def _plain(text: str) -> str:
    return text[:_TEXT_CHARS_MAX].encode("utf-8", "replace").decode()


def _pooled(weights: NDArray[np.float16], tokens: Sequence[Sequence[int]]) -> NDArray[np.float32]:
    import numpy as np

    sums = np.zeros((len(tokens), _DIMENSIONS), dtype=np.float32)
    flat = np.array([token for ids in tokens for token in ids], dtype=np.intp)
    # Each row is converted once, however often it occurs: converting costs more than copying.
    distinct, places = np.unique(flat, return_inverse=True) if len(tokens) > 1 else (flat, np.arange(flat.size))
    rows = weights[distinct].astype(np.float32)
    start = 0
    # Text by text, so that the sum stays in the processor's cache: half the time of all at once.
    for at, ids in enumerate(tokens):
        # The sum has the direction of the mean.
        rows[places[start : start + len(ids)]].sum(axis=0, out=sums[at])
        start += len(ids)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    np.divide(sums, norms, out=sums, where=norms > 0)
    return sums


def _find_folder() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise _unavailable(f"The `{_PACKAGE}` package is not installed")
    return Path(spec.submodule_search_locations[0])


def _version() -> str:
    try:
        return version(_PACKAGE)
    except PackageNotFoundError as error:
        raise _unavailable(f"The `{_PACKAGE}` package is not installed") from error


def _read_weights(path: Path) -> NDArray[np.float16]:
    import numpy as np

    try:
        tensor = map_tensors(path)[_TENSOR]
        if tensor.dtype != np.float16 or tensor.ndim != 2 or tensor.shape[1] != _DIMENSIONS:
            raise ValueError(f"its tensor is {tensor.dtype} {list(tensor.shape)}")
    except (OSError, ValueError, KeyError) as error:
        raise _unavailable(f"{path.name} of `{_PACKAGE}` cannot be read ({error})") from error
    return tensor.astype(np.float16, copy=False)


def _read_vocabulary(path: Path, size: int, pause: Callable[[], object]) -> Vocabulary:
    try:
        vocabulary = Vocabulary(_read_ids(path.read_bytes(), pause))
        if len(vocabulary) != size:
            raise ValueError(f"it has {len(vocabulary)} tokens for {size} vectors")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unavailable(f"{path.name} of `{_PACKAGE}` cannot be read ({error})") from error
    return vocabulary


def _read_ids(document: bytes, pause: Callable[[], object]) -> dict[str, int]:
    """The ids of the tokens in a tokenizer's file. Its vocabulary has one token in a line, and is read in parts:
    `json` takes Python's lock for all that it reads at once."""
    start = document.find(_VOCABULARY)
    if start < 0:
        ids: dict[str, int] = json.loads(document)["model"]["vocab"]
        return ids
    ids, start = {}, start + len(_VOCABULARY)
    last = document.index(b"\n    }", start)
    while start < last:
        pause()
        end = document.find(b",\n", start + _BYTES_AT_ONCE, last)
        end = last if end < 0 else end
        ids.update(json.loads(b"{" + document[start:end] + b"}"))
        start = end + 1
    return ids


def _unavailable(what: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"{what}. Recall uses words only; for vectors run `pip install --force-reinstall wordllama`."
    )
