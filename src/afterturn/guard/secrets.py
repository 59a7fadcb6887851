"""Finds secrets in a text and takes them out. A first scanner: it knows what is unmistakable, and nothing else."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from afterturn.base.terms import content_hash
from afterturn.guard.formats import FINDERS, FORMATS, Span
from afterturn.guard.named import find_named

# What a scan may look past an end that a text is cut at, so that no half of a secret stays.
MARGIN_CHARS = 8_192


class Secret(NamedTuple):
    """Where one stands in a text, and what it is, in a few plain words."""

    kind: str
    start: int
    end: int


class Scanner(Protocol):
    def find(self, text: str) -> Sequence[Secret]:
        """By place; they do not overlap. Never raises, and takes time that grows no faster than the text (G5)."""


class Redacted(NamedTuple):
    """A text without its secrets; `kinds` tells of each that was taken out, in order."""

    text: str
    kinds: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """As it is kept with a memory: "github token redacted"; blank when nothing was."""
        return f"{', '.join(dict.fromkeys(self.kinds))} redacted" if self.kinds else ""


class FormatScanner:
    """By the formats that issuers give their keys. A text without a hint of one costs a search for each hint."""

    def find(self, text: str) -> Sequence[Secret]:
        found: list[Secret] = []
        for sign, hints in _HINTS:
            if sign in text:
                # A list, not a generator: this runs for every text, and mostly comes to nothing.
                for hint in [hint for hint in hints if hint in text]:
                    for kind, find in _FINDERS[hint]:
                        found.extend(Secret(kind, start, end) for start, end in find(text))
        if any(sign in text for sign in _NAMING):
            found.extend(Secret(kind, start, end) for kind, start, end in find_named(text))
        return _apart(found) if found else ()


class NoScanner:
    """For hosts whose texts are scanned elsewhere."""

    def find(self, text: str) -> Sequence[Secret]:
        return ()


def scanner(*, scanning: bool) -> Scanner:
    return _SCANNER if scanning else _NONE


def redact(text: str, scanner: Scanner | None = None, *, mark: Callable[[str], str] | None = None) -> Redacted:
    """`text` with a mark in the place of each secret. What is redacted already stays as it is."""
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
    """The beginning of a long text. It is cut after it was scanned: half a secret is none that a scanner knows."""
    redacted = redact(text[: chars_max + MARGIN_CHARS], scanner, mark=mark)
    return Redacted(redacted.text[:chars_max], redacted.kinds)


def marked(kind: str) -> str:
    return f"[redacted: {kind}]"


def unnamed(kind: str) -> str:
    """For what is asked: the words of a mark would find every memory that has one."""
    return "[…]"


class RedactedHashes:
    """The content hash of what a text becomes once it is redacted, by its own hash. Keeps hashes, never a text."""

    def __init__(self, scanner: Scanner, *, entries_max: int = 16_384) -> None:
        self._scanner = scanner
        self._entries_max = entries_max
        self._known: dict[str, str] = {}

    def of(self, text: str, hash: str) -> str:
        """`hash` itself for a text without secrets. From any thread."""
        known = self._known.get(hash)
        if known is None:
            redacted = redact(text, self._scanner)
            known = content_hash(redacted.text) if redacted.kinds else hash
            if len(self._known) >= self._entries_max:
                self._known.clear()
            self._known[hash] = known
        return known


def hashes(*, scanning: bool) -> RedactedHashes:
    """The same for all of the process: what they keep depends on nothing but the text."""
    return _HASHES if scanning else _UNCHANGED


def _apart(found: list[Secret]) -> list[Secret]:
    """In order; of those that overlap the first counts, as far as they reach together."""
    apart: list[Secret] = []
    for secret in sorted(found, key=lambda secret: (secret.start, -secret.end)):
        if apart and secret.start < apart[-1].end:
            apart[-1] = Secret(apart[-1].kind, apart[-1].start, max(secret.end, apart[-1].end))
        else:
            apart.append(secret)
    return apart


def _by_hint() -> Mapping[str, Sequence[tuple[str, Callable[[str], Iterable[Span]]]]]:
    finders: dict[str, list[tuple[str, Callable[[str], Iterable[Span]]]]] = {}
    for kind, hints, find in (*((format.kind, format.hints, format.find) for format in FORMATS), *FINDERS):
        for hint in hints:
            finders.setdefault(hint, []).append((kind, find))
    return finders


def _by_sign() -> Sequence[tuple[str, Sequence[str]]]:
    """The hints by a sign that is in them: one character is found thirty times as fast as three."""
    groups: dict[str, list[str]] = {}
    for hint in _FINDERS:
        groups.setdefault(next((sign for sign in "_=@/:.-" if sign in hint), ""), []).append(hint)
    return tuple(groups.items())


# Between a label and its value; a bearer's token has nothing else before it.
_NAMING = (":", "=", " is ", "%3", "earer")
_FINDERS = _by_hint()
_HINTS = _by_sign()
_SCANNER, _NONE = FormatScanner(), NoScanner()
_HASHES, _UNCHANGED = RedactedHashes(_SCANNER), RedactedHashes(_NONE, entries_max=1)
