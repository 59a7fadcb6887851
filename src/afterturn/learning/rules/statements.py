"""Finds what a sentence states about the user, their people, their things or their project, in the user's own words.

A sentence is cut into parts at commas and conjunctions. A part states something if it begins with a known kind of
subject (the user, one of their people, a thing) and says something definite (a name, a number, a day, a trait).
Questions, requests, plans, guesses, jokes and reported speech state nothing, and end the statement that they follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from afterturn.learning.rules.clauses import FACT, PREFERENCE, Lesson, capitalise, trim
from afterturn.learning.rules.sentences import Sentence
from afterturn.learning.rules.vocabulary import JAPANESE, KANA, Language, find_language
from afterturn.types import Target

STATEMENT_CHARACTERS_MAX = 240
_WORDS_MIN = 3
_SUBJECT_WORDS_MAX = 5
# A value stands close to its verb: "the gate is 82", not "the readers are builders who know clause 18".
_VALUE_WORDS_MAX = 6

_PART = re.compile(
    r"""[,;]\s+|\s[–—-]\s|:\s+|\s\(|\)\s*
    |\s+(?=(?:so|but|because|though|although|anyway|in\scase|just\sin\scase|aber|weil|falls|mais|donc|pero|porque|ma|mas|maar)\s)
    |\s+(?=(?:and|und|et|y|e|en)\s(?:i|it|he|she|they|we|ich|es|er|sie|wir|je|il|elle|on|ik|hij|ze|het)\s)""",
    re.VERBOSE | re.IGNORECASE,
)
_NUMBER = re.compile(r"\d")
_CODE = re.compile(r"[\w-]*/[\w./-]+|\w{2,}[._]\w{2,}|\ufffc|\w-\w*\d")
_NAME = re.compile(
    r"""(?<=[\w'’.]\s)(?!I\b)[^\W\d_a-zß-öø-ÿ][^\W\d_]+
    |(?<!\w)(?:madame|monsieur|frau|herr|mr|mrs|ms|dr|prof|señora?|signora?|senhora?|dona|mevrouw|meneer)\.?\s\w""",
    re.VERBOSE,
)
_THIS = re.compile(
    r"""(?<!\w)(?:this|that)(?!\w|\s(?:year|term|month|week|summer|winter|spring|autumn|fall|weekend|repo|repository|project|
    codebase|team|company|house)(?!\w))""",
    re.VERBOSE,
)
# Words of a task at hand: what is wrong with a program is not a lasting fact.
_TASK = re.compile(
    r"""(?<!\w)(?:bugs?|errors?|crash\w*|fail(?:s|ed|ing)|exceptions?|parsed|class|method|function|variable|loop|nodes|
    dom|current)(?!\w)""",
    re.VERBOSE,
)
_PROJECT = re.compile(
    r"""(?<!\w)(?:repo|repository|branch|deploys?|deployment|releases?|tests?|ci|api|database|db|commits?|code|codebase|
    builds?|server|cluster|packages?|migrations?|staging|prod|production|pull\srequests?|prs?|tickets?|config|
    docker\w*|dependency|dependencies|schema|endpoint|linter|node|python|typescript)(?!\w)""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class _Part:
    start: int
    end: int
    states: bool
    is_barred: bool


def find_statements(sentences: Sequence[Sentence]) -> Iterator[tuple[int, Lesson]]:
    """At most one lesson for each sentence, with the position of the sentence."""
    text = " ".join(sentence.plain for sentence in sentences)
    if KANA.search(text):
        yield from _find_japanese(sentences)
        return
    language = find_language(text)
    if language is None:
        return
    before: Sentence | None = None
    for at, sentence in enumerate(sentences):
        lesson = find_statement(sentence, language, before)
        if lesson is not None:
            yield at, lesson
        before = sentence


def find_statement(sentence: Sentence, language: Language, before: Sentence | None = None) -> Lesson | None:
    """What the sentence states. `before` is the sentence that "she" at its beginning may refer to."""
    plain = sentence.plain.lower()
    if sentence.is_question or _asks(plain, language) or language.pattern("says").search(plain):
        return None
    if (manner := _find_manner(sentence, language)) is not None:
        return manner
    kept: list[_Part] = []
    for part in _split(sentence, language):
        if part.is_barred and kept:
            break
        if not part.is_barred and (kept or part.states):
            kept.append(part)
    if not kept:
        return _find_continued(sentence, language, before)
    ending = "." if sentence.ending == "." and kept[-1].end == len(sentence.plain) else ""
    return _to_lesson(sentence.text[kept[0].start : kept[-1].end], ending)


def _to_lesson(text: str, ending: str = "") -> Lesson | None:
    text = f"{trim(text)}{ending}"
    if len(text) > STATEMENT_CHARACTERS_MAX or len(text.split()) < _WORDS_MIN:
        return None
    is_project = _CODE.search(text) or _PROJECT.search(text) or "`" in text
    return Lesson(text, Target.ENVIRONMENT if is_project else Target.USER, FACT, 0, is_quote=True)


def _find_manner(sentence: Sentence, language: Language) -> Lesson | None:
    """How the assistant should answer or reach the user: "keep your answers short"."""
    plain = sentence.plain.lower()
    for found in (None, *_PART.finditer(plain)):
        start = _after_leads(plain, found.end() if found else 0, len(plain), language)
        manner = language.pattern("manner").match(plain, start)
        if manner:
            breaks = _PART.finditer(plain, start, manner.end())
            reason = next(
                (at.start() for at in breaks if language.pattern("first").match(plain, at.end())), manner.end()
            )
            return Lesson(capitalise(trim(sentence.text[start:reason])), Target.USER, PREFERENCE, 0, is_quote=True)
    return None


def _find_continued(sentence: Sentence, language: Language, before: Sentence | None) -> Lesson | None:
    """ "My daughter wants one too. She's allergic to nickel": both sentences together."""
    plain = sentence.plain.lower()
    if before is None or before.is_question or not language.pattern("pronouns").match(plain):
        return None
    if not language.pattern("traits").search(plain) or _is_barred(plain, language):
        return None
    if not language.pattern("person").search(before.plain.lower()):
        return None
    return _to_lesson(f"{before.text}. {sentence.text}", sentence.ending)


def _find_japanese(sentences: Sequence[Sentence]) -> Iterator[tuple[int, Lesson]]:
    for at, sentence in enumerate(sentences):
        plain = sentence.plain
        if JAPANESE.manner.search(plain):
            yield at, Lesson(sentence.text, Target.USER, PREFERENCE, 0, is_quote=True)
        elif not sentence.is_question and not JAPANESE.barred.search(plain) and _states_in_japanese(plain):
            yield at, Lesson(sentence.text, Target.USER, FACT, 0, is_quote=True)


def _states_in_japanese(plain: str) -> bool:
    topic = JAPANESE.topic.search(plain)
    rest = plain[topic.end() :] if topic else plain
    if JAPANESE.changes.search(rest):
        return topic is not None or JAPANESE.value.search(plain) is not None
    if topic is None:
        return False
    # A comma may follow a topic or anything else, so it needs more than a number.
    is_topic = not topic.group().endswith("、")
    return bool(JAPANESE.traits.search(rest) or (is_topic and JAPANESE.value.search(rest)))


def _split(sentence: Sentence, language: Language) -> Iterator[_Part]:
    plain = sentence.plain.lower()
    ends = [*(found.span() for found in _PART.finditer(sentence.plain)), (len(plain), len(plain))]
    start = 0
    for at, (end, following) in enumerate(ends):
        begin = _after_leads(plain, start, end, language)
        if begin < end:
            barred = _is_barred(plain[begin:end], language)
            # The next part often has the value: "we cache in process, 60 seconds".
            after = sentence.plain[end : ends[min(at + 1, len(ends) - 1)][0]]
            states = not barred and _states(sentence.plain[begin:end], after, language)
            yield _Part(begin, end, states, barred)
        start = following


def _after_leads(plain: str, start: int, end: int, language: Language) -> int:
    leads = language.pattern("leads")
    while start < end:
        found = leads.match(plain, start, end)
        if found is None:
            return start
        start = found.end()
        while start < end and not (plain[start].isalnum() or plain[start] == "\ufffc"):
            start += 1
    return start


def _asks(plain: str, language: Language) -> bool:
    return bool(language.pattern("asks").match(plain, _after_leads(plain, 0, len(plain), language)))


def _is_barred(plain: str, language: Language) -> bool:
    """Whether it is a request, a question, a guess, a plan or the like."""
    of = language.pattern
    return bool(of("orders").match(plain) or of("asks").match(plain) or of("unsure").search(plain))


def _states(text: str, after: str, language: Language) -> bool:
    plain = text.lower()
    if language.pattern("deictic").search(plain) or _THIS.search(plain) or _TASK.search(plain):
        return False
    return (
        _states_about_self(text, after, language)
        or _states_about_person(text, language)
        or _states_about_thing(text, language)
    )


def _states_about_self(text: str, after: str, language: Language) -> bool:
    """ "I teach on Wednesdays", "we moved to Kiel", "I'm deaf in one ear", "I've got two kids"."""
    plain = text.lower()
    of = language.pattern
    found = of("being").match(plain)
    if found:
        rest = plain[found.end() :]
        since = of("since").search(rest)
        lasts = since is not None and (
            _is_dated(rest[since.start() :], language) or of("soon").search(rest) is not None
        )
        if _has_trait_early(rest, language) or lasts:
            return True
    if (found := of("preferring").search(plain)) is not None:
        # Without a contrast it is a choice for the task at hand: "I prefer the morning flight".
        return of("contrast").search(f"{plain[found.end() :]}{after}".lower()) is not None
    found = of("doing").search(plain)
    if found:
        rest = text[found.start() :]
        return bool(
            _is_definite(f"{rest}{after}", language)
            or of("contrast").search(f"{rest}{after}".lower())
            or of("always").search(rest.lower())
            or of("soon").search(rest.lower())
            or of("life").search(rest.lower())
        )
    found = of("having").search(plain)
    if found:
        rest = text[found.end() :]
        has_person = of("people").search(rest.lower()) is not None
        return (has_person and _is_definite(f"{rest}{after}", language)) or _has_trait_early(rest.lower(), language)
    return False


def _states_about_person(text: str, language: Language) -> bool:
    """ "My sister Ruth is coeliac", "childminder is Pauline", "Marcel is our frontend guy"."""
    plain = text.lower()
    of = language.pattern
    if of("is_person").search(plain) and not of("it").match(plain):
        return True
    found = of("person").search(plain)
    if found is None or of("verb").search(plain, found.end()) is None:
        return False
    return _is_definite(text[found.start() :], language) or of("named").match(plain, found.end()) is not None


def _states_about_thing(text: str, language: Language) -> bool:
    """ "The spare key is with Jean at number 14", "bin day is Thursday", "our address is 7 Cabot Rise"."""
    plain = text.lower()
    of = language.pattern
    verb = of("verb").search(plain)
    if verb is None:
        return False
    subject, rest = plain[: verb.start()].strip(), " ".join(plain[verb.end() :].split()[:_VALUE_WORDS_MAX])
    if not 0 < len(subject.split()) <= _SUBJECT_WORDS_MAX or of("the").fullmatch(subject):
        return False
    if of("it").search(subject) or of("first").search(subject):
        return False
    if _is_dated(rest, language):
        return True
    if not (of("things").search(subject) or of("people").search(subject)):
        return False
    is_theirs = of("my").search(subject) is not None
    named = is_theirs and not language.has_capital_nouns and _NAME.search(text, verb.start()) is not None
    return bool(_NUMBER.search(rest) or _CODE.search(rest) or named)


def _is_definite(text: str, language: Language) -> bool:
    """Whether it has a number, a day, a trait, a name or a path."""
    plain = text.lower()
    of = language.pattern
    if _NUMBER.search(plain) or _CODE.search(plain) or of("traits").search(plain) or _is_dated(plain, language):
        return True
    return not language.has_capital_nouns and not text.isupper() and _NAME.search(text) is not None


def _has_trait_early(rest: str, language: Language) -> bool:
    """ "deaf in one ear", but not "deaf to your excuses"."""
    found = language.pattern("traits").search(rest)
    if found is None or len(rest[: found.start()].split()) > 2:
        return False
    return found.group().startswith("al") or not rest.startswith((" to ", " from ", " by "), found.end())


def _is_dated(plain: str, language: Language) -> bool:
    return bool(language.pattern("weekdays").search(plain) or language.pattern("months").search(plain))
