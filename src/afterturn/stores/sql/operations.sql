-- The long statements of `operations.py`. A name begins each; lines are joined by a space, and values are bound as ?.

-- name: steps
-- The sum keeps the query planner from starting at the space, and so at all of its operations.
SELECT o.id, s.tenant, s.name, o.verb, o.actor, o.at, o.grp, e.id, e.version, p.before, p.after
FROM step AS p JOIN operation AS o ON o.seq = p.operation_seq
JOIN entry AS e ON e.key = p.entry_key JOIN space AS s ON s.key = o.space_key + 0

-- name: log
-- An operation's last step is on the version that it left behind; its first may be on the one before.
SELECT o.id, s.tenant, s.name, o.verb, o.actor, o.at, o.grp, e.id, e.version, e.space_key, e.text, (SELECT
count(DISTINCT n.id) FROM step AS m JOIN entry AS n ON n.key = m.entry_key WHERE m.operation_seq = o.seq)
FROM operation AS o JOIN space AS s ON s.key = o.space_key LEFT
JOIN step AS p ON p.operation_seq = o.seq AND p.ordinal = (SELECT max(q.ordinal) FROM step AS q WHERE q.operation_seq
= o.seq)
LEFT JOIN entry AS e ON e.key = p.entry_key WHERE {where} ORDER BY o.seq DESC LIMIT ?

-- name: touched
SELECT p.entry_key, p.before, p.after, e.status FROM step AS p
JOIN operation AS o ON o.seq = p.operation_seq JOIN entry AS e ON e.key = p.entry_key
WHERE o.space_key = ? AND (o.id = ? OR o.grp = ?) ORDER BY o.seq, p.ordinal

-- name: latest
SELECT e.id, o.id FROM step AS p JOIN operation AS o ON o.seq = p.operation_seq
JOIN entry AS e ON e.key = p.entry_key WHERE p.entry_key = ? ORDER BY p.operation_seq DESC
LIMIT 1

-- name: rival
SELECT r.key, r.id, r.status, r.id = e.id FROM entry AS e
JOIN entry AS r ON r.space_key = e.space_key AND r.key <> e.key AND {rivalry} WHERE e.key = ?
