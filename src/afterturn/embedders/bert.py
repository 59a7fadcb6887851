"""BERT as an ONNX graph, from its tensors: token ids and a mask in, the sum of the text's token vectors out.

A text's sum points where its mean does, so whoever wants unit length needs no mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from afterturn.embedders.onnx_file import Graph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Tensors: TypeAlias = Mapping[str, NDArray[np.generic]]

_EPSILON = 1e-12
_FLOAT = 1
_INT32 = 6
_MICROSOFT = "com.microsoft"
# Activations are bytes around 128. Weights have 7 bits, not 8: processors without VNNI add pairs of products in 16
# bits, which would overflow and give other vectors there than elsewhere.
_WEIGHT_MAX = 63
_ACTIVATION_MAX = 127
_ZERO_POINT = 128
# Whatever is smaller is nothing, and nothing can not be divided by.
_SCALE_MIN = 1e-12


def build_bert(tensors: Tensors, *, heads: int, quantised: bool) -> bytes:
    """The file's bytes. Inputs `ids` (int64) and `mask` (float32), both [batch, tokens]; output `sums`.

    Quantised, weights are 8-bit numbers with a scale for each output channel, and so is each token's activation, with
    a scale of its own: a text's vector does not depend on its neighbours in the batch. KeyError for a missing tensor.
    """
    return _Bert(tensors, heads, quantised=quantised).encode()


class _Bert:
    def __init__(self, tensors: Tensors, heads: int, *, quantised: bool) -> None:
        self._tensors = tensors
        self._heads = heads
        self._is_quantised = quantised
        self._graph = Graph("bert")
        self._bytes_of: dict[str, tuple[str, str]] = {}

    def encode(self) -> bytes:
        graph = self._graph
        graph.input("ids", "int64", ("batch", "tokens"))
        graph.input("mask", "float32", ("batch", "tokens"))
        self._mask = graph.node("Cast", ["mask"], ["attended"], to=_INT32)
        hidden = self._embedded()
        layer = 0
        while f"encoder.layer.{layer}.output.dense.weight" in self._tensors:
            hidden = self._layer(hidden, f"encoder.layer.{layer}.")
            layer += 1
        self._pooled(hidden)
        return graph.encode()

    def _embedded(self) -> str:
        import numpy as np

        graph = self._graph
        # Every token is of the first of the two types.
        places = self._weights("embeddings.position_embeddings.weight")
        places = places + self._weights("embeddings.token_type_embeddings.weight")[0]
        first = graph.constant("first", np.zeros(1, dtype=np.int64))
        length = graph.node("Shape", ["ids"], ["length"], start=1, end=2)
        here = graph.node("Slice", [graph.constant("places", places), first, length, first], ["here"])
        added = graph.node("Add", [self._words(), here], ["added"])
        return self._normalised(added, "embeddings.LayerNorm")

    def _words(self) -> str:
        import numpy as np

        graph, words = self._graph, self._weights("embeddings.word_embeddings.weight")
        if not self._is_quantised:
            return graph.node("Gather", [graph.constant("words", words), "ids"], ["word"])
        scales = _scales(np.abs(words).max(axis=1, keepdims=True), _ACTIVATION_MAX)
        rows = graph.node("Gather", [graph.constant("words", _rounded(words / scales)), "ids"], ["word.bytes"])
        factors = graph.node("Gather", [graph.constant("words.scales", scales), "ids"], ["word.scale"])
        return graph.node("Mul", [graph.node("Cast", [rows], ["word.number"], to=_FLOAT), factors], ["word"])

    def _layer(self, hidden: str, name: str) -> str:
        graph = self._graph
        context = self._attention(hidden, f"{name}attention.")
        attended = self._linear(context, f"{name}attention.output.dense")
        summed = graph.node("Add", [attended, hidden], [f"{name}attended"])
        middle = self._normalised(summed, f"{name}attention.output.LayerNorm")
        wide = self._linear(middle, f"{name}intermediate.dense")
        active = graph.node("Gelu", [wide], [f"{name}active"], domain=_MICROSOFT)
        narrow = self._linear(active, f"{name}output.dense")
        return self._normalised(graph.node("Add", [narrow, middle], [f"{name}summed"]), f"{name}output.LayerNorm")

    def _attention(self, hidden: str, name: str) -> str:
        parts = [self._linear(hidden, f"{name}self.{part}") for part in ("query", "key", "value")]
        return self._graph.node(
            "MultiHeadAttention",
            [*parts, "", self._mask],
            [f"{name}context"],
            domain=_MICROSOFT,
            num_heads=self._heads,
        )

    def _linear(self, source: str, name: str) -> str:
        import numpy as np

        graph, weights = self._graph, np.ascontiguousarray(self._weights(f"{name}.weight").T)
        multiplied = self._multiplied_bytes if self._is_quantised else self._multiplied
        bias = graph.constant(f"{name}.bias", self._weights(f"{name}.bias"))
        return graph.node("Add", [multiplied(source, name, weights), bias], [name])

    def _multiplied(self, source: str, name: str, weights: NDArray[np.float32]) -> str:
        graph = self._graph
        return graph.node("MatMul", [source, graph.constant(f"{name}.weight", weights)], [f"{name}.product"])

    def _multiplied_bytes(self, source: str, name: str, weights: NDArray[np.float32]) -> str:
        import numpy as np

        graph = self._graph
        scales = _scales(np.abs(weights).max(axis=0), _WEIGHT_MAX)
        data, factors = self._as_bytes(source)
        inputs = [
            data,
            graph.constant(f"{name}.weight", _rounded(weights / scales)),
            "one",
            graph.constant(f"{name}.scales", scales),
            "zero_point",
        ]
        product = graph.node("MatMulIntegerToFloat", inputs, [f"{name}.scaled"], domain=_MICROSOFT)
        return graph.node("Mul", [product, factors], [f"{name}.product"])

    def _as_bytes(self, source: str) -> tuple[str, str]:
        """Bytes, and for each token the scale that they were divided by."""
        import numpy as np

        if source in self._bytes_of:
            return self._bytes_of[source]
        graph = self._graph
        if not self._bytes_of:
            graph.constant("one", np.ones((), dtype=np.float32))
            graph.constant("zero_point", np.full((), _ZERO_POINT, dtype=np.uint8))
            graph.constant("step", np.full((), 1 / _ACTIVATION_MAX, dtype=np.float32))
            graph.constant("least", np.full((), _SCALE_MIN, dtype=np.float32))
        sizes = graph.node("Abs", [source], [f"{source}.sizes"])
        largest = graph.node("ReduceMax", [sizes], [f"{source}.largest"], axes=(-1,), keepdims=1)
        stepped = graph.node("Mul", [largest, "step"], [f"{source}.step"])
        scale = graph.node("Max", [stepped, "least"], [f"{source}.scale"])
        divided = graph.node("Div", [source, scale], [f"{source}.divided"])
        data = graph.node("QuantizeLinear", [divided, "one", "zero_point"], [f"{source}.bytes"])
        self._bytes_of[source] = (data, scale)
        return data, scale

    def _normalised(self, source: str, name: str) -> str:
        graph = self._graph
        inputs = [source, *(graph.constant(f"{name}.{part}", self._weights(f"{name}.{part}")) for part in _LAYER_NORM)]
        return graph.node("LayerNormalization", inputs, [f"{name}.normalised"], axis=-1, epsilon=_EPSILON)

    def _pooled(self, hidden: str) -> None:
        import numpy as np

        graph = self._graph
        axes = [graph.constant(f"axis.{axis}", np.array([axis], dtype=np.int64)) for axis in (1, 2)]
        counted = graph.node("Unsqueeze", ["mask", axes[1]], ["counted"])
        kept = graph.node("Mul", [hidden, counted], ["kept"])
        graph.node("ReduceSum", [kept, axes[0]], ["sums"], keepdims=0)
        graph.output("sums", "float32", ("batch", self._weights("embeddings.LayerNorm.bias").shape[0]))

    def _weights(self, name: str) -> NDArray[np.float32]:
        import numpy as np

        return self._tensors[name].astype(np.float32, copy=False)


_LAYER_NORM = ("weight", "bias")


def _scales(largest: NDArray[np.float32], steps: int) -> NDArray[np.float32]:
    import numpy as np

    return np.where(largest > 0, largest / steps, 1).astype(np.float32)


def _rounded(values: NDArray[np.float32]) -> NDArray[np.int8]:
    import numpy as np

    return np.rint(values).astype(np.int8)
