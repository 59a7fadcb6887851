"""Finds the sentence of a user's prompt that says what a call of a memory tool wants to save. Pure functions.

Only a sentence that reads as lasting counts: one from which the rules learn something, one that asks to remember it, or
one that states a preference. So a call that a repository asked for stores at most what the user has said to stay. Which
sentence is meant is decided by comparing words, since a wrong choice stores the user's own words too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from afterturn.guard.pasted import TYPED_CHARS_MAX, typed_text
from afterturn.guard.trust import STANDING_KINDS
from afterturn.hosts.server.typed_statements import TypedStatement
from afterturn.learning.evidence import find_reversals, is_repeated, measure_support
from afterturn.learning.reviewer import STANDING
from afterturn.learning.rules import find_lessons
from afterturn.learning.rules.clauses import begins_play, is_task, is_temporary, is_unsure
from afterturn.learning.rules.extraction import own_sentences
from afterturn.learning.rules.sentences import Sentence, plain_start
from afterturn.scanners.secrets import mentions_secret
from afterturn.types import Target
from afterturn.utterance import is_about_project

# The name of a command that the user typed. What follows it is typed too.
_COMMAND = re.compile(r"\A\s*/[\w:.-]+(?=\s|$)")
_ASKS = re.compile(
    r"""\b(?:(?:remember|don'?t\sforget)(?!\s(?:to\b(?!\s(?:always|never|use))|when|how|what|why|where|the\stime))
    |memori[sz]e|keep\sin\smind|(?:make|take)\sa\snote|note\s(?:that|down)|save\s(?:this|that)
    |from\snow\son|going\sforward|in\s(?:the\s)?future|as\sa\srule
    |merke?\sdir|denk\sdaran|vergiss\snicht|ab\s(?:jetzt|sofort)|in\szukunft|künftig
    |souviens-toi|retiens|n'oublie\spas|désormais|dorénavant|à\sl'avenir
    |recuerda|no\solvides|de\sahora\sen\sadelante|en\sel\sfuturo|ricorda(?:ti)?|d'ora\sin\spoi|onthoud|vanaf\snu
    |lembre|de\sagora\sem\sdiante)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_PREFERS = re.compile(
    r"""\b(?:i|we)\s(?:\w+\s)?(?:prefer|(?:hate|dislike)(?!\s(?:that|when|how|it)\b))\b|\bwe\s(?:(?:always|only|never|usually)\s)?use\b
    |\bich\sbevorzuge\b|\bje\spréfère\b|\bprefiero\b|\bpreferisco\b""",
    re.IGNORECASE | re.VERBOSE,
)
# What may be said before it. Anything else may make it somebody else's claim, a refusal or a joke.
_LEADS_IN = re.compile(
    r"""(?:(?:please|ok(?:ay)?|and|also|so|but|btw|by\sthe\sway|hey|hi|note|(?:can|could|would|will)\syou|bitte|und|por\sfavor
    |s'il\s(?:te|vous)\splaît|et|per\sfavore|alsjeblieft|(?:here|in\s(?:this|our|the)\s\w+|for\sthis\s\w+))[,:]?\s+)*""",
    re.IGNORECASE | re.VERBOSE,
)
_TAKEN_BACK = re.compile(r"\b(?:never\smind|scratch\sthat|just\skidding)\b", re.IGNORECASE)
_POLITELY = re.compile(r"(?:please\s)?(?:can|could|would|will)\syou\b", re.IGNORECASE)


def find_typed_statement(prompt: str, arguments: Mapping[str, object]) -> TypedStatement | None:
    """What the user typed in `prompt` about the `text` in the arguments of a call, or None.

    It has the kind that the rules give it. The call's `kind` counts only for a sentence that asks to remember it.
    """
    text, kind = arguments.get("text"), arguments.get("kind")
    typed = _COMMAND.sub("", prompt)
    if not isinstance(text, str) or not typed.strip() or len(text) > TYPED_CHARS_MAX or _TAKEN_BACK.search(typed):
        return None
    wanted = kind if isinstance(kind, str) else ""
    found = [one for one in _statements(typed, wanted, arguments.get("target")) if _says(one.text, text)]
    return max(found, key=lambda one: measure_support(text, [one.text]).support, default=None)


def _statements(typed: str, wanted: str, target: object) -> Iterator[TypedStatement]:
    """What the rules find first, in their words: a review at the end of the turn will find the same."""
    sentences = [] if begins_play(plain_start(typed)) else own_sentences(typed_text(typed))
    asked = [sentence for sentence in sentences if _is_lasting(sentence)]
    known = []
    for lesson in find_lessons([("user", typed)]):
        about = Target.ENVIRONMENT if is_about_project(lesson.text) else lesson.target
        kind = STANDING.get((about, lesson.kind), lesson.kind)
        if wanted in STANDING_KINDS and any(is_repeated(lesson.text, sentence.text) for sentence in asked):
            kind = _standing(about)
        known.append(lesson.text)
        yield TypedStatement(lesson.text, about, kind, lesson.is_quote)
    for sentence in asked:
        if any(is_repeated(sentence.text, text) for text in known) or mentions_secret(sentence.text):
            continue
        is_personal = wanted == "preference" or target == Target.USER
        about = Target.USER if is_personal and not is_about_project(sentence.text) else Target.ENVIRONMENT
        kind = _standing(about) if wanted in STANDING_KINDS else "fact"
        yield TypedStatement(sentence.text, about, kind, is_quote=True)


def _standing(about: Target) -> str:
    return "preference" if about is Target.USER else "convention"


def _is_lasting(sentence: Sentence) -> bool:
    """Whether it asks to remember something, or states a preference, and not for the task at hand alone."""
    plain = sentence.plain
    if is_temporary(plain) or is_unsure(plain) or is_task(sentence):
        return False
    if sentence.is_question and not _POLITELY.match(plain):
        return False
    starts = [found.start() for pattern in (_ASKS, _PREFERS) if (found := pattern.search(plain)) is not None]
    return bool(starts) and _LEADS_IN.fullmatch(plain[: min(starts)]) is not None


def _says(typed: str, text: str) -> bool:
    """Whether both have most words of one of them, and all names, numbers and negations of `text` were typed."""
    found = measure_support(text, [typed])
    if found.missing or found.is_inference or "not" in find_reversals(text, [typed]):
        return False
    return is_repeated(text, typed) or is_repeated(typed, text)
