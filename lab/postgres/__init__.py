"""A real PostgreSQL server for tests, from a wheel, and the environment that has it."""
