"""Hosts that rebuild their prompt drop our blocks: finds where they stood, and puts the same bytes back there (H6).

Imports neither asyncio nor numpy.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from afterturn.base.turns import BlockRow
from afterturn.context.block import find_blocks, strip_blocks
from afterturn.dialects.dialect import Dialect, Element

# So many messages before a block name its place: "go on" alone is said more than once.
_CHAIN = 3
# How far back blocks are looked for: this runs on the host's path.
_LOOKED_AT = 2_000
_SPOKEN = frozenset(["user", "assistant", "tool"])


@dataclass(frozen=True, slots=True)
class Survey:
    """Where things stand in a host's list: our blocks by hash, and the places that anchors name.

    `trail` leads to its end; `is_whole`: all of it was looked at.
    """

    blocks: Mapping[str, int]
    anchors: Mapping[str, int]
    trail: Trail
    is_whole: bool = True


def survey(dialect: Dialect, messages: Sequence[object], known: Collection[str]) -> Survey:
    """`known` are the hashes of our blocks. Of an endless list the end is looked at."""
    first = max(0, len(messages) - _LOOKED_AT)
    blocks: dict[str, int] = {}
    anchors: dict[str, int] = {}
    trail = Trail(first)
    for at in range(first, len(messages)):
        element = dialect.read(messages[at])
        trail.step(messages[at], element, known)
        if element is not None:
            blocks.update((found, at) for found in _ours(element, known))
        if trail.anchor:
            # A block of ours belongs to its anchor: what is put back goes behind those that are there.
            anchors[trail.anchor] = at
    return Survey(blocks, anchors, trail, is_whole=first == 0)


def anchor_at(dialect: Dialect, messages: Sequence[object], known: Collection[str], earlier: Trail | None) -> str:
    """Names the end of the list, as a place that can be found again; blank when nothing was said in it.

    `earlier` was followed through its beginning already.
    """
    trail = Trail(max(0, len(messages) - _LOOKED_AT))
    if earlier is not None and earlier.leads_into(messages):
        trail = earlier.copy()
    for at in range(trail.length, len(messages)):
        trail.step(messages[at], dialect.read(messages[at]), known)
    return trail.anchor


class Trail:
    """Names the place after each message by the last few, and by how often these were said one after the other."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.anchor = ""
        self._last: object = None
        self._chain: tuple[str, ...] = ()
        self._times: Counter[str] = Counter()

    def step(self, message: object, element: Element | None, known: Collection[str]) -> None:
        self.length += 1
        self._last = message
        name = _name(element, known) if element is not None else ""
        if not name:
            return
        self._chain = (*self._chain, name)[-_CHAIN:]
        said = _digest("\n".join(self._chain))
        times = self._times[said]
        self._times[said] += 1
        self.anchor = f"{said}#{times}" if times else said

    def leads_into(self, messages: Sequence[object]) -> bool:
        """Whether the list, as a glance tells, has only grown since."""
        return 0 < self.length <= len(messages) and messages[self.length - 1] is self._last

    def copy(self) -> Trail:
        other = Trail(self.length)
        other.anchor, other._last, other._chain = self.anchor, self._last, self._chain
        other._times = self._times.copy()
        return other


def missing_from(
    found: Survey, rows: Sequence[BlockRow], known: Mapping[str, BlockRow]
) -> tuple[list[BlockRow], list[BlockRow]]:
    """Of blocks that should be in sight: those whose place is still there, and those that went with their place.

    In a list that was not looked at whole, what is not found may stand further back, and is neither.
    """
    gone = [row for row in rows if row.hash not in found.blocks]
    standing = [(at, known[name]) for name, at in found.blocks.items()]
    dropped = [row for row in gone if row.text and _has_place(row, found, standing)]
    if not found.is_whole:
        return dropped, []
    named = {row.hash for row in dropped}
    return dropped, [row for row in gone if row.hash not in named]


def _has_place(row: BlockRow, found: Survey, standing: Sequence[tuple[int, BlockRow]]) -> bool:
    """Whether a block would stand where it did: the same words can be there from a later time.

    Blocks stand in the order they came in. Where a younger one of another place comes first, it was not here.
    """
    place = found.anchors.get(row.anchor)
    if place is None:
        return False
    return not any(
        at <= place and other.injected_at > row.injected_at and other.anchor != row.anchor for at, other in standing
    )


@dataclass(frozen=True, slots=True)
class Spot:
    """Where something stands in the host's list, so that a glance tells whether it still does."""

    index: int
    element: object

    def holds(self, messages: Sequence[object]) -> bool:
        return 0 <= self.index < len(messages) and messages[self.index] is self.element


def _ours(element: Element, known: Collection[str]) -> list[str]:
    return [block.hash for one in element.said for block in find_blocks(one.text) if block.hash in known]


def _name(element: Element, known: Collection[str]) -> str:
    """What was said in an element, our own blocks apart; blank for those, and for a system's instructions."""
    names = [*element.calls, *element.answers]
    for one in element.said:
        said = strip_blocks(one.text, known)
        if one.role in _SPOKEN and said.strip():
            names.append(f"{one.role}:{_digest(said.strip())}")
    return "|".join(names)


def _digest(text: str) -> str:
    # Not `content_hash`: a host that rebuilds its prompt gives the same bytes, and folding a long text takes a while.
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
