"""Background jobs: claimed under a lease by one owner at a time, retried, or left dead."""

from collections.abc import Sequence

from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.session import Row, Value
from afterturn.types import Job, JobState

_ERROR_CHARS_MAX = 500
_COLUMNS = "j.id, j.kind, s.tenant, s.name, j.payload, j.run_at, j.attempts, j.state, j.error"
_FROM = "job AS j JOIN space AS s ON s.key = j.space_key"
_DUE = "((state = 'ready' AND run_at <= ?) OR (state = 'leased' AND leased_until <= ?))"


class SqlJobs:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces

    def add(self, job: Job, *, coalesce: bool = False) -> None:
        space_key = self._spaces.key(job.tenant, job.space)
        if coalesce and self._is_waiting(space_key, job):
            return
        self._session.run(
            "INSERT INTO job (id, space_key, kind, payload, run_at, attempts, state, error) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (job.id, space_key, job.kind, job.payload, job.run_at, job.attempts, job.state.value, job.error),
        )

    def claim(self, kinds: Sequence[str], *, owner: str, now: float, lease: float, limit: int) -> list[Job]:
        condition, value = self._session.among("kind", list(kinds))
        # The outer condition is checked again for rows that another owner has changed meanwhile.
        rows = self._session.rows(
            "UPDATE job SET state = 'leased', owner = ?, leased_until = ?, attempts = attempts + 1 WHERE id IN "
            f"(SELECT id FROM job WHERE {condition} AND {_DUE} ORDER BY run_at, id LIMIT ?) AND {_DUE} RETURNING id",
            (owner, now + lease, value, now, now, limit, now, now),
        )
        if not rows:
            return []
        claimed, ids = self._session.among("j.id", [job_id for (job_id,) in rows])
        return self._select(f"{claimed} ORDER BY j.run_at, j.id", ids)

    def waiting(self, kinds: Sequence[str], *, now: float) -> int:
        condition, value = self._session.among("kind", list(kinds))
        row = self._session.row(f"SELECT count(*) FROM job WHERE {condition} AND {_DUE}", (value, now, now))
        return 0 if row is None else int(row[0])

    def complete(self, job_id: str, *, owner: str) -> bool:
        sql = "DELETE FROM job WHERE id = ? AND owner = ? AND state = 'leased'"
        return self._session.run(sql, (job_id, owner)) == 1

    def fail(self, job_id: str, *, owner: str, error: str, retry_at: float | None) -> None:
        state = JobState.DEAD if retry_at is None else JobState.READY
        self._session.run(
            "UPDATE job SET state = ?, error = ?, run_at = coalesce(?, run_at), owner = NULL, leased_until = NULL "
            "WHERE id = ? AND owner = ? AND state = 'leased'",
            (state.value, error[:_ERROR_CHARS_MAX], retry_at, job_id, owner),
        )

    def release(self, *, owner: str) -> int:
        return self._session.run(
            "UPDATE job SET state = 'ready', owner = NULL, leased_until = NULL, attempts = attempts - 1 "
            "WHERE owner = ? AND state = 'leased'",
            (owner,),
        )

    def find(self, tenant: str, job_id: str) -> Job | None:
        found = self._select("j.id = ? AND s.tenant = ?", job_id, tenant)
        return found[0] if found else None

    def page(self, tenant: str, *, state: str | None = None, limit: int = 100) -> list[Job]:
        return self._select(
            "s.tenant = ? AND (j.state = ? OR ? IS NULL) ORDER BY j.run_at, j.id LIMIT ?", tenant, state, state, limit
        )

    def counts(self, tenant: str, kinds: Sequence[str] | None = None) -> dict[str, int]:
        values: list[Value] = [tenant]
        where = "s.tenant = ?"
        if kinds is not None:
            condition, value = self._session.among("j.kind", list(kinds))
            where = f"{where} AND {condition}"
            values.append(value)
        return dict(self._session.rows(f"SELECT j.state, count(*) FROM {_FROM} WHERE {where} GROUP BY j.state", values))

    def retry(self, tenant: str, *, now: float) -> int:
        return self._session.run(
            "UPDATE job SET state = 'ready', run_at = ?, attempts = 0 "
            "WHERE state = 'dead' AND space_key IN (SELECT key FROM space WHERE tenant = ?)",
            (now, tenant),
        )

    def _is_waiting(self, space_key: int, job: Job) -> bool:
        # Locks the row until the commit: a job that is claimed before that may read the state before this unit.
        row = self._session.row(
            "UPDATE job SET state = state WHERE id = (SELECT id FROM job WHERE space_key = ? AND kind = ? "
            "AND payload = ? AND state = 'ready' LIMIT 1) AND state = 'ready' RETURNING id",
            (space_key, job.kind, job.payload),
        )
        return row is not None

    def _select(self, condition: str, *values: Value) -> list[Job]:
        rows = self._session.rows(f"SELECT {_COLUMNS} FROM {_FROM} WHERE {condition}", values)
        return [_job(row) for row in rows]


def _job(row: Row) -> Job:
    job_id, kind, tenant, space, payload, run_at, attempts, state, error = row
    return Job(job_id, kind, tenant, space, payload, run_at, attempts, JobState(state), error)
