"""The ledger: which memories and messages the model sees now, from the host's messages or from what was delivered.

Also finds our blocks in a host's list, and the places of blocks that a host dropped while it rebuilt its list. Pure.
Imports neither asyncio nor numpy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from afterturn.guard.scanning import hashes
from afterturn.recall.block import find_blocks, spoken_words, strip_blocks
from afterturn.scanners.secrets import RedactedHashes
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
            refs=self.refs.union(*[block.refs for block in added if block.point != HandoverPoint.STANDING]),
            size_bytes=self.size_bytes + sum([block.size_bytes for block in added]),
        )


def read_ledger(messages: Iterable[Message], blocks: Iterable[BlockRow]) -> Ledger:
    """A block counts only if its bytes are those of one of `blocks`; a forged tag is ordinary text.

    Messages are identified by the hash that their records have: that of the text without secrets.
    """
    from afterturn.dialects.dialect import Element, Utterance

    known = {block.hash: block for block in blocks}
    elements = [Element((Utterance(message.role, message.text),)) for message in messages]
    return ListReading().extended(elements, elements, known).ledger(known)


class ListReading:
    """What a host's list contains, as far as it was read: our blocks, places for blocks, and the messages.

    Not changed once it is made, but for `said_checked`: how many of the texts that the user `said` are known to have
    nothing pasted in them. A list that has only grown is read from where the earlier reading ends.
    """

    def __init__(self, first: int = 0) -> None:
        self.elements: list[Element | None] = []
        self.said: list[str] = []
        self.said_checked = 0
        self.is_untrusted = False
        self._first = first
        self._chain = MessageChain(first)
        self._blocks: dict[str, int] = {}
        self._places: dict[str, str] = {}
        self._anchors: dict[str, int] = {}
        self._visible: list[str] = []
        self._strange: set[str] = set()
        self._hashes: set[str] = set()

    def is_start_of(self, elements: Sequence[Element | None], known: Collection[str]) -> bool:
        """Whether a list begins with the same elements, and the same blocks in it are ours."""
        return (
            len(elements) <= _SEARCHED_MAX
            and self.elements == elements[: len(self.elements)]
            and all(hash in known for hash in self._blocks)
            and self._strange.isdisjoint(known)
        )

    def extended(
        self,
        elements: Iterable[Element | None],
        messages: Sequence[object],
        known: Collection[str],
        stored: RedactedHashes | None = _STORED,
    ) -> ListReading:
        """The reading of a list that begins with what was read so far. Without `stored`, only for our blocks."""
        other = copy(self)
        other.elements, other.said, other._chain = self.elements.copy(), self.said.copy(), self._chain.copy()
        other._blocks, other._places, other._anchors = self._blocks.copy(), self._places.copy(), self._anchors.copy()
        other._visible, other._strange, other._hashes = self._visible.copy(), self._strange.copy(), self._hashes.copy()
        if self.elements:
            other._chain.follow(messages[len(self.elements) - 1])
        for at, element in enumerate(islice(elements, len(self.elements), None), len(self.elements)):
            other._read(at, element, messages[at], known, stored)
        return other

    def _read(
        self,
        at: int,
        element: Element | None,
        message: object,
        known: Collection[str],
        stored: RedactedHashes | None,
    ) -> None:
        self.elements.append(element)
        ours, spoken = _split_blocks(element, known) if element is not None else ((), None)
        if at >= self._first:
            # Our blocks count to the place before them, so a block is put back after those that are there.
            self._chain.step(message, element, spoken.digest if spoken is not None else "")
            for part in self._chain.parts:
                self._anchors[part] = at
            for hash in ours:
                self._blocks[hash], self._places[hash] = at, self._chain.anchor
        if element is None or spoken is None:
            self.is_untrusted = True
            return
        self.is_untrusted = self.is_untrusted or element.is_untrusted
        if stored is None:
            return
        self._visible.extend(ours)
        if element.may_hold_blocks:
            self._strange.update([hash for hash in _block_hashes(element) if hash not in known])
        users = [one.text for one in element.utterances if one.role == "user"]
        self.said += [spoken_words(text, known) for text in users] if element.may_hold_blocks else users
        self._hashes.update(_stored_hashes(spoken, stored))

    def ledger(self, blocks: Mapping[str, BlockRow]) -> Ledger:
        """A block counts only if its bytes are those of one of `blocks`; a forged tag is ordinary text."""
        return Ledger(message_hashes=frozenset(self._hashes)).with_blocks(blocks[hash] for hash in self._visible)

    def hidden_ledger(self, blocks: Mapping[str, BlockRow], compacted_at: float | None) -> Ledger:
        """For a host that hides its history: what was delivered and said since the last compaction."""
        visible = [block for block in blocks.values() if block.in_sight and block.point != HandoverPoint.PROMPT]
        spoken = Ledger(message_hashes=frozenset(self._hashes), seen_since=compacted_at or 0.0)
        return spoken.with_blocks(visible)

    @property
    def scan(self) -> BlockScan:
        return BlockScan(self._blocks, self._places, self._anchors, self._chain, is_complete=self._first == 0)


def _block_hashes(element: Element) -> tuple[str, ...]:
    """Of everything in it that has the form of a block."""
    found: tuple[str, ...] | None = element.derived.get("blocks")
    if found is None:
        found = tuple(block.hash for one in element.utterances for block in find_blocks(one.text))
        element.derived["blocks"] = found
    return found


def _split_blocks(element: Element, known: Collection[str]) -> tuple[tuple[str, ...], Element]:
    """The hashes of our blocks in it, and the element without them. Texts that have nothing else are left out."""
    if not element.may_hold_blocks:
        return (), element
    ours = tuple([hash for hash in _block_hashes(element) if hash in known])
    if not ours:
        return (), element
    spoken: Element | None = element.derived.get(ours)
    if spoken is None:
        stripped = [one._replace(text=strip_blocks(one.text, ours)) for one in element.utterances]
        spoken = replace(element, utterances=tuple(one for one in stripped if one.text.strip()))
        element.derived[ours] = spoken
    return ours, spoken


def _stored_hashes(element: Element, stored: RedactedHashes) -> tuple[str, ...]:
    """Those that the records of its messages have: of the texts without secrets."""
    found: tuple[str, ...] | None = element.derived.get(stored)
    if found is None:
        spoken = [message for message in element.messages if message.text.strip()]
        found = element.derived[stored] = tuple(stored.of(message.text, message.hash) for message in spoken)
    return found


class BlockScan(NamedTuple):
    """The indexes of our blocks in a host's list, by hash, and of places, by each part of their anchors.

    `places` are the anchors of the blocks that were found, `chain` is the state at the list's end. `is_complete`: the
    whole list was searched.
    """

    blocks: Mapping[str, int]
    places: Mapping[str, str]
    anchors: Mapping[str, int]
    chain: MessageChain
    is_complete: bool = True

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
    elements = [None] * first_searched(messages) + [
        dialect.read(messages[at]) for at in range(first_searched(messages), len(messages))
    ]
    return ListReading(first_searched(messages)).extended(elements, messages, known, None).scan


def first_searched(messages: Sequence[object]) -> int:
    return max(0, len(messages) - _SEARCHED_MAX)


def end_anchor(
    dialect: Dialect, messages: Sequence[object], known: Collection[str], earlier: MessageChain | None
) -> str:
    """The anchor of the end of the list, blank if the list has no text.

    `earlier` is the chain of an earlier state of the list, so that only new messages are read.
    """
    chain = MessageChain(first_searched(messages))
    if earlier is not None and chain.length <= earlier.length and earlier.leads_into(messages):
        chain = earlier.copy()
    for at in range(chain.length, len(messages)):
        element = dialect.read(messages[at])
        chain.step(messages[at], element, _split_blocks(element, known)[1].digest if element is not None else "")
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

    def step(self, message: object, element: Element | None, name: str) -> None:
        """`name` is the digest of the element without our blocks."""
        self.length += 1
        self._last = message
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

    def follow(self, message: object) -> None:
        """The same list has another object at its end, which says the same."""
        self._last = message

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


@lru_cache(maxsize=16_384)
def _digest(names: tuple[str, ...]) -> str:
    """Cached, because the same names follow one another at every turn."""
    # Loaded here: a hook that answers alone reads no messages of a host. Six formats take 5 ms.
    from afterturn.dialects.dialect import exact_digest

    return exact_digest("\n".join(names))
