"""Where what was recalled lies until its host takes it, and how it goes into the host's messages."""

from __future__ import annotations

import threading
from collections.abc import MutableSequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from afterturn.conversation.prefetch import PhaseRun
from afterturn.conversation.scope import Placement
from afterturn.dialects.dialect import Dialect
from afterturn.dialects.history import new_element
from afterturn.recall.block import Block

M = TypeVar("M")
# Between two blocks of one element.
BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True)
class ReadyBlock:
    """A block that is ready, and the phases whose results it was made of, in the order in which they were weighed.

    `made_at` is the time its ages are told from, `visible_bytes` what was in sight then; `shown` was left out for that.
    """

    block: Block
    runs: tuple[PhaseRun, ...]
    made_at: float
    shown: frozenset[str] = frozenset()
    visible_bytes: int = 0

    @property
    def refs(self) -> tuple[str, ...]:
        """The memories that it shows, then those that say the same in other words: the model knows them too (L10)."""
        shown = self.block.refs
        said = [run.prefetch.prepared.restated for run in self.runs if run.prefetch.prepared is not None]
        return tuple(dict.fromkeys((*shown, *(ref for same in said for ref, by in same.items() if by in shown))))


@dataclass(frozen=True, slots=True)
class Injection:
    """What goes into the host's messages as one element: context files that have arrived, and what was recalled."""

    arrived: str | None
    offer: ReadyBlock | None

    @property
    def blocks(self) -> list[tuple[str, tuple[str, ...]]]:
        """Each block's text, with the references of the memories that it shows."""
        files: list[tuple[str, tuple[str, ...]]] = [(self.arrived, ())] if self.arrived else []
        return [*files, (self.offer.block.text, self.offer.refs)] if self.offer else files

    @property
    def text(self) -> str:
        return BETWEEN.join(text for text, _ in self.blocks)


class DeliverySlot:
    """One per conversation, so that the turn which owns recall is the only one to get anything (R3). Any thread.

    Whoever claims a phase decides how it ends, so each ends once: the host by taking it, memory by giving it up.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: object = None
        self._offer: ReadyBlock | None = None

    def open_for(self, owner: object, offer: ReadyBlock | None = None) -> None:
        """From now on it is this turn's, with `offer` on it at once unless somebody has taken part of that."""
        with self._lock:
            if owner is self._owner:
                return
            taken = offer is not None and any(run.consumed for run in offer.runs)
            self._owner, self._offer = owner, None if taken else offer

    def put(self, owner: object, offer: ReadyBlock | None) -> bool:
        """Replaces what lies there. False when that is no longer true: a phase was claimed, or the turn has changed."""
        with self._lock:
            if owner is not self._owner or (offer is not None and any(run.consumed for run in offer.runs)):
                return False
            self._offer = offer
            return True

    def take(self, owner: object) -> ReadyBlock | None:
        """What is to be handed over, to the first who asks: its phases are consumed before it is read (H2)."""
        with self._lock:
            if owner is not self._owner or self._offer is None:
                return None
            for run in self._offer.runs:
                run.prefetch.shown |= frozenset(self._offer.block.refs)
                run.consumed = True
            offer, self._offer = self._offer, None
            return offer

    def has_offer(self, owner: object) -> bool:
        return self._owner is owner and self._offer is not None

    def claim(self, run: PhaseRun) -> bool:
        """False when the host has taken it already. What lies there with it is withdrawn until it is put anew."""
        with self._lock:
            if run.consumed:
                return False
            run.consumed = True
            if self._offer is not None and run in self._offer.runs:
                self._offer = None
            return True


def put_in(
    dialect: Dialect, messages: MutableSequence[M], text: str, placement: Placement, *, at: int | None = None
) -> tuple[int, M]:
    """Where the block stands now and the element that carries it: a new one after `at`, or an extended copy of that.

    Without `at`, after the last element. Nothing of the host's is edited.
    """
    behind = len(messages) - 1 if at is None else at
    if placement is Placement.MERGE and behind >= 0:
        merged = dialect.merged(messages[behind], text)
        if merged is not None:
            messages[behind] = cast(Any, merged)
            return behind, messages[behind]
    element = cast(M, new_element(dialect, messages, text))
    if at is None:
        messages.append(element)
    else:
        messages.insert(behind + 1, element)
    return behind + 1, element
