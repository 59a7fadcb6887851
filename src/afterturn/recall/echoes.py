"""What each term counts in which rows of a small space, its context counted in: reckoned once where much is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from afterturn.recall.postings import Part, Places, numbers
from afterturn.recall.ranking import saturated

PAIRS_MAX = 131_072
"""Of a term and a row where it is heard: more than that, some 5 ms, would keep a question waiting."""

Heard: TypeAlias = "tuple[NDArray[np.intp], NDArray[np.float32]]"
"""Rows, and what a term counts in each: below 0 where it is only said around a row."""


class Found(NamedTuple):
    """Where a term is, in how many living rows, and where it is heard, if that was reckoned."""

    places: Sequence[Places]
    documents: int
    heard: Heard | None = None


NOWHERE = Found((), 0)


class Hearing(NamedTuple):
    """Who hears whom, sorted by who is heard: everybody hears itself. `begins` is where each of the heard does."""

    begins: NDArray[np.intp]
    hearers: NDArray[np.intp]
    factors: NDArray[np.float32]


class Echoes:
    """Term number `i` of a part is heard in the rows from `starts[i]` to `starts[i + 1]`, each once."""

    def __init__(self, part: Part, hearing: Hearing, spans: NDArray[np.float32]) -> None:
        """`spans` are the rows' lengths, with what is said around them."""
        self._part = part
        count = spans.size
        postings, at = _each_hearing(part, hearing)
        terms = np.repeat(np.arange(part.terms.size), np.diff(part.starts)).take(postings)
        rows = hearing.hearers.take(at)
        is_own = rows == part.rows.take(postings)
        said = part.counts.take(postings) * hearing.factors.take(at)
        # One number for a term in a row, however many of those around it say it.
        pairs = terms * count + rows
        order = np.argsort(pairs, kind="stable")
        firsts = np.flatnonzero(np.diff(pairs.take(order), prepend=-1))
        terms, self._rows = np.divmod(pairs.take(order.take(firsts)), max(1, count))
        shares = saturated(_summed(np.add, said.take(order), firsts), spans[self._rows])
        self._shares = np.where(_summed(np.logical_or, is_own.take(order), firsts), shares, -shares)
        starts: NDArray[np.int64] = terms.searchsorted(np.arange(part.terms.size + 1))
        # Of an array, reading one element takes ten times as long.
        self._starts = starts.data

    @property
    def size_bytes(self) -> int:
        """With the part, which may be somebody else's too."""
        heard_bytes: int = self._rows.nbytes + self._shares.nbytes + self._starts.nbytes
        return self._part.size_bytes + heard_bytes

    def find(self, terms: Sequence[str]) -> list[Found]:
        part, starts = self._part, self._starts
        found: list[Found] = []
        for at in part.seek(numbers(terms)):
            if at is None:
                found.append(NOWHERE)
                continue
            places, start, end = part.places(at), starts[at], starts[at + 1]
            found.append(Found((places,), len(places[0]), (self._rows[start:end], self._shares[start:end])))
        return found


def are_few(part: Part, hearing: Hearing) -> bool:
    """Whether reckoning echoes keeps nobody waiting."""
    return int(np.diff(hearing.begins).take(part.rows).sum()) <= PAIRS_MAX


def _each_hearing(part: Part, hearing: Hearing) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which posting is heard, and where in `hearing`, once for each row that hears it."""
    times = np.diff(hearing.begins).take(part.rows)
    postings = np.repeat(np.arange(part.rows.size), times)
    earlier = np.cumsum(times) - times
    return postings, np.arange(postings.size) + (hearing.begins.take(part.rows) - earlier).take(postings)


def _summed(add: np.ufunc, values: NDArray[Any], firsts: NDArray[np.intp]) -> NDArray[Any]:
    """One value for each run, which begin at `firsts`."""
    summed: NDArray[Any] = add.reduceat(values, firsts) if firsts.size else values
    return summed
