"""What each term counts in which rows of a small space, its context counted in: reckoned once where much is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from afterturn.recall.postings import Part, Places, numbers
from afterturn.recall.ranking import saturated

Reached: TypeAlias = "tuple[NDArray[np.intp], NDArray[np.float32]]"
"""Rows, and what a term counts in each: below 0 where it is only said around a row."""


class Found(NamedTuple):
    """Where a term is, in how many living rows, and which rows it reaches, where that is known."""

    places: Sequence[Places]
    documents: int
    reached: Reached | None = None


NOWHERE = Found((), 0)


class Hearing(NamedTuple):
    """Who hears whom, sorted by who is heard: everybody hears itself."""

    heard: NDArray[np.intp]
    hearers: NDArray[np.intp]
    factors: NDArray[np.float32]


class Reach:
    """Term number `i` of `part` reaches the rows from `starts[i]` to `starts[i + 1]`, each once."""

    def __init__(self, part: Part, hearing: Hearing, spans: NDArray[np.float32]) -> None:
        """`spans` are the rows' lengths, with what is said around them."""
        self._part = part
        count = spans.size
        postings, at = _each_hearing(part, hearing, count)
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
        reached_bytes: int = self._rows.nbytes + self._shares.nbytes + self._starts.nbytes
        return self._part.size_bytes + reached_bytes

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


def _each_hearing(part: Part, hearing: Hearing, count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which posting is heard, and where in `hearing`, once for each row that hears it."""
    begins = hearing.heard.searchsorted(np.arange(count + 1))
    times = np.diff(begins).take(part.rows)
    postings = np.repeat(np.arange(part.rows.size), times)
    earlier = np.cumsum(times) - times
    return postings, np.arange(postings.size) - earlier.take(postings) + begins.take(part.rows).take(postings)


def _summed(add: np.ufunc, values: NDArray[Any], firsts: NDArray[np.intp]) -> NDArray[Any]:
    """One value for each run, which begin at `firsts`."""
    summed: NDArray[Any] = add.reduceat(values, firsts) if firsts.size else values
    return summed
