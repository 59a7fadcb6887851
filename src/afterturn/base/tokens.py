"""How many tokens a text will cost a model, estimated without anybody's vocabulary."""

import re
from bisect import bisect_right

_PIECE = re.compile(
    r"(?P<capitals>[A-Z]+(?![a-z]))|(?P<word>[A-Z]?[a-z]+)|(?P<number>[0-9]+)|(?P<space> (?! ))"
    r"|(?P<blank>[ \t\r\n]+)|(?P<marks>[!-/:-@\[-`{-~]+)|(?P<wide>[^\x00-\x7f]+)|(?P<control>.)",
    re.DOTALL,
)
# How many characters of each kind a token holds; measured on cl100k, which is among the least generous.
_CHARS_PER_TOKEN = {"capitals": 4, "word": 6, "number": 3, "marks": 2, "control": 1}
# No language's everyday words are longer; what is (compounds, keys, encoded data) breaks into small tokens.
_WORD_CHARS_MAX = 14
_LONG_WORD_CHARS_PER_TOKEN = 3

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
    return sum(_piece_tokens(piece.lastgroup or "control", piece.group()) for piece in _PIECE.finditer(text))


def _piece_tokens(kind: str, piece: str) -> int:
    if kind == "space":
        # A single space belongs to the word that follows it.
        return 0
    if kind == "blank":
        return 1
    if kind == "wide":
        return _wide_tokens(piece)
    if kind == "word" and len(piece) > _WORD_CHARS_MAX:
        return -(-len(piece) // _LONG_WORD_CHARS_PER_TOKEN)
    return -(-len(piece) // _CHARS_PER_TOKEN[kind])


def _wide_tokens(piece: str) -> int:
    quarters = sum(_WIDE_QUARTERS[bisect_right(_WIDE_STARTS, ord(character)) - 1][1] for character in piece)
    return -(-quarters // 4)
