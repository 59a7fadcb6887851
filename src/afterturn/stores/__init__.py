"""The stores. `sql` has the repositories that relational stores share; every other folder is one store."""
