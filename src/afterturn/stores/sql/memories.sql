-- The long statements of `memories.py`. A name begins each; lines are joined by a space, and values are bound as ?.

-- name: like
-- The status is part of the SQL: with a bound one SQLite would not use the indexes of one status.
SELECT e.key, s.name, e.has_sources, e.id, e.version, e.kind, e.text, e.status, e.origin, e.trust, e.target,
e.content_hash, e.recorded_at, e.occurred_at, e.agent, e.project, e.conversation, e.owner, e.turn, e.position,
e.speaker, e.valid_from, e.valid_to, e.expires_at, e.pinned, e.metadata, e.reason, e.firm, e.space_key
FROM entry AS e JOIN space AS s ON s.key = e.space_key
WHERE e.space_key = ? AND e.target = ? AND coalesce(e.agent, '') = ? AND coalesce(e.project, '') = ? AND
e.content_hash = ? AND e.kind = 'statement' AND e.status = '{status}'

-- name: waiting
SELECT e.key, s.name, e.has_sources, e.id, e.version, e.kind, e.text, e.status, e.origin, e.trust, e.target,
e.content_hash, e.recorded_at, e.occurred_at, e.agent, e.project, e.conversation, e.owner, e.turn, e.position,
e.speaker, e.valid_from, e.valid_to, e.expires_at, e.pinned, e.metadata, e.reason, e.firm, e.space_key, e.base
FROM entry AS e JOIN space AS s ON s.key = e.space_key
WHERE e.space_key = ? AND e.id = ? AND e.status IN ('proposed', 'withdrawal')

-- name: active_then
-- The status of a version after its last step up to that time.
'active' = (SELECT p.after FROM step AS p JOIN operation AS o ON o.seq = p.operation_seq WHERE p.entry_key = e.key AND
o.at <= ? ORDER BY o.seq DESC, p.ordinal DESC LIMIT 1)

-- name: better
NOT EXISTS (SELECT 1 FROM entry AS n WHERE n.space_key = e.space_key AND n.id = e.id AND (n.status = 'active',
n.version) > (e.status = 'active', e.version) AND {condition})
