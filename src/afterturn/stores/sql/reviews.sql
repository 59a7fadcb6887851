-- The long statements of `reviews.py`. A name begins each; lines are joined by a space, and values are bound as ?.

-- name: add
INSERT INTO usage (tenant, space_key, day, purpose, calls, tokens_in, tokens_out, estimated)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (space_key, day, purpose) DO UPDATE SET calls = usage.calls + excluded.calls, tokens_in = usage.tokens_in
+ excluded.tokens_in, tokens_out = usage.tokens_out + excluded.tokens_out, estimated = usage.estimated +
excluded.estimated

-- name: waiting
-- Written as in the unique index, so that SQLite uses it.
SELECT s.tenant, s.name, r.id, r.kind, r.writes, r.created_at, r.conversation, r.turn, r.reads, r.agent, r.project,
r.environment, r.forgets, r.state, r.ended_at, r.written, r.proposed, r.refusals, r.calls, r.tokens, r.reason,
r.spaces, r.notes
FROM review AS r JOIN space AS s ON s.key = r.space_key
WHERE r.space_key = ? AND r.conversation = ? AND r.state = 'waiting' AND r.kind IN ('interval', 'compaction', 'asked')
AND r.conversation <> ''

-- name: trim
-- The last consolidation stays: it says when the space was last consolidated.
DELETE FROM review
WHERE space_key = ? AND state <> 'waiting' AND id <= (SELECT id FROM review WHERE space_key = ? AND state <> 'waiting'
ORDER BY id DESC LIMIT 1 OFFSET ?) AND NOT (kind = 'consolidation' AND created_at = (SELECT max(created_at) FROM
review WHERE space_key = ? AND kind = 'consolidation'))
