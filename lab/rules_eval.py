"""`make eval-rules`: measures the rule-based reviewer on labelled messages and on dialogue. Stores nothing.

Labelled messages give precision and recall, separately for the half that the rules were written for and the held-out
half. Conversations and utterances show how often the reviewer would write. A file of users with sessions and questions
(`{"users": ...}`) also shows from how many of the messages that answer a question something is learned.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from afterturn.errors import InvalidFile
from afterturn.evaluation.datasets import Dataset, read_dataset, read_utterances, stem
from afterturn.learning.rules import Lesson, find_lessons

TURNS_UNIT = 200
_EXCERPT_CHARACTERS = 100
_USER, _ASSISTANT = "user", "assistant"


@dataclass(frozen=True, slots=True)
class Expected:
    """`gist` lists words that the lesson's text must contain, in any case."""

    kind: str
    target: str
    gist: tuple[str, ...]
    replaces: str = ""

    def is_met_by(self, lesson: Lesson) -> bool:
        return lesson.target == self.target and _holds(lesson, self.gist)


@dataclass(frozen=True, slots=True)
class Case:
    """One user message, after the messages in `before`. `also` lists gists that may be learned but need not be."""

    text: str
    language: str
    before: tuple[tuple[str, str], ...]
    expected: tuple[Expected, ...]
    also: tuple[tuple[str, ...], ...] = ()
    why: str = ""
    is_open: bool = False

    @property
    def held_out(self) -> bool:
        """Chosen by the first bit of the text's hash. Sets that are fully open have no held-out half."""
        return not self.is_open and bool(hashlib.sha256(self.text.encode()).digest()[0] >> 7)

    def learned(self) -> list[Lesson]:
        return find_lessons([*self.before, (_USER, self.text)])


@dataclass(slots=True)
class Score:
    """Counts of lessons. `wrong` and `missed` hold the messages, to read."""

    right: int = 0
    right_kind: int = 0
    wrong: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    languages: dict[str, Counter[str]] = field(default_factory=dict)
    tempted: Counter[str] = field(default_factory=Counter)
    messages: int = 0

    def figures(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "right": self.right,
            "wrong": len(self.wrong),
            "missed": len(self.missed),
            "precision": _share(self.right, len(self.wrong)),
            "recall": _share(self.right, len(self.missed)),
            "kind_right": _share(self.right_kind, self.right - self.right_kind),
            "kinds": {name: _recall(counts) for name, counts in sorted(self.kinds.items())},
            "languages": {name: _recall(counts) for name, counts in sorted(self.languages.items())},
            "wrong_by_reason": dict(sorted(self.tempted.items())),
        }


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Turns as (earlier messages, user message)."""

    name: str
    turns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Writes:
    """The lessons that the rules find in a dialogue, each with its message.

    `answering` counts the messages that a question's pattern matches, `taught` those of them that teach something.
    """

    turns: int
    found: tuple[tuple[str, Lesson], ...]
    answering: int = 0
    taught: int = 0

    def figures(self) -> dict[str, Any]:
        kinds = Counter(lesson.kind for _, lesson in self.found)
        rate = TURNS_UNIT * len(self.found) / self.turns
        answers = {"answering": self.answering, "taught": self.taught} if self.answering else {}
        return {
            **answers,
            "user_turns": self.turns,
            "writes": len(self.found),
            f"writes_per_{TURNS_UNIT}_turns": rate,
            "kinds": dict(sorted(kinds.items())),
        }


@dataclass(frozen=True, slots=True)
class Measured:
    """`scores` by file and part ("dev", "held_out"), `writes` by file."""

    scores: Mapping[str, Mapping[str, Score]]
    writes: Mapping[str, Writes]

    def figures(self) -> dict[str, Any]:
        labelled = {
            name: {part: score.figures() for part, score in parts.items()} for name, parts in self.scores.items()
        }
        return {**labelled, **{name: found.figures() for name, found in self.writes.items()}}


def measure(paths: Sequence[Path]) -> Measured:
    """Raises InvalidFile if a file cannot be used."""
    scores: dict[str, dict[str, Score]] = {}
    writes: dict[str, Writes] = {}
    for path in paths:
        cases = read_cases(path) if path.suffix == ".jsonl" else []
        if cases:
            scores[stem(path)] = _scores(cases)
        elif users := read_users(path):
            writes[stem(path)] = count_answers(users)
        else:
            dialogue = read_dialogue(path)
            writes[dialogue.name] = count_writes(dialogue)
    return Measured(scores, writes)


def _scores(cases: Sequence[Case]) -> dict[str, Score]:
    parts = {"dev": False, "held_out": True}
    chosen = {part: [case for case in cases if case.held_out is held_out] for part, held_out in parts.items()}
    return {part: score(found) for part, found in chosen.items() if found}


def score(cases: Iterable[Case]) -> Score:
    total = Score()
    for case in cases:
        _judge(case, total)
    return total


def count_writes(dialogue: Dialogue) -> Writes:
    found = [
        (said, lesson)
        for before, said in dialogue.turns
        for lesson in find_lessons([(_ASSISTANT, before), (_USER, said)])
    ]
    return Writes(len(dialogue.turns), tuple(found))


def count_answers(users: Sequence[Mapping[str, Any]]) -> Writes:
    """A message answers if a pattern in `right` of one of its user's questions matches it."""
    turns = answering = taught = 0
    found: list[tuple[str, Lesson]] = []
    for user in users:
        wanted = [re.compile(shape, re.IGNORECASE) for question in user["questions"] for shape in question["right"]]
        before = ""
        for exchange in (exchange for session in user["sessions"] for exchange in session["exchanges"]):
            said = exchange["user"]
            lessons = find_lessons([(_ASSISTANT, before), (_USER, said)])
            before = exchange["assistant"]
            turns += 1
            found += [(said, lesson) for lesson in lessons]
            if any(shape.search(said) for shape in wanted):
                answering += 1
                taught += bool(lessons)
    return Writes(turns, tuple(found), answering, taught)


def read_users(path: Path) -> list[dict[str, Any]]:
    """The users of a file of everyday conversations. Empty if the file has another format."""
    if path.suffix != ".json":
        return []
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidFile(f"{path} cannot be read: {error!r}. See docs/rules.md for the format.") from error
    users = content.get("users", []) if isinstance(content, dict) else []
    return [user for user in users if "questions" in user and "sessions" in user]


def read_cases(path: Path) -> list[Case]:
    """One case per line, in the format of tests/learning/rule_cases. Empty if the file has another format."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return [_case(row) for row in rows] if all("lessons" in row for row in rows) else []
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidFile(f"{path} cannot be read: {error!r}. See docs/rules.md for the format.") from error


def read_dialogue(path: Path) -> Dialogue:
    if path.suffix == ".jsonl":
        utterances = read_utterances(path)
        return Dialogue(utterances.name, tuple(("", text) for text in utterances.texts))
    dataset = read_dataset(path)
    return Dialogue(dataset.name, tuple(_turns(dataset)))


def _turns(dataset: Dataset) -> Iterator[tuple[str, str]]:
    """In a dialogue of two people, each of them is the user in turn."""
    for talk in dataset.talks:
        speaker, before = "", ""
        for item in talk.items:
            if not item.is_agents:
                yield before if item.speaker != speaker else "", item.text
            speaker, before = item.speaker, item.text


def _case(row: Mapping[str, Any]) -> Case:
    expected = tuple(
        Expected(lesson["kind"], lesson["target"], tuple(lesson["gist"]), lesson.get("replaces", ""))
        for lesson in row["lessons"]
    )
    return Case(
        text=row["text"],
        language=row["language"],
        before=tuple((role, text) for role, text in row.get("before", ())),
        expected=expected,
        also=tuple(tuple(gist) for gist in row.get("also", ())),
        why=row.get("why", ""),
        is_open=bool(row.get("open")),
    )


def _judge(case: Case, total: Score) -> None:
    total.messages += 1
    learned = case.learned()
    for expected in case.expected:
        met = next((lesson for lesson in learned if expected.is_met_by(lesson)), None)
        outcome = "missed" if met is None else "right"
        total.kinds.setdefault(expected.kind, Counter())[outcome] += 1
        total.languages.setdefault(case.language, Counter())[outcome] += 1
        if met is None:
            total.missed.append(case.text)
            continue
        total.right += 1
        total.right_kind += met.kind == expected.kind and met.replaces == expected.replaces
    for lesson in learned:
        if not (_is_expected(lesson, case) or any(_holds(lesson, gist) for gist in case.also)):
            total.wrong.append(f"{lesson.text} <- {case.text}")
            total.tempted[case.why or "teaches"] += 1


def _is_expected(lesson: Lesson, case: Case) -> bool:
    return any(expected.is_met_by(lesson) for expected in case.expected)


def _holds(lesson: Lesson, gist: Iterable[str]) -> bool:
    text = lesson.text.casefold()
    return all(word.casefold() in text for word in gist)


def _share(part: int, rest: int) -> float | None:
    return part / (part + rest) if part + rest else None


def _recall(counts: Counter[str]) -> dict[str, Any]:
    return {"n": counts.total(), "recall": _share(counts["right"], counts["missed"])}


def as_text(measured: Measured, *, shown: int = 0) -> str:
    """`shown`: how many wrong and missed messages of the open half, and lessons from dialogue, are listed."""
    parts = [
        "\n".join(_labelled(name, part, score, shown))
        for name, scores in measured.scores.items()
        for part, score in scores.items()
    ]
    parts += ["\n".join(_dialogue(name, writes, shown)) for name, writes in measured.writes.items()]
    return "\n\n".join(parts)


def _labelled(name: str, part: str, score: Score, shown: int) -> Iterator[str]:
    found = score.figures()
    yield f"{name}, {part.replace('_', ' ')}: {found['messages']} messages"
    yield f"  precision {_number(found['precision'])} ({found['right']} right, {found['wrong']} wrong)"
    yield f"  recall    {_number(found['recall'])} ({found['missed']} missed)"
    yield f"  kind      {_number(found['kind_right'])} of the right lessons"
    for group in ("kinds", "languages"):
        yield f"  {group}: " + ", ".join(_group(title, figures) for title, figures in found[group].items())
    # Held-out messages are not shown, so that no rule is written for them.
    if part == "dev":
        yield from _listed("wrong", score.wrong, shown)
        yield from _listed("missed", score.missed, shown)


def _dialogue(name: str, writes: Writes, shown: int) -> Iterator[str]:
    rate = writes.figures()[f"writes_per_{TURNS_UNIT}_turns"]
    yield f"{name}: {writes.turns} user turns, {len(writes.found)} writes, {rate:.2f} per {TURNS_UNIT} turns"
    if writes.answering:
        share = _number(writes.taught / writes.answering)
        yield f"  {writes.taught} of {writes.answering} messages that answer a question teach something, {share}"
    lines = [f"{lesson.kind}, {lesson.target}: {lesson.text}" for _, lesson in writes.found]
    yield from _listed("written", lines, shown)


def _listed(title: str, lines: Sequence[str], shown: int) -> Iterator[str]:
    for line in lines[:shown]:
        flat = " ".join(line.split())
        yield f"  {title}: {flat[:_EXCERPT_CHARACTERS]}{'…' if len(flat) > _EXCERPT_CHARACTERS else ''}"


def _group(title: str, figures: dict[str, Any]) -> str:
    return f"{title} {_number(figures['recall'])} of {figures['n']}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.rules_eval", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="show N mistakes and N lessons of each file")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    try:
        measured = measure(options.files)
    except InvalidFile as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(measured.figures(), ensure_ascii=False) if options.json else as_text(measured, shown=options.show))
    return 0


if __name__ == "__main__":
    sys.exit(main())
