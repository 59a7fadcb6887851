"""Measures what a turn hands over in everyday use: lives through months of conversations, then asks what people ask.

Every session is recorded by real turns at its own time. Each question starts a new conversation, which is not recorded.
The lines of its block are judged by the question's patterns, and compared with BM25 and with lines drawn at random.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from afterturn import blocking
from afterturn.config import Config, load_config
from afterturn.conversation.blocking_conversation import Conversation
from afterturn.conversation.turn import PhaseName
from afterturn.errors import ConfigError, DeadlineExceeded, InvalidInput, NotFound
from afterturn.evaluation.datasets import Item
from afterturn.evaluation.everyday_file import Everyday, EverydayQuestion, Person
from afterturn.evaluation.examination import (
    OURS,
    PATIENCE,
    Bm25,
    EvalClock,
    MissingParts,
    QuestionScore,
    differences,
    drafts_of,
    intervals,
    means,
    scratch_folder,
)
from afterturn.evaluation.silence import make_small_talk
from afterturn.services import Components
from afterturn.testing import SelectingModel
from afterturn.types import Decision, Entry

CROWDED = f"{OURS} after small talk"
OUTDATED = "an outdated line leads"
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
_PAGE = 1000
_WANTED_SHOWN = 3
_INSTEAD_SHOWN = 5
_ID = re.compile(r"^- \[([0-9a-z]+)(?:\.\d+)?\] ")
# How many exchanges a conversation of small talk has.
_SMALL_TALK_SESSION = 20
_CHARS_SHOWN = 100
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

    @property
    def seen(self) -> list[str]:
        """All lines that the model can see."""
        return [*self.shown, *self.earlier, *self.standing]


@dataclass(frozen=True, slots=True)
class EverydayVerdict:
    """How good it was. `is_first`: a right line leads. `is_outdated`: an outdated line leads, or stands alone."""

    question: EverydayQuestion
    is_right: bool
    is_first: bool
    is_outdated: bool
    useful: int
    handed: HandedOver

    @property
    def fault(self) -> str:
        """What is wrong with it, in words; empty if nothing is."""
        if not self.question.right:
            return "" if self.is_right else "no block would be right"
        return "not right" if not self.is_right else OUTDATED if self.is_outdated else ""


class EverydayJudge:
    """Judges lines by the patterns of a person's questions. A line that repeats one of the questions never counts."""

    def __init__(self, person: Person) -> None:
        self._questions = {_normal(turn) for question in person.questions for turn in question.turns}

    def verdict(self, question: EverydayQuestion, handed: HandedOver) -> EverydayVerdict:
        shown, standing = handed.shown, handed.standing[:STANDING_MAX]
        handed = replace(handed, standing=standing)
        if not question.right:
            return EverydayVerdict(question, not shown, not shown, False, 0, handed)
        is_right = all(any(self.matches(pattern, line) for line in handed.seen) for pattern in question.right)
        right_at = next((at for at, line in enumerate(shown) if self.is_right(question, line)), None)
        outdated_at = next((at for at, line in enumerate(shown) if self.is_outdated(question, line)), None)
        is_outdated = outdated_at is not None and (right_at is None or outdated_at < right_at)
        if not any(self.is_right(question, line) for line in standing):
            is_outdated |= any(self.is_outdated(question, line) for line in standing)
        useful = sum(self.matches(question.bears, line) for line in shown)
        return EverydayVerdict(
            question, is_right, is_right and (right_at == 0 or not shown), is_outdated, useful, handed
        )

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

    def right_lines(self, question: EverydayQuestion, handed: HandedOver) -> dict[str, str]:
        """The right lines that the model can see, by the id of their memory."""
        return {_ref(line): line for line in handed.seen if self.is_right(question, line)}

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
    most questions per person; `alone` skips the baselines; `misses` is the number of reported misses; `selector` is
    "perfect" for refined recall by a model that knows the answers; `small_talk` asks again after this many times as
    many messages of small talk as a person had said and heard."""

    embedder: str | None = None
    lived: bool = False
    user: str | None = None
    limit: int | None = None
    alone: bool = False
    misses: int = 0
    selector: str | None = None
    small_talk: int = 0

    @property
    def conditions(self) -> list[str]:
        """What differs from everyday use, in words."""
        selector = ["a perfect selector, which is an upper bound"] if self.selector else []
        return [*(["every question asked twice before"] if self.lived else []), *selector]


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
    rounds = 1 + (_ASKED_BEFORE if options.lived else 0) + (1 if options.small_talk else 0)
    exchanges = sum(len(session.exchanges) for person in people for session in person.sessions)
    return exchanges + rounds * sum(len(person.questions) for person in people)


def examine_everyday(
    people: Sequence[Person],
    options: EverydayOptions,
    faults: MissingParts,
    done: Callable[[], None],
    remarks: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """The figures of each system, with those by kind of question and by language. Calls `done` after each step.

    `remarks` are the small talk to add; by default, it is made of templates.
    """
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
        if options.small_talk:
            before = [verdict for _, verdict in verdicts[OURS]]
            systems[CROWDED] = _examine_crowded(lives, people, before, options, remarks)
    systems[OURS]["conditions"] = options.conditions
    if options.misses:
        systems[OURS]["missed"] = in_turn(misses, options.misses)
    return systems


def _examine_crowded(
    lives: EverydayMemories,
    people: Sequence[Person],
    before: Sequence[EverydayVerdict],
    options: EverydayOptions,
    remarks: Sequence[str],
) -> dict[str, Any]:
    """Adds small talk, asks every question again, and counts the right lines that were in the block before."""
    added = sum(lives.add_small_talk(person, remarks) for person in people)
    after: list[tuple[Person, EverydayVerdict]] = []
    lost: list[LostLine] = []
    right_lines = lost_answers = 0
    for earlier, asked in zip(before, lives.ask(people, "after small talk"), strict=True):
        judge = lives.judges[asked.person.name]
        verdict = judge.verdict(asked.question, asked.handed)
        after.append((asked.person, verdict))
        right = judge.right_lines(asked.question, earlier.handed)
        kept = {_ref(line) for line in verdict.handed.seen}
        right_lines += len(right)
        lost += [asked.lost(line) for ref, line in right.items() if ref not in kept]
        lost_answers += earlier.is_right and not verdict.is_right
    return {
        **_summary(after),
        "small_talk": {
            "messages": added,
            "right_lines": right_lines,
            "lost_lines": len(lost),
            "right": sum(one.is_right for one in before),
            "lost_answers": lost_answers,
            "lost": lost[: options.misses],
        },
    }


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


def _intervals(verdicts: Mapping[str, Sequence[tuple[Person, EverydayVerdict]]]) -> dict[str, Any]:
    """95 % intervals over people of the shares of right answers, and how far they are above each other system."""
    scores = {
        system: [
            QuestionScore(
                person.name,
                verdict.question.kind,
                {"right": float(verdict.is_right), "first": float(verdict.is_first)},
            )
            for person, verdict in found
        ]
        for system, found in verdicts.items()
    }
    ours = intervals(scores[OURS])
    if not ours:
        return {}
    margins = {}
    for system in [system for system in scores if system != OURS]:
        more = differences(scores[OURS], scores[system])
        margins[system] = {**means(more), "intervals": intervals(more)}
    return {"intervals": ours, "margins": margins}


class EverydayMemories:
    """The memories of all people, in one store with the settings of this machine, without real models."""

    def __init__(
        self,
        path: Path,
        options: EverydayOptions,
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
        chosen = {"embedder": options.embedder} if options.embedder is not None else {}
        self._config = replace(
            load_config(chosen),
            synchronous="normal",
            refined=False,
            model_url=None,
            tenant="default",
            recall_timeout=PATIENCE,
            tokens_per_day_max=None,
        )
        self._selector = SelectingModel(_choose_nothing)

    def record(self, people: Iterable[Person]) -> None:
        """Lives through all sessions; with `lived`, asks all questions too."""
        with self._open(self._config) as memory:
            for person in people:
                self._live(memory, person)
                for round_number in range(_ASKED_BEFORE if self._options.lived else 0):
                    for question in person.questions:
                        self._ask(memory, person, question, f"before {round_number}", phase="fast")
                    # Questions are not in order of time, and no job may wait for a time that does not come.
                    self._clock.set(max(question.at for question in person.questions) + _EXCHANGE_SECONDS)
                    _drain(memory)

    def add_small_talk(self, person: Person, remarks: Sequence[str]) -> int:
        """Adds messages between the last session and the first question. Returns how many."""
        exchanges = self._options.small_talk * sum(len(session.exchanges) for session in person.sessions)
        said = make_small_talk(exchanges)
        if remarks:
            said = [(remarks[at % len(remarks)], reply) for at, (_, reply) in enumerate(said)]
        begin, end = person.sessions[-1].at, min(question.at for question in person.questions)
        step = max(end - begin, 0.0) / (exchanges + 1)
        items = []
        for at, pair in enumerate(said):
            session = f"small talk {at // _SMALL_TALK_SESSION}"
            for speaker, text in zip(("user", "assistant"), pair, strict=True):
                items.append(Item(f"{at} {speaker}", session, speaker, text, begin + step * (at + 1)))
        with self._open(self._config) as memory:
            self._clock.set(end)
            memory.space(f"user:{person.name}").add_many(drafts_of(items), clean=True)
            _drain(memory)
        return len(items)

    def ask(self, people: Iterable[Person], when: str) -> Iterator[_Asked]:
        """Asks every question in a new conversation, without recording it."""
        is_refined = self._options.selector is not None
        config = replace(self._config, recording=False, refined=is_refined)
        with self._open(config, self._faults) as memory:
            for person in people:
                entries = _read_entries(memory, person) if self._options.misses else []
                for question in person.questions:
                    phase: PhaseName = "refined" if is_refined else "fast"
                    conversation, handed = self._ask(memory, person, question, when, phase=phase)
                    yield _Asked(person, question, handed, conversation, entries)

    @contextmanager
    def _open(self, config: Config, faults: MissingParts | None = None) -> Iterator[blocking.Memory]:
        components = Components(clock=self._clock, model=self._selector if config.refined else None)
        hear = faults.hear if faults is not None else None
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

    def _ask(
        self, memory: blocking.Memory, person: Person, question: EverydayQuestion, when: str, *, phase: PhaseName
    ) -> tuple[Conversation, HandedOver]:
        self._clock.set(question.at)
        conversation = memory.conversation(f"{when}: {question.id}", user=person.name)
        messages: list[Any] = []
        blocks: list[str] = []
        for said in question.turns:
            # The patterns are about the last turn, so nothing is selected before it.
            is_last = len(blocks) == len(question.turns) - 1
            judge = self.judges[person.name]
            self._selector.choose = functools.partial(judge.choose, question) if is_last else _choose_nothing
            messages.append({"role": "user", "content": said})
            with conversation.turn(messages) as turn:
                element = turn.inject(messages, within=PATIENCE, phase=phase)
                blocks.append("" if element is None else str(element["content"]))
                messages.append({"role": "assistant", "content": _REPLY})
            self._clock.advance(_TURN_SECONDS)
        *earlier, last = blocks
        standing = conversation.standing().block()
        self._done()
        return conversation, HandedOver(_bullets(last), _bullets("\n".join(earlier)), _bullets(standing), len(last))


def _choose_nothing(lines: Sequence[str]) -> list[int]:
    return []


def _read_entries(memory: blocking.Memory, person: Person) -> list[Entry]:
    """Everything that is remembered of this person, newest first."""
    space = memory.space(f"user:{person.name}")
    entries: list[Entry] = []
    while page := space.list(limit=_PAGE, before=entries[-1].id if entries else None):
        entries += page
    return entries


def _drain(memory: blocking.Memory) -> None:
    if not memory.drain(within=PATIENCE):
        raise DeadlineExceeded(f"Background jobs were not done after {PATIENCE:g} seconds. See `afterturn doctor`.")


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
class LostLine:
    """A right line that was handed over before small talk was added, and is not any more."""

    person: str
    question: str
    line: str
    reason: str

    def text(self) -> str:
        return f"lost, {self.reason}: {_cut(_ID.sub('- ', self.line))} ({self.person}: {self.question})"


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

    def lost(self, line: str) -> LostLine:
        """Why a line of an earlier block is not handed over now."""
        try:
            reason = self.conversation.why(_ref(line))[-1].explained.reason
        except (NotFound, InvalidInput):  # Nothing was recalled, or the line has no id.
            reason = "it is not there any more"
        return LostLine(self.person.name, " // ".join(self.question.turns), line, reason)

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


def in_turn(misses: Sequence[EverydayMiss], count: int) -> list[EverydayMiss]:
    """The first `count`, from each kind in turn."""
    by_kind: dict[str, list[EverydayMiss]] = {}
    for miss in misses:
        by_kind.setdefault(miss.category, []).append(miss)
    longest = max(map(len, by_kind.values()), default=0)
    return [some[at] for at in range(longest) for some in by_kind.values() if at < len(some)][:count]


def _ref(line: str) -> str:
    """The id of the memory in a line; a line without one stands for itself."""
    found = _ID.match(line)
    return found[1] if found else line


def _line(entry: Entry) -> str:
    return f"- {entry.speaker or entry.kind}: {entry.text}"


def _cut(line: str) -> str:
    text = " ".join(line.removeprefix("- ").split())
    return text if len(text) <= _CHARS_SHOWN else f"{text[: _CHARS_SHOWN - 1]}…"


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
