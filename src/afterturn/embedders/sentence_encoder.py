"""The default embedder: Universal Sentence Encoder Multilingual 3 in numpy, for 16 languages, without a download.

Its weights are files of the package, which the build writes (hatch_build.py). `projection.npy` in the same folder is
our own: it keeps the part of a vector that distinguishes two subjects, and removes the part that distinguishes a
question from a statement.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from afterturn.embedders.subprocess import start_child
from afterturn.ports import Aside
from afterturn.recall.vocabulary import WEIGHTS, Pieces, no_pause, unavailable
from afterturn.types import EmbedderIdentity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

PROJECTION = Path(__file__).with_name("projection.npy")
# Change it whenever other vectors are computed: those of two versions must never be compared.
VERSION = "3-1"
DIMENSIONS = 256
BEGIN, END = 1, 2

_TEXT_CHARS_MAX = 2000
# A longer text is encoded in parts of this many tokens, and its vector is their mean: one vector of a long text says
# little of anything in it.
_PART_TOKENS = 64
_PARTS_MAX = 4
# Tokens that are computed at once: the numbers of all layers stay in the processor's cache.
_BATCH_TOKENS = 384

_ORDERS = (2, 3, 5)
_WINDOW = max(_ORDERS)
_SMALLEST_VARIANCE = 1e-12
# The size of one product. OpenBLAS shares larger ones among threads, which then wait busily (40 ms of CPU time for each
# question), and rounds those of other heights otherwise: a text would have another vector in another batch.
_BLOCK_ROWS = 4
_BLOCK_COLUMNS = 32


class EncoderWeights(NamedTuple):
    """The matrices in `blocks` are in blocks of 32 columns."""

    pieces: Pieces
    blocks: dict[str, Floats]
    vectors: dict[str, Floats]


class SentenceEncoder:
    """Unit vectors of texts, about 2 ms for a question and 4 for a message, on the caller's thread alone.

    Constructing reads nothing; the files are opened by the first `embed`, or by `load_gradually` ahead of time. Safe to
    share between threads. By default it caches no words, because they are private; a child process that ends with its
    work caches `words_max` of them.
    """

    def __init__(self, folder: Path = WEIGHTS, *, words_max: int = 0) -> None:
        self._folder = folder
        self._words_max = words_max
        self._words: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self._loaded: EncoderWeights | None = None

    @property
    def identity(self) -> EmbedderIdentity:
        return EmbedderIdentity(name="use-multilingual", version=VERSION, dimensions=DIMENSIONS)

    @property
    def is_immediate(self) -> bool:
        """The Immediate port."""
        return True

    def load_gradually(self, pause: Callable[[], object] = no_pause) -> None:
        """The Gradual port: opens the files, in some 100 ms."""
        self._weights(pause)

    async def start_aside(self) -> Aside | None:
        """The Separable port. A child process can only use the weights of the package."""
        return await start_child(self.identity) if self._folder == WEIGHTS else None

    def embed(self, texts: Sequence[str]) -> Floats:
        """A text without words has a vector of zeros."""
        import numpy as np

        weights = self._weights()
        parts: list[list[int]] = []
        owners: list[int] = []
        for at, text in enumerate(texts):
            tokens = self._parts(text, weights.pieces)
            parts += tokens
            owners += [at] * len(tokens)
        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        if parts:
            found = _multiply(encode_tokens(weights, parts), weights.blocks["projection"])
            np.add.at(vectors, owners, _unit(found - weights.vectors["offset"]))
        return _unit(vectors)

    def _parts(self, text: str, pieces: Pieces) -> list[list[int]]:
        """The tokens of a text in parts of about the same length."""
        known = self._words if self._words_max else {}
        if len(known) > self._words_max:
            known.clear()
        tokens = pieces.tokens(text[:_TEXT_CHARS_MAX].encode("utf-8", "replace").decode(), known)
        tokens = tokens[: _PART_TOKENS * _PARTS_MAX]
        count = -(-len(tokens) // _PART_TOKENS)
        size = -(-len(tokens) // count) if count else 1
        return [[BEGIN, *tokens[at : at + size], END] for at in range(0, len(tokens), size)]

    def _weights(self, pause: Callable[[], object] = no_pause) -> EncoderWeights:
        with self._lock:
            if self._loaded is None:
                self._loaded = read_weights(self._folder, pause)
            return self._loaded


def read_weights(folder: Path = WEIGHTS, pause: Callable[[], object] = no_pause) -> EncoderWeights:
    """Raises EmbedderUnavailable if a file is missing or damaged."""
    import numpy as np

    pieces = Pieces.load(folder, pause)
    blocks, vectors = {}, {}
    try:
        tensors = map_tensors(folder / "layers.safetensors")
        tensors |= dict(zip(("offset", "projection"), np.split(np.load(PROJECTION), [1]), strict=True))
        for name, tensor in tensors.items():
            pause()
            if tensor.ndim == 1 or len(tensor) == 1:
                vectors[name] = tensor.astype(np.float32).ravel()
            else:
                columns = tensor.reshape(len(tensor), -1, _BLOCK_COLUMNS)
                blocks[name] = columns.transpose(1, 0, 2).astype(np.float32, order="C")
    except (OSError, ValueError) as error:
        raise unavailable(error) from error
    return EncoderWeights(pieces, blocks, vectors)


def encode_tokens(weights: EncoderWeights, texts: Sequence[Sequence[int]]) -> Floats:
    """The model's own vectors of 512 dimensions, of unit length. Each text is the ids of its tokens."""
    import numpy as np

    found: list[Floats] = []
    batch: list[Sequence[int]] = []
    for text in texts:
        if batch and sum(map(len, batch)) + len(text) > _BATCH_TOKENS:
            found.append(_encode(weights, batch))
            batch = []
        batch.append(text)
    found.append(_encode(weights, batch))
    return np.concatenate(found)


def _encode(weights: EncoderWeights, batch: Sequence[Sequence[int]]) -> Floats:
    """Three convolutions over two, three and five tokens, concatenated with the tokens' own vectors, their sum over the
    text, then four dense layers."""
    import numpy as np

    vectors = weights.vectors
    sizes = np.array([len(text) for text in batch])
    starts = np.cumsum(sizes) - sizes
    ids = np.fromiter(chain.from_iterable(batch), dtype=np.int64, count=int(sizes.sum()))
    tokens = weights.pieces.vectors(ids)
    # Of each token, the two before it and the two after it; row `len(ids)` of what is looked up is for none.
    window = np.arange(len(ids))[:, None] + np.arange(_WINDOW) - _WINDOW // 2
    outside = (window < np.repeat(starts, sizes)[:, None]) | (window >= np.repeat(starts + sizes, sizes)[:, None])
    window[outside] = len(ids)
    features = [tokens]
    hidden = [_multiply(tokens, weights.blocks[f"proj{order}"]) + vectors[f"proj_b{order}"] for order in _ORDERS]
    # They are normalised together: one mean and one variance of a token.
    gains, biases = (np.concatenate([vectors[f"{name}{order}"] for order in _ORDERS]) for name in ("ln_g", "ln_b"))
    normal = _normalise(np.concatenate(hidden, axis=1), gains, biases)
    for order, inputs in zip(_ORDERS, np.split(normal, len(_ORDERS), axis=1), strict=True):
        first = _WINDOW // 2 - (order - 1) // 2
        near = window[:, first : first + order]
        for layer in ("1", "2"):
            padded = np.concatenate((inputs, np.zeros_like(inputs[:1])))
            outputs = _multiply(padded[near].reshape(len(ids), -1), weights.blocks[f"w{layer}_{order}"])
            inputs = inputs + _positive(outputs + vectors[f"b{layer}_{order}"])
        features.append(inputs)
    normal = _normalise(np.concatenate(features, axis=1), vectors["ln_g"], vectors["ln_b"])
    sums = _multiply(np.add.reduceat(normal, starts, axis=0), weights.blocks["cnn_W"])
    counts: Floats = sizes.astype(np.float32)[:, None]
    pooled: Floats = np.divide(sums + counts * vectors["cnn_b"], np.sqrt(counts))
    blocks = weights.blocks
    inner = _positive(_multiply(pooled, blocks["d0"]))
    inner = _positive(np.add(_multiply(inner, blocks["d1"]), _multiply(pooled, blocks["p1"])))
    outer = _positive(_multiply(inner, blocks["d2"]))
    return _unit(np.tanh(_multiply(outer, blocks["d3"]) + _multiply(inner, blocks["p3"])))


def _positive(values: Floats) -> Floats:
    return values.clip(min=0.0)


def _multiply(rows: Floats, blocks: Floats) -> Floats:
    """`rows` times the matrix whose blocks of columns these are."""
    import numpy as np

    count, width = rows.shape
    padded = np.zeros((-(-count // _BLOCK_ROWS) * _BLOCK_ROWS, width), dtype=np.float32)
    padded[:count] = rows
    products = np.matmul(padded.reshape(-1, 1, _BLOCK_ROWS, width), blocks)
    found: Floats = products.transpose(0, 2, 1, 3).reshape(len(padded), -1)[:count]
    return found


def _normalise(rows: Floats, gains: Floats, biases: Floats) -> Floats:
    import numpy as np

    rows = rows - rows.mean(axis=1, keepdims=True)
    variances = np.einsum("ij,ij->i", rows, rows)[:, None] / rows.shape[1]
    found: Floats = rows / np.sqrt(variances + _SMALLEST_VARIANCE) * gains + biases
    return found


def _unit(vectors: Floats) -> Floats:
    """Of length 1, or 0 where it was 0."""
    import numpy as np

    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    found: Floats = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return found


_HEADER_BYTES_MAX = 65536
_ELEMENTS = {"U8": "u1", "F16": "<f2", "F32": "<f4", "I64": "<i8"}


def map_tensors(path: Path) -> dict[str, NDArray[np.generic]]:
    """The arrays of a safetensors file by name, memory-mapped. Raises OSError, or ValueError for another format."""
    import numpy as np

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _HEADER_BYTES_MAX:
            raise ValueError(f"its header claims {length} bytes")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not a table")
    header.pop("__metadata__", None)
    data = np.memmap(path, dtype=np.uint8, mode="r", offset=0)[8 + length :]
    tensors: dict[str, NDArray[np.generic]] = {}
    for name, entry in header.items():
        try:
            element, shape, (start, end) = _ELEMENTS[entry["dtype"]], entry["shape"], entry["data_offsets"]
            tensors[name] = data[start:end].view(element).reshape(shape)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"its tensor {name!r} is not as announced ({error})") from error
    return tensors
