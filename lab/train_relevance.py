"""Trains the weights of recall/relevance.py and what_holds.py on everyday conversations; figures on people left out.

    python -m lab.train_relevance everyday.json            # figures with each person left out of training
    python -m lab.train_relevance everyday.json --write    # trains on everybody and writes the weights

The conversations are lived through and the questions asked as `afterturn eval` does: with a fresh memory, after the
questions were asked and recorded before, with answers of several paragraphs, among small talk (both from
`everyday_padding.json`), and in small spaces where a dozen facts were told within minutes. In addition, everybody is
asked the questions of `impersonal_questions.tsv`, with which no memory helps. A line is an example: 1 if it is useful
for its question and not outdated. A pair of an outdated line and a newer right one is an example of what holds now.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from afterturn.evaluation.everyday import (
    EvalOptions,
    EverydayJudge,
    EverydayMemories,
    EverydayVerdict,
    HandedOver,
    figures_of,
)
from afterturn.evaluation.everyday_file import EverydayExchange, EverydayQuestion, Person, add_filler, read_people
from afterturn.evaluation.examination import MissingParts
from afterturn.recall import answer, relevance, what_holds
from afterturn.recall.block import FRAME, Excerpt, best_window, bullet
from afterturn.recall.features import features_of, passage_of
from afterturn.recall.relevance import JudgedQuestion, RecalledExchange
from afterturn.recall.what_holds import Features, Weights
from afterturn.types import Hit

IMPERSONAL_PATH = Path(__file__).with_name("impersonal_questions.tsv")
PADDING_PATH = Path(__file__).with_name("everyday_padding.json")
FLOOR = 0.22
LINES_MAX = 16
# An impersonal question asked of everybody counts less than a real one; a right line more than a useful one.
IMPERSONAL_WEIGHT, RIGHT_WEIGHT = 1.1, 2.0
LINE_PENALTY, PAIR_PENALTY = 3.0, 2.0
COMPARED = 15
# Of each kind of small space: how many questions are asked, and how many exchanges there are at most.
SMALL_QUESTIONS, SMALL_EXCHANGES = 6, 12
SMALL_TALK = 2
IMPERSONAL = "impersonal"
GROUPS = {
    "search score and shared words": ("score below best", "lexical", "share below best", "shared weight"),
    "similarity": ("similarity", "similarity below best"),
    "kind of question": ("question states", "question orders", "question social", "question personal"),
    "general questions": ("question general",),
    "size of the question": ("question terms", "question weight", "candidates"),
    "kind of message": ("said states", "said asks", "said social", "said supposes", "said changes", "said digit"),
    "answer": ("answer states", "echo", "unprompted"),
    "time": ("in range", "out of range"),
}

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


def collect(
    people: Sequence[Person], *, lived: bool = False, remarks: Sequence[str] = (), weight: float = 1.0
) -> list[Case]:
    """`remarks` are small talk, of which everybody says twice as much as of anything else."""
    options = EvalOptions(lived=lived)
    if remarks:
        people = [_with_remarks(person, remarks) for person in people]
    judges = {person.name: EverydayJudge(person) for person in people}
    cases: list[Case] = []
    with TemporaryDirectory() as folder:
        memories = EverydayMemories(Path(folder) / "memory.db", options, judges, MissingParts(), lambda: None)
        memories.record(people)
        recorder = Recorder()
        with mock.patch.object(answer, "judge", recorder.judge):
            for asked in memories.ask(people, "now"):
                calls, recorder.calls = recorder.calls, []
                judge = judges[asked.person.name]
                turns = [_read(call, asked.question, judge, is_last=call is calls[-1]) for call in calls]
                cases.append(Case(asked.person, asked.question, [turn for turn in turns if turn.exchanges], weight))
    return cases


def _with_remarks(person: Person, remarks: Sequence[str]) -> Person:
    """The person with these remarks as sessions between the others."""
    count = SMALL_TALK * sum(len(session.exchanges) for session in person.sessions)
    said, sessions = itertools.cycle(remarks), []
    for session in add_filler(person, count).sessions:
        is_filler = session not in person.sessions
        exchanges = [replace(one, user=next(said)) if is_filler else one for one in session.exchanges]
        sessions.append(replace(session, exchanges=tuple(exchanges)))
    return replace(person, sessions=tuple(sessions))


def _read(call: dict[str, Any], question: EverydayQuestion, judge: EverydayJudge, *, is_last: bool) -> Asked:
    now = call["now"]
    read = JudgedQuestion.read(call["text"], now, call["weights"])
    exchanges, lines = [], []
    for one in relevance.group_exchanges(relevance.with_partners(call["hits"]), read.terms):
        hit = relevance.line_of(one)
        if hit is None:
            continue
        answer = passage_of(features_of(hit.answer), hit.terms, hit.entry).text if hit.answer is not None else ""
        line = bullet(Excerpt(hit, best_window(hit.entry.text, hit.terms, 400), answer[:250]), now=now)
        is_right = judge.is_right(question, line)
        is_outdated = judge.is_outdated(question, line)
        lines.append(JudgedLine(line, is_right, judge.matches(question.bears, line), is_outdated))
        exchanges.append(one)
    exchanges, lines = exchanges[: relevance.JUDGED_MAX], lines[: relevance.JUDGED_MAX]
    features = relevance.line_features(read, exchanges) if exchanges else []
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


def with_long_answers(people: Sequence[Person]) -> list[Person]:
    """The same people, whose agent adds three paragraphs to each answer."""
    advice = json.loads(PADDING_PATH.read_text(encoding="utf-8"))["advice"]
    found = []
    for person in people:
        paragraphs = itertools.cycle([*advice["en"], *advice.get(person.language, ())])

        def lengthen(one: EverydayExchange, more: Iterator[str] = paragraphs) -> EverydayExchange:
            return replace(one, assistant="\n\n".join([one.assistant, *itertools.islice(more, 3)]))

        sessions = [replace(one, exchanges=tuple(map(lengthen, one.exchanges))) for one in person.sessions]
        found.append(replace(person, sessions=tuple(sessions)))
    return found


def in_small_spaces(people: Sequence[Person]) -> Iterator[list[Person]]:
    """The same people, each time with a few of the questions, who said what these ask for in one short conversation."""
    for first in range(0, max(len(person.questions) for person in people), SMALL_QUESTIONS):
        found = []
        for person in people:
            some = [one for one in person.questions if one.kind not in ("time", "update", "negation", "follow_up")]
            questions = some[first : first + SMALL_QUESTIONS]
            wanted = [pattern for one in questions for pattern in one.right]
            exchanges = [
                exchange
                for session in person.sessions
                for exchange in session.exchanges
                if any(pattern.search(f"{exchange.user} {exchange.assistant}") for pattern in wanted)
            ]
            if exchanges:
                session = replace(person.sessions[-1], exchanges=tuple(exchanges[:SMALL_EXCHANGES]))
                asked = [replace(one, at=session.at + 1800.0) for one in questions]
                found.append(replace(person, sessions=(session,), questions=tuple(asked)))
        if found:
            yield found


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


def train_lines(cases: Iterable[Case], without: Collection[str] = ()) -> Weights:
    rows, wanted, weights = [], [], []
    for case in cases:
        for turn in [turn for turn in case.turns if turn.is_last]:
            for features, line in zip(turn.features, turn.lines, strict=True):
                rows.append(features)
                wanted.append(float((line.is_right or line.is_useful) and not line.is_outdated))
                weights.append(case.weight * (RIGHT_WEIGHT if line.is_right else 1.0))
    names = [name for name in rows[0] if name not in ("bias", relevance.STORED, *without)]
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
            if not what_holds.may_replace(one, other):
                continue
            before, after = turn.lines[older], turn.lines[newer]
            if (before.is_outdated and after.is_right) or (before.is_right and not after.is_right):
                features = what_holds.pair_features(turn.question, one, other, chances[older], chances[newer])
                yield features, before.is_outdated


def verdict(case: Case, lines: Weights, pairs: Weights) -> EverydayVerdict:
    """What a turn with these weights would hand over, without budgets and duplicates."""
    seen: set[str] = set()
    earlier: list[str] = []
    shown: list[str] = []
    for turn in case.turns:
        earlier += shown
        chances = [relevance.chance(features, lines) for features in turn.features]
        order, _ = what_holds.put_newer_first(turn.question, turn.exchanges, chances, pairs)
        scores = relevance.falling_scores(order, chances)
        hits = [replace(turn.exchanges[at].hits[0], score=score) for at, score in zip(order, scores, strict=True)]
        texts = {id(hit): turn.lines[at].text for hit, at in zip(hits, order, strict=True)}
        kept = [hit for hit in relevance.worth_showing(hits, FLOOR) if hit.entry.id not in seen][:LINES_MAX]
        seen.update(hit.entry.id for hit in kept)
        shown = [texts[id(hit)] for hit in kept]
    chars = len(FRAME) + sum(len(line) + 1 for line in shown) if shown else 0
    handed = HandedOver(tuple(shown), tuple(earlier), chars=chars)
    return EverydayJudge(case.person).verdict(case.question, handed)


def order_of_lines(cases: Iterable[Case], models: Mapping[str, Weights]) -> float:
    """The mean chance that a useful line is placed before another one of the same question."""
    shares = []
    for turn, model in ((turn, models[case.person.name]) for case in cases for turn in case.turns if turn.is_last):
        chances = np.array([relevance.chance(features, model) for features in turn.features])
        wanted = np.array([(line.is_right or line.is_useful) and not line.is_outdated for line in turn.lines])
        if wanted.any() and not wanted.all():
            shares.append(float((chances[wanted][:, None] > chances[~wanted]).mean()))
    return float(np.mean(shares))


def report(name: str, cases: Sequence[Case], lines: Mapping[str, Weights], pairs: Mapping[str, Weights]) -> None:
    verdicts = [verdict(one, lines[one.person.name], pairs[one.person.name]) for one in cases]
    print(f"{name}: order {order_of_lines(cases, lines):.3f}, {figures_of(verdicts)}", flush=True)


def gather(people: Sequence[Person]) -> dict[str, list[Case]]:
    """The cases to train on, by the circumstances in which the questions are asked."""
    remarks = json.loads(PADDING_PATH.read_text(encoding="utf-8"))["remarks"]
    return {
        "fresh": collect(people),
        "lived in": collect(people, lived=True),
        "long answers": collect(with_long_answers(people)),
        "among small talk": collect(people, remarks=remarks),
        "in small spaces": [case for some in in_small_spaces(people) for case in collect(some)],
        IMPERSONAL: collect(impersonal_cases(people), weight=IMPERSONAL_WEIGHT),
    }


def leave_out(people: Sequence[Person], cases: Sequence[Case], without: Collection[str]) -> dict[str, Weights]:
    """For each person, the weights of lines that were trained on the others, `without` these features."""
    names = [person.name for person in people]
    return {name: train_lines([one for one in cases if one.person.name != name], without) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("everyday", type=Path, help="a file of everyday conversations (docs/evaluation.md)")
    parser.add_argument("--write", choices=("lines", "all"), help="write weights that were trained on everybody")
    parser.add_argument("--groups", action="store_true", help="show what is lost without each group of features")
    chosen = parser.parse_args()
    people = read_people(json.loads(chosen.everyday.read_text(encoding="utf-8")), chosen.everyday)
    by_state = gather(people)
    cases = [case for some in by_state.values() for case in some]
    asked = {state: some for state, some in by_state.items() if state != IMPERSONAL}
    if chosen.groups:
        stored = dict.fromkeys(
            [person.name for person in people],
            json.loads(what_holds.WEIGHTS_PATH.read_text(encoding="utf-8"))["exchanges"],
        )
        for group, without in {"all features": (), **GROUPS}.items():
            report(f"without {group}" if without else group, asked["fresh"], leave_out(people, cases, without), stored)
        return
    changing = [*asked["fresh"], *asked["lived in"]]
    left_out = leave_out(people, cases, ())
    pairs = {name: train_pairs([one for one in changing if one.person.name != name], left_out) for name in left_out}
    for state, some in asked.items():
        report(f"{state}, each person left out", some, left_out, pairs)
    if chosen.write:
        everybody = train_lines(cases)
        _write(relevance.WEIGHTS_PATH, _rounded(everybody))
        if chosen.write == "all":
            stored = json.loads(what_holds.WEIGHTS_PATH.read_text(encoding="utf-8"))
            stored["exchanges"] = _rounded(train_pairs(changing, dict.fromkeys(left_out, everybody)))
            _write(what_holds.WEIGHTS_PATH, stored)


def _rounded(weights: Weights) -> dict[str, float]:
    return {key: round(value, 4) for key, value in weights.items()}


def _write(path: Path, stored: Mapping[str, object]) -> None:
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
