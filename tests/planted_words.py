"""Brings made-up words into a store by every path of the erasure lab, except as names, which are readable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import afterturn
from afterturn.testing import HashingEmbedder
from lab.erasure.paths import PATHS, EchoModel, Garden, new_sentinel
from lab.slices import SqliteTarget

NAMES = ("the id of a conversation", "the name of a speaker", "a source", "a whole space")
SETTINGS: dict[str, Any] = {
    "synchronous": "normal",
    "busy_timeout": 30.0,
    "recall_score_min": 0.0,
    "grace": 1.0,
    "review_compaction": True,
    "review_timeout": 20.0,
}


@patch("afterturn.recall.search.SEARCH_SCORE_MIN", 0.0)
async def plant(
    store: Any,
    settings: dict[str, Any],
    *,
    leave_out: tuple[str, ...] = NAMES,
    look: Callable[[dict[str, str]], object] = lambda words: None,
) -> tuple[dict[str, str], list[str]]:
    """Returns the word of each path, and what the reader finds for each word. `look` is called after each path."""
    random = Random(7)
    words = {path: new_sentinel(random) for path in PATHS if path not in leave_out}
    found = []
    async with AsyncExitStack() as stack:
        model = EchoModel()
        memory, reader = [
            await stack.enter_async_context(
                afterturn.open(
                    store,
                    {**SETTINGS, **settings},
                    components=afterturn.Components(model=model, embedder=HashingEmbedder()),
                )
            )
            for _ in range(2)
        ]
        garden = Garden(SqliteTarget(), store, memory, reader, model, random)
        for number, (path, word) in enumerate(words.items()):
            planted = await PATHS[path](garden, garden.space(number % 2), word)
            look(words)
            for work in planted.afterwards:
                await work()
            look(words)
        await asyncio.gather(*garden.tasks, return_exceptions=True)
        await memory.drain(within=60)
        for number, word in enumerate(words.values()):
            hits = await reader.space(garden.space(number % 2)).search(f"What about {word}?", limit=5)
            found.append("; ".join(f"{hit.entry.text} {hit.score:.6f}" for hit in hits.hits))
    return words, found


def files_with(folder: Path, words: dict[str, str]) -> set[str]:
    """The paths whose word is in a file. Its beginning is enough: a word may be cut or inflected."""
    found = set()
    for file in folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes().lower()
            found |= {path for path, word in words.items() if word[:9].encode() in content}
    return found
