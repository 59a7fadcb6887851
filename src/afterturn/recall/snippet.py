"""The part of a long memory that is worth showing: the stretch with the most of the query's words in it."""

import re
from collections import Counter
from collections.abc import Collection
from heapq import nlargest
from itertools import pairwise

from afterturn.text import joins, terms

CUT = "…"

_CUT_BYTES = len(CUT.encode())
# Longer texts are searched this far only: a record may hold a megabyte, and a block has milliseconds.
_SEARCHED_CHARS_MAX = 16_384
_PART_CHARS_MIN = 256
_PAIRS_SEARCHED = 3
_PIECE = re.compile(r"\S{1,32}")
_GAP = re.compile(r"\s")
_LEAD_SHARE = 1 / 4
_WORD_CHARS_MAX = 24
_SEQUENCE_CHARS_MAX = 16


def best_window(text: str, wanted: Collection[str], bytes_max: int) -> str:
    """At most `bytes_max` bytes of `text`; each end that was cut is marked with "…".

    Cuts fall between words where one ends nearby, and never inside a character or its combining marks.
    """
    if len(text) <= bytes_max and _size(text) <= bytes_max:
        return text
    room = bytes_max - 2 * _CUT_BYTES
    first, last = _densest(text, frozenset(wanted), room)
    start = _back_by_bytes(text, first, int((room - _size(text[first:last])) * _LEAD_SHARE))
    start = _after_word(text, start, latest=first)
    end = _before_word(text, start, _forward_by_bytes(text, start, room))
    shown = text[start:end].strip()
    return (CUT if start else "") + shown + (CUT if end < len(text) else "")


def _densest(text: str, wanted: frozenset[str], room: int) -> tuple[int, int]:
    """The stretch of at most `room` bytes with the most different words, then the most words, then the earliest.

    Looked for word by word only where a rough look finds most; a stretch lies in two neighbouring parts at the most.
    """
    best, best_rank = (0, 0), (0, 0)
    for start, end in _promising(text, wanted, room):
        stretch, rank = _densest_of(text, _occurrences(text, start, end, wanted), room)
        if rank > best_rank:
            best, best_rank = stretch, rank
    return best


def _promising(text: str, wanted: frozenset[str], room: int) -> list[tuple[int, int]]:
    """Pairs of neighbouring parts with the most different words, then the most, in the order of the text."""
    if not wanted:
        return []
    parts = _parts(text[:_SEARCHED_CHARS_MAX], max(room, _PART_CHARS_MIN))
    found = [Counter(filter(wanted.__contains__, terms(text[start:end]))) for start, end in parts]
    pairs = [here + there for here, there in pairwise([*found, Counter[str]()])]
    ranks = [(len(pair), pair.total(), -at) for at, pair in enumerate(pairs) if pair]
    best = sorted(-at for _, _, at in nlargest(_PAIRS_SEARCHED, ranks))
    return [(parts[at][0], parts[min(at + 1, len(parts) - 1)][1]) for at in best]


def _parts(text: str, size: int) -> list[tuple[int, int]]:
    """Of about `size` characters, cut between words where one ends nearby."""
    parts: list[tuple[int, int]] = []
    start = 0
    while start < len(text):
        gap = _GAP.search(text, start + size, start + size + _WORD_CHARS_MAX)
        end = gap.end() if gap else min(len(text), start + size)
        parts.append((start, end))
        start = end
    return parts


def _densest_of(text: str, found: list[tuple[str, int, int]], room: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The best stretch of these occurrences, and its rank: different words, words."""
    best, best_rank = (0, 0), (0, 0)
    inside: Counter[str] = Counter()
    left = different = 0
    for right, (term, _, end) in enumerate(found):
        inside[term] += 1
        different += inside[term] == 1
        while left < right and _size(text[found[left][1] : end]) > room:
            inside[found[left][0]] -= 1
            different -= inside[found[left][0]] == 0
            left += 1
        if (different, right - left + 1) > best_rank:
            best, best_rank = (found[left][1], end), (different, right - left + 1)
    return best, best_rank


def _occurrences(text: str, start: int, end: int, wanted: frozenset[str]) -> list[tuple[str, int, int]]:
    """(term, start, end), a long run without spaces taken in pieces."""
    known: dict[str, list[str]] = {}
    found: list[tuple[str, int, int]] = []
    for piece in _PIECE.finditer(text, start, end):
        word = piece.group()
        if word not in known:
            known[word] = sorted(wanted.intersection(terms(word)))
        found.extend((term, piece.start(), piece.end()) for term in known[word])
    return found


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _back_by_bytes(text: str, start: int, room: int) -> int:
    stretch = text[max(0, start - max(0, room)) : start]
    while stretch and _size(stretch) > room:
        stretch = stretch[-(-len(stretch) // 8) :] if len(stretch) > 8 else stretch[1:]
    return start - len(stretch)


def _forward_by_bytes(text: str, start: int, room: int) -> int:
    stretch = text[start : start + room].encode("utf-8", "surrogatepass")[:room]
    return start + len(stretch.decode("utf-8", "ignore"))


def _after_word(text: str, start: int, *, latest: int) -> int:
    """Forward to where a word begins, if one does by `latest` and nearby; else to where a character does."""
    if start == 0:
        return 0
    for at in range(start, min(latest, start + _WORD_CHARS_MAX) + 1):
        if text[at - 1].isspace():
            return at
    for at in range(start, min(len(text), start + _SEQUENCE_CHARS_MAX)):
        if not joins(text, at):
            return at
    return start


def _before_word(text: str, start: int, end: int) -> int:
    if end >= len(text):
        return end
    for at in range(end, max(start, end - _WORD_CHARS_MAX), -1):
        if text[at].isspace():
            return at
    for at in range(end, max(start, end - _SEQUENCE_CHARS_MAX), -1):
        if not joins(text, at):
            return at
    return end
