"""From a host's messages to a block, without an event loop: for a reader's thread, and for a hook.

Imports neither asyncio nor numpy.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from afterturn.config import Config
from afterturn.conversation.ledger import Ledger, MessageChain, hidden_ledger, missing_from, read_ledger, survey
from afterturn.conversation.scope import ConversationScope
from afterturn.dialects.dialect import Dialect
from afterturn.dialects.history import latest_user, spoken
from afterturn.errors import NotFound
from afterturn.guard.output_filter import OutputFilter
from afterturn.guard.secrets import RedactedHashes, hashes, redact_within, scanner, unnamed
from afterturn.ports import Unit
from afterturn.recall.block import CHOICES_MAX, FRAME, Block, Budget, bullet, choose, render, strip_blocks, varied
from afterturn.recall.duplicates import collapse, contradicting
from afterturn.recall.query import QueryVector, RecallRequest, is_learned_from_seen, needs_recall
from afterturn.recall.scoring import above_floor
from afterturn.recall.search import search
from afterturn.text import terms
from afterturn.types import (
    BlockRow,
    Candidate,
    CarriedRow,
    Entry,
    Hit,
    Lane,
    LaneQuery,
    NoRecallReason,
    Scope,
    SearchResults,
)

if TYPE_CHECKING:
    from afterturn.recall.index.cache import IndexCache

# More candidates than a block holds, so that the budget can choose among the lanes, and a trace can tell of the rest.
CANDIDATES = 4
CANDIDATES_MIN = 32
# A user who pastes a log asks about its beginning, at best; more of it finds nothing better.
QUESTION_CHARS_MAX = 4_000


@dataclass(frozen=True, slots=True)
class RecallQuestion:
    """What is recalled for: the user's words, who asks, and what the model sees already.

    What was `recalled` before is looked at again when more than so many `forgets` are counted by now.
    """

    text: str
    place: ConversationScope
    ledger: Ledger
    forgets: int | None = None
    recalled: tuple[Hit, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnReading:
    """What a turn began with, or what a list shows in its middle.

    `said` is None when the latest user message has no text, `question` when there is nothing to recall for; `forgets`
    counts them; `places` tells where our blocks stand, by hash; `dropped` are blocks that the host left out while it
    rebuilt its prompt, and that go back; `lost` those that went with the messages they stood after; `trail` leads to
    the list's end.
    """

    blocks: Mapping[str, BlockRow]
    forgets: int
    said: tuple[int, str] | None
    ledger: Ledger
    question: RecallQuestion | None
    places: Mapping[str, int] = field(default_factory=dict)
    dropped: tuple[BlockRow, ...] = ()
    lost: tuple[BlockRow, ...] = ()
    trail: MessageChain | None = None
    carried: CarriedRow | None = None
    carried_hits: tuple[Hit, ...] = ()

    def without_dropped(self) -> TurnReading:
        """For a host that has called its model already: what it left out stays out, and may come again (H3)."""
        if not self.dropped:
            return self
        shown = [self.blocks[name] for name in self.places]
        unseen = frozenset(ref for row in self.dropped for ref in row.refs).difference(*(row.refs for row in shown))
        ledger = replace(
            self.ledger,
            refs=self.ledger.refs - unseen,
            size_bytes=self.ledger.size_bytes - sum(row.size_bytes for row in self.dropped),
        )
        question = self.question
        if question is not None:
            question = replace(question, ledger=replace(ledger, refs=question.ledger.refs - unseen))
        return replace(self, ledger=ledger, question=question, dropped=(), lost=(*self.lost, *self.dropped))


@dataclass(frozen=True, slots=True)
class ShownMessages:
    """A host's messages, and the blocks of ours that may be among them but not in the store yet.

    `carried` is what an earlier turn left; None: look in the store. Blocks of `turn` came after the messages were read.
    """

    dialect: Dialect
    messages: Sequence[object]
    blocks: Mapping[str, BlockRow]
    now: float
    carried: tuple[Hit, ...] | None = None
    turn: str = ""
    unstored: frozenset[str] = frozenset()


def read_turn(unit: Unit, shown: ShownMessages, place: ConversationScope, config: Config) -> TurnReading:
    """Finds what the user said, what we injected so far, what was carried, and whether it is worth a recall (R6)."""
    stored = unit.conversations.known_blocks(place.key)
    newer = {row.hash: _both(row, shown.blocks.get(row.hash)) for row in stored if row.hash not in shown.unstored}
    blocks = {**shown.blocks, **newer}
    said = latest_user(shown.dialect, shown.messages, functools.partial(strip_blocks, known_hashes=blocks))
    seen = _sight(unit, shown, place, blocks, hashes(scanning=config.scanning))
    ledger = seen.ledger
    carried, hits = _carried(unit, shown, place, ledger)
    asked = replace(ledger, refs=ledger.refs.union(hit.entry.ref for hit in hits))
    return TurnReading(
        blocks=blocks,
        forgets=unit.conversations.forgets(place.tenant, place.writes),
        said=said,
        ledger=ledger,
        question=question_for(said[1], place, asked, config) if said else None,
        places=seen.places,
        dropped=seen.dropped,
        lost=seen.lost,
        trail=seen.trail,
        carried=carried,
        carried_hits=hits,
    )


def _both(stored: BlockRow, known: BlockRow | None) -> BlockRow:
    """Another process may have heard of a compaction, and what this one heard may be on its way to the store."""
    return stored if known is None or known.in_sight else replace(stored, in_sight=False)


def _carried(
    unit: Unit, shown: ShownMessages, place: ConversationScope, ledger: Ledger
) -> tuple[CarriedRow | None, tuple[Hit, ...]]:
    if shown.carried is not None:
        scope = Scope(place.tenant, place.reads)
        now = {hit.entry.ref: _find_version(unit, scope, hit.entry.ref) for hit in shown.carried}
        return None, tuple(hit for hit in shown.carried if _is_fresh(now[hit.entry.ref], ledger, shown.now))
    carried = unit.conversations.find_carried(place.key)
    if carried is None:
        return None, ()
    hits = hits_of(unit, place, terms(carried.question), carried.candidates)
    return carried, tuple(hit for hit in hits if _is_fresh(hit.entry, ledger, shown.now))


def all_readable(unit: Unit, place: ConversationScope, refs: Iterable[str]) -> bool:
    """Whether all of these are known, and in spaces that the host was granted this time."""
    scope = Scope(place.tenant, place.reads)
    return all(_find_version(unit, scope, ref) is not None for ref in refs)


def all_hold(unit: Unit, place: ConversationScope, hits: Iterable[Hit], now: float) -> bool:
    """Whether what was recalled a while ago may still be shown: not forgotten, changed or expired since (L7, M2)."""
    scope = Scope(place.tenant, place.reads)
    entries = (_find_version(unit, scope, hit.entry.ref) for hit in hits)
    return all(entry is not None and entry.holds(now) for entry in entries)


def any_learned_from_visible(unit: Unit, question: RecallQuestion, hits: Iterable[Hit]) -> bool:
    """Whether the messages tell all that one of these was learned from (L9)."""
    visible = question.ledger.message_hashes
    tenant = question.place.tenant
    return any(is_learned_from_seen(unit, tenant, hit.entry, lambda said: said.content_hash in visible) for hit in hits)


def question_for(text: str, place: ConversationScope, ledger: Ledger, config: Config) -> RecallQuestion | None:
    """None when it is not worth a recall: blank, an acknowledgement, recall switched off (R6).

    From here on it is asked, embedded, carried and kept, so its secrets stay behind.
    """
    if _is_off(config):
        return None
    asked = redact_within(text, QUESTION_CHARS_MAX, scanner(scanning=config.scanning), mark=unnamed).text
    return RecallQuestion(asked, place, ledger) if needs_recall(asked) else None


def no_recall(question: RecallQuestion | None, config: Config) -> str:
    """Why nothing is asked, for who looks back; blank when something is."""
    if question is not None:
        return ""
    return NoRecallReason.OFF if _is_off(config) else NoRecallReason.NOTHING_TO_ASK


def _is_off(config: Config) -> bool:
    return not config.recall or config.recall_entries_max == 0


@dataclass(frozen=True, slots=True)
class _Visible:
    ledger: Ledger
    places: Mapping[str, int] = field(default_factory=dict)
    dropped: tuple[BlockRow, ...] = ()
    lost: tuple[BlockRow, ...] = ()
    trail: MessageChain | None = None


def _sight(
    unit: Unit, shown: ShownMessages, place: ConversationScope, blocks: dict[str, BlockRow], stored: RedactedHashes
) -> _Visible:
    seen = spoken(shown.dialect, shown.messages)
    if place.is_hidden:
        compacted_at = unit.conversations.state(place.key).compacted_at
        return _Visible(hidden_ledger(seen, blocks.values(), compacted_at=compacted_at, stored=stored))
    found = survey(shown.dialect, shown.messages, blocks)
    if any(not blocks[name].in_sight for name in found.blocks):
        # Told gone, and shown all the same: a host kept a part of its history, or took up an old one.
        full = (row for row in unit.conversations.blocks(place.key) if row.hash in found.blocks)
        blocks.update((row.hash, replace(row, in_sight=blocks[row.hash].in_sight)) for row in full)
    expected = in_place(row for row in blocks.values() if not shown.turn or row.turn != shown.turn)
    dropped, lost = missing_from(found, expected, blocks)
    # A host that may not read a space any more gets nothing of it back either (L2).
    dropped = [row for row in dropped if all_readable(unit, place, row.refs)]
    ledger = read_ledger(seen, blocks.values(), stored).with_blocks(dropped)
    return _Visible(ledger, found.blocks, tuple(dropped), tuple(lost), found.trail)


def in_place(blocks: Iterable[BlockRow]) -> list[BlockRow]:
    """Those that should stand in a shown history, oldest first."""
    return sorted((row for row in blocks if row.in_sight and row.anchor), key=lambda row: (row.injected_at, row.hash))


@dataclass(frozen=True, slots=True)
class RecallTiming:
    """When and how a question is asked: the clock's time, an id to follow it by, its vector and the index cache."""

    now: float
    correlation: str
    query_vector: QueryVector | None = None
    cache: IndexCache | None = None


@dataclass(frozen=True, slots=True)
class ForgetEffects:
    """What a forget, in whatever process, has left of a turn: its count, our blocks as the store has them now, and the
    references of what was recalled and is gone (M2)."""

    forgets: int
    blocks: tuple[BlockRow, ...]
    gone: frozenset[str]


def aftermath(unit: Unit, place: ConversationScope, since: int, recalled: Iterable[Hit]) -> ForgetEffects | None:
    """None when nothing was forgotten since."""
    forgets = unit.conversations.forgets(place.tenant, place.writes)
    if forgets <= since:
        return None
    scope = Scope(place.tenant, place.reads)
    gone = frozenset(hit.entry.ref for hit in recalled if _find_version(unit, scope, hit.entry.ref) is None)
    return ForgetEffects(forgets, tuple(unit.conversations.known_blocks(place.key)), gone)


@dataclass(frozen=True, slots=True)
class RecallAnswer:
    """What a recall came to. `hits` are worth handing over, best first; `found` is all that was weighed.

    `restated` are left out because another says the same, by reference; `exhausted`: nothing but what was shown before
    was relevant, so that is offered again (L4). `withheld` are kept from the model, by reference, and why (G3).
    """

    found: SearchResults
    hits: tuple[Hit, ...]
    restated: Mapping[str, str]
    exhausted: bool = False
    aftermath: ForgetEffects | None = None
    withheld: Mapping[str, str] = field(default_factory=dict)


def prepare(unit: Unit, question: RecallQuestion, asking: RecallTiming, config: Config) -> RecallAnswer:
    """Recalls what is relevant and new to the model. Exclusions hold inside the query, before any cut (L3)."""
    prepared = _judged(_ask(unit, question, asking, config), config)
    ledger = question.ledger
    broken = set(prepared.found.missing) & set(Lane)
    if prepared.hits or broken or not question.place.is_hidden or ledger.refs <= ledger.kept:
        return prepared
    again = replace(question, ledger=replace(ledger, refs=ledger.kept))
    return replace(_judged(_ask(unit, again, asking, config), config), exhausted=True)


def _ask(unit: Unit, question: RecallQuestion, asking: RecallTiming, config: Config) -> SearchResults:
    place, ledger = question.place, question.ledger
    request = RecallRequest(
        text=question.text,
        query_vector=asking.query_vector,
        admitted=LaneQuery(
            Scope(place.tenant, place.reads),
            asking.now,
            conversation=place.id,
            owner=place.owner,
            excluded_refs=ledger.refs,
            visible_hashes=ledger.message_hashes,
            seen_since=ledger.seen_since,
        ),
        limit=weighed_max(config),
        score_min=0.0,
        lane_min=Budget.of(config).lane_entries_min,
        correlation=asking.correlation,
    )
    return search(unit, request, asking.cache)


def weighed_max(config: Config) -> int:
    """How many candidates are weighed at the most."""
    return CHOICES_MAX if config.refined else max(CANDIDATES_MIN, config.recall_entries_max * CANDIDATES)


def _judged(found: SearchResults, config: Config) -> RecallAnswer:
    hits, restated = collapse(above_floor(found.hits, config.recall_score_min))
    offered = tuple(varied(hits, config.entry_bytes_max))
    return RecallAnswer(found, offered, {item.hit.entry.ref: item.by_ref for item in restated})


def compose(
    hits: Iterable[Hit], config: Config, *, visible_bytes: int, now: float, screen: OutputFilter | None = None
) -> Block | None:
    """One block of what fits, those named first before the others. None when nothing is left to say.

    `screen` tells afterwards what it withheld (G3).
    """
    screen = screen or OutputFilter(scanning=config.scanning)
    once = list({hit.entry.ref: hit for hit in hits}.values())
    budget = Budget.of(config, visible_bytes=visible_bytes)
    while True:
        shown = [hit for hit in once if hit.entry.ref not in screen.withheld]
        dated = contradicting(shown)
        line = functools.partial(bullet, now=now, dated=dated)
        excerpts = choose(shown, budget, frame=FRAME, line=line, screen=screen)
        # What is withheld must leave no trace on the others: whoever makes the block again goes without it.
        if all(hit.entry.ref not in screen.withheld for hit in shown):
            return render(excerpts, now=now, dated=dated) if excerpts else None


def hits_of(
    unit: Unit, place: ConversationScope, asked: Iterable[str], candidates: Sequence[Candidate]
) -> tuple[Hit, ...]:
    """Stored candidates as hits again: those that are still known and may be read. Long ones are cut by the terms that
    were `asked`."""
    scope, wanted = Scope(place.tenant, place.reads), frozenset(asked)
    hits = []
    for candidate in candidates:
        entry = _find_version(unit, scope, candidate.ref)
        if entry is None:
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


def _is_fresh(entry: Entry | None, ledger: Ledger, now: float) -> bool:
    """Whether it may still be recalled, and the model does not see it."""
    if entry is None or not entry.holds(now):
        return False
    return entry.ref not in ledger.refs and entry.content_hash not in ledger.message_hashes
