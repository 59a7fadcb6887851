"""What a reply with embeddings means: unit vectors in the texts' order, or an error that says what to do. Pure."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from afterturn.base.replies import Reader, Reply
from afterturn.embedders.service import EMBEDDINGS as EMBEDDINGS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def read_vectors(reader: Reader, reply: Reply, *, count: int) -> NDArray[np.float32]:
    """One row a text, of unit length, or zero where the server gave zeros. ModelError when it is anything else."""
    import numpy as np

    items = _items(reader.document(reply))
    if items is None:
        raise reader.invalid(f"sent no embeddings: {reader.quoted(reply)}", "no_embeddings")
    if len(items) != count:
        raise reader.invalid(f"sent {len(items)} embeddings for {count} texts", "wrong_count")
    rows = [_row(item.get("embedding")) for item in _ordered(items)]
    sizes = {0 if row is None else row.size for row in rows}
    if 0 in sizes:
        raise reader.invalid("sent an embedding that is no list of numbers", "no_numbers")
    if len(sizes) > 1:
        raise reader.invalid(f"sent embeddings of different sizes: {sorted(sizes)}", "wrong_dimensions")
    vectors = np.array(rows, dtype=np.float32)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(norms).all():
        raise reader.invalid("sent numbers that are not finite", "not_finite")
    np.divide(vectors, norms, out=vectors, where=norms > 0)
    return vectors


def _items(document: Any) -> list[dict[str, Any]] | None:
    data = document.get("data") if isinstance(document, dict) else None
    return data if isinstance(data, list) and all(isinstance(item, dict) for item in data) else None


def _ordered(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By `index` where every item has its own; else the order is the answer."""
    placed = {item["index"]: item for item in items if type(item.get("index")) is int}
    return [placed[at] for at in range(len(items))] if placed.keys() == set(range(len(items))) else items


def _row(embedding: Any) -> NDArray[np.float32] | None:
    import numpy as np

    try:
        if isinstance(embedding, str):
            return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
        if isinstance(embedding, list):
            row = np.array(embedding, dtype=np.float32)
            return row if row.ndim == 1 else None
    except (TypeError, ValueError, OverflowError):
        return None
    return None
