"""The ports: protocols for stores, models, embedders, clocks and workers. `services.py` chooses the implementations.

A docstring here is a contract. `afterturn.testing.conformance` tests every store against those of units of work, their
repositories, `write`, `read`, `scrub` and `close`. Each store's own tests show its check, and SQLite's its `FileStore`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from afterturn.types import (
    Added,
    Admitted,
    BlockRow,
    CarriedRow,
    Changes,
    ContextEntry,
    ConversationKey,
    ConversationSnapshot,
    ConversationState,
    EmbedderIdentity,
    Entry,
    Erased,
    Event,
    Filter,
    Finding,
    IndexedEntry,
    Job,
    Kind,
    LaneQuery,
    LoggedOperation,
    Message,
    Metadata,
    Operation,
    RecallRow,
    RemainingBytes,
    ReviewMessage,
    ReviewRow,
    Scope,
    Selector,
    SpaceStats,
    SpaceSummary,
    StandingRow,
    Status,
    Step,
    StoredTurn,
    Taint,
    Target,
    TurnRow,
    TurnStatus,
    UnitScope,
    UsageRow,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

R = TypeVar("R")

# How many ended reviews a space keeps: those of a month of busy days, at a few hundred bytes each.
REVIEWS_MAX = 1_000


class Clock(Protocol):
    """Time, so that tests and simulations can control it."""

    def now(self) -> float:
        """Unix seconds, for times that are stored or shown."""

    def monotonic(self) -> float:
        """Seconds that never go back, for deadlines."""


class Ids(Protocol):
    """Makes ids."""

    def new(self) -> str:
        """A new id, which sorts after all earlier ones of this process."""


class Worker(Protocol):
    """Runs blocking work on a thread, in the order in which it was posted."""

    def post(self, work: Callable[[], None]) -> None:
        """Returns at once. `work` must not raise."""

    def close(self, *, within: float) -> bool:
        """Runs what was posted, then ends. Returns False if that takes longer than `within` seconds."""


class Embedder(Protocol):
    """Turns texts into vectors. It is called on several threads at the same time."""

    @property
    def identity(self) -> EmbedderIdentity:
        """Name, version and dimensions. Vectors are stored under it."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns one row for each text, of length 1, or zeros for a text without content.

        May block. Raises EmbedderUnavailable.
        """


# An embedder may also implement these.


@runtime_checkable
class Batching(Protocol):
    """An embedder that releases Python's global lock, or runs elsewhere.

    Other embedders get few texts at a time, with pauses, so that they do not delay turns.
    """

    @property
    def batch_texts(self) -> int:
        """The best number of texts for one call."""


@runtime_checkable
class Immediate(Protocol):
    """An embedder that may be called on any thread."""

    @property
    def is_immediate(self) -> bool:
        """Whether embedding a question takes no longer than passing it to another thread."""


@runtime_checkable
class Gradual(Protocol):
    """An embedder that can be loaded step by step."""

    def load_gradually(self, pause: Callable[[], object]) -> None:
        """Calls `pause` every few milliseconds. Raises EmbedderUnavailable if it cannot be loaded."""


@runtime_checkable
class Closable(Protocol):
    """An embedder that holds resources, such as connections."""

    def close(self) -> None:
        """Ends running calls, from any thread; `embed` then raises EmbedderUnavailable. May be called twice."""


class Aside(Protocol):
    """An embedder in another process, for one long backlog. Belongs to one event loop.

    `receive` raises EmbedderUnavailable if the process ended, hangs or sends invalid data. Only `close` may be called
    then.
    """

    def send(self, texts: Sequence[str]) -> None:
        """Returns at once. Several batches may be sent before the first result."""

    async def receive(self) -> list[bytes]:
        """Returns the vectors of the oldest batch without a result, in the form that a store takes."""

    async def close(self) -> None:
        """Stops the process and waits for its end, for a limited time. May be called twice."""


@runtime_checkable
class Separable(Protocol):
    """An embedder that can run in another process too."""

    async def start_aside(self) -> Aside | None:
        """Returns before the process is ready. None if no process can be started."""


class ChatModel(Protocol):
    """A chat model: messages in, one assistant message out, in the format of OpenAI's chat completions.

    It may be called from any event loop, several times concurrently. Cancelling a call ends it.
    """

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Returns the assistant's message.

        `schema` is the JSON Schema of the wanted answer; a model that does not support it may ignore it. The cost of
        the call may be in the answer under "usage", as servers report it; otherwise it is estimated. Raises ModelError
        if there is no answer.
        """


@dataclass(frozen=True, slots=True)
class Interaction:
    """A completed turn, from its user message on, without the blocks that memory added.

    `run_id` is the id of the turn, unique within its conversation. `metadata` has the `conversation`, the space that it
    `writes`, when the turn began and ended, and `agent`, `project` and `subagent` if they are set.
    """

    messages: tuple[Message, ...]
    run_id: str
    metadata: Metadata = field(default_factory=dict)


class RecordingProvider(Protocol):
    """Stores finished turns instead of memory.

    It is called after the turn, several times concurrently, on memory's own event loop, which it must not block. A turn
    that it accepted is not offered again, by any process, except when a process dies or loses its store in between;
    `run_id` and `conversation` identify the turn then.
    """

    async def record(self, scope: Scope, interaction: Interaction) -> bool:
        """Returns True once the turn is stored for good, False to decline it. If it raises, it is called again later.

        `scope` is the space that owns the conversation.
        """
        return False


class KeyProvider(Protocol):
    """Keeps the keys of a sealed store's spaces, outside the store. See docs/keys.md.

    It is called on several threads, and may block: nothing waits longer for it than a few seconds. Whatever it raises
    is reported as KeysUnavailable, by the name of its type only.
    """

    def make(self, tenant: str, space: str) -> str:
        """Makes a new random key of 32 bytes and returns its id: at most 200 characters, not secret, never used
        before. The key must be durable by then. Both names are blank for the key of the store itself."""

    def get(self, key_id: str) -> bytes | None:
        """Returns the key, None if it was destroyed. If it cannot be found out now, raises."""

    def destroy(self, key_id: str) -> None:
        """When it returns, nobody can get the key any more. Does nothing if there is no such key."""


# The repositories of a store. A unit of work has one of each.


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
        is unknown.
        """

    def superseded(self, scope: Scope, sources: Collection[str]) -> list[Entry]:
        """Returns the superseded versions of statements that were learned from one of these records, newest last."""

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
        conversation.
        """

    def most_telling(self, scope: Scope, filter: Filter, *, limit: int) -> list[Entry]:
        """Returns, of each space, the active records that the filter admits with the highest `Admitted.telling`, by id,
        highest first, where that is equal. Those with 0 are not returned.
        """

    def next_position(self, tenant: str, space: str, conversation: str, *, owner: str | None = None) -> int:
        """Returns the position of the conversation's next record in this space. Without `owner`, the space is the
        owner.
        """

    def older_than(self, tenant: str, recorded_before: float, *, limit: int) -> list[tuple[str, str]]:
        """Returns (space, id) of records that were recorded before that time."""

    def spaces_of(
        self, tenant: str, owner: str, *, conversation: str | None = None, speaker: str | None = None
    ) -> list[str]:
        """Returns the names of other spaces that have records of this owner's conversations, in alphabetical order."""


class Operations(Protocol):
    """The history of a store. Every write belongs to an operation; undo and forget work on operations."""

    def start(self, operation: Operation) -> Operation:
        """Call it before the writes, in the same unit. It is stored with its first step.

        An operation that changes nothing, such as adding a duplicate, is not stored. Raises Conflict, at the first
        step, if the id was used before.
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

    def around(self, query: LaneQuery, keys: Sequence[int], *, reach: int) -> list[ContextEntry]:
        """Returns the records at most `reach` messages away from these in their conversations, and these themselves.

        They are active and in the scope, but need not match the rest of the query. Tool outputs are not included.
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
        wrong size.
        """

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


class Jobs(Protocol):
    """Background jobs, which are committed with the write that needs them."""

    def add(self, job: Job, *, coalesce: bool = False, later: bool = False) -> None:
        """Adds a job. With `coalesce`, not if a ready job of the same kind, space and payload exists.

        `later` is for a job whose time is still to come: it takes no place among those that wait for a worker.
        """

    def claim(self, kinds: Sequence[str], *, owner: str, now: float, lease: float, limit: int) -> list[Job]:
        """Leases at most `limit` jobs to one owner and returns them, oldest first; `attempts` includes this claim.

        First jobs whose lease has run out, then ready jobs that are due: half of them by their place among the waiting
        jobs of their tenant, the other half by their age. So no tenant waits for all jobs of another, and no job waits
        for ever. The cost does not grow with the number of waiting jobs.
        """

    def due_kinds(self, kinds: Sequence[str], *, now: float) -> list[str]:
        """Returns those kinds of which a job could be claimed at `now`. Writes nothing."""

    def complete(self, job_id: str, *, owner: str) -> bool:
        """Removes the job. Returns False if another owner has the lease: then its writes must not be committed."""

    def fail(self, job_id: str, *, owner: str, error: str, retry_at: float | None) -> None:
        """Makes it ready again at `retry_at`, or dead if that is None. Does nothing if the lease was lost."""

    def renew(self, *, owner: str, until: float) -> int:
        """Extends the leases that this owner still has. Returns how many."""

    def release(self, *, owner: str) -> int:
        """Makes the jobs of this owner ready again, as if they had not been claimed. Returns how many."""

    def find(self, tenant: str, job_id: str) -> Job | None:
        """Returns the job, None if there is none."""

    def page(self, tenant: str, *, state: str | None = None, limit: int = 100) -> list[Job]: ...

    def counts(self, tenant: str | None, kinds: Sequence[str] | None = None) -> dict[str, int]:
        """Returns the number of jobs by state, of one tenant or of all, of some kinds or of all."""

    def has_unfinished(self, tenant: str | None, kinds: Sequence[str], *, by: float) -> bool:
        """Returns whether a job of one tenant, or of any, is leased or will be due `by` then."""

    def retry(self, tenant: str | None, *, now: float) -> int:
        """Makes dead jobs of one tenant, or of all, ready again and returns how many."""

    def due_tenants(self, *, now: float, limit: int) -> list[str]:
        """Returns tenants whose housekeeping is due at `now`, those that never had any first. Writes nothing.

        Tenants that were moved away or are not complete here are left out.
        """

    def claim_tenant(self, tenant: str, *, now: float, until: float) -> bool:
        """Puts a tenant's housekeeping off to `until`. False if it is not due: another process has claimed it."""

    def put_off_tenant(self, tenant: str, *, until: float) -> None:
        """Says when a tenant's housekeeping is due again."""


class Conversations(Protocol):
    """Conversations with their turns, and the blocks that were injected into them."""

    def start_turn(self, key: ConversationKey, turn: TurnRow) -> bool:
        """Returns False, and changes nothing, if this conversation already has a turn with that id."""

    def find_turn(self, key: ConversationKey, turn_id: str) -> TurnRow | None: ...

    def turns(self, key: ConversationKey) -> list[TurnRow]:
        """Returns all turns, oldest first, whatever their status."""

    def end_turn(
        self,
        key: ConversationKey,
        turn_id: str,
        *,
        status: TurnStatus,
        at: float,
        recorded: bool,
        taint: Taint | None = None,
        start: TurnRow | None = None,
    ) -> bool:
        """Returns True for the first call that records the turn. A turn is recorded at most once.

        Without a `taint`, the one that is stored stays. `start` is stored first, as by `start_turn`.
        """

    def taint_turn(self, key: ConversationKey, turn_id: str, taint: Taint) -> None:
        """Marks a turn that is still open as tainted. A mark that is stored stays."""

    def is_tainted(self, key: ConversationKey) -> bool:
        """Whether a turn of the conversation is tainted. A turn that was abandoned is: nobody saw its end."""

    def touch_turn(self, key: ConversationKey, turn_id: str, *, at: float) -> None:
        """Notes that an open turn was continued."""

    def abandon_turns(self, tenant: str, *, idle_since: float, at: float) -> int:
        """Closes the open turns that were neither started nor continued since `idle_since`. Returns how many."""

    def add_block(self, key: ConversationKey, block: BlockRow) -> None:
        """Stores a block once per hash. One that is no longer visible becomes visible again, at its new place.

        Not if it was injected before the last `clear`: the blocks of a turn are stored again when the turn is recorded.
        The text is not stored if something in it was forgotten meanwhile.
        """

    def blocks(self, key: ConversationKey) -> list[BlockRow]:
        """Returns the blocks, oldest first, without references to forgotten memories.

        The blocks of the space's forgotten conversations are first, with hash and size only and not visible: a host may
        still show them, and they must be distinguished from messages.
        """

    def known_blocks(self, key: ConversationKey) -> list[BlockRow]:
        """The same, but without text and references for blocks that are not visible, of which there may be many."""

    def last_shown(self, tenant: str, refs: Collection[str]) -> dict[str, float]:
        """Returns when a block with each version was last injected, in any conversation, or last stood in a standing
        block.

        Versions that were never shown are absent.
        """

    def state(self, key: ConversationKey) -> ConversationState:
        """Returns the state of the conversation; that of a new one if it does not exist."""

    def read(self, key: ConversationKey) -> ConversationSnapshot:
        """Returns `known_blocks`, `state`, `find_carried` and `forgets` at once."""

    def read_turn(
        self, key: ConversationKey, turn_id: str, *, writes: str, speakers: Iterable[str], since: int
    ) -> StoredTurn:
        """Returns `find_turn`, `state`, `forgets`, `is_tainted`, `Records.next_position` in the space that it `writes`,
        and `is_forgotten` for both that space and its own, at once."""

    def set_incognito(self, key: ConversationKey, *, on: bool, at: float) -> None:
        """Switches incognito on or off for the turns that end from now on. Creates the conversation if it is new."""

    def mark_incognito(self, key: ConversationKey, turn_id: str) -> None:
        """Makes a stored turn incognito, and removes the hash of its user message."""

    def clear(self, key: ConversationKey, *, at: float, compacted: bool, still: Collection[str] = ()) -> None:
        """Makes all blocks invisible, except those with a hash in `still`, and drops what is carried.

        `compacted` counts a compaction.
        """

    def carry(self, key: ConversationKey, carried: CarriedRow) -> None:
        """Stores a recall for the next turn. Replaces an earlier one."""

    def find_carried(self, key: ConversationKey) -> CarriedRow | None:
        """Returns the carried recall without forgotten candidates, None if none is left."""

    def drop_carried(self, key: ConversationKey, correlation: str) -> bool:
        """Returns True for the one call that removes it."""

    def find_standing(self, key: ConversationKey) -> StandingRow | None:
        """Returns the standing block, None before the first and after a memory in it was forgotten."""

    def put_standing(self, key: ConversationKey, standing: StandingRow | None) -> None:
        """Stores the standing block. None means that it is made again when it is next needed."""

    def forgets(self, tenant: str, space: str) -> int:
        """Returns the number of the newest forget, 0 before the first. A turn stores it when it starts.

        It is a count and not a time, because a clock may go back. It is one count for all spaces of a tenant, and a
        restore does not reset it.
        """

    def is_forgotten(self, tenant: str, space: str, *, conversation: str, speakers: Iterable[str], since: int) -> bool:
        """Whether a forget after number `since` covered this conversation, one of the speakers, or the whole space."""

    def page(self, tenant: str, space: str, *, limit: int, before: str | None = None) -> list[str]:
        """Returns ids, newest activity first. `before` continues after that id."""


class Recalls(Protocol):
    """The recalls of a conversation. Their number per space is limited; the oldest are removed first."""

    def add(self, key: ConversationKey, recall: RecallRow, *, entries_max: int) -> None:
        """Stores one row for each correlation and phase. A later one replaces it."""

    def page(self, key: ConversationKey, *, turn: str | None = None, limit: int = 1000) -> list[RecallRow]:
        """Returns the newest `limit` rows, oldest first; with `turn`, those started or delivered in it.

        Forgotten candidates are absent, and so are rows whose question was forgotten with its conversation.
        """


class Timeline(Protocol):
    """Events. Their number is limited; the oldest are removed first."""

    def add(self, events: Sequence[Event], *, entries_max: int) -> None: ...

    def page(self, scope: Scope, *, conversation: str | None = None, limit: int, skip: int = 0) -> list[Event]:
        """Returns the newest `limit` events, oldest first, without the `skip` newest."""


class Reviews(Protocol):
    """Reviews with the messages that they are to read.

    Forgetting a record, a speaker or a conversation removes its messages here too, and a conversation or a space also
    its reviews. A message without a record is removed with any record of its conversation, since it is not known which
    one it belongs to. Forgetting a space also removes the messages of reviews that write there.

    A space keeps the newest `REVIEWS_MAX` ended reviews, by id, and its last consolidation. The changes of older ones
    stay and can be undone by their ids (`Operations.undo`).
    """

    def add(self, review: ReviewRow, messages: Sequence[ReviewMessage]) -> None:
        """Schedules a review. Messages whose record does not exist any more are left out.

        Raises Conflict if the id was used before, or if it takes turns and another review of the conversation is
        waiting.
        """

    def get(self, tenant: str, review_id: str) -> ReviewRow:
        """Raises NotFound if there is none, or it was forgotten."""

    def find_waiting(self, key: ConversationKey) -> ReviewRow | None:
        """Returns the waiting or running review among those that take turns (`ReviewKind.takes_turns`)."""

    def messages(self, tenant: str, review_id: str) -> list[ReviewMessage]:
        """Returns the messages in order; none after the review has ended."""

    def replace_messages(self, tenant: str, review_id: str, messages: Sequence[ReviewMessage]) -> None:
        """Replaces the messages of a waiting review. Does nothing if it has ended or was forgotten."""

    def end(self, review: ReviewRow) -> bool:
        """Stores how the review ended and removes its messages. Returns True for the first call that ends it.

        Returns False if it had ended, or was forgotten: then nothing of it may be written.
        """

    def page(
        self, tenant: str, space: str, *, conversation: str | None = None, limit: int, before: str | None = None
    ) -> list[ReviewRow]:
        """Returns reviews, newest first. `before` continues after that id."""

    def unconsolidated(self, tenant: str, *, before: float, limit: int) -> list[str]:
        """Returns spaces whose statements changed since their last consolidation, or whose last one was before
        `before`.
        """

    def count_turn(self, key: ConversationKey) -> int:
        """Counts a completed turn and returns their number since the last review was scheduled. 0 without a
        conversation.
        """

    def unreviewed(self, key: ConversationKey) -> tuple[int, int]:
        """Returns (turns since the last review was scheduled, position of the first record that none has read).

        Positions of forgotten records at the end are used again, and count as unread again.
        """

    def scheduled(self, key: ConversationKey, *, position: int) -> None:
        """Sets the number of turns to 0, and marks records before `position` as read."""

    def reopen(self, key: ConversationKey, *, position: int) -> None:
        """Marks records from `position` on as unread again, after a review that failed."""


class Usage(Protocol):
    """Model calls and tokens, summed by tenant, space, day and purpose."""

    def add(self, tenant: str, spent: UsageRow) -> None: ...

    def tokens(self, tenant: str, day: str, *, space: str | None = None) -> int:
        """Returns the tokens of all purposes on one day, in one space or in all of the tenant's."""

    def page(self, tenant: str, *, space: str | None = None, limit: int) -> list[UsageRow]:
        """Returns rows, newest day first, then by space and purpose."""


class Unit(Protocol):
    """One transaction. Only valid inside the function that receives it."""

    def check(self) -> None:
        """Raises DeadlineExceeded if the caller has given up. For long work between two calls of the store."""

    @property
    def memories(self) -> Memories: ...
    @property
    def records(self) -> Records: ...
    @property
    def operations(self) -> Operations: ...
    @property
    def index(self) -> Index: ...
    @property
    def jobs(self) -> Jobs: ...
    @property
    def conversations(self) -> Conversations: ...
    @property
    def recalls(self) -> Recalls: ...
    @property
    def timeline(self) -> Timeline: ...
    @property
    def reviews(self) -> Reviews: ...
    @property
    def usage(self) -> Usage: ...


class Store(Protocol):
    """Stores everything. A unit of work is a synchronous function that may be run again.

    It may be run again after a serialisation failure, and may share its commit with others, but succeeds or fails
    alone. No transaction is held across an await.

    `at` says where a unit works. A store may run units at the same time unless their places overlap:

    - `Scope`: it writes rows of these spaces only. What it reads of other spaces of the tenant may change meanwhile,
      except by a unit that works in the whole tenant, such as a forget.
    - `Tenant`: it writes, or relies on, rows of any space of the tenant.
    - `JobQueue`: it claims or releases jobs or the housekeeping of any tenant, and writes nothing else.
    - None: it writes rows that belong to no tenant, or of several tenants. Nothing else is written meanwhile.
    """

    def write(self, work: Callable[[Unit], R], *, at: UnitScope) -> Awaitable[R]:
        """Runs the function in a transaction and returns when that is durable.

        Cancelling the await does not undo a write that has begun: it commits or rolls back as a whole.
        """

    def read(self, work: Callable[[Unit], R], *, at: UnitScope) -> Awaitable[R]:
        """Runs the function on one consistent snapshot. Cancelling the await interrupts it.

        It reads rows of the tenant of `at` only; for `JobQueue` and None, rows of any tenant.
        """

    def scrub(self) -> Awaitable[tuple[RemainingBytes, ...]]:
        """Removes the bytes of forgotten entries, as far as it can, and returns where they still are."""

    def check(self) -> Awaitable[list[Finding]]: ...

    def close(self, *, within: float) -> Awaitable[None]:
        """Finishes writes that have begun and interrupts the rest after `within` seconds.

        May be called twice. Using it afterwards raises MemoryClosed.
        """


@runtime_checkable
class ServerStore(Protocol):
    """What a store on a server can do too."""

    def size_bytes(self) -> Awaitable[int]:
        """How much room the store takes on the server's disk, all tenants together."""


@runtime_checkable
class FileStore(Protocol):
    """What a store in a file can do too. A store on a server leaves it to the server's own tools."""

    def backup(self, target: Path, *, progress: Callable[[int, int], None]) -> Awaitable[None]:
        """Makes a consistent copy while others read and write. `progress(done, total)` counts pages."""

    def restore(self, source: Path, *, progress: Callable[[int, int], None]) -> Awaitable[None]:
        """Replaces the content with a backup, whole or not at all. Other processes notice before their next recall."""

    def backups(self) -> list[Path]:
        """Returns the copies of the store that are known, which may hold entries that were forgotten since: automatic
        backups, and those that `backup` wrote."""
