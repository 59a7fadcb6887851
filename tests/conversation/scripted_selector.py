"""A selector in a mood: it chooses, talks nonsense, fails or never answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from afterturn.errors import ModelUnavailable

_NUMBERED = re.compile(r"^\[(\d+)\]", re.MULTILINE)


class MoodyModel:
    """The ChatModel port. `last` chooses the last two of what it is shown, which the fast recall liked least."""

    MOODS: ClassVar = ("last", "last", "nothing", "nonsense", "unknown", "failing", "hanging")

    def __init__(self) -> None:
        self.mood = "last"

    def change(self, mood: str) -> None:
        self.mood = mood

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        if self.mood == "hanging":
            await asyncio.Event().wait()
        if self.mood == "failing":
            raise ModelUnavailable("The model is away. Ask again tomorrow.", reason="unreachable")
        return {"role": "assistant", "content": self._answer(str(messages[-1]["content"]))}

    def _answer(self, shown: str) -> str:
        if self.mood == "nonsense":
            return "Whatever you like."
        numbers = [int(number) for number in _NUMBERED.findall(shown)]
        chosen = {"last": numbers[-2:], "unknown": [9999]}.get(self.mood, [])
        return json.dumps({"ids": chosen})
