"""The reviewer that uses a model: shows it a snapshot and related memories, and stages the changes it asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from afterturn.errors import InvalidInput, ModelRefused
from afterturn.learning import prompts
from afterturn.learning.changes import read_answer, read_call, schema, tools
from afterturn.learning.staging import Staging
from afterturn.models.client import answer_text
from afterturn.models.meter import MeteredModel
from afterturn.types import Entry

CALLS_MAX = 8
TOKENS_MAX = 60_000
TOOL_CALLS_MAX = 20
# The statuses that servers without tool support answer with.
_TOOLS_REFUSED = (400, 404, 422, 501)


@dataclass(frozen=True, slots=True)
class Reviewer:
    """Runs one review, until the model has nothing more to save or a limit is reached. Staged changes remain staged."""

    model: MeteredModel
    staging: Staging
    related: Sequence[Entry]
    entries_max: int

    async def run(self) -> str:
        """Returns why it ended, in one word. Raises what the model raises."""
        messages = self._ask(by_schema=False)
        try:
            answer = await self.model.complete(messages, tools())
        except ModelRefused as error:
            if error.status not in _TOOLS_REFUSED:
                raise
            return await self._by_schema()
        if not _calls(answer):
            return await self._without_tools(answer)
        return await self._converse(messages, answer)

    async def _converse(self, messages: list[dict[str, Any]], answer: Mapping[str, Any]) -> str:
        while calls := _calls(answer):
            messages.append({"role": "assistant", "content": answer.get("content"), "tool_calls": calls})
            for call in calls:
                messages.append(await self._answer_call(call))
            if self.staging.is_hopeless:
                return "too_many_refusals"
            if self.model.calls >= CALLS_MAX or self.model.tokens >= TOKENS_MAX:
                return "limit"
            answer = await self.model.complete(messages, tools())
        return "done"

    async def _answer_call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = call["function"]
        content = await self._stage(function["name"], function["arguments"])
        return {"role": "tool", "tool_call_id": call["id"], "content": content}

    async def _stage(self, name: object, arguments: object) -> str:
        try:
            change = read_call(name, arguments)
        except InvalidInput as error:
            self.staging.refusals.append("malformed")
            return f"Refused. {error}"
        return await self.staging.stage(change)

    async def _without_tools(self, answer: Mapping[str, Any]) -> str:
        """The model called no tool: it has nothing to save, wrote its calls as text, or cannot call tools."""
        text = answer_text(answer)
        if prompts.is_nothing(text):
            return "nothing"
        try:
            operations = read_answer(text)
        except InvalidInput:
            return await self._by_schema()
        await self._stage_all(operations)
        return "done"

    async def _by_schema(self) -> str:
        """Asks for JSON, once more if the answer cannot be read, and then gives up. The records remain."""
        messages = self._ask(by_schema=True)
        form = schema(self.entries_max)
        text = answer_text(await self.model.complete(messages, schema=form))
        try:
            operations = read_answer(text)
        except InvalidInput as error:
            if prompts.is_nothing(text):
                return "nothing"
            messages += prompts.repair_prompt(text, str(error))
            text = answer_text(await self.model.complete(messages, schema=form))
            try:
                operations = read_answer(text)
            except InvalidInput:
                self.staging.refusals.append("malformed")
                return "unreadable"
        await self._stage_all(operations)
        return "done"

    async def _stage_all(self, operations: Sequence[tuple[object, object]]) -> None:
        for name, arguments in operations[:TOOL_CALLS_MAX]:
            await self._stage(name, arguments)

    def _ask(self, *, by_schema: bool) -> list[dict[str, Any]]:
        return prompts.review_prompt(
            self.staging.messages, self.related, entries_max=self.entries_max, by_schema=by_schema
        )


def _calls(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tool calls in a form that can be sent back: servers want an id, and arguments as text."""
    found = answer.get("tool_calls")
    calls = [call for call in found if isinstance(call, Mapping)] if isinstance(found, list) else []
    return [_normal_call(at, call) for at, call in enumerate(calls[:TOOL_CALLS_MAX])]


def _normal_call(at: int, call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    given = function if isinstance(function, Mapping) else {}
    arguments = given.get("arguments", "{}")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    normal = {"name": str(given.get("name", "")), "arguments": text}
    return {"id": str(call.get("id") or f"call_{at}"), "type": "function", "function": normal}
