"""Holds an embedder to its word: a vector for each text, as long as its identity says, of finite numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from afterturn.base.errors import EmbedderUnavailable
from afterturn.base.ports import Embedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_REMEDY = (
    "If it is your own, correct its `embed`. For minilm, run `afterturn models remove minilm`, then `afterturn models "
    "get minilm`. For a server, check embedder_url and embedder_model."
)


def embed_as_promised(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """EmbedderUnavailable, too, for vectors that could not be compared with the others of its name (M3)."""
    import numpy as np

    rows = embedder.embed(texts)
    identity = embedder.identity
    if rows.shape != (len(texts), identity.dimensions):
        raise EmbedderUnavailable(
            f"The embedder {identity.name!r} gave {' × '.join(map(str, rows.shape))} numbers for {len(texts)} texts, "
            f"but its identity says {identity.dimensions} for each. {_REMEDY}"
        )
    if not np.isfinite(rows).all():
        raise EmbedderUnavailable(f"The embedder {identity.name!r} gave numbers that are not finite. {_REMEDY}")
    return rows
