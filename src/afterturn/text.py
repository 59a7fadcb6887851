"""Text as the lexical index sees it, and the hash that identifies it. Pure and shared by every store."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b

import Stemmer

# Whatever makes the same text give other terms needs a migration that indexes every store anew.
TERMS_MAX = 8192
TERM_CHARS_MAX = 40
# Beyond these a text is a document, not a statement: what follows is not indexed, and it is hashed as it stands.
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
# What `_any_word` comes to where there is nothing but ASCII, at a quarter of the time.
_PLAIN_WORD = re.compile("[a-z0-9]+")
# It would remember ten thousand words by itself, forgotten ones too; without them a word takes 0.2 µs longer.
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
# Said together: what is asked about a night, or a meeting, is no acknowledgement.
_PLEASANTRY = re.compile(
    r"\b(?:good (?:morning|afternoon|evening|night|day|luck|point)|nice (?:to meet|meeting) you|take care|no worries"
    r"|happy birthday|see you (?:later|soon|tomorrow)|have a (?:good|great|nice) (?:day|evening|night|one|weekend))\b"
)
_ACKNOWLEDGEMENT_WORDS_MAX = 6
_ACKNOWLEDGEMENT_CHARS_MAX = 200


def words(text: str) -> list[str]:
    """Case and accents folded, in order; stop words still in. Of a long text, its beginning."""
    folded = _fold(text[:INDEXED_CHARS_MAX])
    return (_PLAIN_WORD if folded.isascii() else _any_word()).findall(folded)


def terms(text: str) -> tuple[str, ...]:
    """What is indexed and searched: English stems, other words as they are, pairs where a script has no spaces."""
    return _terms(words(text))


def _terms(said: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    plain: list[str] = []
    for word in said:
        if word in STOP_WORDS:
            continue
        if word.isascii():
            plain.append(word[:TERM_CHARS_MAX])
        elif _unspaced().match(word):
            found.extend(_pairs(word))
        else:
            found.append(word[:TERM_CHARS_MAX])
        if len(found) + len(plain) >= TERMS_MAX:
            break
    return tuple((_STEMMER.stemWords(plain) + found)[:TERMS_MAX])


def is_acknowledgement(text: str) -> bool:
    """ "ok", "thanks a lot", "hi there": said to the agent, and nothing to remember anything by (R6)."""
    return len(text) <= _ACKNOWLEDGEMENT_CHARS_MAX and _acknowledges(words(text))


def read_words(text: str) -> tuple[list[str], tuple[str, ...]]:
    """The words of what was asked, and its terms, of which an acknowledgement has none."""
    said = words(text)
    is_asked = len(text) > _ACKNOWLEDGEMENT_CHARS_MAX or not _acknowledges(said)
    return said, _terms(said) if is_asked else ()


def _acknowledges(said: Sequence[str]) -> bool:
    if len(said) > _ACKNOWLEDGEMENT_WORDS_MAX:
        return False
    plain, pleasantries = _PLEASANTRY.subn(" ", " ".join(said))
    rest = plain.split()
    return all(word in _ACKNOWLEDGEMENTS or word in STOP_WORDS or word == "lot" for word in rest) and (
        pleasantries > 0 or any(word in _ACKNOWLEDGEMENTS for word in rest)
    )


def content_hash(text: str) -> str:
    """The same for statements that differ only in case, width or white space. 32 hexadecimal digits."""
    folded = text
    if len(text) <= FOLDED_CHARS_MAX:
        folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return blake2b(folded.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    # Twice: 𝐀 becomes a letter with a case only when decomposed, and folding gives İ a dot of its own.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return unicodedata.normalize("NFKC", re.sub(r"[\u0300-\u036f]", "", decomposed))


# Made when they are first needed: a text in ASCII needs neither, and each takes 4 ms to make.


@cache
def _any_word() -> re.Pattern[str]:
    # Python's \w leaves out combining marks, which would cut Hindi or Arabic words to pieces.
    return re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])(?:[^\W_]|[{_MARKS}]))+")


@cache
def _unspaced() -> re.Pattern[str]:
    return re.compile(rf"[{_UNSPACED}]")


def _pairs(run: str) -> list[str]:
    return [run] if len(run) == 1 else [run[at : at + 2] for at in range(len(run) - 1)]


# Where one character ends and the next begins, so that no cut falls into one. Pure.


def joins(text: str, at: int) -> bool:
    """Whether the character at `at` belongs to the one before it: an accent, a joiner, an emoji's skin tone."""
    character = text[at]
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or "\u200d" in (character, text[at - 1])
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


# How many tokens a text will cost a model, estimated without anybody's vocabulary.

# Capitals, words, numbers, blanks, punctuation, other scripts, and what is left one by one. A piece's own characters
# tell which of these it is.
_PIECE = re.compile(
    r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+| (?! )|[ \t\r\n]+|[!-/:-@\[-`{-~]+|[^\x00-\x7f]+|.",
    re.DOTALL,
)
# How many characters of each kind a token holds; measured on cl100k, which is among the least generous.
_CAPITALS, _LETTERS, _DIGITS, _PUNCTUATION = 4, 6, 3, 2
# No language's everyday words are longer; what is (compounds, keys, encoded data) breaks into small tokens.
_WORD_CHARS_MAX = 14
_LONG_WORD_CHARS_PER_TOKEN = 3
_BLANKS = " \t\r\n"

# From each code point on, quarters of a token a character.
_WIDE_QUARTERS = (
    (0x0080, 2),  # accented Latin
    (0x0370, 4),  # Greek
    (0x0400, 3),  # Cyrillic
    (0x0530, 5),  # Armenian, Hebrew
    (0x0600, 4),  # Arabic
    (0x0700, 12),  # rare scripts fall apart into bytes
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
    """About 15 % high for English and up to 50 % for other scripts: a budget kept by it is kept by the model."""
    # Each piece once: a text repeats most of its words, and its spaces.
    return sum(_piece_tokens(piece) * times for piece, times in Counter(_PIECE.findall(text)).items())


def _piece_tokens(piece: str) -> int:
    if piece == " ":
        # A single space belongs to the word that follows it.
        return 0
    if not piece.isascii():
        return _wide_tokens(piece)
    if piece.isalpha():
        return -(-len(piece) // _chars_per_token(piece))
    if piece.isdigit():
        return -(-len(piece) // _DIGITS)
    return 1 if piece[0] in _BLANKS else -(-len(piece) // _PUNCTUATION)


def _chars_per_token(word: str) -> int:
    if word.isupper():
        return _CAPITALS
    return _LONG_WORD_CHARS_PER_TOKEN if len(word) > _WORD_CHARS_MAX else _LETTERS


def _wide_tokens(piece: str) -> int:
    quarters = sum(_WIDE_QUARTERS[bisect_right(_WIDE_STARTS, ord(character)) - 1][1] for character in piece)
    return -(-quarters // 4)


# How texts share a room that is too small for all of them, and where a text is cut. Pure.

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
