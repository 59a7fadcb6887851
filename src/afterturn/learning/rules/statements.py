"""Finds what a sentence states about the user, their people, their things or their project, in the user's own words.

A sentence is cut into parts at commas and conjunctions. A part states something if it begins with a known kind of
subject (the user, one of their people, a thing) and says something definite (a name, a number, a day, a trait).
Questions, requests, plans, guesses, jokes and reported speech state nothing, and end the statement that they follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from afterturn.learning.rules.clauses import FACT, NAME, PREFERENCE, RULE, Lesson, capitalise, is_task, trim
from afterturn.learning.rules.sentences import Sentence
from afterturn.learning.rules.vocabulary import JAPANESE, KANA, WordLists, find_language
from afterturn.text import load_patterns, regex, terms
from afterturn.types import Target

STATEMENT_CHARACTERS_MAX = 240
_WORDS_MIN = 2
_SUBJECT_WORDS_MAX = 5
# A value is close to its verb: "the gate is 82", not "the readers are builders who know clause 18".
_VALUE_WORDS_MAX = 8
_CONTRAST_WORDS_MAX = 4

_PATTERNS = load_patterns(__file__)
_AND = regex(r"\s(?:and|then|und|et|y|e|en)\s")
_NUMBER = regex(r"\d")
_ING = regex(r"\w+ing\b")
# The user's name is for the rules: with an order, it is the name to call out.
_CALLED = regex(r"(?<!\w)name(?!\w)")
# Where every noun has a capital, only the word after these is likely to be a name.
_PLACE = regex(r"(?<!\w)(?:in|bei|nach|als|namens)\s[A-ZÄÖÜ]\w+")


class _Part(NamedTuple):
    start: int
    end: int
    states: bool
    is_barred: bool
    points_back: bool


def find_statements(sentences: Sequence[Sentence]) -> dict[int, Lesson]:
    """At most one lesson for each sentence, by the position of the sentence."""
    text = " ".join(sentence.plain for sentence in sentences)
    if KANA.search(text):
        return dict(_find_japanese(sentences))
    found: dict[int, Lesson] = {}
    language = None if _PATTERNS["SOURCE"].search(text) else find_language(text)
    for at, sentence in enumerate(sentences) if language is not None else ():
        assert language is not None
        plain = sentence.plain.lower()
        if sentence.is_question or _asks(plain, language) or language.pattern("says").search(plain):
            continue
        lesson = _find_explicit(sentence, language) or _find_rule(sentences, at, language)
        lesson = lesson or _find_statement(sentences, at, language)
        if lesson is None and at and (lesson := _find_continued(sentences[at - 1], sentence, language)) is not None:
            found.pop(at - 1, None)
        if lesson is not None:
            found[at] = lesson
    return found


def _find_statement(sentences: Sequence[Sentence], at: int, language: WordLists) -> Lesson | None:
    sentence = sentences[at]
    kept = _kept_parts(sentence, language)
    if not kept:
        return None
    is_whole = kept[-1].end == len(sentence.plain)
    prefers = language.pattern("preferring").search(sentence.plain.lower(), kept[0].start)
    compares = prefers is not None and language.pattern("than").search(sentence.plain.lower(), prefers.end())
    kind = PREFERENCE if compares else FACT
    text = f"{trim(sentence.text[kept[0].start : kept[-1].end])}{_full_stop(sentence) if is_whole else ''}"
    following = sentences[at + 1] if is_whole and at + 1 < len(sentences) else None
    if following is not None and language.pattern("life").search(text.lower()) and not following.is_question:
        # "We bought a car! A blue Kia, 2021."
        plain = following.plain.lower()
        is_new = any(language.pattern(name).match(plain) for name in ("it", "first")) or _is_barred(plain, language)
        if not is_new and _is_definite(following.plain, language):
            text = f"{text.removesuffix('.')}{sentence.ending or '.'} {following.text}{_full_stop(following)}"
    return _to_lesson(text, kind)


def _kept_parts(sentence: Sentence, language: WordLists) -> list[_Part]:
    """From the first part that states something, or the one before it that it refers to, to the next barred one."""
    kept: list[_Part] = []
    before: _Part | None = None
    for part in _split(sentence, language):
        if part.is_barred:
            if kept or language.pattern("unsure").search(sentence.plain.lower(), part.start, part.end):
                break
            before = None
            continue
        if kept or (part.states and not part.points_back):
            kept.append(part)
        elif part.states and before is not None:
            kept += [before, part]
        before = part
    return kept


def _to_lesson(text: str, kind: str = FACT) -> Lesson | None:
    if len(text) > STATEMENT_CHARACTERS_MAX or len(text.split()) < _WORDS_MIN:
        return None
    is_project = (
        _PATTERNS["CODE"].search(text)
        or _PATTERNS["PROJECT"].search(text)
        or "`" in text
        or _PATTERNS["CHOICE"].search(text)
    )
    return Lesson(text, Target.ENVIRONMENT if is_project else Target.USER, kind, 0, is_quote=True)


def _full_stop(sentence: Sentence) -> str:
    return "." if sentence.ending == "." else ""


def _find_explicit(sentence: Sentence, language: WordLists) -> Lesson | None:
    """How the assistant should answer, the user's name, what it is asked to remember, and what it must never do."""
    plain = sentence.plain.lower()
    of = language.pattern
    start = _after_leads(plain, 0, len(plain), language)
    if (found := of("names").fullmatch(plain, start)) is not None:
        # Not "call me tomorrow". Names of several words need capitals.
        first, *others = sentence.text[found.start(found.lastindex or 0) :].split()
        lists = (language.words.get(name, "") for name in ("no_names", "common", "soon", "adverbs"))
        if first.lower() not in " ".join(lists).split() and all(word[0].isupper() for word in others):
            return Lesson(sentence.text[start:], Target.USER, NAME, 0, is_quote=True)
    if (note := of("notes").fullmatch(plain, start)) is not None:
        rest = note.start(note.lastindex or 0)
        is_task = of("deictic").search(plain, rest) or of("unsure").search(plain, rest)
        return None if is_task else _to_lesson(sentence.text[rest:])
    if of("bans").fullmatch(plain, start):
        return Lesson(sentence.text[start:], Target.ENVIRONMENT, RULE, 0, is_quote=True)
    return _find_manner(sentence, language)


def _find_manner(sentence: Sentence, language: WordLists) -> Lesson | None:
    """How the assistant should answer or reach the user: "keep your answers short"."""
    plain = sentence.plain.lower()
    for found in (None, *_PATTERNS["PART"].finditer(plain)):
        start = _after_leads(plain, found.end() if found else 0, len(plain), language)
        manner = language.pattern("manner").match(plain, start)
        if manner:
            breaks = _PATTERNS["PART"].finditer(plain, start, manner.end())
            reason = (at.start() for at in breaks if language.pattern("first").match(plain, at.end()))
            text = capitalise(trim(sentence.text[start : next(reason, manner.end())]))
            return Lesson(text, Target.USER, PREFERENCE, 0, is_quote=True)
    return None


def _find_rule(sentences: Sequence[Sentence], at: int, language: WordLists) -> Lesson | None:
    """How things are done in a project: "commit messages must start with the ticket"."""
    sentence = sentences[at]
    start = _after_leads(sentence.plain.lower(), 0, len(sentence.plain), language)
    plain = sentence.plain[start:].lower()
    must = language.pattern("must").search(plain)
    if must is None or any(map(is_task, sentences[:at])) or language.pattern("unsure").search(plain):
        return None
    subject = plain[: must.start()].strip()
    is_project = _PATTERNS["PROJECT"].search(subject) and _is_subject(subject, language)
    if (
        not is_project
        or language.pattern("my").search(subject)
        or _AND.search(subject)
        or _PATTERNS["THIS"].search(plain)
    ):
        return None
    text = trim(sentence.text[start:])
    is_fit = len(text.split()) > 3 and len(text) <= STATEMENT_CHARACTERS_MAX
    return Lesson(text, Target.ENVIRONMENT, RULE, 0, is_quote=True) if is_fit else None


def _find_continued(before: Sentence, sentence: Sentence, language: WordLists) -> Lesson | None:
    """ "My daughter wants one too. She's allergic to nickel": both sentences together."""
    plain = sentence.plain.lower()
    if before.is_question or not language.pattern("pronouns").match(plain):
        return None
    if not language.pattern("person").search(before.plain.lower()) or _is_barred(before.plain.lower(), language):
        return None
    end = 0
    for part in _split(sentence, language):
        if part.is_barred:
            break
        end = part.end
    if not language.pattern("traits").search(plain, 0, end):
        return None
    return _to_lesson(f"{before.text}. {trim(sentence.text[:end])}")


def _find_japanese(sentences: Sequence[Sentence]) -> Iterator[tuple[int, Lesson]]:
    for at, sentence in enumerate(sentences):
        lead = JAPANESE["leads"].match(sentence.plain)
        start = lead.end() if lead else 0
        plain, text = sentence.plain[start:], sentence.text[start:]
        if (note := JAPANESE["notes"].fullmatch(plain)) is not None:
            yield at, Lesson(note[1] or note[2], Target.USER, FACT, 0, is_quote=True)
        elif JAPANESE["names"].fullmatch(plain) and not sentence.is_question:
            yield at, Lesson(text, Target.USER, NAME, 0, is_quote=True)
        elif JAPANESE["manner"].search(plain):
            yield at, Lesson(text, Target.USER, PREFERENCE, 0, is_quote=True)
        elif not sentence.is_question and not JAPANESE["barred"].search(plain) and _states_in_japanese(plain):
            yield at, Lesson(text, Target.USER, FACT, 0, is_quote=True)


def _states_in_japanese(plain: str) -> bool:
    topic = JAPANESE["topic"].search(plain)
    rest = plain[topic.end() :] if topic else plain
    if JAPANESE["changes"].search(rest):
        return topic is not None or JAPANESE["value"].search(plain) is not None
    if JAPANESE["recurs"].search(plain):
        return True
    if topic is None:
        return False
    # Only は and も surely follow a topic, so the other marks need more than a number.
    is_topic = topic.group().endswith(("は", "も"))
    return bool(JAPANESE["traits"].search(plain) or (is_topic and JAPANESE["value"].search(rest)))


def _split(sentence: Sentence, language: WordLists) -> Iterator[_Part]:
    plain = sentence.plain.lower()
    ends = [*(found.span() for found in _PATTERNS["PART"].finditer(sentence.plain)), (len(plain), len(plain))]
    start = 0
    for at, (end, following) in enumerate(ends):
        begin = _after_leads(plain, start, end, language)
        if begin < end:
            barred = _is_barred(plain[begin:end], language)
            # The next part often has the value: "we cache in process, 60 seconds".
            after = sentence.plain[end : ends[min(at + 1, len(ends) - 1)][0]]
            states = not barred and _states(sentence.plain[begin:end], after, language)
            yield _Part(begin, end, states, barred, bool(language.pattern("points_back").match(plain, begin, end)))
        start = following


def _after_leads(plain: str, start: int, end: int, language: WordLists) -> int:
    leads = language.pattern("leads")
    while start < end:
        found = leads.match(plain, start, end)
        # "No vivo en Madrid" and "no nuts for my son" deny; "no, I live in Leeds" corrects.
        if found is None or (
            found.group().strip() in ("no", "não") and plain[found.end() : end].lstrip()[:1].isalnum()
        ):
            return start
        start = found.end()
        while start < end and not (plain[start].isalnum() or plain[start] == "\ufffc"):
            start += 1
    return start


def _asks(plain: str, language: WordLists) -> bool:
    return bool(language.pattern("asks").match(plain, _after_leads(plain, 0, len(plain), language)))


def _is_barred(plain: str, language: WordLists) -> bool:
    """Whether it is a request, a question, a guess, a plan or the like."""
    of = language.pattern
    return bool(of("orders").match(plain) or of("asks").match(plain) or of("unsure").search(plain))


def _states(text: str, after: str, language: WordLists) -> bool:
    plain = text.lower()
    if language.pattern("deictic").search(plain) or language.pattern("subordinate").match(plain):
        return False
    if _PATTERNS["THIS"].search(plain) or _PATTERNS["TASK"].search(plain):
        return False
    return (
        _states_about_self(text, after, language)
        or _states_about_person(text, after, language)
        or _states_about_thing(text, after, language)
    )


def _states_about_self(text: str, after: str, language: WordLists) -> bool:
    """ "I teach on Wednesdays", "we moved to Kiel", "I'm deaf in one ear", "I've got two kids"."""
    plain = text.lower()
    of = language.pattern
    found = of("being").match(plain)
    if found:
        rest = plain[found.end() :]
        is_timed = _is_dated(rest, language) or of("soon").search(rest)
        lasts = of("since").search(rest) and is_timed and not _ING.match(rest)
        if _has_trait_early(rest, language) or lasts:
            return True
    if (found := of("preferring").search(plain)) is not None:
        # "I prefer the morning flight" is a choice for the task at hand; "window seats to aisle seats" is not. English
        # preferences without a comparison are for the rules.
        rest = plain[found.end() :].strip()
        is_plain = not of("common").match(rest) and language.code != "en"
        return is_plain or of("than").search(f"{rest}{after}".lower()) is not None
    found = of("doing").search(plain)
    if found:
        rest = f"{text[found.start() :]}{after}"
        names = ("contrast", "always", "since", "soon", "life")
        return _is_definite(rest, language) or any(of(name).search(rest.lower()) for name in names)
    found = of("having").search(plain)
    if found:
        rest = text[found.end() :]
        has_person = of("people").search(rest.lower()) is not None
        recurs = _is_dated(rest.lower(), language) and of("always").search(rest.lower()) is not None
        knows = has_person and (_is_definite(f"{rest}{after}", language) or of("numbers").search(rest.lower()))
        return bool(knows) or recurs or _has_trait_early(rest.lower(), language)
    return False


def _states_about_person(text: str, after: str, language: WordLists) -> bool:
    """ "My sister Ruth is coeliac", "childminder is Pauline", "Marcel is our frontend guy"."""
    plain = text.lower()
    of = language.pattern
    if of("is_person").search(plain) and (of("points_back").match(plain) or not of("it").match(plain)):
        return True
    found = of("person").search(plain)
    if found is None:
        return False
    name = None if language.has_capital_nouns else _PATTERNS["NAME"].match(text, found.end() + 1)
    if name is not None and text[name.end() :].strip():
        return True
    verb = of("verb").search(plain, found.end())
    if verb is not None and of("lasts").fullmatch(verb.group()):
        return True
    if verb is None and not (found.start() == 0 and len(plain[found.end() :].split()) > 2):
        return False
    # "Her mum is doing fine, she's called Margaret".
    rest = f"{text[found.start() :]}{after if of('pronouns').match(after.lower().lstrip(' ,')) else ''}"
    if of("soon").search(rest.lower()):
        return True
    return _is_definite(rest, language) or of("named").match(plain, found.end()) is not None


def _states_about_thing(text: str, after: str, language: WordLists) -> bool:
    """ "The spare key is with Jean at number 14", "bin day is Thursday", "the gate is 82, not 85", "weight: 84"."""
    plain = text.lower()
    of = language.pattern
    if of("measured").match(plain):
        return True
    verb = of("verb").search(plain)
    if verb is None or not _is_subject(plain[: verb.start()].strip(), language):
        return False
    subject, rest = plain[: verb.start()], " ".join(plain[verb.end() :].split()[:_VALUE_WORDS_MAX])
    if _is_dated(rest, language):
        return True
    value = _NUMBER.search(rest) or _PATTERNS["CODE"].search(rest)
    name = None if language.has_capital_nouns else _PATTERNS["NAME"].search(text, verb.start())
    is_theirs = of("my").search(subject) is not None
    is_named = name is not None and name.start() <= verb.end() + 1 and not _CALLED.search(subject)
    if is_theirs and (is_named if of("be").fullmatch(verb.group()) else value):
        return True
    if _is_contrasted(f"{text[verb.end() :]}{after}", language):
        return True
    if not any(of(kind).search(subject) for kind in ("things", "measures", "amount", "people")):
        return False
    return value is not None or (name is not None and is_theirs)


def _is_contrasted(rest: str, language: WordLists) -> bool:
    """ "82, not 85": a number or a name, and soon after it what it is not."""
    value = _NUMBER.search(rest) or (None if language.has_capital_nouns else _PATTERNS["NAME"].search(rest))
    following = "" if value is None else " ".join(rest[value.start() :].lower().split()[:_CONTRAST_WORDS_MAX])
    return bool(following) and language.pattern("contrast").search(following) is not None


def _is_subject(subject: str, language: WordLists) -> bool:
    """Whether it is short and names something: not "it", "the", "I"."""
    of = language.pattern
    if not 0 < len(subject.split()) <= _SUBJECT_WORDS_MAX or of("the").fullmatch(subject):
        return False
    return not (of("it").search(subject) or of("first").search(subject))


def _is_definite(text: str, language: WordLists) -> bool:
    """Whether it has a number, a day, a trait, a name or a path."""
    plain = text.lower()
    of = language.pattern
    if _NUMBER.search(plain) or _PATTERNS["CODE"].search(plain) or _PATTERNS["TITLE"].search(plain):
        return True
    if of("traits").search(plain) or _is_dated(plain, language):
        return True
    if language.has_capital_nouns:
        return _PLACE.search(text) is not None
    return not text.isupper() and _PATTERNS["NAME"].search(text) is not None


def _has_trait_early(rest: str, language: WordLists) -> bool:
    """ "deaf in one ear", but not "deaf to your excuses"."""
    found = language.pattern("traits").search(rest)
    if found is None or len(rest[: found.start()].split()) > 2:
        return False
    return found.group().startswith("al") or not rest.startswith((" to ", " from ", " by "), found.end())


def _is_dated(plain: str, language: WordLists) -> bool:
    return bool(language.pattern("weekdays").search(plain) or language.pattern("months").search(plain))


_ADDED_DATE = regex(r"\s?[(（][^()（）]{0,40}\d{4}[^()（）]{0,20}[)）]")
_VALUE_WORD = regex(r"\d[\d.,:]*")


class _StatedValue(NamedTuple):
    """The value that a statement gives to its subject: its kinds, their words, and the words around them."""

    subject: frozenset[str]
    values: dict[str, frozenset[str]]
    others: frozenset[str]
    is_change: bool


def supersedes(newer: str, older: str) -> bool:
    """Whether two statements in users' words give the same subject different values: "bin day is tuesday now".

    Days, numbers and names are compared. If the newer one has no word such as "now", only numbers count, and all other
    words must be the same.
    """
    one, other = _read_value(newer), _read_value(older)
    if one is None or other is None or one.subject != other.subject:
        return False
    shared = one.values.keys() & other.values.keys()
    if not shared or any(one.values[kind] & other.values[kind] for kind in shared):
        return False
    # There may be a second rehearsal or a second friend, but hardly a second hourly rate.
    is_same = shared == {"number"} and one.others == other.others and one.values.keys() == other.values.keys()
    return one.is_change or is_same


def _read_value(text: str) -> _StatedValue | None:
    plain = _ADDED_DATE.sub("", text)
    language = find_language(plain)
    if language is None or KANA.search(plain):
        return None
    end = _PATTERNS["PART"].search(plain)
    first = plain[: end.start()] if end else plain
    verb = language.pattern("verb").search(first.lower())
    if verb is None or not _is_subject(first[: verb.start()].lower().strip(), language):
        return None
    contrast = language.pattern("contrast").search(first.lower(), verb.end())
    first = first[: contrast.start()] if contrast else first
    subject, rest = frozenset(terms(first[: verb.start()])), first[verb.end() :].lower()
    days = (*language.pattern("weekdays").findall(rest), *language.pattern("months").findall(rest))
    names = () if language.has_capital_nouns else _PATTERNS["NAME"].findall(first, verb.start())
    found = {
        "day": frozenset(day.rstrip("s") for day in days),
        "number": frozenset(_VALUE_WORD.findall(rest)),
        "name": frozenset(name.lower() for name in names),
    }
    values = {kind: words for kind, words in found.items() if words}
    said = frozenset(word for words in found.values() for word in words)
    others = frozenset(terms(rest)).difference(*(terms(word) for word in said)) if said else frozenset()
    return (
        _StatedValue(subject, values, others, language.pattern("now").search(plain.lower()) is not None)
        if subject
        else None
    )
