-- The tables of a store in a SQLite file. A row that names a tenant can be found without its space: the indexes for
-- what is due begin with the tenant.

-- Settings of the store itself, such as its generation, which changes with a restore.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta (key, value) VALUES ('generation', lower(hex(randomblob(16))));

-- `forgets` numbers the forgets of a tenant. Apart from the tombstones, so that a restore can keep the count.
CREATE TABLE tenant (name TEXT PRIMARY KEY, forgets INTEGER NOT NULL) WITHOUT ROWID;

-- `changed_at` and `consolidated_at`: when its statements last changed and were last consolidated. 0: never.
-- `embedder_key` is the embedder that `unembedded` is about in this space. 0: none has given it a vector.
CREATE TABLE space (
    key INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    seq INTEGER NOT NULL DEFAULT 0,
    documents INTEGER NOT NULL DEFAULT 0,
    terms_total INTEGER NOT NULL DEFAULT 0,
    embedder_key INTEGER NOT NULL DEFAULT 0,
    changed_at REAL NOT NULL DEFAULT 0,
    consolidated_at REAL NOT NULL DEFAULT 0,
    UNIQUE (tenant, name)
);
CREATE INDEX space_embedder ON space (tenant, embedder_key);
CREATE INDEX space_changed ON space (tenant, consolidated_at, name) WHERE changed_at > consolidated_at;
CREATE INDEX space_consolidated ON space (tenant, consolidated_at, name) WHERE changed_at > 0;

-- AUTOINCREMENT: a key that was forgotten must never name another entry, or a late vector would land on it.
-- `base`: for a proposed change, the version that it would replace.
-- `spent`: the highest erased version of the same memory. Its number is not used again, because a model may have seen it.
-- `telling`: how much a recorded message tells about the user, for profiles. 0 for any other entry.
-- `firm`: a rule that refuses tool calls. Only a person can set it.
CREATE TABLE entry (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    tenant TEXT NOT NULL,
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
    base INTEGER,
    spent INTEGER NOT NULL DEFAULT 0,
    telling INTEGER NOT NULL DEFAULT 0,
    firm INTEGER NOT NULL DEFAULT 0,
    UNIQUE (space_key, id, version)
);
CREATE UNIQUE INDEX entry_one_active ON entry (space_key, id) WHERE status = 'active';
CREATE UNIQUE INDEX entry_duplicate
    ON entry (space_key, target, coalesce(agent, ''), coalesce(project, ''), content_hash)
    WHERE kind = 'statement' AND status = 'active';
CREATE INDEX entry_active ON entry (space_key) WHERE status = 'active';
CREATE INDEX entry_conversation
    ON entry (space_key, conversation, coalesce(owner, ''), position) WHERE conversation IS NOT NULL;
CREATE UNIQUE INDEX entry_proposal
    ON entry (space_key, target, coalesce(agent, ''), coalesce(project, ''), content_hash)
    WHERE kind = 'statement' AND status = 'proposed';
CREATE INDEX entry_speaker ON entry (space_key, speaker) WHERE status = 'active' AND speaker IS NOT NULL;
CREATE UNIQUE INDEX entry_one_waiting
    ON entry (space_key, id) WHERE status IN ('proposed', 'withdrawal');
CREATE INDEX entry_telling ON entry (space_key, telling, id) WHERE status = 'active' AND telling > 0;
-- A space has far more records than statements.
CREATE INDEX entry_statement ON entry (space_key, id) WHERE kind = 'statement' AND status = 'active';
CREATE INDEX entry_recorded ON entry (tenant, recorded_at) WHERE kind = 'record';
CREATE INDEX entry_waiting ON entry (tenant, recorded_at) WHERE status IN ('proposed', 'withdrawal');
-- For references that do not say in which of the tenant's spaces their entry is.
CREATE INDEX entry_id ON entry (tenant, id);
-- Records in a space other than that of their conversation.
CREATE INDEX entry_owner ON entry (tenant, owner) WHERE owner IS NOT NULL;

CREATE TABLE source (
    entry_key INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    source TEXT NOT NULL,
    PRIMARY KEY (entry_key, ordinal)
) WITHOUT ROWID;
CREATE INDEX source_name ON source (source);

CREATE TABLE operation (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    space_key INTEGER NOT NULL,
    verb TEXT NOT NULL,
    actor TEXT NOT NULL,
    at REAL NOT NULL,
    grp TEXT
);
CREATE INDEX operation_space ON operation (space_key);
CREATE INDEX operation_group ON operation (grp) WHERE grp IS NOT NULL;
-- For the time of the last change of statements in each space. Without records, which are far more frequent.
CREATE INDEX operation_changed ON operation (space_key, at) WHERE verb NOT IN ('record', 'undo');

CREATE TABLE step (
    operation_seq INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    entry_key INTEGER NOT NULL,
    before TEXT,
    after TEXT NOT NULL,
    PRIMARY KEY (operation_seq, ordinal)
) WITHOUT ROWID;
CREATE INDEX step_entry ON step (entry_key);

-- `cleared_at`: the last time that blocks were cleared. A block that was injected earlier is not in sight, even if it is
-- stored later.
CREATE TABLE conversation (
    key INTEGER PRIMARY KEY,
    space_key INTEGER NOT NULL,
    id TEXT NOT NULL,
    opened_at REAL NOT NULL,
    active_at REAL NOT NULL,
    turns INTEGER NOT NULL DEFAULT 0,
    compactions INTEGER NOT NULL DEFAULT 0,
    compacted_at REAL,
    cleared_at REAL,
    unreviewed_turns INTEGER NOT NULL DEFAULT 0,
    unread_position INTEGER NOT NULL DEFAULT 0,
    incognito INTEGER NOT NULL DEFAULT 0,
    UNIQUE (space_key, id)
);

CREATE TABLE turn (
    tenant TEXT NOT NULL,
    conversation_key INTEGER NOT NULL,
    id TEXT NOT NULL,
    status TEXT NOT NULL,
    started_at REAL NOT NULL,
    touched_at REAL NOT NULL,
    user_hash TEXT NOT NULL,
    ended_at REAL,
    recorded_at REAL,
    taint TEXT NOT NULL DEFAULT '',
    incognito INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (conversation_key, id)
) WITHOUT ROWID;
CREATE INDEX turn_incognito ON turn (conversation_key) WHERE incognito = 1;
CREATE INDEX turn_open ON turn (tenant, touched_at) WHERE status = 'open';

CREATE TABLE block (
    conversation_key INTEGER NOT NULL,
    hash TEXT NOT NULL,
    turn TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    injected_at REAL NOT NULL,
    point TEXT NOT NULL DEFAULT '',
    anchor TEXT NOT NULL DEFAULT '',
    text TEXT NOT NULL DEFAULT '',
    in_sight INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (conversation_key, hash)
) WITHOUT ROWID;

CREATE TABLE block_ref (
    conversation_key INTEGER NOT NULL,
    hash TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    ref TEXT NOT NULL,
    PRIMARY KEY (conversation_key, hash, ordinal)
) WITHOUT ROWID;
CREATE INDEX block_ref_name ON block_ref (ref);

-- Blocks of forgotten conversations, as hashes: a host may still show them.
CREATE TABLE spent_block (
    space_key INTEGER NOT NULL,
    hash TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    PRIMARY KEY (space_key, hash)
) WITHOUT ROWID;

-- `names` are the references in `detail`, so that forgetting finds a row without parsing it.
CREATE TABLE carried (
    key INTEGER PRIMARY KEY,
    conversation_key INTEGER NOT NULL UNIQUE,
    correlation TEXT NOT NULL,
    turn TEXT NOT NULL,
    names TEXT NOT NULL,
    detail TEXT NOT NULL
);

CREATE TABLE standing (
    conversation_key INTEGER PRIMARY KEY,
    made_at REAL NOT NULL,
    text TEXT NOT NULL
);

CREATE TABLE standing_ref (
    conversation_key INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    ref TEXT NOT NULL,
    PRIMARY KEY (conversation_key, ordinal)
) WITHOUT ROWID;
CREATE INDEX standing_ref_name ON standing_ref (ref);

CREATE TABLE recall (
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
);
CREATE INDEX recall_space ON recall (space_key);
CREATE INDEX recall_turn ON recall (conversation_key, turn);

-- `environment`: the space for what a review learns about the environment; blank for the one that the conversation writes.
CREATE TABLE review (
    tenant TEXT NOT NULL,
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
    environment TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (space_key, id)
) WITHOUT ROWID;
CREATE INDEX review_kind ON review (space_key, kind, created_at);
CREATE INDEX review_conversation ON review (space_key, conversation, id);
CREATE UNIQUE INDEX review_one_waiting ON review (space_key, conversation)
    WHERE state = 'waiting' AND kind IN ('interval', 'compaction', 'asked') AND conversation <> '';
-- For lookups by id without the space, and by the space that a review writes to.
CREATE INDEX review_id ON review (tenant, id);
CREATE INDEX review_writes ON review (tenant, writes);

CREATE TABLE review_message (
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
) WITHOUT ROWID;
CREATE INDEX review_message_source ON review_message (source) WHERE source IS NOT NULL;

CREATE TABLE usage (
    tenant TEXT NOT NULL,
    space_key INTEGER NOT NULL,
    day TEXT NOT NULL,
    purpose TEXT NOT NULL,
    calls INTEGER NOT NULL,
    tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    PRIMARY KEY (space_key, day, purpose)
) WITHOUT ROWID;
CREATE INDEX usage_day ON usage (tenant, day);

-- `place` is the number of a job among the waiting jobs of its tenant and kind; NULL for one that was put off.
CREATE TABLE job (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    space_key INTEGER NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    run_at REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'ready',
    error TEXT NOT NULL DEFAULT '',
    owner TEXT,
    leased_until REAL,
    place INTEGER
);
CREATE INDEX job_space ON job (space_key, kind);
CREATE INDEX job_oldest ON job (kind, run_at, id) WHERE state = 'ready';
CREATE INDEX job_first ON job (kind, place, id) WHERE state = 'ready' AND place IS NOT NULL;
CREATE INDEX job_place ON job (tenant, kind, place) WHERE state = 'ready' AND place IS NOT NULL;
CREATE INDEX job_leased ON job (leased_until) WHERE state = 'leased';
CREATE INDEX job_tenant ON job (tenant, state, run_at, id);

CREATE TABLE timeline (
    space_key INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    name TEXT NOT NULL,
    conversation TEXT NOT NULL,
    turn TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (space_key, seq)
) WITHOUT ROWID;

CREATE TABLE tombstone (
    space_key INTEGER NOT NULL,
    kind TEXT NOT NULL,
    hash TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (space_key, kind, hash)
) WITHOUT ROWID;

-- The terms are analysed already, so the tokenizer only splits at blanks. `_` marks tokens that are not terms.
CREATE VIRTUAL TABLE entry_terms
    USING fts5(terms, detail = none, columnsize = 0, tokenize = "ascii tokenchars '_'");
INSERT INTO entry_terms (entry_terms, rank) VALUES ('secure-delete', 1);

CREATE TABLE frequency (
    space_key INTEGER NOT NULL,
    term TEXT NOT NULL,
    documents INTEGER NOT NULL,
    PRIMARY KEY (space_key, term)
) WITHOUT ROWID;

CREATE TABLE change (
    space_key INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    entry_key INTEGER NOT NULL,
    PRIMARY KEY (space_key, seq)
) WITHOUT ROWID;

CREATE TABLE embedder (
    key INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    dimensions INTEGER NOT NULL,
    normalised INTEGER NOT NULL,
    UNIQUE (name, version, dimensions, normalised)
);

CREATE TABLE embedding (
    embedder_key INTEGER NOT NULL,
    space_key INTEGER NOT NULL,
    entry_key INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (embedder_key, space_key, entry_key)
) WITHOUT ROWID;

-- Active entries that wait for a vector of the space's embedder.
CREATE TABLE unembedded (
    tenant TEXT NOT NULL,
    space_key INTEGER NOT NULL,
    entry_key INTEGER NOT NULL,
    PRIMARY KEY (space_key, entry_key)
) WITHOUT ROWID;
CREATE INDEX unembedded_tenant ON unembedded (tenant);
