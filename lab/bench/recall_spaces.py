"""The row of many small spaces: another one at every call, whether the index has it or not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from random import Random
from time import perf_counter

from lab.bench.recall_asking import Asker, Question, asking, public_times
from lab.bench.recall_reference import BareSpace
from lab.bench.recall_report import Measured, Row, number
from lab.bench.recall_scale import MEBIBYTE, Scale, Told
from lab.bench.recall_stores import Stores, crowd_name, template_of, texts_of
from lab.bench.report import Goal, percentile

TAIL = Goal(3.0)
# Beside the index: SQLite's page cache of 16 MiB a connection, and what Python and malloc keep of freed memory.
SLACK_BYTES = 48 * MEBIBYTE
_WARM_SPACES = 64
_TOUCHED_TIMES = 3
_OTHER_BYTES = 8 * MEBIBYTE
_ANY = "Which of them was it that moved to the northern harbour?"
_ROW = Row("spaces")


@dataclass(frozen=True, slots=True)
class _Calls:
    """The two sides of a comparison. `others` are their like, by which files are read before anything is measured."""

    asker: Asker
    bare: BareSpace
    others: tuple[Asker, BareSpace]
    told: Told

    def measure(self, title: str, calls: Sequence[tuple[str, Question]]) -> tuple[list[float], list[float]]:
        """Of every call, ours and the limit, in seconds."""
        ours: list[float] = []
        limit: list[float] = []
        for at, (space, question) in enumerate(calls):
            if at % 100 == 0:
                self.told(f"{title}: call {at} of {len(calls)}")
            expression = self.bare.expression(space, question.text)
            self._touch(space, question, expression)
            for side in (ours, limit) if at % 2 else (limit, ours):
                side.append(self._timed(space, expression) if side is limit else self.asker.timed(space, question))
        return ours, limit

    def _touch(self, space: str, question: Question, expression: str) -> None:
        """Both sides find what they read in the system's cache, and neither in one of its own."""
        asker, bare = self.others
        asker.ask(space, question)
        bare.run(space, expression)

    def _timed(self, space: str, expression: str) -> float:
        began = perf_counter()
        self.bare.run(space, expression)
        return perf_counter() - began


def measure_spaces(stores: Stores, wanted: Scale, told: Told) -> list[Measured]:
    """With as many spaces as the disk has room for; a figure of fewer says so, and is not judged."""
    scale = replace(wanted, spaces=stores.spaces_that_fit(wanted.spaces, wanted.space_size))
    found = _measured(stores, scale, told)
    if scale.spaces == wanted.spaces:
        return found
    said = f"only {scale.spaces:,} of {wanted.spaces:,} spaces: the disk has no room for more, so this is not judged"
    return [replace(figure, passed=None, notes=(said, *figure.notes)) for figure in found]


def _measured(stores: Stores, scale: Scale, told: Told) -> list[Measured]:
    path = stores.crowd(scale.spaces, scale.space_size)
    random = Random(1)
    cold_spaces = random.sample(range(scale.spaces), min(scale.calls, scale.spaces))
    warm_spaces = random.sample(range(scale.spaces), min(_WARM_SPACES, scale.spaces))
    warm_calls = random.choices(warm_spaces, k=scale.calls)
    resident = _resident(path, scale, told)
    bare, other_bare = BareSpace(path), BareSpace(path)
    with asking(path, index_bytes_max=_OTHER_BYTES) as other:
        with asking(path) as asker:
            _warm_up(asker, bare)
            sides = _Calls(asker, bare, (other, other_bare), told)
            cold_calls = _asked(asker, stores, path, cold_spaces)
            cold = sides.measure("cold spaces", cold_calls)
        with asking(path) as asker:
            calls = _asked(asker, stores, path, warm_calls)
            for space, question in dict(calls).items():
                asker.shelve(space, question)
            warm = _Calls(asker, bare, (other, other_bare), told).measure("warm spaces", calls)
    bare.close()
    other_bare.close()
    public = public_times(path, [(space, question.text) for space, question in cold_calls])
    size = f"{scale.spaces:,} × {scale.space_size:,}"
    return [
        _tail(
            f"{size}, cold space",
            cold,
            (
                f"the public verb, embedding and hops included, p50 {number(percentile(public, 0.5))} ms, p99 "
                f"{number(percentile(public, 0.99))} ms",
                *_about(stores, path, scale),
            ),
        ),
        _tail(
            f"{size}, warm space", warm, (f"among {len(warm_spaces)} spaces that were asked before and are in memory",)
        ),
        resident,
    ]


def _asked(asker: Asker, stores: Stores, path: Path, spaces: Sequence[int]) -> list[tuple[str, Question]]:
    """A question for each of them that something in it answers."""
    texts = {at: texts_of(path, crowd_name(at)) for at in {template_of(space) for space in spaces}}
    asked = [stores.corpus.questions(1, texts[template_of(at)], seed)[0] for seed, at in enumerate(spaces)]
    return [(crowd_name(at), question) for at, question in zip(spaces, asker.questions(asked), strict=True)]


def _warm_up(asker: Asker, bare: BareSpace) -> None:
    """What a process pays once, for its first query of all, is not a space's."""
    (question,) = asker.questions([_ANY])
    asker.ask(crowd_name(0), question)
    bare.run(crowd_name(0), bare.expression(crowd_name(0), question.text))


def _tail(name: str, pair: tuple[list[float], list[float]], notes: tuple[str, ...]) -> Measured:
    ours, limit = ([seconds * 1000 for seconds in side] for side in pair)
    tails = percentile(ours, 0.99), percentile(limit, 0.99)
    middle = (
        f"p50 {number(percentile(ours, 0.5))} ms, the limit's {number(percentile(limit, 0.5))} ms; {len(ours)} calls"
    )
    against = f"ours at p99 is {tails[0] / percentile(limit, 0.5):.2f} × the limit's p50"
    return _ROW.beside(f"{name}, p99", "ms", tails, TAIL, middle, against, *notes)


def _about(stores: Stores, path: Path, scale: Scale) -> tuple[str, ...]:
    size = path.stat().st_size / 1e9
    return (
        "limit: one bare FTS5 query for the same words in the same space, then its vectors, read as bytes; its p99 too",
        "cold: not asked before by this process; the system has the file's pages in its cache, for both sides",
        f"{scale.spaces * scale.space_size:,} memories, {size:.1f} GB, made in {stores.seconds(path):.0f} s; most "
        "spaces are copies of eight that went in by the public verbs",
    )


def _resident(path: Path, scale: Scale, told: Told) -> Measured:
    """In a process that has done nothing else: what one has freed before would hide what it grows by."""
    told("bounded index: more spaces than it has room for")
    bound = scale.bounded_bytes
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        found = pool.submit(_grown, path, bound, scale.spaces).result()
    goal = Goal((bound + SLACK_BYTES) / MEBIBYTE, "MiB")
    return _ROW.alone(
        "resident memory above the start, at most",
        "MiB",
        found.grown_bytes / MEBIBYTE,
        goal,
        f"index_bytes_max {bound / MEBIBYTE:g} MiB, and {SLACK_BYTES / MEBIBYTE:g} MiB for SQLite's pages and malloc",
        f"{found.touched:,} spaces asked, {found.touched * found.each_bytes / bound:.1f} times what fits; the index "
        f"says it holds {found.held_bytes / MEBIBYTE:.1f} MiB",
    )


@dataclass(frozen=True, slots=True)
class _Grown:
    touched: int
    each_bytes: int
    held_bytes: int
    grown_bytes: int


def _grown(path: Path, bound: int, spaces: int) -> _Grown:
    """Asks more spaces than the setting has room for, and looks at what the process grew by at most."""
    with asking(path, index_bytes_max=bound) as asker:
        (question,) = asker.questions([_ANY])
        before = highest = resident_bytes()
        each = touched = 0
        while touched < spaces and touched * each <= _TOUCHED_TIMES * bound:
            asker.shelve(crowd_name(touched), question)
            touched += 1
            each = max(each, asker.index.size_bytes // touched)
            highest = max(highest, resident_bytes())
        return _Grown(touched, each, asker.index.size_bytes, highest - before)


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
