"""A model reviews a conversation: it is shown a snapshot and what is known, and may call three tools (V2, V3, V12)."""

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
# How servers answer that know no tools.
_TOOLS_REFUSED = (400, 404, 422, 501)


@dataclass(frozen=True, slots=True)
class Reviewer:
    """One review. It ends when the model has nothing more to save, or at a limit; what is staged by then stands."""

    model: MeteredModel
    staging: Staging
    known: Sequence[Entry]
    entries_max: int

    async def run(self) -> str:
        """Why it ended, in one word. Raises whatever the model raises."""
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
                messages.append(await self._answered(call))
            if self.staging.is_hopeless:
                return "too_many_refusals"
            if self.model.calls >= CALLS_MAX or self.model.tokens >= TOKENS_MAX:
                return "limit"
            answer = await self.model.complete(messages, tools())
        return "done"

    async def _answered(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = call.get("function")
        named = function if isinstance(function, Mapping) else {}
        told = await self._stage(named.get("name"), named.get("arguments"))
        return {"role": "tool", "tool_call_id": str(call.get("id", "")), "content": told}

    async def _stage(self, name: object, arguments: object) -> str:
        try:
            change = read_call(name, arguments)
        except InvalidInput as error:
            self.staging.refusals.append("malformed")
            return f"Refused. {error}"
        return await self.staging.stage(change)

    async def _without_tools(self, answer: Mapping[str, Any]) -> str:
        """It called none: it has nothing to save, wrote its calls as text, or can not call any."""
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
        """Asked once for JSON, repaired once, then refused; nothing is lost, since the records remain (V12)."""
        messages = self._ask(by_schema=True)
        form = schema(self.entries_max)
        text = answer_text(await self.model.complete(messages, schema=form))
        try:
            operations = read_answer(text)
        except InvalidInput as error:
            if prompts.is_nothing(text):
                return "nothing"
            messages += prompts.ask_again(text, str(error))
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
        return prompts.ask(self.staging.messages, self.known, entries_max=self.entries_max, by_schema=by_schema)


def _calls(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What it called, in a form that can be sent back: servers refuse calls without an id, or with no text."""
    found = answer.get("tool_calls")
    calls = [call for call in found if isinstance(call, Mapping)] if isinstance(found, list) else []
    return [_sound(at, call) for at, call in enumerate(calls[:TOOL_CALLS_MAX])]


def _sound(at: int, call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    named = function if isinstance(function, Mapping) else {}
    arguments = named.get("arguments", "{}")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    sound = {"name": str(named.get("name", "")), "arguments": text}
    return {"id": str(call.get("id") or f"call_{at}"), "type": "function", "function": sound}
