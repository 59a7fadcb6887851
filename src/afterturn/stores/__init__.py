"""Where entries are kept. `sql` is what relational stores share; a folder beside it is one store."""
