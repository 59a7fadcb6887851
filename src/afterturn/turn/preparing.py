"""From a host's messages to a block, without an event loop: for a reader's thread, and for a hook.

Imports neither asyncio nor numpy.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from afterturn.base.config import Config
from afterturn.base.ports import Unit
from afterturn.base.terms import is_acknowledgement
from afterturn.base.turns import BlockRow
from afterturn.base.types import Hit, Recollection, Scope
from afterturn.context.block import FRAME, Block, bullet, render, strip_blocks
from afterturn.dialects.dialect import Dialect
from afterturn.dialects.history import latest_user, spoken
from afterturn.recall.budget import Budget, choose
from afterturn.recall.lanes import RecallRequest, VectorSearch, recall
from afterturn.turn.ledger import Ledger, read_ledger
from afterturn.turn.place import Place

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# More candidates than a block holds, so that the budget can choose among the lanes.
CANDIDATES = 4
# A user who pastes a log asks about its beginning, at best; more of it finds nothing better.
QUESTION_CHARS_MAX = 4_000


@dataclass(frozen=True, slots=True)
class Question:
    """What is recalled for: the user's words, who asks, and what the model sees already."""

    text: str
    place: Place
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class Reading:
    """What a turn began with. `said` is None when the latest user message has no text.

    `question` is None when there is nothing to recall for; `epoch` is the number of the newest forget.
    """

    blocks: Mapping[str, BlockRow]
    epoch: int
    said: tuple[int, str] | None
    question: Question | None


@dataclass(frozen=True, slots=True)
class Shown:
    """A host's messages, and the blocks of ours that may be among them but not in the store yet."""

    dialect: Dialect
    messages: Sequence[object]
    blocks: Mapping[str, BlockRow]


def read_turn(unit: Unit, shown: Shown, place: Place, config: Config) -> Reading:
    """Finds what the user said, what we injected so far, and whether it is worth a recall (R6)."""
    dialect, messages = shown.dialect, shown.messages
    blocks = {**shown.blocks, **{row.hash: row for row in unit.conversations.blocks(place.key)}}
    epoch = unit.operations.epoch(place.tenant, place.writes)
    said = latest_user(dialect, messages, functools.partial(strip_blocks, known_hashes=blocks))
    if said is None or not config.recall or config.recall_entries_max == 0 or is_acknowledgement(said[1]):
        return Reading(blocks, epoch, said, None)
    seen = spoken(dialect, messages)
    question = Question(said[1][:QUESTION_CHARS_MAX], place, read_ledger(seen, blocks.values()))
    return Reading(blocks, epoch, said, question)


@dataclass(frozen=True, slots=True)
class Asking:
    """When and how a question is asked: the clock's time, an id to follow it by, and its vector if there is one."""

    now: float
    correlation: str
    query_vector: NDArray[np.float32] | None = None
    vectors: VectorSearch | None = None


def prepare(unit: Unit, question: Question, asking: Asking, config: Config) -> tuple[Recollection, Block | None]:
    """Recalls, fits the budget and renders. No block when nothing relevant is new to the model."""
    place, ledger = question.place, question.ledger
    request = RecallRequest(
        text=question.text,
        query_vector=asking.query_vector,
        scope=Scope(place.tenant, place.reads),
        conversation=place.id,
        owner=place.owner,
        limit=config.recall_entries_max * CANDIDATES,
        score_min=config.recall_score_min,
        excluded_refs=ledger.refs,
        visible_hashes=ledger.message_hashes,
        now=asking.now,
        correlation=asking.correlation,
    )
    found = recall(unit, request, asking.vectors)
    budget = Budget.of(config, visible_bytes=ledger.size_bytes)
    line = functools.partial(bullet, now=asking.now)
    excerpts = choose(stated_once(found.hits), budget, frame=FRAME, line=line)
    return found, render(excerpts, now=asking.now) if excerpts else None


def stated_once(hits: Sequence[Hit]) -> list[Hit]:
    """Of hits that say the same word for word, the newest of the most trusted, in the place of the best (L10)."""
    chosen: dict[str, Hit] = {}
    for hit in hits:
        known = chosen.setdefault(hit.entry.content_hash, hit)
        if (hit.entry.trust, hit.entry.occurred_at) > (known.entry.trust, known.entry.occurred_at):
            chosen[hit.entry.content_hash] = hit
    return list(chosen.values())
