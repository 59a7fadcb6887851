"""What of ours the model can see in a conversation, as far as we were shown and told (H6). From any thread."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Generic, TypeVar

from afterturn.conversation.delivery import BETWEEN, put_in
from afterturn.conversation.ledger import BlockPosition, BlockScan, missing_from, survey
from afterturn.conversation.read_turn import TurnReading, in_place
from afterturn.conversation.scope import Placement
from afterturn.conversation.turn_state import TurnState
from afterturn.dialects.dialect import Dialect
from afterturn.types import BlockRow, HandoverPoint

M = TypeVar("M")


class VisibleBlocks:
    """The blocks that were injected, by hash; those out of sight by hash alone.

    Single reads and writes of a dictionary need no lock; where a turn's blocks stand is settled under one.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, BlockRow] = {}
        self._unstored: set[str] = set()
        self._lock = threading.Lock()

    @property
    def blocks(self) -> Mapping[str, BlockRow]:
        return self._blocks

    def learn(self, rows: Iterable[BlockRow]) -> None:
        self._blocks.update({row.hash: row for row in rows})

    @property
    def unstored(self) -> frozenset[str]:
        """Handed over, and not in the store yet: of these we know more than it does."""
        return frozenset(self._unstored)

    def hand_over(self, rows: Iterable[BlockRow]) -> None:
        """These go into the host's messages now."""
        added = list(rows)
        self._unstored.update(row.hash for row in added)
        self.learn(added)

    def stored(self, name: str) -> None:
        self._unstored.discard(name)

    def clear(self, *, still: Collection[str] = ()) -> list[BlockRow]:
        """Nothing is in sight any more, but the blocks that `still` names; those of them that are known."""
        rows = list(self._blocks.values())
        self._unstored.intersection_update(still)
        self.learn(replace(row, in_sight=False, text="", refs=()) for row in rows if row.hash not in still)
        return [row for row in rows if row.hash in still]

    def drop_texts(self) -> None:
        """Something was forgotten that one of them may hold; its hash alone must stay known (C5)."""
        self.learn(replace(row, text="") for row in list(self._blocks.values()))

    def correct(self, stored: Iterable[BlockRow]) -> None:
        """Something was forgotten somewhere: texts are what the store has of them now, and none where it has none."""
        texts = {row.hash: row.text for row in stored}
        self.learn(replace(row, text=texts.get(row.hash, "")) for row in list(self._blocks.values()))

    def written_in(self, turn: str) -> list[str]:
        """What a turn has given to a host that writes its prompt itself (H8), in order: context files come first."""
        rows = [
            row
            for row in list(self._blocks.values())
            if row.turn == turn and row.point == HandoverPoint.PROMPT and row.text
        ]
        return [row.text for row in sorted(rows, key=lambda row: (row.injected_at, bool(row.refs)))]

    def read(self, state: TurnState, messages: Sequence[object], reading: TurnReading) -> None:
        """Notes where our blocks stood in a list when it was read, and which are to go back into it.

        None of an earlier turn's once the model has been called: its prompt would change behind its back (H3).
        """
        with self._lock:
            state.spots = {**_spots(reading.places, messages), **state.spots}
            state.dropped = () if state.began else reading.dropped
            state.trail = reading.trail

    def mend(self, state: TurnState, dialect: Dialect, messages: MutableSequence[M]) -> tuple[list[M], bool]:
        """Puts blocks back that a host dropped while it rebuilt its list: these, and whether others went for good.

        On the host's path, right before the model is called: a list that only grew costs a glance at each block.
        """
        with self._lock:
            if is_whole(state, messages):
                return [], False
            expected = in_place(row for row in self._rows(state) if row.hash not in state.reported)
            found = survey(dialect, messages, self._blocks)
            dropped, lost = missing_from(found, expected, self._blocks)
            back = _put_back(dialect, messages, _parcels(found, dropped), state.place.placement)
            state.spots = _spots({**_moved(found.blocks, back.inserted), **back.places}, messages)
            state.dropped = ()
            # Whatever is gone is looked into once; until that is done, nothing of it can stand.
            state.reported.update(row.hash for row in lost)
            unsure, state.unsure = state.unsure, False
            return back.elements, bool(lost) or unsure

    def _rows(self, state: TurnState) -> list[BlockRow]:
        hashes = [*state.spots, *(row.hash for row in state.dropped)]
        return [row for name in hashes if (row := self._blocks.get(name)) is not None]


def is_whole(state: TurnState, messages: Sequence[object]) -> bool:
    """Whether a glance at the host's list finds all of our blocks where they stood."""
    if state.place.is_hidden:
        return True
    return not state.dropped and not state.unsure and all(spot.holds(messages) for spot in state.spots.values())


def _spots(places: Mapping[str, int], messages: Sequence[object]) -> dict[str, BlockPosition]:
    return {name: BlockPosition(index, messages[index]) for name, index in places.items()}


def _parcels(found: BlockScan, dropped: Sequence[BlockRow]) -> Iterator[tuple[int, list[BlockRow]]]:
    """Which blocks go after which elements, in order. Those that came as one element go back as one."""
    places = sorted(dropped, key=lambda row: (found.anchors[row.anchor], row.injected_at))
    for (index, _), rows in groupby(places, key=lambda row: (found.anchors[row.anchor], row.injected_at)):
        yield index, list(rows)


@dataclass(slots=True)
class _Back(Generic[M]):
    """What went back: where each block stands now, by hash; the elements that carry them; which of those are new."""

    places: dict[str, int] = field(default_factory=dict)
    elements: list[M] = field(default_factory=list)
    inserted: list[int] = field(default_factory=list)


def _put_back(
    dialect: Dialect,
    messages: MutableSequence[M],
    parcels: Iterable[tuple[int, list[BlockRow]]],
    placement: Placement,
) -> _Back[M]:
    back: _Back[M] = _Back()
    for index, rows in parcels:
        length = len(messages)
        text = BETWEEN.join(row.text for row in rows)
        at, element = put_in(dialect, messages, text, placement, at=index + len(back.inserted))
        if len(messages) > length:
            back.inserted.append(at)
        back.places.update((row.hash, at) for row in rows)
        back.elements.append(element)
    return back


def _moved(found: Mapping[str, int], inserted: Sequence[int]) -> dict[str, int]:
    """Where what was found stands, once new elements are at the places `inserted`, in their order."""
    moved = {}
    for name, index in found.items():
        for at in inserted:
            index += at <= index
        moved[name] = index
    return moved
