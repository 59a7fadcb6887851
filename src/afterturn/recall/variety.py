"""In which order hits ask for room in a block: what is worth its length, and conversations not heard of yet. Pure."""

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

from afterturn.base.types import Entry, Hit

# What a memory that takes all of its share loses of its score, and what it loses more beside one of its conversation.
_LENGTH_COST = 0.02
_REPEAT_COST = 0.1


def varied(hits: Sequence[Hit], entry_bytes_max: int) -> list[Hit]:
    """All of `hits` (best first), so that a block which has not room for all holds more that differs.

    Softly: a much better one comes first, however long it is and however much its conversation has said.
    """
    # Characters will do: counting the bytes of a megabyte takes as long as all the rest.
    room = [min(1.0, len(hit.entry.text) / entry_bytes_max) for hit in hits]
    ranks = [(hit.score * (_LENGTH_COST * room[place] - 1), place, False) for place, hit in enumerate(hits)]
    heapify(ranks)
    heard: set[tuple[str, str]] = set()
    ordered: list[Hit] = []
    while ranks:
        _, place, is_repeat = ranks[0]
        hit = hits[place]
        conversation = _conversation(hit.entry)
        # Ranks only ever fall, so that whatever still stands first after its own fall is first of all.
        if not is_repeat and conversation in heard:
            heapreplace(ranks, (hit.score * ((_LENGTH_COST + _REPEAT_COST) * room[place] - 1), place, True))
            continue
        heappop(ranks)
        ordered.append(hit)
        if conversation is not None:
            heard.add(conversation)
    return ordered


def _conversation(entry: Entry) -> tuple[str, str] | None:
    """Conversations of two spaces may have one name."""
    return None if entry.conversation is None else (entry.owner or entry.space, entry.conversation)
