"""The repositories of a store for what is remembered: entries, operations on them, and the index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from afterturn.types import Filter, LaneQuery, Step
    from afterturn.types.entries import Entry, Kind, Scope, Status, Target
    from afterturn.types.operations import Added, Admitted, Erased, LoggedOperation, Operation, Selector, SpaceSummary
    from afterturn.types.searches import Changes, EmbedderIdentity, IndexedEntry, SpaceStats


class Memories(Protocol):
    """Statements and their versions. Reads also return records, if the filter admits them."""

    def add(self, operation: Operation, admitted: Admitted) -> Added:
        """Stores a statement. If an active one with the same space, agent, project, target and content hash exists,
        returns that.

        A more trusted origin then creates a new version with the higher trust and `created=False`: it stays pinned,
        metadata and sources are merged (the new ones first, within their limits), and validity and expiry stay unless
        the draft has its own. An equally trusted origin only adds its sources, if the existing one has some. An
        existing one that has expired at `admitted.recorded_at` is replaced. A quarantined draft is stored with that
        status. So is a proposed one, unless the same statement is active or proposed already: then that one is
        returned.
        """

    def update(self, operation: Operation, entry_id: str, admitted: Admitted, *, expected_version: int | None) -> Entry:
        """Replaces the active version. Raises NotFound if the space has no such id.

        Raises Conflict if the active version is not `expected_version`, if there is none, or if another memory has the
        new text. A proposed draft is stored as the next version and waits; the active version stays. Raises Conflict if
        a change of this memory is waiting already, or another proposal has the same text.
        """

    def add_again(self, operation: Operation, admitted: Admitted) -> Entry:
        """Stores the next version of the memory `admitted.id`, of which none is active, for example after a delete.

        Raises NotFound if the space has no such id, Conflict if a version is active or another memory has the text.
        """

    def postpone(self, operation: Operation, entry_id: str, *, expires_at: float) -> None:
        """Changes when the active version expires. It remains the same version, and this cannot be undone."""

    def propose_delete(self, operation: Operation, entry_id: str, *, expected_version: int | None) -> Entry:
        """Stores a next version with the same text and the status `withdrawal`; the active one stays until it is
        approved.

        Raises Conflict as `update` does.
        """

    def waiting_since(self, tenant: str, recorded_before: float, *, limit: int) -> list[tuple[str, str]]:
        """Returns (space, id) of proposals that were made before that time."""

    def approve(self, operation: Operation, entry_id: str) -> Entry:
        """Applies a proposal: a statement or change becomes active, a withdrawal deletes the active version.

        Undo makes it wait again. Raises Conflict if the same statement is active already, if the memory has changed
        since, or if nothing is waiting; NotFound if the space has no such id.
        """

    def delete(self, operation: Operation, entry_id: str) -> Entry:
        """Rejects a waiting proposal, or else hides the active version. Undo brings it back. Works on records too."""

    def hide(self, operation: Operation, entry_id: str) -> Entry:
        """Takes the active version out of the standing context, or puts it back, by a step that does not change its
        status. Undo adds such a step too. Works on records too."""

    def get(self, scope: Scope, entry_id: str, *, version: int | None = None) -> Entry:
        """Returns the active version, or the given one. Raises NotFound outside the scope.

        If none is active, returns the newest, whatever its status. A proposed, rejected or undone version next to an
        active one is only returned if `version` names it.
        """

    def versions(self, scope: Scope, refs: Collection[str]) -> dict[str, Entry]:
        """Returns those of the versions that the scope has, whatever their status, by reference."""

    def page(self, scope: Scope, filter: Filter, *, limit: int, before: str | None = None) -> list[Entry]:
        """Returns entries by id, highest first, to read everything. `before` continues after that id.

        Each id is returned once: its active version if the filter admits it, else its newest with one of the statuses.
        """

    def newest(self, scope: Scope, filter: Filter, *, limit: int, before: str | None = None) -> list[Entry]:
        """Returns the same entries as `page`, by `occurred_at`, newest first, ties by id. Raises NotFound if `before`
        is unknown."""

    def learned_from(self, scope: Scope, sources: Collection[str], statuses: Collection[Status]) -> list[Entry]:
        """Returns the versions of statements that were learned from one of these records, newest last."""

    def history(self, scope: Scope, entry_id: str) -> list[Entry]:
        """Returns every version, oldest first. Raises NotFound if there is none."""

    def known_at(self, query: LaneQuery, at: float) -> list[Entry]:
        """Returns the versions that were active at time `at`, by the operations until then. May be slow.

        The scope, lane, conversation, exclusions and filter of `query` apply, but not the filter's statuses.
        """

    def counts(self, scope: Scope) -> dict[tuple[str, Kind, Status], int]: ...

    def spaces(self, tenant: str) -> list[SpaceSummary]:
        """Returns the tenant's spaces that hold an entry of any status, by name. Only active entries are counted."""

    def space_names(self, tenant: str, prefix: str) -> list[str]:
        """Returns the names of the tenant's spaces that begin with `prefix`, in order, also of those that are empty."""

    def size(self, scope: Scope, target: Target) -> tuple[int, int]:
        """Returns the number of active statements about this target, and their size in bytes of UTF-8."""


class Records(Protocol):
    """Recorded messages. They are never updated, and never count as duplicates."""

    def add(self, operation: Operation, admitted: Sequence[Admitted]) -> list[Entry]: ...

    def of_conversation(self, scope: Scope, conversation: str, *, limit: int, owner: str | None = None) -> list[Entry]:
        """Returns the newest `limit` active records, oldest first. Without `owner`, those of every owner's
        conversation."""

    def most_telling(self, scope: Scope, filter: Filter, *, limit: int) -> list[Entry]:
        """Returns, of each space, the active records that the filter admits with the highest `Admitted.telling`, by id,
        highest first, where that is equal. Those with 0 are not returned."""

    def next_position(self, tenant: str, space: str, conversation: str, *, owner: str | None = None) -> int:
        """Returns the position of the conversation's next record in this space. Without `owner`, the space is the
        owner."""

    def older_than(self, tenant: str, recorded_before: float, *, limit: int) -> list[tuple[str, str]]:
        """Returns (space, id) of records that were recorded before that time."""

    def spaces_of(
        self, tenant: str, owner: str, *, conversation: str | None = None, speaker: str | None = None
    ) -> list[str]:
        """Returns the names of other spaces that have records of this owner's conversations, in alphabetical order."""


class Operations(Protocol):
    """The history of a store. Every write belongs to an operation; undo and forget work on operations.

    An operation is stored with its first step: one that changes nothing, such as adding a duplicate, is not stored. A
    write raises Conflict if an earlier unit used the id.
    """

    def page(
        self, scope: Scope, *, limit: int, entry_id: str | None = None, before: str | None = None
    ) -> list[Operation]:
        """Returns operations, newest first; with `entry_id`, those on it. `before` continues after that id."""

    def log(self, scope: Scope, *, limit: int) -> list[LoggedOperation]:
        """Returns operations, newest first, each with a memory that it changed."""

    def steps(
        self, scope: Scope, *, operation_id: str | None = None, entry_id: str | None = None, group: str | None = None
    ) -> list[Step]:
        """Returns the steps of one operation, of a group, or on one entry, oldest first."""

    def undo(self, operation: Operation, *, target: str) -> list[Step]:
        """Reverses the operation or the group `target` exactly: each step's entry returns to its former state.

        Raises Conflict, and changes nothing, if a later operation changed one of them, if a restored statement would
        duplicate an active one, or if two changes of one memory would be waiting. Raises NotFound if this space has no
        such operation.
        """

    def forget(self, tenant: str, space: str, selector: Selector, *, at: float) -> Erased:
        """Erases the rows: text, all versions, vectors, index entries, jobs and their errors, timeline and turns.

        Also erases what conversations keep of an entry: the texts of blocks and standing blocks with it, candidates
        that name it, and messages that reviews are still to read (see `Reviews`). For a recorded message, also the
        questions of its turn; for a speaker, also the questions of turns that were not recorded, since it is not known
        who asked them.

        Statements that were learned only from what is erased are erased too: those of this space, and in all of the
        tenant's spaces those learned from its records, unless another space holds the same record. A statement with
        other sources stays, without this one. In a shared space, a conversation is erased for every owner with that id,
        with the timeline and the questions that the owners' spaces keep of it. Not erased: records in another space of
        a conversation of this one, and ids in blocks there. Texts of blocks and standing blocks are erased in all of
        the tenant's spaces.

        Blocks stay known by their hash (`Conversations.blocks`). Recordings that began before are refused
        (`Conversations.is_forgotten`). Version numbers are not used again while a version of the memory is
        left. `Store.scrub` removes the bytes.
        """


class Index(Protocol):
    """The data that recall searches. All of it is derived from entries and removed with them."""

    def stats(self, scope: Scope) -> dict[str, SpaceStats]:
        """Returns the size of each space. A space without entries is absent."""

    def frequencies(self, scope: Scope, terms: Sequence[str]) -> dict[str, dict[str, int]]:
        """Returns, by space, how many active entries contain each term. A term that none contains is absent."""

    def matches(
        self, query: LaneQuery, terms: Sequence[str], *, limit: int, terms_max: int | None = None, at_least: int = 1
    ) -> list[IndexedEntry]:
        """Returns active, unexpired entries in the scope and lane that contain `at_least` of the terms, which are
        distinct.

        The newest `limit`, newest first. `terms_max` limits the number of terms of all of them together: the longest
        entries are left out, but never all.
        """

    def resolve(self, query: LaneQuery, keys: Sequence[int]) -> dict[int, Entry]:
        """Returns, by key, the entries that the query admits, in no particular order."""

    def around(self, query: LaneQuery, keys: Sequence[int], *, reach: int) -> list[tuple[IndexedEntry, bool]]:
        """Returns the records at most `reach` messages away from these in their conversations, and these themselves.

        Each with whether the query would return it as a result. They are active and in the scope, but need not match
        the rest of the query. Tool outputs are not included.
        """

    def speakers(self, scope: Scope, *, limit: int) -> list[str]:
        """Returns the speakers of these spaces, at most `limit` in each."""

    def newest(self, tenant: str, space: str, *, limit: int) -> list[int]:
        """Returns the keys of active entries, newest first."""

    def entries(
        self, tenant: str, space: str, *, keys: Sequence[int] | None = None, after: int = 0, limit: int
    ) -> list[IndexedEntry]:
        """Active entries by key: of `keys`, or the first `limit` behind key `after`."""

    def changes(self, tenant: str, space: str, *, since: int) -> Changes:
        """Returns the keys of versions that were added or removed, or got a vector or other sources, since `since`.

        A restore changes `generation`.
        """

    def keys_of(self, tenant: str, space: str, ids: Sequence[str]) -> dict[str, int]:
        """Returns the keys of the active entries with these ids."""

    def vectors(self, tenant: str, space: str, embedder: EmbedderIdentity, keys: Sequence[int]) -> dict[int, bytes]:
        """Returns, by key, the vectors of those of `keys` that are active, as little-endian float16."""

    def put_vectors(
        self, tenant: str, space: str, embedder: EmbedderIdentity, vectors: Sequence[tuple[int, bytes]]
    ) -> int:
        """Stores the vectors of those entries that the space still has, and returns how many. Raises ValueError for a
        wrong size."""

    def adopt(self, embedder: EmbedderIdentity) -> list[tuple[str, str]]:
        """Makes this the embedder of the store.

        If it was another one, or none, returns (tenant, space) of all spaces with entries, which must be embedded
        again. Empty if it is the same.
        """

    def adopted(self) -> EmbedderIdentity | None:
        """Returns the store's embedder, None before the first."""

    def unembedded(self, tenant: str, space: str, embedder: EmbedderIdentity, *, limit: int) -> list[tuple[int, str]]:
        """Returns (key, text) of active entries without a vector of this embedder, oldest first. Long texts are cut.

        Recorded tool outputs get no vector: they are kept as evidence and not recalled.
        """

    def waiting(self, tenant: str, embedder: EmbedderIdentity, *, space: str | None = None) -> int:
        """Returns the number of entries that `unembedded` would return without a limit, in one space or in all."""

    def has_abandoned(self, tenant: str, space: str, embedder: EmbedderIdentity) -> bool:
        """Whether the space has vectors of embedders other than the store's, which is `embedder`."""

    def drop_abandoned(self, tenant: str, space: str, embedder: EmbedderIdentity, *, limit: int) -> int:
        """Removes up to `limit` of those vectors and returns how many.

        Does nothing if `embedder` is not, or is no longer, the store's: two processes that disagree must not undo each
        other's work forever.
        """
