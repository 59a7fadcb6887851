"""`make bench-compat`: afterturn's mem0 interface and the real mem0, in one process with the same embedder.

Both store messages word for word (`infer=False`). mem0 uses qdrant in a folder, with its default installation.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import mean, median
from time import perf_counter, sleep
from typing import Any, Protocol

from afterturn.compat.mem0 import Memory
from afterturn.embedders.sentence_encoder import SentenceEncoder
from afterturn.evaluation.everyday import EverydayJudge, HandedOver
from afterturn.evaluation.everyday_file import Person, read_people
from afterturn.evaluation.examination import scratch_folder
from lab.bench.report import Figure, Goal, Progress, Report, judge, make_report
from lab.bench.texts import sentences

USER = "bench"
# The time for a backlog of vectors, in seconds.
VECTORS_WITHIN = 120.0
DIMENSIONS = 256
TOP_K = 10
LINES = (5, 10, 20)
FIVE_TIMES_FASTER = Goal(0.2)
TWENTY_TIMES_FASTER = Goal(0.05)
NOT_FEWER = Goal(1, at_least=True)
EXPLAINED = (
    "The same calls through `afterturn.compat.mem0` and through the real mem0, in one process, with `infer=False` and "
    "the same embedder (afterturn's built-in word vectors). mem0 keeps its vectors in a local qdrant on disk; it is "
    "installed without extras, as `pip install mem0ai` does, so it searches by vectors alone. Figures are medians of "
    "rounds in which both alternate."
)


class Mem0Interface(Protocol):
    """The calls that are measured; both memories have them."""

    def add(self, messages: Any, *, user_id: str, infer: bool) -> dict[str, Any]: ...
    def search(
        self, query: str, *, filters: dict[str, Any], top_k: int, threshold: float | None = None
    ) -> dict[str, Any]: ...


class WordVectors:
    """The built-in embedder of afterturn, as mem0 takes one."""

    _embedder: SentenceEncoder | None = None

    def __init__(self, config: object = None) -> None:
        self.config = config
        if WordVectors._embedder is None:
            WordVectors._embedder = SentenceEncoder()
            WordVectors._embedder.load_gradually()

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self.embed_batch([text], memory_action)[0]

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[list[float]]:
        assert WordVectors._embedder is not None
        vectors: list[list[float]] = WordVectors._embedder.embed(list(texts)).tolist()
        return vectors


def import_mem0(home: Path) -> Any:
    """The real package. It reads its environment when it is imported: no telemetry, and its own files in `home`."""
    if "mem0" not in sys.modules:
        os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(home))
        os.environ.setdefault("OPENAI_API_KEY", "not used")
    return importlib.import_module("mem0")


def open_mem0(folder: Path, *, asynchronous: bool = False, **parts: Any) -> Any:
    """A memory of the real mem0 with its store in `folder`. `parts` are further parts of its configuration."""
    mem0, base = import_mem0(folder / "home"), importlib.import_module("mem0.configs.base")
    factory = importlib.import_module("mem0.utils.factory").EmbedderFactory
    factory.provider_to_class["word_vectors"] = f"{__name__}.{WordVectors.__name__}"
    qdrant = {"path": str(folder / "qdrant"), "on_disk": True, "embedding_model_dims": DIMENSIONS}
    config = base.MemoryConfig(
        vector_store={"provider": "qdrant", "config": qdrant}, history_db_path=str(folder / "history.db"), **parts
    )
    # Its validation knows only the names of its own embedders.
    embedders = importlib.import_module("mem0.embeddings.configs").EmbedderConfig
    config.embedder = embedders.model_construct(provider="word_vectors", config={})
    return (mem0.AsyncMemory if asynchronous else mem0.Memory)(config)


@contextmanager
def both_open(folder: Path) -> Iterator[tuple[Memory, Any]]:
    theirs = open_mem0(folder)
    try:
        with Memory.from_config({"afterturn": {"store": str(folder / "ours.db")}}) as ours:
            ours.search("warm up", filters={"user_id": USER})
            yield ours, theirs
    finally:
        theirs.close()
        theirs.vector_store.client.close()


@dataclass(frozen=True, slots=True)
class Scale:
    """One extra round of each kind warms up and is not counted."""

    rounds: int
    searches: int
    memories: int
    people_max: int | None = None


FULL = Scale(rounds=60, searches=60, memories=10_000)
QUICK = Scale(rounds=2, searches=2, memories=60, people_max=1)


def measure_compat(
    *, quick: bool = False, everyday: Path | None = None, progress: Progress = lambda step: None
) -> Report:
    scale = QUICK if quick else FULL
    with scratch_folder("afterturn-bench-") as folder:
        figures = _measure_speed(folder / "speed", scale, progress)
        if everyday is not None:
            figures += _measure_answers(folder / "answers", everyday, scale, progress)
    given = [*(["--quick"] if quick else []), *(["--everyday FILE"] if everyday is not None else [])]
    return make_report("compat", given, EXPLAINED, figures)


def _measure_speed(folder: Path, scale: Scale, progress: Progress) -> list[Figure]:
    folder.mkdir()
    with both_open(folder) as (ours, theirs):
        flush = f"a flush of this disk takes {_flush(folder):.2g} ms"
        figures = [_adding(ours, theirs, size, scale, flush, progress) for size in (1, 4, 20)]
        progress(f"filling with {scale.memories:,} memories")
        texts = sentences(scale.memories, seed=11)
        batches = [_messages(texts[at : at + 100]) for at in range(0, len(texts), 100)]
        mine = _timed(lambda: _fill(ours, batches)) + _timed(lambda: _wait_for_vectors(ours))
        its = _timed(lambda: _fill(theirs, batches))
        rates = [scale.memories / seconds for seconds in (mine, its)]
        note = f"{scale.memories:,} messages in calls of 100; for afterturn, until the last vector is stored"
        figures.append(judge("memories a second", "", rates[0], None, note, baseline=rates[1]))
        figures.append(_searching(ours, theirs, scale, progress))
    return figures


def _flush(folder: Path) -> float:
    """The median of some flushes of a small file, in milliseconds: mem0 needs several for one message."""
    with (folder / "flushed").open("wb") as file:
        times = []
        for _ in range(30):
            file.write(b"x" * 4096)
            file.flush()
            times.append(_timed(lambda: os.fsync(file.fileno())) * 1000)
    return median(times)


def _adding(
    ours: Mem0Interface, theirs: Mem0Interface, size: int, scale: Scale, flush: str, progress: Progress
) -> Figure:
    progress(f"adding {size}")
    texts = iter(sentences(2 * size * (scale.rounds + 1), seed=size))

    def add(memory: Mem0Interface) -> float:
        messages = _messages([next(texts) for _ in range(size)])
        taken = _timed(lambda: _add(memory, messages)) * 1000
        # Work in the background must not fall into the time of the other one.
        memory.search("the calendar", filters={"user_id": USER}, top_k=1)
        return taken

    mine, its = _alternate(scale.rounds, lambda: add(ours), lambda: add(theirs))
    name = "add, one message" if size == 1 else f"add, {size} messages in one call"
    return judge(name, "ms", mine, FIVE_TIMES_FASTER, f"{scale.rounds} calls; {flush}", baseline=its)


def _searching(ours: Mem0Interface, theirs: Mem0Interface, scale: Scale, progress: Progress) -> Figure:
    progress("searching")
    queries = iter(sentences(2 * (scale.searches + 1), seed=17))

    def search(memory: Mem0Interface) -> float:
        query = next(queries)
        return _timed(lambda: memory.search(query, filters={"user_id": USER}, top_k=TOP_K)) * 1000

    mine, its = _alternate(scale.searches, lambda: search(ours), lambda: search(theirs))
    name = f"search among {scale.memories:,} memories"
    note = f"{scale.searches} questions of 8 to 20 words, {TOP_K} results; mem0ai {version('mem0ai')}, "
    note += f"qdrant-client {version('qdrant-client')}"
    return judge(name, "ms", mine, TWENTY_TIMES_FASTER, note, baseline=its)


def _measure_answers(folder: Path, file: Path, scale: Scale, progress: Progress) -> list[Figure]:
    folder.mkdir()
    people = read_people(json.loads(file.read_text(encoding="utf-8")), file)[: scale.people_max]
    right: dict[tuple[bool, int], list[bool]] = {(is_ours, k): [] for is_ours in (True, False) for k in LINES}
    shown: dict[tuple[bool, int], list[int]] = {key: [] for key in right}
    with both_open(folder) as pair:
        for person in people:
            progress(f"everyday: {person.name}")
            for memory in pair:
                _add_sessions(memory, person)
        for person in people:
            for is_ours, memory in zip((True, False), pair, strict=True):
                for k in LINES:
                    for verdict, lines in _answers(memory, person, k):
                        right[is_ours, k].append(verdict)
                        shown[is_ours, k].append(lines)
    return [
        judge(
            f"right answers with {k} lines",
            f"of {len(right[True, k])}",
            sum(right[True, k]),
            NOT_FEWER,
            f"lines shown on average: {mean(shown[True, k]):.1f}, by mem0 {mean(shown[False, k]):.1f}",
            baseline=sum(right[False, k]),
        )
        for k in LINES
    ]


def _add_sessions(memory: Mem0Interface, person: Person) -> None:
    """Each exchange is one call, as a program would make it after each turn."""
    for session in person.sessions:
        for exchange in session.exchanges:
            said = (("user", exchange.user), ("assistant", exchange.assistant))
            messages = [{"role": role, "content": text} for role, text in said if text.strip()]
            memory.add(messages, user_id=person.name, infer=False)


def _answers(memory: Mem0Interface, person: Person, k: int) -> Iterator[tuple[bool, int]]:
    """For each question that memory can answer: whether the lines are right, and how many there are."""
    examiner = EverydayJudge(person)
    for question in person.questions:
        if not question.right:
            continue
        asked = " ".join(question.turns)
        # As many lines from both: the default threshold of ours leaves out most of the last ones.
        found = memory.search(asked, filters={"user_id": person.name}, top_k=k, threshold=0.0)["results"]
        lines = tuple(f"- {item['role']}: {item['memory']}" for item in found)
        yield examiner.verdict(question, HandedOver(lines)).is_right, len(lines)


def _messages(texts: Sequence[str]) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


def _add(memory: Mem0Interface, messages: list[dict[str, str]]) -> None:
    added = memory.add(messages, user_id=USER, infer=False)["results"]
    assert [one["event"] for one in added] == ["ADD"] * len(messages)


def _fill(memory: Mem0Interface, batches: Sequence[list[dict[str, str]]]) -> None:
    for batch in batches:
        _add(memory, batch)


def _wait_for_vectors(ours: Memory) -> None:
    """A search waits half a second for vectors of what was just added; a backlog takes longer."""
    query, ends = "the calendar of the museum", perf_counter() + VECTORS_WITHIN
    while perf_counter() < ends:
        found = ours.search(query, filters={"user_id": USER}, explain=True, threshold=0.0)["results"]
        if found and all(item["score_details"]["semantic_score"] for item in found):
            return
        # Searching without a pause would keep the background from making vectors.
        sleep(0.02)
    raise TimeoutError("Vectors are still missing, so the time until they are stored cannot be measured.")


def _timed(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def _alternate(rounds: int, ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float]:
    found: dict[Callable[[], float], list[float]] = {ours: [], theirs: []}
    for at in range(rounds + 1):
        for measure in (ours, theirs) if at % 2 else (theirs, ours):
            found[measure].append(measure())
    return median(found[ours][1:]), median(found[theirs][1:])
