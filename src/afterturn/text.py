"""Functions on texts: index terms, content hashes, token estimates, and cutting to a size."""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import Stemmer

V = TypeVar("V")


class _LazyPattern:
    __slots__ = ("_flags", "_source", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")

    def __init__(self, source: str | Callable[[], str], flags: re.RegexFlag) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self._source() if callable(self._source) else self._source, self._flags)
        for method in self.__slots__[2:]:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def regex(pattern: str | Callable[[], str], flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Like `re.compile`, but compiles at the first use: the modules have 500 patterns, which take 100 ms together."""
    return cast(re.Pattern[str], _LazyPattern(pattern, flags))


# A change that gives other terms for the same text needs a migration that indexes every store again.
TERMS_MAX = 8192
TERM_CHARS_MAX = 40
# A longer text is a document, not a statement: the rest is not indexed, and it is hashed without folding.
INDEXED_CHARS_MAX = 131_072
FOLDED_CHARS_MAX = 65_536

_MARKS = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    r"\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0900-\u0963\u0971-\u0dff\u0f18-\u0fbc\u1ab0-\u1aff\u1dc0-\u1dff"
    r"\u20d0-\u20ff\ufe20-\ufe2f"
)
# Scripts written without spaces are indexed by pairs of characters.
_UNSPACED = (
    r"\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u109f\u1780-\u17d3\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    r"\U00020000-\U0003ffff"
)
# The same as `_ANY_WORD` for ASCII, in a quarter of the time.
_PLAIN_WORD = regex("[a-z0-9]+")
# Its own cache would keep ten thousand words, forgotten ones included. Without it a word takes 0.2 µs longer.
_STEMMER = Stemmer.Stemmer("english", 0)

STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any are aren as at be because been before being below between
    both but by can cannot could couldn d did didn do does doesn doing don down during each few for from further
    had hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it its
    itself just let ll m me more most mustn my myself no nor not now of off on once only or other our ours
    ourselves out over own please re s same shall shan she should shouldn so some such t than that the their
    theirs them themselves then there these they this those through to too under until up ve very was wasn we were
    weren what when where which while who whom why will with won would wouldn you your yours yourself yourselves
    """.split()
)
_ACKNOWLEDGEMENTS = frozenset(
    """
    ok okay k kk thanks thank thx ty cheers great nice cool fine good perfect awesome yes yep yeah yup no nope
    sure right alright got hi hello hey bye goodbye lol haha hmm ah oh wow please welcome np well done
    """.split()
)
# Whole phrases only: a question about a night or a meeting is not an acknowledgement.
_PLEASANTRY = regex(
    r"\b(?:good (?:morning|afternoon|evening|night|day|luck|point)|nice (?:to meet|meeting) you|take care|no worries"
    r"|happy birthday|see you (?:later|soon|tomorrow)|have a (?:good|great|nice) (?:day|evening|night|one|weekend))\b"
)
_ACKNOWLEDGEMENT_WORDS_MAX = 6
_ACKNOWLEDGEMENT_CHARS_MAX = 200


def words(text: str) -> list[str]:
    """Returns the words in order, without case and accents, stop words included. A long text is cut."""
    folded = fold(text[:INDEXED_CHARS_MAX])
    return (_PLAIN_WORD if folded.isascii() else _ANY_WORD).findall(folded)


def terms(text: str) -> tuple[str, ...]:
    """Returns the index terms: English stems, other words unchanged, and character pairs for scripts without spaces."""
    return _terms(words(text))


def _terms(text_words: Sequence[str]) -> tuple[str, ...]:
    kept = [word for word in text_words if word not in STOP_WORDS]
    if all(map(str.isascii, kept)):
        return tuple(_STEMMER.stemWords([word[:TERM_CHARS_MAX] for word in kept[:TERMS_MAX]]))
    found: list[str] = []
    plain: list[str] = []
    for word in kept:
        if word.isascii():
            plain.append(word[:TERM_CHARS_MAX])
        elif is_unspaced(word):
            found.extend(_pairs(word))
        else:
            found.append(word[:TERM_CHARS_MAX])
        if len(found) + len(plain) >= TERMS_MAX:
            break
    return tuple((_STEMMER.stemWords(plain) + found)[:TERMS_MAX])


def is_acknowledgement(text: str) -> bool:
    """Whether it is a text such as "ok", "thanks a lot" or "hi there", for which nothing is recalled."""
    return len(text) <= _ACKNOWLEDGEMENT_CHARS_MAX and _acknowledges(words(text))


def read_words(text: str) -> tuple[list[str], tuple[str, ...]]:
    """Returns the words of a question and its terms. An acknowledgement has no terms."""
    text_words = words(text)
    is_asked = len(text) > _ACKNOWLEDGEMENT_CHARS_MAX or not _acknowledges(text_words)
    return text_words, _terms(text_words) if is_asked else ()


def _acknowledges(text_words: Sequence[str]) -> bool:
    if len(text_words) > _ACKNOWLEDGEMENT_WORDS_MAX:
        return False
    plain, pleasantries = _PLEASANTRY.subn(" ", " ".join(text_words))
    rest = plain.split()
    return all(word in _ACKNOWLEDGEMENTS or word in STOP_WORDS or word == "lot" for word in rest) and (
        pleasantries > 0 or any(word in _ACKNOWLEDGEMENTS for word in rest)
    )


def content_hash(text: str) -> str:
    """Returns 32 hexadecimal digits, the same for texts that differ only in case, width or white space."""
    folded = text
    if len(text) <= FOLDED_CHARS_MAX:
        folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return blake2b(folded.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    # Twice: 𝐀 becomes a letter with a case only when decomposed, and folding gives İ a dot of its own.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return unicodedata.normalize("NFKC", re.sub(r"[\u0300-\u036f]", "", decomposed))


# Python's \w does not include combining marks, which would split Hindi or Arabic words.
_ANY_WORD = regex(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])(?:[^\W_]|[{_MARKS}]))+")
_UNSPACED_START = regex(rf"[{_UNSPACED}]")


def is_unspaced(word: str) -> bool:
    """Whether one of `words` is of a script without spaces, and so a whole phrase."""
    return not word.isascii() and _UNSPACED_START.match(word) is not None


def _pairs(run: str) -> list[str]:
    return [run] if len(run) == 1 else [run[at : at + 2] for at in range(len(run) - 1)]


def joins(text: str, at: int) -> bool:
    """Whether the character at `at` belongs to the one before it: an accent, a joiner, an emoji's skin tone."""
    character = text[at]
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or "\u200d" in (character, text[at - 1])
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


# Token estimates. They need no model's vocabulary.

# Capitals, words, numbers, white space, punctuation, other scripts, and single other characters.
_PIECE = regex(
    r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+| (?! )|[ \t\r\n]+|[!-/:-@\[-`{-~]+|[^\x00-\x7f]+|.",
    re.DOTALL,
)
# Characters per token, measured on cl100k, which makes more tokens than most.
_CAPITALS, _LETTERS, _DIGITS, _PUNCTUATION = 4, 6, 3, 2
# Everyday words are not longer. Longer ones (compounds, keys, encoded data) are split into small tokens.
_WORD_CHARS_MAX = 14
_LONG_WORD_CHARS_PER_TOKEN = 3
_BLANKS = " \t\r\n"

# Quarters of a token per character, from each code point on.
_WIDE_QUARTERS = (
    (0x0080, 2),  # accented Latin
    (0x0370, 4),  # Greek
    (0x0400, 3),  # Cyrillic
    (0x0530, 5),  # Armenian, Hebrew
    (0x0600, 4),  # Arabic
    (0x0700, 12),  # rare scripts are split into bytes
    (0x0900, 6),  # Devanagari
    (0x0980, 12),  # the other scripts of India
    (0x0E00, 6),  # Thai
    (0x0E80, 12),
    (0x1E00, 6),  # Latin and Greek with several accents, punctuation
    (0x2100, 12),  # symbols
    (0x3000, 6),  # Chinese, Japanese, Korean
    (0xD800, 12),
    (0xFF00, 6),  # full-width forms
    (0x10000, 12),  # emoji
)
_WIDE_STARTS = [start for start, _ in _WIDE_QUARTERS]


def estimate_tokens(text: str) -> int:
    """Returns an estimate: about 15 % too high for English, up to 50 % for other scripts, so that limits hold."""
    # Each different piece once: a text repeats most of its words and spaces.
    return sum([_piece_tokens(piece) * times for piece, times in Counter(_PIECE.findall(text)).items()])


def _piece_tokens(piece: str) -> int:
    if piece == " ":
        # A single space belongs to the word that follows it.
        return 0
    if not piece.isascii():
        quarters = sum(_WIDE_QUARTERS[bisect_right(_WIDE_STARTS, ord(character)) - 1][1] for character in piece)
        return -(-quarters // 4)
    if piece.isalpha():
        chars = _LONG_WORD_CHARS_PER_TOKEN if len(piece) > _WORD_CHARS_MAX else _LETTERS
        return -(-len(piece) // (_CAPITALS if piece.isupper() else chars))
    if piece.isdigit():
        return -(-len(piece) // _DIGITS)
    return 1 if piece[0] in _BLANKS else -(-len(piece) // _PUNCTUATION)


# Dividing space among texts, and cutting them.

LINES_CUT = "\n[…]"
WORDS_CUT = "…"

# How far a cut looks back for the end of a line or a word, and for the start of a composed character.
_BACK_CHARS_MAX = 120
_SEQUENCE_CHARS_MAX = 16


def shares(wanted: Sequence[int], total: int) -> list[int]:
    """Divides `total`: each gets what it wants, or an equal part of what those that want less leave over."""
    given = [0] * len(wanted)
    left = max(0, total)
    by_size = sorted(range(len(wanted)), key=lambda at: wanted[at])
    for done, at in enumerate(by_size):
        given[at] = min(wanted[at], left // (len(wanted) - done))
        left -= given[at]
    return given


def size(text: str) -> int:
    """Returns the number of bytes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def cut(text: str, bytes_max: int, mark: str) -> str:
    """Returns at most `bytes_max` bytes of the beginning, including `mark` if it was cut; "" if not even that fits.

    Cuts between lines or words if one ends nearby, and never inside a character or its combining marks.
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


def load_patterns(module_file: str) -> dict[str, re.Pattern[str]]:
    """Compiles the patterns in the JSON file next to a module. Case matters in `exact_patterns` only.

    A long pattern is a list of lines. `<NAME>` is replaced with the part of that name. "why" gives reasons to readers.
    """
    tables: dict[str, dict[str, str | list[str]]] = json.loads(Path(module_file).with_suffix(".json").read_bytes())
    return {
        name: regex(expand_pattern(lines, tables.get("parts", {})), flags)
        for group, flags in (("patterns", re.IGNORECASE), ("exact_patterns", re.NOFLAG))
        for name, lines in tables.get(group, {}).items()
    }


def expand_pattern(lines: str | list[str], parts: Mapping[str, str | list[str]]) -> str:
    """Puts the parts that a text names, as in `<VERB>`, in their places. A long text is a list of lines."""
    return re.sub("<([A-Z_]+)>", lambda found: expand_pattern(parts[found[1]], parts), "".join(lines))


class HashCache(Generic[V]):
    """Values that are computed from texts, by keys with the hashes of the texts: it keeps no text that is forgotten.

    A full cache is emptied.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._values: dict[Hashable, V] = {}

    def get(self, key: Hashable, compute: Callable[[], V]) -> V:
        if key in self._values:
            return self._values[key]
        value = compute()
        if len(self._values) >= self._size_max:
            self._values.clear()
        self._values[key] = value
        return value
