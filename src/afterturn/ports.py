"""What an embedder may be besides the port of that name: who finds one of these uses it, and does without otherwise."""

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
    ReviewMessage,
    ReviewRow,
    Scope,
    Selector,
    SpaceStats,
    SpaceSummary,
    StandingRow,
    Status,
    Step,
    Target,
    TurnRow,
    TurnStatus,
    UsageRow,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@runtime_checkable
class Batching(Protocol):
    """Works without Python's lock, or elsewhere.

    Others get few texts at a time, and pauses, so that a turn beside them does not feel it.
    """

    @property
    def batch_texts(self) -> int:
        """How many texts it takes at a time at best."""


@runtime_checkable
class Immediate(Protocol):
    """Safe to share between threads."""

    @property
    def is_immediate(self) -> bool:
        """Whether a question is embedded in about the time that it takes to hand it to another thread."""


@runtime_checkable
class Closable(Protocol):
    """Holds on to something, such as connections."""

    def close(self) -> None:
        """Ends what is under way, from any thread; `embed` raises EmbedderUnavailable then. Twice is harmless."""


class Aside(Protocol):
    """An embedder at work in another process, for one long backlog. Lives on one event loop.

    `receive` raises EmbedderUnavailable when the process is gone, stuck or talks nonsense; then only `close` is left.
    """

    def send(self, texts: Sequence[str]) -> None:
        """Returns at once. Several batches may be under way."""

    async def receive(self) -> list[bytes]:
        """The vectors of the oldest batch that is under way, as a store takes them."""

    async def close(self) -> None:
        """Stops the process and waits, bounded, until it is gone. Twice is harmless."""


@runtime_checkable
class Separable(Protocol):
    """Can work in another process too."""

    async def start_aside(self) -> Aside | None:
        """Returns before the process is up. None where no process can be started."""


# The port behind which finished turns are kept (C7): what a host implements that keeps them in a place of its own.


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


# What a store keeps of reviews and of what models cost: two more repositories of a unit of work.

REVIEWS_MAX = 1_000
"""How many ended reviews a space keeps to be read: a month of busy days, at a few hundred bytes each."""


class Reviews(Protocol):
    """Reviews with the messages they are to read. What is forgotten leaves here too: messages of that record, speaker
    or conversation, and with a conversation or a space its reviews. A review with no message left has nothing to read.

    A message that no record holds goes with any record of its conversation, since nothing tells which it came to. A
    space also takes along what reviews of others' conversations that write there are to read.

    Of those that have ended a space keeps the newest `REVIEWS_MAX` (by id) and its last consolidation; what older ones
    have done stays, and can be undone by their ids (`Operations.undo`).
    """

    def add(self, review: ReviewRow, messages: Sequence[ReviewMessage]) -> None:
        """Schedules it. Conflict when the id was used before, or when it takes turns and another one of its
        conversation waits. Messages whose record is not there, or not any more, are left out (M2)."""

    def get(self, tenant: str, review_id: str) -> ReviewRow:
        """NotFound when there is none, or it was forgotten."""

    def find_waiting(self, key: ConversationKey) -> ReviewRow | None:
        """The one that waits or runs among those that take turns (`ReviewKind.takes_turns`)."""

    def messages(self, tenant: str, review_id: str) -> list[ReviewMessage]:
        """In their order; empty once the review has ended."""

    def replace_messages(self, tenant: str, review_id: str, messages: Sequence[ReviewMessage]) -> None:
        """For a review that still waits: a later trigger joins it, with all that it is to read by now. Nothing for one
        that has ended or was forgotten."""

    def end(self, review: ReviewRow) -> bool:
        """Stores how it ended and lets the messages go. True for the first call that ends it; False when it had ended,
        or was forgotten: then nothing of it may be written (V4)."""

    def page(
        self, tenant: str, space: str, *, conversation: str | None = None, limit: int, before: str | None = None
    ) -> list[ReviewRow]:
        """Newest first; `before` continues after that id."""

    def unconsolidated(self, tenant: str, *, before: float, limit: int) -> list[str]:
        """Spaces in which statements changed since they were last consolidated, or that were not since `before`."""

    def count_turn(self, key: ConversationKey) -> int:
        """One more turn was completed since the last review of the conversation was scheduled; how many by now.
        0 when there is no such conversation, or not any more."""

    def unreviewed(self, key: ConversationKey) -> tuple[int, int]:
        """(turns since the last one was scheduled, position of the first record that none has read).

        Where the last records are forgotten, their positions are used again, and are unread again."""

    def scheduled(self, key: ConversationKey, *, position: int) -> None:
        """Sets the turns back to 0, and notes that records before `position` are read."""

    def reopen(self, key: ConversationKey, *, position: int) -> None:
        """Records from `position` on are not read after all: the review that should have came to nothing."""


class Usage(Protocol):
    """What calls of models came to, summed by tenant, space, day and purpose."""

    def add(self, tenant: str, spent: UsageRow) -> None: ...

    def tokens(self, tenant: str, day: str, *, space: str | None = None) -> int:
        """Of all purposes on one day, in one space or in all of the tenant's."""

    def page(self, tenant: str, *, space: str | None = None, limit: int) -> list[UsageRow]:
        """Newest day first, then by space and purpose."""


# Components that can be replaced, as protocols. `services` chooses them.
#
# A docstring here is a contract. `afterturn.testing.conformance` holds every store to those of units of work and their
# repositories, of `write`, `read`, `scrub` and `close`; each store's own tests show its backup, restore and check.

R = TypeVar("R")


class Clock(Protocol):
    def now(self) -> float:
        """Unix seconds: for what is stored and shown."""

    def monotonic(self) -> float:
        """Seconds that never go back: for deadlines."""


class Ids(Protocol):
    def new(self) -> str:
        """A fresh id, sorting after every earlier one of this process."""


class Worker(Protocol):
    """Runs blocking work away from the loop, in the order it was posted (per worker)."""

    def post(self, work: Callable[[], None]) -> None:
        """Returns at once. `work` must not raise."""

    def close(self, *, within: float) -> bool:
        """Runs what was posted, then ends. False when that took longer than `within`."""


class Embedder(Protocol):
    """Turns texts into vectors. It is called on several threads at the same time."""

    @property
    def identity(self) -> EmbedderIdentity:
        """Name, version and dimensions. Vectors are stored under it."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns one row for each text, of length 1, or zeros for a text without content.

        May block. Raises EmbedderUnavailable.
        """


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


class Memories(Protocol):
    """Statements and their versions. Reads see records too, where the filter admits them."""

    def add(self, operation: Operation, admitted: Admitted) -> Added:
        """Duplicates of an active statement (same space, agent, project, target, content hash) give the existing one.

        A more trusted origin promotes it: a new version with the higher trust, `created=False`. Pinned stays pinned,
        metadata and sources are united (the new first, within their bounds), and validity and expiry stay where the
        draft names none. An equally trusted one only adds its sources, to one that has some. An existing one that has
        expired by `admitted.recorded_at` gives way. A quarantined draft is stored with that status, and so is a
        proposed one, unless the same is active or proposed already: then that one is given as it is.
        """

    def update(self, operation: Operation, entry_id: str, admitted: Admitted, *, expected_version: int | None) -> Entry:
        """Supersedes the active version. Conflict when it is not `expected_version`, when the new text is an active
        duplicate of another memory, or when there is no active version; NotFound when the space has no such id.

        A proposed draft leaves the active version as it is, and is stored as the next one, which waits. Conflict when
        a change of this memory waits already, or when another proposal says the same."""

    def propose_delete(self, operation: Operation, entry_id: str, *, expected_version: int | None) -> Entry:
        """A next version with the same words and the status `withdrawal`; the active one stays until it is approved.

        Conflict as for `update`."""

    def approve(self, operation: Operation, entry_id: str) -> Entry:
        """Makes what was proposed so: a statement or a change becomes active, a withdrawal deletes the active version.

        Undo makes it wait again. Conflict when the same is active already, when the memory has changed since the change
        was proposed, or when nothing waits for approval; NotFound when the space has no such id."""

    def delete(self, operation: Operation, entry_id: str) -> Entry:
        """Rejects what waits for approval, else hides the active version; undo brings it back. Works on records too."""

    def get(self, scope: Scope, entry_id: str, *, version: int | None = None) -> Entry:
        """The active version, or the one asked for. NotFound outside the scope.

        Without an active one, the newest whatever its status. What waits, was rejected or undone beside an active
        version is not what the memory says now, so it is given when it is asked for."""

    def page(self, scope: Scope, filter: Filter, *, limit: int, before: str | None = None) -> list[Entry]:
        """Highest id first, to read everything; `before` continues after the last id of the previous page.

        An id comes once: its active version where that is asked for, else its newest with one of the statuses."""

    def newest(self, scope: Scope, filter: Filter, *, limit: int, before: str | None = None) -> list[Entry]:
        """The same entries as `page`, by `occurred_at`, newest first, ties by id. NotFound when `before` is unknown."""

    def history(self, scope: Scope, entry_id: str) -> list[Entry]:
        """Every version, oldest first. NotFound when there is none."""

    def known_at(self, query: LaneQuery, at: float) -> list[Entry]:
        """The versions that were active at `at`, by the operations up to then: what was known, not what is true now.

        `query`'s scope, lane, conversation, filter (but its statuses) and exclusions hold. A slow path is fine.
        """

    def counts(self, scope: Scope) -> dict[tuple[str, Kind, Status], int]: ...

    def spaces(self, tenant: str) -> list[SpaceSummary]:
        """The tenant's spaces that hold an entry of any status, by name. Active entries are counted."""

    def weigh(self, scope: Scope, target: Target) -> tuple[int, int]:
        """How many active statements there are about this target, and how many bytes of UTF-8 they take (G4)."""


class Records(Protocol):
    """Recorded messages. They are never updated and never take part in duplicate checks."""

    def add(self, operation: Operation, admitted: Sequence[Admitted]) -> list[Entry]: ...

    def of_conversation(self, scope: Scope, conversation: str, *, limit: int, owner: str | None = None) -> list[Entry]:
        """Active records, oldest first; the newest `limit` of them. Without `owner`, of every owner's conversation."""

    def next_position(self, tenant: str, space: str, conversation: str, *, owner: str | None = None) -> int:
        """Where the owner's conversation goes on in this space. Without `owner`, the space's own."""

    def older_than(self, tenant: str, recorded_before: float, *, limit: int) -> list[tuple[str, str]]:
        """(space, id) of records whose retention has ended."""


class Operations(Protocol):
    """The history of a store: every write belongs to an operation, and undo and forget work on them."""

    def start(self, operation: Operation) -> Operation:
        """To be called before its writes, in the same unit. It is stored with its first step: one that changed nothing
        (a duplicate add) leaves nothing to list or undo. Conflict, at that step, when the id was used before."""

    def page(
        self, scope: Scope, *, limit: int, entry_id: str | None = None, before: str | None = None
    ) -> list[Operation]:
        """Newest first; with `entry_id`, those that touched any version of it. `before` continues after that id."""

    def log(self, scope: Scope, *, limit: int) -> list[LoggedOperation]:
        """Newest first, each with a memory that it changed."""

    def steps(
        self, scope: Scope, *, operation_id: str | None = None, entry_id: str | None = None, group: str | None = None
    ) -> list[Step]:
        """What was done, oldest first, by one operation, by a group of them, or to one entry."""

    def undo(self, operation: Operation, *, target: str) -> list[Step]:
        """Takes back the operation or the group named `target` exactly: each step's entry returns to its former state.

        Conflict, and nothing changed, when a later operation touched one of them, or when a restored statement
        would duplicate an active one, or would wait beside another change of its memory. NotFound when this space has
        no such operation or group.
        """

    def forget(self, tenant: str, space: str, selector: Selector, *, at: float) -> Erased:
        """Erases the rows: text, every version, vectors, index entries, jobs and their errors, timeline and turns.

        What conversations keep of an entry goes too: the texts of blocks that show it, the standing block with it,
        candidates that name it, and what reviews are still to read of it (`Reviews`). Of a recorded message, so does
        whatever was asked in its turn; of a speaker, what was asked in turns that were not recorded as well, since
        nothing tells who asked.

        Statements that rest only on what is erased go too: those of the space, and in all of the tenant's spaces those
        that rest on its records, unless another space holds the same record. What rests on more stays, without that
        source. A conversation goes whoever owns it: in a shared space, every owner's of that id, with the timeline and
        the questions that these owners' spaces keep of it. Not reached: another space's records of a conversation of
        this one's, and ids in its blocks. Texts of blocks and standing blocks are reached in all the tenant's spaces.
        Blocks stay known by their hash (`Conversations.blocks`). Recordings that began before are refused
        (`Conversations.is_forgotten`). While a memory has a version left, the numbers of erased versions are not used
        again. Only `Store.scrub` removes the bytes.
        """


class Index(Protocol):
    """What recall searches. Everything here is derived from entries and leaves with them."""

    def extents(self, scope: Scope) -> dict[str, SpaceStats]:
        """By space; a space without entries is absent."""

    def frequencies(self, scope: Scope, terms: Sequence[str]) -> dict[str, dict[str, int]]:
        """By space: in how many of its active entries each term occurs; absent when in none."""

    def matches(
        self, query: LaneQuery, terms: Sequence[str], *, limit: int, terms_max: int | None = None
    ) -> list[IndexedEntry]:
        """Active, unexpired entries in the scope and lane with at least one of the terms; the newest `limit`.

        Newest first. `terms_max` bounds the terms of all of them together: the longest are left out, but never all.
        """

    def resolve(self, query: LaneQuery, keys: Sequence[int]) -> dict[int, Entry]:
        """By key: those of `keys` that the query admits, in no particular order."""

    def around(self, query: LaneQuery, keys: Sequence[int], *, reach: int) -> list[ContextEntry]:
        """Records next to these in their conversations, at most `reach` messages away, and those of `keys` too.

        Active and in the scope, whatever else the query admits: it is context that is asked for. What a tool answered
        is none (C6).
        """

    def speakers(self, scope: Scope, *, limit: int) -> list[str]:
        """Who spoke in these spaces, at most `limit` of them in each."""

    def newest(self, tenant: str, space: str, *, limit: int) -> list[int]:
        """Keys of active entries, newest first."""

    def shelved(
        self, tenant: str, space: str, *, keys: Sequence[int] | None = None, after: int = 0, limit: int
    ) -> list[IndexedEntry]:
        """Active entries by key: of `keys`, or the first `limit` behind key `after`."""

    def changes(self, tenant: str, space: str, *, since: int) -> Changes:
        """Keys of versions that came, went, got a vector or other sources since; a restore changes `generation`."""

    def vectors(
        self, tenant: str, space: str, embedder: EmbedderIdentity, keys: Sequence[int] | None
    ) -> dict[int, bytes]:
        """By key, float16 little-endian bytes of active entries: of `keys`, or of the whole space."""

    def put_vectors(self, embedder: EmbedderIdentity, vectors: Sequence[tuple[int, bytes]]) -> int:
        """Stores vectors of entries that are still there; how many were. Wrong size: ValueError."""

    def adopt(self, embedder: EmbedderIdentity) -> list[tuple[str, str]]:
        """Makes this the store's embedder. When it was another before (or none): (tenant, space) of every space with
        entries, all to be embedded anew. Empty when it is the same as last time."""

    def adopted(self) -> EmbedderIdentity | None:
        """The store's embedder; None before the first."""

    def unembedded(self, tenant: str, space: str, embedder: EmbedderIdentity, *, limit: int) -> list[tuple[int, str]]:
        """(key, text) of active entries without a vector of this embedder, oldest first; long texts cut short."""

    def waiting(self, tenant: str, embedder: EmbedderIdentity, *, space: str | None = None) -> int:
        """How many those are, in one space or in all of the tenant's."""

    def has_abandoned(self, tenant: str, space: str, embedder: EmbedderIdentity) -> bool:
        """Whether the space has vectors of others than `embedder`, which is the store's."""

    def drop_abandoned(self, tenant: str, space: str, embedder: EmbedderIdentity, *, limit: int) -> int:
        """Takes up to `limit` of those away; how many. Nothing when `embedder` is not the store's, or not any more: two
        processes that disagree must not undo each other's work for ever."""


class Jobs(Protocol):
    def add(self, job: Job, *, coalesce: bool = False) -> None:
        """With `coalesce`, a ready job of the same kind, space and payload makes this one superfluous."""

    def claim(self, kinds: Sequence[str], *, owner: str, now: float, lease: float, limit: int) -> list[Job]:
        """Ready jobs that are due, and leased ones whose lease ran out, oldest first; no two owners get the same.

        `attempts` counts this claim.
        """

    def waiting(self, kinds: Sequence[str], *, now: float) -> int:
        """How many could be claimed at `now`. Looking writes nothing."""

    def complete(self, job_id: str, *, owner: str) -> bool:
        """Removes it. False when the lease was lost to another owner: then the job's writes must not be committed."""

    def fail(self, job_id: str, *, owner: str, error: str, retry_at: float | None) -> None:
        """Back to ready at `retry_at`, or dead when there is none. Nothing when the lease was lost."""

    def release(self, *, owner: str) -> int:
        """Makes what this owner holds ready again, as if it had not been claimed; how many."""

    def find(self, tenant: str, job_id: str) -> Job | None:
        """None when there is none, or not any more."""

    def page(self, tenant: str, *, state: str | None = None, limit: int = 100) -> list[Job]: ...

    def counts(self, tenant: str, kinds: Sequence[str] | None = None) -> dict[str, int]:
        """By state; of some kinds, or of all."""

    def retry(self, tenant: str, *, now: float) -> int:
        """Makes dead jobs ready again; how many."""


class Conversations(Protocol):
    """Conversations with their turns, and the blocks that were injected into them."""

    def open(self, key: ConversationKey, *, at: float) -> bool:
        """Makes sure it exists; True when it is new."""

    def start_turn(self, key: ConversationKey, turn: TurnRow) -> bool:
        """False when this conversation has a turn of that id already; then nothing changes."""

    def find_turn(self, key: ConversationKey, turn_id: str) -> TurnRow | None: ...

    def turns(self, key: ConversationKey) -> list[TurnRow]:
        """Oldest first, whatever became of them."""

    def end_turn(self, key: ConversationKey, turn_id: str, *, status: TurnStatus, at: float, recorded: bool) -> bool:
        """True for the first call that records it; a turn is recorded at most once (C3)."""

    def touch_turn(self, key: ConversationKey, turn_id: str, *, at: float) -> None:
        """Somebody came back to it, if it is still open."""

    def abandon_turns(self, tenant: str, *, idle_since: float, at: float) -> int:
        """The tenant's open turns that were neither started nor touched since `idle_since`; how many."""

    def add_block(self, key: ConversationKey, block: BlockRow) -> None:
        """Idempotent by hash, but one that is not in sight stands where it is injected now, and is in sight again.

        Not if it was injected before the last `clear`: a turn's blocks are stored again when it is recorded. The text
        is not kept when something in it was forgotten meanwhile.
        """

    def blocks(self, key: ConversationKey) -> list[BlockRow]:
        """Oldest first, without the refs of what was forgotten.

        Those of the space's forgotten conversations come before them, with hash and size alone and not in sight: a host
        may still show them, and they must still be told from what was said (C5).
        """

    def known_blocks(self, key: ConversationKey) -> list[BlockRow]:
        """The same, but those out of sight come without text and references: a long conversation has had many."""

    def last_shown(self, tenant: str, refs: Collection[str]) -> dict[str, float]:
        """When a block with this version was last injected, in whatever conversation, or one was active whose standing
        block has it; absent where none was."""

    def state(self, key: ConversationKey) -> ConversationState:
        """As if it were new where there is no such conversation."""

    def clear(self, key: ConversationKey, *, at: float, compacted: bool, still: Collection[str] = ()) -> None:
        """From now on no block of the past is in sight, but those whose hashes are `still`, and nothing is carried.

        `compacted` counts a compaction.
        """

    def carry(self, key: ConversationKey, carried: CarriedRow) -> None:
        """Kept for the next turn, in place of what was carried before."""

    def find_carried(self, key: ConversationKey) -> CarriedRow | None:
        """Without the candidates that were forgotten; None when none of them is left."""

    def drop_carried(self, key: ConversationKey, correlation: str) -> bool:
        """True for the one call that ends it."""

    def find_standing(self, key: ConversationKey) -> StandingRow | None:
        """None before the first, and once a memory in it was forgotten."""

    def put_standing(self, key: ConversationKey, standing: StandingRow | None) -> None:
        """None: it is made anew when it is next asked for."""

    def forgets(self, tenant: str, space: str) -> int:
        """The number of the newest forget, 0 before the first: what a turn notes when it starts.

        Forgets are counted, not timed: a clock may step. One count serves all spaces of a tenant, and a restore does
        not take it back.
        """

    def is_forgotten(self, tenant: str, space: str, *, conversation: str, speakers: Iterable[str], since: int) -> bool:
        """Whether a forget after number `since` covered this conversation, one of the speakers, or all the space."""

    def page(self, tenant: str, space: str, *, limit: int, before: str | None = None) -> list[str]:
        """Ids, newest activity first; `before` continues after that id."""


class Recalls(Protocol):
    """What recalls of a conversation came to, bounded per space: the oldest go first."""

    def add(self, key: ConversationKey, recall: RecallRow, *, entries_max: int) -> None:
        """One row for each correlation and phase; a later one replaces it."""

    def page(self, key: ConversationKey, *, turn: str | None = None, limit: int = 1000) -> list[RecallRow]:
        """Oldest first, the newest `limit`; with `turn`, those asked or handed over in it. What was forgotten is absent
        from their candidates, and a question that went with its conversation took its row along."""


class Timeline(Protocol):
    """What happened, bounded: the oldest go first."""

    def add(self, events: Sequence[Event], *, entries_max: int) -> None: ...

    def page(self, scope: Scope, *, conversation: str | None = None, limit: int, skip: int = 0) -> list[Event]:
        """Oldest first; the newest `limit` of them, not counting the `skip` newest."""


class Unit(Protocol):
    """One transaction. Valid only inside the function that was handed it."""

    def check(self) -> None:
        """Raises DeadlineExceeded when its caller has given up: for long work between two calls of the store."""

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
    """Where everything is kept. A unit of work is a re-runnable synchronous function.

    It may be run again after a serialisation failure and may share its commit with others, but succeeds or fails
    alone. No transaction is held across an await.
    """

    def write(self, work: Callable[[Unit], R]) -> Awaitable[R]:
        """Runs it in a transaction and returns once that is durable. Cancelling the await does not undo a write
        that has begun: it commits or rolls back whole."""

    def read(self, work: Callable[[Unit], R]) -> Awaitable[R]:
        """Runs it on one consistent snapshot. Cancelling the await interrupts it."""

    def scrub(self) -> Awaitable[bool]:
        """Removes the bytes of what was forgotten. False: a reader still holds them, try again later."""

    def backup(self, target: Path, *, progress: Callable[[int, int], None]) -> Awaitable[None]:
        """A consistent copy while others read and write. `progress(done, total)` in pages."""

    def restore(self, source: Path, *, progress: Callable[[int, int], None]) -> Awaitable[None]:
        """Replaces the content by a backup's, whole or not at all; other processes notice before their next recall."""

    def check(self) -> Awaitable[list[Finding]]: ...

    def backups(self) -> list[Path]:
        """Automatic copies beside the store, which may hold what was forgotten since."""

    def close(self, *, within: float) -> Awaitable[None]:
        """Finishes writes that have begun, interrupts the rest after `within`. Closing twice is harmless; use after it
        raises MemoryClosed."""
