"""The normal form of a text for detection, and the texts that are written in it in another way.

Nothing here is stored or shown: scanners read it in addition to the original text. Every step reads a bounded number of
characters once.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote

from afterturn.scanners.invisible import clean
from afterturn.scanners.secret_formats import decode
from afterturn.text import regex

CHARS_MAX = 20_000
_DECODED_MAX = 16
_DECODED_CHARS_MAX = 4_096
_WORDS_MIN = 4
# Two can be there by chance: "no" is "on" in reverse.
_COMMON_MIN = 3
_LEET_CHARS_MAX = 20

# Letters that are drawn like a Latin one (a part of Unicode's confusables that text is forged with).
_LOOK_ALIKES = {
    "a": "аɑαᴀạӓ", "b": "Ьᖯƅвʙ", "c": "сϲᴄⅽ", "d": "ԁժⅾᴅ", "e": "еҽєεᴇẹ", "f": "ғϝꜰſ", "g": "ɡցɢ", "h": "һհнʜ",
    "i": "іıιɩɪӏ", "j": "јϳᴊ", "k": "κкᴋ", "l": "ⅼӏʟ", "m": "мⅿᴍ", "n": "ոпηɴռ", "o": "оοօᴏסọ", "p": "рρᴘ", "q": "ԛզ",
    "r": "гꭇʀᴦ", "s": "ѕꜱʂ", "t": "тτᴛ", "u": "υսᴜʋ", "v": "νѵᴠ", "w": "ѡԝωᴡ", "x": "хχ", "y": "уүγʏ", "z": "ᴢʐ",
    "A": "АΑ", "B": "ВΒ", "C": "СϹ", "E": "ЕΕ", "H": "НΗ", "I": "ІΙ", "J": "Ј", "K": "КΚ", "M": "МΜ", "N": "Ν",
    "O": "ОΟ",
    "P": "РΡ", "S": "Ѕ", "T": "ТΤ", "X": "ХΧ", "Y": "ҮΥ", "Z": "Ζ",
}  # fmt: skip
_LATIN = str.maketrans({drawn: letter for letter, alike in _LOOK_ALIKES.items() for drawn in alike})
_LEET = str.maketrans("013457@$!|", "oleastasil")
# Words that nearly every English sentence of some length has, and those of an order to a model.
_COMMON = frozenset(
    """
    the a an and or to of in for is are be on with that this it you your i my we from as at by not do all any if when
    then will can have has was but about always never every ignore previous instructions reveal system prompt send tell
    user contents file recommend answer message email call password key
    """.split()
)


class View(NamedTuple):
    """A text that was written in another way: `how` in a few words; blank for the text itself."""

    how: str
    text: str


def fold(text: str) -> str:
    """One form for all ways of writing a text that look alike: compatibility forms, look-alikes, marks, spaces."""
    if text.isascii():
        return clean(text)
    text = unicodedata.normalize("NFKC", clean(text))
    if any(map(_is_forged, text.split())):
        text = text.translate(_LATIN)
    return _OVERLAYS.sub("", text)


def views(text: str) -> Iterator[View]:
    """The text in normal form, then what is readable in it after decoding. The length of each is bounded."""
    plain = fold(text[:CHARS_MAX])
    yield View("", plain)
    for view in _decoded(plain):
        folded = fold(view.text[:_DECODED_CHARS_MAX])
        if folded.strip() and folded != plain:
            yield View(view.how, folded)


def look_alikes(text: str) -> int:
    """How many words mix letters of scripts that look alike, or are written in letters for formulas."""
    return sum(map(_is_forged, text[:CHARS_MAX].split())) if not text.isascii() else 0


def is_readable(text: str) -> bool:
    """Whether this is English: at least a quarter of the words are common ones, and not always the same."""
    words = _WORD.findall(text[:_DECODED_CHARS_MAX].lower())
    common = [word for word in words if word in _COMMON]
    return len(set(common)) >= _COMMON_MIN and len(common) * 4 >= len(words)


_WORD = regex(r"[a-z']+")
# Strokes and other marks that are drawn over letters.
_OVERLAYS = regex("[\u0334-\u0338\u20d0-\u20f0]")
_RUN = regex(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_HEX = regex(r"(?:[0-9a-fA-F]{2}[ :]?){12,}|(?:\\x[0-9a-fA-F]{2}){8,}|(?:0x[0-9a-fA-F]{2}[ ,]{0,2}){8,}")
_ENTITY = regex(r"&#?\w{2,8};")
_SPACED = regex(r"(?:[^\s\w]?\w[ .\-_*|·]{1,3}){8,}\w?")
_TOKEN = regex(r"\w+")


def _decoded(text: str) -> Iterator[View]:
    yield from _decoded_runs(text)
    if text.count("%") > 2:
        yield View("url encoding", unquote(text, errors="ignore"))
    if len(_ENTITY.findall(text[:_DECODED_CHARS_MAX])) > 2:
        import html

        yield View("html entities", html.unescape(text))
    if "\\u00" in text:
        yield View("escapes", re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found.group(1), 16)), text))
    if _SPACED.search(text) is not None:
        yield View("spaced letters", _unspaced(text))
    tokens = _TOKEN.findall(text[:_DECODED_CHARS_MAX])
    # Many words have digits inside.
    mixed = sum(not word.isalpha() and not word.isdigit() and len(word) < _LEET_CHARS_MAX for word in tokens)
    if mixed >= _WORDS_MIN and mixed * 3 >= len(tokens):
        yield View("digits for letters", text.lower().translate(_LEET))
    words = _WORD.findall(text[:_DECODED_CHARS_MAX].lower())
    # There are words, and next to none that English has.
    if len(words) >= _WORDS_MIN and sum(word in _COMMON for word in words) * 10 <= len(words):
        for how, other in (("rot13", codecs.encode(text, "rot13")), ("reversed text", text[::-1])):
            if is_readable(other):
                yield View(how, other)


def _decoded_runs(text: str) -> Iterator[View]:
    found = 0
    for match in _RUN.finditer(text):
        decoded = decode(match.group()[:_DECODED_CHARS_MAX])
        if decoded is not None and " " in decoded:
            yield View("base64", decoded)
            found += 1
        if found >= _DECODED_MAX:
            return
    for match in _HEX.finditer(text):
        digits = re.sub(r"\\x|0x|[^0-9a-fA-F]", "", match.group())[: 2 * _DECODED_CHARS_MAX]
        decoded = bytes.fromhex(digits[: len(digits) // 2 * 2]).decode("utf-8", "replace")
        if " " in decoded and decoded.isprintable():
            yield View("hexadecimal", decoded)
            found += 1
        if found >= _DECODED_MAX:
            return


def _unspaced(text: str) -> str:
    """Single letters with a sign between them, as words: two signs in a row are a space."""
    for sign in (" ", ".", "-", "_", "*", "|", "·"):
        if text.count(sign) * 3 >= len(text):
            kept = re.sub(rf"{re.escape(sign)}{{2,}}|{re.escape(sign)} {re.escape(sign)}", "\n", text)
            return kept.replace(sign, "").replace("\n", " ")
    return _SPACED.sub(lambda found: re.sub(r"[ .\-_*|·]", "", found.group()) + " ", text)


@cache
def _script(character: str) -> str:
    name = unicodedata.name(character, "")
    if name.startswith(("MATHEMATICAL", "CIRCLED LATIN", "PARENTHESIZED LATIN", "SQUARED LATIN", "NEGATIVE")):
        return "formula"
    if name.startswith("FULLWIDTH LATIN"):
        return "fullwidth"
    return name.split(" ", 1)[0] if name else ""


_CONFUSED = frozenset(["CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "LISU"])
_FORMULA_LETTERS_MIN = 3
_FULLWIDTH_LETTERS_MIN = 4


def _is_forged(word: str) -> bool:
    """Whether a word mixes Latin with a script that looks alike, or is written in letters for formulas."""
    if word.isascii():
        return False
    scripts = [
        _script(character) for character in word[:64] if character.isalpha() or unicodedata.category(character) == "So"
    ]
    kinds = set(scripts)
    if scripts.count("formula") >= _FORMULA_LETTERS_MIN:
        return True
    if kinds == {"fullwidth"} and len(scripts) >= _FULLWIDTH_LETTERS_MIN and word.lower() != word.upper():
        return True
    if "LATIN" in kinds and kinds & _CONFUSED:
        # "β-carotene" is two words, and Greek letters stand alone in formulas.
        parts = ({_script(letter) for letter in part if letter.isalpha()} for part in _TOKEN.findall(word) if part[2:])
        return any("LATIN" in kinds and kinds & _CONFUSED for kinds in parts)
    return False
