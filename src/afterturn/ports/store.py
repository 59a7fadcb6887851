"""A store, its units of work, and its queue of jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path

    from afterturn.ports.conversations import Conversations, Recalls, Reviews, Timeline, Usage
    from afterturn.ports.memories import Index, Memories, Operations, Records
    from afterturn.types import Finding, Job, RemainingBytes, UnitScope

R = TypeVar("R")


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

    def find(self, tenant: str, job_id: str) -> Job | None: ...

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

    - `Scope`: it writes rows of these spaces only. Rows that it reads in other spaces of the tenant may change
      meanwhile, except by a unit that works in the whole tenant, such as a forget.
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
    """Further methods of a store on a server."""

    def size_bytes(self) -> Awaitable[int]:
        """How much room the store takes on the server's disk, all tenants together."""


@runtime_checkable
class FileStore(Protocol):
    """Further methods of a store in a file. A store on a server leaves them to the server's own tools."""

    def backup(self, target: Path, *, progress: Callable[[int, int], None]) -> Awaitable[None]:
        """Makes a consistent copy while others read and write. `progress(done, total)` counts pages."""

    def restore(self, source: Path, *, progress: Callable[[int, int], None]) -> Awaitable[None]:
        """Replaces the content with a backup, whole or not at all. Other processes notice before their next recall."""

    def backups(self) -> list[Path]:
        """Returns the copies of the store that are known, which may hold entries that were forgotten since: automatic
        backups, and those that `backup` wrote."""
