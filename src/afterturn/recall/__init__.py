"""From a query to a recollection: search by words and by meaning, lane by lane, and the budget of a block."""
