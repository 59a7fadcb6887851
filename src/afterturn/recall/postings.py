"""Which rows of a shelf hold a term, and how often. Terms are kept as keyed hashes, so that no word stays in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# Two parts are made one while the older is at most so many times as large: few parts, and each row moves seldom.
_GROWTH = 3
# Beyond this many postings making one of two would be felt by the recall that waits for it; a rebuild does it.
_MERGED_MAX = 200_000


Places: TypeAlias = tuple[NDArray[np.int32], NDArray[np.uint16]]
"""Rows, and how often each holds a term."""


def hashed(terms: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """One number an occurrence, in order. Python keys its hashes anew in every process."""
    return np.fromiter(map(hash, chain.from_iterable(terms)), np.int64, sum(map(len, terms)))


@dataclass(frozen=True, slots=True)
class Part:
    """Sorted by term, then row: term number `i` is held by `rows[starts[i] : starts[i + 1]]`, each row once."""

    terms: NDArray[np.int64]
    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    counts: NDArray[np.uint16]

    @property
    def size_bytes(self) -> int:
        return self.terms.nbytes + self.starts.nbytes + self.rows.nbytes + self.counts.nbytes

    def find(self, terms: NDArray[np.int64]) -> list[Places | None]:
        if not self.terms.size:
            return [None] * terms.size
        at = self.terms.searchsorted(terms)
        is_there = self.terms.take(at, mode="clip") == terms
        starts, ends = self.starts.take(at, mode="clip").tolist(), self.starts.take(at + 1, mode="clip").tolist()
        return [
            (self.rows[start:end], self.counts[start:end]) if found else None
            for found, start, end in zip(is_there.tolist(), starts, ends, strict=True)
        ]


def make_part(terms: NDArray[np.int64], rows: NDArray[np.int32]) -> Part:
    """Of occurrences, whose rows are in ascending order."""
    order = np.argsort(terms, kind="stable")
    terms, rows = terms[order], rows[order]
    firsts = _firsts(terms, rows)
    counts = np.diff(firsts, append=terms.size).astype(np.uint16)
    return _part(terms[firsts], rows[firsts], counts)


class Postings:
    """Immutable but for `blank`. Later parts hold later rows."""

    def __init__(self, parts: Sequence[Part] = ()) -> None:
        self._parts = tuple(parts)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self._parts)

    def find(self, terms: Sequence[str]) -> list[list[Places]]:
        """For each term wherever it is; rows are in ascending order and none is there twice."""
        numbers = hashed([terms])
        found = [part.find(numbers) for part in self._parts]
        return [[places for places in of_term if places is not None] for of_term in zip(*found, strict=True)]

    def with_part(self, added: Part) -> Postings:
        """`added` holds rows that come after all others."""
        parts = [*self._parts, added]
        while len(parts) > 1 and _worth_joining(*parts[-2:]):
            parts[-2:] = [_join(*parts[-2:])]
        return Postings(parts)

    def blank(self, dead: NDArray[np.bool_]) -> None:
        """In place, so that what was forgotten is nowhere: rows for which `dead` is set hold nothing any more."""
        for part in self._parts:
            part.counts[dead.take(part.rows, mode="clip")] = 0

    def occurrences(self) -> Iterator[int]:
        """How often anything occurs, part by part."""
        return (int(part.counts.sum()) for part in self._parts)


def _firsts(terms: NDArray[np.int64], rows: NDArray[np.int32]) -> NDArray[np.intp]:
    differs = np.ones(terms.size, np.bool_)
    differs[1:] = (terms[1:] != terms[:-1]) | (rows[1:] != rows[:-1])
    return np.flatnonzero(differs)


def _part(terms: NDArray[np.int64], rows: NDArray[np.int32], counts: NDArray[np.uint16]) -> Part:
    """Of postings in order, their terms repeated."""
    differs = np.ones(terms.size, np.bool_)
    differs[1:] = terms[1:] != terms[:-1]
    starts = np.flatnonzero(differs)
    return Part(terms[starts], np.append(starts, terms.size), rows, counts)


def _worth_joining(older: Part, newer: Part) -> bool:
    size = older.rows.size + newer.rows.size
    return older.rows.size <= _GROWTH * newer.rows.size and size <= _MERGED_MAX


def _join(older: Part, newer: Part) -> Part:
    terms = np.concatenate([np.repeat(part.terms, np.diff(part.starts)) for part in (older, newer)])
    order = np.argsort(terms, kind="stable")
    rows = np.concatenate([older.rows, newer.rows])[order]
    return _part(terms[order], rows, np.concatenate([older.counts, newer.counts])[order])
