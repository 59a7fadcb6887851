"""What the model can see in its context now, read from the messages themselves (H5, H6). Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from afterturn.base.terms import content_hash
from afterturn.base.turns import BlockRow, Message
from afterturn.context.block import find_blocks, strip_blocks


@dataclass(frozen=True, slots=True)
class Ledger:
    """`refs` are shown by blocks, `message_hashes` by what was said; `size_bytes` counts every copy of a block."""

    refs: frozenset[str] = frozenset()
    message_hashes: frozenset[str] = frozenset()
    size_bytes: int = 0


def read_ledger(messages: Iterable[Message], blocks: Iterable[BlockRow]) -> Ledger:
    """A block counts only if its bytes are those of one of `blocks`; a forged tag is ordinary text."""
    known = {block.hash: block for block in blocks}
    visible: list[BlockRow] = []
    hashes: set[str] = set()
    for message in messages:
        ours = [known[found.hash] for found in find_blocks(message.text) if found.hash in known]
        visible.extend(ours)
        said = strip_blocks(message.text, known) if ours else message.text
        if said.strip():
            hashes.add(content_hash(said) if ours else message.hash)
    return Ledger(
        refs=frozenset(ref for block in visible for ref in block.refs),
        message_hashes=frozenset(hashes),
        size_bytes=sum(block.size_bytes for block in visible),
    )
