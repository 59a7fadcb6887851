"""Makes remembered text harmless inside a block: one line, nothing invisible, no tag of ours. It never grows."""

import re
import unicodedata

TAG = "afterturn-memory"

_TAG_LETTERS = "afterturnmemory"
# NFKC gives the full-width and small forms; the rest look alike to a reader and to a tokeniser.
_ANGLE = re.compile(r"[<\uff1c\ufe64\u2039\u3008\u276e\u27e8]")
_NOT_LETTER = re.compile(r"[^a-z]+")
_JOINERS = "\u200c\u200d"
_EMOJI_STYLES = "\ufe0e\ufe0f"
_TAG_CHARS_MAX = 120


def neutralise(text: str) -> str:
    """One line without control, bidirectional, zero-width and tag characters, unable to open or close a tag of ours."""
    line = " ".join(text.split())
    if not (line.isascii() and line.isprintable()):
        line = " ".join("".join(_visible(line)).split())
    return _ANGLE.sub(_disarm, line)


def neutralise_quote(text: str) -> str:
    """As `neutralise`, and unable to end a quotation either."""
    return neutralise(text).translate(_INNER_QUOTES)


_INNER_QUOTES = str.maketrans(dict.fromkeys('"\u201c\u201d\u201e\uff02', "'"))


def _visible(line: str) -> list[str]:
    kept: list[str] = []
    for at, character in enumerate(line):
        if character in _JOINERS:
            keep = _joins_letters(line, at)
        elif "\ufe00" <= character <= "\ufe0f":
            keep = character in _EMOJI_STYLES and at > 0 and line[at - 1] not in _EMOJI_STYLES
        else:
            keep = (
                unicodedata.category(character) not in ("Cc", "Cf", "Cs")
                and not "\U000e0000" <= character <= "\U000e0fff"
            )
        if keep:
            kept.append(character)
    return kept


def _joins_letters(line: str, at: int) -> bool:
    """Persian, Indic scripts and emoji families need joiners; anywhere else they only hide something."""
    before, after = line[at - 1 : at], line[at + 1 : at + 2]
    return all(side > "\x7f" and side not in _JOINERS for side in (before, after))


def _disarm(found: re.Match[str]) -> str:
    following = found.string[found.end() : found.end() + _TAG_CHARS_MAX]
    letters = _NOT_LETTER.sub("", unicodedata.normalize("NFKC", following).casefold())
    return "(" if letters.startswith(_TAG_LETTERS) else found.group()
