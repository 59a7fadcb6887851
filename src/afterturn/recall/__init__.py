"""From a query to search results: search by words and by meaning, lane by lane, and the budget of a block."""
