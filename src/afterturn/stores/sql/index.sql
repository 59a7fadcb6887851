-- The long statements of `index.py`. A name begins each; lines are joined by a space, and values are bound as ?.

-- name: state
SELECT s.key, s.embedder_key, (SELECT key FROM embedder WHERE name = ? AND version = ? AND dimensions = ? AND
normalised = ?), (SELECT value FROM meta WHERE key = 'embedder')
FROM space AS s WHERE s.tenant = ? AND s.name = ?

-- name: speakers
-- Jumps from one name to the next in the index: a space with a hundred thousand messages has a few speakers.
WITH RECURSIVE spoke (speaker) AS (SELECT min(speaker) FROM entry WHERE space_key = ? AND status = 'active' AND
speaker IS NOT NULL UNION ALL SELECT (SELECT min(speaker) FROM entry WHERE space_key = ? AND status = 'active' AND
speaker > spoke.speaker) FROM spoke WHERE spoke.speaker IS NOT NULL) SELECT speaker
FROM spoke LIMIT ?

-- name: changed
SELECT entry_key FROM change
WHERE space_key = (SELECT key FROM space WHERE tenant = ? AND name = ?) AND seq > ? ORDER BY seq
