"""What the model can see in its context now: read from the messages, or from what was handed over (H5, H6). Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from afterturn.dialects.dialect import Dialect, Element
from afterturn.guard.secrets import RedactedHashes, hashes
from afterturn.recall.block import find_blocks, strip_blocks
from afterturn.text import content_hash
from afterturn.types import BlockRow, HandoverPoint, Message

_STORED = hashes(scanning=True)


@dataclass(frozen=True, slots=True)
class Ledger:
    """`refs` are shown by blocks, `message_hashes` by what was said; `size_bytes` counts every copy of a block.

    `seen_since`: records of this conversation that are newer are in sight too, though nobody shows them to us. `kept`
    are the references among `refs` that this very turn has shown: they are never offered again in it.
    """

    refs: frozenset[str] = frozenset()
    message_hashes: frozenset[str] = frozenset()
    size_bytes: int = 0
    seen_since: float | None = None
    kept: frozenset[str] = frozenset()

    def with_blocks(self, blocks: Iterable[BlockRow]) -> Ledger:
        """As it is once these stand in the messages too."""
        added = list(blocks)
        return replace(
            self,
            refs=self.refs.union(ref for block in added for ref in block.refs),
            size_bytes=self.size_bytes + sum(block.size_bytes for block in added),
        )


def read_ledger(messages: Iterable[Message], blocks: Iterable[BlockRow], stored: RedactedHashes = _STORED) -> Ledger:
    """A block counts only if its bytes are those of one of `blocks`; a forged tag is ordinary text.

    What was said is known by the hash that its record has: that of its text without secrets.
    """
    known = {block.hash: block for block in blocks}
    visible: list[BlockRow] = []
    said_hashes: set[str] = set()
    for message in messages:
        ours = [known[found.hash] for found in find_blocks(message.text) if found.hash in known]
        visible.extend(ours)
        said = strip_blocks(message.text, known) if ours else message.text
        if said.strip():
            said_hashes.add(stored.of(said, content_hash(said) if ours else message.hash))
    return Ledger(message_hashes=frozenset(said_hashes)).with_blocks(visible)


def hidden_ledger(
    messages: Iterable[Message],
    blocks: Iterable[BlockRow],
    *,
    compacted_at: float | None,
    stored: RedactedHashes = _STORED,
) -> Ledger:
    """Of a host that hides its history: what was handed over since the last compaction, and what was said since."""
    in_sight = [block for block in blocks if block.in_sight and block.point != HandoverPoint.PROMPT]
    spoken = read_ledger(messages, blocks, stored)
    return replace(spoken, refs=frozenset(), size_bytes=0, seen_since=compacted_at or 0.0).with_blocks(in_sight)


# Hosts that rebuild their prompt drop our blocks: finds where they stood, and puts the same bytes back there (H6).
#
# Imports neither asyncio nor numpy.

# So many messages before a block name its place: "go on" alone is said more than once.
_CHAIN = 3
# How far back blocks are looked for: this runs on the host's path.
_LOOKED_AT = 2_000
_SPOKEN = frozenset(["user", "assistant", "tool"])


@dataclass(frozen=True, slots=True)
class BlockScan:
    """Where things stand in a host's list: our blocks by hash, and the places that anchors name.

    `trail` leads to its end; `is_whole`: all of it was looked at.
    """

    blocks: Mapping[str, int]
    anchors: Mapping[str, int]
    trail: MessageChain
    is_whole: bool = True


def survey(dialect: Dialect, messages: Sequence[object], known: Collection[str]) -> BlockScan:
    """`known` are the hashes of our blocks. Of an endless list the end is looked at."""
    first = max(0, len(messages) - _LOOKED_AT)
    blocks: dict[str, int] = {}
    anchors: dict[str, int] = {}
    trail = MessageChain(first)
    for at in range(first, len(messages)):
        element = dialect.read(messages[at])
        trail.step(messages[at], element, known)
        if element is not None:
            blocks.update((found, at) for found in _ours(element, known))
        if trail.anchor:
            # A block of ours belongs to its anchor: what is put back goes behind those that are there.
            anchors[trail.anchor] = at
    return BlockScan(blocks, anchors, trail, is_whole=first == 0)


def anchor_at(
    dialect: Dialect, messages: Sequence[object], known: Collection[str], earlier: MessageChain | None
) -> str:
    """Names the end of the list, as a place that can be found again; blank when nothing was said in it.

    `earlier` was followed through its beginning already.
    """
    trail = MessageChain(max(0, len(messages) - _LOOKED_AT))
    if earlier is not None and earlier.leads_into(messages):
        trail = earlier.copy()
    for at in range(trail.length, len(messages)):
        trail.step(messages[at], dialect.read(messages[at]), known)
    return trail.anchor


class MessageChain:
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

    def copy(self) -> MessageChain:
        other = MessageChain(self.length)
        other.anchor, other._last, other._chain = self.anchor, self._last, self._chain
        other._times = self._times.copy()
        return other


def missing_from(
    found: BlockScan, rows: Sequence[BlockRow], known: Mapping[str, BlockRow]
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


def _has_place(row: BlockRow, found: BlockScan, standing: Sequence[tuple[int, BlockRow]]) -> bool:
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
class BlockPosition:
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
