"""BERT in plain, slow numpy: the reference that the graphs of the minilm embedder are compared with."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]
Tensors: TypeAlias = Mapping[str, NDArray[Any]]


def reference(tensors: Tensors, ids: Sequence[int], *, heads: int) -> Numbers:
    """Returns the unit vector of one text, as the published model defines it, in double precision."""
    weights = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    hidden = weights["embeddings.word_embeddings.weight"][list(ids)]
    hidden = hidden + weights["embeddings.position_embeddings.weight"][: len(ids)]
    hidden = _norm(weights, hidden + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    layer = 0
    while f"encoder.layer.{layer}.output.dense.weight" in weights:
        hidden = _layer(weights, hidden, f"encoder.layer.{layer}", heads)
        layer += 1
    mean: Numbers = hidden.mean(axis=0)
    unit: Numbers = mean / np.linalg.norm(mean)
    return unit


def _layer(weights: Tensors, hidden: Numbers, name: str, heads: int) -> Numbers:
    query, key, value = (
        _dense(weights, hidden, f"{name}.attention.self.{part}").reshape(len(hidden), heads, -1).transpose(1, 0, 2)
        for part in ("query", "key", "value")
    )
    scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    context = (shares @ value).transpose(1, 0, 2).reshape(len(hidden), -1)
    attended = _dense(weights, context, f"{name}.attention.output.dense")
    middle = _norm(weights, attended + hidden, f"{name}.attention.output.LayerNorm")
    wide = _dense(weights, middle, f"{name}.intermediate.dense")
    active = wide * (1 + np.vectorize(math.erf)(wide / math.sqrt(2))) / 2
    return _norm(weights, _dense(weights, active, f"{name}.output.dense") + middle, f"{name}.output.LayerNorm")


def _dense(weights: Tensors, hidden: Numbers, name: str) -> Numbers:
    multiplied: Numbers = hidden @ weights[f"{name}.weight"].T
    return multiplied + weights[f"{name}.bias"]


def _norm(weights: Tensors, hidden: Numbers, name: str) -> Numbers:
    centred = hidden - hidden.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
    stretched: Numbers = scaled * weights[f"{name}.weight"]
    return stretched + weights[f"{name}.bias"]
