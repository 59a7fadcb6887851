"""The state of one turn, split by the thread that may write it: `HostTurn`, `LoopTurn`, and `SharedTurn` for both.

A host's thread reads `LoopTurn` and memory's loop reads `HostTurn` only where a field says so; everything that both
sides change is in `SharedTurn`, behind its lock.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from afterturn.conversation.delivery import BlockPosition, PhaseRun, Prefetch
from afterturn.conversation.ledger import Ledger, MessageChain
from afterturn.conversation.scope import ConversationScope
from afterturn.dialects.dialect import Dialect
from afterturn.runtime.once_future import OnceFuture
from afterturn.tool_rules.advice import GivenRules
from afterturn.types import BlockRow, Hit, Phase, Taint


class OpenedTurn(NamedTuple):
    """The result of reading the turn's messages, by memory's loop. `user` is the user message, if it has text.

    `forgets` is the number of the newest forget at that time: a later one applies to everything in the turn.
    """

    dialect: Dialect
    user: BlockPosition | None = None
    forgets: int = 0


class SharedTurn:
    """The part of a turn that both threads use: constants, once-futures, and fields that are changed under one lock.

    `opened` settles when the turn's messages are read, with None if they cannot be; `stored` when the turn is a row in
    the store; `recorded` when it is known whether its messages were stored. A `durable` turn outlives its process.
    """

    def __init__(
        self,
        id: str,
        scope: ConversationScope,
        first: Prefetch,
        started_at: float,
        *,
        speaker: str | None = None,
        durable: bool = False,
        taint: Taint | None = None,
        incognito: bool = False,
    ) -> None:
        self.id = id
        self.scope = scope
        self.started_at = started_at
        self.speaker = speaker
        self.durable = durable
        self.first = first
        self.opened: OnceFuture[OpenedTurn | None] = OnceFuture()
        self.stored: OnceFuture[bool] = OnceFuture()
        self.recorded: OnceFuture[bool] = OnceFuture()
        self.lock = threading.RLock()
        # From here on: written under the lock. One field by itself may be read without it.
        self._prefetches = [first]
        self._handed_over: list[BlockRow] = []
        self._prompt_texts: dict[str, str] = {}
        self.model_called = False
        self.taint = taint
        # Never unset: what was said cannot be told apart from what is said later.
        self.incognito = incognito or scope.incognito
        # Where our blocks are in the host's list, by hash; which earlier ones are to be put back; which were found to
        # be missing and reported; whether a compaction was announced whose result we were not shown.
        self.positions: dict[str, BlockPosition] = {}
        self.dropped: tuple[BlockRow, ...] = ()
        self.reported: set[str] = set()
        self.unsure = False
        # How far the host's list was followed when it was read.
        self.chain: MessageChain | None = None

    # Prefetches, in the order of the turn's epochs. The last one is current.

    @property
    def prefetches(self) -> list[Prefetch]:
        with self.lock:
            return list(self._prefetches)

    @property
    def current(self) -> Prefetch:
        with self.lock:
            return self._prefetches[-1]

    def find_run(self, phase: Phase) -> PhaseRun:
        """The phase of the current epoch that a host may wait for: the newest one that has not settled."""
        with self.lock:
            newest = self._prefetches[-1]
            runs = [one.run_of(phase) for one in reversed(self._prefetches) if one.epoch == newest.epoch]
        return next((run for run in runs if not run.settled.settled), newest.run_of(phase))

    @property
    def epochs(self) -> int:
        with self.lock:
            return sum(prefetch.cause.is_epoch for prefetch in self._prefetches)

    def add_prefetch(self, prefetch: Prefetch) -> None:
        with self.lock:
            self._prefetches.append(prefetch)

    # Blocks that the host was given.

    @property
    def blocks(self) -> list[BlockRow]:
        with self.lock:
            return list(self._handed_over)

    def hand_over(self, rows: Iterable[BlockRow]) -> None:
        with self.lock:
            self._handed_over.extend(rows)

    def mark_model_called(self) -> None:
        """From now on nothing of an earlier turn is put back: that would change a prompt which the model has seen."""
        with self.lock:
            self.model_called = True

    def mark_tainted(self, taint: Taint) -> bool:
        """Text that neither the user nor the assistant wrote has reached the assistant. True for the first call, whose
        `taint` is kept."""
        with self.lock:
            is_first = self.taint is None
            self.taint = self.taint or taint
            return is_first

    def mark_incognito(self) -> None:
        """From now on nothing of the turn is stored."""
        with self.lock:
            self.incognito = True

    def add_positions(self, positions: Mapping[str, BlockPosition]) -> None:
        """Blocks were added to the host's list."""
        with self.lock:
            self.positions.update(positions)
            # The same bytes may have been elsewhere before, and been removed.
            self.reported.difference_update(positions)

    def read_positions(
        self, positions: Mapping[str, BlockPosition], dropped: tuple[BlockRow, ...], chain: MessageChain | None
    ) -> None:
        """The list was read as it was when the turn began. Blocks that were added since are kept."""
        with self.lock:
            self.positions = {**positions, **self.positions}
            self.dropped = () if self.model_called else dropped
            self.chain = chain

    def expect_compaction(self) -> None:
        """A compaction was announced whose result we were not shown: the next list is searched for our blocks."""
        with self.lock:
            self.unsure = True

    def take_expected(self) -> bool:
        """Whether a compaction was announced, for the first caller."""
        with self.lock:
            expected, self.unsure = self.unsure, False
            return expected

    def apply_compaction(self, positions: Mapping[str, BlockPosition], lost: Collection[str]) -> None:
        """A compacted list was read: where our blocks are in it, and which of them are gone."""
        with self.lock:
            others = {hash: position for hash, position in self.positions.items() if hash not in lost}
            self.positions = {**others, **positions}
            self.reported.difference_update(positions)
            self.reported.update(lost)

    def keep_dropped(self, hashes: Iterable[str]) -> None:
        """Only these blocks may still be put back."""
        allowed = frozenset(hashes)
        with self.lock:
            self.dropped = tuple(row for row in self.dropped if row.hash in allowed)

    def clear_blocks(self) -> None:
        """The conversation was reset: nothing of ours is expected in the list."""
        with self.lock:
            self.positions, self.dropped, self._prompt_texts = {}, (), {}

    def is_intact(self, messages: Sequence[object]) -> bool:
        """Whether every block is where it was, by one look at each position."""
        if self.scope.is_hidden:
            return True
        with self.lock:
            return (
                not self.dropped
                and not self.unsure
                and all(position.holds(messages) for position in self.positions.values())
            )

    # Blocks as text, for hosts that write their prompt themselves.

    @property
    def prompt_texts(self) -> list[str]:
        with self.lock:
            return list(self._prompt_texts.values())

    def add_prompt_text(self, hash: str, text: str) -> None:
        with self.lock:
            self._prompt_texts[hash] = text

    def set_prompt_texts(self, texts: Mapping[str, str]) -> None:
        with self.lock:
            self._prompt_texts = dict(texts)


@dataclass(slots=True, eq=False)
class LoopTurn:
    """A turn as memory's loop sees it. Only that loop's code writes here; a host reads `recalled`, `left`, `user_hash`.

    `carried` is a recall that an earlier turn left for this one. `opening` is the list that the turn began with, until
    it is read. `compactions` counts those in this turn; `is_seen` says that the newest one was seen and not reported.
    `gone` are the hashes of this turn's blocks that a compaction removed. `is_read`: the list that it began with was
    read.
    """

    shared: SharedTurn
    user_hash: str = ""
    user_index: int | None = None
    left: bool = False
    dialect: Dialect | None = None
    forgets: int = 0
    forgets_before: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    carried: Prefetch | None = None
    recalled: tuple[Hit, ...] = ()
    compactions: int = 0
    is_seen: bool = False
    gone: frozenset[str] = frozenset()
    opening: list[object] | None = None
    is_read: bool = False

    @property
    def id(self) -> str:
        return self.shared.id

    @property
    def scope(self) -> ConversationScope:
        return self.shared.scope


@dataclass(slots=True, eq=False)
class HostTurn:
    """A turn as its host's calls see it. Only they write here.

    `began_at` is the last element of the list that the turn began with. `user` replaces the opened turn's position once
    a block was merged into the user's message. `grace_ends` is, by recall, when waiting for it ends. `followed` is
    the last element of the host's own that was looked at. `reported` are texts of the user that the host has reported
    and that were not found in its list yet, `noticed` are those that were found there and not reported. `given_rules`
    are those that tool calls were given.
    """

    shared: SharedTurn
    loop: LoopTurn
    began_at: BlockPosition | None = None
    followed: BlockPosition | None = None
    reported: list[str] = field(default_factory=list)
    noticed: list[str] = field(default_factory=list)
    cues: int = 0
    given_rules: GivenRules | None = None
    user: BlockPosition | None = None
    grace_ends: dict[str, float] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.shared.id

    @property
    def scope(self) -> ConversationScope:
        return self.shared.scope

    @property
    def user_position(self) -> BlockPosition | None:
        opened = self.shared.opened.peek()
        return self.user or (opened.user if opened is not None else None)


class TurnMessages(NamedTuple):
    """A copy of a turn's messages. `starts_with_user`: it begins with the turn's user message, not before."""

    messages: list[object]
    starts_with_user: bool = False


COPIED_LEVELS_MAX = 6
SEARCHED_MAX = 10_000
# Takes about 20 ms to copy. No model has seen more messages than that.
TURN_MESSAGES_MAX = 10_000


def copy_messages(messages: Sequence[object], turn: HostTurn) -> TurnMessages:
    """This turn's messages, copied so that the host's later edits do not change them.

    From its user message on where that is still the same object, else all of them. Of more than `TURN_MESSAGES_MAX`
    only the newest, after the user message: the host's thread waits for the copy.
    """
    user = turn.user_position
    found = find_index(messages, user) if user is not None else None
    start = max(found or 0, len(messages) - TURN_MESSAGES_MAX)
    newest = messages[start:] if isinstance(messages, list) else itertools.islice(messages, start, None)
    copied = [_copied(message, COPIED_LEVELS_MAX) for message in newest]
    if found is not None and found < start:
        copied.insert(0, _copied(messages[found], COPIED_LEVELS_MAX))
    return TurnMessages(copied, found is not None)


def find_index(messages: Sequence[object], position: BlockPosition) -> int | None:
    """Where the same object is now: usually where it was, else searched for from the end."""
    if position.holds(messages):
        return position.index
    searched = range(len(messages) - 1, max(-1, len(messages) - 1 - SEARCHED_MAX), -1)
    return next((at for at in searched if messages[at] is position.element), None)


def _copied(value: object, levels: int) -> object:
    """Containers are copied, a client library's objects one level deep; immutable values are not."""
    if levels == 0 or isinstance(value, _IMMUTABLE):
        return value
    if isinstance(value, Mapping):
        return {key: _copied(item, levels - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item, levels - 1) for item in value]
    try:
        return copy.copy(value)
    except Exception:  # noqa: BLE001  a host's class may refuse to be copied: then it is read later as it is
        return value


_IMMUTABLE = (str, bytes, int, float, bool, type(None))
