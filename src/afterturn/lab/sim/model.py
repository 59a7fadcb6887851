"""A selector for refined recall that is quick, slow, silent, wrong or broken, by the world's chance."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from afterturn.base.errors import ModelUnavailable
from afterturn.lab.sim.faults import Faults
from afterturn.lab.sim.world import World

_DELAYS = (0.0, 0.1, 0.9, 2.5, 1000.0)
_NUMBERED = re.compile(r"^\[(\d+)\]", re.MULTILINE)


class SimModel:
    """The ChatModel port. Most answers choose some of the memories that were shown."""

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
        numbers = [int(number) for number in _NUMBERED.findall(str(messages[-1]["content"]))]
        chosen = random.sample(numbers, min(len(numbers), random.randrange(4)))
        return {"role": "assistant", "content": json.dumps({"ids": chosen})}
