"""The repositories of a store for conversations, recalls, events, reviews and usage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from afterturn.types import ConversationKey, Event, ReviewMessage, ReviewRow, Scope, StandingRow, TurnRow, UsageRow
    from afterturn.types.conversations import Taint, TurnStatus
    from afterturn.types.operations import TimelinePage
    from afterturn.types.rows import (
        BlockRow,
        CarriedRow,
        ConversationSnapshot,
        ConversationState,
        RecallRow,
        Showing,
        StoredTurn,
    )

# How many ended reviews a space keeps: those of a month of busy days, at a few hundred bytes each.
REVIEWS_MAX = 1_000


class Conversations(Protocol):
    """Conversations with their turns, and the blocks that were injected into them."""

    def start_turn(self, key: ConversationKey, turn: TurnRow) -> bool:
        """Returns False, and changes nothing, if this conversation already has a turn with that id."""

    def find_turn(self, key: ConversationKey, turn_id: str) -> TurnRow | None: ...

    def turns(self, key: ConversationKey) -> list[TurnRow]:
        """Returns all turns, oldest first, whatever their status."""

    def end_turn(
        self,
        key: ConversationKey,
        turn_id: str,
        *,
        status: TurnStatus,
        at: float,
        recorded: bool,
        taint: Taint | None = None,
        start: TurnRow | None = None,
    ) -> bool:
        """Returns True for the first call that records the turn. A turn is recorded at most once.

        Without a `taint`, the one that is stored stays. `start` is stored first, as by `start_turn`.
        """

    def taint_turn(self, key: ConversationKey, turn_id: str, taint: Taint) -> None:
        """Marks a turn that is still open as tainted. A mark that is stored stays."""

    def is_tainted(self, key: ConversationKey) -> bool:
        """Whether a turn of the conversation is tainted. A turn that was abandoned is: nobody saw its end."""

    def touch_turn(self, key: ConversationKey, turn_id: str, *, at: float) -> None:
        """Notes that an open turn was continued."""

    def abandon_turns(self, tenant: str, *, idle_since: float, at: float) -> int:
        """Closes the open turns that were neither started nor continued since `idle_since`. Returns how many."""

    def add_block(self, key: ConversationKey, block: BlockRow) -> None:
        """Stores a block once per hash. One that is no longer visible becomes visible again, at its new place.

        Not if it was injected before the last `clear`: the blocks of a turn are stored again when the turn is recorded.
        The text is not stored if something in it was forgotten meanwhile.
        """

    def blocks(self, key: ConversationKey) -> list[BlockRow]:
        """Returns the blocks, oldest first, without references to forgotten memories.

        The blocks of the space's forgotten conversations are first, with hash and size only and not visible: a host may
        still show them, and they must be distinguished from messages.
        """

    def known_blocks(self, key: ConversationKey) -> list[BlockRow]:
        """The same, but without text and references for blocks that are not visible, of which there may be many."""

    def last_shown(self, tenant: str, refs: Collection[str]) -> dict[str, float]:
        """Returns when a block with each version was last injected, in any conversation, or last stood in a standing
        block.

        Versions that were never shown are absent.
        """

    def showings(self, tenant: str, refs: Collection[str], *, limit: int) -> list[Showing]:
        """Returns the turns with a block that has one of these versions, in any conversation, newest first."""

    def state(self, key: ConversationKey) -> ConversationState:
        """Returns the state of the conversation; that of a new one if it does not exist."""

    def read(self, key: ConversationKey) -> ConversationSnapshot:
        """Returns `known_blocks`, `state`, `forgets`, and what is carried without forgotten candidates, at once."""

    def read_turn(
        self, key: ConversationKey, turn_id: str, *, writes: str, speakers: Iterable[str], since: int
    ) -> StoredTurn:
        """Returns `find_turn`, `state`, `forgets`, `is_tainted`, `Records.next_position` in the space that it `writes`,
        and `is_forgotten` for both that space and its own, at once."""

    def set_incognito(self, key: ConversationKey, *, on: bool, at: float) -> None:
        """Switches incognito on or off for the turns that end from now on. Creates the conversation if it is new."""

    def mark_incognito(self, key: ConversationKey, turn_id: str) -> None:
        """Makes a stored turn incognito, and removes the hash of its user message."""

    def clear(self, key: ConversationKey, *, at: float, compacted: bool, still: Collection[str] = ()) -> None:
        """Makes all blocks invisible, except those with a hash in `still`, and drops what is carried.

        `compacted` counts a compaction.
        """

    def carry(self, key: ConversationKey, carried: CarriedRow) -> None:
        """Stores a recall for the next turn. Replaces an earlier one."""

    def drop_carried(self, key: ConversationKey, correlation: str) -> bool:
        """Returns True for the one call that removes it."""

    def find_standing(self, key: ConversationKey) -> StandingRow | None:
        """Returns the standing block, None before the first and after a memory in it was forgotten."""

    def put_standing(self, key: ConversationKey, standing: StandingRow | None) -> None:
        """Stores the standing block. None means that it is made again when it is next needed."""

    def forgets(self, tenant: str) -> int:
        """Returns the number of the newest forget, 0 before the first. A turn stores it when it starts.

        It is a count and not a time, because a clock may go back. It is one count for all spaces of a tenant, and a
        restore does not reset it.
        """

    def is_forgotten(self, tenant: str, space: str, *, conversation: str, speakers: Iterable[str], since: int) -> bool:
        """Whether a forget after number `since` covered this conversation, one of the speakers, or the whole space."""

    def page(self, tenant: str, space: str, *, limit: int, before: str | None = None) -> list[str]:
        """Returns ids, newest activity first. `before` continues after that id."""


class Recalls(Protocol):
    """The recalls of a conversation. Their number per space is limited; the oldest are removed first."""

    def add(self, key: ConversationKey, recall: RecallRow, *, entries_max: int) -> None:
        """Stores one row for each correlation and phase. A later one replaces it."""

    def page(self, key: ConversationKey, *, turn: str | None = None, limit: int = 1000) -> list[RecallRow]:
        """Returns the newest `limit` rows, oldest first; with `turn`, those started or delivered in it.

        Forgotten candidates are absent, and so are rows whose question was forgotten with its conversation.
        """


class Timeline(Protocol):
    """Events. Their number is limited; the oldest are removed first."""

    def add(self, events: Sequence[Event], *, entries_max: int) -> None: ...

    def page(self, scope: Scope, *, conversation: str | None = None, limit: int, skip: int = 0) -> list[Event]:
        """Returns the newest `limit` events, oldest first, without the `skip` newest."""

    def follow(self, tenant: str, after: Mapping[str, tuple[int, float]] | None, *, limit: int) -> TimelinePage:
        """Returns the newest `limit` events of all spaces of a tenant, oldest first; with `after`, the `heads` of an
        earlier page, only those that were added since. Events whose key is gone have no data."""


class Reviews(Protocol):
    """Reviews with the messages that they are to read.

    Forgetting a record, a speaker or a conversation removes its messages here too, and a conversation or a space also
    its reviews. A message without a record is removed with any record of its conversation, since it is not known which
    one it belongs to. Forgetting a space also removes the messages of reviews that write there.

    A space keeps the newest `REVIEWS_MAX` ended reviews, by id, and its last consolidation. The changes of older ones
    stay and can be undone by their ids (`Operations.undo`).
    """

    def add(self, review: ReviewRow, messages: Sequence[ReviewMessage]) -> None:
        """Schedules a review. Messages whose record does not exist any more are left out.

        Raises Conflict if the id was used before, or if it takes turns and another review of the conversation is
        waiting.
        """

    def get(self, tenant: str, review_id: str) -> ReviewRow:
        """Raises NotFound if there is none, or it was forgotten."""

    def find_waiting(self, key: ConversationKey) -> ReviewRow | None:
        """Returns the waiting or running review among those that take turns (`ReviewKind.takes_turns`)."""

    def messages(self, tenant: str, review_id: str) -> list[ReviewMessage]:
        """Returns the messages in order; none after the review has ended."""

    def replace_messages(self, tenant: str, review_id: str, messages: Sequence[ReviewMessage]) -> None:
        """Replaces the messages of a waiting review. Does nothing if it has ended or was forgotten."""

    def end(self, review: ReviewRow) -> bool:
        """Stores how the review ended and removes its messages. Returns True for the first call that ends it.

        Returns False if it had ended, or was forgotten: then nothing of it may be written.
        """

    def page(
        self, tenant: str, space: str, *, conversation: str | None = None, limit: int, before: str | None = None
    ) -> list[ReviewRow]:
        """Returns reviews, newest first. `before` continues after that id."""

    def unconsolidated(self, tenant: str, *, before: float, limit: int) -> list[str]:
        """Returns spaces whose statements changed since their last consolidation, or whose last one was before
        `before`."""

    def count_turn(self, key: ConversationKey) -> int:
        """Counts a completed turn and returns their number since the last review was scheduled. 0 without a
        conversation."""

    def unreviewed(self, key: ConversationKey) -> tuple[int, int]:
        """Returns (turns since the last review was scheduled, position of the first record that none has read).

        Positions of forgotten records at the end are used again, and count as unread again.
        """

    def scheduled(self, key: ConversationKey, *, position: int) -> None:
        """Sets the number of turns to 0, and marks records before `position` as read."""

    def reopen(self, key: ConversationKey, *, position: int) -> None:
        """Marks records from `position` on as unread again, after a review that failed."""


class Usage(Protocol):
    """Model calls and tokens, summed by tenant, space, day and purpose."""

    def add(self, tenant: str, spent: UsageRow) -> None: ...

    def tokens(self, tenant: str, day: str, *, space: str | None = None) -> int:
        """Returns the tokens of all purposes on one day, in one space or in all of the tenant's."""

    def page(self, tenant: str, *, space: str | None = None, limit: int) -> list[UsageRow]:
        """Returns rows, newest day first, then by space and purpose."""
