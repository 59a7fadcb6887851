"""The tables as ordered migrations, and the function that brings a schema of a database to the current version."""

from __future__ import annotations

import re
import threading
import uuid

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from afterturn.errors import ForeignFile, StoreLocked, StoreTooNew, StoreUnavailable
from afterturn.stores.postgres.connection import StoreServer
from afterturn.stores.postgres.errors import describe_error, translate
from afterturn.stores.postgres.session import PgConnection

# A migration that waits for a table keeps everybody behind it waiting too, so it gives up soon and tries again.
_LOCK_TIMEOUT = "300ms"
_TRIES_MAX = 100
_PAUSE = 0.3


def migrate(connection: PgConnection, server: StoreServer) -> int:
    """Brings the schema to the current version and returns the number of steps. Others may do the same meanwhile.

    Creates the schema if it is missing and the role may do that. Raises a StoreError.
    """
    taken = 0
    try:
        version = _find_version(connection, server)
        while version < len(MIGRATIONS):
            taken += _migrate_once(connection, server, version)
            version = _find_version(connection, server)
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreUnavailable(
            f"The role may not create or change the tables of the store {server.name}: {describe_error(error)}. Let an "
            f'administrator run CREATE SCHEMA "{server.schema}" AUTHORIZATION <role>, or open it once as the owner.'
        ) from error
    except psycopg.errors.DuplicateTable as error:
        raise ForeignFile(
            f"The schema {server.schema!r} has tables of another program: {describe_error(error)}. Name another schema "
            "with ?schema= in the URL."
        ) from error
    except psycopg.Error as error:
        raise translate(error, server.name) from error
    check_version(version, server)
    return taken


def check_version(version: int, server: StoreServer) -> None:
    if version > len(MIGRATIONS):
        raise StoreTooNew(
            f"The store {server.name} has schema version {version}; this afterturn knows up to {len(MIGRATIONS)}. "
            "Upgrade afterturn, or open another store."
        )


def find_version(connection: PgConnection, server: StoreServer) -> int:
    """0 if there is no store. Raises a StoreError."""
    try:
        return _find_version(connection, server)
    except psycopg.Error as error:
        raise translate(error, server.name) from error


def _find_version(connection: PgConnection, server: StoreServer) -> int:
    table = sql.Identifier(server.schema, "meta")
    found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table.as_string(connection),)).fetchone()
    if found is None or not found[0]:
        return 0
    query = sql.SQL("SELECT value FROM {} WHERE key = 'schema'").format(table)
    row = connection.execute(query).fetchone()
    return 0 if row is None else int(row[0])


def _migrate_once(connection: PgConnection, server: StoreServer, step: int) -> int:
    """Takes one step in one transaction. 0 if another process has taken it. Waits for locks in short tries."""
    schema = sql.Identifier(server.schema)
    pause = threading.Event()
    for _ in range(_TRIES_MAX):
        try:
            connection.execute(server.begin_write())
            if _find_version(connection, server) != step:
                return 0
            connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
            if not step and not _has_schema(connection, server):
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
            for statement in MIGRATIONS[step]:
                connection.execute(_collated(statement).encode())
            if not step:
                connection.execute(
                    "INSERT INTO meta (key, value) VALUES ('generation', %s), ('forgets', '0'), ('schema', '0')",
                    (uuid.uuid4().hex,),
                )
            connection.execute("UPDATE meta SET value = %s WHERE key = 'schema'", (str(step + 1),))
            connection.execute("COMMIT")
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            connection.execute("ROLLBACK")
            pause.wait(_PAUSE)
        else:
            return 1
        finally:
            if not connection.closed and connection.info.transaction_status is not TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
    raise StoreLocked(
        f"The tables of the store {server.name} are in use by other sessions, so they could not be migrated to version "
        f"{step + 1}. End long transactions, then open it again."
    )


def _has_schema(connection: PgConnection, server: StoreServer) -> bool:
    """Asked first: CREATE SCHEMA IF NOT EXISTS needs the right to create one, even if it is there."""
    row = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (server.schema,)).fetchone()
    return row is not None


def _collated(statement: str) -> str:
    """Texts are compared byte by byte, as in every store, whatever the database's own order is."""
    return re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', statement)


_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE space (
        key BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        seq BIGINT NOT NULL DEFAULT 0,
        documents BIGINT NOT NULL DEFAULT 0,
        terms_total BIGINT NOT NULL DEFAULT 0,
        UNIQUE (tenant, name)
    )""",
    """CREATE TABLE entry (
        key BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
        id TEXT NOT NULL,
        version BIGINT NOT NULL,
        space_key BIGINT NOT NULL,
        kind TEXT NOT NULL,
        status TEXT NOT NULL,
        text TEXT NOT NULL,
        target TEXT NOT NULL,
        origin TEXT NOT NULL,
        trust BIGINT NOT NULL,
        content_hash TEXT NOT NULL,
        agent TEXT,
        project TEXT,
        conversation TEXT,
        owner TEXT,
        turn TEXT,
        position BIGINT,
        speaker TEXT,
        occurred_at DOUBLE PRECISION NOT NULL,
        recorded_at DOUBLE PRECISION NOT NULL,
        valid_from DOUBLE PRECISION,
        valid_to DOUBLE PRECISION,
        expires_at DOUBLE PRECISION,
        pinned BIGINT NOT NULL,
        metadata TEXT NOT NULL,
        reason TEXT NOT NULL,
        has_sources BIGINT NOT NULL,
        base BIGINT,
        spent BIGINT NOT NULL DEFAULT 0,
        telling BIGINT NOT NULL DEFAULT 0,
        firm BIGINT NOT NULL DEFAULT 0,
        UNIQUE (space_key, id, version)
    )""",
    "CREATE UNIQUE INDEX entry_one_active ON entry (space_key, id) WHERE status = 'active'",
    """CREATE UNIQUE INDEX entry_duplicate
        ON entry (space_key, target, coalesce(agent, ''), coalesce(project, ''), content_hash)
        WHERE kind = 'statement' AND status = 'active'""",
    "CREATE INDEX entry_active ON entry (space_key, key) WHERE status = 'active'",
    """CREATE INDEX entry_conversation
        ON entry (space_key, conversation, coalesce(owner, ''), position) WHERE conversation IS NOT NULL""",
    "CREATE INDEX entry_recorded ON entry (recorded_at) WHERE kind = 'record'",
    """CREATE TABLE source (
        entry_key BIGINT NOT NULL,
        ordinal BIGINT NOT NULL,
        source TEXT NOT NULL,
        PRIMARY KEY (entry_key, ordinal)
    )""",
    "CREATE INDEX source_name ON source (source)",
    """CREATE TABLE operation (
        seq BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        space_key BIGINT NOT NULL,
        verb TEXT NOT NULL,
        actor TEXT NOT NULL,
        at DOUBLE PRECISION NOT NULL,
        grp TEXT
    )""",
    "CREATE INDEX operation_space ON operation (space_key, seq)",
    "CREATE INDEX operation_group ON operation (grp) WHERE grp IS NOT NULL",
    """CREATE TABLE step (
        operation_seq BIGINT NOT NULL,
        ordinal BIGINT NOT NULL,
        entry_key BIGINT NOT NULL,
        before TEXT,
        after TEXT NOT NULL,
        PRIMARY KEY (operation_seq, ordinal)
    )""",
    "CREATE INDEX step_entry ON step (entry_key)",
    """CREATE TABLE conversation (
        key BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
        space_key BIGINT NOT NULL,
        id TEXT NOT NULL,
        opened_at DOUBLE PRECISION NOT NULL,
        active_at DOUBLE PRECISION NOT NULL,
        turns BIGINT NOT NULL DEFAULT 0,
        compactions BIGINT NOT NULL DEFAULT 0,
        compacted_at DOUBLE PRECISION,
        cleared_at DOUBLE PRECISION,
        unreviewed_turns BIGINT NOT NULL DEFAULT 0,
        unread_position BIGINT NOT NULL DEFAULT 0,
        incognito BIGINT NOT NULL DEFAULT 0,
        UNIQUE (space_key, id)
    )""",
    """CREATE TABLE turn (
        conversation_key BIGINT NOT NULL,
        id TEXT NOT NULL,
        status TEXT NOT NULL,
        started_at DOUBLE PRECISION NOT NULL,
        touched_at DOUBLE PRECISION NOT NULL,
        user_hash TEXT NOT NULL,
        ended_at DOUBLE PRECISION,
        recorded_at DOUBLE PRECISION,
        taint TEXT NOT NULL DEFAULT '',
        incognito BIGINT NOT NULL DEFAULT 0,
        PRIMARY KEY (conversation_key, id)
    )""",
    "CREATE INDEX turn_open ON turn (touched_at) WHERE status = 'open'",
    """CREATE TABLE block (
        conversation_key BIGINT NOT NULL,
        hash TEXT NOT NULL,
        turn TEXT NOT NULL,
        size_bytes BIGINT NOT NULL,
        injected_at DOUBLE PRECISION NOT NULL,
        point TEXT NOT NULL DEFAULT '',
        anchor TEXT NOT NULL DEFAULT '',
        text TEXT NOT NULL DEFAULT '',
        in_sight BIGINT NOT NULL DEFAULT 1,
        PRIMARY KEY (conversation_key, hash)
    )""",
    """CREATE TABLE block_ref (
        conversation_key BIGINT NOT NULL,
        hash TEXT NOT NULL,
        ordinal BIGINT NOT NULL,
        ref TEXT NOT NULL,
        PRIMARY KEY (conversation_key, hash, ordinal)
    )""",
    "CREATE INDEX block_ref_name ON block_ref (ref)",
    """CREATE TABLE spent_block (
        space_key BIGINT NOT NULL,
        hash TEXT NOT NULL,
        size_bytes BIGINT NOT NULL,
        PRIMARY KEY (space_key, hash)
    )""",
    """CREATE TABLE job (
        id TEXT NOT NULL PRIMARY KEY,
        space_key BIGINT NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        run_at DOUBLE PRECISION NOT NULL,
        attempts BIGINT NOT NULL DEFAULT 0,
        state TEXT NOT NULL DEFAULT 'ready',
        error TEXT NOT NULL DEFAULT '',
        owner TEXT,
        leased_until DOUBLE PRECISION
    )""",
    "CREATE INDEX job_due ON job (state, run_at, id)",
    "CREATE INDEX job_space ON job (space_key, kind)",
    """CREATE TABLE timeline (
        space_key BIGINT NOT NULL,
        seq BIGINT NOT NULL,
        at DOUBLE PRECISION NOT NULL,
        name TEXT NOT NULL,
        conversation TEXT NOT NULL,
        turn TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (space_key, seq)
    )""",
    """CREATE TABLE tombstone (
        space_key BIGINT NOT NULL,
        kind TEXT NOT NULL,
        hash TEXT NOT NULL,
        seq BIGINT NOT NULL,
        at DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (space_key, kind, hash)
    )""",
    # The terms in order, as JSON, and a hash for each (space, term). Without `fastupdate`: a search would read the list
    # of pending rows from end to end.
    """CREATE TABLE entry_terms (
        entry_key BIGINT PRIMARY KEY,
        hashes BIGINT[] NOT NULL,
        terms TEXT NOT NULL
    )""",
    "CREATE INDEX entry_terms_hashes ON entry_terms USING gin (hashes) WITH (fastupdate = off)",
    """CREATE TABLE frequency (
        space_key BIGINT NOT NULL,
        term TEXT NOT NULL,
        documents BIGINT NOT NULL,
        PRIMARY KEY (space_key, term)
    )""",
    """CREATE TABLE change (
        space_key BIGINT NOT NULL,
        seq BIGINT NOT NULL,
        entry_key BIGINT NOT NULL,
        PRIMARY KEY (space_key, seq)
    )""",
    """CREATE TABLE embedder (
        key BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
        name TEXT NOT NULL,
        version TEXT NOT NULL,
        dimensions BIGINT NOT NULL,
        normalised BIGINT NOT NULL,
        UNIQUE (name, version, dimensions, normalised)
    )""",
    """CREATE TABLE embedding (
        embedder_key BIGINT NOT NULL,
        space_key BIGINT NOT NULL,
        entry_key BIGINT NOT NULL,
        data BYTEA NOT NULL,
        PRIMARY KEY (embedder_key, space_key, entry_key)
    )""",
    """CREATE TABLE embedded (
        embedder_key BIGINT NOT NULL,
        space_key BIGINT NOT NULL,
        entry_key BIGINT NOT NULL,
        PRIMARY KEY (embedder_key, space_key)
    )""",
    """CREATE TABLE carried (
        key BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
        conversation_key BIGINT NOT NULL UNIQUE,
        correlation TEXT NOT NULL,
        turn TEXT NOT NULL,
        names TEXT NOT NULL,
        detail TEXT NOT NULL
    )""",
    """CREATE TABLE standing (
        conversation_key BIGINT PRIMARY KEY,
        made_at DOUBLE PRECISION NOT NULL,
        text TEXT NOT NULL
    )""",
    """CREATE TABLE standing_ref (
        conversation_key BIGINT NOT NULL,
        ordinal BIGINT NOT NULL,
        ref TEXT NOT NULL,
        PRIMARY KEY (conversation_key, ordinal)
    )""",
    "CREATE INDEX standing_ref_name ON standing_ref (ref)",
    """CREATE TABLE recall (
        key BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
        space_key BIGINT NOT NULL,
        conversation_key BIGINT NOT NULL,
        correlation TEXT NOT NULL,
        phase TEXT NOT NULL,
        turn TEXT NOT NULL,
        delivered_in TEXT NOT NULL,
        asked_at DOUBLE PRECISION NOT NULL,
        names TEXT NOT NULL,
        detail TEXT NOT NULL,
        UNIQUE (conversation_key, correlation, phase)
    )""",
    "CREATE INDEX recall_space ON recall (space_key, key)",
    "CREATE INDEX recall_turn ON recall (conversation_key, turn)",
    "CREATE INDEX entry_id ON entry (id)",
    """CREATE UNIQUE INDEX entry_proposal
        ON entry (space_key, target, coalesce(agent, ''), coalesce(project, ''), content_hash)
        WHERE kind = 'statement' AND status = 'proposed'""",
    "CREATE INDEX entry_speaker ON entry (space_key, speaker) WHERE status = 'active' AND speaker IS NOT NULL",
    "CREATE INDEX operation_changed ON operation (space_key, at) WHERE verb NOT IN ('record', 'undo')",
    """CREATE UNIQUE INDEX entry_one_waiting
        ON entry (space_key, id) WHERE status IN ('proposed', 'withdrawal')""",
    """CREATE TABLE review (
        space_key BIGINT NOT NULL,
        id TEXT NOT NULL,
        kind TEXT NOT NULL,
        writes TEXT NOT NULL,
        created_at DOUBLE PRECISION NOT NULL,
        conversation TEXT NOT NULL,
        turn TEXT NOT NULL,
        reads TEXT NOT NULL,
        agent TEXT,
        project TEXT,
        forgets BIGINT NOT NULL,
        state TEXT NOT NULL,
        ended_at DOUBLE PRECISION,
        written BIGINT NOT NULL,
        proposed BIGINT NOT NULL,
        refusals TEXT NOT NULL,
        calls BIGINT NOT NULL,
        tokens BIGINT NOT NULL,
        reason TEXT NOT NULL,
        spaces TEXT NOT NULL,
        notes TEXT NOT NULL,
        environment TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (space_key, id)
    )""",
    "CREATE INDEX review_id ON review (id)",
    "CREATE INDEX review_writes ON review (writes)",
    "CREATE INDEX review_kind ON review (space_key, kind, created_at)",
    "CREATE INDEX review_conversation ON review (space_key, conversation, id)",
    """CREATE UNIQUE INDEX review_one_waiting ON review (space_key, conversation)
        WHERE state = 'waiting' AND kind IN ('interval', 'compaction', 'asked') AND conversation <> ''""",
    """CREATE TABLE review_message (
        space_key BIGINT NOT NULL,
        review TEXT NOT NULL,
        ordinal BIGINT NOT NULL,
        role TEXT NOT NULL,
        speaker TEXT NOT NULL,
        text TEXT NOT NULL,
        source TEXT,
        trust BIGINT NOT NULL,
        occurred_at DOUBLE PRECISION NOT NULL,
        fresh BIGINT NOT NULL,
        PRIMARY KEY (space_key, review, ordinal)
    )""",
    "CREATE INDEX review_message_source ON review_message (source) WHERE source IS NOT NULL",
    """CREATE TABLE usage (
        space_key BIGINT NOT NULL,
        day TEXT NOT NULL,
        purpose TEXT NOT NULL,
        calls BIGINT NOT NULL,
        tokens_in BIGINT NOT NULL,
        tokens_out BIGINT NOT NULL,
        estimated BIGINT NOT NULL,
        PRIMARY KEY (space_key, day, purpose)
    )""",
    "CREATE INDEX usage_day ON usage (day)",
    "CREATE INDEX entry_telling ON entry (space_key, telling, id) WHERE status = 'active' AND telling > 0",
    "CREATE INDEX entry_statement ON entry (space_key, id) WHERE kind = 'statement' AND status = 'active'",
    "CREATE INDEX turn_incognito ON turn (conversation_key) WHERE incognito = 1",
    # The last commit of each process that writes. After a connection was lost during COMMIT, it says whether that took
    # place.
    """CREATE TABLE last_commit (
        writer TEXT PRIMARY KEY,
        commit_id TEXT NOT NULL,
        at DOUBLE PRECISION NOT NULL
    )""",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_TABLES,)
"""`MIGRATIONS[n]` leads from version n to n + 1, in one transaction that excludes every writer."""
