"""In which order hits ask for room in a block: what is worth its length, and conversations not heard of yet. Pure."""

from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heapreplace

from afterturn.base.types import Hit

# What a memory that takes all of its share loses of its score, and what it loses more beside one of its conversation.
_LENGTH_COST = 0.02
_REPEAT_COST = 0.1


def varied(hits: Sequence[Hit], entry_bytes_max: int) -> list[Hit]:
    """All of `hits` (best first), so that a block which has not room for all holds more that differs.

    Softly: a much better one comes first, however long it is and however much its conversation has said.
    """
    ranks = [_Rank(hit, place, entry_bytes_max) for place, hit in enumerate(hits)]
    heapify(ranks)
    heard: set[Hashable] = set()
    ordered: list[Hit] = []
    while ranks:
        first = ranks[0]
        # Ranks only ever fall, so that whatever still stands first after its own fall is first of all.
        if not first.is_repeat and first.conversation in heard:
            first.fall()
            heapreplace(ranks, first)
            continue
        heappop(ranks)
        ordered.append(first.hit)
        if first.conversation is not None:
            heard.add(first.conversation)
    return ordered


class _Rank:
    """A hit's place in the order, by what it is worth at the moment."""

    def __init__(self, hit: Hit, place: int, entry_bytes_max: int) -> None:
        entry = hit.entry
        self.hit = hit
        self.conversation = None if entry.conversation is None else (entry.owner or entry.space, entry.conversation)
        self.is_repeat = False
        self._place = place
        # Characters will do: counting the bytes of a megabyte takes as long as all the rest.
        self._length = min(1.0, len(entry.text) / entry_bytes_max)
        self._worth = hit.score * (1 - _LENGTH_COST * self._length)

    def fall(self) -> None:
        self.is_repeat = True
        self._worth = self.hit.score * (1 - (_LENGTH_COST + _REPEAT_COST) * self._length)

    def __lt__(self, other: "_Rank") -> bool:
        return (-self._worth, self._place) < (-other._worth, other._place)
