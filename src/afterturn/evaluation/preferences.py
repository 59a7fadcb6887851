"""Measures whether a preference that was stated once reaches the model when a task needs it.

Made-up people state one preference of each topic among other requests and small talk, over a month. Then each makes the
topic's request in a new conversation. A line that has most of the preference's words counts as reached.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from afterturn.evaluation.everyday import CHARS_A_TOKEN, EvalOptions, EverydayJudge, EverydayMemories, HandedOver
from afterturn.evaluation.everyday_file import (
    EverydayExchange,
    EverydayQuestion,
    EverydaySession,
    Person,
    Preferences,
    make_filler,
)
from afterturn.evaluation.examination import (
    OURS,
    Bm25,
    MissingParts,
    QuestionScore,
    figures_of,
    intervals,
    scratch_folder,
)
from afterturn.text import STOP_WORDS

# Requests of other people in each life.
_REQUESTS = 40
_REACHED_SHARE = 0.6
_BASELINE_LINES = (3, 10)
_TURNS_A_SESSION = 3
_MONTH = 30 * 86_400.0
_BEGINNING = 1_775_000_000.0
_REPLIES = ("I'll keep that in mind.", "Thank you for telling me.", "All right.")
# Words that say that something is a preference, not which one.
_EMPTY = STOP_WORDS | frozenset("prefer prefers user use using due only any i'm i've don't dont can't cannot".split())
_WORD = re.compile(r"[a-z0-9']+")
_ENDING = re.compile(r"(?:ing|ed|es|s|ly)$")
_STEM_CHARS_MIN = 5


def make_people(preferences: Preferences, count: int, small_talk: int) -> list[Person]:
    return [_person(preferences, number, small_talk) for number in range(count)]


def _person(preferences: Preferences, number: int, small_talk: int) -> Person:
    pick = random.Random(1000 + number)
    wanted = {topic: pairs[(number * 7 + 3) % len(pairs)] for topic, pairs in sorted(preferences.topics.items())}
    said = [EverydayExchange(preference, pick.choice(_REPLIES)) for preference, _ in wanted.values()]
    said += pick.sample(preferences.filler, min(_REQUESTS, len(preferences.filler)))
    said += make_filler(small_talk, number)
    pick.shuffle(said)
    step = _MONTH / len(said)
    sessions = [
        EverydaySession(f"s{at}", _BEGINNING + step * at, tuple(said[at : at + _TURNS_A_SESSION]))
        for at in range(0, len(said), _TURNS_A_SESSION)
    ]
    # The preference is the pattern of the right line, and is compared by its words.
    questions = [
        EverydayQuestion(topic, topic, _BEGINNING + _MONTH, (asked,), (re.compile(re.escape(preference)),), None, None)
        for topic, (preference, asked) in wanted.items()
    ]
    return Person(f"p{number}", "en", tuple(sessions), tuple(questions))


def examine_preferences(
    preferences: Preferences,
    people: Sequence[Person],
    options: EvalOptions,
    faults: MissingParts,
    done: Callable[[], None],
) -> dict[str, dict[str, Any]]:
    """The figures of each system, with those by topic. Calls `done` after each step."""
    stated = {pair[1]: pair[0] for pairs in preferences.topics.values() for pair in pairs}
    scores: dict[str, list[QuestionScore]] = {}
    judges = {person.name: EverydayJudge(person) for person in people}
    documents = {person.name: _messages(person) for person in people}
    with scratch_folder("afterturn-eval-") as folder:
        lives = EverydayMemories(folder / "memory.db", options, judges, faults, done)
        lives.record(people)
        for asked in lives.ask(people, "now"):
            name, (request,) = asked.person.name, asked.question.turns
            found = {OURS: _figures(stated[request], asked.handed)}
            if not options.alone:
                found |= dict(_baselines(stated[request], request, documents[name]))
            for system, figures in found.items():
                scores.setdefault(system, []).append(QuestionScore(name, asked.question.kind, figures))
    systems = {system: figures_of(some) for system, some in scores.items()}
    systems[OURS]["intervals"] = intervals(scores[OURS])
    systems[OURS]["conditions"] = options.conditions
    return systems


def _messages(person: Person) -> list[str]:
    """The person's messages, newest first: BM25 shows the first of equals."""
    return [one.user for session in person.sessions for one in session.exchanges][::-1]


def _figures(preference: str, handed: HandedOver) -> dict[str, float]:
    in_block = any(has_words(preference, line) for line in handed.shown)
    in_standing = any(has_words(preference, line) for line in handed.standing)
    return {
        "reached": float(in_block or in_standing),
        "in_block": float(in_block),
        "in_standing": float(in_standing),
        "block_lines": float(len(handed.shown)),
        "block_tokens": sum(map(len, handed.shown)) / CHARS_A_TOKEN,
        "standing_lines": float(len(handed.standing)),
        "standing_tokens": handed.standing_chars / CHARS_A_TOKEN,
    }


def _baselines(preference: str, request: str, documents: Sequence[str]) -> Iterator[tuple[str, dict[str, float]]]:
    bm25 = Bm25(_content)
    bm25.add_all(documents)
    for lines in _BASELINE_LINES:
        found = [documents[at] for at in bm25.rank(request, lines)]
        yield f"bm25, {lines} lines", _figures(preference, HandedOver(tuple(found)))


def has_words(preference: str, line: str) -> bool:
    wanted = set(_content(preference))
    return len(wanted.intersection(_content(line))) >= _REACHED_SHARE * len(wanted)


def _content(text: str) -> list[str]:
    """The content words of a text without their endings."""
    words = [word for word in _WORD.findall(text.lower()) if word not in _EMPTY]
    return [_ENDING.sub("", word) if len(word) >= _STEM_CHARS_MIN else word for word in words]
