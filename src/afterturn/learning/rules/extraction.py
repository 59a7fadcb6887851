"""Applies the rules: messages in, lessons out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from afterturn.guard.pasted import typed_text
from afterturn.learning.rules import english
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
    capitalise,
    is_order,
    is_task,
    is_temporary,
    is_unsure,
    keep_own_sentences,
    split_clauses,
    state_about_user,
    trim,
)
from afterturn.learning.rules.english import find_introduction, find_note_start, find_standing_rule
from afterturn.learning.rules.sentences import (
    Sentence,
    has_hint,
    may_introduce,
    plain_start,
    split_sentences,
)
from afterturn.learning.rules.statements import find_statements
from afterturn.text import load_patterns, regex
from afterturn.types import Target

USER = "user"
ASSISTANT = "assistant"
# A message with more lessons than this is a document.
LESSONS_MAX = 5
LESSON_CHARACTERS_MAX = 300
MESSAGES_MAX = 2_000

_RULES = tuple(rule for name in ("CHANGES", "NAMES", "PREFERENCES", "FACTS", "STACK") for rule in english.RULES[name])
_OF_USER = regex(r"(?<![\w'])(?:i|i'm|i've|me|my|mine|myself)(?![\w])", re.IGNORECASE)


def may_teach(text: str) -> bool:
    """False if `text` teaches nothing. True does not mean that it does: explicit rules are only looked for by hints."""
    return has_hint(text) or bool(find_statements(own_sentences(typed_text(text))))


def own_sentences(text: str) -> list[Sentence]:
    """The sentences that the user wrote and meant."""
    return [sentence.without_smile() for sentence in keep_own_sentences(split_sentences(text))]


def find_lessons(messages: Sequence[tuple[str, str]]) -> list[Lesson]:
    """The lessons of messages given as (role, text), in the order in which they were said.

    Only users teach. An assistant's message is read to find out what a user's correction is about. At most the last
    `MESSAGES_MAX` messages are read. A statement that was repeated counts once, at its last position.
    """
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
        own = typed_text(text)
        for lesson in find_lessons_in(own, answer, by_rules=has_hint(own)) if own else ():
            found.pop(lesson.text.casefold(), None)
            found[lesson.text.casefold()] = lesson._replace(message=at)
    return list(found.values())


def find_lessons_in(text: str, answer: str, *, by_rules: bool = True) -> list[Lesson]:
    """The lessons of one user message. `answer` is the assistant's message before it.

    Without `by_rules` only statements are looked for. In a sentence in which a rule finds something, only a preference
    is looked for beside it.
    """
    sentences = own_sentences(text)
    introduced = find_introduction(sentences) if by_rules and may_introduce(text) else None
    found = [] if introduced is None else [introduced]
    stated = find_statements(sentences)
    for at, sentence in enumerate(sentences):
        after_task = any(map(is_task, sentences[:at]))
        explicit = list(_find_in_sentence(sentence._replace(after_task=after_task), answer)) if by_rules else []
        found += explicit
        kinds = {lesson.kind for lesson in explicit}
        if at in stated and (not kinds or stated[at].kind == PREFERENCE not in kinds):
            found.append(stated[at])
    found = [lesson for lesson in found if not _contains_secret(lesson)]
    if is_order(sentences):
        found = [lesson for lesson in found if lesson.kind != NAME]
    return [] if len(found) > LESSONS_MAX else found


def _find_in_sentence(sentence: Sentence, answer: str) -> Iterator[Lesson]:
    if is_temporary(sentence.plain):
        return
    read_to = 0
    for clause in split_clauses(sentence):
        if clause.start < read_to:
            continue
        for lesson, end in _find_in_clause(clause, answer):
            if 0 < len(lesson.text) <= LESSON_CHARACTERS_MAX:
                read_to = clause.start + end
                yield lesson
            break


def _find_in_clause(clause: Clause, answer: str) -> Iterator[tuple[Lesson, int]]:
    note = _find_note(clause)
    if note is not None:
        yield note, len(clause.plain)
    if clause.is_question or is_unsure(clause.plain):
        return
    rule = find_standing_rule(clause)
    if rule is not None:
        yield _to_lesson(rule), rule.end
    for found in _match_rules(clause):
        yield _to_lesson(found), found.end
    for found in _match_rules(clause, english.RULES["CORRECTED"] if clause.is_correction else ()):
        yield _to_lesson(found), found.end
    replacement = english.find_replacement(clause)
    if replacement is not None and (text := english.correct_answer(replacement, answer)):
        target = Target.USER if english.is_about_user(text) else Target.ENVIRONMENT
        yield Lesson(trim(text), target, CORRECTION, 0, replacement.old), len(clause.plain)


def _match_rules(clause: Clause, rules: Sequence[Rule] = _RULES) -> Iterator[RuleMatch]:
    return (found for rule in rules if (found := rule.find(clause)) is not None)


def _find_note(clause: Clause) -> Lesson | None:
    start = find_note_start(clause.plain, is_question=clause.is_question)
    if start is None or is_unsure(clause.plain[start:]):
        return None
    stated = Clause(clause.text[start:], clause.plain[start:], 0)
    text = trim(stated.text)
    standing = find_standing_rule(stated)
    if standing is not None:
        return _to_lesson(standing)
    target = Target.USER if _OF_USER.search(stated.plain) else Target.ENVIRONMENT
    rule = next((found.rule for found in _match_rules(stated)), None)
    text = state_about_user(text) if target is Target.USER else capitalise(text)
    return Lesson(text, rule.target if rule else target, rule.kind if rule else FACT, 0)


def _to_lesson(found: RuleMatch) -> Lesson:
    rule = found.rule
    kept, old = found.matched, ""
    if found.clause.is_correction or rule in english.RULES["STACK"]:
        kept, old = english.split_replaced(found.matched)
    kind = CORRECTION if (found.clause.is_correction or old) and rule.kind == FACT else rule.kind
    return Lesson(found._replace(matched=kept).statement, rule.target, kind, 0, old)


_PATTERNS = load_patterns(__file__)


def _contains_secret(lesson: Lesson) -> bool:
    """True for any fact that mentions a secret, even "the API key is in the vault"."""
    shape = _PATTERNS["GIVEN"] if lesson.kind in (RULE, PREFERENCE) else _PATTERNS["MENTIONED"]
    return bool(shape.search(lesson.text.replace("’", "'")))
