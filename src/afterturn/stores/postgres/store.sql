-- The long statements of `store.py`. A name begins each; lines are joined by a space, and values are bound as ?.

-- name: role
SELECT rolsuper OR rolbypassrls, has_table_privilege(t.oid, 'INSERT'), pg_has_role(t.relowner, 'USAGE')
FROM pg_roles, pg_class AS t WHERE rolname = current_user AND t.oid = to_regclass(%s)

-- name: isolated
SELECT count(*) FROM pg_class AS c JOIN pg_policy AS p ON p.polrelid = c.oid
WHERE c.relnamespace = CAST(%s AS regnamespace) AND relrowsecurity AND relforcerowsecurity

-- name: size
SELECT coalesce(sum(CAST(relpages AS bigint)), 0) * CAST(current_setting('block_size') AS int)
FROM pg_class WHERE relnamespace = CAST(%s AS regnamespace)

-- name: bloat
SELECT relname, n_dead_tup, n_live_tup, coalesce(CAST(date_trunc('second', greatest(last_vacuum, last_autovacuum)) AS
text), 'never')
FROM pg_stat_user_tables
WHERE relid IN (SELECT oid FROM pg_class WHERE relnamespace = CAST(%s AS regnamespace)) AND n_dead_tup > %s AND
n_dead_tup > n_live_tup / 2
ORDER BY 2 DESC

-- name: long
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start < now() - CAST(%s AS interval)

-- name: blocked
SELECT count(*) OVER (), w.pid, b.pid, coalesce(nullif(b.application_name, ''), '?'), coalesce(b.state, '?')
FROM pg_stat_activity AS w CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS blocker(pid)
JOIN pg_stat_activity AS b ON b.pid = blocker.pid WHERE w.datname = current_database()
ORDER BY w.state_change LIMIT 1

-- name: connections
SELECT count(*), CAST(current_setting('max_connections') AS int) -
CAST(current_setting('superuser_reserved_connections') AS int)
FROM pg_stat_activity WHERE backend_type = 'client backend'

-- name: standbys
SELECT coalesce(nullif(application_name, ''), '?'), coalesce(state, '?'), coalesce(sync_state, '?'),
coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn), -1)
FROM pg_stat_replication ORDER BY 1
