-- The long statements of `vectors.py`. A name begins each; lines are joined by a space, and values are bound as ?.

-- name: without
NOT EXISTS (SELECT 1 FROM embedding AS v WHERE v.embedder_key = {embedder} AND v.space_key = e.space_key AND
v.entry_key = e.key)
