"""Makes remembered text harmless inside a block: one line, nothing invisible, no tag of ours. It never grows."""

from __future__ import annotations

import re
import unicodedata

from afterturn.guard.secrets import MARGIN_CHARS, redact, scanner
from afterturn.guard.trust import TRUST_MIN
from afterturn.types import Entry

TAG = "afterturn-memory"
STANDING_TAG = "afterturn-standing"
FILE_TAG = "afterturn-file"

# What looks like "<": full-width, small and mathematical forms, quotation marks, modifiers, a syllabic, a rune.
_ANGLES = (
    "<\u00ab\u02c2\u02f1\u1438\u16b2\u2039\u226a\u2329\u276c\u276e\u2770\u27e8\u27ea\u29fc\u3008\u300a"
    "\ufe3d\ufe3f\ufe64\uff1c\U0001d236"
)
# Up to the first letter, so that a row of brackets is looked at once.
_OPENING = re.compile(rf"[{_ANGLES}][\W\d_{_ANGLES}]*")
_DISARMED = str.maketrans(dict.fromkeys(_ANGLES, "("))
# Letters that are drawn like one of the tag's: Cyrillic, Greek, Armenian, Latin with a hook, small capitals.
_LOOK_ALIKES = {
    "a": "\u0430\u03b1\u0251\u1d00",
    "e": "\u0435\u03b5\u1d07",
    "f": "\u03dd\u0192\ua730",
    "m": "\u043c\u03bc\u1d0d",
    "n": "\u043f\u03b7\u03bd\u0578\u0274",
    "o": "\u043e\u03bf\u0585\u1d0f",
    "r": "\u0433\u0280",
    "t": "\u0442\u03c4\u1d1b",
    # Greek has one letter that is drawn like both, so they are taken for one here.
    "u": "y\u0438\u03c5\u057d\u1d1c\u0443\u04af\u03b3\u028f",
}
_PLAIN = str.maketrans({drawn: letter for letter, alike in _LOOK_ALIKES.items() for drawn in alike})
_NOT_LETTER = re.compile(r"[^a-z]+")
# All tags of ours begin with it, so whatever begins with it is disarmed.
_TAG_LETTERS = _NOT_LETTER.sub("", "afterturn".translate(_PLAIN))
# Most of what follows a bracket differs from the tag at once; marks and blanks may draw a tag out this far.
_LOOKED_AT_CHARS = (24, 512)
_JOINERS = "\u200c\u200d"
_EMOJI_STYLES = "\ufe0e\ufe0f"
# What Python calls printable though it is not seen: selectors of variants.
_DRAWN_AS_NOTHING = re.compile("[\ufe00-\ufe0f\U000e0000-\U000e0fff]")


def neutralise(text: str) -> str:
    """One line without control, bidirectional, zero-width and tag characters, unable to open or close a tag of ours."""
    line = " ".join(text.split())
    if not _is_plain(line):
        line = " ".join("".join(_visible(line)).split())
    return _OPENING.sub(_disarm, line)


def neutralise_lines(text: str) -> str:
    """As `neutralise`, but lines, their indentation and tabs stay: for files and instructions."""
    lines = (_printable(line).rstrip() for line in text.splitlines())
    return _OPENING.sub(_disarm, "\n".join(lines).strip("\n"))


def neutralise_quote(text: str) -> str:
    """As `neutralise`, and unable to end a quotation either."""
    return neutralise(text).translate(_INNER_QUOTES)


_INNER_QUOTES = str.maketrans(dict.fromkeys('"\u201c\u201d\u201e\uff02', "'"))


def _printable(line: str) -> str:
    if _is_plain(line):
        return line
    return "\t".join("".join(_visible(part)) for part in line.split("\t"))


def _is_plain(line: str) -> bool:
    """Whether no character in it has to be looked at by itself, which is slow."""
    return line.isprintable() and (line.isascii() or not _DRAWN_AS_NOTHING.search(line))


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
    return found.group().translate(_DISARMED) if _is_tag(found.string, found.end()) else found.group()


def _is_tag(line: str, start: int) -> bool:
    """Whether the letters from `start` on are those of our tags, however drawn and whatever is between them."""
    if line[start : start + 1].isascii() and line[start : start + 1] not in "aA":
        return False
    for size in _LOOKED_AT_CHARS:
        decomposed = unicodedata.normalize("NFKD", line[start : start + size])
        letters = _NOT_LETTER.sub("", decomposed.casefold().translate(_PLAIN))
        if letters.startswith(_TAG_LETTERS):
            return True
        if not _TAG_LETTERS.startswith(letters):
            return False
    return False


# Looks at memories once more before a model sees them: what is known of secrets improves after the fact (G3).


class OutputFilter:
    """For one rendering. `withheld` tells which memories were left out, by reference, and why."""

    def __init__(self, *, scanning: bool) -> None:
        self._scanner = scanner(scanning=scanning)
        self._looked_at: dict[str, str | None] = {}
        self.withheld: dict[str, str] = {}

    def shown(self, entry: Entry) -> str | None:
        """What may be shown of it: without its secrets. None for an untrusted one that has some."""
        if entry.ref not in self._looked_at:
            self._looked_at[entry.ref] = self._look_at(entry, entry.text)
        return self._looked_at[entry.ref]

    def beginning(self, entry: Entry, chars_max: int) -> str | None:
        """`shown` for whoever has no time to look at all of a long one."""
        text = self._look_at(entry, entry.text[: chars_max + MARGIN_CHARS])
        return None if text is None else text[:chars_max]

    def _look_at(self, entry: Entry, text: str) -> str | None:
        found = redact(text, self._scanner)
        if found.kinds and entry.trust < TRUST_MIN:
            self.withheld[entry.ref] = found.reason
            return None
        return found.text
