"""The tables as ordered migrations, and the function that brings a file to the current schema."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from afterturn.errors import StoreTooNew
from afterturn.stores.sql.entries import StatsDelta
from afterturn.stores.sql.session import Session
from afterturn.stores.sqlite.connection import APPLICATION_ID, StoreLocation, identify, run, wait_for_locks
from afterturn.stores.sqlite.errors import translate
from afterturn.stores.sqlite.session import ApswSession, FtsText
from afterturn.text import terms
from afterturn.utterance import rate_telling

_MIGRATION_WAIT = 30.0


def migrate(connection: apsw.Connection, place: StoreLocation, keep_copy: Callable[[int], None]) -> int:
    """Brings a file to the current schema and returns the number of steps. Other processes may do the same meanwhile.

    `keep_copy(version)` is called under the lock, before an existing store changes.
    """
    version = check_version(connection, place)
    if version == len(place.migrations):
        return 0
    if version:
        wait_for_locks(connection, lambda: max(_MIGRATION_WAIT, place.config.busy_timeout))
    taken = 0
    try:
        for step in range(version, len(place.migrations)):
            if _run_migration(connection, place, step, keep_copy if not taken else _keep_nothing):
                taken += 1
    except apsw.Error as error:
        raise translate(error, str(place.path)) from error
    finally:
        wait_for_locks(connection, lambda: place.config.busy_timeout)
    return taken


def check_version(connection: apsw.Connection, place: StoreLocation) -> int:
    version = identify(connection)
    if version > len(place.migrations):
        raise StoreTooNew(
            f"The store {connection.filename} has schema version {version}; this afterturn knows up to "
            f"{len(place.migrations)}. Upgrade afterturn, or open another store."
        )
    return version


def _run_migration(
    connection: apsw.Connection, place: StoreLocation, step: int, keep_copy: Callable[[int], None]
) -> bool:
    run(connection, "BEGIN IMMEDIATE")
    try:
        # Another process may have taken this step while this one waited for the lock.
        if check_version(connection, place) != step:
            run(connection, "ROLLBACK")
            return False
        if step:
            keep_copy(step)
        else:
            run(connection, f"PRAGMA application_id={APPLICATION_ID}")
        for statement in place.migrations[step]:
            run(connection, statement)
        if derive := place.after.get(step + 1):
            derive(ApswSession(connection))
        run(connection, f"PRAGMA user_version={step + 1}")
        run(connection, "COMMIT")
    except BaseException:
        if connection.in_transaction:
            run(connection, "ROLLBACK")
        raise
    return True


def _keep_nothing(version: int) -> None:
    return None


_ENTRIES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "INSERT INTO meta (key, value) VALUES ('generation', lower(hex(randomblob(16))))",
    """CREATE TABLE space (
        key INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        seq INTEGER NOT NULL DEFAULT 0,
        documents INTEGER NOT NULL DEFAULT 0,
        terms_total INTEGER NOT NULL DEFAULT 0,
        UNIQUE (tenant, name)
    )""",
    # AUTOINCREMENT: a key that was forgotten must never name another entry, or a late vector would land on it.
    """CREATE TABLE entry (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        version INTEGER NOT NULL,
        space_key INTEGER NOT NULL,
        kind TEXT NOT NULL,
        status TEXT NOT NULL,
        text TEXT NOT NULL,
        target TEXT NOT NULL,
        origin TEXT NOT NULL,
        trust INTEGER NOT NULL,
        content_hash TEXT NOT NULL,
        agent TEXT,
        project TEXT,
        conversation TEXT,
        owner TEXT,
        turn TEXT,
        position INTEGER,
        speaker TEXT,
        occurred_at REAL NOT NULL,
        recorded_at REAL NOT NULL,
        valid_from REAL,
        valid_to REAL,
        expires_at REAL,
        pinned INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        reason TEXT NOT NULL,
        has_sources INTEGER NOT NULL,
        UNIQUE (space_key, id, version)
    )""",
    "CREATE UNIQUE INDEX entry_one_active ON entry (space_key, id) WHERE status = 'active'",
    """CREATE UNIQUE INDEX entry_duplicate
        ON entry (space_key, target, coalesce(agent, ''), coalesce(project, ''), content_hash)
        WHERE kind = 'statement' AND status = 'active'""",
    "CREATE INDEX entry_active ON entry (space_key) WHERE status = 'active'",
    """CREATE INDEX entry_conversation
        ON entry (space_key, conversation, coalesce(owner, ''), position) WHERE conversation IS NOT NULL""",
    "CREATE INDEX entry_recorded ON entry (recorded_at) WHERE kind = 'record'",
    """CREATE TABLE source (
        entry_key INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        source TEXT NOT NULL,
        PRIMARY KEY (entry_key, ordinal)
    ) WITHOUT ROWID""",
    "CREATE INDEX source_name ON source (source)",
    """CREATE TABLE operation (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        space_key INTEGER NOT NULL,
        verb TEXT NOT NULL,
        actor TEXT NOT NULL,
        at REAL NOT NULL,
        grp TEXT
    )""",
    "CREATE INDEX operation_space ON operation (space_key)",
    "CREATE INDEX operation_group ON operation (grp) WHERE grp IS NOT NULL",
    """CREATE TABLE step (
        operation_seq INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        entry_key INTEGER NOT NULL,
        before TEXT,
        after TEXT NOT NULL,
        PRIMARY KEY (operation_seq, ordinal)
    ) WITHOUT ROWID""",
    "CREATE INDEX step_entry ON step (entry_key)",
)

_CONVERSATIONS = (
    """CREATE TABLE conversation (
        key INTEGER PRIMARY KEY,
        space_key INTEGER NOT NULL,
        id TEXT NOT NULL,
        opened_at REAL NOT NULL,
        active_at REAL NOT NULL,
        UNIQUE (space_key, id)
    )""",
    """CREATE TABLE turn (
        conversation_key INTEGER NOT NULL,
        id TEXT NOT NULL,
        status TEXT NOT NULL,
        started_at REAL NOT NULL,
        touched_at REAL NOT NULL,
        user_hash TEXT NOT NULL,
        ended_at REAL,
        recorded_at REAL,
        PRIMARY KEY (conversation_key, id)
    ) WITHOUT ROWID""",
    "CREATE INDEX turn_open ON turn (touched_at) WHERE status = 'open'",
    """CREATE TABLE block (
        conversation_key INTEGER NOT NULL,
        hash TEXT NOT NULL,
        turn TEXT NOT NULL,
        size_bytes INTEGER NOT NULL,
        injected_at REAL NOT NULL,
        PRIMARY KEY (conversation_key, hash)
    ) WITHOUT ROWID""",
    """CREATE TABLE block_ref (
        conversation_key INTEGER NOT NULL,
        hash TEXT NOT NULL,
        ordinal INTEGER NOT NULL,
        ref TEXT NOT NULL,
        PRIMARY KEY (conversation_key, hash, ordinal)
    ) WITHOUT ROWID""",
    "CREATE INDEX block_ref_name ON block_ref (ref)",
    # Blocks of forgotten conversations, as hashes: a host may still show them.
    """CREATE TABLE spent_block (
        space_key INTEGER NOT NULL,
        hash TEXT NOT NULL,
        size_bytes INTEGER NOT NULL,
        PRIMARY KEY (space_key, hash)
    ) WITHOUT ROWID""",
    """CREATE TABLE job (
        id TEXT NOT NULL PRIMARY KEY,
        space_key INTEGER NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        run_at REAL NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        state TEXT NOT NULL DEFAULT 'ready',
        error TEXT NOT NULL DEFAULT '',
        owner TEXT,
        leased_until REAL
    )""",
    "CREATE INDEX job_due ON job (state, run_at, id)",
    "CREATE INDEX job_space ON job (space_key, kind)",
    """CREATE TABLE timeline (
        space_key INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        at REAL NOT NULL,
        name TEXT NOT NULL,
        conversation TEXT NOT NULL,
        turn TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (space_key, seq)
    ) WITHOUT ROWID""",
    # Separate from the tombstones, so that a restore can keep the count.
    "INSERT INTO meta (key, value) VALUES ('forgets', '0')",
    """CREATE TABLE tombstone (
        space_key INTEGER NOT NULL,
        kind TEXT NOT NULL,
        hash TEXT NOT NULL,
        seq INTEGER NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (space_key, kind, hash)
    ) WITHOUT ROWID""",
)

_SEARCH = (
    # The terms are analysed already, so the tokenizer only splits at blanks. `_` marks tokens that are not terms.
    """CREATE VIRTUAL TABLE entry_terms
        USING fts5(terms, detail = none, columnsize = 0, tokenize = "ascii tokenchars '_'")""",
    "INSERT INTO entry_terms (entry_terms, rank) VALUES ('secure-delete', 1)",
    """CREATE TABLE frequency (
        space_key INTEGER NOT NULL,
        term TEXT NOT NULL,
        documents INTEGER NOT NULL,
        PRIMARY KEY (space_key, term)
    ) WITHOUT ROWID""",
    """CREATE TABLE change (
        space_key INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        entry_key INTEGER NOT NULL,
        PRIMARY KEY (space_key, seq)
    ) WITHOUT ROWID""",
    """CREATE TABLE embedder (
        key INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        version TEXT NOT NULL,
        dimensions INTEGER NOT NULL,
        normalised INTEGER NOT NULL,
        UNIQUE (name, version, dimensions, normalised)
    )""",
    """CREATE TABLE embedding (
        embedder_key INTEGER NOT NULL,
        space_key INTEGER NOT NULL,
        entry_key INTEGER NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (embedder_key, space_key, entry_key)
    ) WITHOUT ROWID""",
    # Every active entry of the space up to `entry_key` has a vector, so a search for others starts there.
    """CREATE TABLE embedded (
        embedder_key INTEGER NOT NULL,
        space_key INTEGER NOT NULL,
        entry_key INTEGER NOT NULL,
        PRIMARY KEY (embedder_key, space_key)
    ) WITHOUT ROWID""",
)

_TURNS = (
    "ALTER TABLE conversation ADD COLUMN turns INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE conversation ADD COLUMN compactions INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE conversation ADD COLUMN compacted_at REAL",
    # The last time that blocks were cleared: a block that was injected earlier is not in sight, even if stored later.
    "ALTER TABLE conversation ADD COLUMN cleared_at REAL",
    """UPDATE conversation SET turns = (
        SELECT count(*) FROM turn WHERE conversation_key = conversation.key AND recorded_at IS NOT NULL
    )""",
    "ALTER TABLE block ADD COLUMN point TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE block ADD COLUMN anchor TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE block ADD COLUMN text TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE block ADD COLUMN in_sight INTEGER NOT NULL DEFAULT 1",
    # `names` are the references in `detail`, so that forgetting finds a row without parsing it.
    """CREATE TABLE carried (
        key INTEGER PRIMARY KEY,
        conversation_key INTEGER NOT NULL UNIQUE,
        correlation TEXT NOT NULL,
        turn TEXT NOT NULL,
        names TEXT NOT NULL,
        detail TEXT NOT NULL
    )""",
    """CREATE TABLE standing (
        conversation_key INTEGER PRIMARY KEY,
        made_at REAL NOT NULL,
        text TEXT NOT NULL
    )""",
    """CREATE TABLE standing_ref (
        conversation_key INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        ref TEXT NOT NULL,
        PRIMARY KEY (conversation_key, ordinal)
    ) WITHOUT ROWID""",
    "CREATE INDEX standing_ref_name ON standing_ref (ref)",
    """CREATE TABLE recall (
        key INTEGER PRIMARY KEY,
        space_key INTEGER NOT NULL,
        conversation_key INTEGER NOT NULL,
        correlation TEXT NOT NULL,
        phase TEXT NOT NULL,
        turn TEXT NOT NULL,
        delivered_in TEXT NOT NULL,
        asked_at REAL NOT NULL,
        names TEXT NOT NULL,
        detail TEXT NOT NULL,
        UNIQUE (conversation_key, correlation, phase)
    )""",
    "CREATE INDEX recall_space ON recall (space_key)",
    "CREATE INDEX recall_turn ON recall (conversation_key, turn)",
    # For references that do not say in which of the tenant's spaces their entry is.
    "CREATE INDEX entry_id ON entry (id)",
    """CREATE UNIQUE INDEX entry_proposal
        ON entry (space_key, target, coalesce(agent, ''), coalesce(project, ''), content_hash)
        WHERE kind = 'statement' AND status = 'proposed'""",
)

_RECALL = ("CREATE INDEX entry_speaker ON entry (space_key, speaker) WHERE status = 'active' AND speaker IS NOT NULL",)

_REVIEWS = (
    "ALTER TABLE conversation ADD COLUMN unreviewed_turns INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE conversation ADD COLUMN unread_position INTEGER NOT NULL DEFAULT 0",
    # For a proposed change: the version that it would replace.
    "ALTER TABLE entry ADD COLUMN base INTEGER",
    # The highest erased version of the same memory. Its number is not used again, because a model may have seen it.
    "ALTER TABLE entry ADD COLUMN spent INTEGER NOT NULL DEFAULT 0",
    # For the time of the last change of statements in each space. Without records, which are far more frequent.
    "CREATE INDEX operation_changed ON operation (space_key, at) WHERE verb NOT IN ('record', 'undo')",
    """CREATE UNIQUE INDEX entry_one_waiting
        ON entry (space_key, id) WHERE status IN ('proposed', 'withdrawal')""",
    """CREATE TABLE review (
        space_key INTEGER NOT NULL,
        id TEXT NOT NULL,
        kind TEXT NOT NULL,
        writes TEXT NOT NULL,
        created_at REAL NOT NULL,
        conversation TEXT NOT NULL,
        turn TEXT NOT NULL,
        reads TEXT NOT NULL,
        agent TEXT,
        project TEXT,
        forgets INTEGER NOT NULL,
        state TEXT NOT NULL,
        ended_at REAL,
        written INTEGER NOT NULL,
        proposed INTEGER NOT NULL,
        refusals TEXT NOT NULL,
        calls INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        reason TEXT NOT NULL,
        spaces TEXT NOT NULL,
        notes TEXT NOT NULL,
        PRIMARY KEY (space_key, id)
    ) WITHOUT ROWID""",
    # For lookups by id without the space, and by the space that a review writes to.
    "CREATE INDEX review_id ON review (id)",
    "CREATE INDEX review_writes ON review (writes)",
    "CREATE INDEX review_kind ON review (space_key, kind, created_at)",
    "CREATE INDEX review_conversation ON review (space_key, conversation, id)",
    """CREATE UNIQUE INDEX review_one_waiting ON review (space_key, conversation)
        WHERE state = 'waiting' AND kind IN ('interval', 'compaction', 'asked') AND conversation <> ''""",
    """CREATE TABLE review_message (
        space_key INTEGER NOT NULL,
        review TEXT NOT NULL,
        ordinal INTEGER NOT NULL,
        role TEXT NOT NULL,
        speaker TEXT NOT NULL,
        text TEXT NOT NULL,
        source TEXT,
        trust INTEGER NOT NULL,
        occurred_at REAL NOT NULL,
        fresh INTEGER NOT NULL,
        PRIMARY KEY (space_key, review, ordinal)
    ) WITHOUT ROWID""",
    "CREATE INDEX review_message_source ON review_message (source) WHERE source IS NOT NULL",
    """CREATE TABLE usage (
        space_key INTEGER NOT NULL,
        day TEXT NOT NULL,
        purpose TEXT NOT NULL,
        calls INTEGER NOT NULL,
        tokens_in INTEGER NOT NULL,
        tokens_out INTEGER NOT NULL,
        estimated INTEGER NOT NULL,
        PRIMARY KEY (space_key, day, purpose)
    ) WITHOUT ROWID""",
    "CREATE INDEX usage_day ON usage (day)",
)

_DIGESTS = (
    # `entry_key` is the smallest key in it; the keys in the data are relative to it.
    """CREATE TABLE digest (
        space_key INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        entry_key INTEGER NOT NULL,
        form INTEGER NOT NULL,
        data BLOB NOT NULL
    )""",
    # Entries are deleted only by a forget. A trigger, so that an older version with the store open removes digests too.
    """CREATE TRIGGER digest_forgotten AFTER DELETE ON entry BEGIN
        DELETE FROM digest WHERE space_key = OLD.space_key;
    END""",
)

# Indexes are built from entries again, without saved ones.
_NO_DIGESTS = (
    "DROP TRIGGER digest_forgotten",
    "DROP TABLE digest",
    "DELETE FROM job WHERE kind = 'digest'",
)

# Earlier versions did not note what an assistant had read. So its messages, and what a model learned from a
# conversation with tools, are trusted like a tool's output. The rules read only the user's words.
_TAINT = (
    "ALTER TABLE turn ADD COLUMN taint TEXT NOT NULL DEFAULT ''",
    "UPDATE turn SET taint = 'unknown'",
    "UPDATE entry SET trust = 40 WHERE kind = 'record' AND origin = 'agent' AND trust > 40",
    """UPDATE entry SET trust = 40
        WHERE kind = 'statement' AND origin = 'background_review' AND trust > 40 AND conversation IS NOT NULL
        AND EXISTS (SELECT 1 FROM entry AS r WHERE r.space_key = entry.space_key
            AND r.conversation = entry.conversation AND r.kind = 'record' AND r.origin NOT IN ('user', 'agent'))
        AND NOT EXISTS (SELECT 1 FROM review WHERE review.kind = 'rules'
            AND review.id = json_extract(entry.metadata, '$.review'))""",
)

_PROFILES = (
    # How much a recorded message tells about the user, for profiles: 0 for any other entry.
    "ALTER TABLE entry ADD COLUMN telling INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX entry_telling ON entry (space_key, telling, id) WHERE status = 'active' AND telling > 0",
    # A space has far more records than statements.
    "CREATE INDEX entry_statement ON entry (space_key, id) WHERE kind = 'statement' AND status = 'active'",
)

_ENVIRONMENTS = (
    # The space for what a review learns about the environment; blank for the one that the conversation writes.
    "ALTER TABLE review ADD COLUMN environment TEXT NOT NULL DEFAULT ''",
)

_INCOGNITO = (
    "ALTER TABLE conversation ADD COLUMN incognito INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE turn ADD COLUMN incognito INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX turn_incognito ON turn (conversation_key) WHERE incognito = 1",
)

_FIRM = (
    # A rule that refuses tool calls. Only a person can set it.
    "ALTER TABLE entry ADD COLUMN firm INTEGER NOT NULL DEFAULT 0",
)

BACKLOG = (
    # The embedder that `unembedded` is about in this space. 0: none has given it a vector.
    "ALTER TABLE space ADD COLUMN embedder_key INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX space_embedder ON space (tenant, embedder_key)",
    # Active entries that wait for a vector of the space's embedder.
    """CREATE TABLE unembedded (
        tenant TEXT NOT NULL,
        space_key INTEGER NOT NULL,
        entry_key INTEGER NOT NULL,
        PRIMARY KEY (space_key, entry_key)
    ) WITHOUT ROWID""",
    "CREATE INDEX unembedded_tenant ON unembedded (tenant)",
    """UPDATE space SET embedder_key = coalesce((
        SELECT e.key FROM meta AS m JOIN embedder AS e ON e.name = m.value ->> 0 AND e.version = m.value ->> 1
            AND e.dimensions = m.value ->> 2 AND e.normalised = m.value ->> 3
        WHERE m.key = 'embedder'
    ), 0)""",
    """INSERT INTO unembedded (tenant, space_key, entry_key) SELECT s.tenant, e.space_key, e.key
        FROM entry AS e JOIN space AS s ON s.key = e.space_key
        WHERE e.status = 'active' AND NOT (e.kind = 'record' AND e.origin = 'tool') AND s.embedder_key <> 0
        AND NOT EXISTS (SELECT 1 FROM embedding AS v
            WHERE v.embedder_key = s.embedder_key AND v.space_key = e.space_key AND v.entry_key = e.key)""",
    "DROP TABLE embedded",
)

TENANTS = (
    # `forgets` numbers the forgets of a tenant. Apart from the tombstones, so that a restore can keep the count.
    "CREATE TABLE tenant (name TEXT PRIMARY KEY, forgets INTEGER NOT NULL) WITHOUT ROWID",
    """INSERT INTO tenant (name, forgets) SELECT DISTINCT s.tenant, CAST(m.value AS INTEGER)
        FROM space AS s JOIN meta AS m ON m.key = 'forgets'""",
    "DELETE FROM meta WHERE key = 'forgets'",
)

# What is due, by tenant: reading it does not depend on the number of spaces, nor on other tenants.
DUE = (
    "ALTER TABLE entry ADD COLUMN tenant TEXT NOT NULL DEFAULT ''",
    "UPDATE entry SET tenant = coalesce((SELECT tenant FROM space WHERE key = entry.space_key), '')",
    "DROP INDEX entry_recorded",
    "CREATE INDEX entry_recorded ON entry (tenant, recorded_at) WHERE kind = 'record'",
    "CREATE INDEX entry_waiting ON entry (tenant, recorded_at) WHERE status IN ('proposed', 'withdrawal')",
    "DROP INDEX entry_id",
    "CREATE INDEX entry_id ON entry (tenant, id)",
    # Records in a space other than that of their conversation.
    "CREATE INDEX entry_owner ON entry (tenant, owner) WHERE owner IS NOT NULL",
    "ALTER TABLE review ADD COLUMN tenant TEXT NOT NULL DEFAULT ''",
    "UPDATE review SET tenant = coalesce((SELECT tenant FROM space WHERE key = review.space_key), '')",
    "DROP INDEX review_id",
    "CREATE INDEX review_id ON review (tenant, id)",
    "DROP INDEX review_writes",
    "CREATE INDEX review_writes ON review (tenant, writes)",
    "ALTER TABLE turn ADD COLUMN tenant TEXT NOT NULL DEFAULT ''",
    """UPDATE turn SET tenant = coalesce((SELECT s.tenant FROM conversation AS c JOIN space AS s ON s.key = c.space_key
        WHERE c.key = turn.conversation_key), '')""",
    "DROP INDEX turn_open",
    "CREATE INDEX turn_open ON turn (tenant, touched_at) WHERE status = 'open'",
    "ALTER TABLE usage ADD COLUMN tenant TEXT NOT NULL DEFAULT ''",
    "UPDATE usage SET tenant = coalesce((SELECT tenant FROM space WHERE key = usage.space_key), '')",
    "DROP INDEX usage_day",
    "CREATE INDEX usage_day ON usage (tenant, day)",
    # When the statements of a space last changed, and when they were last consolidated. 0: never.
    "ALTER TABLE space ADD COLUMN changed_at REAL NOT NULL DEFAULT 0",
    "ALTER TABLE space ADD COLUMN consolidated_at REAL NOT NULL DEFAULT 0",
    """UPDATE space SET
        changed_at = coalesce((SELECT max(at) FROM operation
            WHERE space_key = space.key AND verb NOT IN ('record', 'undo')), 0),
        consolidated_at = coalesce((SELECT max(created_at) FROM review
            WHERE space_key = space.key AND kind = 'consolidation'), 0)""",
    "CREATE INDEX space_changed ON space (tenant, consolidated_at, name) WHERE changed_at > consolidated_at",
    "CREATE INDEX space_consolidated ON space (tenant, consolidated_at, name) WHERE changed_at > 0",
)

FAIR_JOBS = (
    # `place` is the number of a job among the waiting jobs of its tenant and kind; NULL for one that was put off.
    "ALTER TABLE job ADD COLUMN tenant TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE job ADD COLUMN place INTEGER",
    "UPDATE job SET tenant = coalesce((SELECT tenant FROM space WHERE key = job.space_key), '')",
    "DROP INDEX job_due",
    "CREATE INDEX job_oldest ON job (kind, run_at, id) WHERE state = 'ready'",
    "CREATE INDEX job_first ON job (kind, place, id) WHERE state = 'ready' AND place IS NOT NULL",
    "CREATE INDEX job_place ON job (tenant, kind, place) WHERE state = 'ready' AND place IS NOT NULL",
    "CREATE INDEX job_leased ON job (leased_until) WHERE state = 'leased'",
    "CREATE INDEX job_tenant ON job (tenant, state, run_at, id)",
)

# A process of an older version that has the file open goes on after a migration, and does not name the tenant of what
# it writes. RAISE would be a violated constraint, after which its turns are put aside for a person; any other error
# keeps them in files until a newer process records them. The text of a bad path is part of the error's message.
_TOO_OLD = """SELECT json_extract('{}', 'A newer afterturn has migrated this store. Restart this process with it.');"""
OLDER_HOSTS = (
    *(
        f"CREATE TRIGGER {table}_of_older_host BEFORE INSERT ON {table} WHEN NEW.tenant = '' BEGIN {_TOO_OLD} END"
        for table in ("entry", "turn", "review", "job", "usage")
    ),
    # Older versions read this number before anything else, and count it up to forget.
    "INSERT INTO meta (key, value) SELECT 'forgets', CAST(coalesce(min(forgets), 0) AS TEXT) FROM tenant",
    f"""CREATE TRIGGER forget_of_older_host BEFORE UPDATE ON meta WHEN OLD.key = 'forgets' BEGIN {_TOO_OLD} END""",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    _ENTRIES,
    _CONVERSATIONS,
    _SEARCH,
    _TURNS,
    _RECALL,
    _REVIEWS,
    _DIGESTS,
    _NO_DIGESTS,
    _TAINT,
    _PROFILES,
    _ENVIRONMENTS,
    _INCOGNITO,
    _FIRM,
    BACKLOG,
    TENANTS,
    DUE,
    FAIR_JOBS,
    OLDER_HOSTS,
)

_BATCH = 1000


def index_entries(session: Session) -> None:
    """Adds the active entries of older versions to the index."""
    text, stats, last = FtsText(session), StatsDelta(session), 0
    while found := session.rows(
        "SELECT key, space_key, text FROM entry WHERE key > ? AND status = 'active' ORDER BY key LIMIT ?",
        (last, _BATCH),
    ):
        for key, space_key, content in found:
            analysed = terms(content)
            text.put(key, space_key, analysed)
            stats.entered(key, space_key, analysed)
        text.flush()
        stats.flush()
        last = found[-1][0]


def rate_messages(session: Session) -> None:
    """Rates the messages that users said before the tenth version."""
    last = 0
    while found := session.rows(
        "SELECT key, text FROM entry WHERE key > ? AND kind = 'record' AND origin = 'user' ORDER BY key LIMIT ?",
        (last, _BATCH),
    ):
        for key, content in found:
            if telling := rate_telling(content, terms(content)):
                session.run("UPDATE entry SET telling = ? WHERE key = ?", (telling, key))
        last = found[-1][0]


AFTER: dict[int, Callable[[Session], None]] = {3: index_entries, 10: rate_messages}
"""Functions that run after a version's statements, in the same transaction."""
