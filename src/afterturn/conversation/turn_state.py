"""One turn, as memory's loop and the host's path share it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from afterturn.conversation.ledger import BlockPosition, Ledger, MessageChain
from afterturn.conversation.prefetch import Prefetch
from afterturn.conversation.scope import ConversationScope
from afterturn.dialects.dialect import Dialect
from afterturn.runtime.once_future import OnceFuture
from afterturn.types import BlockRow, Hit


@dataclass(slots=True, eq=False, weakref_slot=True)
class TurnState:
    """`read` settles when memory's loop has read the turn's messages; dialect and user message stand from then on.

    `prefetches` are in the order of its epochs, the last one current; `carried` is what an earlier turn left for this
    one. `spots` tell where our blocks stand in the host's list, by hash, `dropped` which earlier ones go back into
    it, and `reported` which were found missing; `unsure`: we were told of a compaction but not shown it; `held`: how
    many are being looked into, while nothing is offered. `began`: the model has been called, as far as we know.
    `trimmed`: the snapshot of its messages begins with its user message. `opening` is the list that it began with,
    until it is read. `forgets` is the newest forget that its recalls know of, `forgets_before` the newest before it
    began, as far as we know: a later one covers all of it (M2). `recorded` settles when it is known whether the turn
    was stored. `durable`: it outlives its process.

    Hosts write `prefetches`, `cues`, `blocks`, `texts` and `began`. `spots`, `dropped`, `reported` and `unsure` are
    settled under the lock of `Sight`. All else is written on memory's loop.
    """

    id: str
    place: ConversationScope
    prefetches: list[Prefetch]
    started_at: float
    speaker: str | None = None
    durable: bool = False
    left: bool = False
    forgets: int = 0
    forgets_before: int = 0
    dialect: Dialect | None = None
    ledger: Ledger = field(default_factory=Ledger)
    user_hash: str = ""
    user_index: int | None = None
    user_element: object = None
    carried: Prefetch | None = None
    recalled: tuple[Hit, ...] = ()
    cues: int = 0
    requeried: set[int] = field(default_factory=set)
    blocks: list[BlockRow] = field(default_factory=list)
    dropped: tuple[BlockRow, ...] = ()
    spots: dict[str, BlockPosition] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)
    unsure: bool = False
    held: int = 0
    began: bool = False
    trail: MessageChain | None = None
    trimmed: bool = False
    opening: list[object] | None = None
    texts: list[str] = field(default_factory=list)
    read: OnceFuture[bool] = field(default_factory=OnceFuture)
    stored: OnceFuture[bool] = field(default_factory=OnceFuture)
    recorded: OnceFuture[bool] = field(default_factory=OnceFuture)

    @property
    def first(self) -> Prefetch:
        return self.prefetches[0]

    @property
    def current(self) -> Prefetch:
        return self.prefetches[-1]

    @property
    def epochs(self) -> int:
        return sum(prefetch.cause.is_epoch for prefetch in self.prefetches)


COPIED_LEVELS_MAX = 6
LOOKED_AT_MAX = 10_000


def snapshot(messages: Sequence[object], state: TurnState) -> list[object]:
    """This turn's messages, copied so that the host's later edits do not reach them.

    From its user message on where that is still the object it was; all of them when the host has rebuilt its list.
    """
    found = _place_of(messages, state.user_element, state.user_index)
    state.trimmed = found is not None
    start = found or 0
    return [_copied(message, COPIED_LEVELS_MAX) for message in itertools.islice(messages, start, None)]


def _place_of(messages: Sequence[object], element: object, expected: int | None) -> int | None:
    """Where the very same object stands: mostly where it stood, else looked for from the end."""
    if expected is None:
        return None
    if expected < len(messages) and messages[expected] is element:
        return expected
    looked_at = range(len(messages) - 1, max(-1, len(messages) - 1 - LOOKED_AT_MAX), -1)
    return next((at for at in looked_at if messages[at] is element), None)


def _copied(value: object, levels: int) -> object:
    """Containers are copied, a client library's objects one level deep; what is immutable stays itself."""
    if levels == 0 or isinstance(value, _IMMUTABLE):
        return value
    if isinstance(value, Mapping):
        return {key: _copied(item, levels - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item, levels - 1) for item in value]
    try:
        return copy.copy(value)
    except Exception:  # noqa: BLE001  somebody's class does not like to be copied: then it is read as it is later
        return value


_IMMUTABLE = (str, bytes, int, float, bool, type(None))
