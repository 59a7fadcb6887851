"""Measures what a turn hands over in everyday use: lives through months of conversations, then asks what people ask.

Every session is recorded by real turns at its own time. Each question starts a new conversation, which is not recorded.
The lines that the model sees are judged by the question's patterns, and compared with BM25 and the newest messages.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from afterturn import blocking
from afterturn.config import Config
from afterturn.conversation.blocking_conversation import Conversation
from afterturn.conversation.turn import PhaseName
from afterturn.errors import DeadlineExceeded
from afterturn.evaluation.everyday_file import Everyday, EverydayQuestion, Person, add_filler, lengthen_answers
from afterturn.evaluation.examination import (
    OURS,
    PATIENCE,
    Bm25,
    EvalClock,
    MissingParts,
    QuestionScore,
    drain,
    drawn_of,
    eval_config,
    in_turn,
    intervals,
    margins,
    scratch_folder,
    shorten,
    wait_until_ready,
)
from afterturn.guard.output_filter import STANDING_TAG
from afterturn.services import Components
from afterturn.testing import SelectingModel
from afterturn.types import Decision, Entry

OUTDATED = "an outdated line leads"
# Pieces in the life of somebody who states preferences.
SMALL_TALK = 150
BASELINE_LINES = 10
# Of a line only this many characters count, and a line that is longer by more than its id, age and author does not.
LINE_CHARS_MAX = 600
_PREFIX_CHARS = 40
# The standing text of a host that keeps the newest messages.
DUMP_CHARS_MAX = 2_560
CHARS_A_TOKEN = 4
# Seconds from one exchange to the next, and from one question of a conversation to the next.
_EXCHANGE_SECONDS = 45.0
_TURN_SECONDS = 20.0
# With `lived`, every second question was asked and recorded this often before.
_ASKED_BEFORE = 2
_REPLY = "One moment, please."
_AUTHOR = re.compile(r"^- (\[\w+\] )?[^:]*: ")
_PAGE = 1000
_WANTED_SHOWN = 3
_INSTEAD_SHOWN = 5
_ID = re.compile(r"^- \[([0-9a-z]+)(?:\.\d+)?\] ")
_CHARS_SHOWN = 100
# Characters of scripts without spaces between words.
_NARROW = re.compile(r"[\x00-\u2fff]")
_LATIN = re.compile(r"[a-z0-9]+")
_STANDING = re.compile(rf"<{STANDING_TAG}>.*?</{STANDING_TAG}>", re.DOTALL)
# Words in more of a person's messages than this share are not distinctive; others are compared by their beginning.
_COMMON_SHARE = 0.15
_STEM_CHARS = 6
_WIDE = 0x2FFF
_ASKS = re.compile("[?？]")


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The lines that a system hands over for a question: those of the last turn's block, of `earlier` blocks of the
    same conversation, and of the standing context. `chars` is the length of the last block, `standing_chars` that of
    all standing text."""

    shown: tuple[str, ...]
    earlier: tuple[str, ...] = ()
    standing: tuple[str, ...] = ()
    chars: int = 0
    standing_chars: int = 0

    @property
    def seen(self) -> list[str]:
        """All lines that the model can see."""
        return [*self.shown, *self.earlier, *self.standing]


@dataclass(frozen=True, slots=True)
class EverydayVerdict:
    """How good it was. `is_first`: a right line leads. `is_outdated`: an outdated line leads the block, or is a
    standing line, and nothing says what holds. `stands_outdated`: a standing line is outdated. `has_word`: the question
    shares a distinctive word with a right message."""

    question: EverydayQuestion
    is_right: bool
    is_first: bool
    is_outdated: bool
    useful: int
    handed: HandedOver
    stands_outdated: bool = False
    has_word: bool = False

    @property
    def fault(self) -> str:
        """Its fault in words; empty if there is none."""
        if not self.question.right:
            return "" if self.is_right else "no block would be right"
        return "not right" if not self.is_right else OUTDATED if self.is_outdated else ""


class EverydayJudge:
    """Judges lines by the patterns of a person's questions. A line that repeats one of the questions never counts."""

    def __init__(self, person: Person) -> None:
        asked = (*person.questions, *person.asked_before)
        self._questions = {_normal(turn) for question in asked for turn in question.turns}
        exchanges = [exchange for session in person.sessions for exchange in session.exchanges]
        said = Counter(word for exchange in exchanges for word in set(_words(exchange.user)))
        self._common = {word[:_STEM_CHARS] for word, n in said.items() if n > _COMMON_SHARE * len(exchanges)}
        texts = [f"{one.user} {one.assistant.partition(chr(10) * 2)[0]}" for one in exchanges]
        self._texts = [(text, {word[:_STEM_CHARS] for word in _words(text)}) for text in texts]

    def verdict(self, question: EverydayQuestion, handed: HandedOver) -> EverydayVerdict:
        shown, standing = handed.shown, handed.standing
        if not question.right:
            return EverydayVerdict(question, not shown, not shown, False, 0, handed)
        is_right = all(any(self.matches(pattern, line) for line in handed.seen) for pattern in question.right)
        right_at = next((at for at, line in enumerate(shown) if self.is_right(question, line)), None)
        outdated_at = next((at for at, line in enumerate(shown) if self.is_outdated(question, line)), None)
        leads = outdated_at is not None and (right_at is None or outdated_at < right_at)
        stands_outdated = any(self.is_outdated(question, line) for line in standing)
        holds = any(self.is_right(question, line) for line in standing)
        return EverydayVerdict(
            question,
            is_right,
            is_right and (right_at == 0 or not shown),
            not holds and (leads or (right_at is None and stands_outdated)),
            sum(self.matches(question.bears, line) for line in shown),
            handed,
            stands_outdated,
            self.shares_word(question),
        )

    def shares_word(self, question: EverydayQuestion) -> bool:
        """Whether, for every `right` pattern, a message that it matches shares a distinctive word with the question."""
        words = _words(" ".join(question.turns))
        asked = {word[:_STEM_CHARS] for word in words if len(word) > 2 or ord(word[0]) > _WIDE} - self._common
        told = [text for text, said in self._texts if asked & said]
        return all(any(pattern.search(text) for text in told) for pattern in question.right)

    def choose(self, question: EverydayQuestion, lines: Sequence[str]) -> list[int]:
        """The selection of somebody who knows the answer: for each `right` pattern the first line, then all others
        that are useful and not outdated."""
        bullets = [f"- {line}" for line in lines]
        found: dict[int, None] = {}
        for pattern in question.right:
            found.update(dict.fromkeys([at for at, line in enumerate(bullets) if self.matches(pattern, line)][:1]))
        for at, line in enumerate(bullets):
            if self.matches(question.bears, line) and not self.is_outdated(question, line):
                found.setdefault(at)
        return list(found)

    def is_right(self, question: EverydayQuestion, line: str) -> bool:
        return any(self.matches(pattern, line) for pattern in question.right)

    def is_outdated(self, question: EverydayQuestion, line: str) -> bool:
        return self.matches(question.stale, line) and not self.is_right(question, line)

    def matches(self, pattern: re.Pattern[str] | None, line: str) -> bool:
        is_short = len(line) <= LINE_CHARS_MAX + _PREFIX_CHARS
        if pattern is None or not is_short or pattern.search(line[:LINE_CHARS_MAX]) is None:
            return False
        return _normal(_AUTHOR.sub("", line)) not in self._questions


def figures_of(verdicts: Sequence[EverydayVerdict]) -> dict[str, float | None]:
    """Counts of questions, and means over the questions that have an answer (None if there are none). `verdicts` must
    not be empty.

    `answerable` is how many of the questions that have an answer are right, `word` and `no_word` the same for those
    that share a distinctive word with a right message and those that do not, `right` counts silence too. `stale` and
    `outdated_stands` are out of the questions whose answer has changed. `useful_share` is the share of all lines.
    """
    answerable = [one for one in verdicts if one.question.right]
    changed = [one for one in answerable if one.question.stale]
    unanswerable = [one for one in verdicts if not one.question.right]
    worded = [one for one in answerable if one.has_word]
    lines, right = sum(len(one.handed.shown) for one in answerable), sum(one.is_right for one in answerable)
    return {
        "n": len(verdicts),
        "answerable": right,
        "answerable_asked": len(answerable),
        "stale": sum(one.is_outdated for one in changed),
        "outdated_stands": sum(one.stands_outdated for one in changed),
        "stale_asked": len(changed),
        "useful_share": _ratio(sum(one.useful for one in answerable), lines),
        "block_tokens": _ratio(sum(one.handed.chars for one in answerable) / CHARS_A_TOKEN, len(answerable)),
        "block_lines": _ratio(lines, len(answerable)),
        "silent": sum(not one.handed.shown for one in unanswerable),
        "silent_asked": len(unanswerable),
        "no_word": right - sum(one.is_right for one in worded),
        "no_word_asked": len(answerable) - len(worded),
        "word": sum(one.is_right for one in worded),
        "word_asked": len(worded),
        "right": sum(one.is_right for one in verdicts),
        "first": sum(one.is_first for one in verdicts),
        "standing_lines": sum(len(one.handed.standing) for one in verdicts) / len(verdicts),
        "standing_tokens": sum(one.handed.standing_chars for one in verdicts) / CHARS_A_TOKEN / len(verdicts),
        "standing_chars_max": max(one.handed.standing_chars for one in verdicts),
    }


def _ratio(part: float, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """The options of `afterturn eval`. `limit` is the most questions per conversation or person; `alone` skips the
    baselines; `misses` is the number of reported misses.

    Everyday files: `host` is "inject" for the loop of the README, "standing" for a host that also puts the standing
    block into its system prompt. `long` lengthens the answers, `filler` is the number of pieces of small talk for each
    person. `half` scores every second question; with `lived`, the others were asked and recorded twice before. `user`
    is the only person who is examined. `selector` is "perfect" for refined recall by a model that knows the answers.
    Preferences have `host` and `filler` too, and `people` is how many made-up people state them.
    """

    embedder: str | None = None
    limit: int | None = None
    alone: bool = False
    misses: int = 0
    lived: bool = False
    user: str | None = None
    selector: str | None = None
    host: str = "inject"
    long: bool = False
    filler: int | None = None
    half: bool = False
    people: int = 8

    @property
    def preferences(self) -> EvalOptions:
        """The options that apply to preferences."""
        small_talk = SMALL_TALK if self.filler is None else self.filler
        return EvalOptions(embedder=self.embedder, alone=self.alone, host=self.host, filler=small_talk)

    @property
    def conditions(self) -> list[str]:
        """The differences from everyday use, in words."""
        half = "every second question" if self.half or self.lived else ""
        return [
            *([f"host {self.host}"] if self.host != "inject" else []),
            *(["long answers"] if self.long else []),
            *([f"{self.filler} pieces of small talk"] if self.filler else []),
            *([f"{half}, the others asked twice before" if self.lived else half] if half else []),
            *(["a perfect selector, which is an upper bound"] if self.selector else []),
        ]


def chosen_people(everyday: Everyday, options: EvalOptions) -> list[Person]:
    """The people to examine, each with the questions to ask."""
    people = [person for person in everyday.people if options.user in (None, person.name)]
    return [_prepare(person, options) for person in people]


def _prepare(person: Person, options: EvalOptions) -> Person:
    person = replace(person, questions=tuple(drawn_of(person.questions, options.limit, person.name)))
    if options.long:
        person = lengthen_answers(person)
    if options.filler:
        person = add_filler(person, options.filler)
    if options.half or options.lived:
        person = replace(person, questions=person.questions[1::2], asked_before=person.questions[::2])
    return person


def count_steps(people: Sequence[Person], options: EvalOptions) -> int:
    """How often `examine_everyday` calls `done`."""
    exchanges = sum(len(session.exchanges) for person in people for session in person.sessions)
    before = _ASKED_BEFORE * sum(len(person.asked_before) for person in people) if options.lived else 0
    return exchanges + before + sum(len(person.questions) for person in people)


def examine_everyday(
    people: Sequence[Person], options: EvalOptions, faults: MissingParts, done: Callable[[], None]
) -> dict[str, dict[str, Any]]:
    """The figures of each system, with those by kind of question and by language. Calls `done` after each step."""
    verdicts: dict[str, list[tuple[Person, EverydayVerdict]]] = {}
    misses: list[EverydayMiss] = []
    judges = {person.name: EverydayJudge(person) for person in people}
    baselines = {person.name: _Baselines(person) for person in people}
    with scratch_folder("afterturn-eval-") as folder:
        lives = EverydayMemories(folder / "memory.db", options, judges, faults, done)
        lives.record(people)
        for asked in lives.ask(people, "now"):
            name, question = asked.person.name, asked.question
            answers = {OURS: asked.handed}
            if not options.alone:
                answers |= baselines[name].answers(question)
            found = {system: judges[name].verdict(question, answer) for system, answer in answers.items()}
            for system, verdict in found.items():
                verdicts.setdefault(system, []).append((asked.person, verdict))
            if options.misses and found[OURS].fault:
                misses.append(asked.miss(found[OURS], judges[name]))
        systems = {system: _summary(some) for system, some in verdicts.items()}
        systems[OURS] |= _intervals(verdicts)
    systems[OURS]["conditions"] = options.conditions
    if options.misses:
        systems[OURS]["missed"] = in_turn(misses, options.misses)
    return systems


def _summary(found: Sequence[tuple[Person, EverydayVerdict]]) -> dict[str, Any]:
    kinds: dict[str, list[EverydayVerdict]] = {}
    languages: dict[str, list[EverydayVerdict]] = {}
    for person, verdict in found:
        kinds.setdefault(verdict.question.kind, []).append(verdict)
        languages.setdefault(person.language, []).append(verdict)
    return {
        **figures_of([verdict for _, verdict in found]),
        "categories": {kind: figures_of(some) for kind, some in sorted(kinds.items())},
        "languages": {language: figures_of(some) for language, some in sorted(languages.items())},
    }


def _intervals(verdicts: Mapping[str, Sequence[tuple[Person, EverydayVerdict]]]) -> dict[str, Any]:
    """95 % intervals over people of two shares, and how far they are above each other system."""
    scores = {
        system: [
            QuestionScore(
                person.name,
                verdict.question.kind,
                {"first": float(verdict.is_first)}
                | ({"answerable": float(verdict.is_right)} if verdict.question.right else {}),
            )
            for person, verdict in found
        ]
        for system, found in verdicts.items()
    }
    ours = intervals(scores[OURS])
    if not ours:
        return {}
    return {"intervals": ours, "margins": margins(scores)}


class EverydayMemories:
    """The memories of all people, in one store with the settings of this machine, without real models."""

    def __init__(
        self,
        path: Path,
        options: EvalOptions,
        judges: Mapping[str, EverydayJudge],
        faults: MissingParts,
        done: Callable[[], None],
    ) -> None:
        self._path = path
        self._options = options
        self.judges = judges
        self._faults = faults
        self._done = done
        self._clock = EvalClock()
        self._config = replace(eval_config(options.embedder), tokens_per_day_max=None)
        self._selector = SelectingModel(_choose_nothing)

    def record(self, people: Iterable[Person]) -> None:
        """Lives through all sessions; with `lived`, asks the questions that were asked before too."""
        with self._open(self._config) as memory:
            for person in people:
                self._live(memory, person)
                before = person.asked_before or person.questions
                for round_number in range(_ASKED_BEFORE if self._options.lived else 0):
                    for question in before:
                        self._ask(memory, person, question, f"before {round_number}", phase="fast")
                    # Questions are not in order of time, and no job may wait for a time that does not come.
                    self._clock.set(max(question.at for question in before) + _EXCHANGE_SECONDS)
                    drain(memory)

    def ask(self, people: Iterable[Person], when: str) -> Iterator[_Asked]:
        """Asks every question in a new conversation, without recording it."""
        is_refined = self._options.selector is not None
        config = replace(self._config, recording=False, refined=is_refined)
        with self._open(config, self._faults) as memory:
            for person in people:
                entries: list[Entry] = []
                space = memory.space(f"user:{person.name}")
                while self._options.misses and (
                    page := space.list(limit=_PAGE, before=entries[-1].id if entries else None)
                ):
                    entries += page
                for question in person.questions:
                    phase: PhaseName = "refined" if is_refined else "fast"
                    conversation, handed = self._ask(memory, person, question, when, phase=phase)
                    if self._options.misses:
                        drain(memory)  # The trace explains them.
                    yield _Asked(person, question, handed, conversation, entries)

    @contextmanager
    def _open(self, config: Config, faults: MissingParts | None = None) -> Iterator[blocking.Memory]:
        components = Components(clock=self._clock, model=self._selector if config.refined else None)
        hear = faults.hear if faults is not None else None
        with blocking.open(self._path, config, components=components, on_event=hear) as memory:
            if config.embedder != "none":
                wait_until_ready(memory)
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
            drain(memory)

    def _ask(
        self, memory: blocking.Memory, person: Person, question: EverydayQuestion, when: str, *, phase: PhaseName
    ) -> tuple[Conversation, HandedOver]:
        self._clock.set(question.at)
        conversation = memory.conversation(f"{when}: {question.id}", user=person.name)
        messages: list[Any] = []
        blocks: list[str] = []
        standing = [conversation.standing().block()] if self._options.host == "standing" else []
        for said in question.turns:
            # The patterns are about the last turn, so nothing is selected before it.
            is_last = len(blocks) == len(question.turns) - 1
            judge = self.judges[person.name]
            self._selector.choose = functools.partial(judge.choose, question) if is_last else _choose_nothing
            messages.append({"role": "user", "content": said})
            with conversation.turn(messages) as turn:
                element = turn.inject(messages, within=PATIENCE, phase=phase)
                text = "" if element is None else str(element["content"])
                fixed, block = split_standing(text)
                standing += fixed
                blocks.append(block)
                messages.append({"role": "assistant", "content": _REPLY})
            self._clock.advance(_TURN_SECONDS)
        *earlier, last = blocks
        self._done()
        shown = _bullets(last)
        handed = HandedOver(
            shown,
            _bullets("\n".join(earlier)),
            _bullets("\n".join(standing)),
            len(last) if shown else 0,
            sum(map(len, standing)),
        )
        return conversation, handed


def split_standing(text: str) -> tuple[list[str], str]:
    """The standing texts in what was injected, and the rest."""
    return [found.group() for found in _STANDING.finditer(text)], _STANDING.sub("", text)


def _choose_nothing(lines: Sequence[str]) -> list[int]:
    return []


def _bullets(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line.startswith("- "))


@dataclass(frozen=True, slots=True)
class WantedLine:
    """A memory that a missed pattern matches, and what happened to it in the recall.

    `place` is its position among the candidates, from 1 on; None if it is not one of them. `why` is a Decision, or None
    if no recall was started. `reason` is a clause for people.
    """

    id: str
    text: str
    place: int | None
    why: Decision | None
    reason: str


@dataclass(frozen=True, slots=True)
class EverydayMiss:
    """A question with a fault. `wanted` are memories that should have come, by pattern; `instead` is the block."""

    person: str
    id: str
    category: str
    question: str
    fault: str
    wanted: Mapping[str, tuple[WantedLine, ...]]
    instead: tuple[str, ...]

    def lines(self) -> list[str]:
        """The miss as text; long texts are cut."""
        lines = [f"{self.fault}, {self.category}, {self.person}: {self.question}"]
        if not self.instead:
            lines.append("    there is no block")
        should = "should have come first" if self.fault == OUTDATED else "should have come"
        for pattern, wanted in self.wanted.items():
            lines += [f"    {should}, {one.reason}: {_cut(one.text)}" for one in wanted[:_WANTED_SHOWN]]
            if not wanted:
                lines.append(f"    no memory matches {pattern!r}")
        lines += [f"    instead: {_cut(_ID.sub('- ', line))}" for line in self.instead[:_INSTEAD_SHOWN]]
        more = len(self.instead) - _INSTEAD_SHOWN
        return [*lines, f"    instead: and {more} more"] if more > 0 else lines


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question with what was handed over, its conversation, and all memories of the person if misses are shown."""

    person: Person
    question: EverydayQuestion
    handed: HandedOver
    conversation: Conversation
    entries: Sequence[Entry]

    def miss(self, verdict: EverydayVerdict, judge: EverydayJudge) -> EverydayMiss:
        seen = verdict.handed.seen
        missed = [one for one in self.question.right if not any(judge.matches(one, line) for line in seen)]
        if verdict.is_outdated and verdict.is_right:
            missed = list(self.question.right)
        wanted = {}
        for pattern in missed:
            entries = [entry for entry in self.entries if judge.matches(pattern, _line(entry))]
            wanted[pattern.pattern] = tuple(self._wanted(entry) for entry in entries)
        asked = " // ".join(self.question.turns)
        name, kind = self.person.name, self.question.kind
        return EverydayMiss(name, self.question.id, kind, asked, verdict.fault, wanted, self.handed.shown)

    def _wanted(self, entry: Entry) -> WantedLine:
        text = _line(entry)
        (turn,) = self.conversation.trace("last").turns
        if turn.no_recall is not None:
            reason = f"no recall was started ({turn.no_recall.replace('_', ' ')})"
            return WantedLine(entry.id, text, None, None, reason)
        explained = self.conversation.why(entry.id)[-1].explained
        scores = {one.ref: one.score for recall in turn.recalls for one in recall.row.candidates}
        if entry.ref not in scores:
            return WantedLine(entry.id, text, None, explained.why, explained.reason)
        place = sorted(scores.values(), reverse=True).index(scores[entry.ref]) + 1
        reason = f"place {place} of {len(scores)}, {explained.reason}"
        return WantedLine(entry.id, text, place, explained.why, reason)


def _line(entry: Entry) -> str:
    return f"- {entry.speaker or entry.kind}: {entry.text}"


def _cut(line: str) -> str:
    return shorten(line.removeprefix("- "), _CHARS_SHOWN)


class _Baselines:
    """Ten messages of the person's past by BM25; and the newest ones that ask nothing as standing lines, which shows
    what choosing nothing would reach."""

    def __init__(self, person: Person) -> None:
        exchanges = [exchange for session in person.sessions for exchange in session.exchanges]
        texts = [(f"- user: {one.user}", f"- assistant: {one.assistant}") for one in exchanges]
        # Of equal scores, the text that sorts last comes first.
        self._lines = sorted((text for pair in texts for text in pair), reverse=True)
        self._bm25 = Bm25(_words)
        self._bm25.add_all(self._lines)
        newest: list[str] = []
        for exchange in reversed(exchanges):
            line = f"- {exchange.user}"
            if not _ASKS.search(line) and sum(map(len, newest)) + len(newest) + len(line) < DUMP_CHARS_MAX:
                newest.append(line)
        self._dump = HandedOver((), standing=tuple(newest), standing_chars=DUMP_CHARS_MAX)

    def answers(self, question: EverydayQuestion) -> dict[str, HandedOver]:
        best = [self._lines[at] for at in self._bm25.rank(" ".join(question.turns), BASELINE_LINES)]
        return {"bm25": HandedOver(tuple(best), chars=len("\n".join(best))), "dump": self._dump}


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
