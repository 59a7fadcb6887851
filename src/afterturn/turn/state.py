"""One turn, as memory's loop and the host's path share it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from afterturn.base.slot import Slot
from afterturn.base.turns import BlockRow
from afterturn.dialects.dialect import Dialect
from afterturn.turn.place import Place
from afterturn.turn.prefetch import Prefetch


@dataclass(slots=True, eq=False, weakref_slot=True)
class TurnState:
    """`read` settles when memory's loop has read the turn's messages; dialect and user message stand from then on.

    `recorded` settles when it is known whether the turn was stored.
    """

    id: str
    place: Place
    prefetch: Prefetch
    started_at: float
    speaker: str | None = None
    epoch: int = 0
    dialect: Dialect | None = None
    user_hash: str = ""
    user_index: int | None = None
    user_element: object = None
    blocks: list[BlockRow] = field(default_factory=list)
    asked: bool = False
    read: Slot[bool] = field(default_factory=Slot)
    stored: Slot[bool] = field(default_factory=Slot)
    recorded: Slot[bool] = field(default_factory=Slot)


COPIED_LEVELS_MAX = 6


def snapshot(messages: Sequence[object], state: TurnState) -> list[object]:
    """This turn's messages, copied so that the host's later edits do not reach them.

    From its user message on where that is still the object it was; all of them when the host has rebuilt its list.
    """
    at = state.user_index
    start = at if at is not None and at < len(messages) and messages[at] is state.user_element else 0
    return [_copied(message, COPIED_LEVELS_MAX) for message in itertools.islice(messages, start, None)]


def _copied(value: object, levels: int) -> object:
    """Containers are copied, a client library's objects one level deep; what is immutable stays itself."""
    if levels == 0 or isinstance(value, _IMMUTABLE):
        return value
    if isinstance(value, Mapping):
        return {key: _copied(item, levels - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item, levels - 1) for item in value]
    try:
        return copy.copy(value)
    except Exception:  # noqa: BLE001  somebody's class does not like to be copied: then it is read as it is later
        return value


_IMMUTABLE = (str, bytes, int, float, bool, type(None))
