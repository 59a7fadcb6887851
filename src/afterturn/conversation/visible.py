"""Our blocks that the model can see in one conversation, as far as we know from the host."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from afterturn.conversation.delivery import BETWEEN, insert_block
from afterturn.conversation.ledger import BlockPosition, BlockScan, find_missing, scan_blocks
from afterturn.conversation.read_turn import visible_in_order
from afterturn.conversation.turn_state import SharedTurn
from afterturn.dialects.dialect import Dialect
from afterturn.guard.output_filter import STANDING_TAG
from afterturn.types import BlockRow, HandoverPoint

M = TypeVar("M")


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
