"""Reads safetensors files: 8 bytes of header length, a JSON header with shapes and places, then the numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HEADER_BYTES_MAX = 65536
_ELEMENTS = {"F16": "<f2", "F32": "<f4", "I64": "<i8"}


def map_tensors(path: Path) -> dict[str, NDArray[np.generic]]:
    """By name, read from the file when they are used. OSError, or ValueError for what is no such file."""
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
        raise ValueError("its header is no table")
    return header, 8 + length


def _tensor(data: NDArray[np.uint8], name: str, entry: Any) -> NDArray[np.generic]:
    try:
        element, shape, (start, end) = _ELEMENTS[entry["dtype"]], entry["shape"], entry["data_offsets"]
        return data[start:end].view(element).reshape(shape)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its tensor {name!r} is not as announced ({error})") from error
