"""From a host's messages to a question: reads the list, finds what the model sees, and asks what is worth a recall.

The `Ledger` has the memories and messages that the model sees now, by the host's messages or by what was delivered;
`ListReading` finds our blocks in a list, and the places of blocks that a host dropped while it rebuilt its list. Runs
on a reader's thread. Imports neither asyncio nor numpy, so that `recall_block_once` can use it too.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from afterturn.config import Config
from afterturn.conversation.scope import PRIVATE_PREFIX, ConversationScope, StandingDelivery, Visibility, is_private
from afterturn.guard.output_filter import STANDING_TAG
from afterturn.guard.scanning import hashes, scanner
from afterturn.recall.answer import all_readable, load_hits
from afterturn.recall.block import CHOICES_MAX, find_blocks, spoken_words, strip_blocks
from afterturn.recall.features import shows_report
from afterturn.recall.query import RecallRequest, is_follow_up, is_learned_from_seen, needs_recall
from afterturn.scanners.secrets import RedactedHashes, redact_within, unnamed
from afterturn.text import content_hash, terms
from afterturn.types import HandoverPoint, Kind, LaneQuery, NoRecallReason, Scope, Status

if TYPE_CHECKING:
    from afterturn.dialects.dialect import CachedDialect, Dialect, Element
    from afterturn.ports import Unit
    from afterturn.types import BlockRow, CarriedRow, Entry, Hit, StandingRow

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
        self._start = self._cleared = 0
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
        elements: Sequence[Element | None],
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
        for at in range(len(self.elements), len(elements)):
            other._read(at, elements, messages[at], known, stored)
        return other

    def _read(
        self,
        at: int,
        elements: Sequence[Element | None],
        message: object,
        known: Collection[str],
        stored: RedactedHashes | None,
    ) -> None:
        self.elements.append(element := elements[at])
        ours, spoken = _split_blocks(element, known) if element is not None else ((), None)
        if at >= self._first:
            # Our blocks count to the place before them, so a block is put back after those that are there.
            self._chain.step(message, element, spoken.digest if spoken is not None else "")
            if element is not None and element.is_compacted_since(self._cleared) and not _is_compact_list(elements, at):
                # What is before it may still be in the host's list, and the provider's model does not see it.
                self._start, self._cleared = at, max(element.compacted, 0)
                for seen in (self._blocks, self._places, self._anchors, self._visible, self._hashes):
                    seen.clear()
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
        is_complete = self._first == 0 or self._start > 0
        return BlockScan(self._blocks, self._places, self._anchors, self._chain, is_complete, self._start)


def _is_compact_list(elements: Sequence[Element | None], at: int) -> bool:
    """Whether the list to its item at `at` is an output of OpenAI's `/responses/compact`: what users said, then the
    item. The model sees all of that. An item with which an answer begins has the rest of the answer after it."""
    item, others = elements[at], [*elements[:at], *elements[at + 1 : at + 2]]
    are_typed = all(one is not None and one.role not in ("assistant", "tool") for one in others)
    return are_typed and item is not None and item.outside and not item.utterances


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
        found = element.derived[stored] = tuple([stored.of(message.text, message.hash) for message in spoken])
    return found


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
    first = first_searched(messages)
    elements = [None] * first + [dialect.read(message) for message in messages[first:]]
    return ListReading(first).extended(elements, messages, known, None).scan


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
    from afterturn.dialects.history import find_user_in

    stored = unit.conversations.read(scope.key)
    blocks = {**shown.blocks}
    for row in stored.blocks:
        # Another process may know of a compaction, and what this one knows of may not be in the store yet.
        if row.hash not in shown.unstored:
            known = shown.blocks.get(row.hash)
            blocks[row.hash] = row if known is None or known.in_sight else replace(row, in_sight=False)
    strip = functools.partial(spoken_words, known_hashes=blocks)
    # Of a list that no model can see as a whole, the older part counts as unreadable.
    unread = max(0, len(shown.messages) - READ_MAX)
    elements: list[Element | None] = [None] * unread
    elements += shown.dialect.read_all(list(islice(shown.messages, unread, None)))
    shown.dialect.keep(shown.messages)
    user = find_user_in(elements, strip)
    state = stored.state
    # The question is stored, and the message before it may have been said in an incognito turn.
    is_usable = user is not None and not state.had_incognito and not scope.incognito
    previous = find_user_in(elements[: user[0]], strip) if user and is_usable else None
    earlier = shown.dialect.reading
    if not isinstance(earlier, ListReading) or not earlier.is_start_of(elements, blocks):
        earlier = ListReading(first_searched(elements))
    reading = earlier.extended(elements, shown.messages, blocks, hashes(scanning=config.scan_policy))
    shown.dialect.reading = reading
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


class _Visible(NamedTuple):
    ledger: Ledger
    indexes: Mapping[str, int] = {}
    dropped: tuple[BlockRow, ...] = ()
    lost: tuple[BlockRow, ...] = ()
    chain: MessageChain | None = None


def _find_visible(
    unit: Unit, shown: ShownMessages, scope: ConversationScope, blocks: dict[str, BlockRow], reading: ListReading
) -> _Visible:
    found = reading.scan
    if not all(blocks[hash].in_sight for hash in found.blocks):
        # Reported as gone and shown all the same: a host kept a part of its history, or took up an old one.
        full = (row for row in unit.conversations.blocks(scope.key) if row.hash in found.blocks)
        blocks.update((row.hash, replace(row, in_sight=blocks[row.hash].in_sight)) for row in full)
    expected = visible_in_order([row for row in blocks.values() if not shown.turn or row.turn != shown.turn])
    # Of a turn that is resumed, the first list that its host gives shows which ones are gone.
    dropped, lost = find_missing(found, expected, blocks) if shown.messages or shown.turn else (expected, [])
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
