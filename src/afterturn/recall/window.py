"""The part of a long memory that is worth showing: the stretch with the most of the query's words in it."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection

from afterturn.base.terms import terms

CUT = "…"

_CUT_BYTES = len(CUT.encode())
# Longer texts are searched this far only: a record may hold a megabyte, and a block has milliseconds.
_SEARCHED_CHARS_MAX = 16_384
_PIECE = re.compile(r"\S{1,32}")
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
    """The stretch of at most `room` bytes with the most different words, then the most words, then the earliest."""
    found = _occurrences(text[:_SEARCHED_CHARS_MAX], wanted)
    best, best_rank = (0, 0), (0, 0)
    inside: Counter[str] = Counter()
    left = 0
    for right, (term, _, end) in enumerate(found):
        inside[term] += 1
        while left < right and _size(text[found[left][1] : end]) > room:
            inside[found[left][0]] -= 1
            left += 1
        rank = (sum(1 for count in inside.values() if count > 0), right - left + 1)
        if rank > best_rank:
            best, best_rank = (found[left][1], end), rank
    return best


def _occurrences(text: str, wanted: frozenset[str]) -> list[tuple[str, int, int]]:
    """(term, start, end), a long run without spaces taken in pieces."""
    if not wanted:
        return []
    return [
        (term, piece.start(), piece.end())
        for piece in _PIECE.finditer(text)
        for term in sorted(set(terms(piece.group())) & wanted)
    ]


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
        if not _joins(text, at):
            return at
    return start


def _before_word(text: str, start: int, end: int) -> int:
    if end >= len(text):
        return end
    for at in range(end, max(start, end - _WORD_CHARS_MAX), -1):
        if text[at].isspace():
            return at
    for at in range(end, max(start, end - _SEQUENCE_CHARS_MAX), -1):
        if not _joins(text, at):
            return at
    return end


def _joins(text: str, at: int) -> bool:
    """Whether the character at `at` belongs to the one before it: an accent, a joiner, an emoji's skin tone."""
    character = text[at]
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or "\u200d" in (character, text[at - 1])
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )
