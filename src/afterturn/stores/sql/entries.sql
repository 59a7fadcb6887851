-- The long statements of `entries.py`. A name begins each; lines are joined by a space, and values are bound as ?.

-- name: learned
-- A statement all of whose sources are visible records of its own space.
e.kind = 'statement' AND e.has_sources = 1 AND NOT EXISTS (SELECT 1 FROM source AS o WHERE o.entry_key = e.key AND NOT
EXISTS (SELECT 1 FROM entry AS r WHERE r.space_key = e.space_key AND r.id = o.source AND r.kind = 'record' AND
({visible})))
