"""One turn, as memory's loop and the host's path share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from afterturn.base.slot import Slot
from afterturn.base.types import BlockRow, Scope
from afterturn.dialects.dialect import Dialect
from afterturn.turn.ledger import Ledger
from afterturn.turn.prefetch import Prefetch


@dataclass(frozen=True, slots=True)
class Question:
    """What is recalled for: the user's words, where to look, and what the model sees already."""

    text: str
    scope: Scope
    space: str
    conversation: str
    ledger: Ledger


@dataclass(slots=True, eq=False, weakref_slot=True)
class TurnState:
    """`read` settles when memory's loop has read the turn's messages; `dialect` and `user_hash` stand from then on.

    `recorded` settles when it is known whether the turn was stored.
    """

    id: str
    prefetch: Prefetch
    started_at: float
    speaker: str | None = None
    dialect: Dialect | None = None
    user_hash: str = ""
    blocks: list[BlockRow] = field(default_factory=list)
    question: Question | None = None
    read: Slot[bool] = field(default_factory=Slot)
    stored: Slot[bool] = field(default_factory=Slot)
    recorded: Slot[bool] = field(default_factory=Slot)


def snapshot(messages: Sequence[object]) -> list[object]:
    """A copy that the host's later edits of its own dictionaries do not reach."""
    return [dict(message) if isinstance(message, Mapping) else message for message in messages]
