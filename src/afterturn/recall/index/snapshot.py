"""Numbers for the conversations and speakers of a shelf, and how they are found again by id and by name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from heapq import nsmallest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afterturn.recall.index.postings import Postings
from afterturn.recall.index.vectors import Floats, Vectors
from afterturn.recall.query import NOBODY, SPEAKERS_MAX, has_content, name_words
from afterturn.recall.scoring import CONTEXT, MIDPOINT_STATED, RECENT, context_weight, is_own, prior
from afterturn.recall.store_search import GAP_MAX
from afterturn.text import words
from afterturn.types import IndexedEntry, Kind, Origin

NOWHERE = -1
# Measured, of a conversation with its id and of a speaker with a name of two words: strings, tuples, dictionaries.
_NAME_BYTES = 450


class Dictionary:
    """Numbers for conversations and speakers. Grows with rows that come; `drop` takes out what nothing is left of."""

    def __init__(self, space: str) -> None:
        self._space = space
        self._conversations: dict[tuple[str, str], int] = {}
        self._speakers: dict[str, int] = {}
        self._by_id: dict[str, set[int]] = {}
        self._by_word: dict[str, set[int]] = {}
        self._next = 0
        # How often speakers came and went, and the words of their names when it was so often.
        self._moves = 0
        self._named: tuple[int, frozenset[str]] = (0, NOBODY)

    @property
    def size_bytes(self) -> int:
        return (len(self._conversations) + len(self._speakers)) * _NAME_BYTES

    def conversation(self, owner: str | None, name: str | None) -> int:
        if name is None:
            return NOWHERE
        place = (owner or self._space, name)
        code = self._conversations.get(place)
        if code is None:
            code = self._next
            self._put_conversation(place, code)
        return code

    def speaker(self, name: str | None) -> int:
        if not name:
            return NOWHERE
        code = self._speakers.get(name)
        if code is None:
            code = self._next
            self._put_speaker(name, code)
        return code

    def find_conversations(self, owner: str | None, name: str) -> list[int]:
        """Without an owner, those of every owner."""
        if owner is None:
            return sorted(self._by_id.get(name, ()))
        code = self._conversations.get((owner, name))
        return [] if code is None else [code]

    def name_words(self) -> frozenset[str]:
        """Of as many speakers as a store would tell, and the same ones."""
        moves, (then, named) = self._moves, self._named
        if moves != then:
            named = name_words(nsmallest(SPEAKERS_MAX, list(self._speakers)))
            self._named = (moves, named)
        return named

    def find_speakers(self, names: frozenset[str]) -> list[int]:
        """Whose name has one of these words."""
        # Not by going through a set here, which another thread may be adding to.
        return sorted(set().union(*(self._by_word.get(name, ()) for name in names)))

    def drop(self, codes: set[int]) -> None:
        if not codes:
            return
        for place in [place for place, code in self._conversations.items() if code in codes]:
            code = self._conversations.pop(place)
            _discard(self._by_id, place[1], code)
        self._named = (-1, NOBODY)
        for name in [name for name, code in self._speakers.items() if code in codes]:
            code = self._speakers.pop(name)
            self._moves += 1
            for word in words(name):
                _discard(self._by_word, word, code)

    def _put_conversation(self, place: tuple[str, str], code: int) -> None:
        self._conversations[place] = code
        self._by_id.setdefault(place[1], set()).add(code)
        self._next = max(self._next, code + 1)

    def _put_speaker(self, name: str, code: int) -> None:
        self._speakers[name] = code
        self._moves += 1
        for word in words(name):
            self._by_word.setdefault(word, set()).add(code)
        self._next = max(self._next, code + 1)


def _discard(sets: dict[str, set[int]], name: str, code: int) -> None:
    # Another set, not a smaller one: a reader may be going through the old one.
    left = sets.get(name, set()) - {code}
    if left:
        sets[name] = left
    else:
        sets.pop(name, None)


# The rows of a shelf as arrays, as they stand at one moment: what is where in which conversation, and how recent.

NO_POSITION = np.iinfo(np.int64).min
WEIGHED_ROWS_MAX = 1024
"""Below this many rows, weighing all of them takes no longer than choosing."""
# What is said around a row is kept of those; of all, which of them are in which lane, and what scores 0.5 of each.
_CONTEXT_BYTES = 64
_LANE_BYTES = 12
# So many entries may have no vector yet before an answer tells, or so many in a hundred of a large space.
_MISSING_MAX = 64
_MISSING_PERCENT_MAX = 2
# Half an occurrence counts more than half of one (`saturated`). With this, estimates find 0.995 of the best ten.
_FIRST_OCCURRENCE = 1.6
# What is taken for a moment is taken in slices: of memory that was once in use, the process gives little back.
_SLICE = 4096
_FACTORS = np.repeat(np.array(CONTEXT, np.float32), 2)[:, None]
# Comparing with one after the other is faster than `isin` up to about here.
_COMPARED_MAX = 16


@dataclass(frozen=True, slots=True)
class Columns:
    """What never changes of a row; rows are added behind the ones in use."""

    keys: NDArray[np.int64]
    lengths: NDArray[np.float32]
    conversations: NDArray[np.int32]
    positions: NDArray[np.int64]
    speakers: NDArray[np.int32]
    is_record: NDArray[np.bool_]
    is_own: NDArray[np.float32]
    hears: NDArray[np.bool_]

    @property
    def capacity(self) -> int:
        return self.keys.size

    @property
    def size_bytes(self) -> int:
        return sum(getattr(self, field.name).nbytes for field in fields(self))

    def grown(self, capacity: int) -> Columns:
        return Columns(**{field.name: grown(getattr(self, field.name), capacity) for field in fields(self)})

    def put(self, start: int, other: Columns) -> None:
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            mine[start : start + theirs.size] = theirs

    def blank(self, rows: NDArray[np.int32]) -> None:
        """All but the keys, by which rows are found."""
        self.lengths[rows] = 0
        self.conversations[rows] = self.speakers[rows] = NOWHERE
        self.positions[rows] = NO_POSITION

    def uses(self, code: int, count: int) -> bool:
        """Among the first `count` rows; those behind are not in use yet."""
        return code in self.conversations[:count] or code in self.speakers[:count]


def read_facts(entries: Sequence[IndexedEntry], codes: Dictionary) -> Columns:
    return Columns(
        keys=np.array([entry.key for entry in entries], np.int64),
        lengths=np.array([len(entry.terms) for entry in entries], np.float32),
        conversations=np.array([codes.conversation(entry.owner, entry.conversation) for entry in entries], np.int32),
        positions=np.array([_position(entry) for entry in entries], np.int64),
        speakers=np.array([codes.speaker(entry.speaker) for entry in entries], np.int32),
        is_record=np.array([entry.kind is Kind.RECORD for entry in entries], np.bool_),
        is_own=np.array([is_own(entry.kind, entry.origin) for entry in entries], np.float32),
        hears=np.array([has_content(entry.terms) for entry in entries], np.bool_),
    )


def joined_facts(parts: Sequence[Columns]) -> Columns:
    columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(Columns)}
    return Columns(**{name: np.concatenate(column) for name, column in columns.items()})


class RowContext(NamedTuple):
    """What is said around some rows: (4, rows) whose words they hear, and what a term in each of those counts; and
    (2, rows) whose likeness to a question they share, themselves where they hear nobody."""

    around: NDArray[np.intp]
    said: NDArray[np.float32]
    near: NDArray[np.intp]


@dataclass(frozen=True)
class IndexSnapshot:
    """One state of a shelf. A later one shares `facts`, `vectors` and most postings, so making it costs little.

    `before` and `after` are the rows next to each in its conversation, the row itself where there is none. `spans` are
    lengths with the context, `priors` are for questions that name nobody, `newer` how many are newer. What is
    derived from them is so once, so nobody may ask for it before all rows are filled in.
    """

    count: int
    facts: Columns
    is_alive: NDArray[np.bool_]
    has_vector: NDArray[np.bool_]
    before: NDArray[np.intp]
    after: NDArray[np.intp]
    spans: NDArray[np.float32]
    newer: NDArray[np.float32]
    priors: NDArray[np.float32]
    postings: Postings
    vectors: Vectors | None

    @property
    def size_bytes(self) -> int:
        arrays = (self.is_alive, self.has_vector, self.before, self.after, self.spans, self.newer, self.priors)
        vectors_bytes = 0 if self.vectors is None else self.vectors.size_bytes
        context_bytes = _CONTEXT_BYTES if self.count <= WEIGHED_ROWS_MAX else 0
        derived_bytes = self.postings.size_bytes + vectors_bytes + self.count * (_LANE_BYTES + context_bytes)
        return sum(array.nbytes for array in arrays) + self.facts.size_bytes + derived_bytes

    def add_context(self, reached: Floats) -> None:
        """Adds, to what every row reaches, about what those around it do."""
        rows = (reached != 0).nonzero()[0]
        is_most = rows.size > self.count // 3
        if is_most:
            rows = np.arange(self.count)
        said = reached.take(rows, mode="wrap")
        said *= context_weight(self.facts.lengths.take(rows, mode="wrap"))
        said *= np.float32(_FIRST_OCCURRENCE)
        for towards in (self.before, self.after):
            (_hear if is_most else _tell)(reached, said, rows, towards)

    @cached_property
    def alive_count(self) -> int:
        return int(np.count_nonzero(self.is_alive))

    @cached_property
    def vectors_count(self) -> int:
        return int(np.count_nonzero(self.has_vector))

    @property
    def is_complete(self) -> bool:
        """Whether nearly every entry has a vector."""
        return is_nearly_all(self.vectors_count, self.alive_count)

    @cached_property
    def without_vector(self) -> NDArray[np.intp]:
        return np.flatnonzero(~self.has_vector)

    @cached_property
    def statements(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.is_alive & ~self.facts.is_record[: self.count])

    @cached_property
    def records(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.is_alive & self.facts.is_record[: self.count])

    @cached_property
    def deaf(self) -> NDArray[np.intp]:
        """The rows that say nothing by themselves, so that what is said around them does not count."""
        return np.flatnonzero(~self.facts.hears[: self.count])

    def midpoints(self, of_messages: float) -> Floats:
        """What scores 0.5 of each row. Of one space it is mostly asked for the same."""
        known = self._midpoints.get(of_messages)
        if known is None:
            known = np.full(self.count, of_messages, np.float32)
            known[self.statements] = MIDPOINT_STATED
            self._midpoints.clear()
            self._midpoints[of_messages] = known
        return known

    @cached_property
    def _midpoints(self) -> dict[float, Floats]:
        return {}

    @cached_property
    def whole_context(self) -> RowContext:
        """Of all rows."""
        return self.context(np.arange(self.count))

    def context(self, rows: NDArray[Any]) -> RowContext:
        around, there = self.around(rows)
        near = np.where(self.facts.hears.take(rows), around[:2], rows)
        return RowContext(around, self.said_around(around, there), near)

    def around(self, rows: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """(4, rows): those before and after, then those beyond them; and whether there is one."""
        found = np.empty((4, len(rows)), np.intp)
        found[0], found[1] = self.before.take(rows), self.after.take(rows)
        found[2], found[3] = self.before.take(found[0]), self.after.take(found[1])
        there = np.empty(found.shape, np.bool_)
        np.not_equal(found[:2], rows, out=there[:2])
        np.not_equal(found[2:], found[:2], out=there[2:])
        there[2:] &= there[:2]
        # What says nothing by itself is not made an answer by what is said around it.
        there &= self.facts.hears.take(rows)
        return found, there

    def said_around(self, found: NDArray[np.intp], there: NDArray[np.bool_]) -> NDArray[np.float32]:
        """What a term in each of them counts."""
        said: NDArray[np.float32] = context_weight(self.facts.lengths.take(found))
        said *= _FACTORS
        said *= there
        return said


def is_nearly_all(present: int, documents: int) -> bool:
    """A message that was just recorded has no vector yet, which is nothing to warn of."""
    missing = documents - present
    allowed = max(_MISSING_MAX, documents * _MISSING_PERCENT_MAX // 100)
    return missing <= 0 or missing <= min(allowed, present - 1)


def link(edition: IndexSnapshot, conversations: set[int] | None) -> None:
    """Finds who stands next to whom: in these conversations, or in all. On an edition that nobody reads yet."""
    facts, count = edition.facts, edition.count
    of = facts.conversations[:count]
    chosen = edition.is_alive & facts.is_record[:count] & (facts.positions[:count] != NO_POSITION)
    chosen &= of >= 0 if conversations is None else among(of, conversations)
    rows = np.flatnonzero(chosen).astype(np.int32)
    if not rows.size:
        return
    rows = rows[np.lexsort((facts.keys[rows], facts.positions[rows], of[rows]))]
    edition.before[rows] = _previous(facts, rows, step=1)
    edition.after[rows] = _previous(facts, rows, step=-1)
    for start in range(0, rows.size, _SLICE):
        some = rows[start : start + _SLICE]
        found, there = edition.around(some)
        said = edition.said_around(found, there)
        edition.spans[some] = facts.lengths[some] + (said * facts.lengths[found]).sum(axis=0)


def stand(edition: IndexSnapshot) -> None:
    """How recent each row is. On an edition that nobody reads yet."""
    alive = np.flatnonzero(edition.is_alive)
    keys = edition.facts.keys[alive]
    if np.any(keys[1:] < keys[:-1]):
        alive = alive[np.argsort(keys, kind="stable")]
    newest = alive[-RECENT:]
    edition.newer[:] = RECENT
    edition.newer[newest] = np.arange(newest.size - 1, -1, -1)
    own = edition.facts.is_own[: edition.count]
    edition.priors[:] = prior(np.zeros(1, np.float32), own, edition.newer)


def stand_behind(edition: IndexSnapshot, added: int) -> None:
    """The same where the last `added` rows are newer than all others, of which none has gone since they stood."""
    rows = np.append(np.flatnonzero(edition.newer[:-added] < RECENT), np.arange(edition.count - added, edition.count))
    newer = edition.newer[rows] + np.float32(added)
    newer[-added:] = np.arange(added - 1, -1, -1)
    edition.newer[rows] = newer = np.minimum(newer, np.float32(RECENT))
    edition.priors[rows] = prior(np.zeros(1, np.float32), edition.facts.is_own[rows], newer)


def _tell(reached: Floats, said: Floats, rows: NDArray[np.intp], towards: NDArray[np.intp]) -> None:
    """Adds what each of `rows` says to the rows on one side of it."""
    for factor in CONTEXT:
        further = towards.take(rows, mode="wrap")
        # At the end of a conversation a row is beside itself.
        said = said * (further != rows)
        np.add.at(reached, further, said * np.float32(factor))
        rows = further


def _hear(reached: Floats, said: Floats, rows: NDArray[np.intp], towards: NDArray[np.intp]) -> None:
    """The same from the other end, which is faster where most rows have something to say."""
    is_there = towards != rows
    nearest, furthest = CONTEXT
    heard = said.take(towards, mode="wrap")
    heard *= is_there
    heard *= np.float32(furthest)
    heard += said * np.float32(nearest)
    heard = heard.take(towards, mode="wrap")
    heard *= is_there
    reached += heard


def _previous(facts: Columns, rows: NDArray[np.int32], *, step: int) -> NDArray[np.int32]:
    """For each row its neighbour on one side, or itself. Of records in one position the newest stands for all."""
    ordered = rows[::step]
    conversations, positions = facts.conversations[ordered], facts.positions[ordered]
    starts = np.ones(rows.size, np.bool_)
    starts[1:] = (conversations[1:] != conversations[:-1]) | (positions[1:] != positions[:-1])
    firsts = np.flatnonzero(starts)
    newest = np.append(firsts[1:], rows.size) - 1 if step > 0 else firsts
    near = conversations[firsts[1:]] == conversations[firsts[:-1]]
    near &= np.abs(positions[firsts[1:]] - positions[firsts[:-1]]) <= GAP_MAX
    neighbours = np.full(firsts.size, -1, np.int32)
    neighbours[1:][near] = ordered[newest[:-1]][near]
    of_rows = neighbours[np.cumsum(starts) - 1]
    return np.where(of_rows < 0, ordered, of_rows)[::step]


def among(codes: NDArray[np.int32], wanted: Collection[int]) -> NDArray[np.bool_]:
    if len(wanted) > _COMPARED_MAX:
        return np.isin(codes, np.fromiter(wanted, np.int32, len(wanted)))
    found = np.zeros(codes.shape, np.bool_)
    for code in wanted:
        found |= codes == code
    return found


def _position(entry: IndexedEntry) -> int:
    # What a tool answered is nobody's context (C6).
    return NO_POSITION if entry.position is None or entry.origin is Origin.TOOL else entry.position


def grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    grown = np.empty(size, array.dtype)
    grown[: array.size] = array
    grown[array.size :] = 0
    return grown
