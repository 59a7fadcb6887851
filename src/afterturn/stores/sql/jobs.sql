-- The long statements of `jobs.py`. A name begins each; lines are joined by a space, and values are bound as ?.

-- name: returned
id, kind, (SELECT tenant FROM space WHERE key = space_key), (SELECT name FROM space WHERE key = space_key), payload,
run_at, attempts, state, error

-- name: last_place
SELECT place FROM job WHERE tenant = ? AND state = 'ready' AND kind = ? AND place IS NOT NULL
ORDER BY place DESC LIMIT 1
