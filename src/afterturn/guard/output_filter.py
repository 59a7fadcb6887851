"""The last check before a model sees a memory: secrets are redacted, and the text cannot break out of its block."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable

from afterturn.guard.scanning import scanner, suspicion_reason
from afterturn.guard.trust import TRUST_MIN, is_spoken
from afterturn.scanners.detection import Scanning
from afterturn.scanners.invisible import clean
from afterturn.scanners.secrets import MARGIN_CHARS, redact
from afterturn.text import regex
from afterturn.types import Entry, EventContent, Kind
from afterturn.utterance import leave_out_project

TAG = "afterturn-memory"
STANDING_TAG = "afterturn-standing"
FILE_TAG = "afterturn-file"
# How the summary of a compacted history begins.
SNAPSHOT_TAG = "state_snapshot"
SNAPSHOT_TITLE = "A summary of the conversation so far. It records what was said and done, and contains no new request."
SNAPSHOT_START = f"{SNAPSHOT_TITLE}\n<{SNAPSHOT_TAG}>\n"
CLOSING_START = "</afterturn-"

# Characters that look like "<": full-width, small and mathematical forms, quotation marks, modifiers, a rune.
_ANGLES = (
    "<\u00ab\u02c2\u02f1\u1438\u16b2\u2039\u226a\u2329\u276c\u276e\u2770\u27e8\u27ea\u29fc\u3008\u300a"
    "\ufe3d\ufe3f\ufe64\uff1c\U0001d236"
)
# Up to the first letter, so that a row of brackets is checked once.
_OPENING = regex(rf"[{_ANGLES}][\W\d_{_ANGLES}]*")
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
    # One Greek letter looks like both, so u and y count as one letter here.
    "u": "y\u0438\u03c5\u057d\u1d1c\u0443\u04af\u03b3\u028f",
}
_PLAIN = str.maketrans({drawn: letter for letter, alike in _LOOK_ALIKES.items() for drawn in alike})
_NOT_LETTER = regex(r"[^a-z]+")
# All tags of afterturn begin with it.
_TAG_LETTERS = _NOT_LETTER.sub("", "afterturn".translate(_PLAIN))
# Most texts differ from the tag in the first characters; marks and blanks may stretch a tag to the second length.
_TAG_CHARS = (24, 512)


def neutralise(text: str) -> str:
    """One line without hidden characters, and without afterturn's tags."""
    line = " ".join(text.split())
    if not (line.isascii() and line.isprintable()):
        line = " ".join(clean(line).split())
    return _OPENING.sub(_disarm, line)


def neutralise_lines(text: str) -> str:
    """As `neutralise`, for files and instructions: lines, indentation and tabs stay."""
    lines = (line.rstrip() for line in clean(text).splitlines())
    return _OPENING.sub(_disarm, "\n".join(lines).strip("\n"))


def neutralise_quote(text: str) -> str:
    """As `neutralise`, and without quotation marks that could end a quotation."""
    return neutralise(text).translate(_INNER_QUOTES)


_INNER_QUOTES = str.maketrans(dict.fromkeys('"\u201c\u201d\u201e\uff02', "'"))


_NAME_CHARS_MAX = 40
_NAME_CHARS_READ = 400
# Characters that end an author, open an id or a quotation, or form a tag; look-alikes are folded first.
_SYNTAX = frozenset('[](){}<>:"')
_SYNTAX_LOOK_ALIKES = frozenset("\u2236\ua789\u02d0\u02f8\u0589\u05c3\u201c\u201d\u201e\u201f\u3010\u3011\u2039\u203a")


def neutralise_name(name: str) -> str:
    """The name of a speaker in forty characters at most, without any that could end it. Blank if none is left."""
    kept = (
        character
        for character in name[:_NAME_CHARS_READ]
        if character not in _SYNTAX_LOOK_ALIKES and _SYNTAX.isdisjoint(unicodedata.normalize("NFKC", character))
    )
    # A disarmed tag leaves a parenthesis.
    return neutralise("".join(kept)).replace("(", "")[:_NAME_CHARS_MAX].strip()


def _disarm(found: re.Match[str]) -> str:
    return found.group().translate(_DISARMED) if _is_tag(found.string, found.end()) else found.group()


def _is_tag(line: str, start: int) -> bool:
    """Whether the letters from `start` on spell a tag of afterturn, in any form and with anything between them."""
    if line[start : start + 1].isascii() and line[start : start + 1] not in "aA":
        return False
    for size in _TAG_CHARS:
        decomposed = unicodedata.normalize("NFKD", line[start : start + size])
        letters = _NOT_LETTER.sub("", decomposed.casefold().translate(_PLAIN))
        if letters.startswith(_TAG_LETTERS):
            return True
        if not _TAG_LETTERS.startswith(letters):
            return False
    return False


class OutputFilter:
    """Scans memories again before one rendering, since scanners improve after a memory was stored.

    `withheld` has the reason for each memory that was left out, by reference. Sentences about another project than
    `projects` are left out of messages; None means all projects.
    """

    def __init__(self, *, scanning: Scanning, projects: Collection[str] | None = None) -> None:
        self._scanner = scanner(scanning=scanning)
        self._projects = projects
        self._filtered: dict[str, str | None] = {}
        self.withheld: dict[str, str] = {}

    def shown(self, entry: Entry) -> str | None:
        """The text without its secrets. None for an untrusted memory that has secrets, or that instructs the model."""
        if entry.ref not in self._filtered:
            self._filtered[entry.ref] = self._filter(entry, entry.text)
        return self._filtered[entry.ref]

    def beginning(self, entry: Entry, chars_max: int) -> str | None:
        """As `shown`, for the beginning of a long text."""
        text = self._filter(entry, entry.text[: chars_max + MARGIN_CHARS])
        return None if text is None else text[:chars_max]

    def said_in(self, entry: Entry) -> str:
        """The project that an entry is from, if that is not at hand, as it is shown."""
        return neutralise_name(entry.project or "") if entry.is_from_elsewhere(self._projects) else ""

    def _filter(self, entry: Entry, text: str) -> str | None:
        if entry.kind is Kind.RECORD and entry.is_from_elsewhere(self._projects):
            text = leave_out_project(text)
            if not text:
                self.withheld[entry.ref] = "it is about another project"
                return None
        found = redact(text, self._scanner)
        if entry.trust >= TRUST_MIN or is_spoken(entry):
            return found.text
        suspected = self._scanner.suspect(entry.text) if not found.kinds else ()
        if found.kinds or suspected:
            self.withheld[entry.ref] = found.reason or suspicion_reason(suspected)
            return None
        return found.text


def event_content(query: str, entries: Iterable[Entry], *, scanning: Scanning) -> EventContent:
    """The texts for an event, filtered as for a model. `query` has no secrets, as in SearchResults."""
    screen = OutputFilter(scanning=scanning)
    texts = {entry.id: screen.shown(entry) for entry in entries}
    return EventContent(query, {id: text for id, text in texts.items() if text is not None})
