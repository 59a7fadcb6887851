"""From a host's messages to a question: reads the list, and asks what is worth a recall.

Runs on a reader's thread. Imports neither asyncio nor numpy, so that `recall_block_once` can use it too.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from afterturn.config import Config
from afterturn.conversation.ledger import Ledger, ListReading, MessageChain, find_missing, first_searched
from afterturn.conversation.scope import PRIVATE_PREFIX, ConversationScope, StandingDelivery, Visibility, is_private
from afterturn.guard.output_filter import STANDING_TAG
from afterturn.guard.scanning import hashes, scanner
from afterturn.recall.answer import all_readable, load_hits
from afterturn.recall.block import CHOICES_MAX, spoken_words
from afterturn.recall.features import shows_report
from afterturn.recall.query import RecallRequest, is_follow_up, is_learned_from_seen, needs_recall
from afterturn.scanners.secrets import RedactedHashes, redact_within, unnamed
from afterturn.text import content_hash, terms
from afterturn.types import HandoverPoint, Kind, LaneQuery, NoRecallReason, Scope, Status

if TYPE_CHECKING:
    from afterturn.dialects.dialect import CachedDialect, Element
    from afterturn.ports import Unit
    from afterturn.types import BlockRow, CarriedRow, Entry, Hit, StandingRow

# More candidates than a block holds: many are questions that were asked before, which are not shown by themselves.
CANDIDATES = 8
CANDIDATES_MIN = 32
# A user who pastes a log asks about its beginning, at best; more of it finds nothing better.
QUESTION_CHARS_MAX = 4_000
# Of a longer list, only the newest messages are read.
READ_MAX = 10_000
# How many messages of the user are searched for pasted text at most, which takes less than a second.
_PASTED_READ_MAX = 512
# A follow-up needs the subject of the message before it, not all of a page that was pasted.
PREVIOUS_CHARS_MAX = 400


class ShownMessages(NamedTuple):
    """A host's messages, and the blocks of ours that may be among them but are not in the store yet.

    `carried` is what an earlier turn left; None means: look in the store. Blocks of `turn` were added after the
    messages were copied. `is_new`: this process has read no turn of the conversation yet.
    """

    dialect: CachedDialect
    messages: Sequence[object]
    blocks: Mapping[str, BlockRow]
    now: float
    carried: tuple[Hit, ...] | None = None
    turn: str = ""
    unstored: frozenset[str] = frozenset()
    is_new: bool = False


class TurnReading(NamedTuple):
    """The result of reading a host's list, at the beginning of a turn or during it.

    `user` is the index and text of the latest user message, None if it has no text; `question` is None when there is
    nothing to recall for. `forgets` is the number of the newest forget. `indexes` are those of our blocks, by hash;
    `dropped` are blocks that the host left out while it rebuilt its prompt, and that are put back; `lost` are those
    whose neighbouring messages are gone too. `chain` was followed to the list's end. `is_tainted`: the list has text
    that neither the user nor the assistant wrote. `incognito`: the conversation is, in the store. `standing` is
    how the host gets the standing block, None if nothing tells yet; `sees_standing`: the model sees one that was
    injected; `corrections` are the statements that replace lines of the one that it sees.
    """

    blocks: Mapping[str, BlockRow]
    forgets: int
    user: tuple[int, str] | None
    ledger: Ledger
    question: RecallRequest | None
    indexes: Mapping[str, int] = {}
    dropped: tuple[BlockRow, ...] = ()
    lost: tuple[BlockRow, ...] = ()
    chain: MessageChain | None = None
    carried: CarriedRow | None = None
    carried_hits: tuple[Hit, ...] = ()
    is_tainted: bool = False
    incognito: bool = False
    standing: StandingDelivery | None = None
    sees_standing: bool = False
    corrections: tuple[Entry, ...] = ()

    def without_dropped(self) -> TurnReading:
        """For a host that has called its model already: what it left out stays out, and may be recalled again."""
        if not self.dropped:
            return self
        shown = [self.blocks[hash] for hash in self.indexes]
        unseen = frozenset(ref for row in self.dropped for ref in row.refs).difference(*(row.refs for row in shown))
        ledger = self.ledger._replace(
            refs=self.ledger.refs - unseen,
            size_bytes=self.ledger.size_bytes - sum(row.size_bytes for row in self.dropped),
        )
        question = self.question
        if question is not None:
            excluded = question.admitted.excluded_refs - unseen
            question = question._replace(
                admitted=question.admitted._replace(excluded_refs=excluded),
                repeatable_refs=question.repeatable_refs - unseen,
            )
        return self._replace(ledger=ledger, question=question, dropped=(), lost=(*self.lost, *self.dropped))


def read_turn(unit: Unit, shown: ShownMessages, scope: ConversationScope, config: Config) -> TurnReading:
    """Finds what the user said, which blocks of ours are in the list, and what an earlier turn carried over."""
    # Loaded here: a hook that answers alone reads no messages of a host.
    from afterturn.dialects.history import find_user_in, users_in

    stored = unit.conversations.read(scope.key)
    newer = {
        row.hash: _merge_row(row, shown.blocks.get(row.hash)) for row in stored.blocks if row.hash not in shown.unstored
    }
    blocks = {**shown.blocks, **newer}
    strip = functools.partial(spoken_words, known_hashes=blocks)
    # Of a list that no model can see as a whole, the older part counts as unreadable.
    unread = max(0, len(shown.messages) - READ_MAX)
    elements: list[Element | None] = [None] * unread
    elements += shown.dialect.read_all(islice(shown.messages, unread, None))
    shown.dialect.keep(shown.messages)
    user = find_user_in(users_in(elements), strip)
    state = stored.state
    # The question is stored, and the message before it may have been said in an incognito turn.
    is_usable = user is not None and not state.had_incognito and not scope.incognito
    previous = find_user_in(users_in(elements[: user[0]]), strip) if user and is_usable else None
    reading = _read_list(shown, elements, blocks, hashes(scanning=config.scan_policy))
    is_tainted = reading.is_untrusted or _any_pasted(unit, shown, scope, reading)
    if scope.is_hidden:
        seen = _Visible(reading.hidden_ledger(blocks, state.compacted_at))
    else:
        seen = _find_visible(unit, shown, scope, blocks, reading)
    given = [row for row in blocks.values() if row.point == HandoverPoint.STANDING]
    visible = {row.hash for row in given if row.in_sight} if scope.is_hidden else set(seen.indexes)
    visible.update(row.hash for row in seen.dropped)
    ledger = seen.ledger._replace(standing=_find_standing(unit, scope, blocks.values(), visible, stored.standing))
    carried, hits = _read_carried(unit, shown, scope, ledger, stored.carried)
    asked = ledger._replace(refs=ledger.refs.union(hit.entry.ref for hit in hits))
    return TurnReading(
        blocks=blocks,
        forgets=stored.forgets,
        user=user,
        ledger=ledger,
        question=make_question(user[1], scope, asked, config, previous=previous[1] if previous else "")
        if user
        else None,
        indexes=seen.indexes,
        dropped=seen.dropped,
        lost=seen.lost,
        chain=seen.chain,
        carried=carried,
        carried_hits=hits,
        is_tainted=is_tainted,
        incognito=state.incognito,
        standing=StandingDelivery.SYSTEM if stored.standing else StandingDelivery.INJECT if given else None,
        sees_standing=not visible.isdisjoint(row.hash for row in given),
        corrections=_find_corrections(unit, scope, ledger, shown.now),
    )


def _find_standing(
    unit: Unit,
    scope: ConversationScope,
    blocks: Iterable[BlockRow],
    visible: Collection[str],
    asked: StandingRow | None,
) -> StandingRow | None:
    """What stands in the sight of the model: in the list, in earlier prompts, or because the host `asked` for it."""
    from afterturn.types import StandingRow

    rows = [row for row in blocks if row.text.startswith(f"<{STANDING_TAG}>")]
    in_list = [row for row in rows if row.point == HandoverPoint.STANDING and row.hash in visible]
    # The prompts of earlier turns are gone. The next one begins with the same bytes, unless the host brings them.
    in_prompts = [row for row in rows if row.point == HandoverPoint.PROMPT and row.in_sight and asked is None]
    newest = sorted(in_prompts, key=lambda row: row.injected_at)[-1:]
    newest = [row for row in newest if not in_list and all_readable(unit, scope, row.refs)]
    found = [StandingRow(row.text, row.refs, row.injected_at) for row in (*in_list, *newest)]
    if asked is not None:
        found.append(asked)
    if len(found) < 2:
        return found[0] if found else None
    refs = tuple(dict.fromkeys(ref for row in found for ref in row.refs))
    return StandingRow("\n".join(row.text for row in found), refs, max(row.made_at for row in found))


def _find_corrections(unit: Unit, scope: ConversationScope, ledger: Ledger, now: float) -> tuple[Entry, ...]:
    """The current versions of statements that stand in an older one, unless the model reads their sources."""
    standing = ledger.standing
    if standing is None:
        return ()
    found: dict[str, Entry] = {}
    for old in unit.memories.versions(scope.readable, standing.refs).values():
        if old.kind is Kind.STATEMENT and old.status is Status.SUPERSEDED:
            current = unit.memories.get(Scope(scope.tenant, (old.space,)), old.id)
            if current.holds(now) and current.ref not in standing.refs:
                found[current.ref] = current
    return tuple(
        current
        for current in found.values()
        if not is_learned_from_seen(unit, scope.tenant, current, lambda record: ledger.sees(record, scope.id))
    )


def _merge_row(stored: BlockRow, known: BlockRow | None) -> BlockRow:
    """Another process may know of a compaction, and what this one knows of may not be in the store yet."""
    return stored if known is None or known.in_sight else replace(stored, in_sight=False)


class _Visible(NamedTuple):
    ledger: Ledger
    indexes: Mapping[str, int] = {}
    dropped: tuple[BlockRow, ...] = ()
    lost: tuple[BlockRow, ...] = ()
    chain: MessageChain | None = None


def _read_list(
    shown: ShownMessages, elements: list[Element | None], blocks: Collection[str], stored: RedactedHashes
) -> ListReading:
    earlier = shown.dialect.reading
    if not isinstance(earlier, ListReading) or not earlier.is_start_of(elements, blocks):
        earlier = ListReading(first_searched(elements))
    reading = shown.dialect.reading = earlier.extended(elements, shown.messages, blocks, stored)
    return reading


def _find_visible(
    unit: Unit, shown: ShownMessages, scope: ConversationScope, blocks: dict[str, BlockRow], reading: ListReading
) -> _Visible:
    found = reading.scan
    if not all(blocks[hash].in_sight for hash in found.blocks):
        # Reported as gone and shown all the same: a host kept a part of its history, or took up an old one.
        full = (row for row in unit.conversations.blocks(scope.key) if row.hash in found.blocks)
        blocks.update((row.hash, replace(row, in_sight=blocks[row.hash].in_sight)) for row in full)
    expected = visible_in_order([row for row in blocks.values() if not shown.turn or row.turn != shown.turn])
    dropped, lost = find_missing(found, expected, blocks)
    # Only now: where blocks were injected tells which of two equal places is theirs.
    blocks.update(found.anchored(blocks))
    # A host that may no longer read a space gets nothing of it back either.
    dropped = [row for row in dropped if all_readable(unit, scope, row.refs)]
    ledger = reading.ledger(blocks).with_blocks(dropped)
    return _Visible(ledger, found.blocks, tuple(dropped), tuple(lost), found.chain)


def _any_pasted(unit: Unit, shown: ShownMessages, scope: ConversationScope, reading: ListReading) -> bool:
    """Whether the user's messages have text of others in them, or are too many to be read.

    A host may bring a conversation along, or a summary of it. Messages of turns that memory knows are not read again in
    every process: the turns say whether they are tainted.
    """
    # Its patterns take an eighth of the time of `recall_block_once`, which reads no list. `open` imports it anyway.
    from afterturn.guard.pasted import any_pasted

    said = reading.said
    if shown.is_new and len(said) > 1:
        known = {turn.user_hash for turn in unit.conversations.turns(scope.key)}
        return any_pasted(
            [*(text for text in said[:-1] if content_hash(text) not in known), said[-1]], read_max=_PASTED_READ_MAX
        )
    if any_pasted(said[reading.said_checked :], read_max=_PASTED_READ_MAX):
        return True
    reading.said_checked = len(said)
    return False


def visible_in_order(blocks: Iterable[BlockRow]) -> list[BlockRow]:
    """The blocks that should be in a shown history, oldest first, those of one element in their order in it."""
    expected = [row for row in blocks if row.in_sight and row.anchor]
    # Of one element: the standing block, context files, which name no memories, memories.
    return sorted(
        expected,
        key=lambda row: (row.injected_at, row.point != HandoverPoint.STANDING, bool(row.refs), row.hash),
    )


def _read_carried(
    unit: Unit, shown: ShownMessages, scope: ConversationScope, ledger: Ledger, carried: CarriedRow | None
) -> tuple[CarriedRow | None, tuple[Hit, ...]]:
    def is_wanted(hit: Hit) -> bool:
        # Another host of the conversation may have carried it.
        return not (scope.trusted_only and shows_report(hit))

    if shown.carried is not None:
        now = unit.memories.versions(scope.readable, {hit.entry.ref for hit in shown.carried})
        fresh = [hit for hit in shown.carried if _is_fresh(now.get(hit.entry.ref), ledger, shown.now)]
        return None, tuple(filter(is_wanted, fresh))
    if carried is None:
        return None, ()
    hits = load_hits(unit, scope.readable, terms(carried.question), carried.candidates)
    return carried, tuple(hit for hit in hits if _is_fresh(hit.entry, ledger, shown.now) and is_wanted(hit))


def _is_fresh(entry: Entry | None, ledger: Ledger, now: float) -> bool:
    """Whether it may still be recalled, and the model does not see it."""
    if entry is None or not entry.holds(now):
        return False
    return entry.ref not in ledger.refs and entry.content_hash not in ledger.message_hashes


def make_question(
    text: str, scope: ConversationScope, ledger: Ledger, config: Config, *, previous: str = ""
) -> RecallRequest | None:
    """The question for what a user said, or None if it is not worth a recall: blank, an acknowledgement, recall off.

    A follow-up is asked together with the `previous` message of the user. Secrets are taken out here, because the text
    is embedded, stored and traced from now on.
    """
    if _is_off(config):
        return None
    if is_private(text):
        text = text.lstrip()[len(PRIVATE_PREFIX) :]
    if is_private(previous):
        previous = ""
    redacted = functools.partial(redact_within, scanner=scanner(scanning=config.scan_policy), mark=unnamed)
    asked = redacted(text, QUESTION_CHARS_MAX).text
    if not needs_recall(asked):
        return None
    if previous and is_follow_up(asked):
        asked = f"{redacted(previous, PREVIOUS_CHARS_MAX).text}\n{asked}"
    return make_request(asked, scope, ledger, config)


def make_request(text: str, scope: ConversationScope, ledger: Ledger, config: Config) -> RecallRequest:
    """A turn's question as recall takes it. `now` and `correlation` are set when it is asked."""
    request = RecallRequest(
        text=text,
        admitted=LaneQuery(
            scope.readable,
            0.0,
            conversation=scope.id,
            owner=scope.owner,
            trusted_only=scope.trusted_only,
            # What was said of a project stays there, and what a stranger's repository made an agent say.
            projects=scope.projects(config.scan_policy),
        ),
        limit=candidates_max(config),
        score_min=0.0,
    )
    return exclude_visible(request, scope, ledger)


def exclude_visible(request: RecallRequest, scope: ConversationScope, ledger: Ledger) -> RecallRequest:
    """The same question without what the model sees. A host that hides its history may be shown older things again."""
    admitted = request.admitted._replace(
        excluded_refs=ledger.refs, visible_hashes=ledger.message_hashes, seen_since=ledger.seen_since
    )
    repeatable = ledger.refs - ledger.shown_this_turn if scope.history is Visibility.HIDDEN else frozenset()
    return request._replace(admitted=admitted, repeatable_refs=repeatable, standing=ledger.standing)


def no_recall_reason(question: RecallRequest | None, config: Config) -> str:
    """Why nothing is asked, for the trace; blank when something is."""
    if question is not None:
        return ""
    return NoRecallReason.OFF if _is_off(config) else NoRecallReason.NOTHING_TO_ASK


def _is_off(config: Config) -> bool:
    return not config.recall or config.recall_entries_max == 0


def candidates_max(config: Config) -> int:
    """How many candidates are weighed at most."""
    return CHOICES_MAX if config.refined else max(CANDIDATES_MIN, config.recall_entries_max * CANDIDATES)
