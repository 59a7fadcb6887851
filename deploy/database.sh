#!/bin/sh
# Run once, by the image of PostgreSQL, when the database is created. The role owns its schema and nothing else: a
# superuser would not be stopped by row-level security.
set -eu
psql --quiet --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname "${POSTGRES_DB:-afterturn}" \
    --set password="$(cat "${DATABASE_PASSWORD_FILE:-/run/secrets/database_password}")" <<'SQL'
CREATE ROLE afterturn LOGIN PASSWORD :'password';
CREATE SCHEMA afterturn AUTHORIZATION afterturn;
-- The server's log would have texts of memories in statements that fail: see docs/postgres.md.
ALTER ROLE afterturn SET log_min_error_statement = panic;
SQL
