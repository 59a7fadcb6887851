-- The long statements of `forget.py`. A name begins each; lines are joined by a space, and values are bound as ?.

-- name: resting
-- Concatenated, so that the query planner does not start at all entries of the tenant.
SELECT e.key, e.space_key, e.id, e.version, e.kind, o.source FROM entry AS e
JOIN source AS o ON o.entry_key = e.key
WHERE e.key IN (SELECT entry_key FROM source WHERE {named}) AND e.kind = 'statement' AND e.tenant || '' = ?

-- name: unrecorded
conversation_key IN (SELECT key FROM conversation WHERE space_key = ?) AND NOT EXISTS (SELECT 1 FROM turn AS t WHERE
t.conversation_key = {table}.conversation_key AND t.id = {table}.turn AND t.recorded_at IS NOT NULL)

-- name: by_source
-- The tenant is checked for each message: a tenant has more spaces than a record has messages.
DELETE FROM review_message
WHERE {condition} AND EXISTS (SELECT 1 FROM space WHERE key = review_message.space_key AND tenant = ?)

-- name: next
-- As `Records.next_position` counts.
SELECT coalesce(max(position) + 1, 0) AS position FROM entry
WHERE space_key = (SELECT key FROM space WHERE tenant = ? AND name = ?) AND conversation = ? AND coalesce(owner, '') =
? AND kind = 'record'

-- name: set_back
UPDATE conversation SET unread_position = n.position
FROM (SELECT coalesce(max(position) + 1, 0) AS position FROM entry WHERE space_key = (SELECT key FROM space WHERE
tenant = ? AND name = ?) AND conversation = ? AND coalesce(owner, '') = ? AND kind = 'record') AS n
WHERE key = (SELECT c.key FROM conversation AS c JOIN space AS s ON s.key = c.space_key WHERE s.tenant = ? AND s.name
= ? AND c.id = ?) AND unread_position > n.position

-- name: recorded
-- An import may name any owner. Only a record that a conversation has made leads to what its owner's space has of
-- it.
EXISTS (SELECT 1 FROM step AS made JOIN operation AS by_verb ON by_verb.seq = made.operation_seq WHERE made.entry_key
= e.key AND by_verb.verb = 'record')

-- name: gone_sources
-- The tenant is checked for each source: a tenant has more spaces than a record has statements.
DELETE FROM source
WHERE {condition} AND EXISTS (SELECT 1 FROM entry AS e WHERE e.key = source.entry_key AND e.tenant = ?)

-- name: change_times
UPDATE space
SET changed_at = coalesce((SELECT max(at) FROM operation WHERE space_key = ? AND verb NOT IN ('record', 'undo')), 0),
consolidated_at = coalesce((SELECT max(created_at) FROM review WHERE space_key = ? AND kind = 'consolidation'), 0)
WHERE key = ?

-- name: rival
SELECT 1 FROM entry AS e
JOIN entry AS r ON r.space_key = e.space_key AND r.status = 'active' AND r.key <> e.key AND (r.id = e.id OR (r.kind =
'statement' AND r.target = e.target AND r.content_hash = e.content_hash AND coalesce(r.agent, '') = coalesce(e.agent,
'') AND coalesce(r.project, '') = coalesce(e.project, '')))
WHERE e.key = ?

-- name: keep_hashes
INSERT INTO spent_block (space_key, hash, size_bytes) SELECT ?, hash, size_bytes FROM block
WHERE conversation_key = ? ON CONFLICT (space_key, hash) DO NOTHING
