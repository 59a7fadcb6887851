"""What a turn has to do with sub-agents: it writes their tasks, takes what they learned, and lends them its tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from afterturn.base.errors import AfterturnError
from afterturn.base.loop import PrivateLoop
from afterturn.base.supervisor import Supervisor
from afterturn.base.types import Hit, Scalar
from afterturn.dialects.detection import get_dialect
from afterturn.guard.screening import Screen
from afterturn.turn.delegate import Facts, assemble, key_facts
from afterturn.turn.proposals import Occasion, statements
from afterturn.turn.tools import MemoryTools, ToolParts, failure, offered

DEFAULT_DIALECT = "openai_chat"


@dataclass(frozen=True, slots=True)
class Errands:
    """One per memory, handed over by `runtime`; its verbs may be called from any thread and wait for nothing.

    `expect` is told of work that closing has to wait for.
    """

    loop: PrivateLoop
    supervisor: Supervisor
    expect: Callable[[asyncio.Task[None]], None]
    parts: ToolParts

    def delegate(self, occasion: Occasion, recalled: Sequence[Hit], task: str, *, remember: bool) -> str:
        """The text of the task (A1). A sub-agent gets no block besides: what it needs to know is told here."""
        if self.parts.store is None:
            return assemble(task, ())
        config = self.parts.config
        screen = Screen(scanning=config.scanning)
        facts = Facts(recalled, self.parts.clock.now(), entry_bytes_max=config.entry_bytes_max, screen=screen)
        bullets = key_facts(task, facts)
        text = assemble(task, bullets, offered(remember=remember))
        told: dict[str, Scalar] = {"memories": len(bullets), "bytes": len(text.encode())}
        self.loop.post(self._tell, occasion, "delegated", told)
        for ref, reason in screen.withheld.items():
            self.loop.post(self._tell, occasion, "withheld", {"memory": ref, "reason": reason})
        return text

    def returned(self, occasion: Occasion, task: str, result: object) -> None:
        """Proposes what the sub-agent's answer states (A3). The answer is read here: the host may change it after."""
        self.loop.post(self._take, occasion, task, statements(result))

    def tools(self, occasion: Occasion, *, remember: bool, turn: Callable[[], str] | None = None) -> MemoryTools:
        return MemoryTools(self.parts, occasion, remember=remember, turn=turn)

    def _take(self, occasion: Occasion, task: str, texts: list[str]) -> None:
        if self.parts.store is not None:
            self.expect(self.supervisor.start(self._propose(occasion, task, texts), f"proposals of {occasion.turn}"))

    async def _propose(self, occasion: Occasion, task: str, texts: list[str]) -> None:
        await self.parts.proposals.returned(occasion, task, texts)

    def _tell(self, occasion: Occasion, name: str, data: Mapping[str, Scalar]) -> None:
        place = occasion.place
        self.parts.events.emit(name, space=place.owner, conversation=place.id, turn=occasion.turn, **data)


class ToolVerbs:
    """What hosts with and without an event loop call alike."""

    def __init__(self, core: MemoryTools, loop: PrivateLoop) -> None:
        self._core = core
        self._loop = loop

    def definitions(self, dialect: str | None = None) -> list[Mapping[str, Any]]:
        """The tools as a provider's requests list them. Without `dialect`, the conversation's, or OpenAI chat."""
        return self._core.definitions(get_dialect(dialect or self._core.dialect or DEFAULT_DIALECT))


class Tools(ToolVerbs):
    """Memory as tools of a model, for hosts with an event loop."""

    async def dispatch(self, name: str, arguments: object) -> str:
        """The answer to a model's call, whatever happens. `arguments` is a mapping, or the JSON text of one."""
        try:
            return await self._loop.run(self._core.dispatch(name, arguments))
        except AfterturnError as error:
            return failure(name, error)
