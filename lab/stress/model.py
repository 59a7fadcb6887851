"""A model for reviews that does whatever chance has it do: sound changes, wrong ones, nonsense, failures."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from afterturn.errors import ModelRefused, ModelUnavailable
from afterturn.testing.model import call_tools
from lab.bench.host import timer

MARK = re.compile(r"mark[a-z0-9]+")
_MEMORY = re.compile(r'\{"id": "([0-9a-z]+)".*?"text": "([^"]*)"')
_SAID = re.compile(r'\{"message": (\d+), "from": "user.*?"text": "([^"]*)"')


class Fickle:
    """The ChatModel port. It is shown marks, which are what users say, and keeps, changes or drops some of them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        await timer(self._chance.choice((0.0, 0.01, 0.05, 0.2, 0.4)))
        roll = self._chance.random()
        if roll < 0.02:
            raise ModelUnavailable("it is away", reason="away")
        if roll < 0.05:
            raise ModelRefused("it does not want to", reason="moody", status=418)
        if roll < 0.1 or schema is not None:
            return {"role": "assistant", "content": self._chance.choice(("what?", "{", '{"operations": []}'))}
        if messages[-1]["role"] == "tool":
            return {"role": "assistant", "content": "Nothing to save."}
        calls = self._calls(str(messages[1]["content"]))
        if not calls:
            return {"role": "assistant", "content": "Nothing to save."}
        called = call_tools(*calls)["tool_calls"]
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": str(at), "type": "function", **call} for at, call in enumerate(called)],
        }

    def _calls(self, shown: str) -> list[tuple[str, dict[str, Any]]]:
        known, said = _MEMORY.findall(shown), _SAID.findall(shown)
        calls: list[tuple[str, dict[str, Any]]] = [("run_shell", {"command": "ls"})] * (self._chance.random() < 0.1)
        for number, text in self._chance.sample(said, min(2, len(said))):
            if mark := MARK.search(json.loads(f'"{text}"')):
                target = self._chance.choice(("user", "user", "environment"))
                new = {"text": f"The user likes {mark.group()}", "target": target, "messages": [int(number)]}
                calls.append(("add_memory", new))
                if known and self._chance.random() < 0.4:
                    changed = {"id": self._chance.choice(known)[0], "messages": [int(number)]}
                    calls.append(("update_memory", {**changed, "text": f"The user prefers {mark.group()} now"}))
        if known and said and self._chance.random() < 0.2:
            calls.append(("delete_memory", {"id": self._chance.choice(known)[0], "messages": [int(said[0][0])]}))
        return calls
