"""The ledger: which memories and messages the model sees now, from the host's messages or from what was delivered.

Also finds our blocks in a host's list, and the places of blocks that a host dropped while it rebuilt its list. Pure.
Imports neither asyncio nor numpy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from afterturn.guard.scanning import hashes
from afterturn.recall.block import find_blocks, strip_blocks
from afterturn.scanners.secrets import RedactedHashes
from afterturn.text import content_hash
from afterturn.types import HandoverPoint

if TYPE_CHECKING:
    from afterturn.dialects.dialect import Dialect, Element
    from afterturn.types import BlockRow, Entry, Message, StandingRow

_STORED = hashes(scanning=True)
# An anchor identifies a place by this many messages before it, because one alone ("go on") may occur twice.
_CHAIN_LENGTH = 3
# How many messages from the end are searched for blocks: this runs on the host's thread.
_SEARCHED_MAX = 2_000
# The beginning of the part of an anchor that hashes what the user has said; the other part is hexadecimal.
_SAID = "user:"


class Ledger(NamedTuple):
    """The memories and messages that the model sees.

    `refs` are shown by our blocks, `message_hashes` are those of the messages, and `size_bytes` counts every copy of a
    block. Records of this conversation that are newer than `seen_since` are visible too, though the host does not show
    them to us. `shown_this_turn` are the references among `refs` that this turn has shown: they are never repeated in
    it. `standing` is the standing block that the model sees, or will see with the next block.
    """

    refs: frozenset[str] = frozenset()
    message_hashes: frozenset[str] = frozenset()
    size_bytes: int = 0
    seen_since: float | None = None
    shown_this_turn: frozenset[str] = frozenset()
    standing: StandingRow | None = None

    def sees(self, message: Entry, conversation: str) -> bool:
        """Whether the model reads this record in the host's messages."""
        is_hidden = self.seen_since is not None and message.conversation == conversation
        return message.content_hash in self.message_hashes or (
            is_hidden and message.recorded_at > (self.seen_since or 0)
        )

    def with_blocks(self, blocks: Iterable[BlockRow]) -> Ledger:
        """The ledger after these blocks were added to the messages."""
        added = list(blocks)
        return self._replace(
            # What stands is left out after the recall: a message may say more than the sentence that stands.
            refs=self.refs.union(ref for block in added if block.point != HandoverPoint.STANDING for ref in block.refs),
            size_bytes=self.size_bytes + sum(block.size_bytes for block in added),
        )


def read_ledger(messages: Iterable[Message], blocks: Iterable[BlockRow], stored: RedactedHashes = _STORED) -> Ledger:
    """A block counts only if its bytes are those of one of `blocks`; a forged tag is ordinary text.

    Messages are identified by the hash that their records have: that of the text without secrets.
    """
    known = {block.hash: block for block in blocks}
    visible: list[BlockRow] = []
    message_hashes: set[str] = set()
    for message in messages:
        ours = [known[found.hash] for found in find_blocks(message.text) if found.hash in known]
        visible.extend(ours)
        text = strip_blocks(message.text, known) if ours else message.text
        if text.strip():
            message_hashes.add(stored.of(text, content_hash(text) if ours else message.hash))
    return Ledger(message_hashes=frozenset(message_hashes)).with_blocks(visible)


def hidden_ledger(
    messages: Iterable[Message],
    blocks: Iterable[BlockRow],
    *,
    compacted_at: float | None,
    stored: RedactedHashes = _STORED,
) -> Ledger:
    """For a host that hides its history: what was delivered and said since the last compaction."""
    visible = [block for block in blocks if block.in_sight and block.point != HandoverPoint.PROMPT]
    spoken = read_ledger(messages, blocks, stored)
    return spoken._replace(refs=frozenset(), size_bytes=0, seen_since=compacted_at or 0.0).with_blocks(visible)


class BlockScan(NamedTuple):
    """The indexes of our blocks in a host's list, by hash, and of places, by each part of their anchors.

    `places` are the anchors of the blocks that were found, `chain` is the state at the list's end. `is_complete`: all
    that the model sees was searched. `start` is the index from which on it sees the list, 0 unless the provider has
    compacted what is before.
    """

    blocks: Mapping[str, int]
    places: Mapping[str, str]
    anchors: Mapping[str, int]
    chain: MessageChain
    is_complete: bool = True
    start: int = 0

    def find_place(self, row: BlockRow) -> int | None:
        """The index of the element after which the block belongs."""
        return next((self.anchors[one] for one in row.anchor.split() if one in self.anchors), None)

    def anchored(self, rows: Mapping[str, BlockRow]) -> dict[str, BlockRow]:
        """Of these rows, those whose blocks are at another anchor now: a compaction removed messages before them."""
        found = {hash: rows[hash] for hash in self.places if hash in rows}
        moved = {hash: row for hash, row in found.items() if row.anchor and row.anchor != self.places[hash]}
        return {hash: replace(row, anchor=self.places[hash]) for hash, row in moved.items()}


def scan_blocks(dialect: Dialect, messages: Sequence[object], known: Collection[str]) -> BlockScan:
    """`known` are the hashes of our blocks. Of a very long list only the end is searched."""
    first = max(0, len(messages) - _SEARCHED_MAX)
    blocks: dict[str, int] = {}
    places: dict[str, str] = {}
    anchors: dict[str, int] = {}
    chain, start, cleared = MessageChain(first), 0, 0
    for at in range(first, len(messages)):
        element = dialect.read(messages[at])
        chain.step(messages[at], element, known)
        if element is not None and element.is_compacted_since(cleared):
            # What is before it may still be in the host's list, and the provider's model does not see it.
            start, cleared, blocks, places, anchors = at, max(element.compacted, 0), {}, {}, {}
        for one in element.utterances if element is not None and element.may_hold_blocks else ():
            ours = [block.hash for block in find_blocks(one.text) if block.hash in known]
            blocks.update(dict.fromkeys(ours, at))
            places.update(dict.fromkeys(ours, chain.anchor))
        # Our blocks count to the place before them, so a block is put back after those that are there.
        anchors.update(dict.fromkeys(chain.parts, at))
    return BlockScan(blocks, places, anchors, chain, is_complete=first == 0 or start > 0, start=start)


def end_anchor(
    dialect: Dialect, messages: Sequence[object], known: Collection[str], earlier: MessageChain | None
) -> str:
    """The anchor of the end of the list, blank if the list has no text.

    `earlier` is the chain of an earlier state of the list, so that only new messages are read.
    """
    chain = MessageChain(max(0, len(messages) - _SEARCHED_MAX))
    if earlier is not None and chain.length <= earlier.length and earlier.leads_into(messages):
        chain = earlier.copy()
    for at in range(chain.length, len(messages)):
        chain.step(messages[at], dialect.read(messages[at]), known)
    return chain.anchor


class MessageChain:
    """Computes the anchor after each message: a hash of the last few, and how often this sequence occurred before.

    After a user's message it has another part: a hash of everything that the user has said. Agents that answer in one
    turn have different lists, with the same messages of the user.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.parts: tuple[str, ...] = ()  # of the anchor
        self._last: object = None
        self._names: tuple[str, ...] = ()
        self._counts: dict[str, int] = {}
        self._said = ""

    @property
    def anchor(self) -> str:
        return " ".join(self.parts)

    def step(self, message: object, element: Element | None, known: Collection[str]) -> None:
        self.length += 1
        self._last = message
        name = _name(element, known) if element is not None else ""
        if not name:
            return
        self._names = (*self._names, name)[-_CHAIN_LENGTH:]
        sequence = _digest(self._names)
        count = self._counts[sequence] = self._counts.get(sequence, -1) + 1
        self.parts = (f"{sequence}#{count}" if count else sequence,)
        if element is not None and element.role == "user":
            self._said = _digest((self._said, name))
            # First, because it occurs once in a list.
            self.parts = (f"{_SAID}{self._said}", *self.parts)

    def leads_into(self, messages: Sequence[object]) -> bool:
        """Whether the list has only grown since, judged by one message."""
        return 0 < self.length <= len(messages) and messages[self.length - 1] is self._last

    def copy(self) -> MessageChain:
        other = MessageChain(self.length)
        other.parts, other._last, other._names, other._said = self.parts, self._last, self._names, self._said
        other._counts = self._counts.copy()
        return other


def find_missing(
    found: BlockScan, rows: Sequence[BlockRow], known: Mapping[str, BlockRow]
) -> tuple[list[BlockRow], list[BlockRow]]:
    """Of blocks that should be visible: those whose place still exists, and those whose place is gone too.

    A standing block is never among the latter: it is offered again, and its loss is not a compaction. In a list that
    was not searched completely, a block that is not found may be further back, and is neither.
    """
    missing = [row for row in rows if row.hash not in found.blocks]
    present = [(at, known[hash]) for hash, at in found.blocks.items()]
    dropped = [row for row in missing if row.text and _has_place(row, found, present)]
    if not found.is_complete:
        return dropped, []
    kept = {row.hash for row in dropped}
    return dropped, [row for row in missing if row.hash not in kept and row.point != HandoverPoint.STANDING]


def _has_place(row: BlockRow, found: BlockScan, present: Sequence[tuple[int, BlockRow]]) -> bool:
    """Whether the block would be where it was: the same words may have been said again later.

    Blocks are in the order in which they were injected. If a younger one of another place comes first, this is not the
    place.
    """
    index = found.find_place(row)
    if index is None:
        return False
    return not any(
        at <= index and other.injected_at > row.injected_at and found.find_place(other) != index
        for at, other in present
    )


def _name(element: Element, known: Collection[str]) -> str:
    """Identifies what was said in an element, without our blocks; blank for those and for system instructions."""
    if not element.may_hold_blocks:
        return element.digest
    stripped = (one._replace(text=strip_blocks(one.text, known)) for one in element.utterances)
    return replace(element, utterances=tuple(one for one in stripped if one.text.strip())).digest


@lru_cache(maxsize=16_384)
def _digest(names: tuple[str, ...]) -> str:
    """Cached, because the same names follow one another at every turn."""
    # Loaded here: a hook that answers alone reads no messages of a host. Six formats take 5 ms.
    from afterturn.dialects.dialect import exact_digest

    return exact_digest("\n".join(names))
