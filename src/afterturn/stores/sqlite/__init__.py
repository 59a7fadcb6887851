"""The embedded store: one SQLite file in WAL mode, which any number of processes may use."""
