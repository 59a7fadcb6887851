"""The rules for English: instructions, preferences, names, facts, changes, corrections, introductions, notes.

Their patterns and word lists are in `english.json`, with the reasons for them under "why".
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NotRequired, TypedDict

from afterturn.learning.rules.clauses import (
    NAME,
    PREFERENCE,
    RULE,
    Clause,
    Lesson,
    Rule,
    RuleMatch,
    capitalise,
    conjugate,
    pattern,
    state_about_user,
    state_instruction,
)
from afterturn.learning.rules.sentences import Sentence, split_sentences
from afterturn.types import Target

_CONTEXT_CHARACTERS_MAX = 4_000
_SENTENCE_CHARACTERS_MAX = 160


class _RuleRow(TypedDict):
    """The fields of `Rule`. `is_instruction`: it is restated as an instruction, not as a fact about the user."""

    kind: str
    head: str
    target: NotRequired[str]
    requires: NotRequired[str]
    excludes: NotRequired[str]
    needs_name: NotRequired[bool]
    stops_at_and: NotRequired[bool]
    keeps_only_required: NotRequired[bool]
    is_instruction: NotRequired[bool]


class _EnglishTables(TypedDict):
    parts: dict[str, str | list[str]]
    patterns: dict[str, str | list[str]]
    alternatives: dict[str, list[str]]
    rules: dict[str, list[_RuleRow]]


_TABLES: _EnglishTables = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def _expand(lines: str | list[str]) -> str:
    """Puts the parts that a text names, as in `<VERB>`, in their places. A long text is a list of lines."""
    return re.sub("<([A-Z_]+)>", lambda found: _expand(_TABLES["parts"][found[1]]), "".join(lines))


def _read_rule(row: _RuleRow) -> Rule:
    return Rule(
        row["kind"],
        Target(row.get("target", Target.USER)),
        pattern(_expand(row["head"])),
        pattern(_expand(row["requires"])) if "requires" in row else None,
        pattern(_expand(row["excludes"])) if "excludes" in row else None,
        needs_name=row.get("needs_name", False),
        stops_at_and=row.get("stops_at_and", False),
        keeps_only_required=row.get("keeps_only_required", False),
        restate=state_instruction if row.get("is_instruction") else state_about_user,
    )


VERB = _expand("<VERB>")
RULES = {name: tuple(_read_rule(row) for row in rows) for name, rows in _TABLES["rules"].items()}
_PATTERNS = {name: pattern(_expand(text)) for name, text in _TABLES["patterns"].items()}
_ALTERNATIVES = {name: [pattern(_expand(text)) for text in row] for name, row in _TABLES["alternatives"].items()}


def _is_instruction_about_user(instruction: str) -> bool:
    """Whether an instruction that begins with its verb says how the user wants to be served."""
    return bool(_PATTERNS["OF_USER"].match(instruction) or _PATTERNS["OF_TALK"].search(instruction))


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
    wrong = re.compile(rf"(?<![\w-]){re.escape(replacement.old)}(?![\w-])", re.IGNORECASE)
    for sentence in reversed(split_sentences(answer[-_CONTEXT_CHARACTERS_MAX:])):
        if (
            sentence.is_question
            or len(sentence.plain) > _SENTENCE_CHARACTERS_MAX
            or not _PATTERNS["DECLARES"].match(sentence.plain)
        ):
            continue
        if len(wrong.findall(sentence.plain)) == 1:
            return _state_answer(wrong.sub(lambda _: replacement.new, sentence.text))
    return ""


def is_about_user(text: str) -> bool:
    return text.startswith("The user") and not _PATTERNS["EQUIPMENT"].match(text)


def _state_answer(text: str) -> str:
    """ "You live in Oslo" -> "The user lives in Oslo"."""
    lower = text.lower()
    if lower.startswith("your "):
        return f"The user's {text[5:]}"
    if lower.startswith("you "):
        return f"The user {conjugate(text[4:])}"
    return capitalise(text)


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
            return found.end() if _is_statement(plain[found.end() :]) else None
    return None


def _is_statement(rest: str) -> bool:
    if len(rest.split()) < 3 or _PATTERNS["NO_STATEMENT"].match(rest) or _PATTERNS["TASK"].search(rest):
        return False
    return bool(_PATTERNS["STATES"].search(rest))


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
    of_user = wishes or _is_instruction_about_user(plain[before.end() if before else 0 :])
    return Rule(
        kind=PREFERENCE if of_user else RULE,
        target=Target.USER if of_user else Target.ENVIRONMENT,
        head=_PATTERNS["EVER_HEAD"],
        restate=state_about_user if wishes else state_instruction,
    )
