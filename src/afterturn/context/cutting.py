"""How texts share a room that is too small for all of them, and where a text is cut. Pure."""

from collections.abc import Sequence

from afterturn.base.characters import joins

LINES_CUT = "\n[…]"
WORDS_CUT = "…"

# A cut looks back this far for the end of a line or a word, and for the beginning of a composed character.
_BACK_CHARS_MAX = 120
_SEQUENCE_CHARS_MAX = 16


def shares(wanted: Sequence[int], total: int) -> list[int]:
    """What each gets of `total`: all it wants, or an equal part of what those that want less have left over."""
    given = [0] * len(wanted)
    left = max(0, total)
    by_size = sorted(range(len(wanted)), key=lambda at: wanted[at])
    for done, at in enumerate(by_size):
        given[at] = min(wanted[at], left // (len(wanted) - done))
        left -= given[at]
    return given


def size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def cut(text: str, bytes_max: int, mark: str) -> str:
    """At most `bytes_max` bytes of the beginning, `mark` included where something is missing; "" when not even it fits.

    Between lines or words where one ends nearby, and never inside a character or its combining marks.
    """
    if size(text) <= bytes_max:
        return text
    room = bytes_max - size(mark)
    if room <= 0:
        return ""
    end = len(text[:room].encode("utf-8", "surrogatepass")[:room].decode("utf-8", "ignore"))
    return text[: _nearby_end(text, end)].rstrip() + mark


def _nearby_end(text: str, end: int) -> int:
    for blanks in ("\n", "\n\t "):
        for at in range(end, max(0, end - _BACK_CHARS_MAX), -1):
            if text[at] in blanks:
                return at
    for at in range(end, max(0, end - _SEQUENCE_CHARS_MAX), -1):
        if not joins(text, at):
            return at
    return end
