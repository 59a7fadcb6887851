"""Checks whether messages support a statement, by comparing words, names and numbers. Pure functions.

Nothing here decides how far a statement is trusted: a text of others can use the words of a trusted one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from afterturn.text import STOP_WORDS, regex, terms, words
from afterturn.types import ReviewMessage

# Below the first, nobody said it. Below the second, it is an inference that a person should approve.
SUPPORT_MIN = 0.2
SUPPORT_ENOUGH = 0.5
# A statement with this share of its words in another one repeats it.
REPEATED_SHARE_MIN = 0.7
# If the model cites no message, at most this many that share its words are its evidence.
FOUND_MAX = 3

# Words that a statement about a user or project may use although nobody said them.
_REPORTING = frozenset(
    terms(
        "user users agent assistant prefers preference likes dislikes wants asks asked uses using called named name "
        "project environment convention always never should must works working lives about says said told "
        "nutzer nutzerin benutzer anwender utilisateur utilisatrice usuario usuaria utente gebruiker användaren "
        "пользователь kullanıcı"
    )
)
# Of these words, the ones that nobody can add or leave out without a change of what is said.
_MEANT = frozenset(terms("dislikes lives works working says said told"))
# The same among stop words.
_RELATIONS = frozenset(
    "above after again all any before below between both down during each few further if in more most off on once only "
    "or other out over own same than through under until up when where while who with".split()
)
_LEAD = regex(r"\b(?:from (?:now|here) on|btw|by the way|fyi|in (?:the )?future|going forward)\b", re.IGNORECASE)
_WORD = regex(r"\w[\w'’-]*")
_NUMBER = regex(r"\d+(?:[.,]\d+)*")
_DENIAL = regex(
    r"\b(?:never|not|no|none|nothing|nobody|without|cannot|\w+n['’]t|nie|niemals|nicht|kein\w*|ohne|jamais|pas|sans|nunca|sin)\b",
    re.IGNORECASE,
)
_ALWAYS = regex(r"\b(?:always|every|each|all|immer|jede\w*|toujours|chaque|siempre|cada)\b", re.IGNORECASE)
# A detail that a rewrite easily loses: a URL, a path, an identifier, or a number, version, time or date.
_DETAIL = regex(
    r"(?P<url>\w+://[^\s,;)]+|[\w.+-]+@[\w-]+\.\w+)|(?P<path>(?:~|\.{1,2})?(?:/[\w.@-]+)+)"
    r"|(?P<number>\d+(?:[.,:/-]\d+)*(?![\w-]))|(?P<name>\w*(?:\d|_|\w[.-](?=\w*\d))[\w.-]*\w)"
)
# The share of the details of a memory that a rewrite may lose, and the length below which it loses too much.
_LOST_SHARE_MAX = 0.05
_COLLAPSED_SHARE, _COLLAPSED_CHARS_MIN = 0.5, 80
_SPELLED = ("zero one two three four five six seven eight nine ten eleven twelve").split()


class Evidence(NamedTuple):
    """`support` is the share of a statement's words that were said. `missing` are names and numbers that were not."""

    support: float
    missing: tuple[str, ...]

    @property
    def is_supported(self) -> bool:
        return not self.missing and self.support >= SUPPORT_MIN

    @property
    def is_inference(self) -> bool:
        return self.support < SUPPORT_ENOUGH


def measure_support(statement: str, texts: Sequence[str]) -> Evidence:
    """How much of a statement the texts say."""
    spoken = frozenset(term for text in texts for term in terms(text))
    own = [term for term in dict.fromkeys(terms(statement)) if term not in _REPORTING]
    support = sum(term in spoken for term in own) / len(own) if own else 1.0
    numbers = {_plain(number) for text in texts for number in _NUMBER.findall(text)}
    numbers.update(str(_SPELLED.index(word)) for text in texts for word in words(text) if word in _SPELLED)
    missing = (number for number in _NUMBER.findall(statement) if _plain(number) not in numbers)
    return Evidence(support, (*_missing_names(statement, texts), *missing))


# Their words count as those of the user, who is "the user" in a statement.
_OF_ANOTHER = regex(
    r"\W*(?:he|she|they|it|(?:the|my|this)\s(?:agent|assistant|model)|er|sie|ils?|elles?|él|ellas?|ellos|lui|lei|loro|hij|zij)\b",
    re.IGNORECASE,
)


def is_stated(statement: str, sentence: str) -> bool:
    """Whether a sentence says this and no more: the same words in the same order, a denial in both or in neither."""
    if _OF_ANOTHER.match(sentence):
        return False
    own = _content(statement)
    is_denied, denies = bool(_DENIAL.search(statement)), bool(_DENIAL.search(sentence))
    return bool(own) and own == _content(sentence) and is_denied == denies and not find_reversals(statement, [sentence])


def _content(text: str) -> list[str]:
    left_out = _REPORTING - _MEANT
    found = (terms(word) or (word,) * (word in _RELATIONS) for word in words(_LEAD.sub(" ", text)))
    return [term for several in found for term in several if term not in left_out]


def find_evidence(statement: str, messages: Sequence[ReviewMessage]) -> tuple[int, ...]:
    """The messages that share most words with the statement; empty if none shares any."""
    own = frozenset(terms(statement)) - _REPORTING
    shared = [(len(own.intersection(terms(message.text))), at) for at, message in enumerate(messages)]
    best = sorted(((count, at) for count, at in shared if count), reverse=True)[:FOUND_MAX]
    most = best[0][0] if best else 0
    return tuple(sorted(at for count, at in best if 2 * count > most))


def is_repeated(statement: str, earlier: str) -> bool:
    """Whether an earlier statement has most of the words of this one. Used only to leave this one out."""
    own = frozenset(terms(statement)) - _REPORTING
    return bool(own) and len(own.intersection(terms(earlier))) >= REPEATED_SHARE_MIN * len(own)


def find_reversals(statement: str, texts: Sequence[str]) -> list[str]:
    """Words that reverse or widen the statement and that nobody said: "not", "always"."""
    return [
        word
        for word, pattern in (("not", _DENIAL), ("always", _ALWAYS))
        if pattern.search(statement) and not any(pattern.search(text) for text in texts)
    ]


def find_losses(rewrite: str, original: str, texts: Sequence[str] = ()) -> list[str]:
    """The details that a rewrite of a statement loses without a reason: more than 5 % of them, or half of its length.

    A detail that the texts mention, or that another of the same kind takes the place of, is not lost.
    """
    # Details, each with its kind.
    kept, before = (
        {found.group().rstrip("."): found.lastgroup or "" for found in _DETAIL.finditer(text)}
        for text in (rewrite, original)
    )
    new = Counter(kind for detail, kind in kept.items() if detail not in before)
    lost = [detail for detail in before if detail not in kept and not any(detail in text for text in texts)]
    left = []
    for detail in lost:
        if new[before[detail]] > 0:
            new[before[detail]] -= 1
        else:
            left.append(detail)
    # "db7" may become "heron".
    is_renamed = len(left) == 1 and not set(terms(rewrite)) <= set(terms(original))
    if len(left) > _LOST_SHARE_MAX * len(before) and not is_renamed:
        return left
    is_collapsed = len(original) >= _COLLAPSED_CHARS_MIN and len(rewrite) < _COLLAPSED_SHARE * len(original)
    return [f"{len(original) - len(rewrite)} of its {len(original)} characters"] if is_collapsed else []


def _missing_names(statement: str, texts: Sequence[str]) -> list[str]:
    # Also by our own pattern, which ends a word before a combining mark where `words` does not.
    spoken = {word for text in texts for part in (text, *_WORD.findall(text)) for word in words(part)}
    missing = []
    for found in _WORD.finditer(statement):
        name = found.group()
        if not _is_name(name) or (name[1:].islower() and _starts_sentence(statement, found.start())):
            # Any word has a capital at the start of a sentence, so it is not taken for a name there.
            continue
        unsaid = [part for part in words(name) if part not in spoken and part not in STOP_WORDS]
        if any(_REPORTING.isdisjoint(terms(part)) for part in unsaid):
            missing.append(name)
    return missing


def _starts_sentence(text: str, at: int) -> bool:
    """Whether the word at `at` starts a sentence: after another, an empty line, a quote or a bracket, or first."""
    end = at
    while end and text[end - 1].isspace():
        end -= 1
    before, gap = text[end - 1 : end], text[end:at]
    return not before or before in "\"'“‘(" or "\n" in gap[:-1] or (bool(gap) and before in ".!?:;")


def _is_name(word: str) -> bool:
    """True for a word with a capital anywhere (Oslo, MongoDB), or with letters and digits (db7)."""
    has_digit = any(character.isdigit() for character in word)
    return word.lower() != word or (has_digit and any(character.isalpha() for character in word))


def _plain(number: str) -> str:
    """10,000 -> 10000; 1.5 -> 1.5."""
    return re.sub(r"[.,](?=\d{3}(?:\D|$))", "", number)
