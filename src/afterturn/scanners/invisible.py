"""Characters that a reader does not see: which ones a text needs, and which only hide something.

`clean` removes the second kind for everything that a model or a person is shown; `find_hidden` reports it. A joiner, a
selector or a mark stays where it changes what is drawn: in Persian, in Indic scripts, in emoji that exist, in text that
is written from right to left. Where it changes nothing it could only carry data.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from afterturn.text import regex

ZWNJ, ZWJ = "\u200c", "\u200d"
_TEXT_STYLE, _EMOJI_STYLE = "\ufe0e", "\ufe0f"
_MARKS = "\u200e\u200f\u061c"
_OPENERS, _CLOSERS = "\u202a\u202b\u2066\u2067\u2068", "\u202c\u2069"
_OVERRIDES = "\u202d\u202e"
# Letters that are drawn as nothing, or as a space.
_BLANK_LETTERS = "\u115f\u1160\u3164\uffa0\u2800\u17b4\u17b5\u180e\U0001d159"
_FLAGS = frozenset(["gbeng", "gbsct", "gbwls"])
_BLACK_FLAG = "\U0001f3f4"
_TAG_END = "\U000e007f"

# Line breaks that terminals and editors know, apart from "\n" and "\r\n". They become one.
_LINE_BREAKS = "\r\x0b\x0c\x85\u2028\u2029"
_LINE_END = regex(rf"[\n{_LINE_BREAKS}]")

# One search decides whether a text has anything to look at. Escapes of terminals are one piece.
_ESCAPE = (
    r"\x1b(?:\[[0-9;:?<=>]{0,32}[ -/]{0,4}[@-~]"
    rf"|[\]PX^_][^\x07\x1b\x9c\n{_LINE_BREAKS}]{{0,512}}(?:\x07|\x1b\\|\x9c)?|[ -/]{{0,4}}[0-~])"
)
_CANDIDATE = regex(
    _ESCAPE + r"|\r(?!\n)"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


class Hidden(NamedTuple):
    """Characters that hide something: where they are, and what they are in a few words."""

    kind: str
    start: int
    end: int


def clean(text: str, shown: Callable[[str], str] | None = None) -> str:
    """The text without hidden characters; blank letters become a space. `shown` writes them in another way instead."""
    hidden = find_hidden(text)
    if not hidden:
        return text
    parts, done = [], 0
    for one in hidden:
        found = text[one.start : one.end]
        parts += [text[done : one.start], shown(found) if shown is not None else without_hidden(found)]
        done = one.end
    return "".join([*parts, text[done:]])


def find_hidden(text: str) -> list[Hidden]:
    """In order. The time grows no faster than the text."""
    if text.isascii() and text.isprintable():
        return []
    found: list[Hidden] = []
    scan = _Scan(text)
    for match in _CANDIDATE.finditer(text):
        kind = scan.kind_of(match.start(), match.group())
        if kind is None:
            continue
        if found and found[-1].kind == kind and found[-1].end == match.start():
            found[-1] = Hidden(kind, found[-1].start, match.end())
        else:
            found.append(Hidden(kind, *match.span()))
    return found


def without_hidden(found: str) -> str:
    """The text that `clean` writes in place of hidden characters."""
    if found[0] in _LINE_BREAKS:
        return "\n" * len(found)
    return " " if found[0] in _BLANK_LETTERS else ""


class _Scan:
    """Decides for each candidate whether the text around it needs it. Remembers what holds for a line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line = (0, -1)
        self._line_is_right_to_left = False
        self._pairs: frozenset[int] = frozenset()

    def kind_of(self, at: int, found: str) -> str | None:
        """The kind of the hidden characters at this place; None if they are needed."""
        character = found[0]
        if character in (ZWNJ, ZWJ):
            return None if self._joins(at, character) else "joiner"
        if "\ufe00" <= character <= "\ufe0f":
            return None if self._styles(at, character) else "variation selector"
        if "\U000e0000" <= character <= "\U000e0fff":
            return None if self._is_flag(at) else "tag character"
        if character in _MARKS or character in _OPENERS or character in _CLOSERS:
            return None if self._directs(at, character) else "direction mark"
        if character in _OVERRIDES:
            return "direction override"
        if character in _BLANK_LETTERS:
            return None if self._fills(at, character) else "blank letter"
        if "\u180b" <= character <= "\u180f":
            return None if "\u1820" <= self._before(at) <= "\u18aa" else "variation selector"
        return _KINDS.get(character, "control character")

    def _before(self, at: int) -> str:
        return self._text[at - 1] if at else ""

    def _after(self, at: int) -> str:
        return self._text[at + 1 : at + 2]

    def _joins(self, at: int, joiner: str) -> bool:
        before, after = self._before(at), self._after(at)
        if before <= "\x7f" or _is_candidate(after) or (_is_candidate(before) and before != _EMOJI_STYLE):
            return False
        if _is_virama(before) or (joiner == ZWJ and _is_virama(after)):
            return before > "\u08ff"
        if _is_arabic(before) or _is_arabic(after):
            # Without ZWNJ the letters would be connected. With ZWJ a last letter keeps its connected form.
            if joiner == ZWNJ:
                return _connects_left(before) and _connects_right(after)
            return _connects_left(before) and not after.isalpha()
        if joiner == ZWJ:
            return self._is_emoji_sequence(at)
        return False

    def _is_emoji_sequence(self, at: int) -> bool:
        """Whether the sequence around a joiner is an emoji that exists. Skin tones and styles do not count."""
        start = end = at
        while start > at - _SEQUENCE_CHARS_MAX and start > 0 and _may_be_in_sequence(self._text[start - 1]):
            start -= 1
        while end < at + _SEQUENCE_CHARS_MAX and end + 1 < len(self._text) and _may_be_in_sequence(self._text[end + 1]):
            end += 1
        plain = _TONES.sub("", self._text[start : end + 1])
        joint = len(_TONES.sub("", self._text[start:at]))
        first = last = joint
        # One emoji before each joiner and one behind it.
        while first > 0 and plain[first - 2 : first - 1] == ZWJ:
            first -= 2
        while plain[last + 2 : last + 3] == ZWJ:
            last += 2
        return first > 0 and plain[first - 1 : last + 2] in _sequences()

    def _styles(self, at: int, style: str) -> bool:
        before, after = self._before(at), self._after(at)
        if style == _EMOJI_STYLE:
            if before and before in "#*0123456789":
                return after == "\u20e3"
            return before in _text_by_default()
        # Only emoji have another form; the selector must not follow another.
        return style == _TEXT_STYLE and (before in _text_by_default() or before in _emoji()["emoji_by_default"])

    def _is_flag(self, at: int) -> bool:
        start = at
        while start > at - 8 and "\U000e0000" <= self._text[start - 1 : start] <= "\U000e0fff":
            start -= 1
        if self._text[start - 1 : start] != _BLACK_FLAG:
            return False
        letters: list[str] = []
        for place, character in enumerate(self._text[start : start + 8], start):
            if character == _TAG_END:
                return at <= place and "".join(letters) in _FLAGS
            letters.append(chr(ord(character) - 0xE0000) if "\U000e0020" <= character < _TAG_END else "?")
        return False

    def _directs(self, at: int, character: str) -> bool:
        """Whether a mark is in a line that has text from right to left, and between what it can order."""
        if not self._is_right_to_left(at):
            return False
        before, after = self._before(at), self._after(at)
        if character in _MARKS:
            # Between two letters of one direction it has no effect.
            sides = {unicodedata.bidirectional(side) if side else "" for side in (before, after)}
            if _is_candidate(before) or _is_candidate(after):
                return False
            return not sides <= {"L"} and not sides <= {"R", "AL"}
        return at in self._pairs

    def _is_right_to_left(self, at: int) -> bool:
        if not self._line[0] <= at <= self._line[1]:
            start, end = self._line
            while end < at:
                start = end + 1
                found = _LINE_END.search(self._text, start)
                end = len(self._text) if found is None else found.start()
            self._line = (start, end)
            line = self._text[start:end]
            self._line_is_right_to_left = _RIGHT_TO_LEFT.search(line) is not None
            self._pairs = _balanced(line, start) if self._line_is_right_to_left else frozenset()
        return self._line_is_right_to_left

    def _fills(self, at: int, letter: str) -> bool:
        before, after = self._before(at), self._after(at)
        if letter == "\u2800":
            return any("\u2800" <= side <= "\u28ff" for side in (before, after))
        if letter in "\u115f\u1160":
            return any("\u1100" <= side <= "\u11ff" and side not in "\u115f\u1160" for side in (before, after))
        return letter == "\u180e" and "\u1820" <= before <= "\u18aa"


_SEQUENCE_CHARS_MAX = 24
_RIGHT_TO_LEFT = regex("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefe\U00010800-\U00010fff\U0001e800-\U0001efff]")
_TONES = regex("[\ufe0f\U0001f3fb-\U0001f3ff]")
_KINDS = {
    **dict.fromkeys("\u200b\u2060\ufeff\u00ad\u034f\u2061\u2062\u2063\u2064", "zero-width character"),
    **dict.fromkeys("\u206a\u206b\u206c\u206d\u206e\u206f", "zero-width character"),
    **dict.fromkeys("\ufff9\ufffa\ufffb", "annotation character"),
    **dict.fromkeys(_LINE_BREAKS, "line break"),
}


def _balanced(line: str, start: int) -> frozenset[int]:
    """The places of openers and closers that belong together."""
    places: set[int] = set()
    opened: list[tuple[int, bool]] = []
    for at, character in enumerate(line, start):
        if character in _OPENERS:
            opened.append((at, character >= "\u2066"))
        elif character in _CLOSERS and opened and opened[-1][1] == (character == "\u2069"):
            first = opened.pop()[0]
            # Without text between them, the marks have no effect.
            if _CANDIDATE.sub("", line[first - start + 1 : min(at - start, first - start + 64)]).strip():
                places |= {first, at}
    return frozenset(places)


def _is_candidate(character: str) -> bool:
    return bool(character) and character != "\r" and _CANDIDATE.match(character) is not None


def _is_virama(character: str) -> bool:
    return unicodedata.combining(character) == 9 if character else False


def _is_arabic(character: str) -> bool:
    return "\u0620" <= character <= "\u06ff" or "\u0750" <= character <= "\u077f"


# Arabic letters that connect only to the letter before them, and the one that connects to none.
_RIGHT_JOINING = regex(
    "[\u0622-\u0625\u0627\u0629\u062f-\u0632\u0648\u0671-\u0673\u0675-\u0677\u0688-\u0699\u06c0\u06c3-\u06cb\u06cd"
    "\u06cf\u06d2\u06d3\u06d5\u06ee\u06ef\u0759-\u075b\u076b\u076c\u0771\u0773\u0774\u0778\u0779]"
)


def _connects_left(letter: str) -> bool:
    return _connects_right(letter) and not _RIGHT_JOINING.match(letter)


def _connects_right(letter: str) -> bool:
    return _is_arabic(letter) and letter not in "\u0621\u0674\u06d4" and unicodedata.category(letter) == "Lo"


def _may_be_in_sequence(character: str) -> bool:
    return character in (ZWJ, _EMOJI_STYLE) or character >= "\U0001f000" or "\u2190" <= character <= "\u2bff"


@cache
def _emoji() -> dict[str, Any]:
    """`invisible.json`, from Unicode's lists of emoji; its key "why" says what is in them."""
    tables: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_bytes())
    return tables


@cache
def _text_by_default() -> frozenset[str]:
    characters: set[str] = set()
    for part in " ".join(_emoji()["text_by_default"]).split():
        first, _, last = part.partition("-")
        characters.update(map(chr, range(int(first, 16), int(last or first, 16) + 1)))
    return frozenset(characters)


@cache
def _sequences() -> frozenset[str]:
    """Each as the text finds it: an emoji, a joiner, an emoji, and so on, without tones and styles."""
    return frozenset(
        head + ZWJ + tail.replace("+", ZWJ)
        for heads, tails in _emoji()["sequences"]
        for head in heads
        for tail in tails.split()
    )
