"""Applies the rules to messages: those of `english.json` for explicit cases in English, with the reasons for them under
"why" (instructions, preferences, names, facts, changes, corrections, introductions, notes), then `statements`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from afterturn.guard.pasted import typed_text
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
    conjugate,
    is_order,
    is_task,
    is_temporary,
    is_unsure,
    keep_own_sentences,
    pattern,
    split_clauses,
    state_about_user,
    trim,
)
from afterturn.learning.rules.sentences import Sentence, has_hint, may_introduce, plain_start, split_sentences
from afterturn.learning.rules.statements import find_statements
from afterturn.text import expand_pattern, load_patterns, regex
from afterturn.types import Target

USER = "user"
ASSISTANT = "assistant"
# A message with more lessons than this is a document.
LESSONS_MAX = 5
LESSON_CHARACTERS_MAX = 300
MESSAGES_MAX = 2_000
_CONTEXT_CHARACTERS_MAX = 4_000
_SENTENCE_CHARACTERS_MAX = 160

_TABLES = json.loads(Path(__file__).with_name("english.json").read_bytes())


def _compiled(lines: str | list[str]) -> re.Pattern[str]:
    return pattern(expand_pattern(lines, _TABLES["parts"]))


VERB = expand_pattern("<VERB>", _TABLES["parts"])
_RULES_BY_NAME = {
    name: tuple(
        Rule(
            **row
            | {part: _compiled(row[part]) for part in ("head", "requires", "excludes") if part in row}
            | {"target": Target(row.get("target", Target.USER))}
        )
        for row in rows
    )
    for name, rows in _TABLES["rules"].items()
}
_RULES = tuple(rule for name in ("CHANGES", "NAMES", "PREFERENCES", "FACTS", "STACK") for rule in _RULES_BY_NAME[name])
_PATTERNS = {name: _compiled(lines) for name, lines in _TABLES["patterns"].items()} | load_patterns(__file__)
_ALTERNATIVES = {name: list(map(_compiled, rows)) for name, rows in _TABLES["alternatives"].items()}
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
    is looked for in addition.
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
    kept = []
    for lesson in found:
        # Any fact that mentions a secret, even "the API key is in the vault".
        secret = _PATTERNS["GIVEN"] if lesson.kind in (RULE, PREFERENCE) else _PATTERNS["MENTIONED"]
        if not secret.search(lesson.text.replace("’", "'")) and not (lesson.kind == NAME and is_order(sentences)):
            kept.append(lesson)
    return [] if len(kept) > LESSONS_MAX else kept


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
    for found in _match_rules(clause, _RULES_BY_NAME["CORRECTED"] if clause.is_correction else ()):
        yield _to_lesson(found), found.end
    replacement = find_replacement(clause)
    if replacement is not None and (text := correct_answer(replacement, answer)):
        target = Target.USER if is_about_user(text) else Target.ENVIRONMENT
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
    if found.clause.is_correction or rule in _RULES_BY_NAME["STACK"]:
        kept, old = split_replaced(found.matched)
    kind = CORRECTION if (found.clause.is_correction or old) and rule.kind == FACT else rule.kind
    return Lesson(found._replace(matched=kept).statement, rule.target, kind, 0, old)


class Replacement(NamedTuple):
    """`old` is wrong, `new` is right."""

    old: str
    new: str


def split_replaced(text: str) -> tuple[str, str]:
    """ "Oslo, not Lyon" -> ("Oslo", "Lyon")."""
    found = _PATTERNS["REPLACED"].search(text)
    return (text[: found.start()], found.group("old").strip()) if found else (text, "")


def find_replacement(clause: Clause) -> Replacement | None:
    if clause.is_question:
        return None
    for shape in _ALTERNATIVES["REPLACEMENTS"]:
        found = shape.match(clause.plain)
        if found:
            return Replacement(*(clause.text[found.start(name) : found.end(name)].strip() for name in ("old", "new")))
    return None


def correct_answer(replacement: Replacement, answer: str) -> str:
    """The assistant's sentence with the right value. Empty if no sentence states the wrong value plainly."""
    if replacement.old.lower() == replacement.new.lower() or _PATTERNS["STATE"].match(replacement.new):
        return ""
    wrong = regex(rf"(?<![\w-]){re.escape(replacement.old)}(?![\w-])", re.IGNORECASE)
    for sentence in reversed(split_sentences(answer[-_CONTEXT_CHARACTERS_MAX:])):
        if (
            sentence.is_question
            or len(sentence.plain) > _SENTENCE_CHARACTERS_MAX
            or not _PATTERNS["DECLARES"].match(sentence.plain)
        ):
            continue
        if len(wrong.findall(sentence.plain)) == 1:
            # "You live in Oslo" -> "The user lives in Oslo".
            text = wrong.sub(lambda _: replacement.new, sentence.text)
            if text.lower().startswith("your "):
                return f"The user's {text[5:]}"
            return f"The user {conjugate(text[4:])}" if text.lower().startswith("you ") else capitalise(text)
    return ""


def is_about_user(text: str) -> bool:
    return text.startswith("The user") and not _PATTERNS["EQUIPMENT"].match(text)


def find_introduction(sentences: Sequence[Sentence]) -> Lesson | None:
    """Reads the beginning of a message, or the sentence after a greeting."""
    if not sentences:
        return None
    first = sentences[0]
    if _PATTERNS["GREETS"].fullmatch(first.plain):
        return _read(sentences[1], 0) if len(sentences) > 1 else None
    greeting = _PATTERNS["AFTER_GREETING"].match(first.plain)
    return None if greeting is None else _read(first, greeting.end())


def _read(sentence: Sentence, start: int) -> Lesson | None:
    found = _PATTERNS["IS_NAMED"].match(sentence.plain, start)
    if (
        found is None
        or _PATTERNS["NO_INTRODUCTION"].search(found["name"])
        or (sentence.is_question and not found["rest"].strip())
    ):
        return None
    name = sentence.text[found.start("name") : found.end("name")]
    return Lesson(f"The user's name is {name}", Target.USER, NAME, 0)


def find_note_start(plain: str, *, is_question: bool) -> int | None:
    """The position of the statement to remember, or None.

    "Can you remember that ...?" is a request too; "Remember that game?" is not.
    """
    if is_question and not _PATTERNS["POLITELY"].match(plain):
        return None
    for head in _ALTERNATIVES["HEADS"]:
        found = head.match(plain)
        if found:
            rest = plain[found.end() :]
            is_other = _PATTERNS["NO_STATEMENT"].match(rest) or _PATTERNS["TASK"].search(rest)
            states = len(rest.split()) >= 3 and not is_other and _PATTERNS["STATES"].search(rest)
            return found.end() if states else None
    return None


def find_standing_rule(clause: Clause) -> RuleMatch | None:
    """The rule up to the end of the sentence: exceptions and reasons are part of it."""
    opens_with_rule = clause.is_first and not clause.after_task and _opens_with_rule(clause.plain)
    if clause.is_question or not (opens_with_rule or _is_timed(clause.plain)):
        return None
    lead = _PATTERNS["LEADS"].match(clause.plain)
    start = lead.end() if lead else 0
    tail = _PATTERNS["TAIL"].search(clause.plain, start)
    end = tail.start() if tail else len(clause.plain)
    plain = clause.plain[start:end]
    if _PATTERNS["NOT_STANDING"].search(plain) or _PATTERNS["SAYING"].search(plain):
        return None
    return RuleMatch(_rule_for(plain), clause, clause.text[start:end], len(clause.plain))


def _opens_with_rule(plain: str) -> bool:
    """As in "never ..." or "answer in German from now on"."""
    ever = _PATTERNS["EVER_HEAD"].match(plain)
    if ever is not None:
        return bool(_PATTERNS["DO"].match(plain, ever.end()))
    start = _PATTERNS["DO_NOT"].match(plain)
    restate = start is not None and _PATTERNS["DO"].match(plain, start.end()) and _PATTERNS["ENDS_TIMED"].search(plain)
    return bool(restate or _PATTERNS["STOPPING"].match(plain))


def _is_timed(plain: str) -> bool:
    for at, head in enumerate(_ALTERNATIVES["TIMED_HEADS"]):
        found = head.match(plain)
        if found is not None:
            return bool(
                _PATTERNS["DO"].match(plain, found.end())
                or _PATTERNS["BE"].match(plain, found.end())
                or (at == 0 and _PATTERNS["TELLS_HOW"].match(plain, found.end()))
            )
    return False


def _rule_for(plain: str) -> Rule:
    wishes = plain.lower().startswith(("i want ", "i'd like "))
    before = _PATTERNS["BEFORE_VERB"].match(plain)
    verb = plain[before.end() if before else 0 :]
    # How the user wants to be served.
    of_user = wishes or bool(_PATTERNS["OF_USER"].match(verb) or _PATTERNS["OF_TALK"].search(verb))
    return Rule(
        kind=PREFERENCE if of_user else RULE,
        target=Target.USER if of_user else Target.ENVIRONMENT,
        head=_PATTERNS["EVER_HEAD"],
        is_instruction=not wishes,
    )
