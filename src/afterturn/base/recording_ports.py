"""The port behind which finished turns are kept (C7): what a host implements that keeps them in a place of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from afterturn.base.turns import Message
from afterturn.base.types import Metadata, Scope


@dataclass(frozen=True, slots=True)
class Interaction:
    """A completed turn: what was said from its user message on, without our own blocks.

    `run_id` is the turn's id, which names it inside its conversation. `metadata` tells which that is (`conversation`),
    the space that it may write (`writes`), when the turn began and ended, and `agent`, `project` and `subagent` where
    the host has said so.
    """

    messages: tuple[Message, ...]
    run_id: str
    metadata: Metadata = field(default_factory=dict)


class RecordingProvider(Protocol):
    """Keeps finished turns, in whatever way it likes; one that does not say how keeps nothing.

    It is called behind the turn, several calls at a time, on memory's own event loop, which it must not block. A turn
    that it has taken is not offered again, by any process. It may be offered twice when a process dies, or loses its
    store, between the two: `run_id` and `conversation` tell that it is the same.
    """

    async def record(self, scope: Scope, interaction: Interaction) -> bool:
        """True once it is kept for good, False to decline. Whatever it raises: it will be asked again.

        `scope` is the space that owns the conversation, whoever speaks in it or drives the turn.
        """
        return False
