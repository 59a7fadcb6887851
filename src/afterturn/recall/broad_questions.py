"""Broad questions: "what do you know about me?", "summarise this project". The profile answers them (profile.py).

They share few words with their answers, so that a search finds little. `broad_questions.toml` has the words.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypedDict

from afterturn.text import words

_WORDS_PATH = Path(__file__).with_name("broad_questions.toml")
_WORDS_MAX = 24
_CHARS_MAX = 240
_SUBJECT_WORDS_MAX = 2


class BroadQuestion(NamedTuple):
    """`subject` is what it is about, such as "family", and blank for the user. `is_project`: it is about their work."""

    subject: str = ""
    is_project: bool = False


def is_broad_question(text: str) -> bool:
    """Whether the profile answers it: "what do you know about my family?", "summarise this project"."""
    return read_broad_question(text) is not None


def read_broad_question(text: str) -> BroadQuestion | None:
    """What a broad question is about. None for any other text.

    A question is broad if it asks what is known, or for a summary, and its object is the speaker ("me"), something of
    theirs in one or two words ("my family"), or the project.
    """
    spoken = words(text) if len(text) <= _CHARS_MAX else []
    if not 0 < len(spoken) <= _WORDS_MAX:
        return None
    asked, said = " ".join(spoken), frozenset(spoken)
    for row in _languages():
        if said.isdisjoint(row.objects) if row.is_spaced else asked.isascii():
            continue
        for pattern, is_summary in row.patterns():
            for match in pattern.finditer(asked):
                named = match.groupdict().get("subject")
                found = row.read_object((asked[match.end() :] if named is None else named).split())
                if found is not None and (found.is_project or not (is_summary and found.subject)):
                    return found
    return None


@cache
def owner_words() -> frozenset[str]:
    """The words for "my" and "our" in the languages that are known here."""
    return frozenset().union(*(row.owners for row in _languages()))


@cache
def first_person_words() -> frozenset[str]:
    """The words for the speaker, and for what is theirs, in the languages that are known here."""
    return owner_words().union(_word_lists()["selves"].split(), *(row.selves for row in _languages()))


@cache
def family_words() -> tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]:
    """The words for a family, those for its members, and those of scripts without spaces."""
    lists = _word_lists()
    return frozenset(lists["family"].split()), tuple(lists["kin"].split()), tuple(lists["kin_unspaced"].split())


class _LanguageWords(TypedDict, total=False):
    asks: list[str]
    summaries: list[str]
    selves: str
    owners: str
    fillers: str
    is_spaced: bool


class _BroadQuestionWords(TypedDict):
    project: str
    selves: str
    family: str
    kin: str
    kin_unspaced: str
    languages: dict[str, _LanguageWords]


class _Language:
    """One language of the file."""

    def __init__(self, lists: _LanguageWords, project: frozenset[str]) -> None:
        self.selves = frozenset(lists["selves"].split())
        self.owners = frozenset(lists["owners"].split())
        self.fillers = frozenset(lists["fillers"].split())
        self.is_spaced = lists.get("is_spaced", True)
        # One of these words is in every broad question.
        self.objects = project | self.selves | self.owners
        self._project = project
        self._lists = lists
        self._patterns: list[tuple[re.Pattern[str], bool]] = []

    def patterns(self) -> list[tuple[re.Pattern[str], bool]]:
        """Each with whether it asks for a summary. Compiled when they are first needed."""
        if not self._patterns:
            asks = [(re.compile(pattern), False) for pattern in self._lists["asks"]]
            self._patterns = [*asks, *((re.compile(pattern), True) for pattern in self._lists["summaries"])]
        return self._patterns

    def read_object(self, spoken: list[str]) -> BroadQuestion | None:
        """None if the object is not the speaker, something of theirs, or the project."""
        if not self.is_spaced:
            spoken = self._split_owner("".join(spoken))
        rest = [word for word in spoken if word not in self.fillers]
        if not rest:
            return None
        if self.selves.issuperset(rest):
            return BroadQuestion()
        subject = [word for word in rest if word not in self.owners]
        is_project = not self._project.isdisjoint(subject)
        is_owned = spoken[0] in self.owners or (spoken[0] in self.fillers and spoken[1] in self.owners)
        is_near = is_owned or (is_project and spoken[0] in self.fillers)
        if not is_near or not 0 < len(subject) <= _SUBJECT_WORDS_MAX:
            return None
        return BroadQuestion(" ".join(subject), is_project)

    def _split_owner(self, word: str) -> list[str]:
        """Of a script without spaces: "my" and "family" are one word."""
        starts = sorted(self.owners | self.fillers, key=lambda start: (-len(start), start))
        start = next((start for start in starts if word.startswith(start) and word not in self.selves), None)
        return [word] if start is None else [start, *filter(None, [word[len(start) :]])]


@cache
def _word_lists() -> _BroadQuestionWords:
    return tomllib.loads(_WORDS_PATH.read_text(encoding="utf-8"))  # type: ignore[return-value]


@cache
def _languages() -> tuple[_Language, ...]:
    lists = _word_lists()
    project = frozenset(lists["project"].split())
    return tuple(_Language(row, project) for row in lists["languages"].values())
