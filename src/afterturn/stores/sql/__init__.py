"""The repositories of `ports/` in SQL that SQLite and PostgreSQL both understand, on a small `Session`."""
