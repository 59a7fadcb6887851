"""Finding the version of a memory that an operation is about: by its status, or by what it says."""

from dataclasses import dataclass

from afterturn.base.errors import Conflict, NotFound
from afterturn.base.types import Admitted, Entry, Operation, Status
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.rows import FROM_ENTRY, SELECTED, read_entries
from afterturn.stores.sql.session import Value

# The status is pasted: a bound one would keep SQLite from the indexes that hold one status alone.
_LIKE = (
    f"SELECT {SELECTED} FROM {FROM_ENTRY} WHERE e.space_key = ? AND e.target = ? AND coalesce(e.agent, '') = ? "
    "AND coalesce(e.project, '') = ? AND e.content_hash = ? AND e.kind = 'statement' AND e.status = '{status}'"
)
_ACTIVE = f"SELECT {SELECTED} FROM {FROM_ENTRY} WHERE e.space_key = ? AND e.id = ? AND e.status = 'active'"
_WAITING = (
    f"SELECT {SELECTED}, e.base FROM {FROM_ENTRY} WHERE e.space_key = ? AND e.id = ? "
    "AND e.status IN ('proposed', 'withdrawal')"
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits for approval. `base` is the version that it would replace, None for a statement of its own."""

    key: int
    entry: Entry
    base: int | None


class Current:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._session = entries.session

    def find_active(self, operation: Operation, entry_id: str) -> tuple[int, Entry] | None:
        return self._find(_ACTIVE, (self._space(operation), entry_id))

    def get_active(self, operation: Operation, entry_id: str) -> tuple[int, Entry]:
        """Conflict when it has no active version; NotFound when the space does not know the id."""
        found = self.find_active(operation, entry_id)
        if found is not None:
            return found
        status = self.newest_status(operation, entry_id)
        waits = status in (Status.PROPOSED, Status.WITHDRAWAL)
        remedy = "Approve or delete it first." if waits else "Undo that first."
        raise Conflict(f"{entry_id} is {status}, so there is nothing to change. {remedy}")

    def find_waiting(self, operation: Operation, entry_id: str) -> Waiting | None:
        row = self._session.row(_WAITING, (self._space(operation), entry_id))
        return None if row is None else Waiting(row[0], read_entries(self._session, [row])[0], row[-1])

    def find_duplicate(
        self, operation: Operation, admitted: Admitted, status: Status = Status.ACTIVE
    ) -> tuple[int, Entry] | None:
        draft = admitted.draft
        signature = (draft.target.value, draft.agent or "", draft.project or "", admitted.content_hash)
        return self._find_like(operation, signature, status)

    def find_rival(self, operation: Operation, entry: Entry) -> tuple[int, Entry] | None:
        """The active statement of the same words."""
        signature = (entry.target.value, entry.agent or "", entry.project or "", entry.content_hash)
        return self._find_like(operation, signature, Status.ACTIVE)

    def newest_status(self, operation: Operation, entry_id: str) -> Status:
        row = self._session.row(
            "SELECT status FROM entry WHERE space_key = ? AND id = ? ORDER BY version DESC LIMIT 1",
            (self._space(operation), entry_id),
        )
        if row is None:
            raise no_such_memory(entry_id, (operation.space,))
        return Status(row[0])

    def next_version(self, operation: Operation, entry_id: str) -> int:
        row = self._session.row(
            "SELECT max(version), max(spent) FROM entry WHERE space_key = ? AND id = ?",
            (self._space(operation), entry_id),
        )
        assert row is not None
        return int(max(row)) + 1

    def _space(self, operation: Operation) -> int:
        return self._entries.spaces.key(operation.tenant, operation.space)

    def _find_like(self, operation: Operation, signature: tuple[str, ...], status: Status) -> tuple[int, Entry] | None:
        return self._find(_LIKE.format(status=status.value), (self._space(operation), *signature))

    def _find(self, sql: str, values: tuple[Value, ...]) -> tuple[int, Entry] | None:
        row = self._session.row(sql, values)
        return None if row is None else (row[0], read_entries(self._session, [row])[0])


def has_ended(entry: Entry, now: float) -> bool:
    return any(end is not None and end <= now for end in (entry.expires_at, entry.valid_to))


def no_such_memory(entry_id: str, spaces: tuple[str, ...], version: int | None = None) -> NotFound:
    what = entry_id if version is None else f"{entry_id} with version {version}"
    return NotFound(f"There is no memory {what} in {', '.join(spaces)}. `afterturn list` shows the ids of a space.")
