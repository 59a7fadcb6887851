"""The repositories of `ports.py` in SQL that SQLite and PostgreSQL both understand, on a small `Session`."""
