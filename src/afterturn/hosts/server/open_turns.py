"""The turns that clients of the API have open: a bounded map. What is not in it is resumed from the store.

Calls of one turn run one after the other, so that a request which is repeated while the first one still runs does not
act twice.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from afterturn.types.conversations import TurnStatus

if TYPE_CHECKING:
    from afterturn.conversation.turn import Turn
    from afterturn.hosts.server.api_models import ConversationWhere

TURNS_MAX = 2_000
BYTES_MAX = 256 * 1024 * 1024


class TurnKey(NamedTuple):
    tenant: str
    owner: str
    conversation: str
    turn: str


@dataclass(slots=True, eq=False)
class OpenTurn:
    """`turn` is None until it is started or resumed here. `where` is what it was opened with, `texts` what was reported
    to it in its middle. `size_bytes` is about what its messages take. `ended`: how it was ended here."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    turn: Turn | None = None
    where: ConversationWhere | None = None
    texts: set[str] = field(default_factory=set)
    size_bytes: int = 0
    ended: TurnStatus | None = None
    users: int = 0


class OpenTurns:
    """Used on the server's loop."""

    def __init__(self) -> None:
        self._turns: OrderedDict[TurnKey, OpenTurn] = OrderedDict()
        self._size_bytes = 0

    def count(self, tenant: str) -> int:
        """How many turns of a tenant are open here."""
        return sum(key.tenant == tenant and one.ended is None for key, one in self._turns.items())

    @asynccontextmanager
    async def use(self, key: TurnKey, size_bytes: int = 0) -> AsyncIterator[OpenTurn]:
        """The turn, for one call at a time. `size_bytes` is that of the request."""
        found = self._turns.setdefault(key, OpenTurn())
        self._turns.move_to_end(key)
        found.users += 1
        try:
            async with found.lock:
                # A later request may be small, and the messages of an earlier one are still held.
                self._size_bytes += max(0, size_bytes - found.size_bytes)
                found.size_bytes = max(found.size_bytes, size_bytes)
                yield found
        finally:
            found.users -= 1
            if found.turn is None and not found.users:
                self._remove(key)
            self._make_room()

    def _make_room(self) -> None:
        """Removes those that were not used for the longest time, and not those that are used now."""
        while len(self._turns) > TURNS_MAX or self._size_bytes > BYTES_MAX:
            unused = next((key for key, one in self._turns.items() if not one.users), None)
            if unused is None:
                return
            self._remove(unused)

    def _remove(self, key: TurnKey) -> None:
        removed = self._turns.pop(key, None)
        self._size_bytes -= removed.size_bytes if removed is not None else 0
