"""The MiniLM embedder: runs all-MiniLM-L6-v2 with onnxruntime, in a few milliseconds per text.

Only reads the model files; `afterturn models get minilm` installs them (minilm_install.py).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afterturn.embedders.model_files import ModelFiles, verified
from afterturn.errors import EmbedderUnavailable
from afterturn.types import EmbedderIdentity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

NAME = "minilm"
GRAPH = "model.onnx"
TOKENIZER = "tokenizer.json"
# Change it whenever the graph computes other vectors: those of two versions must never be compared.
VERSION = "int8-1"
DIMENSIONS = 384
# As the model was trained; longer texts are cut.
_TOKENS_MAX = 256
# Enough characters for that many tokens of any text.
_TEXT_CHARS_MAX = 8192


class MiniLmEmbedder:
    """Unit vectors of each text's first 256 tokens. `folder` contains the folders of all models.

    Constructing reads nothing; the first `embed` loads, or `load` ahead of time. Safe to share between threads. It
    computes on the caller's thread alone, without Python's lock. One text at a time: on one thread a batch was no
    faster (75 texts a second each, 62 in batches of 16 by length).
    """

    # Some hundred milliseconds of work, so that closing does not wait long.
    batch_texts = 8

    def __init__(self, folder: Path) -> None:
        self._files = ModelFiles(folder, NAME, VERSION)
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Tokenizer] | None = None

    @property
    def identity(self) -> EmbedderIdentity:
        return EmbedderIdentity(name="all-minilm-l6-v2", version=VERSION, dimensions=DIMENSIONS)

    def load(self) -> None:
        """Raises EmbedderUnavailable, with the command to run, if a package or a file is missing or damaged."""
        self._parts()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        session, tokenizer = self._parts()
        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            if plain := text[:_TEXT_CHARS_MAX].encode("utf-8", "replace").decode().strip():
                ids = np.array([tokenizer.encode(plain).ids], dtype=np.int64)
                row[:] = session.run(["sums"], {"ids": ids, "mask": np.ones(ids.shape, dtype=np.float32)})[0][0]
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        np.divide(vectors, norms, out=vectors, where=norms > 0)
        return vectors

    def _parts(self) -> tuple[Any, Tokenizer]:
        with self._lock:
            if self._loaded is None:
                graph, tokenizer = verified(self._files, (GRAPH, TOKENIZER))
                session = _session(graph)
                from tokenizers import Tokenizer

                loaded = Tokenizer.from_buffer(tokenizer)
                loaded.no_padding()
                loaded.enable_truncation(_TOKENS_MAX)
                self._loaded = session, loaded
            return self._loaded


def _session(graph: bytes) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise EmbedderUnavailable(
            f"minilm needs a package that is not installed ({error}). Recall uses words only; "
            "for vectors run `pip install 'afterturn[minilm]'`."
        ) from error
    options = onnxruntime.SessionOptions()
    # Its threads spin while they wait, which slows the host's turn down on two cores.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the boundary: onnxruntime raises many kinds of errors
        raise EmbedderUnavailable(
            f"onnxruntime {onnxruntime.__version__} cannot run minilm ({error}). Recall uses words only; "
            "for vectors run `pip install --upgrade onnxruntime`."
        ) from error
