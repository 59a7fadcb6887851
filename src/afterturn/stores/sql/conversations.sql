-- The long statements of `conversations.py`. A name begins each; lines are joined by a space, and values are bound as ?.

-- name: find_conversation
-- The key of a conversation; binds tenant, space and id.
SELECT c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key
WHERE s.tenant = ? AND s.name = ? AND c.id = ?

-- name: activate
INSERT INTO conversation (space_key, id, opened_at, active_at) SELECT key, ?, ?, ? FROM space
WHERE tenant = ? AND name = ?
ON CONFLICT (space_key, id) DO UPDATE SET active_at = CASE WHEN conversation.active_at < excluded.active_at THEN
excluded.active_at ELSE conversation.active_at END
RETURNING key, space_key

-- name: insert_block
-- A turn's blocks are stored again when it is recorded, which may be long after they were cleared.
INSERT INTO block (conversation_key, hash, size_bytes, turn, injected_at, point, anchor, in_sight)
VALUES ((SELECT c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key WHERE s.tenant = ? AND s.name = ?
AND c.id = ?), ?, ?, ?, ?, ?, ?, CASE WHEN EXISTS (SELECT 1 FROM conversation WHERE key = (SELECT c.key FROM
conversation AS c JOIN space AS s ON s.key = c.space_key WHERE s.tenant = ? AND s.name = ? AND c.id = ?) AND
cleared_at > ?) THEN 0 ELSE ? END)
ON CONFLICT (conversation_key, hash) DO NOTHING

-- name: insert_refs
-- Before the block: one that is stored has lost its references to forgotten memories.
INSERT INTO block_ref (conversation_key, hash, ordinal, ref) WITH new (ordinal, ref) AS (VALUES {rows}) SELECT (SELECT
c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key WHERE s.tenant = ? AND s.name = ? AND c.id = ?),
?, new.ordinal, new.ref
FROM new
WHERE NOT EXISTS (SELECT 1 FROM block WHERE conversation_key = (SELECT c.key FROM conversation AS c JOIN space AS s ON
s.key = c.space_key WHERE s.tenant = ? AND s.name = ? AND c.id = ?) AND hash = ?)

-- name: move_block
-- A visible block stays where it was first injected. A block that was hidden is now where it is injected again.
UPDATE block SET turn = ?, injected_at = ?, point = ?, anchor = ?, in_sight = 1
WHERE conversation_key = (SELECT c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key WHERE s.tenant =
? AND s.name = ? AND c.id = ?) AND hash = ? AND in_sight = 0 AND NOT EXISTS (SELECT 1 FROM conversation WHERE key =
(SELECT c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key WHERE s.tenant = ? AND s.name = ? AND c.id
= ?) AND cleared_at > ?)

-- name: set_block_text
-- A hash has one text. A recording may store the block first, without it.
UPDATE block SET text = ?
WHERE conversation_key = (SELECT c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key WHERE s.tenant =
? AND s.name = ? AND c.id = ?) AND hash = ? AND text = '' AND (SELECT count(DISTINCT CASE WHEN e.version = 1 THEN e.id
ELSE e.id || '.' || e.version END) FROM entry AS e WHERE e.tenant = ? AND {condition}) = ?

-- name: select_blocks
SELECT hash, turn, size_bytes, injected_at, point, anchor, text, in_sight FROM block
WHERE conversation_key = (SELECT c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key WHERE s.tenant =
? AND s.name = ? AND c.id = ?)
ORDER BY injected_at, hash

-- name: select_visible_blocks
SELECT hash, turn, size_bytes, injected_at, point, anchor, CASE WHEN in_sight = 1 THEN text ELSE '' END, in_sight
FROM block
WHERE conversation_key = (SELECT c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key WHERE s.tenant =
? AND s.name = ? AND c.id = ?)
ORDER BY injected_at, hash

-- name: select_visible_refs
SELECT r.hash, r.ref FROM block AS b
JOIN block_ref AS r ON r.conversation_key = b.conversation_key AND r.hash = b.hash
WHERE b.conversation_key = (SELECT c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key WHERE s.tenant
= ? AND s.name = ? AND c.id = ?) AND b.in_sight = 1
ORDER BY r.hash, r.ordinal

-- name: select_spent
SELECT b.hash, b.size_bytes FROM spent_block AS b JOIN space AS s ON s.key = b.space_key
WHERE s.tenant = ? AND s.name = ? ORDER BY b.hash

-- name: put_carried
INSERT INTO carried (conversation_key, correlation, turn, names, detail) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (conversation_key) DO UPDATE SET correlation = excluded.correlation, turn = excluded.turn, names =
excluded.names, detail = excluded.detail

-- name: before
AND (c.active_at, c.key) < (SELECT b.active_at, b.key FROM conversation AS b WHERE b.space_key = c.space_key AND b.id
= ?)

-- name: turns
SELECT id, status, started_at, user_hash, ended_at, recorded_at, taint, incognito FROM turn
WHERE conversation_key = (SELECT c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key WHERE s.tenant =
? AND s.name = ? AND c.id = ?)

-- name: state
SELECT c.turns, c.compactions, c.compacted_at, c.incognito, EXISTS (SELECT 1 FROM turn WHERE conversation_key = c.key
AND incognito = 1)
FROM conversation AS c JOIN space AS s ON s.key = c.space_key
WHERE s.tenant = ? AND s.name = ? AND c.id = ?

-- name: start_turn
INSERT INTO turn (tenant, conversation_key, id, status, started_at, touched_at, user_hash, ended_at, recorded_at,
taint, incognito) SELECT s.tenant, c.key, ?, ?, ?, ?, ?, ?, ?, ?, ?
FROM conversation AS c JOIN space AS s ON s.key = c.space_key
WHERE s.tenant = ? AND s.name = ? AND c.id = ? ON CONFLICT (conversation_key, id) DO NOTHING
RETURNING id

-- name: put_recall
INSERT INTO recall (space_key, conversation_key, correlation, phase, turn, delivered_in, asked_at, names, detail)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (conversation_key, correlation, phase) DO UPDATE SET turn = excluded.turn, delivered_in =
excluded.delivered_in, asked_at = excluded.asked_at, names = excluded.names, detail = excluded.detail

-- name: trim_recalls
DELETE FROM recall
WHERE space_key = ? AND key <= (SELECT key FROM recall WHERE space_key = ? ORDER BY key DESC LIMIT 1 OFFSET ?)
