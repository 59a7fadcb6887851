"""The stores that recall is measured on, made when a row first asks for one and shared by those that follow."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

import apsw

import afterturn
from afterturn.stores.sql.session import Row
from afterturn.stores.sqlite.schema import MIGRATIONS
from afterturn.stores.sqlite.session import ApswSession
from lab.bench.recall_clones import Cloner
from lab.bench.recall_scale import Told
from lab.bench.recall_text import Corpus, drafts

SPACE = "user:bench"
_TEMPLATES = 8
_PART = 50_000
_CLONES = 50
_FORM = 1
# Measured, with its vector and its rows in every index.
_ENTRY_BYTES = 1_250
_DISK_SHARE = 0.8
_DRAIN_WITHIN = 900.0

_Make: TypeAlias = Callable[[Path], None]


class Stores:
    def __init__(self, folder: Path, corpus: Corpus, told: Told) -> None:
        self._folder = folder
        self.corpus = corpus
        self._told = told

    def single(self, size: int) -> Path:
        """One space, `SPACE`."""
        return self._made(f"single-{size}", lambda path: asyncio.run(self._fill(path, {SPACE: size}, seed=size)))

    def beside(self, size: int, spaces: int, each: int) -> Path:
        """`SPACE` among other spaces."""
        return self._made(f"beside-{size}-{spaces}-{each}", lambda path: self._crowd(path, spaces, each, size))

    def crowd(self, spaces: int, each: int) -> Path:
        """Spaces of one size, named by `crowd_name`."""
        return self._made(_crowd_file(spaces, each), lambda path: self._crowd(path, spaces, each, 0))

    def spaces_that_fit(self, spaces: int, each: int) -> int:
        """As many of them as the disk has room for, at least one; those of an earlier run need none."""
        if _note(self._path(_crowd_file(spaces, each))).exists():
            return spaces
        return max(1, min(spaces, int(shutil.disk_usage(self._folder).free * _DISK_SHARE / (each * _ENTRY_BYTES))))

    def seconds(self, path: Path) -> float:
        """How long it took to make the store."""
        found: float = json.loads(_note(path).read_text(encoding="utf-8"))["seconds"]
        return found

    def _made(self, name: str, make: _Make) -> Path:
        path = self._path(name)
        if not _note(path).exists():
            for left in self._folder.glob(f"{path.name}*"):
                left.unlink()
            began = perf_counter()
            make(path)
            _note(path).write_text(json.dumps({"seconds": perf_counter() - began}), encoding="utf-8")
        return path

    def _path(self, name: str) -> Path:
        form = f"{self.corpus.name} {len(self.corpus.items)} {len(MIGRATIONS)} {_FORM}"
        return self._folder / f"{name}-{hashlib.blake2b(form.encode(), digest_size=4).hexdigest()}.db"

    def _crowd(self, path: Path, spaces: int, each: int, large: int) -> None:
        templates = min(_TEMPLATES, spaces)
        sizes = {crowd_name(at): each for at in range(templates)}
        asyncio.run(self._fill(path, {SPACE: large} | sizes if large else sizes, seed=7))
        cloner = Cloner(apsw.Connection(str(path)))
        for start in range(templates, spaces, _CLONES * templates):
            self._told(f"{path.name}: {start:,} of {spaces:,} spaces")
            stop = min(spaces, start + _CLONES * templates)
            for at in range(templates):
                cloner.clone(crowd_name(at), [crowd_name(number) for number in range(start + at, stop, templates)])
        cloner.close()

    async def _fill(self, path: Path, sizes: dict[str, int], seed: int) -> None:
        """Through the public verbs, so that there is nothing in the store that a host could not have put there."""
        async with afterturn.open(path, {"synchronous": "normal"}) as memory:
            assert await memory.ready(within=60.0), "the embedder could not be loaded"
            for number, (name, size) in enumerate(sizes.items()):
                texts = drafts(self.corpus.texts(size, seed=seed + number), size)
                for start in range(0, size, _PART):
                    self._told(f"{path.name}: {name}, {start:,} of {size:,} memories")
                    await memory.space(name).add_many(list(islice(texts, _PART)))
                assert await memory.drain(within=_DRAIN_WITHIN), f"{name} could not be embedded in time"


def crowd_name(number: int) -> str:
    return f"user:{number}"


def template_of(number: int) -> int:
    """The number of the space that this one is a copy of, or its own."""
    return number % _TEMPLATES


def texts_of(path: Path, space: str, limit: int = 2_000) -> list[str]:
    return [text for text, _ in _rows(path, space, limit)]


def references_of(path: Path, space: str, limit: int) -> list[str]:
    """Of the newest entries."""
    return [entry_id for _, entry_id in _rows(path, space, limit)]


def _rows(path: Path, space: str, limit: int) -> list[Row]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    sql = (
        "SELECT text, id FROM entry WHERE space_key = (SELECT key FROM space WHERE name = ?) AND status = 'active' "
        "ORDER BY key DESC LIMIT ?"
    )
    found = ApswSession(connection).rows(sql, (space, limit))
    connection.close()
    return found


def _crowd_file(spaces: int, each: int) -> str:
    return f"crowd-{spaces}-{each}"


def _note(path: Path) -> Path:
    return path.with_suffix(".json")
