"""Trains the weights of recall/relevance.py on everyday conversations, and shows how they do on people left out.

    python -m lab.train_relevance everyday.json            # figures with each person left out of training
    python -m lab.train_relevance everyday.json --write    # trains on everybody and writes relevance_weights.json

The conversations are lived through and the questions asked as `afterturn eval` does, once with a fresh memory and once
after the questions were asked and recorded before. In addition, everybody is asked the questions of
`impersonal_questions.tsv`, with which no memory helps. A line is an example: 1 if it is useful for its question and not
outdated. A pair of an outdated line and a newer right one is an example of what holds now.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from afterturn.conversation import read_turn
from afterturn.evaluation.everyday import (
    EverydayJudge,
    EverydayMemories,
    EverydayOptions,
    EverydayVerdict,
    HandedOver,
    figures_of,
)
from afterturn.evaluation.everyday_file import EverydayQuestion, Person, read_people
from afterturn.evaluation.examination import MissingParts
from afterturn.recall import relevance
from afterturn.recall.block import FRAME, bullet
from afterturn.recall.relevance import Features, JudgedQuestion, RecalledExchange, Weights
from afterturn.types import Excerpt, Hit

IMPERSONAL_PATH = Path(__file__).with_name("impersonal_questions.tsv")
FLOOR = 0.2
LINES_MAX = 16
# An impersonal question asked of everybody counts less than a real one; a right line more than a useful one.
IMPERSONAL_WEIGHT, RIGHT_WEIGHT = 0.45, 2.0
LINE_PENALTY, PAIR_PENALTY = 3.0, 2.0
COMPARED = 15
MATCH = ("match", "match said", "match below best", "best match")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class JudgedLine:
    """A line that could be shown: its text, and what the question's patterns say of it."""

    text: str
    is_right: bool
    is_useful: bool
    is_outdated: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """One turn of a question: the exchanges that were found, and for each its features and its line."""

    question: JudgedQuestion
    exchanges: Sequence[RecalledExchange]
    features: Sequence[Features]
    lines: Sequence[JudgedLine]
    is_last: bool


@dataclass(frozen=True, slots=True)
class Case:
    person: Person
    question: EverydayQuestion
    turns: Sequence[Asked]
    weight: float = 1.0


class Recorder:
    """Stands in for `judge` while questions are asked, and keeps what it is given."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def judge(self, text: str, hits: Sequence[Hit], **arguments: Any) -> list[Hit]:
        self.calls.append({"text": text, "hits": list(hits), **arguments})
        return list(hits)


def collect(people: Sequence[Person], *, lived: bool, weight: float = 1.0) -> list[Case]:
    options = EverydayOptions(lived=lived)
    judges = {person.name: EverydayJudge(person) for person in people}
    cases: list[Case] = []
    with TemporaryDirectory() as folder:
        memories = EverydayMemories(Path(folder) / "memory.db", options, judges, MissingParts(), lambda: None)
        memories.record(people)
        recorder = Recorder()
        with mock.patch.object(read_turn, "judge", recorder.judge):
            for asked in memories.ask(people, "now"):
                calls, recorder.calls = recorder.calls, []
                judge = judges[asked.person.name]
                turns = [_read(call, asked.question, judge, is_last=call is calls[-1]) for call in calls]
                cases.append(Case(asked.person, asked.question, [turn for turn in turns if turn.exchanges], weight))
    return cases


def _read(call: dict[str, Any], question: EverydayQuestion, judge: EverydayJudge, *, is_last: bool) -> Asked:
    text, now, table = call["text"], call["now"], call["table"]
    read = JudgedQuestion.read(text, call["hits"], now, call["weights"])
    exchanges, lines = [], []
    for one in relevance.group_exchanges(relevance.with_partners(call["hits"])):
        hit = relevance.line_of(one, read.terms)
        if hit is None:
            continue
        line = bullet(Excerpt(hit, hit.entry.text[:400], hit.answer.text[:250] if hit.answer else ""), now=now)
        is_right = judge.is_right(question, line)
        is_outdated = judge.is_outdated(question, line)
        lines.append(JudgedLine(line, is_right, judge.matches(question.bears, line), is_outdated))
        exchanges.append(one)
    exchanges, lines = exchanges[: relevance.JUDGED_MAX], lines[: relevance.JUDGED_MAX]
    matches = relevance.match_words(text, exchanges, table) if exchanges else []
    features = relevance.line_features(read, exchanges, matches, now=now) if exchanges else []
    return Asked(read, exchanges, features, lines, is_last)


def impersonal_cases(people: Sequence[Person]) -> list[Person]:
    """The same people, each asked a third of the questions that have nothing to do with them: in every language if they
    speak English, otherwise in theirs and in English."""
    rows = [line.split("\t") for line in IMPERSONAL_PATH.read_text(encoding="utf-8").splitlines()]
    asked = []
    for place, person in enumerate(people):
        first = person.questions[0]
        texts = [text for language, text in rows if language in ("en", person.language) or person.language == "en"]
        questions = [
            replace(first, id=f"{person.name}-{at}", kind="silence", turns=(text,), right=(), stale=None, bears=None)
            for at, text in enumerate(texts[place % 3 :: 3])
        ]
        asked.append(replace(person, questions=tuple(questions)))
    return asked


def fit(rows: Sequence[Features], names: Sequence[str], wanted: Floats, weights: Floats, penalty: float) -> Weights:
    """Logistic regression by Newton's method, with a penalty on the weights of the standardized features."""
    table = np.array([[row[name] for name in names] for row in rows])
    mean, deviation = table.mean(0), table.std(0)
    deviation[deviation == 0] = 1.0
    design = np.hstack([np.ones((len(table), 1)), (table - mean) / deviation])
    shrink = np.full(design.shape[1], penalty)
    shrink[0] = 0.0
    found = np.zeros(design.shape[1])
    for _ in range(30):
        chances = 1 / (1 + np.exp(-design @ found))
        gradient = design.T @ (weights * (chances - wanted)) + shrink * found
        curvature = (design * (weights * chances * (1 - chances))[:, None]).T @ design + np.diag(shrink)
        step = np.linalg.solve(curvature, gradient)
        found -= step
        if np.abs(step).max() < 1e-6:
            break
    slopes = found[1:] / deviation
    return {"bias": float(found[0] - slopes @ mean), **dict(zip(names, slopes.tolist(), strict=True))}


def train_lines(cases: Iterable[Case], *, by_words: bool) -> Weights:
    rows, wanted, weights = [], [], []
    for case in cases:
        for turn in [turn for turn in case.turns if turn.is_last]:
            for features, line in zip(turn.features, turn.lines, strict=True):
                rows.append(features)
                wanted.append(float((line.is_right or line.is_useful) and not line.is_outdated))
                weights.append(case.weight * (RIGHT_WEIGHT if line.is_right else 1.0))
    names = [name for name in rows[0] if name not in ("bias", relevance.STORED) and not (by_words and name in MATCH)]
    return fit(rows, names, np.array(wanted), np.array(weights), LINE_PENALTY)


def train_pairs(cases: Iterable[Case], models: Mapping[str, Weights]) -> Weights:
    """`models` are the weights of lines by person."""
    rows: list[Features] = []
    wanted: list[float] = []
    for case in cases:
        for turn in [turn for turn in case.turns if turn.is_last]:
            for features, is_replaced in _pairs(turn, models[case.person.name]):
                rows.append(features)
                wanted.append(float(is_replaced))
    names = [name for name in rows[0] if name != "bias"]
    return fit(rows, names, np.array(wanted), np.ones(len(wanted)), PAIR_PENALTY)


def _pairs(turn: Asked, model: Weights) -> Iterable[tuple[Features, bool]]:
    chances = [relevance.chance(features, model) for features in turn.features]
    best = sorted(range(len(chances)), key=lambda at: -chances[at])[:COMPARED]
    for older in best:
        for newer in best:
            one, other = turn.exchanges[older], turn.exchanges[newer]
            if not relevance.may_replace(one, other):
                continue
            before, after = turn.lines[older], turn.lines[newer]
            if (before.is_outdated and after.is_right) or (before.is_right and not after.is_right):
                features = relevance.pair_features(turn.question, one, other, chances[older], chances[newer])
                yield features, before.is_outdated


def verdict(case: Case, lines: Weights, pairs: Weights) -> EverydayVerdict:
    """What a turn with these weights would hand over, without budgets and duplicates."""
    seen: set[str] = set()
    earlier: list[str] = []
    shown: list[str] = []
    for turn in case.turns:
        earlier += shown
        chances = [relevance.chance(features, lines) for features in turn.features]
        order, _ = relevance.put_newer_first(turn.question, turn.exchanges, chances, pairs)
        scores = relevance.falling_scores(order, chances)
        hits = [replace(turn.exchanges[at].hits[0], score=score) for at, score in zip(order, scores, strict=True)]
        texts = {id(hit): turn.lines[at].text for hit, at in zip(hits, order, strict=True)}
        kept = [hit for hit in relevance.worth_showing(hits, FLOOR) if hit.entry.id not in seen][:LINES_MAX]
        seen.update(hit.entry.id for hit in kept)
        shown = [texts[id(hit)] for hit in kept]
    chars = len(FRAME) + sum(len(line) + 1 for line in shown) if shown else 0
    handed = HandedOver(tuple(shown), tuple(earlier), chars=chars)
    return EverydayJudge(case.person).verdict(case.question, handed)


def report(name: str, verdicts: Sequence[EverydayVerdict]) -> None:
    print(f"{name}: {figures_of(verdicts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("everyday", type=Path, help="a file of everyday conversations (docs/evaluation.md)")
    parser.add_argument("--write", action="store_true", help="write the weights that were trained on everybody")
    chosen = parser.parse_args()
    people = read_people(json.loads(chosen.everyday.read_text(encoding="utf-8")), chosen.everyday)
    fresh, lived = collect(people, lived=False), collect(people, lived=True)
    impersonal = collect(impersonal_cases(people), lived=False, weight=IMPERSONAL_WEIGHT)
    cases = [*fresh, *lived, *impersonal]
    for by_words in (False, True):
        without = {
            person.name: train_lines([one for one in cases if one.person.name != person.name], by_words=by_words)
            for person in people
        }
        pairs = {
            person.name: train_pairs(
                [one for one in (*fresh, *lived) if one.person.name != person.name],
                without,
            )
            for person in people
        }
        everybody = train_lines(cases, by_words=by_words)
        of_everybody = train_pairs((*fresh, *lived), dict.fromkeys(without, everybody))
        label = "by words alone" if by_words else "with the word table"
        for state, asked in (("fresh", fresh), ("lived in", lived)):
            left_out = [verdict(one, without[one.person.name], pairs[one.person.name]) for one in asked]
            report(f"{label}, {state}, each person left out", left_out)
            report(f"{label}, {state}, trained on everybody", [verdict(one, everybody, of_everybody) for one in asked])
        if chosen.write:
            _write("line by words" if by_words else "line", everybody, None if by_words else of_everybody)


def _write(name: str, lines: Weights, pairs: Weights | None) -> None:
    path = relevance.WEIGHTS_PATH
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    stored[name] = {key: round(value, 4) for key, value in lines.items()}
    if pairs is not None:
        stored["pair"] = {key: round(value, 4) for key, value in pairs.items()}
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
