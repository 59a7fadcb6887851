"""From a host's messages to a block, without an event loop: for a reader's thread, and for a hook.

Imports neither asyncio nor numpy.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from afterturn.base.config import Config
from afterturn.base.errors import NotFound
from afterturn.base.ports import Unit
from afterturn.base.terms import is_acknowledgement, terms
from afterturn.base.turns import BlockRow, Candidate, CarriedRow, ConversationState
from afterturn.base.types import Entry, Hit, Lane, Recollection, Scope, Status
from afterturn.context.block import FRAME, Block, bullet, render, strip_blocks
from afterturn.dialects.dialect import Dialect
from afterturn.dialects.history import latest_user, spoken
from afterturn.recall.budget import Budget, choose
from afterturn.recall.lanes import RecallRequest, VectorSearch, recall
from afterturn.recall.restated import collapse, contradicting
from afterturn.turn.ledger import Ledger, hidden_ledger, read_ledger
from afterturn.turn.place import Place
from afterturn.turn.rebuilding import missing_from, survey

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# More candidates than a block holds, so that the budget can choose among the lanes, and a trace can tell of the rest.
CANDIDATES = 4
CANDIDATES_MIN = 32
# What a model may choose among (R7).
MANIFEST_MAX = 200
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
    """What a turn began with, or what a list shows in its middle.

    `said` is None when the latest user message has no text, `question` when there is nothing to recall for; `forgets`
    counts them; `dropped` are blocks that the host left out while it rebuilt its prompt, and that go back; `lost` those
    that went with the messages they stood after.
    """

    blocks: Mapping[str, BlockRow]
    forgets: int
    said: tuple[int, str] | None
    ledger: Ledger
    question: Question | None
    dropped: tuple[BlockRow, ...] = ()
    lost: tuple[BlockRow, ...] = ()
    carried: CarriedRow | None = None
    carried_hits: tuple[Hit, ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """A host's messages, and the blocks of ours that may be among them but not in the store yet.

    `carried` is what an earlier turn left; None: look in the store.
    """

    dialect: Dialect
    messages: Sequence[object]
    blocks: Mapping[str, BlockRow]
    carried: tuple[Hit, ...] | None = None


def read_turn(unit: Unit, shown: Shown, place: Place, config: Config) -> Reading:
    """Finds what the user said, what we injected so far, what was carried, and whether it is worth a recall (R6)."""
    stored = unit.conversations.blocks(place.key)
    blocks = {**shown.blocks, **{row.hash: _both(row, shown.blocks.get(row.hash)) for row in stored}}
    state = unit.conversations.state(place.key)
    said = latest_user(shown.dialect, shown.messages, functools.partial(strip_blocks, known_hashes=blocks))
    ledger, dropped, lost = _sight(shown, place, blocks, state)
    carried, hits = _carried(unit, shown, place, ledger)
    asked = replace(ledger, refs=ledger.refs.union(hit.entry.ref for hit in hits))
    return Reading(
        blocks=blocks,
        forgets=unit.operations.epoch(place.tenant, place.writes),
        said=said,
        ledger=ledger,
        question=question_for(said[1], place, asked, config) if said else None,
        dropped=dropped,
        lost=lost,
        carried=carried,
        carried_hits=hits,
    )


def _both(stored: BlockRow, known: BlockRow | None) -> BlockRow:
    """Another process may have heard of a compaction, and what this one heard may be on its way to the store."""
    return stored if known is None or known.in_sight else replace(stored, in_sight=False)


def _carried(unit: Unit, shown: Shown, place: Place, ledger: Ledger) -> tuple[CarriedRow | None, tuple[Hit, ...]]:
    if shown.carried is not None:
        scope = Scope(place.tenant, place.reads)
        now = {hit.entry.ref: _find_version(unit, scope, hit.entry.ref) for hit in shown.carried}
        return None, tuple(hit for hit in shown.carried if not _is_stale(now[hit.entry.ref], ledger))
    carried = unit.conversations.find_carried(place.key)
    return carried, hits_of(unit, place, terms(carried.question), carried.candidates, ledger) if carried else ()


def question_for(text: str, place: Place, ledger: Ledger, config: Config) -> Question | None:
    """None when it is not worth a recall: blank, an acknowledgement, recall switched off (R6)."""
    if not config.recall or config.recall_entries_max == 0 or not text.strip() or is_acknowledgement(text):
        return None
    return Question(text[:QUESTION_CHARS_MAX], place, ledger)


def _sight(
    shown: Shown, place: Place, blocks: Mapping[str, BlockRow], state: ConversationState
) -> tuple[Ledger, tuple[BlockRow, ...], tuple[BlockRow, ...]]:
    seen = spoken(shown.dialect, shown.messages)
    if place.is_hidden:
        return hidden_ledger(seen, blocks.values(), compacted_at=state.compacted_at), (), ()
    ledger = read_ledger(seen, blocks.values())
    expected = in_place(blocks.values())
    if not expected:
        return ledger, (), ()
    dropped, lost = missing_from(survey(shown.dialect, shown.messages, blocks), expected)
    return ledger.with_blocks(dropped), tuple(dropped), tuple(lost)


def in_place(blocks: Iterable[BlockRow]) -> list[BlockRow]:
    """Those that should stand in a shown history, oldest first."""
    return sorted((row for row in blocks if row.in_sight and row.anchor), key=lambda row: (row.injected_at, row.hash))


@dataclass(frozen=True, slots=True)
class Asking:
    """When and how a question is asked: the clock's time, an id to follow it by, and its vector if there is one."""

    now: float
    correlation: str
    query_vector: NDArray[np.float32] | None = None
    vectors: VectorSearch | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a recall came to. `hits` are worth handing over, best first; `found` is all that was weighed.

    `restated` are left out because another says the same, by reference; `exhausted`: nothing but what was shown before
    was relevant, so that is offered again (L4).
    """

    found: Recollection
    hits: tuple[Hit, ...]
    restated: Mapping[str, str]
    exhausted: bool = False


def prepare(unit: Unit, question: Question, asking: Asking, config: Config) -> Prepared:
    """Recalls what is relevant and new to the model. Exclusions hold inside the query, before any cut (L3)."""
    prepared = _judged(_ask(unit, question, asking, config), config)
    ledger = question.ledger
    broken = set(prepared.found.missing) & set(Lane)
    if prepared.hits or broken or not question.place.is_hidden or not ledger.refs:
        return prepared
    again = replace(question, ledger=replace(ledger, refs=frozenset()))
    return replace(_judged(_ask(unit, again, asking, config), config), exhausted=True)


def _ask(unit: Unit, question: Question, asking: Asking, config: Config) -> Recollection:
    place, ledger = question.place, question.ledger
    request = RecallRequest(
        text=question.text,
        query_vector=asking.query_vector,
        scope=Scope(place.tenant, place.reads),
        conversation=place.id,
        owner=place.owner,
        limit=weighed_max(config),
        score_min=0.0,
        excluded_refs=ledger.refs,
        visible_hashes=ledger.message_hashes,
        seen_since=ledger.seen_since,
        now=asking.now,
        correlation=asking.correlation,
    )
    return recall(unit, request, asking.vectors)


def weighed_max(config: Config) -> int:
    """How many candidates are weighed at the most."""
    return MANIFEST_MAX if config.refined else max(CANDIDATES_MIN, config.recall_entries_max * CANDIDATES)


def _judged(found: Recollection, config: Config) -> Prepared:
    hits, restated = collapse([hit for hit in found.hits if hit.score >= config.recall_score_min])
    return Prepared(found, tuple(hits), {item.hit.entry.ref: item.by_ref for item in restated})


def compose(hits: Iterable[Hit], config: Config, *, visible_bytes: int, now: float) -> Block | None:
    """One block of what fits, those named first before the others. None when nothing is left to say."""
    once = list({hit.entry.ref: hit for hit in hits}.values())
    budget = Budget.of(config, visible_bytes=visible_bytes)
    dated = contradicting(once)
    excerpts = choose(once, budget, frame=FRAME, line=functools.partial(bullet, now=now, dated=dated))
    return render(excerpts, now=now, dated=dated) if excerpts else None


def hits_of(
    unit: Unit, place: Place, asked: Iterable[str], candidates: Sequence[Candidate], ledger: Ledger | None = None
) -> tuple[Hit, ...]:
    """Stored candidates as hits again: those that are still known, may be read and, with a ledger, are not in sight.

    `asked` are the terms that long ones are cut by.
    """
    scope, wanted = Scope(place.tenant, place.reads), frozenset(asked)
    hits = []
    for candidate in candidates:
        entry = _find_version(unit, scope, candidate.ref)
        if entry is None or (ledger is not None and _is_stale(entry, ledger)):
            continue
        shared = tuple(sorted(wanted.intersection(terms(entry.text))))
        hits.append(Hit(entry, candidate.lane, candidate.score, candidate.lexical, candidate.similarity, shared))
    return tuple(hits)


def _find_version(unit: Unit, scope: Scope, ref: str) -> Entry | None:
    entry_id, _, version = ref.partition(".")
    try:
        return unit.memories.get(scope, entry_id, version=int(version or 1))
    except NotFound:
        return None


def _is_stale(entry: Entry | None, ledger: Ledger) -> bool:
    if entry is None or entry.status is not Status.ACTIVE:
        return True
    return entry.ref in ledger.refs or entry.content_hash in ledger.message_hashes
