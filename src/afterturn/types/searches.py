"""Searches: what they may return, what an index knows of entries, and what they find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal, NamedTuple, overload

from afterturn.types.entries import Entry, Kind, Origin, Scalar, Scope, Status, Target


class Lane(StrEnum):
    """A part of memory that is searched separately. It is computed for each query and never stored.

    The order is the order in a block.
    """

    SHORT_TERM = "short_term"
    LONG_TERM = "long_term"
    EPISODIC = "episodic"


@dataclass(frozen=True, slots=True)
class Filter:
    """Limits `search` and `list` to some entries. All fields that are set must match.

    `project` is a name, or a tuple of names in which None means entries without a project. A `metadata` value must
    be equal to the given one, or to one of a tuple; 1 equals 1.0, but not True. `since` (inclusive) and `until`
    (exclusive) limit `occurred_at`: Unix seconds, a datetime with a time zone, or an ISO-8601 text with an offset.
    `trusted` is False for reports: words of others that are quoted.
    """

    kind: Kind | Literal["statement", "record"] | None = None
    target: Target | Literal["user", "environment"] | None = None
    agent: str | None = None
    project: str | tuple[str | None, ...] | None = None
    conversation: str | None = None
    pinned: bool | None = None
    firm: bool | None = None
    origin: Origin | str | None = None
    trusted: bool | None = None
    metadata: Mapping[str, Scalar | tuple[Scalar, ...]] = field(default_factory=dict, hash=False)
    statuses: tuple[Status, ...] = (Status.ACTIVE,)
    since: float | datetime | str | None = None
    until: float | datetime | str | None = None


ANYTHING = Filter()
"""The filter that admits every active entry."""


class LaneQuery(NamedTuple):
    """The entries that one lane may return at `now`. Exclusions apply inside the query, before any limit.

    `excluded_refs` are versions that the model has seen; `visible_hashes` are content hashes of messages that it sees
    now; `excluded_ids` are memories that the caller does not want, in any version. `lane=None` searches statements and
    records. Recorded tool outputs are returned only with `evidence`, for a review.

    `conversation` belongs to the space `owner`: the same id under another owner is another conversation. Without
    `owner`, only the id counts. Records of the conversation after `seen_since` are not returned, because a host with a
    hidden history still shows them to its model. Nor is a statement if the model sees all its sources in one of these
    ways. With `trusted_only`, nothing that has words of others in it is returned. `projects` are those at hand: of
    others only what is about the user is returned, and no report. None: no restriction.
    """

    scope: Scope
    now: float
    lane: Lane | None = None
    conversation: str | None = None
    owner: str | None = None
    excluded_refs: frozenset[str] = frozenset()
    visible_hashes: frozenset[str] = frozenset()
    excluded_ids: frozenset[str] = frozenset()
    seen_since: float | None = None
    filter: Filter = ANYTHING
    evidence: bool = False
    trusted_only: bool = False
    projects: tuple[str, ...] | None = None


class IndexedEntry(NamedTuple):
    """The fields by which an active entry is ranked, except its vector. A tuple, since there are many."""

    key: int
    space: str
    kind: Kind
    origin: Origin
    speaker: str | None
    conversation: str | None
    owner: str | None
    position: int | None
    terms: tuple[str, ...]


class SpaceStats(NamedTuple):
    """How much of a space is searchable, and the number of its newest change."""

    documents: int
    terms_total: int
    seq: int


class Changes(NamedTuple):
    """The keys that changed in a space since a sequence number. `keys=None`: too long ago to say, rebuild."""

    generation: str
    seq: int
    keys: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Hit:
    """One entry that a search found, with its scores. `lexical` and `similarity` are between 0 and 1.

    `similarity` is None without vectors. `terms` are the terms of the query that the entry contains, in their indexed
    form. `partner` is the other message of a record's exchange: the answer to it, or the message that it answers.
    `is_earlier` means that a newer hit says what holds now. In a block, `answer` is shown in the same line, and
    `late_for` is the earlier message that it was recalled for, if that is over.
    """

    entry: Entry
    lane: Lane
    score: float
    lexical: float
    similarity: float | None
    terms: tuple[str, ...]
    partner: Entry | None = None
    is_earlier: bool = False
    answer: Entry | None = None
    late_for: str = ""


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The result of a search, best hits first: a sequence of its hits, which it also has as `hits`.

    `query` is the text that was searched for, without secrets. `missing` names what was not available: a lane,
    "vectors" or "store". `correlation` is the id of this search in events. `weights` are those of the query's terms,
    `names` those of its words that name a speaker.
    """

    query: str
    hits: tuple[Hit, ...]
    missing: tuple[str, ...] = ()
    correlation: str = ""
    weights: Mapping[str, float] = field(default_factory=dict, repr=False, compare=False)
    names: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """Identifies an embedder and its version. Vectors of different identities are never compared."""

    name: str
    version: str
    dimensions: int
    normalised: bool = True


class EventContent(NamedTuple):
    """The texts that an event is about, without secrets: what was searched for, and memories by their ids."""

    query: str
    texts: Mapping[str, str]
