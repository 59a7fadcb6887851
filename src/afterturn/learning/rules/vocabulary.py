"""The words by which `statements` recognizes what is stated. The lists of each language are in `vocabulary.toml`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from afterturn.text import load_patterns, regex


def any_of(words: str) -> re.Pattern[str]:
    """A pattern for one of `words`, which are lower case."""
    return regex(rf"(?<![\w'])(?:{alternatives(words)})(?!\w|'t)")


def alternatives(words: str) -> str:
    """The words as one alternation, longer ones first."""
    return "|".join(sorted((_escape(word) for word in words.split()), key=len, reverse=True)) or "(?!)"


_NAME = r"([^\W\d_][\w'-]{1,20}(?:\s[\w'-]{2,20}){0,2})"


def _escape(word: str) -> str:
    return re.escape(word.replace("_", " ")).replace(r"\*", r"\w*")


@dataclass(frozen=True)
class WordLists:
    """`words` are the lists of one language by name; `manner`, `names`, `notes` and `bans` are lists of patterns.

    `drops_i`: the verb alone may show the first person. `ends_in_participle`: other words come between the first
    person and a verb of change. `has_capital_nouns`: a capital does not show a name.
    """

    code: str
    words: Mapping[str, str]
    manner: Sequence[str]
    names: Sequence[str] = ()
    notes: Sequence[str] = ()
    bans: Sequence[str] = ()
    drops_i: bool = False
    ends_in_participle: bool = False
    has_capital_nouns: bool = False

    @cached_property
    def known(self) -> frozenset[str]:
        """Every word of the lists."""
        return frozenset(" ".join(self.words.values()).replace("_", " ").split())

    def pattern(self, name: str) -> re.Pattern[str]:
        return self.patterns[name]

    @cached_property
    def patterns(self) -> dict[str, re.Pattern[str]]:
        """One for each list, and those of `_combined`."""
        return {**{name: any_of(words) for name, words in self.words.items()}, **self._combined()}

    def _combined(self) -> dict[str, re.Pattern[str]]:
        """Patterns of several lists: a subject together with its verb."""
        of = {name: alternatives(words) for name, words in self.words.items()}
        i, my, people, verb = of["i"], of["my"], of["people"], of["is"]
        does = alternatives(f"{self.words['verbs']} {self.words['changes']}")
        adverbs = rf"(?:(?:{of['adverbs']})\s+){{0,3}}"
        subject = rf"(?:(?:{i})\s+|j')" + ("?" if self.drops_i else "")
        others = "" if self.drops_i else rf"|(?:{does})\s+(?:{i})"
        if self.ends_in_participle:
            others += rf"|(?:{i})\s+(?:\S+\s+){{0,8}}?(?:{of['changes']})"
        person = rf"(?:{my}|\w+'s)\s+(?:[\w-]+\s+){{0,2}}?(?:{people})(?!\w|'t)"
        the, amounts, measures = of["the"], of["amounts"], of["measures"]
        theirs = rf"(?:(?:{the}|{my})\s+)?(?:(?:[\w-]+\s+)?(?:{measures})|(?!(?:{the})\s)[\w-]+\s+(?:{amounts}))"
        no_name = "|".join(of[name] for name in ("is", "common", "says", "adverbs", "always", "must"))
        return {
            "manner": regex("|".join(self.manner)),
            "names": regex("|".join(shape.format(name=_NAME) for shape in self.names) or "(?!)"),
            "notes": regex("|".join(self.notes).replace("(?P<rest>", "(") or "(?!)"),
            "bans": regex("|".join(self.bans) or "(?!)"),
            "being": regex(rf"(?:{of['am']})\s+{adverbs}"),
            "preferring": regex(rf"(?<![\w'])(?:{subject}{adverbs}(?:{of['prefers']}))(?!\w)"),
            "doing": regex(rf"(?<![\w'])(?:{subject}{adverbs}(?:{does}){others})(?!\w)"),
            "having": regex(rf"(?<![\w'])(?:{subject}{adverbs}(?:{of['has']}))(?!\w)"),
            "person": regex(rf"(?<![\w'])(?:{person}|^(?:(?:{the})\s+)?(?:{people})(?=\s+(?:{verb})\s))"),
            "is_person": regex(rf"\s(?:{of['be']})\s+(?:{my})\s+(?:[\w-]+\s+){{0,2}}?(?:{people})(?!\w|'t)"),
            "named": regex(rf"\s+(?!(?:{no_name})(?!\w))[^\W\d_]+\s+(?:{verb})(?!\w)"),
            "measured": regex(rf"{theirs}(?:'s)?\s+(?:\w+\s+){{0,3}}\d"),
            "amount": regex(rf"(?<![\w'])(?:(?:{my})\s.*|(?!(?:{the})\s)[\w'-]+\s+)(?:{amounts})(?!\w)"),
            "points_back": regex(rf"(?:{of['pronouns']})(?:(?<=['’]s)|(?<=['’]re)|\s+(?:{verb})(?!\w))"),
            "first": regex(rf"(?<![\w'])(?:{i}|{of['am']})(?!\w)"),
            "verb": regex(rf"(?:(?<=\w)'s|(?<![\w'])(?:{verb}))(?!\w|'t)"),
        }


# Japanese has no spaces, so its lists are patterns, in `vocabulary.json`.
JAPANESE = load_patterns(__file__)
KANA = regex(r"[\u3040-\u30ff]")


@cache
def languages() -> tuple[WordLists, ...]:
    """Those of `vocabulary.toml`, English first."""
    import tomllib

    found = []
    for code, table in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items():
        words = {name: value for name, value in table.items() if isinstance(value, str)}
        found.append(WordLists(code, words, **{name: value for name, value in table.items() if name not in words}))
    return tuple(found)


_WORD = regex(r"[^\W\d_]+(?:['-][^\W\d_]+)*")


def find_language(text: str) -> WordLists | None:
    """The language whose words the text has most of; None if it has none of any."""
    words = _WORD.findall(text.lower())
    counts = [sum(word in language.known for word in words) for language in languages()]
    most = max(counts)
    return languages()[counts.index(most)] if most else None
