"""Passwords, PINs and keys: whoever tells one has it recorded as the guard leaves it, and no rule learns it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from afterturn.learning.rules import english, languages
from afterturn.learning.rules.clauses import (
    CORRECTION,
    FACT,
    NAME,
    PREFERENCE,
    RULE,
    Clause,
    Lesson,
    Rule,
    RuleMatch,
    begins_play,
    capitalised,
    clauses_of,
    is_order,
    is_passing,
    is_task,
    is_unsure,
    own_words,
    pattern,
    told_of_user,
    trimmed,
)
from afterturn.learning.rules.english import find_introduction, find_standing_rule, start_of_note
from afterturn.learning.rules.sentences import Sentence, may_introduce, may_teach, plain_start, sentences_of, unpasted
from afterturn.types import Target

_HARMLESS = r"""(?![\s-]?(?:managers?|polic(?:y|ies)|resets?|rotation|hash\w*|fields?|prompts?|vaults?|stores?|columns?|
    generators?|protect\w*|requirements?|lengths?|headers?|formats?|prefix\w*|management)\b)"""
_ENGLISH = r"""\bpass[\s-]?(?:word|phrase|code|wd)\b|\b(?:pwd|pw|passwd)\b
    |\b(?:user's|their|our|my)\s(?:\w+\s)?passwords\b
    |(?-i:\bPIN\b)|\bpin[\s-](?:code|number)\b
    |\b(?:user's|their|our|my|the|card|card's|door|phone|sim|bank|alarm)\spin\b
    |\b(?:api|secret|access|private|deploy|ssh|encryption|signing|licen[cs]e|master|recovery)[\s-](?:\w+\s)?key\b
    |\b(?:api|access|auth|authentication|bearer|refresh|secret|session)[\s-]token\b
    |\bclient\ssecret\b|\b(?:seed|recovery|secret)\sphrase\b|\bcredentials\s(?:are|for)\b|\b(?:access|security)\scode\b"""
_OTHERS = r"""\b(?:passwort|kennwort|passphrase|geheimzahl|zugangsdaten|zugangscode)\b
    |\b(?:api|zugangs|zugriffs|geheim|lizenz)[\s-]?schlüssel|\b(?:geheim|privat)e[nr]?\sschlüssel
    |\bmot\sde\spasse\b|\bphrase\s(?:secrète|de\spasse)|\bcode\s(?:pin|secret|d'accès)
    |\bclé\s(?:d'api|api|de\sl'api|secrète|privée|d'accès)
    |\bcontrase[ñn]a\b|\bfrase\s(?:secreta|de\scontraseña)|\bcódigo\s(?:pin|secreto|de\sacceso)
    |\b(?:mi|nuestra|la)\sclave\b|\bclave\s(?:secreta|privada|api|de\s(?:acceso|api|la\sapi))
    |\b(?:mein\w*|die|der|le|mon|el|mi)\spin\b"""
_SECRET = rf"(?:{_ENGLISH}|{_OTHERS}){_HARMLESS}"

_MENTIONED = pattern(_SECRET)
# A rule may speak of passwords, as long as it holds none.
_GIVEN = pattern(
    rf"""(?:{_SECRET})(?:\s[\w'-]+){{0,4}}?\s*(?:\b(?:is|are|lautet|ist|est|es)\b|[=:])\s*\S
    |\b(?:use|enter|type|try)\s(?:(?:the|my|our|their|this|as)\s)?(?:\w+\s)?(?:{_SECRET})
        \s(?!(?:for|from|in|to|when|on|at|only|twice|and|or|of|that|which|with|before|after|if|unless)\b)\S
    |(?:{_SECRET})\s\S*\d"""
)


def holds_secret(lesson: Lesson) -> bool:
    """Of a statement, rather too often: "the API key is in the vault" is not learned either."""
    shape = _GIVEN if lesson.kind in (RULE, PREFERENCE) else _MENTIONED
    return bool(shape.search(lesson.text.replace("’", "'")))


# From messages to lessons. Only users teach; what an assistant said tells what a correction corrects.

USER = "user"
ASSISTANT = "assistant"
# A message that teaches more than this is a document.
LESSONS_MAX = 5
LESSON_CHARACTERS_MAX = 300
MESSAGES_MAX = 2_000

_RULES: tuple[Rule, ...] = (
    *english.CHANGES,
    *english.NAMES,
    *english.PREFERENCES,
    *english.FACTS,
    *english.STACK,
)
_OF_USER = re.compile(r"(?<![\w'])(?:i|i'm|i've|me|my|mine|myself)(?![\w])", re.IGNORECASE)


def find_lessons(messages: Sequence[tuple[str, str]]) -> list[Lesson]:
    """Of very long conversations, the last `MESSAGES_MAX` messages are read. What was said twice counts as said last:
    whoever goes back to what they said first means that."""
    found: dict[str, Lesson] = {}
    first = max(0, len(messages) - MESSAGES_MAX)
    answer = ""
    for at in range(first, len(messages)):
        role, text = messages[at]
        if role == ASSISTANT:
            answer = text
        if role != USER:
            continue
        if begins_play(plain_start(text)):
            break
        said = unpasted(text) if may_teach(text) else ""
        for lesson in lessons_of(said, answer) if said else ():
            found.pop(lesson.text.casefold(), None)
            found[lesson.text.casefold()] = replace(lesson, message=at)
    return list(found.values())


def lessons_of(text: str, answer: str) -> list[Lesson]:
    """What one message of a user teaches after that answer, without a look at what makes it worth the effort."""
    sentences = [sentence.without_smile() for sentence in own_words(sentences_of(text))]
    introduced = find_introduction(sentences) if may_introduce(text) else None
    found = [] if introduced is None else [introduced]
    for at, sentence in enumerate(sentences):
        tasked = any(map(is_task, sentences[:at]))
        found += _in_sentence(replace(sentence, tasked=tasked), answer)
    found = [lesson for lesson in found if not holds_secret(lesson)]
    if is_order(sentences):
        found = [lesson for lesson in found if lesson.kind != NAME]
    return [] if len(found) > LESSONS_MAX else found


def _in_sentence(sentence: Sentence, answer: str) -> Iterator[Lesson]:
    if is_passing(sentence.plain):
        return
    known = 0
    for clause in clauses_of(sentence):
        if clause.start < known:
            continue
        for lesson, end in _in_clause(clause, answer):
            if 0 < len(lesson.text) <= LESSON_CHARACTERS_MAX:
                known = clause.start + end
                yield lesson
            break
    if not known:
        yield from languages.find(sentence)


def _in_clause(clause: Clause, answer: str) -> Iterator[tuple[Lesson, int]]:
    note = _note(clause)
    if note is not None:
        yield note, len(clause.plain)
    if clause.asks or is_unsure(clause.plain):
        return
    rule = find_standing_rule(clause)
    if rule is not None:
        yield _written(rule), rule.end
    for found in _by_rules(clause):
        yield _written(found), found.end
    for found in _by_rules(clause, english.CORRECTED if clause.corrects else ()):
        yield _written(found), found.end
    swap = english.find_swap(clause)
    if swap is not None:
        text = english.restated(swap, answer)
        if text:
            target = Target.USER if english._is_of_user(text) else Target.ENVIRONMENT
            yield Lesson(trimmed(text), target, CORRECTION, 0, swap.old), len(clause.plain)


def _by_rules(clause: Clause, rules: Sequence[Rule] = _RULES) -> Iterator[RuleMatch]:
    for rule in rules:
        found = rule.find(clause)
        if found is not None:
            yield found


def _note(clause: Clause) -> Lesson | None:
    start = start_of_note(clause.plain, asks=clause.asks)
    if start is None or is_unsure(clause.plain[start:]):
        return None
    stated = Clause(clause.said[start:], clause.plain[start:], 0)
    said = trimmed(stated.said)
    known = find_standing_rule(stated)
    if known is not None:
        return _written(known)
    target = Target.USER if _OF_USER.search(stated.plain) else Target.ENVIRONMENT
    rule = next((found.rule for found in _by_rules(stated)), None)
    text = told_of_user(said) if target is Target.USER else capitalised(said)
    return Lesson(text, rule.target if rule else target, rule.kind if rule else FACT, 0)


def _written(found: RuleMatch) -> Lesson:
    rule = found.rule
    kept, old = english.split_replaced(found.said) if found.clause.corrects or _is_stack(rule) else (found.said, "")
    kind = CORRECTION if (found.clause.corrects or old) and rule.kind == FACT else rule.kind
    return Lesson(replace(found, said=kept).text, rule.target, kind, 0, old)


def _is_stack(rule: Rule) -> bool:
    return rule in english.STACK
