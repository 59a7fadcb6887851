"""A recall on its way to the host, and the state of the turn that it is for.

`Prefetch` is the recall of one epoch, with its phases; the host takes its block from the `DeliverySlot`.
`VisibleBlocks` has the blocks that were delivered, as far as we know from the host. A turn is split by the thread that
may write it: `HostTurn`, `LoopTurn`, and `SharedTurn` for both. A host's thread reads `LoopTurn` and memory's loop
reads `HostTurn` only where a field says so; everything that both sides change is in `SharedTurn`, behind its lock.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import Any, NamedTuple, TypeVar, assert_never, cast

from afterturn.conversation.read_turn import (
    BlockScan,
    Ledger,
    MessageChain,
    find_missing,
    scan_blocks,
    visible_in_order,
)
from afterturn.conversation.scope import ConversationScope, Placement
from afterturn.dialects.dialect import Dialect
from afterturn.dialects.history import new_element
from afterturn.guard.output_filter import STANDING_TAG
from afterturn.recall.answer import RecallAnswer
from afterturn.recall.block import Block, block_hash
from afterturn.recall.features import shows_report
from afterturn.recall.query import RecallRequest
from afterturn.runtime.once_future import OnceFuture
from afterturn.tool_rules.advice import GivenRules
from afterturn.types import BlockRow, HandoverPoint, Hit, Outcome, Phase, RecallCause, StandingRow, Taint

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
            return sum(prefetch.cause is not RecallCause.COMPACTION for prefetch in self._prefetches)

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
            if self.dropped or self.unsure:
                return False
            length = len(messages)
            # One look at an index each: hosts call this at every step.
            for position in self.positions.values():
                if position.index >= length or messages[position.index] is not position.element:
                    return False
            return True

    # Blocks as text, for hosts that write their prompt themselves.

    @property
    def prompt_texts(self) -> list[str]:
        with self.lock:
            return list(self._prompt_texts.values())

    def add_prompt_text(self, hash: str, text: str) -> None:
        with self.lock:
            self._prompt_texts[hash] = text

    def keep_prompt_texts(self, texts: Mapping[str, str]) -> None:
        """Of those that it has, the ones in `texts`, as they are there."""
        with self.lock:
            self._prompt_texts = {hash: texts[hash] for hash in self._prompt_texts if hash in texts}

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
