"""Broad questions: "what do you know about me?", "summarise this project". The profile answers them (profile.py).

They share few words with their answers, so that a search finds little. `broad_questions.json` has the words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from afterturn.text import fold, regex, words

_WORDS_PATH = Path(__file__).with_name("broad_questions.json")
_WORDS_MAX = 24
_CHARS_MAX = 240
_SUBJECT_WORDS_MAX = 2


class BroadQuestion(NamedTuple):
    """`subject` is what it is about, such as "family", and blank for the user. `is_project`: it is about their work."""

    subject: str = ""
    is_project: bool = False


def read_broad_question(text: str) -> BroadQuestion | None:
    """Returns the subject of a broad question, None for any other text.

    A question is broad if it asks what is known, or for a summary; if its object is the speaker ("me"), something of
    theirs in one or two words ("my family"), or the project; and if no other word between the two or after them limits
    it, as in "what do you know about my flight on Friday?".
    """
    spoken = words(text) if len(text) <= _CHARS_MAX else []
    if not 0 < len(spoken) <= _WORDS_MAX:
        return None
    if spoken[0] in _listed("selves") and _listed("wishes").isdisjoint(spoken):
        # "I told you about my dog."
        return None
    return next((found for row in _languages() if (found := row.read(spoken)) is not None), None)


@cache
def owner_words() -> frozenset[str]:
    """The words for "my" and "our" in the languages that are known here."""
    return frozenset().union(*(row.owners for row in _languages()))


@cache
def first_person_words() -> frozenset[str]:
    """The words for the speaker, and for what is theirs, in the languages that are known here."""
    return owner_words().union(_listed("selves"), *(row.selves for row in _languages()))


@cache
def family_words() -> tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]:
    """The words for a family, those for its members, and those of scripts without spaces."""
    return _listed("family"), tuple(_word_lists()["kin"].split()), tuple(_word_lists()["kin_unspaced"].split())


class _Language:
    """One language of the file."""

    def __init__(self, lists: dict[str, Any]) -> None:
        names = ("selves", "owners", "about", "fillers")
        self.selves, self.owners, self._about, self._fillers = (_words(lists.get(name, "")) for name in names)
        self._direct, self._cues = (fold(lists.get(name, "")).split() for name in ("direct", "cues"))
        self._patterns = [regex(pattern) for pattern in (*lists.get("patterns", ()), lists.get("summaries", "^$"))]
        self._whole = regex("|".join(lists.get("wholes", ["^$"])))
        self._project, self._family = _listed("project"), _listed("family")

    def read(self, spoken: Sequence[str]) -> BroadQuestion | None:
        asked = " ".join(spoken)
        if self._whole.fullmatch(asked):
            return BroadQuestion()
        for at, word in enumerate(spoken):
            if word in self.selves or word in self.owners or word in self._project:
                found = self._read_object(spoken, at)
                if found is not None:
                    return found
        for number, pattern in enumerate(self._patterns if not asked.isascii() else ()):
            match = pattern.search(asked)
            found = self._read_subject(match["subject"]) if match is not None else None
            is_summary = number == len(self._patterns) - 1
            if found is not None and (found.is_project or not (is_summary and found.subject)):
                return found
        return None

    def _read_object(self, spoken: Sequence[str], at: int) -> BroadQuestion | None:
        """The object that begins at `at`, if a cue is next to it, and nothing limits it."""
        end = start = at + (spoken[at] in self.owners)
        while end < len(spoken) and end - start < _SUBJECT_WORDS_MAX and not self._is_known(spoken[end]):
            end += 1
        subject = spoken[start:end]
        if spoken[at] not in self.owners or not subject:
            end = at + 1
            subject = [] if spoken[at] in self.selves else spoken[at:end]
        is_project = not self._project.isdisjoint(subject)
        if is_project and subject[-1] not in self._project:
            return None
        first = at
        while first and self._is_known(spoken[first - 1]):
            first -= 1
        before = spoken[first:at]
        near = [word for word in before[-3:] if word not in self.selves]
        is_direct = any(map(self._is_direct, (*near, *spoken[end : end + 2])))
        if is_direct and not (not subject or is_project or not self._family.isdisjoint(subject)):
            is_direct = False
        is_about = bool(near) and not self._about.isdisjoint(before[-3:])
        known = (*before, *spoken[end:])
        if not (is_direct or is_about) or not all(map(self._is_known, known)) or not any(map(self._is_cue, known)):
            return None
        return BroadQuestion(" ".join(subject), is_project)

    def _read_subject(self, subject: str) -> BroadQuestion | None:
        """Of a language with patterns. Where there are no spaces, "my" and "family" are one word."""
        if subject in self.selves:
            return BroadQuestion()
        starts = sorted(self.owners, key=lambda start: (-len(start), start))
        rest = next((subject[len(start) :] for start in starts if subject.startswith(start)), subject).strip()
        is_project = any(word in rest for word in self._project if not word.isascii())
        if not rest or not (rest != subject or rest in self._family):
            return None
        return BroadQuestion(rest, is_project)

    def _is_known(self, word: str) -> bool:
        return word in self._fillers or word in self._about or word in self.selves or self._is_cue(word)

    def _is_cue(self, word: str) -> bool:
        return _matches(word, self._cues) or self._is_direct(word)

    def _is_direct(self, word: str) -> bool:
        return _matches(word, self._direct)


def _words(listed: str) -> frozenset[str]:
    return frozenset(fold(listed).split())


@cache
def _listed(name: str) -> frozenset[str]:
    return _words(_word_lists()[name])


def _matches(word: str, patterns: Sequence[str]) -> bool:
    return any(word.startswith(one[:-1]) if one.endswith("*") else word == one for one in patterns)


@cache
def _word_lists() -> dict[str, Any]:
    lists: dict[str, Any] = json.loads(_WORDS_PATH.read_text(encoding="utf-8"))
    return lists


@cache
def _languages() -> tuple[_Language, ...]:
    return tuple(map(_Language, _word_lists()["languages"].values()))
