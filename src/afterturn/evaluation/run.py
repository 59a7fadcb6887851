"""Runs an evaluation, from its files to its figures. An interrupted run removes its temporary folder."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from afterturn.errors import InvalidFile, InvalidInput
from afterturn.evaluation.answering import Answering, Asking, count_questions
from afterturn.evaluation.datasets import Dataset, Sources, Talk, Utterances, find_sources
from afterturn.evaluation.everyday import EvalOptions, chosen_people, count_steps, examine_everyday
from afterturn.evaluation.everyday_file import Person
from afterturn.evaluation.examination import (
    DAY,
    OURS,
    QuestionScore,
    Subject,
    chosen_of,
    examine,
    figures_of,
    intervals,
    margins,
    means,
    open_subject,
    spaces_of,
    worst,
)
from afterturn.evaluation.preferences import examine_preferences, make_people
from afterturn.recall.query import needs_recall


@contextmanager
def end_on_sigterm() -> Iterator[None]:
    """Inside, SIGTERM ends the work as Ctrl-C does. A second signal does not interrupt the clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_ending = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal is_ending
        if not is_ending:
            is_ending = True
            raise KeyboardInterrupt

    earlier = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


Progress: TypeAlias = Callable[[int, int], None]
Results: TypeAlias = dict[str, dict[str, dict[str, Any]]]

ADVERSARIAL = "adversarial"
# Remarks for which recall should find nothing.
BUILT_IN = Utterances(
    "small_talk", tuple(Path(__file__).with_name("small_talk.txt").read_text(encoding="utf-8").splitlines())
)
# A remark takes about as long as a question.
SAMPLE = 300


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`results` by data set and system, as `--json` prints them; `skipped` are files that cannot be evaluated.

    `faults` counts recalls that ran without something, by what was missing.
    """

    results: Results
    skipped: tuple[Path, ...]
    embedder: str
    faults: Mapping[str, int]


def evaluate(paths: Sequence[Path], wanted: EvalOptions, progress: Progress = lambda done, total: None) -> Evaluation:
    """Raises InvalidFile if nothing in `paths` can be evaluated, InvalidInput if an option does not fit them."""
    sources = find_sources(paths)
    people = _people(sources, wanted)
    stating = {one.name: make_people(one, wanted.people, wanted.preferences.filler or 0) for one in sources.preferences}
    results: Results = {}
    with open_subject(wanted.embedder) as subject:
        steps = _steps(sources, wanted.limit)
        steps += sum(count_steps(some, wanted) for some in people.values())
        steps += sum(count_steps(some, wanted.preferences) for some in stating.values())
        tally = _Tally(steps, progress)
        for dataset in sources.datasets:
            results[dataset.name] = _of_dataset(subject, dataset, sources.utterances, wanted, tally)
        for name, some in people.items():
            results[name] = examine_everyday(some, wanted, subject.faults, tally)
        for one in sources.preferences:
            some = stating[one.name]
            results[one.name] = examine_preferences(one, some, wanted.preferences, subject.faults, tally)
        return _evaluation(results, sources, subject)


def _people(sources: Sources, wanted: EvalOptions) -> dict[str, list[Person]]:
    """The people to examine, by the name of their file."""
    needing = wanted.lived or wanted.half or wanted.long or wanted.user or wanted.selector
    if needing and not sources.everyday:
        raise InvalidInput(
            "--lived, --half, --long, --user and --selector need an everyday file. See docs/evaluation.md."
        )
    chosen = {everyday.name: chosen_people(everyday, wanted) for everyday in sources.everyday}
    found = {name: people for name, people in chosen.items() if any(person.questions for person in people)}
    if sources.everyday and not found:
        names = ", ".join(person.name for everyday in sources.everyday for person in everyday.people)
        raise InvalidInput(f"Nobody called {wanted.user!r} has questions in these files. There are: {names}.")
    return found


def answer(
    paths: Sequence[Path], wanted: EvalOptions, asking: Asking, progress: Progress = lambda done, total: None
) -> Evaluation:
    """Lets a model answer the questions. Raises ModelError if it never answers, and InvalidFile as `evaluate` does."""
    sources = find_sources(paths)
    datasets = [dataset for dataset in sources.datasets if count_questions(dataset, wanted.limit)]
    if not datasets:
        raise InvalidFile("No question in these files has an expected answer to compare replies with.")
    tally = _Tally(sum(count_questions(dataset, wanted.limit) for dataset in datasets), progress)
    with open_subject(wanted.embedder) as subject:
        results = asyncio.run(_answers(Answering(subject, asking), datasets, wanted.limit, tally))
        return _evaluation(results, sources, subject)


def _evaluation(results: Results, sources: Sources, subject: Subject) -> Evaluation:
    # Without an embedder, no vectors are missing.
    faults = dict(subject.faults.counts) if subject.embedder is not None else {}
    return Evaluation(results, tuple(sources.skipped), subject.config.embedder, faults)


async def _answers(answering: Answering, datasets: Sequence[Dataset], limit: int | None, asked: _Tally) -> Results:
    return {dataset.name: await answering.run(dataset, asked, limit=limit) for dataset in datasets}


class _Tally:
    def __init__(self, total: int, progress: Progress) -> None:
        self._done = 0
        self._total = total
        self._progress = progress

    def __call__(self) -> None:
        self._done += 1
        self._progress(self._done, self._total)


def _steps(sources: Sources, limit: int | None) -> int:
    spoken = sum(len(sampled(utterances.texts)) for utterances in (BUILT_IN, *sources.utterances))
    asked = sum(len(chosen_of(talk, limit)) for dataset in sources.datasets for talk in dataset.talks)
    return asked + spoken * len(sources.datasets)


def _of_dataset(
    subject: Subject, dataset: Dataset, utterances: Sequence[Utterances], wanted: EvalOptions, asked: _Tally
) -> dict[str, dict[str, Any]]:
    examined = examine(subject, dataset, asked, limit=wanted.limit, alone=wanted.alone)
    systems = {name: summary(outcomes) for name, outcomes in examined.outcomes.items()}
    if OURS in systems:
        systems[OURS]["margins"] = margins(examined.outcomes)
        if wanted.misses:
            systems[OURS]["missed"] = worst(examined.missed, wanted.misses)
    for name, silent in examined.unanswerable.items():
        systems.setdefault(name, {})["unanswerable"] = {"n": len(silent), **means(silent)}
    systems.setdefault(OURS, {}).update(_silence(subject, dataset, utterances, asked))
    return systems


def _silence(subject: Subject, dataset: Dataset, utterances: Sequence[Utterances], asked: _Tally) -> dict[str, Any]:
    """The share of small talk without a block, and why; then the same for each set."""
    by_set: dict[str, dict[str, Any]] = {}
    total = SilenceCounts()
    for remarks in (BUILT_IN, *utterances):
        spoken = count_silence(subject, spaces_of(dataset), remarks, asked)
        by_set[remarks.name] = {"n": spoken.count, **spoken.shares(), "heard": spoken.heard}
        total.add(spoken)
    return {**total.shares(), "silence_by_set": by_set}


@dataclass(slots=True)
class SilenceCounts:
    """Counts remarks, and those that started no recall; `heard` are the remarks that got a block."""

    count: int = 0
    not_asked: int = 0
    heard: list[str] = field(default_factory=list)

    def add(self, other: SilenceCounts) -> None:
        self.count += other.count
        self.not_asked += other.not_asked
        self.heard += other.heard

    def shares(self) -> dict[str, float]:
        """Shares of all remarks. `silence` is the sum of the other two."""
        silent = self.count - len(self.heard)
        return {
            "silence": silent / self.count,
            "not_asked": self.not_asked / self.count,
            "below_floor": (silent - self.not_asked) / self.count,
        }


def sampled(texts: Sequence[str], count: int = SAMPLE) -> Sequence[str]:
    """Up to `count` texts at even distances, the same each time."""
    if len(texts) <= count:
        return texts
    return [texts[at * len(texts) // count] for at in range(count)]


def count_silence(
    subject: Subject, spaces: Sequence[tuple[str, Talk]], utterances: Utterances, asked: Callable[[], None]
) -> SilenceCounts:
    """Says each remark in the next space."""
    spoken = SilenceCounts()
    for at, text in enumerate(sampled(utterances.texts)):
        space, talk = spaces[at % len(spaces)]
        subject.clock.set(max(item.at for item in talk.items) + DAY)
        spoken.count += 1
        if subject.handed_over(space, text).text:
            spoken.heard.append(text)
        elif not needs_recall(text):
            spoken.not_asked += 1
        asked()
    return spoken


def summary(outcomes: Sequence[QuestionScore]) -> dict[str, Any]:
    """Means over all questions with evidence, by category too, with intervals."""
    found: dict[str, Any] = {**figures_of(outcomes), "intervals": intervals(outcomes)}
    if any(outcome.category == ADVERSARIAL for outcome in outcomes):
        others = [outcome for outcome in outcomes if outcome.category != ADVERSARIAL]
        found["without_adversarial"] = {"n": len(others), **means(others), "intervals": intervals(others)}
    return found
