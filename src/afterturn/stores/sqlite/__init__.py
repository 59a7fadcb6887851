"""The embedded store: one SQLite file in WAL mode, shared by any number of processes."""
