"""One collection of conversations, put to every system: what each ranks first, and what would reach a model."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from afterturn.conversation.read_turn import weighed_max
from afterturn.evaluation.baselines import Bm25, Dense
from afterturn.evaluation.conversations import Dataset, Question, Talk
from afterturn.evaluation.misses import Miss, Stand, make_miss
from afterturn.evaluation.scoring import QuestionOutcome, rank_figures
from afterturn.evaluation.subject import DAY, EvaluatedBlock, Subject, drafts_of, plain
from afterturn.recall.search import worth_telling
from afterturn.types import Draft, Entry, Hit

OURS = "afterturn"
# Twenty sessions are found among so many messages, unless they all say the same.
_RANKED_FOR_SESSIONS = 200
# Shorter texts ("Sure, thanks!") stand in blocks by chance.
_TELLING_CHARS = 32


@dataclass(frozen=True, slots=True)
class Answer:
    """What one system found for a question: items' names, best first, and the block that they make. `hits` are ours."""

    ranked: tuple[str, ...]
    block: EvaluatedBlock
    hits: tuple[Hit, ...] = ()


class Examination:
    """Goes through one conversation as it went: what is asked early knows only what was said before."""

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
        """In the order in which the questions can be asked; with `limit`, so many of them."""
        by_time = sorted(chosen_of(self.talk, limit), key=lambda question: question.known)
        for known, questions in groupby(by_time, key=lambda question: question.known):
            self._go_on(known)
            for question in questions:
                yield question, self._answer(question)

    def finish(self) -> None:
        """The rest of what was said, for whoever asks something else afterwards."""
        self._go_on(len(self.talk.items))

    def _go_on(self, known: int) -> None:
        new = self.talk.items[self._known : known]
        if not new:
            return
        self._subject.clock.set(max(item.at for item in self.talk.items[:known]) + DAY)
        self._subject.learn(self._space, self._drafts[self._known : known])
        if self._bm25 is not None:
            self._bm25.add_all(item.signed for item in new)
            self._entries |= self._subject.newest(self._space, len(new))
        self._known = known

    def _answer(self, question: Question) -> Mapping[str, Answer]:
        limit = _RANKED_FOR_SESSIONS if question.by_session else weighed_max(self._subject.config)
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
        entries = [self._entries[_id(self._drafts[place])] for place in places]
        return Answer(self._named(places, question), self._subject.rendered(entries, question.text))

    def _named(self, places: Sequence[int], question: Question) -> tuple[str, ...]:
        items = (self.talk.items[place] for place in places)
        return tuple(dict.fromkeys(item.session if question.by_session else item.id for item in items))

    def delivered(self, question: Question, block: EvaluatedBlock) -> dict[str, float]:
        """Which share of the evidence is in the block, as a memory or within another one; and with every word of it."""
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
            if text in shown and (is_there or len(text) >= _TELLING_CHARS):
                whole.add(name)
        count = len(question.evidence)
        return {"delivered": len(present | whole) / count, "delivered_whole": len(whole) / count}

    def miss(self, question: Question, delivered: float, answer: Answer) -> Miss:
        """One of ours: where the evidence stood, and what was in the block."""
        floor = self._subject.config.recall_score_min
        worth = {hit.entry.id for hit in worth_telling(answer.hits, floor)}
        stands: dict[str, Stand] = {}
        for hit in answer.hits:
            (name,) = self._named([self._names[hit.entry.id]], question)
            stands.setdefault(name, Stand(len(stands) + 1, hit.score, hit.entry.id not in worth))
        shown = self._named([self._names[ref] for ref in answer.block.ids], question)
        return make_miss(self.talk, question, delivered, stands, shown)


@dataclass(frozen=True, slots=True)
class Examined:
    """Outcomes by system. `unanswerable` tells of questions that nothing answers whether there was silence; `missed`
    are those of ours of which not all evidence was delivered."""

    outcomes: dict[str, list[QuestionOutcome]]
    unanswerable: dict[str, list[QuestionOutcome]]
    missed: list[Miss]

    def take(self, system: str, question: Question, answer: Answer, examination: Examination) -> None:
        talk = examination.talk
        if not question.evidence:
            silent = QuestionOutcome(talk.id, question.category, {"silence": float(not answer.block.text)})
            self.unanswerable.setdefault(system, []).append(silent)
            return
        delivered = examination.delivered(question, answer.block)
        figures = {"block_tokens": float(answer.block.tokens), **rank_figures(answer.ranked, question.evidence)}
        outcome = QuestionOutcome(talk.id, question.category, {**figures, **delivered})
        self.outcomes.setdefault(system, []).append(outcome)
        if system == OURS and delivered["delivered"] < 1:
            self.missed.append(examination.miss(question, delivered["delivered"], answer))


def examine(
    subject: Subject, dataset: Dataset, asked: Callable[[], None], *, limit: int | None = None, alone: bool = False
) -> Examined:
    """`asked` is called after each question; `limit` bounds the questions of a conversation."""
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
    """With `limit`, so many of its questions, drawn at random but the same each time: files have their categories in
    some order, and every conversation should give others."""
    if limit is None or len(talk.questions) <= limit:
        return talk.questions
    places = random.Random(talk.id).sample(range(len(talk.questions)), limit)
    return [talk.questions[place] for place in sorted(places)]


def spaces_of(dataset: Dataset) -> list[tuple[str, Talk]]:
    """The space that each conversation is in."""
    return [(f"user:{dataset.name}-{number}", talk) for number, talk in enumerate(dataset.talks, start=1)]


def _id(draft: Draft) -> str:
    assert draft.id is not None
    return draft.id
