"""Asks every question of a data set in a real store, scores the answers, and compares with BM25 and dense search."""

from __future__ import annotations

import math
import random
import re
import shutil
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from afterturn import blocking
from afterturn.config import Config, load_config
from afterturn.conversation.read_turn import candidates_max
from afterturn.embedders.service import SLICE
from afterturn.errors import ConfigError, DeadlineExceeded
from afterturn.evaluation.datasets import Dataset, Item, Question, Talk
from afterturn.guard.gate import RECORD_BYTES_MAX
from afterturn.guard.output_filter import OutputFilter
from afterturn.ports import Batching, Closable, Embedder
from afterturn.recall.answer import compose
from afterturn.recall.scoring import SEARCH_SCORE_MIN, above_floor
from afterturn.runtime.clock import SystemClock, TimeOrderedIds
from afterturn.services import Components, default_embedder
from afterturn.text import cut, estimate_tokens, terms
from afterturn.types import Draft, EmbedderIdentity, Entry, Event, Hit, Kind, Lane, Origin, Outcome, Status, Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


OURS = "afterturn"
CUTS = (1, 3, 5, 10, 20)
NDCG_CUT = 10
RESAMPLES = 1000
SEED = 7

Figures: TypeAlias = Mapping[str, float]
T = TypeVar("T")
C = TypeVar("C", bound="Categorized")


@dataclass(frozen=True, slots=True)
class QuestionScore:
    """One question's figures. Intervals are by `talk`: questions about one conversation are not independent."""

    talk: str
    category: str
    figures: Figures


def rank_figures(ranked: Sequence[str], evidence: Sequence[str]) -> dict[str, float]:
    """`ranked` best first, each name once; `evidence` is not empty."""
    places = sorted(place for place, name in enumerate(ranked) if name in set(evidence))
    figures: dict[str, float] = {}
    for place_max in CUTS:
        found = sum(place < place_max for place in places)
        figures[f"recall@{place_max}"] = found / len(evidence)
        figures[f"all@{place_max}"] = float(found == len(evidence))
    ideal = sum(_gain(place) for place in range(min(len(evidence), NDCG_CUT)))
    figures[f"ndcg@{NDCG_CUT}"] = sum(_gain(place) for place in places if place < NDCG_CUT) / ideal
    figures["mrr"] = 1 / (places[0] + 1) if places else 0.0
    return figures


def _gain(place: int) -> float:
    return 1 / math.log2(place + 2)


def means(outcomes: Iterable[QuestionScore]) -> dict[str, float]:
    """The mean of each figure over the questions that have it."""
    values: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, value in outcome.figures.items():
            values.setdefault(name, []).append(value)
    return {name: sum(found) / len(found) for name, found in values.items()}


def figures_of(outcomes: Sequence[QuestionScore]) -> dict[str, Any]:
    """The number of questions and the means, for all of them and by category."""
    categories = {
        category: [outcome for outcome in outcomes if outcome.category == category]
        for category in sorted({outcome.category for outcome in outcomes})
    }
    return {
        "n": len(outcomes),
        **means(outcomes),
        "categories": {name: {"n": len(part), **means(part)} for name, part in categories.items()},
    }


def intervals(outcomes: Sequence[QuestionScore]) -> dict[str, list[float]]:
    """95 % intervals from conversations drawn with replacement; empty for a single conversation.

    The same outcomes give the same intervals.
    """
    import numpy as np

    talks = sorted({outcome.talk for outcome in outcomes})
    if len(talks) < 2:
        return {}
    names = sorted({name for outcome in outcomes for name in outcome.figures})
    sums = np.zeros((len(talks), len(names)))
    counts = np.zeros((len(talks), len(names)))
    for outcome in outcomes:
        row = talks.index(outcome.talk)
        for name, value in outcome.figures.items():
            column = names.index(name)
            sums[row, column] += value
            counts[row, column] += 1
    drawn = np.random.default_rng(SEED).integers(0, len(talks), size=(RESAMPLES, len(talks)))
    resampled = sums[drawn].sum(axis=1) / np.maximum(counts[drawn].sum(axis=1), 1)
    low, high = np.percentile(resampled, [2.5, 97.5], axis=0)
    return {name: [float(low[at]), float(high[at])] for at, name in enumerate(names)}


def differences(ours: Sequence[QuestionScore], theirs: Sequence[QuestionScore]) -> list[QuestionScore]:
    """Our figures minus theirs, question by question; both in the same order."""
    return [
        QuestionScore(
            mine.talk, mine.category, {name: value - other.figures[name] for name, value in mine.figures.items()}
        )
        for mine, other in zip(ours, theirs, strict=True)
    ]


def margins(outcomes: Mapping[str, Sequence[QuestionScore]]) -> dict[str, Any]:
    """The difference between afterturn and each other system on the same questions, with intervals."""
    found: dict[str, Any] = {}
    for name, theirs in outcomes.items():
        if name != OURS:
            more = differences(outcomes[OURS], theirs)
            found[name] = {**means(more), "intervals": intervals(more)}
    return found


def drawn_of(questions: Sequence[T], limit: int | None, seed: str) -> Sequence[T]:
    """At most `limit`, drawn at random but the same each time, so that all kinds occur."""
    if limit is None or len(questions) <= limit:
        return questions
    return [questions[place] for place in sorted(random.Random(seed).sample(range(len(questions)), limit))]


K1 = 1.2
B = 0.75


class Bm25:
    """A baseline: Okapi BM25; any word may match. By default over stems, without stop words."""

    def __init__(self, words: Callable[[str], Sequence[str]] = terms) -> None:
        self._words = words
        self._postings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._lengths: list[int] = []

    def add_all(self, texts: Iterable[str]) -> None:
        for found in map(self._words, texts):
            for term, count in Counter(found).items():
                self._postings[term].append((len(self._lengths), count))
            self._lengths.append(len(found))

    def rank(self, question: str, limit: int) -> list[int]:
        """Positions of the texts, best first; the earlier of equals first."""
        scores: defaultdict[int, float] = defaultdict(float)
        documents = len(self._lengths)
        mean = max(1.0, sum(self._lengths) / max(1, documents))
        for term in dict.fromkeys(self._words(question)):
            postings = self._postings.get(term, ())
            weight = math.log1p((documents - len(postings) + 0.5) / (len(postings) + 0.5))
            for at, count in postings:
                scores[at] += weight * count * (K1 + 1) / (count + K1 * (1 - B + B * self._lengths[at] / mean))
        return sorted(scores, key=lambda at: (-scores[at], at))[:limit]


class Dense:
    """A baseline: the cosine of question and text, with the same embedder as recall."""

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self._embedder = embedder
        self._matrix: NDArray[np.float32] = embedder.embed(texts)

    def rank(self, question: str, limit: int, *, known: int) -> list[int]:
        """Among the first `known` texts."""
        import numpy as np

        cosines = self._matrix[:known] @ self._embedder.embed([question])[0]
        return [int(at) for at in np.argsort(-cosines, kind="stable")[:limit]]


DAY = 86_400.0
# Time is not measured here, so a busy machine must not change an answer.
PATIENCE = 600.0
_REF = re.compile(r"^- \[([0-9a-z]+)(?:\.\d+)?\]", re.MULTILINE)


class EvalClock:
    """The calendar time of the conversations, which runs on from where it was set, and real time for deadlines."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self._ahead = 0.0

    def now(self) -> float:
        return self._real.now() + self._ahead

    def monotonic(self) -> float:
        return self._real.monotonic()

    def set(self, at: float) -> None:
        self._ahead = at - self._real.now()

    def advance(self, seconds: float) -> None:
        self._ahead += seconds


class MissingParts:
    """Counts what was missing in recalls, because it would lower the figures."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hear(self, event: Event) -> None:
        """The `on_event` of a memory."""
        if event.name == "recall_settled":
            self.note(str(event.data["missing"]))
        elif event.name == "recall_ended" and event.data["outcome"] == Outcome.DEGRADED:
            self.note(str(event.data["reason"]))

    def note(self, missing: str) -> None:
        if missing:
            self.counts[missing] += 1


class CachedEmbedder:
    """Embeds each text once: both memories and the baseline need the same vectors."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, NDArray[np.float32]] = {}
        self._lock = threading.Lock()

    @property
    def identity(self) -> EmbedderIdentity:
        return self._embedder.identity

    @property
    def batch_texts(self) -> int:
        """The Batching port; for an embedder without it, as many texts as a memory passes at once."""
        return self._embedder.batch_texts if isinstance(self._embedder, Batching) else SLICE

    def close(self) -> None:
        """The Closable port."""
        if isinstance(self._embedder, Closable):
            self._embedder.close()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        if not texts:
            return self._embedder.embed(texts)
        with self._lock:
            missing = list(dict.fromkeys(text for text in texts if text not in self._known))
            if missing:
                self._known.update(zip(missing, self._embedder.embed(missing), strict=True))
        return np.stack([self._known[text] for text in texts])


@dataclass(frozen=True, slots=True)
class ExaminedBlock:
    """A block and the `ids` of its memories; empty if nothing was found."""

    text: str = ""
    ids: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.text)


def block_of(text: str) -> ExaminedBlock:
    return ExaminedBlock(text, tuple(_REF.findall(text)))


def plain(text: str) -> str:
    """The text with each run of white space as one space, to compare it."""
    return " ".join(text.split())


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A folder for one run, removed at its end.

    An interrupted `open` creates files in the background for a moment, so removing it is tried for some seconds.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        for _ in range(50):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            threading.Event().wait(0.1)


@dataclass(slots=True)
class Subject:
    """The store under test; each conversation has its own space."""

    memory: blocking.Memory
    config: Config
    clock: EvalClock
    embedder: CachedEmbedder | None
    faults: MissingParts
    _asked: int = 0
    _terms: dict[str, frozenset[str]] = field(default_factory=dict)

    def learn(self, space: str, drafts: Sequence[Draft]) -> None:
        """Stores messages as they would have been recorded then, and waits for their vectors."""
        if drafts:
            self.memory.space(space).add_many(drafts, clean=True)
            drain(self.memory)

    def ranked(self, space: str, question: str, limit: int) -> tuple[Hit, ...]:
        """The ranking, best first, without a minimum score."""
        found = self.memory.space(space).search(question, limit=limit, score_min=0.0)
        self.faults.note(",".join(found.missing))
        return found.hits

    def handed_over(self, space: str, question: str, *, reads: Sequence[str] = ()) -> ExaminedBlock:
        """The block of a turn that begins a new conversation with this question, with the budgets of the settings.

        Without the standing block, which would answer before the recall, and in small talk too.
        """
        self._asked += 1
        conversation = self.memory.conversation(f"question {self._asked}", owner=space, reads=reads, standing="off")
        with conversation.turn([{"role": "user", "content": question}]) as turn:
            text = turn.block(within=PATIENCE)
            turn.abort("evaluated")
        return block_of(text)

    def rendered(self, entries: Sequence[Entry], question: str) -> ExaminedBlock:
        """The block that this ranking would give."""
        wanted = frozenset(terms(question))
        hits = [
            self._as_hit(entry, place, wanted) for place, entry in enumerate(entries[: candidates_max(self.config)])
        ]
        screen = OutputFilter(scanning=self.config.scan_policy)
        block = compose(hits, self.config, visible_bytes=0, now=self.clock.now(), screen=screen)
        return ExaminedBlock() if block is None else block_of(block.text)

    def _as_hit(self, entry: Entry, place: int, wanted: frozenset[str]) -> Hit:
        if entry.ref not in self._terms:
            self._terms[entry.ref] = frozenset(terms(entry.text))
        shared = tuple(sorted(wanted & self._terms[entry.ref]))
        return Hit(entry, Lane.EPISODIC, 1 / (place + 1), 0.0, None, shared)


def eval_config(embedder: str | None) -> Config:
    """The settings of this machine, without models."""
    config = load_config({"embedder": embedder} if embedder is not None else {})
    without_models = replace(config, refined=False, model=None, model_url=None)
    return replace(without_models, synchronous="normal", tenant="default", recall_timeout=PATIENCE)


def drain(memory: blocking.Memory) -> None:
    """Waits for the vectors of all new memories, and for all other jobs."""
    if not memory.drain(within=PATIENCE):
        raise DeadlineExceeded(f"Background jobs were not done after {PATIENCE:g} seconds. See `afterturn doctor`.")


def wait_until_ready(memory: blocking.Memory) -> None:
    if not memory.ready(within=PATIENCE):
        raise ConfigError(f"The embedder {memory.config.embedder!r} cannot be loaded. See `afterturn doctor`.")


@contextmanager
def open_subject(embedder: str | None = None) -> Iterator[Subject]:
    """Opens a temporary store with the settings of this machine, without models."""
    config = replace(eval_config(embedder), background=False)
    clock, inner = EvalClock(), default_embedder(config)
    cached = CachedEmbedder(inner) if inner is not None else None
    parts, faults = Components(embedder=cached, clock=clock), MissingParts()
    with ExitStack() as stack:
        path = stack.enter_context(scratch_folder("afterturn-eval-")) / "memory.db"
        memory = stack.enter_context(blocking.open(path, config, components=parts, on_event=faults.hear))
        if cached is not None:
            wait_until_ready(memory)
        yield Subject(memory, config, clock, cached, faults)


def drafts_of(items: Sequence[Item]) -> list[Draft]:
    """One draft for each item, with a new id."""
    ids = TimeOrderedIds()
    drafts: list[Draft] = []
    positions: Counter[str] = Counter()
    for item in items:
        # An agent's message belongs to the turn that it answers.
        conversation, role = f"session {item.session}", item.speaker.lower()
        follows = item.is_agents and drafts and drafts[-1].conversation == conversation
        drafts.append(
            Draft(
                text=cut(item.text, RECORD_BYTES_MAX, "…"),
                kind=Kind.RECORD,
                origin=Origin.AGENT if item.is_agents else Origin.USER,
                target=Target.ENVIRONMENT if item.is_agents else Target.USER,
                conversation=conversation,
                turn=drafts[-1].turn if follows else f"turn {len(drafts)}",
                position=positions[item.session],
                speaker=role if role in ("user", "assistant") else item.speaker,
                occurred_at=item.at,
                id=ids.new(),
            )
        )
        positions[item.session] += 1
    return drafts


_FIRST_SHOWN = 3
_CHARS_SHOWN = 72


@dataclass(frozen=True, slots=True)
class Position:
    """The position of an item in the ranking. `is_low`: it is below the minimum score of blocks."""

    place: int
    score: float
    is_low: bool


@dataclass(frozen=True, slots=True)
class SoughtEvidence:
    """One piece of evidence. `position` is None if it is not in the ranking."""

    id: str
    text: str
    position: Position | None
    is_shown: bool

    def where(self) -> str:
        if self.position is None:
            return "not ranked"
        where = "in the block" if self.is_shown else "below the minimum score" if self.position.is_low else "left out"
        return f"place {self.position.place}, score {self.position.score:.2f}, {where}"


@dataclass(frozen=True, slots=True)
class Miss:
    """A question whose evidence was not delivered. `instead` are the first other texts of the block, which has
    `block_entries` memories."""

    talk: str
    id: str
    question: str
    category: str
    delivered: float
    evidence: tuple[SoughtEvidence, ...]
    instead: tuple[str, ...]
    block_entries: int

    def lines(self) -> list[str]:
        """The miss as text; long texts are cut."""
        lines = [f"{self.delivered:.0%} delivered, {self.category}, {self.talk}: {shorten(self.question)}"]
        lines += [f"    evidence, {evidence.where()}: {shorten(evidence.text)}" for evidence in self.evidence]
        lines += [f"    instead: {shorten(text)}" for text in self.instead]
        return lines if self.block_entries else [*lines, "    instead: no block"]


def make_miss(
    talk: Talk, question: Question, delivered: float, positions: Mapping[str, Position], shown: Sequence[str]
) -> Miss:
    """`positions` and `shown` use names of items, or of sessions if the evidence is given by session."""
    texts: dict[str, str] = {}
    for item in talk.items:
        texts.setdefault(item.session if question.by_session else item.id, item.signed)
    others = [name for name in shown if name not in question.evidence]
    return Miss(
        talk=talk.id,
        id=question.id,
        question=question.text,
        category=question.category,
        delivered=delivered,
        evidence=tuple(
            SoughtEvidence(name, texts[name], positions.get(name), name in shown) for name in question.evidence
        ),
        instead=tuple(texts[name] for name in others[:_FIRST_SHOWN]),
        block_entries=len(shown),
    )


class Categorized(Protocol):
    @property
    def category(self) -> str: ...


def in_turn(misses: Iterable[C], count: int) -> list[C]:
    """The first `count`, from each category in turn."""
    by_category: dict[str, list[C]] = {}
    for miss in misses:
        by_category.setdefault(miss.category, []).append(miss)
    longest = max(map(len, by_category.values()), default=0)
    return [part[at] for at in range(longest) for part in by_category.values() if at < len(part)][:count]


def worst(misses: Iterable[Miss], count: int) -> list[Miss]:
    """From each category in turn, those with the least delivered first."""
    return in_turn(sorted(misses, key=lambda miss: miss.delivered), count)


def shorten(text: str, most: int = _CHARS_SHOWN) -> str:
    line = plain(text)
    return line if len(line) <= most else f"{line[: most - 1]}…"


# Enough messages to find twenty sessions, unless they all say the same.
_RANKED_FOR_SESSIONS = 200
# Shorter texts ("Sure, thanks!") may be in a block by chance.
_DISTINCT_CHARS = 32


@dataclass(frozen=True, slots=True)
class Answer:
    """One system's result for a question: names of items, best first, and their block. `hits` only for afterturn."""

    ranked: tuple[str, ...]
    block: ExaminedBlock
    hits: tuple[Hit, ...] = ()


class Examination:
    """Replays one conversation in order: an early question sees only the messages before it."""

    def __init__(self, subject: Subject, space: str, talk: Talk, *, alone: bool = False) -> None:
        self._subject = subject
        self._space = space
        self.talk = talk
        self._drafts = drafts_of(talk.items)
        self._names = {_id(draft): at for at, draft in enumerate(self._drafts)}
        self._entries: dict[str, Entry] = {}
        self._bm25 = None if alone else Bm25()
        self._dense = None
        if subject.embedder is not None and not alone:
            self._dense = Dense(subject.embedder, [item.signed for item in talk.items])
        self._known = 0

    def answers(self, limit: int | None = None) -> Iterator[tuple[Question, Mapping[str, Answer]]]:
        """The questions in the order in which they can be asked, at most `limit`, with each system's answer."""
        by_time = sorted(chosen_of(self.talk, limit), key=lambda question: question.known)
        for known, questions in groupby(by_time, key=lambda question: question.known):
            self._go_on(known)
            for question in questions:
                yield question, self._answer(question)

    def finish(self) -> None:
        """Adds the remaining messages, for later questions about other things."""
        self._go_on(len(self.talk.items))

    def _go_on(self, known: int) -> None:
        new = self.talk.items[self._known : known]
        if not new:
            return
        self._subject.clock.set(max(item.at for item in self.talk.items[:known]) + DAY)
        self._subject.learn(self._space, self._drafts[self._known : known])
        if self._bm25 is not None:
            self._bm25.add_all(item.signed for item in new)
        self._known = known

    def _answer(self, question: Question) -> Mapping[str, Answer]:
        limit = _RANKED_FOR_SESSIONS if question.by_session else candidates_max(self._subject.config)
        hits = self._subject.ranked(self._space, question.text, limit)
        ours = Answer(
            self._named([self._names[hit.entry.id] for hit in hits], question),
            self._subject.handed_over(self._space, question.text),
            hits,
        )
        answers = {OURS: ours}
        if self._bm25 is not None:
            answers["bm25"] = self._baseline(question, self._bm25.rank(question.text, limit))
        if self._dense is not None:
            answers["dense"] = self._baseline(question, self._dense.rank(question.text, limit, known=self._known))
        return answers

    def _baseline(self, question: Question, places: Sequence[int]) -> Answer:
        found = [self._entry(_id(self._drafts[place])) for place in places]
        entries = [entry for entry in found if entry.status is Status.ACTIVE]
        return Answer(self._named(places, question), self._subject.rendered(entries, question.text))

    def _entry(self, name: str) -> Entry:
        """A stored message. Not by its place in a list: dates of a file may be in any order."""
        if name not in self._entries:
            self._entries[name] = self._subject.memory.space(self._space).get(name)
        return self._entries[name]

    def _named(self, places: Sequence[int], question: Question) -> tuple[str, ...]:
        items = (self.talk.items[place] for place in places)
        return tuple(dict.fromkeys(item.session if question.by_session else item.id for item in items))

    def delivered(self, question: Question, block: ExaminedBlock) -> dict[str, float]:
        """The share of the evidence that is in the block as a memory or as text, and the share with all its words."""
        shown = plain(block.text)
        present: set[str] = set()
        whole: set[str] = set()
        ids = set(block.ids)
        for item, draft in zip(self.talk.items[: question.known], self._drafts, strict=False):
            name = item.session if question.by_session else item.id
            if name not in question.evidence:
                continue
            text, is_there = plain(item.text), _id(draft) in ids
            if is_there:
                present.add(name)
            if text in shown and (is_there or len(text) >= _DISTINCT_CHARS):
                whole.add(name)
        count = len(question.evidence)
        return {"delivered": len(present | whole) / count, "delivered_whole": len(whole) / count}

    def miss(self, question: Question, delivered: float, answer: Answer) -> Miss:
        """Describes a miss of afterturn: the position of the evidence, and the content of the block."""
        worth = {hit.entry.id for hit in above_floor(answer.hits, SEARCH_SCORE_MIN)}
        positions: dict[str, Position] = {}
        for hit in answer.hits:
            (name,) = self._named([self._names[hit.entry.id]], question)
            positions.setdefault(name, Position(len(positions) + 1, hit.score, hit.entry.id not in worth))
        shown = self._named([self._names[ref] for ref in answer.block.ids], question)
        return make_miss(self.talk, question, delivered, positions, shown)


@dataclass(frozen=True, slots=True)
class Examined:
    """Scores by system. `unanswerable` are questions without evidence, for which no block is right; `missed` are
    questions whose evidence afterturn did not deliver completely."""

    outcomes: dict[str, list[QuestionScore]]
    unanswerable: dict[str, list[QuestionScore]]
    missed: list[Miss]

    def take(self, system: str, question: Question, answer: Answer, examination: Examination) -> None:
        talk = examination.talk
        if not question.evidence:
            silent = QuestionScore(talk.id, question.category, {"silence": float(not answer.block.text)})
            self.unanswerable.setdefault(system, []).append(silent)
            return
        delivered = examination.delivered(question, answer.block)
        figures = {"block_tokens": float(answer.block.tokens), **rank_figures(answer.ranked, question.evidence)}
        outcome = QuestionScore(talk.id, question.category, {**figures, **delivered})
        self.outcomes.setdefault(system, []).append(outcome)
        if system == OURS and delivered["delivered"] < 1:
            self.missed.append(examination.miss(question, delivered["delivered"], answer))


def examine(
    subject: Subject, dataset: Dataset, asked: Callable[[], None], *, limit: int | None = None, alone: bool = False
) -> Examined:
    """Calls `asked` after each question; `limit` is the most questions per conversation."""
    examined = Examined({}, {}, [])
    for space, talk in spaces_of(dataset):
        examination = Examination(subject, space, talk, alone=alone)
        for question, answers in examination.answers(limit):
            for system, answer in answers.items():
                examined.take(system, question, answer, examination)
            asked()
        examination.finish()
    return examined


def chosen_of(talk: Talk, limit: int | None) -> Sequence[Question]:
    return drawn_of(talk.questions, limit, talk.id)


def spaces_of(dataset: Dataset) -> list[tuple[str, Talk]]:
    """Each conversation with the name of its space."""
    return [(f"user:{dataset.name}-{number}", talk) for number, talk in enumerate(dataset.talks, start=1)]


def _id(draft: Draft) -> str:
    assert draft.id is not None
    return draft.id
