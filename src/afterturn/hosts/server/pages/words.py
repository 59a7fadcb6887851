"""The words that differ between two texts."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

from afterturn.text import regex

_TOKEN = regex(r"\s+|\w+|[^\w\s]")
# Comparing takes the square of this.
_TOKENS_MAX = 1500


def word_diff(before: str, after: str) -> list[tuple[str, str]]:
    """Pieces of both texts in order: "same", "removed" or "added", and the text. Long texts are not compared."""
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    if len(old) + len(new) > 2 * _TOKENS_MAX:
        return [("removed", before), ("added", after)] if before != after else [("same", after)]
    return list(_joined(old, new))


def _joined(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    for what, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            yield "same", "".join(new[new_start:new_end])
            continue
        if start < end:
            yield "removed", "".join(old[start:end])
        if new_start < new_end:
            yield "added", "".join(new[new_start:new_end])
