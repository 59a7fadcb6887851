"""Lets a model answer each question with different kinds of memory, and compares its replies."""

from __future__ import annotations

import asyncio
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from afterturn.errors import ModelError
from afterturn.evaluation.datasets import Dataset, Item, Question, Talk
from afterturn.evaluation.examination import (
    DAY,
    OURS,
    Answer,
    Examination,
    QuestionScore,
    Subject,
    chosen_of,
    figures_of,
    intervals,
    spaces_of,
)
from afterturn.log import logger
from afterturn.ports import ChatModel
from afterturn.text import estimate_tokens

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, " "))


def normalised(text: str) -> list[str]:
    """Lower-case words without punctuation and English articles, as is usual for question answering."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def token_f1(reply: str, expected: str) -> float:
    """The harmonic mean of precision and recall of the words."""
    given, wanted = normalised(reply), normalised(expected)
    shared = sum((Counter(given) & Counter(wanted)).values())
    return 2 * shared / (len(given) + len(wanted)) if shared else 0.0


def contains(reply: str, expected: str) -> bool:
    """Whether the reply contains the expected words, in order and without others between them."""
    wanted = " ".join(normalised(expected))
    return bool(wanted) and f" {wanted} " in f" {' '.join(normalised(reply))} "


def says_yes(reply: str) -> bool:
    """Whether the first yes or no in the reply is a yes."""
    return next((word == "yes" for word in normalised(reply) if word in ("yes", "no")), False)


NO_MEMORY = "no_memory"
FULL_HISTORY = "full_history"
BM25 = "bm25"
SYSTEMS = (NO_MEMORY, FULL_HISTORY, BM25, OURS)

_TASK = (
    "Answer the user's question in as few words as possible, without a sentence around them. "
    "If you cannot know the answer, say: I do not know."
)
_JUDGE = (
    "Question: {question}\nExpected answer: {expected}\nGiven answer: {reply}\n"
    "Does the given answer say the same as the expected one? Further details are allowed. Answer yes or no."
)


@dataclass(frozen=True, slots=True)
class Asking:
    """The model and how to ask it. `history_tokens_max` is the most tokens of a whole history in a prompt."""

    model: ChatModel
    judge: bool = False
    history_tokens_max: int = 32_000


@dataclass(frozen=True, slots=True)
class Answered:
    """One question with each system's reply and its figures. A reply is None if the model failed."""

    talk: str
    question: Question
    replies: Mapping[str, str | None]
    figures: Mapping[str, Mapping[str, float]]


class Answering:
    """Asks the questions of one data set that have an expected answer."""

    def __init__(self, subject: Subject, asking: Asking) -> None:
        self._subject = subject
        self._asking = asking
        self._cut = 0

    async def run(self, dataset: Dataset, asked: Callable[[], None], *, limit: int | None) -> dict[str, dict[str, Any]]:
        """Figures by system. Raises ModelError if the model did not answer the first question at all."""
        results: list[Answered] = []
        self._cut = 0
        for space, talk in spaces_of(dataset):
            examination = Examination(self._subject, space, answerable(talk))
            for question, answers in examination.answers(limit):
                results.append(await self._ask(talk, question, answers, first=not results))
                asked()
        return {system: _summary(system, results, self._cut) for system in SYSTEMS} if results else {}

    async def _ask(self, talk: Talk, question: Question, answers: Mapping[str, Answer], *, first: bool) -> Answered:
        prompts = {system: self._prompt(system, talk, question, answers) for system in SYSTEMS}
        outcomes = await asyncio.gather(
            *(self._figures(question, prompt) for prompt in prompts.values()), return_exceptions=True
        )
        replies: dict[str, str | None] = {}
        figures: dict[str, Mapping[str, float]] = {}
        failures: list[ModelError] = []
        for system, outcome in zip(prompts, outcomes, strict=True):
            if isinstance(outcome, ModelError):
                logger.warning("%s: %s", system, outcome)
                failures.append(outcome)
                replies[system] = None
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                replies[system], figures[system] = outcome
        if first and len(failures) == len(prompts):
            raise failures[0]
        return Answered(talk.id, question, replies, figures)

    async def _figures(
        self, question: Question, prompt: Sequence[Mapping[str, str]]
    ) -> tuple[str, Mapping[str, float]]:
        reply = await self._reply(prompt)
        figures = {
            "f1": token_f1(reply, question.answer),
            "contains": float(contains(reply, question.answer)),
            "prompt_tokens": float(sum(estimate_tokens(message["content"]) for message in prompt)),
        }
        if self._asking.judge:
            prompt_text = _JUDGE.format(question=question.text, expected=question.answer, reply=reply)
            figures["judged"] = float(says_yes(await self._reply([{"role": "user", "content": prompt_text}])))
        return reply, figures

    async def _reply(self, messages: Sequence[Mapping[str, str]]) -> str:
        answer = await self._asking.model.complete(messages)
        return str(answer.get("content") or "")

    def _prompt(
        self, system: str, talk: Talk, question: Question, answers: Mapping[str, Answer]
    ) -> list[Mapping[str, str]]:
        items, known = talk.items[: question.known], ""
        if system == FULL_HISTORY:
            known, is_cut = history(items, self._asking.history_tokens_max)
            self._cut += is_cut
        elif system != NO_MEMORY:
            known = answers[system].block.text
        today = _day(max(item.at for item in items) + DAY) if items else ""
        return [
            {"role": "system", "content": f"{_TASK} Today is {today}." if today else _TASK},
            *({"role": "user", "content": text} for text in (known, question.text) if text),
        ]


def answerable(talk: Talk) -> Talk:
    return Talk(talk.id, talk.items, tuple(question for question in talk.questions if question.answer))


def count_questions(dataset: Dataset, limit: int | None) -> int:
    return sum(len(chosen_of(answerable(talk), limit)) for talk in dataset.talks)


def history(items: Sequence[Item], tokens_max: int) -> tuple[str, bool]:
    """The newest messages that fit, with their days, and whether older ones were left out."""
    lines: list[str] = []
    tokens = 0
    for item in reversed(items):
        line = f"[{_day(item.at)}] {item.speaker}: {item.text}"
        tokens += estimate_tokens(line) + 1
        if tokens > tokens_max:
            break
        lines.append(line)
    return "\n".join(reversed(lines)), len(lines) < len(items)


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _summary(system: str, results: Sequence[Answered], cut: int) -> dict[str, Any]:
    """Means, the replies, and how often this system was better or worse than afterturn."""
    answered = [each for each in results if system in each.figures]
    outcomes = [QuestionScore(each.talk, each.question.category, each.figures[system]) for each in answered]
    both = [each for each in answered if OURS in each.figures]
    found: dict[str, Any] = {
        **figures_of(outcomes),
        "failed": len(results) - len(answered),
        "intervals": intervals(outcomes),
        "better_than_ours": sum(each.figures[system]["f1"] > each.figures[OURS]["f1"] for each in both),
        "worse_than_ours": sum(each.figures[system]["f1"] < each.figures[OURS]["f1"] for each in both),
        "replies": [
            {
                "id": each.question.id,
                "question": each.question.text,
                "expected": each.question.answer,
                "reply": each.replies[system],
                **each.figures.get(system, {}),
            }
            for each in results
        ],
    }
    if system == FULL_HISTORY:
        found["cut"] = cut
    return found
