"""A recall on its way to the host: the prefetch of one epoch, its phases, and the slot from which the host takes it.

`VisibleBlocks` has the blocks that were delivered, as far as we know from the host.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, assert_never, cast

from afterturn.conversation.ledger import BlockScan, find_missing, scan_blocks
from afterturn.conversation.read_turn import visible_in_order
from afterturn.conversation.scope import ConversationScope, Placement
from afterturn.dialects.dialect import Dialect
from afterturn.dialects.history import new_element
from afterturn.guard.output_filter import STANDING_TAG
from afterturn.recall.answer import RecallAnswer
from afterturn.recall.block import Block, block_hash
from afterturn.recall.features import shows_report
from afterturn.recall.query import RecallRequest
from afterturn.runtime.once_future import OnceFuture
from afterturn.types import BlockRow, HandoverPoint, Hit, Outcome, Phase, RecallCause, StandingRow

if TYPE_CHECKING:
    from afterturn.conversation.turn_state import SharedTurn

M = TypeVar("M")
# Between two blocks of one element.
BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True)
class BlockPosition:
    """The index of an element in the host's list, and the element, to check whether it is still there."""

    index: int
    element: object

    def holds(self, messages: Sequence[object]) -> bool:
        return 0 <= self.index < len(messages) and messages[self.index] is self.element


class PhaseState(StrEnum):
    """The state of one phase of a recall; ARCHITECTURE.md draws the transitions."""

    ASKED = "asked"
    READY = "ready"
    CARRIED = "carried"
    ENDED = "ended"


def may_follow(state: PhaseState) -> frozenset[PhaseState]:
    match state:
        case PhaseState.ASKED:
            return frozenset((PhaseState.READY, PhaseState.ENDED))
        case PhaseState.READY:
            return frozenset((PhaseState.CARRIED, PhaseState.ENDED))
        case PhaseState.CARRIED:
            return frozenset((PhaseState.ENDED,))
        case PhaseState.ENDED:
            return frozenset()
        case _:
            assert_never(state)


class PhaseRun:
    """One phase of one prefetch. `consumed` is guarded by the delivery slot's lock; the rest is written on the loop.

    `settled` is what a host waits for: it settles when there is something to take, or when there never will be.
    """

    __slots__ = ("consumed", "hits", "outcome", "phase", "prefetch", "reason", "settled", "settled_at", "state")

    def __init__(self, prefetch: Prefetch, phase: Phase) -> None:
        self.prefetch = prefetch
        self.phase = phase
        self.state = PhaseState.ASKED
        self.hits: tuple[Hit, ...] = ()
        self.settled: OnceFuture[bool] = OnceFuture()
        self.settled_at: float | None = None
        self.consumed = False
        self.outcome: Outcome | None = None
        self.reason = ""

    def move(self, state: PhaseState) -> None:
        assert state in may_follow(self.state), f"{self.phase} cannot change from {self.state} to {state}"
        self.state = state

    @property
    def ended(self) -> bool:
        return self.state is PhaseState.ENDED


class Prefetch:
    """The recall of one epoch. Without a question (blank input, an acknowledgement) nothing is asked, nothing ends.

    `shown` are the memories of it that the host has taken; like `consumed` it is guarded by the slot's lock.
    `withheld` are those that must not be shown to the model. `visible_bytes` is how much of ours the model saw when the
    question was asked. `is_late`: it takes longer than `recall_timeout`, and nobody waits for it any more.
    `incognito`: its question is not stored. The rest is written on the loop.
    """

    __slots__ = (
        "answer",
        "asked_at",
        "cause",
        "correlation",
        "epoch",
        "forgets",
        "incognito",
        "is_late",
        "question",
        "runs",
        "scope",
        "shown",
        "speakers",
        "speculated",
        "started",
        "task",
        "turn",
        "visible_bytes",
        "withheld",
    )

    def __init__(
        self, correlation: str, cause: RecallCause, *, turn: str, epoch: int, phases: tuple[Phase, ...]
    ) -> None:
        self.correlation = correlation
        self.cause = cause
        self.turn = turn
        self.epoch = epoch
        self.runs = tuple(PhaseRun(self, phase) for phase in phases)
        self.question: RecallRequest | None = None
        self.scope: ConversationScope | None = None
        self.visible_bytes = 0
        self.answer: RecallAnswer | None = None
        self.asked_at: float | None = None
        self.started = 0.0
        self.forgets = 0
        self.incognito = False
        self.is_late = False
        self.shown: frozenset[str] = frozenset()
        self.speakers: tuple[str, ...] = ()
        self.speculated = False
        self.withheld: frozenset[str] = frozenset()
        self.task: asyncio.Task[None] | None = None

    @property
    def fast(self) -> PhaseRun:
        """The first phase: the fast one, unless only what a model selects is delivered."""
        return self.runs[0]

    @property
    def asked(self) -> bool:
        return self.asked_at is not None

    def run_of(self, phase: Phase) -> PhaseRun:
        """The run of `phase`, or the first one if there is none."""
        return next((run for run in self.runs if run.phase is phase), self.fast)

    def release_waiters(self) -> None:
        """Ends all waiting for it."""
        for run in self.runs:
            run.settled.settle(False)


class ReadyBlock(NamedTuple):
    """A block that is ready, and the phases whose results it was made of, in the order in which they were weighed.

    `made_at` is the time from which its ages are computed, `visible_bytes` how much of ours the model could see then;
    `visible_refs` were left out because the model sees them.
    """

    block: Block
    runs: tuple[PhaseRun, ...]
    made_at: float
    visible_refs: frozenset[str] = frozenset()
    visible_bytes: int = 0

    @property
    def refs(self) -> tuple[str, ...]:
        """The memories that it shows, then those that say the same in other words: the model knows them too."""
        shown = self.block.refs
        restated = [run.prefetch.answer.restated for run in self.runs if run.prefetch.answer is not None]
        return tuple(dict.fromkeys((*shown, *(ref for same in restated for ref, by in same.items() if by in shown))))

    @property
    def shows_report(self) -> bool:
        """Whether the model reads words of others in it."""
        shown = self.block.refs
        return any(shows_report(hit) for run in self.runs for hit in run.hits if hit.entry.ref in shown)


class Injection(NamedTuple):
    """The content of one new element in the host's messages: the standing block, context files that have arrived, and a
    ready block."""

    context_files: str | None
    ready: ReadyBlock | None
    standing: StandingRow | None = None

    def rows(self, turn: str, at: float, point: HandoverPoint, anchor: str) -> list[BlockRow]:
        """A row for each block, in the order of `text`."""
        of_standing = point if point is HandoverPoint.PROMPT else HandoverPoint.STANDING
        blocks: list[tuple[str, tuple[str, ...], HandoverPoint]] = []
        if self.standing is not None:
            blocks.append((self.standing.text, self.standing.refs, of_standing))
        if self.context_files:
            blocks.append((self.context_files, (), point))
        if self.ready is not None:
            blocks.append((self.ready.block.text, self.ready.refs, point))
        return [
            BlockRow(block_hash(text), turn, refs, len(text.encode()), at, where, anchor, text)
            for text, refs, where in blocks
        ]


class DeliverySlot:
    """Holds at most one ready block for the turn that owns recall. One per conversation; thread-safe.

    Every phase ends once: the side that claims it under the lock decides how. The host claims it by taking the block,
    memory's loop by ending the phase. While a compaction is examined, the slot is held and stays empty.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: object = None
        self._ready: ReadyBlock | None = None
        # Not tied to a turn: it waits until one takes it, for hosts that never wait.
        self._standing: StandingRow | None = None
        self._standing_scope: ConversationScope | None = None
        # How many compactions of each turn are being examined.
        self._holds: Counter[object] = Counter()

    def open_for(self, owner: object, ready: ReadyBlock | None = None) -> None:
        """Makes `owner` the only turn that can take something, and offers it `ready` unless part of that was taken."""
        with self._lock:
            if owner is self._owner:
                return
            taken = ready is not None and any(run.consumed for run in ready.runs)
            self._owner, self._ready = owner, None if taken or self._holds[owner] else ready

    def hold(self, owner: object) -> None:
        """Withdraws the block, and accepts no other one for this turn until `release`."""
        with self._lock:
            self._holds[owner] += 1
            if owner is self._owner:
                self._ready = None

    def release(self, owner: object) -> bool:
        """Whether the slot is free again: each `hold` has its own `release`."""
        with self._lock:
            self._holds[owner] -= 1
            if self._holds[owner] > 0:
                return False
            del self._holds[owner]
            return True

    def is_held(self, owner: object) -> bool:
        with self._lock:
            return owner in self._holds

    def put(self, owner: object, ready: ReadyBlock | None) -> bool:
        """Replaces the block. False if `ready` is out of date: a phase was claimed, or another turn owns the slot."""
        with self._lock:
            if owner is not self._owner or (ready is not None and any(run.consumed for run in ready.runs)):
                return False
            self._ready = None if owner in self._holds else ready
            return True

    def take(self, owner: object) -> ReadyBlock | None:
        """The block, for the first caller: its phases are consumed before it is returned."""
        with self._lock:
            if owner is not self._owner or self._ready is None:
                return None
            for run in self._ready.runs:
                run.prefetch.shown |= frozenset(self._ready.block.refs)
                run.consumed = True
            ready, self._ready = self._ready, None
            return ready

    def has_block(self, owner: object) -> bool:
        with self._lock:
            return self._owner is owner and (self._ready is not None or self._standing is not None)

    def has_standing(self, scope: ConversationScope) -> bool:
        """Whether a standing block waits that was made for this scope."""
        with self._lock:
            return self._standing is not None and self._standing_scope == scope

    def put_standing(self, standing: StandingRow | None, scope: ConversationScope | None) -> None:
        """Replaces the standing block that the next hand-over with this scope brings."""
        with self._lock:
            self._standing, self._standing_scope = standing, scope

    def take_standing(self, owner: object, scope: ConversationScope) -> StandingRow | None:
        """For the first caller with the scope that it was made for; not while a compaction is examined."""
        with self._lock:
            if owner is not self._owner or owner in self._holds or scope != self._standing_scope:
                return None
            standing, self._standing = self._standing, None
            return standing

    def claim(self, run: PhaseRun) -> bool:
        """False if the host has taken it already. A block that contains it is withdrawn until a new one is put."""
        with self._lock:
            if run.consumed:
                return False
            run.consumed = True
            if self._ready is not None and run in self._ready.runs:
                self._ready = None
            return True


def insert_block(
    dialect: Dialect, messages: MutableSequence[M], text: str, placement: Placement, *, at: int | None = None
) -> tuple[int, M]:
    """Adds a block after the element at index `at`, or at the end, and returns its index and element.

    Appended as a new element, or merged into a copy of that element. The host's own elements are never edited.
    """
    behind = len(messages) - 1 if at is None else at
    if (placement is Placement.MERGE or dialect.alternates) and behind >= 0:
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


class VisibleBlocks:
    """The blocks that were injected, by hash; those that the model no longer sees by hash alone. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[str, BlockRow] = {}
        self._unstored: dict[str, BlockRow] = {}

    @property
    def blocks(self) -> Mapping[str, BlockRow]:
        """For lookups of single hashes. It changes while it is used: iterate over `copy()`."""
        return self._blocks

    def copy(self) -> dict[str, BlockRow]:
        with self._lock:
            return dict(self._blocks)

    @property
    def unstored(self) -> frozenset[str]:
        """The hashes of blocks that were delivered and are not in the store yet."""
        with self._lock:
            return frozenset(self._unstored)

    def add(self, rows: Iterable[BlockRow]) -> None:
        with self._lock:
            self._blocks.update({row.hash: row for row in rows})

    def add_unknown(self, rows: Iterable[BlockRow]) -> None:
        """Like `add`, but does not replace known blocks."""
        with self._lock:
            self._blocks = {**{row.hash: row for row in rows}, **self._blocks}

    def hand_over(self, rows: Sequence[BlockRow]) -> None:
        """These are being added to the host's messages."""
        with self._lock:
            delivered = {row.hash: row for row in rows}
            self._unstored.update(delivered)
            self._blocks.update(delivered)

    def mark_stored(self, row: BlockRow) -> None:
        """The same bytes may have been delivered again since: then the later delivery is still to be stored."""
        with self._lock:
            if self._unstored.get(row.hash) is row:
                del self._unstored[row.hash]

    def clear(self, *, still: Collection[str] = ()) -> list[BlockRow]:
        """The model no longer sees any block except those with the hashes `still`; returns the rows of these."""
        with self._lock:
            self._unstored = {hash: row for hash, row in self._unstored.items() if hash in still}
            for row in list(self._blocks.values()):
                if row.hash not in still:
                    self._blocks[row.hash] = replace(row, in_sight=False, text="", refs=())
            return [row for row in self._blocks.values() if row.hash in still]

    def correct(self, stored: Iterable[BlockRow]) -> None:
        """Something was forgotten somewhere: a block keeps the text that the store has now, and none otherwise."""
        texts = {row.hash: row.text for row in stored}
        with self._lock:
            self._blocks = {row.hash: replace(row, text=texts.get(row.hash, "")) for row in self._blocks.values()}

    def prompt_texts(self, turn: str) -> dict[str, str]:
        """By hash, the texts that a turn has given to a host that writes its prompt itself, in their order in it."""
        rows = [
            row for row in self.copy().values() if row.turn == turn and row.point == HandoverPoint.PROMPT and row.text
        ]
        ordered = sorted(rows, key=lambda row: (row.injected_at, f"<{STANDING_TAG}>" not in row.text, bool(row.refs)))
        return {row.hash: row.text for row in ordered}

    def find_lost(
        self, turn: SharedTurn, dialect: Dialect, messages: Sequence[object], *, is_compacting: bool = False
    ) -> bool:
        """Whether blocks are gone together with the messages around them. Each loss is found once. That of a standing
        block counts only while a compaction is being examined, which may have read a list that still had it.

        Notes where the others are, and which ones a host dropped while it rebuilt its list: `restore` puts these back.
        Runs on the host's thread right before the model is called: for a list that only grew it costs one look at each
        block.
        """
        with turn.lock:
            if turn.is_intact(messages):
                return False
            known = self.copy()
            hashes = dict.fromkeys([*turn.positions, *(row.hash for row in turn.dropped)])
            expected = visible_in_order(known[hash] for hash in hashes if hash in known and hash not in turn.reported)
            found = scan_blocks(dialect, messages, known)
            dropped, lost = find_missing(found, expected, known)
            if is_compacting and found.is_complete:
                lost = [row for row in expected if row.hash not in found.blocks and row not in dropped]
            if not lost:
                # Otherwise that waits until the lost ones are examined: an anchor may look like one of theirs.
                self.add(found.anchored(known).values())
            turn.positions, turn.dropped = positions_of(found.blocks, messages), tuple(dropped)
            turn.reported.update(row.hash for row in lost)
            return bool(lost)

    def restore(self, turn: SharedTurn, dialect: Dialect, messages: MutableSequence[M]) -> list[M]:
        """Puts blocks back that a host dropped while it rebuilt its list. Returns their elements."""
        with turn.lock:
            if not turn.dropped:
                return []
            known = self.copy()
            found = scan_blocks(dialect, messages, known)
            dropped, _ = find_missing(found, visible_in_order(turn.dropped), known)
            elements, added = list[M](), 0
            for index, rows in _by_anchor(found, dropped):
                length, text = len(messages), BETWEEN.join(row.text for row in rows)
                elements.append(insert_block(dialect, messages, text, turn.scope.placement, at=index + added)[1])
                added += len(messages) - length
            turn.positions = positions_of(scan_blocks(dialect, messages, known).blocks, messages)
            turn.dropped = ()
            return elements


def positions_of(indexes: Mapping[str, int], messages: Sequence[object]) -> dict[str, BlockPosition]:
    return {hash: BlockPosition(index, messages[index]) for hash, index in indexes.items()}


def _by_anchor(found: BlockScan, dropped: Sequence[BlockRow]) -> Iterator[tuple[int, list[BlockRow]]]:
    """Which blocks go after which elements, in order. Blocks that were one element are put back as one."""
    placed = [(index, row) for row in dropped if (index := found.find_place(row)) is not None]
    placed.sort(key=lambda one: (one[0], one[1].injected_at))
    for (index, _), together in groupby(placed, key=lambda one: (one[0], one[1].injected_at)):
        yield index, [row for _, row in together]
