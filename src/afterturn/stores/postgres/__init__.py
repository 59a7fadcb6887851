"""The store on a PostgreSQL server, for memory that several machines share. Needs the extra `postgres`."""
