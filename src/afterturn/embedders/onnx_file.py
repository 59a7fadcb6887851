"""Writes ONNX files. A graph needs a few kinds of protobuf message only, for which no package has to be installed.

The numbers are the field numbers of the format's `onnx.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_VARINT, _FIXED32, _BYTES = 0, 5, 2
_IR_VERSION = 8
_OPSETS = {"": 17, "com.microsoft": 1}
_FLOAT, _INT, _INTS = 1, 2, 7
_ELEMENTS = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}

Attribute: TypeAlias = "int | float | Sequence[int]"


class Graph:
    """A graph under construction. What it is told to compute is named, so that later steps can use it."""

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
        self._constants.append(_message(5, dimensions + kind + _text(8, name) + _blob(9, data.tobytes())))
        return name

    def input(self, name: str, element: str, shape: Sequence[str | int]) -> str:
        self._inputs.append(_message(11, _value(name, element, shape)))
        return name

    def output(self, name: str, element: str, shape: Sequence[str | int]) -> None:
        self._outputs.append(_message(12, _value(name, element, shape)))

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
        parts += [_text(3, outputs[0]), _text(4, operator), *_attributes(attributes), _text(7, domain)]
        self._nodes.append(_message(1, b"".join(parts)))
        return outputs[0]

    def encode(self) -> bytes:
        """The file's bytes, the same for the same graph."""
        body = [*self._nodes, _text(2, self._name), *self._constants, *self._inputs, *self._outputs]
        opsets = [_message(8, _text(1, domain) + _integer(2, version)) for domain, version in _OPSETS.items()]
        return b"".join([_integer(1, _IR_VERSION), _text(2, "afterturn"), _message(7, b"".join(body)), *opsets])


def _attributes(attributes: Mapping[str, Attribute]) -> list[bytes]:
    return [_message(5, _text(1, name) + _attribute(value)) for name, value in attributes.items()]


def _attribute(value: Attribute) -> bytes:
    if isinstance(value, float):
        return _tag(2, _FIXED32) + struct.pack("<f", value) + _integer(20, _FLOAT)
    if isinstance(value, int):
        return _integer(3, value) + _integer(20, _INT)
    return b"".join(_integer(8, item) for item in value) + _integer(20, _INTS)


def _value(name: str, element: str, shape: Sequence[str | int]) -> bytes:
    sizes = [_integer(1, size) if isinstance(size, int) else _text(2, size) for size in shape]
    dimensions = b"".join(_message(1, size) for size in sizes)
    tensor = _integer(1, _ELEMENTS[element]) + _message(2, dimensions)
    return _text(1, name) + _message(2, _message(1, tensor))


def _message(field: int, body: bytes) -> bytes:
    return _blob(field, body)


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
