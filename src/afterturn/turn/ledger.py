"""What the model can see in its context now: read from the messages, or from what was handed over (H5, H6). Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from afterturn.base.terms import content_hash
from afterturn.base.turns import BlockRow, Message, Point
from afterturn.context.block import find_blocks, strip_blocks
from afterturn.guard.secrets import RedactedHashes, hashes

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

    def with_blocks(self, blocks: Iterable[BlockRow]) -> "Ledger":
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
    in_sight = [block for block in blocks if block.in_sight and block.point != Point.PROMPT]
    spoken = read_ledger(messages, blocks, stored)
    return replace(spoken, refs=frozenset(), size_bytes=0, seen_since=compacted_at or 0.0).with_blocks(in_sight)
