"""How many tokens a text will cost a model, estimated without anybody's vocabulary."""

import re
from bisect import bisect_right
from collections import Counter

# Capitals, words, numbers, blanks, punctuation, other scripts, and what is left one by one. A piece's own characters
# tell which of these it is.
_PIECE = re.compile(
    r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+| (?! )|[ \t\r\n]+|[!-/:-@\[-`{-~]+|[^\x00-\x7f]+|.",
    re.DOTALL,
)
# How many characters of each kind a token holds; measured on cl100k, which is among the least generous.
_CAPITALS, _WORD, _NUMBER, _MARKS = 4, 6, 3, 2
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
        return -(-len(piece) // _NUMBER)
    return 1 if piece[0] in _BLANKS else -(-len(piece) // _MARKS)


def _chars_per_token(word: str) -> int:
    if word.isupper():
        return _CAPITALS
    return _LONG_WORD_CHARS_PER_TOKEN if len(word) > _WORD_CHARS_MAX else _WORD


def _wide_tokens(piece: str) -> int:
    quarters = sum(_WIDE_QUARTERS[bisect_right(_WIDE_STARTS, ord(character)) - 1][1] for character in piece)
    return -(-quarters // 4)
