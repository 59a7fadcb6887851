"""Background jobs: claimed under a lease by one owner at a time, retried, or left dead. And the housekeeping of each
tenant, whose time is a row of `meta`.

`job.place` is a job's number among the waiting jobs of its tenant and kind. NULL for a job that was put off.
"""

from collections.abc import Sequence

from afterturn.errors import KeyMissing, StoreCorrupt
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.sealing import row_name
from afterturn.stores.sql.session import SET_META, Row, Value, load_queries, set_meta
from afterturn.types import Job, JobState

# `housekeeping/acme` is a row of `meta` that says when the tenant's housekeeping is due.
HOUSEKEPT = "housekeeping"
_ERROR_CHARS_MAX = 500
_COLUMNS = "j.id, j.kind, s.tenant, s.name, j.payload, j.run_at, j.attempts, j.state, j.error"
_FROM = "job AS j JOIN space AS s ON s.key = j.space_key"
_SQL = load_queries(__file__)
_RETURNED = _SQL["returned"]
_LAST_PLACE = _SQL["last_place"]
# Each of them reads the front of an index, however many jobs wait. `+`: SQLite would take the index by time otherwise.
_EXPIRED = "SELECT id, leased_until AS sort FROM job WHERE state = 'leased' AND leased_until <= ? AND kind = ?"
_FIRST = "SELECT id, place AS sort FROM job WHERE state = 'ready' AND place IS NOT NULL AND +run_at <= ? AND kind = ?"
_OLDEST = "SELECT id, run_at AS sort FROM job WHERE state = 'ready' AND run_at <= ? AND kind = ?"
_EVEN = "2 * row_number() OVER (ORDER BY sort, id)"
_ODD = f"{_EVEN} + 1"
# Reads one row of the index for each tenant, however many spaces it has.
_DUE_TENANTS = f"""
WITH RECURSIVE found (name) AS (
    SELECT min(tenant) FROM space
    UNION ALL SELECT (SELECT min(tenant) FROM space WHERE tenant > found.name) FROM found WHERE found.name IS NOT NULL
)
SELECT name FROM found LEFT JOIN meta ON key = '{HOUSEKEPT}/' || name
WHERE name IS NOT NULL AND (value IS NULL OR CAST(value AS DOUBLE PRECISION) <= ?)
ORDER BY CAST(coalesce(value, '0') AS DOUBLE PRECISION), name LIMIT ?"""


class SqlJobs:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces
        self._sealer = entries.sealer

    def add(self, job: Job, *, coalesce: bool = False, later: bool = False) -> None:
        space_key = self._spaces.key(job.tenant, job.space)
        if coalesce and self._is_waiting(space_key, job):
            return
        place = "NULL" if later else f"1 + coalesce(({_LAST_PLACE}), 0)"
        of_tenant = () if later else (job.tenant, job.kind)
        self._session.run(
            "INSERT INTO job (id, space_key, tenant, kind, payload, run_at, attempts, state, error, place) "
            f"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, {place})",
            (
                *(job.id, space_key, job.tenant, job.kind, job.payload, job.run_at),
                *(job.attempts, job.state.value, self._sealed(space_key, job.id, job.error), *of_tenant),
            ),
        )

    def claim(self, kinds: Sequence[str], *, owner: str, now: float, lease: float, limit: int) -> list[Job]:
        if not kinds:
            return []
        # Every second by its place, so that a tenant's first job need not wait for another's thousandth; the others by
        # their age, so that the thousandth does not wait for ever.
        parts = [self._front(jobs, rank) for jobs, rank in ((_EXPIRED, "0"), (_FIRST, _EVEN), (_OLDEST, _ODD))]
        found = " UNION ALL ".join(parts * len(kinds))
        values: list[Value] = [value for kind in kinds for _ in parts for value in (now, kind, limit)]
        # MATERIALIZED: a subquery that runs twice would lock, and claim, twice as many rows.
        rows = self._session.rows(
            f"WITH due AS MATERIALIZED (SELECT id FROM ({found}) AS found GROUP BY id ORDER BY min(rank), id LIMIT ?) "
            "UPDATE job SET state = 'leased', owner = ?, leased_until = ?, attempts = attempts + 1 "
            f"WHERE id IN (SELECT id FROM due) RETURNING {_RETURNED}",
            (*values, limit, owner, now + lease),
        )
        return sorted(map(self._job, rows), key=lambda job: (job.run_at, job.id))

    def _front(self, jobs: str, rank: str) -> str:
        return f"SELECT id, {rank} AS rank FROM ({jobs} ORDER BY sort, id LIMIT ?{self._session.skip_locked}) AS front"

    def due_kinds(self, kinds: Sequence[str], *, now: float) -> list[str]:
        if not kinds:
            return []
        # Not EXISTS, for which PostgreSQL may read the table from its beginning.
        oldest, expired = (f"(SELECT 1 FROM ({jobs} ORDER BY sort LIMIT 1) AS front)" for jobs in (_OLDEST, _EXPIRED))
        part = f"SELECT CAST(? AS TEXT) WHERE {oldest} = 1 OR {expired} = 1"
        values = [value for kind in kinds for value in (kind, now, kind, now, kind)]
        return [kind for (kind,) in self._session.rows(" UNION ALL ".join([part] * len(kinds)), values)]

    def complete(self, job_id: str, *, owner: str) -> bool:
        sql = "DELETE FROM job WHERE id = ? AND owner = ? AND state = 'leased'"
        return self._session.run(sql, (job_id, owner)) == 1

    def fail(self, job_id: str, *, owner: str, error: str, retry_at: float | None) -> None:
        state = JobState.DEAD if retry_at is None else JobState.READY
        error = error[:_ERROR_CHARS_MAX]
        if self._sealer is not None:
            row = self._session.row("SELECT space_key FROM job WHERE id = ?", (job_id,))
            error = "" if row is None else self._sealed(row[0], job_id, error)
        self._session.run(
            "UPDATE job SET state = ?, error = ?, run_at = coalesce(?, run_at), place = NULL, owner = NULL, "
            "leased_until = NULL WHERE id = ? AND owner = ? AND state = 'leased'",
            (state.value, error, retry_at, job_id, owner),
        )

    def renew(self, *, owner: str, until: float) -> int:
        return self._session.run("UPDATE job SET leased_until = ? WHERE owner = ? AND state = 'leased'", (until, owner))

    def release(self, *, owner: str) -> int:
        return self._session.run(
            "UPDATE job SET state = 'ready', owner = NULL, leased_until = NULL, attempts = attempts - 1 "
            "WHERE owner = ? AND state = 'leased'",
            (owner,),
        )

    def find(self, tenant: str, job_id: str) -> Job | None:
        found = self._select("j.id = ? AND j.tenant = ?", job_id, tenant)
        return found[0] if found else None

    def page(self, tenant: str, *, state: str | None = None, limit: int = 100) -> list[Job]:
        return self._select(
            "j.tenant = ? AND (j.state = ? OR ? IS NULL) ORDER BY j.run_at, j.id LIMIT ?", tenant, state, state, limit
        )

    def counts(self, tenant: str | None, kinds: Sequence[str] | None = None) -> dict[str, int]:
        conditions, values = _of_tenant(tenant)
        if kinds is not None:
            condition, value = self._session.among("j.kind", list(kinds))
            conditions.append(condition)
            values.append(value)
        where = " AND ".join(conditions)
        return dict(self._session.rows(f"SELECT j.state, count(*) FROM {_FROM} WHERE {where} GROUP BY j.state", values))

    def has_unfinished(self, tenant: str | None, kinds: Sequence[str], *, by: float) -> bool:
        conditions, values = _of_tenant(tenant)
        among, value = self._session.among("j.kind", list(kinds))
        where = " AND ".join([*conditions, among, "(j.state = 'leased' OR (j.state = 'ready' AND j.run_at <= ?))"])
        return self._session.row(f"SELECT 1 FROM {_FROM} WHERE {where} LIMIT 1", (*values, value, by)) is not None

    def retry(self, tenant: str | None, *, now: float) -> int:
        conditions, values = _of_tenant(tenant)
        return self._session.run(
            "UPDATE job SET state = 'ready', run_at = ?, place = NULL, attempts = 0 WHERE id IN "
            f"(SELECT j.id FROM {_FROM} WHERE j.state = 'dead' AND {' AND '.join(conditions)})",
            (now, *values),
        )

    def due_tenants(self, *, now: float, limit: int) -> list[str]:
        return [name for (name,) in self._session.rows(_DUE_TENANTS, (now, limit))]

    def claim_tenant(self, tenant: str, *, now: float, until: float) -> bool:
        # Two that claim at once: the second waits for the row, and then finds that it is not due.
        row = self._session.row(
            f"{SET_META} WHERE CAST(meta.value AS DOUBLE PRECISION) <= ? RETURNING key",
            (f"{HOUSEKEPT}/{tenant}", repr(until), now),
        )
        return row is not None

    def put_off_tenant(self, tenant: str, *, until: float) -> None:
        set_meta(self._session, f"{HOUSEKEPT}/{tenant}", repr(until))

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
        return [self._job(row) for row in rows]

    def _sealed(self, space_key: int, job_id: str, error: str) -> str:
        """Without a key for it, an error is not stored: the job has to go on."""
        if self._sealer is None or not error:
            return error
        try:
            return self._sealer.get_of(space_key).seal("job.error", row_name(job_id), error)
        except KeyMissing:
            return ""

    def _job(self, row: Row) -> Job:
        job_id, kind, tenant, space, payload, run_at, attempts, state, error = row
        job = Job(job_id, kind, tenant, space, payload, run_at, attempts, JobState(state), error)
        if self._sealer is None or not job.error:
            return job
        try:
            cipher = self._sealer.find(job.tenant, job.space)
            return job._replace(error="" if cipher is None else cipher.open("job.error", row_name(job.id), job.error))
        except (KeyMissing, StoreCorrupt) as failure:
            # Others wait in the same queue.
            return job._replace(error=str(failure))


def _of_tenant(tenant: str | None) -> tuple[list[str], list[Value]]:
    return (["1 = 1"], []) if tenant is None else (["j.tenant = ?"], [tenant])
