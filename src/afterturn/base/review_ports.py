"""What a store keeps of reviews and of what models cost: two more repositories of a unit of work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from afterturn.base.reviews import ReviewRow, Snapped, Spent
from afterturn.base.turns import ConversationKey

REVIEWS_MAX = 1_000
"""How many ended reviews a space keeps to be read: a month of busy days, at a few hundred bytes each."""


class Reviews(Protocol):
    """Reviews with the messages they are to read. What is forgotten leaves here too: messages of that record, speaker
    or conversation, and with a conversation or a space its reviews. A review with no message left has nothing to read.

    A message that no record holds goes with any record of its conversation, since nothing tells which it came to. A
    space also takes along what reviews of others' conversations that write there are to read.

    Of those that have ended a space keeps the newest `REVIEWS_MAX` (by id) and its last consolidation; what older ones
    have done stays, and can be undone by their ids (`Operations.undo`).
    """

    def add(self, review: ReviewRow, messages: Sequence[Snapped]) -> None:
        """Schedules it. Conflict when the id was used before, or when it takes turns and another one of its
        conversation waits. Messages whose record is not there, or not any more, are left out (M2)."""

    def get(self, tenant: str, review_id: str) -> ReviewRow:
        """NotFound when there is none, or it was forgotten."""

    def find_waiting(self, key: ConversationKey) -> ReviewRow | None:
        """The one that waits or runs among those that take turns (`ReviewKind.takes_turns`)."""

    def messages(self, tenant: str, review_id: str) -> list[Snapped]:
        """In their order; empty once the review has ended."""

    def replace_messages(self, tenant: str, review_id: str, messages: Sequence[Snapped]) -> None:
        """For a review that still waits: a later trigger joins it, with all that it is to read by now. Nothing for one
        that has ended or was forgotten."""

    def end(self, review: ReviewRow) -> bool:
        """Stores how it ended and lets the messages go. True for the first call that ends it; False when it had ended,
        or was forgotten: then nothing of it may be written (V4)."""

    def page(
        self, tenant: str, space: str, *, conversation: str | None = None, limit: int, before: str | None = None
    ) -> list[ReviewRow]:
        """Newest first; `before` continues after that id."""

    def unconsolidated(self, tenant: str, *, before: float, limit: int) -> list[str]:
        """Spaces in which statements changed since they were last consolidated, or that were not since `before`."""

    def count_turn(self, key: ConversationKey) -> int:
        """One more turn was completed since the last review of the conversation was scheduled; how many by now.
        0 when there is no such conversation, or not any more."""

    def unreviewed(self, key: ConversationKey) -> tuple[int, int]:
        """(turns since the last one was scheduled, position of the first record that none has read).

        Where the last records are forgotten, their positions are used again, and are unread again."""

    def scheduled(self, key: ConversationKey, *, position: int) -> None:
        """Sets the turns back to 0, and notes that records before `position` are read."""

    def reopen(self, key: ConversationKey, *, position: int) -> None:
        """Records from `position` on are not read after all: the review that should have came to nothing."""


class Usage(Protocol):
    """What calls of models came to, summed by tenant, space, day and purpose."""

    def add(self, tenant: str, spent: Spent) -> None: ...

    def tokens(self, tenant: str, day: str, *, space: str | None = None) -> int:
        """Of all purposes on one day, in one space or in all of the tenant's."""

    def page(self, tenant: str, *, space: str | None = None, limit: int) -> list[Spent]:
        """Newest day first, then by space and purpose."""
