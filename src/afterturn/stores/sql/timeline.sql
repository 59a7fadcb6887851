-- The long statements of `timeline.py`. A name begins each; lines are joined by a space, and values are bound as ?.

-- name: append
INSERT INTO timeline (space_key, seq, at, name, conversation, turn, data) WITH new (ordinal, at, name, conversation,
turn, data) AS (VALUES {rows}) SELECT (SELECT key FROM space WHERE tenant = ? AND name = ?), (SELECT
coalesce(max(seq), 0) FROM timeline WHERE space_key = (SELECT key FROM space WHERE tenant = ? AND name = ?)) +
new.ordinal, new.at, new.name, new.conversation, new.turn, new.data
FROM new

-- name: ends
SELECT s.key, s.name, t.seq, t.at FROM space AS s JOIN timeline AS t ON t.space_key = s.key
AND t.seq = (SELECT max(seq) FROM timeline WHERE space_key = s.key) WHERE s.tenant = ?

-- name: newer
SELECT name, at, conversation, turn, data FROM timeline WHERE space_key = ? AND seq > ? AND at > ? ORDER BY seq DESC LIMIT ?

-- name: at
SELECT at FROM timeline WHERE space_key = ? AND seq = ?
