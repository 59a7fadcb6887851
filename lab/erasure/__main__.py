"""`make lab-erasure`: sentinels enter a store by every path and are forgotten while jobs, reviews and readers work.

Three checks: right after `forget` returns, nobody can retrieve the sentinel by any verb, in this or another process;
when it is `erased`, its bytes are in no file of the store; after everything that was under way has ended, and after the
store was closed and opened again, it has not come back.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import afterturn
from afterturn.oneshot import recall_once
from afterturn.testing import HashingEmbedder
from afterturn.types import Filter, Status
from lab import slices
from lab.erasure.paths import PATHS, EchoModel, Garden, Planted, new_sentinel
from lab.slices import Lab, Outcome, Row, StoreTarget, without_log

SETTINGS: dict[str, Any] = {
    "synchronous": "normal",
    "busy_timeout": 30.0,
    "recall_score_min": 0.0,
    "grace": 1.0,
    "review_compaction": True,
    "review_timeout": 20.0,
}
_SPACES = 4
_AT_ONCE = 4
_EVERYTHING = Filter(statuses=tuple(Status))
_ERASED_WITHIN = 15.0


@patch("afterturn.recall.search.SEARCH_SCORE_MIN", 0.0)
async def run_seed(seed: int, target: StoreTarget, *, sentinels: int = 95) -> Outcome:
    random, outcome = Random(seed), Outcome(seed)
    names = list(PATHS)
    with target.fresh() as store:
        planned = [(names[number % len(names)], new_sentinel(random)) for number in range(sentinels)]
        async with AsyncExitStack() as stack:
            model = EchoModel()
            memory, reader = await _open(stack, store, model), await _open(stack, store, model)
            garden = Garden(target, store, memory, reader, model, random)
            readers = [asyncio.create_task(_read(garden, number)) for number in range(_SPACES)]
            readers.append(asyncio.create_task(_hold_snapshots(garden)))
            waiting = list(enumerate(planned))
            await asyncio.gather(*(_work(garden, waiting, outcome) for _ in range(_AT_ONCE)))
            for task in readers:
                task.cancel()
            await asyncio.gather(*readers, *garden.tasks, return_exceptions=True)
            await garden.memory.drain(within=60)
        await _check_again(store, [word for _, word in planned], model, target, outcome)
    return outcome


async def _open(stack: AsyncExitStack, store: Path, model: EchoModel) -> afterturn.Memory:
    parts = afterturn.Components(model=model, embedder=HashingEmbedder())
    return await stack.enter_async_context(afterturn.open(store, SETTINGS, components=parts))


async def _read(garden: Garden, number: int) -> None:
    """A reader that never stops: it holds old logs, and keeps the space in memory."""
    space = garden.reader.space(garden.space(number))
    while True:
        await space.search("Where is Ada's bicycle?", limit=50)
        await asyncio.sleep(0.02)


async def _hold_snapshots(garden: Garden) -> None:
    """Another program with long reads: the bytes that it still needs cannot be erased at once."""
    while True:
        with garden.target.transaction(garden.store, writes=False):
            await asyncio.sleep(garden.random.uniform(0.1, 0.6))
        await asyncio.sleep(garden.random.uniform(0.5, 1.5))


async def _work(garden: Garden, waiting: list[tuple[int, tuple[str, str]]], outcome: Outcome) -> None:
    while waiting:
        number, (path, word) = waiting.pop()
        space = garden.space(number % _SPACES)
        planted = await PATHS[path](garden, space, word)
        outcome.counts["sentinels"] += 1
        if planted.is_stored and not list(_holding(garden.target, garden.store, [word])):
            outcome.broken.append(f"{path}: the sentinel was never stored, so the lab shows nothing")
        await _forget(garden, planted, space, word, path, outcome)
        for what in _holding(garden.target, garden.store, [word]):
            outcome.broken.append(f"{path}: {what} after it was erased")
        for work in planted.afterwards:
            await work()
        await _check_retrieval(garden, space, word, f"{path}, after the work that was under way", outcome)


async def _forget(garden: Garden, planted: Planted, space: str, word: str, path: str, outcome: Outcome) -> None:
    """Returns when it is erased."""
    closed = garden.closed
    forgotten = await planted.forget()
    outcome.counts[f"answered {forgotten.state}"] += 1
    # A file that another process is writing just then may hold any turn, so the answer has to name it.
    named = ".jsonl" if garden.began_closing > closed else ()
    if out_of_reach := [place for place in forgotten.out_of_reach if not place.endswith(named)]:
        outcome.broken.append(f"{path}: out of reach are {out_of_reach}")
    await _check_retrieval(garden, space, word, path, outcome)
    if forgotten.state != "erased":
        try:
            async with asyncio.timeout(_ERASED_WITHIN):
                while list(_holding(garden.target, garden.store, [word])):  # noqa: ASYNC110 bytes send no event
                    await asyncio.sleep(0.05)
        except TimeoutError:
            outcome.broken.append(f"{path}: pending, and not erased after {_ERASED_WITHIN:.0f} seconds")


async def _check_retrieval(garden: Garden, space: str, word: str, path: str, outcome: Outcome) -> None:
    for memory, who in ((garden.memory, "the same process"), (garden.reader, "another process")):
        shown = await _everything_shown(memory, space, word)
        outcome.counts["retrievals"] += len(shown)
        outcome.broken.extend(f"{path}: {what} of {who} still shows it" for what, text in shown.items() if word in text)


async def _everything_shown(memory: afterturn.Memory, space: str, word: str) -> dict[str, str]:
    core, talk = memory.space(space), memory.conversation("talk-check", owner=space)
    found = await core.search(f"What about {word}?", limit=100)
    return {
        "search": repr(found.hits),
        "as_of": repr((await core.search(word, limit=100, as_of=4_000_000_000.0)).hits),
        "list": repr(await core.list(limit=10_000, filter=_EVERYTHING)),
        "operations": repr(await core.operations(limit=1_000)),
        "proposals": repr(await core.proposals(limit=1_000)),
        "reviews": repr(await core.reviews(limit=1_000)),
        "conversations": repr(await core.conversations(limit=1_000)),
        "trace": repr(await core.trace(limit=1_000)),
        "profile": repr(await core.profile(limit=1_000)),
        "export": repr(await core.export()),
        "markdown": await core.as_markdown(),
        "standing": await talk.standing().refresh(),
        "tool": await talk.tools().dispatch("search_memory", {"query": "Ada bicycle cellar boat key"}),
    }


def _holding(target: StoreTarget, store: Path, words: list[str]) -> Iterator[str]:
    """Files that have the bytes of a word, or of its end, which stemming would keep."""
    for path in target.files(store):
        content = path.read_bytes().lower() if path.exists() else b""
        for word in words:
            if word[:-1].encode() in content:
                yield f"{path.name} has the bytes of {word}"


async def _check_again(store: Path, words: list[str], model: EchoModel, target: StoreTarget, outcome: Outcome) -> None:
    """After closing, and after opening again with everything that waits done."""
    outcome.broken.extend(f"after closing, {what}" for what in _holding(target, store, words))
    async with AsyncExitStack() as stack:
        memory = await _open(stack, store, model)
        await memory.drain(within=60)
        for number in range(_SPACES):
            space = f"user:person-{number}"
            shown = await _everything_shown(memory, space, "Ada")
            shown["recall_once"] = repr(recall_once("Ada", space=space, store=store, limit=200, config=SETTINGS))
            back = sorted({word for word in words for text in shown.values() if word in text})
            outcome.broken.extend(f"{word} has come back after opening {space} again" for word in back)
    outcome.counts["came back searched"] += len(words)
    outcome.broken.extend(f"after opening again, {what}" for what in _holding(target, store, words))


def _run(seed: int, target: StoreTarget, options: argparse.Namespace) -> Outcome:
    with without_log():
        return asyncio.run(run_seed(seed, target, sentinels=options.sentinels))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sentinels", type=int, default=95, help="sentinels of each seed")


LAB = Lab(
    "erasure",
    "sentinels enter by every path and are forgotten while work is under way.",
    "1-11",
    _run,
    (
        Row("sentinels forgotten", "sentinels", full=1_000),
        Row("outputs searched for a forgotten sentinel", "retrievals"),
        Row("forgets that answered `erased` at once", "answered erased"),
        Row("forgets that answered `pending`, and were erased later", "answered pending"),
        Row("sentinels searched for after closing and opening again", "came back searched"),
    ),
    "retrieved, in the bytes of a file, or come back",
    _options,
)


if __name__ == "__main__":
    sys.exit(slices.main(LAB))
