"""Finds secrets in texts and redacts them: by the formats of issuers, by labels, and in sentences.

It finds what is unmistakable and nothing else. `secret_formats.py` and `secret_labels.py` have the formats and names;
both need time that grows no faster than the text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from afterturn.scanners.detection import Detection, Scanner, without_overlaps
from afterturn.scanners.secret_formats import compiled, decode, find_formats
from afterturn.scanners.secret_labels import find_labelled
from afterturn.text import content_hash, regex

# How far a scan reads beyond the end that a text is cut at, so that no half of a secret remains.
MARGIN_CHARS = 8_192
_CLEAN_MAX = 4_096


class Redacted(NamedTuple):
    """A text without its secrets, and the kinds of the removed ones, in order."""

    text: str
    kinds: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The reason stored with a memory, such as "github token redacted". Blank if nothing was redacted."""
        return f"{', '.join(dict.fromkeys(self.kinds))} redacted" if self.kinds else ""


class SecretScanner:
    """Finds known formats, values behind labels, and both where they are wrapped or encoded."""

    name = "secrets"

    def __init__(self) -> None:
        # The hashes of texts without secrets: a message is scanned before it waits to be stored, when it is stored, and
        # in every list that contains it.
        self._clean: set[int] = set()

    def find(self, text: str) -> Sequence[Detection]:
        key = hash(text)
        if key in self._clean:
            return ()
        found = list(_find_plain(text))
        if "\n" in text:
            found.extend(_find_wrapped(text))
        if "%" in text:
            found.extend(_find_percent_encoded(text))
        if not text.isascii():
            found.extend(_find_disguised(text))
        if found:
            return without_overlaps(found)
        if len(self._clean) >= _CLEAN_MAX:
            self._clean.clear()
        self._clean.add(key)
        return ()


def redact(text: str, scanner: Scanner | None = None, *, mark: Callable[[str], str] | None = None) -> Redacted:
    """Replaces each secret with a mark. Marks in the text stay as they are."""
    secrets = (scanner or _SCANNER).find(text)
    if not secrets:
        return Redacted(text)
    parts: list[str] = []
    done = 0
    for secret in secrets:
        parts += [text[done : secret.start], (mark or marked)(secret.kind)]
        done = secret.end
    return Redacted("".join([*parts, text[done:]]), tuple(secret.kind for secret in secrets))


def redact_within(text: str, chars_max: int, scanner: Scanner, *, mark: Callable[[str], str] | None = None) -> Redacted:
    """Redacts and cuts a long text. It is cut after the scan, because a scanner does not recognise half a secret."""
    redacted = redact(text[: chars_max + MARGIN_CHARS], scanner, mark=mark)
    return Redacted(redacted.text[:chars_max], redacted.kinds)


def marked(kind: str) -> str:
    return f"[redacted: {kind}]"


def unnamed(kind: str) -> str:
    """A mark for questions: the words of the usual mark would match every memory that has one."""
    return "[…]"


class RedactedHashes:
    """A cache of the content hashes of redacted texts, by the hashes of the originals. It holds no texts."""

    def __init__(self, scanner: Scanner, *, entries_max: int) -> None:
        self._scanner = scanner
        self._entries_max = entries_max
        self._known: dict[str, str] = {}

    def of(self, text: str, hash: str) -> str:
        """The content hash of the redacted text; `hash` itself if the text has no secrets. Safe from any thread."""
        known = self._known.get(hash)
        if known is None:
            redacted = redact(text, self._scanner)
            known = content_hash(redacted.text) if redacted.kinds else hash
            if len(self._known) >= self._entries_max:
                self._known.clear()
            self._known[hash] = known
        return known


def _find_plain(text: str) -> Iterator[Detection]:
    for one in find_formats(text):
        yield Detection(*one)
    for one in find_labelled(text):
        yield Detection(*one)
    if max(map(len, text.split()), default=0) >= _ENCODED_CHARS_MIN:
        yield from _find_encoded(text)


# Secrets that are wrapped, split or encoded

# A line break between two words, with the indentation, quotation or continuation marks around it.
_BREAK = r"\n[ \t>|#*+\"']{0,16}(?=[A-Za-z0-9+/_=.-])"
_BREAKS_MAX = 2_000
_ESCAPES_MAX = 20_000
_PIECE_CHARS_MAX = 96
_LAST_WORD = r"[^\s\"'`]{1,96}\Z"
# The end of a key is all that it has in common with a word: it may be followed by a quotation mark, not by a colon.
_FIRST_WORD = r"[A-Za-z0-9+/_.%-]{1,96}={0,2}(?=[\s\"'`,;)&\\]|\Z)"
_ENCODED = r"[A-Za-z0-9+/_-]{24,}+={0,2}"
_ENCODED_CHARS_MIN = 24
_ENCODED_CHARS_MAX = 16_384
_ENCODED_MAX = 64
_PROBE_CHARS = 48


def _find_wrapped(text: str) -> Iterator[Detection]:
    """Secrets with line breaks inside, as terminals and mails wrap them, and messages in several parts."""
    gaps = []
    for match in islice(compiled(_BREAK).finditer(text), _BREAKS_MAX):
        start, end = match.span()
        start -= text.endswith("\r", 0, start)
        start -= text.endswith("\\", 0, start)
        if _is_inside_key(text, start, end):
            gaps.append((start, end))
    yield from _find_across(text, gaps)


def _find_percent_encoded(text: str) -> Iterator[Detection]:
    """Secrets with some or all characters as escapes of URLs, encoded once or more often."""
    escapes = list(islice(compiled(r"%(?:25){0,3}([2-7][0-9A-Fa-f])").finditer(text), _ESCAPES_MAX))
    pieces, done = [], 0
    for match in escapes:
        # The character takes the last place of its escape, so that all places stay as they are.
        pieces += [text[done : match.end() - 1], chr(int(match.group(1), 16))]
        done = match.end()
    yield from _find_across("".join([*pieces, text[done:]]), [(one.start(), one.end() - 1) for one in escapes])


def _find_disguised(text: str) -> Iterator[Detection]:
    """Secrets with characters inside that are not drawn, and in full-width letters."""
    plain = text
    if compiled(_FULL_WIDTH).search(text) is not None:
        plain = text.translate(_HALF_WIDTH)
        yield from _find_plain(plain)
    yield from _find_across(plain, [match.span() for match in islice(compiled(_HIDDEN).finditer(plain), _BREAKS_MAX)])


def _find_across(text: str, gaps: Sequence[tuple[int, int]]) -> Iterator[Detection]:
    """Secrets that are found if the gaps are taken out, by their places in the text."""
    if not gaps:
        return
    pieces, joins, removed, done = [], [], [0], 0
    for start, end in gaps:
        pieces.append(text[done:start])
        joins.append(start - removed[-1])
        removed.append(removed[-1] + end - start)
        done = end
    for secret in _find_plain("".join([*pieces, text[done:]])):
        first, last = bisect_right(joins, secret.start), bisect_left(joins, secret.end)
        yield Detection(secret.kind, secret.start + removed[first], secret.end + removed[max(first, last)])


def _is_inside_key(text: str, start: int, end: int) -> bool:
    """Whether the words on both sides of a line break look like pieces of one key, and not like words of a text."""
    found = compiled(_LAST_WORD).search(text, max(0, start - _PIECE_CHARS_MAX), start)
    before = found.group() if found is not None else ""
    after = compiled(_FIRST_WORD).match(text, end, end + _PIECE_CHARS_MAX)
    if "://" in before and "@" in text[end : end + _PIECE_CHARS_MAX].split(None, 1)[0]:
        return True
    if after is None or not _is_piece(after.group()):
        return False
    if _is_piece(before) or "_" in before or before.endswith(("-", ".")):
        return True
    # "sk-ant-a", and a long rest on the next line.
    is_split = after.group()[0] in "_-" or compiled(r"\w[-=:/.]").search(before) is not None
    return is_split and len(after.group()) >= _REST_CHARS_MIN


def _is_piece(text: str) -> bool:
    if text.isdecimal():
        return len(text) >= _PIECE_DIGITS_MIN
    if any(map(str.isdigit, text)):
        return True
    return text.endswith("=") or (text.lower() != text and text[1:].lower() != text[1:])


_PIECE_DIGITS_MIN = 5
_REST_CHARS_MIN = 12
_FULL_WIDTH = "[\uff10-\uff5a]{8}"
# Characters that are not drawn, inside a word in ASCII.
_HIDDEN = (
    "(?<=[!-~])[\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff]{1,64}+(?=[!-~])"
)
_HALF_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}


def _find_encoded(text: str) -> Iterator[Detection]:
    """Texts in base64 or hexadecimal with a secret inside: as a whole, since any part of one is enough to read it."""
    for match in islice(compiled(_ENCODED).finditer(text), _ENCODED_MAX):
        found = match.group()[:_ENCODED_CHARS_MAX]
        if compiled(r"[2-7][0-9A-Fa-f](?:[0-9A-Fa-f]{2}){11,}+").fullmatch(found):
            found = b64encode(bytes.fromhex(found)).decode()
        if decode(found[:_PROBE_CHARS].rstrip("=")[: len(found) // 4 * 4 or None]) is None:
            continue
        decoded = decode(found)
        if decoded is not None:
            for kind, _, _ in (*find_formats(decoded), *find_labelled(decoded)):
                yield Detection(kind, *match.span())
                break


# Passwords, PINs and keys in a sentence: "the password is hunter2" has no format, but its words reveal it

_SECRET_SENTENCE = regex(
    r"\b(?:password|passphrase|passcode|pin|api key|(?:secret|access|private) key|(?:access|auth) token|passwort|"
    r"kennwort|mot de passe|contraseña)(?: (?:of|for|to|von|für|de|du)\b[^.!?\n]{0,30}?)?"
    r"(?: (?:is|are|ist|lautet|est|es)\b|\s?[:=])",
    re.IGNORECASE,
)
_SENTENCE_END = regex(r"[.,;!?]+(?:\s|$)|\n")
# Longer than any value, so that a long text costs no more than a short one.
_LOOKED_AT_CHARS = 200
_PASSWORD_QUOTES = "\"'`“‘«"
_REDACTED = "[redacted"
# Shorter words with a digit count something: 3 months, 12 characters.
_CODE_CHARS_MIN = 4
# Words after "the password is" that are not passwords.
_STATES = frozenset(
    """
    changed compromised correct encrypted expired gone hashed invalid leaked long missing needed new old optional
    outdated public required reset revoked rotated safe secret set shared short stored strong temporary unknown unset
    valid weak wrong
    """.split()
)


def mentions_secret(text: str) -> bool:
    """Whether a statement reveals a password, PIN or key: a value that ends the sentence, is quoted, or has digits.

    Where a key is stored, or how often it changes, reveals nothing.
    """
    return any(_begins_with_value(text[label.end() :][:_LOOKED_AT_CHARS]) for label in _SECRET_SENTENCE.finditer(text))


def _begins_with_value(rest: str) -> bool:
    rest = rest.lstrip()
    if not rest or rest.startswith(_REDACTED):
        return False
    if rest[0] in _PASSWORD_QUOTES:
        return True
    words = _SENTENCE_END.split(rest, maxsplit=1)[0].split()
    if not words:
        return False
    if len(words[0]) >= _CODE_CHARS_MIN and any(character.isdigit() for character in words[0]):
        return True
    return len(words) == 1 and words[0].casefold() not in _STATES


_SCANNER = SecretScanner()
