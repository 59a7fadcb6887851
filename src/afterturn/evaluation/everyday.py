"""Measures what a turn hands over in everyday use: lives through months of conversations, then asks what people ask.

Every session is recorded by real turns at its own time. Each question starts a new conversation, which is not recorded.
The lines of its block are judged by the question's patterns, and compared with BM25 and with lines drawn at random.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from afterturn import blocking
from afterturn.config import Config, load_config
from afterturn.errors import ConfigError, DeadlineExceeded
from afterturn.evaluation.everyday_file import Everyday, EverydayQuestion, Person
from afterturn.evaluation.examination import OURS, PATIENCE, Bm25, EvalClock, MissingParts, scratch_folder
from afterturn.services import Components

BASELINE_LINES = 10
# More standing lines than these do not count as seen, nor does a line beyond this many characters.
STANDING_MAX = 12
LINE_CHARS_MAX = 600
CHARS_A_TOKEN = 4
# Seconds from one exchange to the next, and from one question of a conversation to the next.
_EXCHANGE_SECONDS = 45.0
_TURN_SECONDS = 20.0
# With `lived`, every question was asked and recorded this often before.
_ASKED_BEFORE = 2
_REPLY = "One moment, please."
_AUTHOR = re.compile(r"^- (\[\w+\] )?[^:]*: ")
# Characters of scripts without spaces between words.
_NARROW = re.compile(r"[\x00-\u2fff]")
_LATIN = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The lines that a system hands over for a question: those of the last turn's block, of `earlier` blocks of the
    same conversation, and of the standing context. `chars` is the length of the last block."""

    shown: tuple[str, ...]
    earlier: tuple[str, ...] = ()
    standing: tuple[str, ...] = ()
    chars: int = 0


@dataclass(frozen=True, slots=True)
class EverydayVerdict:
    """How good it was. `is_first`: a right line leads. `is_outdated`: an outdated line leads, or stands alone."""

    question: EverydayQuestion
    is_right: bool
    is_first: bool
    is_outdated: bool
    useful: int
    handed: HandedOver


class EverydayJudge:
    """Judges lines by the patterns of a person's questions. A line that repeats one of the questions never counts."""

    def __init__(self, person: Person) -> None:
        self._questions = {_normal(turn) for question in person.questions for turn in question.turns}

    def verdict(self, question: EverydayQuestion, handed: HandedOver) -> EverydayVerdict:
        shown, standing = handed.shown, handed.standing[:STANDING_MAX]
        handed = replace(handed, standing=standing)
        if not question.right:
            return EverydayVerdict(question, not shown, not shown, False, 0, handed)
        seen = [*shown, *handed.earlier, *standing]
        is_right = all(any(self.matches(pattern, line) for line in seen) for pattern in question.right)
        right_at = next((at for at, line in enumerate(shown) if self.is_right(question, line)), None)
        outdated_at = next((at for at, line in enumerate(shown) if self.is_outdated(question, line)), None)
        is_outdated = outdated_at is not None and (right_at is None or outdated_at < right_at)
        if not any(self.is_right(question, line) for line in standing):
            is_outdated |= any(self.is_outdated(question, line) for line in standing)
        useful = sum(self.matches(question.bears, line) for line in shown)
        return EverydayVerdict(
            question, is_right, is_right and (right_at == 0 or not shown), is_outdated, useful, handed
        )

    def is_right(self, question: EverydayQuestion, line: str) -> bool:
        return any(self.matches(pattern, line) for pattern in question.right)

    def is_outdated(self, question: EverydayQuestion, line: str) -> bool:
        return self.matches(question.stale, line) and not self.is_right(question, line)

    def matches(self, pattern: re.Pattern[str] | None, line: str) -> bool:
        if pattern is None or pattern.search(line[:LINE_CHARS_MAX]) is None:
            return False
        return _normal(_AUTHOR.sub("", line)) not in self._questions


@dataclass(frozen=True, slots=True)
class EverydayFigures:
    """Counts of questions, and means over the questions that have an answer (None if there are none).

    `outdated_leads` is out of the `outdated_asked` questions whose answer has changed, `silent` out of the
    `silent_asked` questions for which no block is right. `useful_share` is the share of all lines.
    """

    n: int
    right: int
    first: int
    outdated_leads: int
    outdated_asked: int
    useful_share: float | None
    silent: int
    silent_asked: int
    block_lines: float | None
    block_tokens: float | None
    standing_lines: float


def figures_of(verdicts: Sequence[EverydayVerdict]) -> EverydayFigures:
    """`verdicts` must not be empty."""
    answerable = [one for one in verdicts if one.question.right]
    changed = [one for one in answerable if one.question.stale]
    unanswerable = [one for one in verdicts if not one.question.right]
    lines = sum(len(one.handed.shown) for one in answerable)
    return EverydayFigures(
        n=len(verdicts),
        right=sum(one.is_right for one in verdicts),
        first=sum(one.is_first for one in verdicts),
        outdated_leads=sum(one.is_outdated for one in changed),
        outdated_asked=len(changed),
        useful_share=_ratio(sum(one.useful for one in answerable), lines),
        silent=sum(not one.handed.shown for one in unanswerable),
        silent_asked=len(unanswerable),
        block_lines=_ratio(lines, len(answerable)),
        block_tokens=_ratio(sum(one.handed.chars for one in answerable) / CHARS_A_TOKEN, len(answerable)),
        standing_lines=sum(len(one.handed.standing) for one in verdicts) / len(verdicts),
    )


def _ratio(part: float, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True, slots=True)
class EverydayOptions:
    """`lived` asks and records every question twice before; `user` is the only person who is examined; `limit` is the
    most questions per person; `alone` skips the baselines."""

    embedder: str | None = None
    lived: bool = False
    user: str | None = None
    limit: int | None = None
    alone: bool = False


def chosen_people(everyday: Everyday, options: EverydayOptions) -> list[Person]:
    """The people to examine, each with the questions to ask."""
    people = [person for person in everyday.people if options.user in (None, person.name)]
    return [replace(person, questions=_sample(person, options.limit)) for person in people]


def _sample(person: Person, limit: int | None) -> tuple[EverydayQuestion, ...]:
    """At most `limit` questions, drawn at random but the same each time, so that all kinds occur."""
    if limit is None or len(person.questions) <= limit:
        return person.questions
    places = random.Random(person.name).sample(range(len(person.questions)), limit)
    return tuple(person.questions[place] for place in sorted(places))


def count_steps(people: Sequence[Person], options: EverydayOptions) -> int:
    """How often `examine_everyday` calls `done`."""
    rounds = 1 + (_ASKED_BEFORE if options.lived else 0)
    exchanges = sum(len(session.exchanges) for person in people for session in person.sessions)
    return exchanges + rounds * sum(len(person.questions) for person in people)


def examine_everyday(
    people: Sequence[Person], options: EverydayOptions, faults: MissingParts, done: Callable[[], None]
) -> dict[str, dict[str, Any]]:
    """The figures of each system, with those by kind of question and by language. Calls `done` after each step."""
    verdicts: dict[str, list[tuple[Person, EverydayVerdict]]] = {}
    judges = {person.name: EverydayJudge(person) for person in people}
    baselines = {person.name: _Baselines(person) for person in people}
    with scratch_folder("afterturn-eval-") as folder:
        lives = _Lives(folder / "memory.db", options, faults, done)
        lives.record(people)
        for person, question, handed in lives.ask(people):
            answers = {OURS: handed}
            if not options.alone:
                answers |= baselines[person.name].answers(question)
            for system, answer in answers.items():
                verdict = judges[person.name].verdict(question, answer)
                verdicts.setdefault(system, []).append((person, verdict))
    return {system: _summary(found) for system, found in verdicts.items()}


def _summary(found: Sequence[tuple[Person, EverydayVerdict]]) -> dict[str, Any]:
    kinds: dict[str, list[EverydayVerdict]] = {}
    languages: dict[str, list[EverydayVerdict]] = {}
    for person, verdict in found:
        kinds.setdefault(verdict.question.kind, []).append(verdict)
        languages.setdefault(person.language, []).append(verdict)
    return {
        **asdict(figures_of([verdict for _, verdict in found])),
        "categories": {kind: asdict(figures_of(some)) for kind, some in sorted(kinds.items())},
        "languages": {language: asdict(figures_of(some)) for language, some in sorted(languages.items())},
    }


class _Lives:
    """The memories of all people, in one store with the settings of this machine, without models."""

    def __init__(self, path: Path, options: EverydayOptions, faults: MissingParts, done: Callable[[], None]) -> None:
        self._path = path
        self._options = options
        self._faults = faults
        self._done = done
        self._clock = EvalClock()
        chosen = {"embedder": options.embedder} if options.embedder is not None else {}
        self._config = replace(
            load_config(chosen),
            synchronous="normal",
            refined=False,
            model_url=None,
            tenant="default",
            recall_timeout=PATIENCE,
        )

    def record(self, people: Iterable[Person]) -> None:
        """Lives through all sessions; with `lived`, asks all questions too."""
        with self._open(self._config) as memory:
            for person in people:
                self._live(memory, person)
                for round_number in range(_ASKED_BEFORE if self._options.lived else 0):
                    for question in person.questions:
                        self._ask(memory, person, question, f"before {round_number}")
                    # Questions are not in order of time, and no job may wait for a time that does not come.
                    self._clock.set(max(question.at for question in person.questions) + _EXCHANGE_SECONDS)
                    _drain(memory)

    def ask(self, people: Iterable[Person]) -> Iterator[tuple[Person, EverydayQuestion, HandedOver]]:
        """Asks every question in a new conversation, without recording it."""
        with self._open(replace(self._config, recording=False), self._faults) as memory:
            for person in people:
                for question in person.questions:
                    yield person, question, self._ask(memory, person, question, "now")

    @contextmanager
    def _open(self, config: Config, faults: MissingParts | None = None) -> Iterator[blocking.Memory]:
        components, hear = Components(clock=self._clock), faults.hear if faults is not None else None
        with blocking.open(self._path, config, components=components, on_event=hear) as memory:
            if not memory.ready(within=PATIENCE) and config.embedder != "none":
                raise ConfigError(f"The embedder {config.embedder!r} cannot be loaded. See `afterturn doctor`.")
            yield memory

    def _live(self, memory: blocking.Memory, person: Person) -> None:
        for session in person.sessions:
            self._clock.set(session.at)
            conversation = memory.conversation(session.id, user=person.name)
            messages: list[Any] = []
            for exchange in session.exchanges:
                said, *rest = exchange.messages()
                messages.append(said)
                with conversation.turn(messages) as turn:
                    turn.inject(messages, within=PATIENCE)
                    messages += rest
                if not turn.wait_recorded(within=PATIENCE):
                    raise DeadlineExceeded(f"A turn of {session.id} was not recorded. See `afterturn doctor`.")
                self._clock.advance(_EXCHANGE_SECONDS)
                self._done()
            _drain(memory)

    def _ask(self, memory: blocking.Memory, person: Person, question: EverydayQuestion, when: str) -> HandedOver:
        self._clock.set(question.at)
        conversation = memory.conversation(f"{when}: {question.id}", user=person.name)
        messages: list[Any] = []
        blocks: list[str] = []
        for said in question.turns:
            messages.append({"role": "user", "content": said})
            with conversation.turn(messages) as turn:
                element = turn.inject(messages, within=PATIENCE)
                blocks.append("" if element is None else str(element["content"]))
                messages.append({"role": "assistant", "content": _REPLY})
            self._clock.advance(_TURN_SECONDS)
        *earlier, last = blocks
        standing = conversation.standing().block()
        self._done()
        return HandedOver(_bullets(last), _bullets("\n".join(earlier)), _bullets(standing), len(last))


def _drain(memory: blocking.Memory) -> None:
    if not memory.drain(within=PATIENCE):
        raise DeadlineExceeded(f"Background jobs were not done after {PATIENCE:g} seconds. See `afterturn doctor`.")


def _bullets(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line.startswith("- "))


class _Baselines:
    """Ten messages of the person's past: the best by BM25, or drawn at random but the same each time."""

    def __init__(self, person: Person) -> None:
        exchanges = [exchange for session in person.sessions for exchange in session.exchanges]
        texts = [(f"- user: {one.user}", f"- assistant: {one.assistant}") for one in exchanges]
        # Of equal scores, the text that sorts last comes first.
        self._lines = sorted((text for pair in texts for text in pair), reverse=True)
        self._bm25 = Bm25(_words)
        self._bm25.add_all(self._lines)
        self._name = person.name

    def answers(self, question: EverydayQuestion) -> dict[str, HandedOver]:
        best = [self._lines[at] for at in self._bm25.rank(" ".join(question.turns), BASELINE_LINES)]
        drawn = random.Random(f"{self._name} {question.id}").sample(self._lines, min(BASELINE_LINES, len(self._lines)))
        return {
            system: HandedOver(tuple(lines), chars=len("\n".join(lines)))
            for system, lines in (("bm25", best), ("random", drawn))
        }


def _words(text: str) -> list[str]:
    """The words of a text; for scripts without spaces, each two characters that follow each other."""
    found: list[str] = []
    for run in re.findall(r"\w+", text.lower()):
        wide = _NARROW.sub("", run)
        if not wide:
            found.append(run)
            continue
        found += [wide[at : at + 2] for at in range(max(1, len(wide) - 1))]
        found += _LATIN.findall(run)
    return found


def _normal(text: str) -> str:
    return " ".join(_words(text))
