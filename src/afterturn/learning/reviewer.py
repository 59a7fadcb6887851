"""The two reviewers: a model that is shown a snapshot and related memories, and rules that need no model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from afterturn.errors import InvalidInput, ModelRefused
from afterturn.learning import prompts
from afterturn.learning.changes import Action, Change, read_answer, read_call, schema, tools
from afterturn.learning.rules import Lesson, find_lessons, supersedes
from afterturn.learning.single_value import contradict, single_value
from afterturn.learning.staging import PERSON, Staging, find_target_space
from afterturn.models.client import answer_text
from afterturn.models.meter import MeteredModel
from afterturn.text import terms
from afterturn.types import Entry, ReviewMessage, ReviewRow, Target
from afterturn.utterance import is_about_project

CALLS_MAX = 8
TOKENS_MAX = 60_000
TOOL_CALLS_MAX = 20
# The statuses that servers without tool support answer with.
_TOOLS_REFUSED = (400, 404, 422, 501)

# The kinds of lessons that are shown in later system prompts if they are trusted.
STANDING = {
    (Target.USER, "preference"): "preference",
    (Target.USER, "name"): "preference",
    (Target.USER, "rule"): "preference",
    (Target.ENVIRONMENT, "rule"): "convention",
    (Target.ENVIRONMENT, "preference"): "convention",
}


@dataclass(frozen=True, slots=True)
class ModelReviewer:
    """Runs one review, until the model has nothing more to save or a limit is reached. Staged changes remain staged.

    A model may follow instructions in a text. So it is first shown what the user typed, without any text of others, and
    then, if there was such text, everything. Memories that it saves from the second view are staged as reports.
    """

    model: MeteredModel
    staging: Staging
    entries_max: int

    async def run(self) -> str:
        """Returns why it ended, in one word. Raises what the model raises."""
        why = "nothing"
        for view in self.staging.views:
            self.staging.view = view
            ended = await self._run_view()
            why = ended if ended != "nothing" else why
            if self.staging.is_hopeless:
                break
        return why

    async def _run_view(self) -> str:
        messages = self._ask(by_schema=False)
        try:
            answer = await self.model.complete(messages, tools())
        except ModelRefused as error:
            if error.status not in _TOOLS_REFUSED:
                raise
            return await self._by_schema()
        if not _calls(answer):
            # The model called no tool: it has nothing to save, wrote its calls as text, or cannot call tools.
            text = answer_text(answer)
            if prompts.is_nothing(text):
                return "nothing"
            try:
                operations = read_answer(text)
            except InvalidInput:
                return await self._by_schema()
            await self._stage_all(operations)
            return "done"
        return await self._converse(messages, answer)

    async def _converse(self, messages: list[dict[str, Any]], answer: Mapping[str, Any]) -> str:
        while calls := _calls(answer):
            messages.append({"role": "assistant", "content": answer.get("content"), "tool_calls": calls})
            for call in calls:
                content = await self._stage(call["function"]["name"], call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
            if self.staging.is_hopeless:
                return "too_many_refusals"
            if self.model.calls >= CALLS_MAX or self.model.tokens >= TOKENS_MAX:
                return "limit"
            answer = await self.model.complete(messages, tools())
        return "done"

    async def _stage(self, name: object, arguments: object) -> str:
        try:
            change = read_call(name, arguments)
        except InvalidInput as error:
            self.staging.refusals.append("malformed")
            return f"Refused. {error}"
        return await self.staging.stage(change)

    async def _by_schema(self) -> str:
        """Asks for JSON, once more if the answer cannot be read, and then gives up. The records remain."""
        messages = self._ask(by_schema=True)
        form = schema(self.entries_max)
        for is_repair in (False, True):
            text = answer_text(await self.model.complete(messages, schema=form))
            try:
                operations = read_answer(text)
            except InvalidInput as error:
                if prompts.is_nothing(text) and not is_repair:
                    return "nothing"
                messages += prompts.repair_prompt(text, str(error))
            else:
                await self._stage_all(operations)
                return "done"
        self.staging.refusals.append("malformed")
        return "unreadable"

    async def _stage_all(self, operations: Sequence[tuple[object, object]]) -> None:
        for name, arguments in operations[:TOOL_CALLS_MAX]:
            await self._stage(name, arguments)

    def _ask(self, *, by_schema: bool) -> list[dict[str, Any]]:
        return prompts.review_prompt(
            self.staging.view.messages,
            self.staging.view.related,
            entries_max=self.entries_max,
            by_schema=by_schema,
            saved=[staged.change.text for staged in self.staging.staged if staged.change.text],
        )


def _calls(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tool calls in a form that can be sent back: servers want an id, and arguments as text."""
    found = answer.get("tool_calls")
    calls = [call for call in found if isinstance(call, Mapping)] if isinstance(found, list) else []
    normal = []
    for at, call in enumerate(calls[:TOOL_CALLS_MAX]):
        function = call.get("function")
        given = function if isinstance(function, Mapping) else {}
        arguments = given.get("arguments", "{}")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
        called = {"name": str(given.get("name", "")), "arguments": text}
        normal.append({"id": str(call.get("id") or f"call_{at}"), "type": "function", "function": called})
    return normal


# The reviewer that uses rules: lessons become changes, which replace the memories that they contradict.


@dataclass(frozen=True, slots=True)
class _Outdated:
    """Memories that a lesson contradicts. `is_stated`: another memory already states the new value."""

    entries: tuple[Entry, ...] = ()
    is_stated: bool = False


def find_rule_changes(
    review: ReviewRow, messages: Sequence[ReviewMessage], related: Sequence[Entry], reports: Sequence[Entry] = ()
) -> Iterator[Change]:
    """The changes in the order of the messages. Messages that are not fresh are context only.

    `reports` are memories that are not trusted: what contradicts them deletes them, and they change nothing else.
    """
    for lesson in _lessons(review, messages):
        kind = STANDING.get((lesson.target, lesson.kind), lesson.kind)
        cited = _cited(lesson, messages)
        said = [messages[at] for at in cited]
        outdated = _find_outdated(lesson, _changeable(review, lesson, said, related))
        gone = list(outdated.entries)
        if gone and not outdated.is_stated:
            yield Change(Action.UPDATE, lesson.text, None, kind, gone.pop(0).id, cited, lesson.is_quote)
        else:
            yield Change(Action.ADD, lesson.text, lesson.target, kind, messages=cited, is_quote=lesson.is_quote)
        refuted = _find_outdated(lesson, _changeable(review, lesson, said, reports)).entries
        for entry in (*gone, *refuted):
            yield Change(Action.DELETE, entry_id=entry.id, messages=cited)


def _lessons(review: ReviewRow, messages: Sequence[ReviewMessage]) -> list[Lesson]:
    found = find_lessons([(message.role, message.text) for message in messages])
    fresh = [
        lesson._replace(target=Target.ENVIRONMENT)
        if (review.environment or review.project) and is_about_project(lesson.text)
        else lesson
        for lesson in found
        if messages[lesson.message].fresh
    ]
    return [
        lesson
        for at, lesson in enumerate(fresh)
        if not any(_is_outdated(lesson, later, messages) for later in fresh[at + 1 :])
    ]


def _is_outdated(lesson: Lesson, later: Lesson, messages: Sequence[ReviewMessage]) -> bool:
    """Whether the same speaker contradicts the lesson later."""
    if lesson.target is not later.target or messages[lesson.message].speaker != messages[later.message].speaker:
        return False
    if lesson.is_quote and later.is_quote and supersedes(later.text, lesson.text):
        return True
    one, other = single_value(lesson.text), single_value(later.text)
    return one is not None and other is not None and one[0] == other[0] and contradict(one[1], other[1])


def _cited(lesson: Lesson, messages: Sequence[ReviewMessage]) -> tuple[int, ...]:
    """The messages that support a lesson. A correction also needs the answer that it corrects."""
    before = lesson.message - 1
    answer = messages[before] if before >= 0 else None
    if lesson.kind == "correction" and answer is not None and answer.role == "assistant" and answer.text:
        return (before, lesson.message)
    return (lesson.message,)


def _changeable(
    review: ReviewRow, lesson: Lesson, cited: Sequence[ReviewMessage], related: Sequence[Entry]
) -> Sequence[Entry]:
    """The memories that the speaker may change: not pinned, and of the same speaker, agent and project."""
    target_space = find_target_space(review, lesson.target, cited)
    if target_space is None or target_space.needs_approval:
        return ()
    of_user = lesson.target is Target.USER
    agents = {review.agent, None} if of_user else {review.agent}
    project = None if of_user else review.project
    return [
        entry
        for entry in related
        if not entry.pinned
        and (entry.target, entry.space, entry.project) == (lesson.target, target_space.space, project)
        and entry.agent in agents
        and (entry.speaker == target_space.speaker or entry.space.startswith(PERSON))
    ]


def _find_outdated(lesson: Lesson, related: Sequence[Entry]) -> _Outdated:
    if lesson.is_quote:
        older = tuple(entry for entry in related if entry.is_quote and supersedes(lesson.text, entry.text))
        if older:
            return _Outdated(older)
    replaced = _find_replaced(lesson, related)
    found = () if replaced is None else (replaced,)
    own = single_value(lesson.text)
    if own is None:
        return _Outdated(found)
    same = [(entry, value[1]) for entry in related if (value := single_value(entry.text)) and value[0] == own[0]]
    others = sorted(
        (entry for entry, value in same if entry is not replaced and contradict(value, own[1])),
        key=lambda entry: (entry.occurred_at, entry.id),
        reverse=True,
    )
    return _Outdated((*found, *others), any(value == own[1] for _, value in same))


def _find_replaced(lesson: Lesson, related: Sequence[Entry]) -> Entry | None:
    """The memory that states the wrong value and nothing else; None if there is none or more than one.

    A memory that says more stays: "we use pnpm, not npm" does not change "publishing to npm needs a key".
    """
    wrong = frozenset(terms(lesson.replaces))
    if not wrong:
        return None
    # Nearly every statement contains "user".
    allowed = frozenset(terms(f"user {lesson.text}")) | wrong
    own = single_value(lesson.text)
    found = [
        entry
        for entry in related
        if wrong <= frozenset(terms(entry.text)) <= allowed
        # Not the value of something else, such as where the user's sister lives.
        and not (own and (other := single_value(entry.text)) and own[0] != other[0])
    ]
    return found[0] if len(found) == 1 else None
