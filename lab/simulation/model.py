"""A model for refined recall and for reviews that is quick, slow, silent, wrong or broken, by the world's chance."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from afterturn.errors import ModelUnavailable
from afterturn.testing.model import call_tools
from lab.simulation.faults import Faults
from lab.simulation.world import World

_DELAYS = (0.0, 0.1, 0.9, 2.5, 1000.0)
_NUMBERED = re.compile(r"^\[(\d+)\]", re.MULTILINE)
_KNOWN = re.compile(r'\{"id": "([0-9a-z]+)"')
_SAID = re.compile(r'\{"message": (\d+), "from": "user.*?"text": "([^"]*)"')


class SimModel:
    """The ChatModel port. Most answers choose some of the memories that were shown, or keep what the user said."""

    def __init__(self, world: World, faults: Faults) -> None:
        self._world = world
        self._faults = faults

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        random = self._world.random
        await asyncio.sleep(0.0 if self._faults.over else random.choice(_DELAYS))
        chance = 1.0 if self._faults.over else random.random()
        if chance < 0.1:
            raise ModelUnavailable("The simulated model does not answer. Try again later.", reason="unreachable")
        if chance < 0.2:
            return {"role": "assistant", "content": random.choice(["", "none", '{"ids": "all"}', '{"ids": [9999]}'])}
        if tools:
            return self._review(messages)
        numbers = [int(number) for number in _NUMBERED.findall(str(messages[-1]["content"]))]
        chosen = random.sample(numbers, min(len(numbers), random.randrange(4)))
        return {"role": "assistant", "content": json.dumps({"ids": chosen})}

    def _review(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Adds what a user said, or puts it in the place of what was known, or drops that."""
        random, shown = self._world.random, str(messages[1]["content"])
        said = _SAID.findall(shown)
        if messages[-1]["role"] == "tool" or not said:
            return {"role": "assistant", "content": "Nothing to save."}
        number, text = random.choice(said)
        rests = {"messages": [int(number)]}
        calls: list[tuple[str, dict[str, Any]]] = [
            ("add_memory", {"text": f"The user said: {text}", "target": "user", **rests})
        ]
        known = _KNOWN.findall(shown)
        if known and random.random() < 0.5:
            calls.append(("update_memory", {"id": random.choice(known), "text": f"The user now said: {text}", **rests}))
        if known and random.random() < 0.2:
            calls.append(("delete_memory", {"id": random.choice(known), **rests}))
        called = call_tools(*calls)["tool_calls"]
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": str(at), "type": "function", **call} for at, call in enumerate(called)],
        }
