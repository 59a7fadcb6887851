"""Looking back on a conversation: its turns explained, and their blocks rendered again. Lives on memory's loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from afterturn.conversation.replay import Replay, check_changes, replay
from afterturn.conversation.trace import TURNS_MAX, Trace, TraceAnswer, answers, trace
from afterturn.errors import InvalidInput, StoreUnavailable
from afterturn.ports import Store
from afterturn.types import ConversationKey, Scalar
from afterturn.validation import check_id, check_limit, check_name, check_space


@dataclass(frozen=True, slots=True)
class TraceReader:
    """Of one conversation. It reads, and changes nothing."""

    key: ConversationKey
    store: Store | None

    async def trace(self, turn: str | int | None = None, *, limit: int = 20) -> Trace:
        """What was recalled in the newest `limit` turns, or in one: by its id, its number from 1 on, or "last".

        With all that was left out, and why. NotFound when there is no such turn.
        """
        wanted, count = _check_turn(turn), check_limit(limit, TURNS_MAX)
        return await self._store().read(lambda unit: trace(unit, self.key, wanted, limit=count))

    async def why(
        self, memory: str, *, turn: str | int | None = None, look_in: Sequence[str] = ()
    ) -> Sequence[TraceAnswer]:
        """Why one memory came to a turn's recalls, or did not; to the last turn's unless one is named.

        Looked for where the recall could read, and in the spaces of `look_in`. NotFound when it is in neither.
        """
        entry_id, _, version = memory.partition(".") if isinstance(memory, str) else (memory, "", "")
        check_id(entry_id)
        if version and not version.isdecimal():
            raise InvalidInput(f"{memory[:60]!r} is not a memory reference. Use an id, or id.version.")
        wanted, spaces = _check_turn(turn), [check_space(space) for space in look_in]
        return await self._store().read(lambda unit: answers(unit, self.key, wanted, memory, spaces))

    async def replay(self, turn: str | int, *, changes: Mapping[str, Scalar] | None = None) -> Replay:
        """A turn's blocks rendered again and held against what was injected; with `changes`, under other settings too.

        ConfigError for settings that can not be replayed. NotFound when there is no such turn.
        """
        wanted, others = _check_turn(turn), check_changes(changes or {})
        if wanted is None:
            raise InvalidInput('No turn was given. Pass its id, its number (the first is 1), or "last".')
        return await self._store().read(lambda unit: replay(unit, self.key, wanted, others))

    def _store(self) -> Store:
        if self.store is None:
            raise StoreUnavailable("Memory is off: it was opened without a store, so there is no trace.")
        return self.store


def _check_turn(turn: str | int | None) -> str | int | None:
    if turn is None or (isinstance(turn, int) and not isinstance(turn, bool)):
        return turn
    return check_name(turn, "turn")
