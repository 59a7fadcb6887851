"""What memory took of the agent's turns and prompts, and what a recall at every model call would have taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from afterturn.testing.model import ModelCall
from afterturn.text import estimate_tokens


@dataclass(slots=True)
class Cost:
    """Sums over turns. `waited` is seconds.

    `added` are tokens of memory that went into a history, `read` those in all prompts together: a history is sent
    again with every call. `each_call_*` is the same for a host that recalls at every call, without exclusions.
    """

    turns: int = 0
    recalls: int = 0
    model_calls: int = 0
    waited: float = 0.0
    added: int = 0
    read: int = 0
    each_call_added: int = 0
    each_call_read: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


class Comparison:
    """One conversation as both hosts would have it. Compaction takes all that the other one has gathered."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        self._blocks: list[str] = []
        self._gathered = 0

    def gave(self, block: str) -> None:
        self._blocks.append(block)
        self._cost.added += estimate_tokens(block)

    def called(self, calls: Sequence[ModelCall], would_give: str) -> None:
        """The calls of one turn; `would_give` is the block that a recall gives which knows of nothing in sight."""
        self._cost.model_calls += len(calls)
        for call in calls:
            self._cost.read += sum(estimate_tokens(block) for block in self._blocks if block in call.text)
            self._gathered += estimate_tokens(would_give)
            self._cost.each_call_added += estimate_tokens(would_give)
            self._cost.each_call_read += self._gathered

    def compacted(self) -> None:
        self._gathered = 0
