"""What of ours the model can see in a conversation, as far as we were shown and told (H6). From any thread."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, MutableSequence, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from afterturn.base.turns import BlockRow
from afterturn.dialects.dialect import Dialect
from afterturn.turn.handover import BETWEEN, put_in
from afterturn.turn.preparing import in_place
from afterturn.turn.rebuilding import Spot, Survey, missing_from, survey
from afterturn.turn.state import TurnState

M = TypeVar("M")


class Sight:
    """The blocks that were injected, by hash. Single reads and writes of a dictionary need no lock."""

    def __init__(self) -> None:
        self._blocks: dict[str, BlockRow] = {}

    @property
    def blocks(self) -> Mapping[str, BlockRow]:
        return self._blocks

    def learn(self, rows: Iterable[BlockRow]) -> None:
        self._blocks.update({row.hash: row for row in rows})

    def clear(self, *, still: Collection[str] = ()) -> list[BlockRow]:
        """Nothing is in sight any more, but the blocks that `still` names; those of them that are known."""
        rows = list(self._blocks.values())
        self.learn(replace(row, in_sight=False) for row in rows if row.hash not in still)
        return [row for row in rows if row.hash in still]

    def drop_texts(self) -> None:
        """Something was forgotten that one of them may hold; its hash alone must stay known (C5)."""
        self.learn(replace(row, text="") for row in list(self._blocks.values()))

    def mend(self, state: TurnState, dialect: Dialect, messages: MutableSequence[M]) -> tuple[list[M], bool]:
        """Puts blocks back that a host dropped while it rebuilt its list: these, and whether others went for good.

        On the host's path: a list that only grew costs a glance at each block.
        """
        if is_whole(state, messages):
            return [], False
        expected = in_place(row for row in self._rows(state) if row.hash not in state.reported)
        found = survey(dialect, messages, self._blocks)
        dropped, lost = missing_from(found, expected)
        # From the end, so that what goes in moves nothing that is still to be found.
        put_back = [
            put_in(dialect, messages, text, state.place.placement, at=index)[1]
            for index, text in _parcels(found, dropped)
        ]
        state.dropped = ()
        # Whatever is gone is looked into once; until that is done, nothing of it can stand.
        state.reported.update(row.hash for row in lost)
        state.spots = self._stand(survey(dialect, messages, self._blocks).blocks, messages)
        unsure, state.unsure = state.unsure, False
        return put_back, bool(lost) or unsure

    def _rows(self, state: TurnState) -> list[BlockRow]:
        hashes = [*state.spots, *(row.hash for row in state.dropped)]
        return [row for name in hashes if (row := self._blocks.get(name)) is not None]

    @staticmethod
    def _stand(found: Mapping[str, int], messages: Sequence[object]) -> dict[str, Spot]:
        return {name: Spot(index, messages[index]) for name, index in found.items()}

    def stand(self, state: TurnState, dialect: Dialect, messages: Sequence[object]) -> None:
        """Notes where our blocks stand in a list as it was read."""
        state.spots = self._stand(survey(dialect, messages, self._blocks).blocks, messages)


def is_whole(state: TurnState, messages: Sequence[object]) -> bool:
    """Whether a glance at the host's list finds all of our blocks where they stood."""
    if state.place.is_hidden:
        return True
    return not state.dropped and not state.unsure and all(spot.holds(messages) for spot in state.spots.values())


def _parcels(found: Survey, dropped: Sequence[BlockRow]) -> list[tuple[int, str]]:
    """After which elements which texts go, the last first. Blocks that came as one element go back as one."""
    places = sorted(dropped, key=lambda row: (found.anchors[row.anchor], row.injected_at))
    grouped = groupby(places, key=lambda row: (found.anchors[row.anchor], row.injected_at))
    return [(index, BETWEEN.join(row.text for row in rows)) for (index, _), rows in grouped][::-1]
