"""Memory tools and proposals over a real store, without the rest of a memory."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from afterturn.config import Config
from afterturn.conversation.proposals import ProposalContext, Proposals
from afterturn.conversation.recall_client import RecallClient
from afterturn.conversation.scope import ConversationOptions, make_scope
from afterturn.conversation.tools import MemoryTools
from afterturn.events import Events
from afterturn.guard.gate import Gate
from afterturn.models.meter import Meter
from afterturn.ports import Store, Unit
from afterturn.stores.sqlite.store import open_store
from afterturn.testing import EventLog
from afterturn.testing.clock import ManualClock, SequentialIds
from afterturn.types import Draft, Entry, Filter, Operation, Origin, Scope, Status, Verb

ADA: ConversationOptions = {"user": "ada"}


class Toolbox:
    def __init__(self, path: Path, **config: Any) -> None:
        self.told = EventLog()
        self.clock = ManualClock()
        self.ids = SequentialIds()
        self.config = Config(**config)
        self.gate = Gate(self.config, self.clock, self.ids)
        self.store = open_store(path, self.config, self.clock)
        self.events = Events(self.clock, "default", self.told)

    async def close(self) -> None:
        await self.store.close(within=5.0)

    async def add(self, text: str, space: str = "user:ada", **fields: object) -> Entry:
        admitted = self.gate.admit(Draft(text, **fields))
        operation = Operation(self.ids.new(), "default", space, Verb.ADD, Origin.USER, self.clock.now())

        def work(unit: Unit) -> Entry:
            return unit.memories.add(operation, admitted).entry

        return await self.store.write(work, at=None)

    async def read(self, work: Callable[[Unit], object]) -> object:
        return await self.store.read(work, at=None)

    async def waiting(self, space: str = "user:ada") -> list[Entry]:
        """What was proposed, oldest first."""
        scope, proposed = Scope("default", (space,)), Filter(statuses=(Status.PROPOSED,))
        found = await self.store.read(lambda unit: unit.memories.page(scope, proposed, limit=100), at=None)
        return found[::-1]

    def occasion(
        self, where: ConversationOptions = ADA, *, turn: str = "t1", since: int | None = None
    ) -> ProposalContext:
        return ProposalContext(make_scope("default", "c1", where), turn, since)

    def proposals(self, store: Store | None = None) -> Proposals:
        return Proposals(store or self.store, self.gate, self.clock, self.ids, self.config, self.events)

    def services(self, store: Store | None = None) -> SimpleNamespace:
        """What tools use of `Services`."""
        chosen = store or self.store
        meter = Meter(chosen, self.config, self.clock, self.events)
        return SimpleNamespace(
            store=chosen,
            has_store=True,
            recall_client=RecallClient(chosen, None, None, self.config, self.clock, self.events, meter),
            proposals=self.proposals(store),
            clock=self.clock,
            ids=self.ids,
            config=self.config,
            events=self.events,
        )

    def tools(
        self, where: ConversationOptions = ADA, *, remember: bool = True, store: Store | None = None
    ) -> MemoryTools:
        return MemoryTools(self.services(store), self.occasion(where), remember=remember)
