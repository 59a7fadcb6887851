"""A session of the OpenAI Agents SDK whose items are kept in a store of afterturn.

Items are records of a space that no conversation reads, so they are never recalled. The runner of `openai_agents`
records the user's words for recall.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from afterturn.errors import NotAllowed
from afterturn.frameworks.core import FrameworkMemory, MemoryTarget, usable_id, without_secrets
from afterturn.frameworks.requirements import check_framework
from afterturn.ports import Unit
from afterturn.services import Services
from afterturn.types import Admitted, Draft, Entry, Kind, Operation, Origin, Scope, Verb

check_framework("openai-agents")

from agents import SessionSettings, TResponseInputItem  # noqa: E402
from agents.memory import SessionABC  # noqa: E402
from agents.memory.session_settings import resolve_session_limit  # noqa: E402

R = TypeVar("R")

# More items than a session has. The SDK reads all of them unless it is given a limit.
_ALL = 1_000_000_000


class AfterturnSession(SessionABC):
    """The history of one session: `Runner.run(agent, "Hello", session=AfterturnSession("ticket-7", "memory.db"))`.

    Several processes may use one session. Secrets are removed from items before they are stored, and an item may have
    1 MiB of JSON. `clear_session` erases the items; `pop_item` hides one.
    """

    def __init__(
        self, session_id: str, memory: MemoryTarget, *, session_settings: SessionSettings | None = None
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self._memory = FrameworkMemory(memory, needs_user=False)
        self._conversation = usable_id(session_id)
        self._space = f"openai-session:{self._conversation}"
        self._is_closed = False

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest `limit` items, oldest first."""
        chosen = resolve_session_limit(limit, self.session_settings)
        # A negative limit is none, as in the SDK's own sessions.
        return await self._run(lambda: self._get(_ALL if chosen is None or chosen < 0 else chosen))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Stores all items or none. Raises AfterturnError if the store cannot be written, or an item is too large."""
        await self._run(lambda: self._add(items))

    async def pop_item(self) -> TResponseInputItem | None:
        return await self._run(self._pop)

    async def clear_session(self) -> None:
        await self._run(lambda: self._services.space(self._space).forget(everything=True))

    def close(self) -> None:
        """Closes a store that was opened by its path. Without it, that happens when the process exits.

        As in the SDK's own sessions, every verb raises RuntimeError from then on.
        """
        self._is_closed = True
        self._memory.close()

    @property
    def _services(self) -> Services:
        if self._is_closed:
            raise RuntimeError(f"The session {self.session_id!r} is closed. Create another AfterturnSession to use it.")
        return self._memory.services

    @property
    def _scope(self) -> Scope:
        return Scope(self._services.tenant, (self._space,))

    async def _run(self, verb: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Runs it on memory's loop."""
        return await self._services.loop.run(verb())

    async def _get(self, limit: int) -> list[Any]:
        entries = await self._services.store.read(lambda unit: self._newest(unit, limit), at=self._scope)
        return [json.loads(entry.text) for entry in entries]

    async def _add(self, items: Sequence[object]) -> None:
        services = self._services
        drafts = [Draft(_encode(services, item), kind=Kind.RECORD, origin=Origin.AGENT) for item in items]
        admitted = [services.gate.admit_import(draft) for draft in drafts]

        def work(unit: Unit) -> None:
            first = unit.records.next_position(services.tenant, self._space, self._conversation)
            placed = [self._placed(one, first + number) for number, one in enumerate(admitted)]
            unit.records.add(self._operation(Verb.RECORD), placed)

        if items:
            await services.store.write(work, at=self._scope)

    async def _pop(self) -> Any:
        def work(unit: Unit) -> str | None:
            for entry in self._newest(unit, 1):
                unit.memories.delete(self._operation(Verb.DELETE), entry.id)
                return entry.text
            return None

        text = await self._services.store.write(work, at=self._scope)
        return None if text is None else json.loads(text)

    def _newest(self, unit: Unit, limit: int) -> list[Entry]:
        return unit.records.of_conversation(self._scope, self._conversation, limit=limit)

    def _placed(self, admitted: Admitted, position: int) -> Admitted:
        draft = replace(admitted.draft, conversation=self._conversation, position=position)
        return admitted._replace(draft=draft)

    def _operation(self, verb: Verb) -> Operation:
        services = self._services
        return Operation(services.ids.new(), services.tenant, self._space, verb, Origin.AGENT, services.clock.now())


def _encode(services: Services, item: object) -> str:
    """As JSON in ASCII, which is stored as it is. Secrets are removed from its texts, so that it stays JSON."""
    encoded = json.dumps(without_secrets(item, lambda text: services.gate.redact(text).text))
    try:
        json.loads(services.gate.redact(encoded).text)
    except ValueError as error:
        raise NotAllowed("An item has a secret that cannot be removed from it. Leave it out.") from error
    return encoded
