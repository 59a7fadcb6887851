"""The rows of one space: beside a forty-line search while it is small, beside one matrix product when it is large."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

from afterturn.recall.lanes import Embed
from lab.bench.recall_asking import LIMIT, Asker, Question, asking, public_times
from lab.bench.recall_reference import BareSpace, Reference, random_matrix
from lab.bench.recall_report import Measured, Row, number
from lab.bench.recall_scale import WIDTH, Scale, Told
from lab.bench.recall_stores import SPACE, Stores, references_of, texts_of
from lab.bench.report import Goal, percentile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MIDDLE = Goal(0.4)
TAIL = Goal(0.8)
FOUND = Goal(0.97, "", at_least=True)
SMALL = Goal(3.0)
_BLOCK = 25

Opened: TypeAlias = Callable[[Path], AbstractContextManager[Asker]]


def measure_large(stores: Stores, scale: Scale, told: Told) -> list[Measured]:
    path = stores.beside(scale.large, scale.large_beside, scale.space_size)
    with asking(path) as asker:
        asked = _questions(asker, stores, path, scale.large_calls)
        asker.shelve(SPACE, asked[0])
        excluded = _excluded(asker, path, asked, scale.exclusions)
        ours, limit = _beside_product(asker, asked, excluded, scale.large, told)
        compared = asked[: scale.compared]
        found, hits = _found(asker, path, compared, excluded, told)
    public = public_times(path, [(SPACE, one.text) for one in asked])
    base = percentile(limit, 0.5)
    row, name = Row("large"), f"{scale.large:,} of {scale.large + scale.large_beside * scale.space_size:,}"
    about = (
        f"limit: p50 of one float32 product {scale.large:,} × {WIDTH}, on one thread",
        f"{scale.exclusions} exclusions, the newest hits and others by chance; {len(asked)} questions, {hits:.1f} hits "
        f"each; the public verb, embedding and hops included, p50 {number(percentile(public, 0.5))} ms, p99 "
        f"{number(percentile(public, 0.99))} ms",
    )
    goal, source = (FOUND, "real text") if stores.corpus.is_real else (None, "generated text, so not judged")
    return [
        row.beside(f"{name}, p50", "ms", (percentile(ours, 0.5), base), MIDDLE, *about),
        row.beside(f"{name}, p99", "ms", (percentile(ours, 0.99), base), TAIL),
        row.alone(
            f"{name}, share of the exact top {LIMIT} found",
            "",
            found,
            goal,
            f"{source}: {stores.corpus.name}; exact: the same ranking with every entry weighed in full; the first "
            f"{len(compared)} questions",
        ),
    ]


def measure_small(stores: Stores, scale: Scale, told: Told, opened: Opened = asking) -> list[Measured]:
    return [measured for size in scale.small for measured in _small(stores, scale, size, told, opened)]


def _small(stores: Stores, scale: Scale, size: int, told: Told, opened: Opened) -> list[Measured]:
    path = stores.single(size)
    told(f"{size:,} memories beside the reference")
    bare = BareSpace(path)
    texts, vectors = bare.texts(SPACE), bare.vectors(SPACE)
    bare.close()
    with opened(path) as asker, tempfile.TemporaryDirectory(prefix="afterturn-bench-") as folder:
        asked = _questions(asker, stores, path, scale.small_calls)
        asker.shelve(SPACE, asked[0])
        reference = Reference(Path(folder) / "reference.db", texts, vectors)
        apart = _beside_reference(asker, asked, reference)
        whole = _beside_reference(asker, [Question(one.text, None) for one in asked], reference)
        wide_reference = Reference(Path(folder) / "wide.db", texts, random_matrix(size, WIDTH))
        others = [Question("", vector) for vector in random_matrix(len(asked), WIDTH, seed=2)]
        wide = percentile(_searches(wide_reference, others, asker.embed), 0.5)
        reference.close()
        wide_reference.close()
    public = public_times(path, [(SPACE, one.text) for one in asked])
    row = Row("small")
    return [
        row.beside(
            f"{size:,} in a space, from question to texts, p50",
            "ms",
            _middle(whole),
            SMALL,
            f"limit: SQLite + numpy in forty lines, on the same vectors of {vectors.shape[1]} numbers, with the texts "
            "of the ten best; both sides embed the question, with the same embedder",
            f"{_tail(whole)}; the public verb, hops included, p50 {number(percentile(public, 0.5))} ms",
        ),
        row.beside(
            f"{size:,} in a space, embedding apart, p50",
            "ms",
            _middle(apart),
            SMALL,
            f"the same where the question's vector is there already; on vectors of {WIDTH} the limit takes "
            f"{number(wide)} ms",
            _tail(apart),
        ),
    ]


def _middle(times: tuple[list[float], list[float]]) -> tuple[float, float]:
    ours, limit = times
    return percentile(ours, 0.5), percentile(limit, 0.5)


def _tail(times: tuple[list[float], list[float]]) -> str:
    ours, limit = times
    return f"p99 {number(percentile(ours, 0.99))} ms, the limit's {number(percentile(limit, 0.99))} ms"


def _questions(asker: Asker, stores: Stores, path: Path, count: int) -> list[Question]:
    return asker.questions(stores.corpus.questions(count, texts_of(path, SPACE), seed=5))


def _excluded(asker: Asker, path: Path, asked: Sequence[Question], count: int) -> frozenset[str]:
    """Half of them would be found, as what a conversation has been shown would; the others by chance."""
    hits: dict[str, None] = {}
    for question in asked:
        if len(hits) >= count // 2:
            break
        hits.update(dict.fromkeys(hit.entry.ref for hit in asker.ask(SPACE, question).hits))
    others = references_of(path, SPACE, limit=20 * count)
    chosen = list(hits)[: count // 2]
    return frozenset(chosen + Random(1).sample(others, min(len(others), count - len(chosen))))


def _beside_product(
    asker: Asker, asked: Sequence[Question], excluded: frozenset[str], rows: int, told: Told
) -> tuple[list[float], list[float]]:
    """In milliseconds, several in a row as beside the reference: a product drives everything else out of the cache."""
    matrix = random_matrix(rows, WIDTH)
    vectors = random_matrix(len(asked), WIDTH, seed=2)
    ours: list[float] = []
    limit: list[float] = []
    for start in range(0, len(asked), _BLOCK):
        told(f"{rows:,} memories beside a product: question {start} of {len(asked)}")
        block = asked[start : start + _BLOCK]
        asker.ask(SPACE, block[0], excluded)
        ours += [asker.timed(SPACE, question, excluded) * 1000 for question in block]
        limit += [_product(matrix, vector) * 1000 for vector in vectors[start : start + _BLOCK]]
    return ours, limit


def _product(matrix: NDArray[np.float32], vector: NDArray[np.float32]) -> float:
    began = perf_counter()
    _ = matrix @ vector
    return perf_counter() - began


def _beside_reference(asker: Asker, asked: Sequence[Question], reference: Reference) -> tuple[list[float], list[float]]:
    """In milliseconds. Several calls in a row on each side, so that neither finds its data driven out of the cache."""
    ours: list[float] = []
    limit: list[float] = []
    for start in range(0, len(asked), _BLOCK):
        block = asked[start : start + _BLOCK]
        # The first of a row pays for what the other side has left in the cache; it is asked once unmeasured.
        asker.ask(SPACE, block[0])
        ours += [asker.timed(SPACE, question) * 1000 for question in block]
        limit += _searches(reference, block, asker.embed)
    return ours, limit


def _searches(reference: Reference, asked: Sequence[Question], embed: Embed) -> list[float]:
    found: list[float] = []
    for question in (asked[0], *asked):
        began = perf_counter()
        reference.search(embed(question.text) if question.vector is None else question.vector, LIMIT)
        found.append((perf_counter() - began) * 1000)
    return found[1:]


def _found(
    asker: Asker, path: Path, asked: Sequence[Question], excluded: frozenset[str], told: Told
) -> tuple[float, float]:
    """Of what the exact ranking gives, the share that ours gives too; and how many it gives to a question."""
    wanted = got = 0
    with asking(path, exact=True) as exact:
        exact.shelve(SPACE, asked[0])
        for at, question in enumerate(asked):
            if at % 10 == 0:
                told(f"exact top {LIMIT}: question {at} of {len(asked)}")
            right = {hit.entry.ref for hit in exact.ask(SPACE, question, excluded).hits}
            wanted += len(right)
            got += len(right & {hit.entry.ref for hit in asker.ask(SPACE, question, excluded).hits})
    return (got / wanted if wanted else 1.0), wanted / len(asked)
