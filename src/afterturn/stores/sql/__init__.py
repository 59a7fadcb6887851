"""The repositories of `base.ports` in SQL that SQLite and PostgreSQL both speak, over one small `Session`."""
