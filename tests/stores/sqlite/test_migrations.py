"""From every earlier version to the newest, with a copy kept, beside other processes, and killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest
from plain import FIRST, SECOND, THIRD, WAIT, insert, integrity, open_plain, values

from afterturn.config import Config
from afterturn.errors import StoreError
from afterturn.runtime.clock import SystemClock
from afterturn.stores.sql.index import _SPEAKERS
from afterturn.stores.sqlite.connection import StoreLocation
from afterturn.stores.sqlite.engine import open_engine, open_place
from afterturn.stores.sqlite.schema import AFTER, BACKLOG, FAIR_JOBS, MIGRATIONS, TENANTS
from afterturn.stores.sqlite.store import open_store
from afterturn.testing.entries import operation
from afterturn.types import (
    ANYTHING,
    BlockRow,
    ConversationKey,
    ConversationState,
    EmbedderIdentity,
    Job,
    Scope,
    Selector,
    Status,
    Taint,
    Verb,
)

INDEXED = 3
SPOKEN = 4
REVIEWED = 5
DIGESTED = 7
UNTAINTED = 8
# The last version without incognito.
RECORDED_ALL = 11
# The last version without firm rules.
WITHOUT_FIRM = 12
# The last version with a position instead of a row for each entry without a vector.
WITHOUT_BACKLOG = MIGRATIONS.index(BACKLOG)
UNRATED = 9
# The last version in which jobs had no place among those of their tenant.
PLACELESS = MIGRATIONS.index(FAIR_JOBS)
BROKEN = ("CREATE TABLE half (a)", "INSERT INTO nowhere VALUES (1)")


def _version(path: Path) -> int:
    connection = apsw.Connection(str(path))
    version = int(connection.pragma("user_version"))
    connection.close()
    return version


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_every_earlier_version_of_the_schema_is_brought_up_with_its_rows(tmp_path: Path, version: int) -> None:
    """M4: a store of any earlier version opens with what it held, searchable, and a copy of it is kept."""
    path = tmp_path / "memory.db"
    old = StoreLocation(
        path, Config(), SystemClock(), MIGRATIONS[:version], {k: v for k, v in AFTER.items() if k <= version}
    )
    engine = open_place(old)
    engine.write_now(lambda unit: _insert_entry(unit, version))
    engine.close()
    engine = open_engine(path, Config(), SystemClock())
    scope = Scope("default", ("user:ada",))
    assert engine.read_now(lambda unit: unit.memories.get(scope, "0001").text) == "Ada likes green tea"
    assert engine.read_now(lambda unit: unit.index.frequencies(scope, ["green"])) == {"user:ada": {"green": 1}}
    assert [_version(copy) for copy in engine.backups()] == [version]
    engine.close()


async def test_conversations_of_the_third_version_go_on_where_they_were(tmp_path: Path) -> None:
    """M4, H6: turns that were recorded are counted, blocks are in sight, and the copy can be put back."""
    path, key = tmp_path / "memory.db", ConversationKey("default", "user:ada", "talk")
    place = StoreLocation(path, Config(), SystemClock(), MIGRATIONS[:INDEXED], {INDEXED: AFTER[INDEXED]})
    engine = open_place(place)
    engine.write_now(_insert_conversation)
    engine.close()
    store = open_store(path, Config(), SystemClock())
    block = BlockRow("hash", "turn-1", ("m1", "m2"), 40, 2.0)
    assert await store.read(lambda unit: unit.conversations.state(key), at=None) == ConversationState(turns=2)
    assert await store.read(lambda unit: unit.conversations.blocks(key), at=None) == [block]
    assert await store.read(lambda unit: unit.conversations.find_carried(key), at=None) is None
    await store.write(lambda unit: unit.conversations.clear(key, at=9.0, compacted=True), at=None)
    [copy] = store.backups()
    assert _version(copy) == INDEXED
    await store.restore(copy, progress=lambda done, total: None)
    assert await store.read(lambda unit: unit.conversations.state(key), at=None) == ConversationState(turns=2)
    await store.close(within=WAIT)


def test_saved_indexes_of_the_seventh_version_are_removed_with_their_jobs(tmp_path: Path) -> None:
    """M4: an entry can be forgotten, and no job is left that nobody takes."""
    path = tmp_path / "memory.db"
    after = {version: fill for version, fill in AFTER.items() if version <= DIGESTED}
    engine = open_place(StoreLocation(path, Config(), SystemClock(), MIGRATIONS[:DIGESTED], after))
    engine.write_now(_insert_digest)
    engine.close()
    engine = open_engine(path, Config(), SystemClock())
    jobs = [job.kind for job in engine.read_now(lambda unit: unit.jobs.page("default"))]
    engine.write_now(lambda unit: unit.operations.forget("default", "user:ada", Selector(everything=True), at=9.0))
    assert jobs == ["embed"]
    assert engine.read_now(lambda unit: unit.index.stats(Scope("default", ("user:ada",)))) == {}
    engine.close()


def test_jobs_of_an_older_version_are_claimed_beside_new_ones(tmp_path: Path) -> None:
    """M4, C8: they have no place among their tenant's jobs, and come by their age."""
    path = tmp_path / "memory.db"
    engine = open_place(StoreLocation(path, Config(), SystemClock(), MIGRATIONS[:PLACELESS], AFTER))
    engine.write_now(_insert_job)
    engine.close()
    engine = open_engine(path, Config(), SystemClock())
    for number in range(9):
        job = Job(f"new{number}", "embed", "default", "user:ada", "{}", 2.0)
        engine.write_now(lambda unit, job=job: unit.jobs.add(job))
    claimed = engine.write_now(lambda unit: unit.jobs.claim(["embed"], owner="me", now=3.0, lease=9.0, limit=2))
    assert [(job.id, job.tenant) for job in claimed] == [("old", "default"), ("new0", "default")]
    engine.close()


def test_whoever_spoke_in_the_fourth_version_can_be_asked_about(tmp_path: Path) -> None:
    """M4, L6: speakers are found by an index of their own, which an older store gets when it is opened."""
    path = tmp_path / "memory.db"
    after = {version: fill for version, fill in AFTER.items() if version <= SPOKEN}
    engine = open_place(StoreLocation(path, Config(), SystemClock(), MIGRATIONS[:SPOKEN], after))
    engine.write_now(lambda unit: _insert_entry(unit, SPOKEN, kind="record", speaker="Ada Byron"))
    engine.close()
    engine = open_engine(path, Config(), SystemClock())
    scope = Scope("default", ("user:ada",))
    assert engine.read_now(lambda unit: unit.index.speakers(scope, limit=9)) == ["Ada Byron"]
    plan = engine.read_now(_plan_of_speakers)
    engine.close()
    assert _version(path) == len(MIGRATIONS) > SPOKEN
    assert "entry_speaker" in plan
    assert "SCAN entry" not in plan


def test_what_users_said_in_the_ninth_version_is_rated_for_profiles(tmp_path: Path) -> None:
    """M4, L14: an older store knows which of its messages tell most."""
    path = tmp_path / "memory.db"
    after = {version: fill for version, fill in AFTER.items() if version <= UNRATED}
    engine = open_place(StoreLocation(path, Config(), SystemClock(), MIGRATIONS[:UNRATED], after))
    engine.write_now(_insert_messages)
    engine.close()
    engine = open_engine(path, Config(), SystemClock())
    scope = Scope("default", ("user:ada",))
    told = engine.read_now(lambda unit: unit.records.most_telling(scope, ANYTHING, limit=9))
    engine.close()
    assert [entry.text for entry in told] == ["my sister keeps bees on the roof of her house in Turin"]


def _insert_messages(unit: object) -> None:
    _insert_entry(unit, 0, kind="record", text="my sister keeps bees on the roof of her house in Turin")
    session = unit._entries.session  # type: ignore[attr-defined]
    for id, text, origin in (("0002", "thanks a lot!", "user"), ("0003", "my own roof is flat and green", "agent")):
        session.run(
            "INSERT INTO entry SELECT NULL, ?, version, space_key, kind, status, ?, target, ?, trust, content_hash, "
            "agent, project, conversation, owner, turn, position, speaker, occurred_at, recorded_at, valid_from, "
            "valid_to, expires_at, pinned, metadata, reason, has_sources, base, spent FROM entry WHERE id = '0001'",
            (id, text, origin),
        )


def test_proposals_of_the_fifth_version_wait_on_and_conversations_start_to_be_counted(tmp_path: Path) -> None:
    """M4, V1, V8: what waits is approved as before, and nothing counts as read yet."""
    path, key = tmp_path / "memory.db", ConversationKey("default", "user:ada", "talk")
    after = {version: fill for version, fill in AFTER.items() if version <= REVIEWED}
    engine = open_place(StoreLocation(path, Config(), SystemClock(), MIGRATIONS[:REVIEWED], after))
    engine.write_now(_insert_proposal)
    engine.close()
    engine = open_engine(path, Config(), SystemClock())
    assert engine.read_now(lambda unit: unit.reviews.unreviewed(key)) == (0, 0)
    assert engine.write_now(lambda unit: unit.reviews.count_turn(key)) == 1
    assert engine.read_now(lambda unit: unit.reviews.page("default", "user:ada", limit=9)) == []
    approved = engine.write_now(lambda unit: unit.memories.approve(operation(Verb.APPROVE), "0001"))
    assert (approved.version, approved.status) == (1, Status.ACTIVE)
    assert engine.read_now(lambda unit: unit.usage.page("default", limit=9)) == []
    engine.close()
    assert _version(path) == len(MIGRATIONS) > REVIEWED


def test_assistants_of_the_eighth_version_are_trusted_like_tools(tmp_path: Path) -> None:
    """M4, G2b: nobody noted what they had read, nor did a model that learned from a conversation with tools."""
    path, key = tmp_path / "memory.db", ConversationKey("default", "user:ada", "talk")
    after = {version: fill for version, fill in AFTER.items() if version <= UNTAINTED}
    engine = open_place(StoreLocation(path, Config(), SystemClock(), MIGRATIONS[:UNTAINTED], after))
    engine.write_now(_insert_learned)
    engine.close()
    engine = open_engine(path, Config(), SystemClock())
    (turn,) = engine.read_now(lambda unit: unit.conversations.turns(key))
    assert engine.read_now(lambda unit: unit.reviews.get("default", "rules")).changeable == ("user:ada",)
    entries = engine.read_now(lambda unit: unit.memories.page(Scope("default", ("user:ada",)), ANYTHING, limit=9))
    assert (turn.taint, engine.read_now(lambda unit: unit.conversations.is_tainted(key))) == (Taint.UNKNOWN, True)
    engine.close()
    assert {entry.id: entry.trust for entry in entries} == {
        "0001": 100,
        "0002": 40,
        "0003": 40,
        "0004": 40,
        "0005": 60,
        "0006": 60,
    }


def test_conversations_of_the_eleventh_version_are_not_incognito(tmp_path: Path) -> None:
    """M4, P2: neither they nor their turns."""
    path, key = tmp_path / "memory.db", ConversationKey("default", "user:ada", "talk")
    after = {version: fill for version, fill in AFTER.items() if version <= RECORDED_ALL}
    engine = open_place(StoreLocation(path, Config(), SystemClock(), MIGRATIONS[:RECORDED_ALL], after))
    engine.write_now(_insert_turn_of_eleven)
    engine.close()
    engine = open_engine(path, Config(), SystemClock())
    (turn,) = engine.read_now(lambda unit: unit.conversations.turns(key))
    state = engine.read_now(lambda unit: unit.conversations.state(key))
    engine.close()
    assert (turn.user_hash, turn.incognito, state.incognito, state.had_incognito) == ("hash", False, False, False)


def test_memories_of_the_twelfth_version_are_not_firm(tmp_path: Path) -> None:
    """M4, T1: pinned ones neither."""
    path = tmp_path / "memory.db"
    after = {version: fill for version, fill in AFTER.items() if version <= WITHOUT_FIRM}
    engine = open_place(StoreLocation(path, Config(), SystemClock(), MIGRATIONS[:WITHOUT_FIRM], after))
    engine.write_now(lambda unit: _insert_entry(unit, WITHOUT_FIRM))
    engine.close()
    engine = open_engine(path, Config(), SystemClock())
    (entry,) = engine.read_now(lambda unit: unit.memories.page(Scope("default", ("user:ada",)), ANYTHING, limit=9))
    engine.close()
    assert not entry.firm


def test_entries_that_had_no_vector_before_the_backlog_wait_for_one(tmp_path: Path) -> None:
    """M4, M3: of the store's embedder; for another one, all of them do."""
    path = tmp_path / "memory.db"
    after = {version: fill for version, fill in AFTER.items() if version <= WITHOUT_BACKLOG}
    engine = open_place(StoreLocation(path, Config(), SystemClock(), MIGRATIONS[:WITHOUT_BACKLOG], after))
    engine.write_now(_insert_half_embedded)
    engine.close()
    engine = open_engine(path, Config(), SystemClock())
    small, other = EmbedderIdentity("small", "1", 4), EmbedderIdentity("other", "1", 4)
    found = engine.read_now(lambda unit: unit.index.unembedded("default", "user:ada", small, limit=9))
    waiting = [engine.read_now(lambda unit, by=by: unit.index.waiting("default", by)) for by in (small, other)]
    rows = engine.read_now(lambda unit: unit._entries.session.rows("SELECT * FROM unembedded"))  # type: ignore[attr-defined]
    engine.close()
    assert (found, waiting, rows) == ([(2, "0002")], [1, 2], [("default", 1, 2)])


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO entry (id, version, space_key, kind, status, text, target, origin, trust, content_hash, "
        "occurred_at, recorded_at, pinned, metadata, reason, has_sources) "
        "VALUES ('e', 1, 1, 'record', 'active', 'bees', 'user', 'user', 100, 'hash', 1, 1, 0, '{}', '', 0)",
        "INSERT INTO turn (conversation_key, id, status, started_at, touched_at, user_hash) "
        "VALUES (1, 'turn-1', 'open', 1, 1, 'hash')",
        "INSERT INTO review (space_key, id, kind, writes, created_at, conversation, turn, reads, forgets, state, "
        "written, proposed, refusals, calls, tokens, reason, spaces, notes) "
        "VALUES (1, 'r', 'asked', 'user:ada', 1, '', '', '[]', 0, 'waiting', 0, 0, '[]', 0, 0, '', '[]', '[]')",
        "INSERT INTO job (id, space_key, kind, payload, run_at) VALUES ('j', 1, 'embed', '{}', 1)",
        "INSERT INTO usage (space_key, day, purpose, calls, tokens_in, tokens_out, estimated) "
        "VALUES (1, '2026-01-01', 'review', 1, 1, 1, 0)",
        "UPDATE meta SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT) WHERE key = 'forgets'",
    ],
)
def test_a_host_of_an_older_version_cannot_write_after_a_migration(tmp_path: Path, statement: str) -> None:
    """M4, C2: it is told what to do, as by a store that cannot be written now, so its turns wait in files."""
    path, version = tmp_path / "memory.db", MIGRATIONS.index(BACKLOG)
    after = {step: fill for step, fill in AFTER.items() if step <= version}
    older = open_place(StoreLocation(path, Config(), SystemClock(), MIGRATIONS[:version], after))
    open_engine(path, Config(), SystemClock()).close()
    with pytest.raises(StoreError, match="Restart this process"):
        older.write_now(lambda unit: unit._entries.session.run(statement))  # type: ignore[attr-defined]
    older.close()


def test_forgets_go_on_counting_where_they_were(tmp_path: Path) -> None:
    """M4, M2: a turn that noted a number before is still covered by the next forget, in every tenant."""
    path, version = tmp_path / "memory.db", MIGRATIONS.index(TENANTS)
    after = {step: fill for step, fill in AFTER.items() if step <= version}
    engine = open_place(StoreLocation(path, Config(), SystemClock(), MIGRATIONS[:version], after))
    engine.write_now(_insert_forgets)
    engine.close()
    engine = open_engine(path, Config(), SystemClock())
    before = [engine.read_now(lambda unit, by=by: unit.conversations.forgets(by, "user:ada")) for by in ("a", "b", "c")]
    engine.write_now(lambda unit: unit.operations.forget("a", "user:ada", Selector(speaker="bob"), at=9.0))
    after_one = [engine.read_now(lambda unit, by=by: unit.conversations.forgets(by, "user:ada")) for by in ("a", "b")]
    engine.close()
    assert (before, after_one) == ([7, 7, 0], [8, 7])


def _insert_forgets(unit: object) -> None:
    session = unit._entries.session  # type: ignore[attr-defined]
    session.run("INSERT INTO space (tenant, name) VALUES ('a', 'user:ada'), ('a', 'user:bob'), ('b', 'user:ada')")
    session.run("UPDATE meta SET value = '7' WHERE key = 'forgets'")


def _insert_half_embedded(unit: object) -> None:
    """Two statements, of which the first has a vector, one that is deleted, and a tool's output."""
    session = unit._entries.session  # type: ignore[attr-defined]
    session.run("INSERT INTO space (key, tenant, name, documents) VALUES (1, 'default', 'user:ada', 3)")
    session.run_many(
        "INSERT INTO entry (id, version, space_key, kind, status, text, target, origin, trust, content_hash, "
        "occurred_at, recorded_at, pinned, metadata, reason, has_sources) "
        "VALUES (?, 1, 1, ?, ?, ?, 'user', ?, 100, ?, 1, 1, 0, '{}', '', 0)",
        [
            (id, kind, status, id, origin, id)
            for id, kind, status, origin in (
                ("0001", "statement", "active", "user"),
                ("0002", "statement", "active", "user"),
                ("0003", "statement", "deleted", "user"),
                ("0004", "record", "active", "tool"),
            )
        ],
    )
    session.run("INSERT INTO embedder VALUES (5, 'small', '1', 4, 1), (6, 'other', '1', 4, 1)")
    session.run("INSERT INTO embedding VALUES (5, 1, 1, x'0000000000000000')")
    session.run("INSERT INTO embedded VALUES (5, 1, 1)")
    session.run("INSERT INTO meta VALUES ('embedder', ?)", (json.dumps(["small", "1", 4, True]),))


def _insert_turn_of_eleven(unit: object) -> None:
    session = unit._entries.session  # type: ignore[attr-defined]
    session.run("INSERT INTO space (key, tenant, name) VALUES (1, 'default', 'user:ada')")
    session.run("INSERT INTO conversation (key, space_key, id, opened_at, active_at) VALUES (1, 1, 'talk', 1, 1)")
    session.run(
        "INSERT INTO turn (conversation_key, id, status, started_at, touched_at, user_hash) "
        "VALUES (1, 'turn-1', 'completed', 1, 1, 'hash')"
    )


def _insert_learned(unit: object) -> None:
    """A message of the user, the assistant and a tool, and what a model and the rules learned, here and elsewhere."""
    session = unit._entries.session  # type: ignore[attr-defined]
    session.run("INSERT INTO space (key, tenant, name) VALUES (1, 'default', 'user:ada')")
    session.run("INSERT INTO conversation (key, space_key, id, opened_at, active_at) VALUES (1, 1, 'talk', 1, 1)")
    session.run(
        "INSERT INTO turn (conversation_key, id, status, started_at, touched_at, user_hash) "
        "VALUES (1, 'turn-1', 'completed', 1, 1, 'hash')"
    )
    session.run(
        "INSERT INTO review (id, space_key, kind, writes, created_at, conversation, turn, reads, forgets, state, "
        "written, proposed, refusals, calls, tokens, reason, spaces, notes) VALUES ('rules', 1, 'rules', 'user:ada', "
        "1, '', '', '[]', 0, 'saved', 0, 0, '[]', 0, 0, '', '[]', '[]')"
    )
    for id, kind, origin, trust, conversation, review in (
        ("0001", "record", "user", 100, "talk", ""),
        ("0002", "record", "agent", 80, "talk", ""),
        ("0003", "record", "tool", 40, "talk", ""),
        ("0004", "statement", "background_review", 60, "talk", "model"),
        ("0005", "statement", "background_review", 60, "talk", "rules"),
        ("0006", "statement", "background_review", 60, "elsewhere", "model"),
    ):
        session.run(
            "INSERT INTO entry (id, version, space_key, kind, status, text, target, origin, trust, content_hash, "
            "conversation, occurred_at, recorded_at, pinned, metadata, reason, has_sources) "
            "VALUES (?, 1, 1, ?, 'active', ?, 'user', ?, ?, ?, ?, 1, 1, 0, ?, '', 0)",
            (id, kind, id, origin, trust, id, conversation, json.dumps({"review": review})),
        )


def _insert_proposal(unit: object) -> None:
    _insert_entry(unit, REVIEWED, status="proposed")
    session = unit._entries.session  # type: ignore[attr-defined]
    session.run("INSERT INTO conversation (key, space_key, id, opened_at, active_at) VALUES (1, 1, 'talk', 1, 1)")


def _insert_digest(unit: object) -> None:
    _insert_entry(unit, DIGESTED)
    session = unit._entries.session  # type: ignore[attr-defined]
    session.run("INSERT INTO digest VALUES (1, 1, 1, 1, x'00')")
    for kind in ("digest", "embed"):
        session.run("INSERT INTO job (id, space_key, kind, payload, run_at) VALUES (?, 1, ?, '{}', 1)", (kind, kind))


def _insert_job(unit: object) -> None:
    session = unit._entries.session  # type: ignore[attr-defined]
    session.run("INSERT INTO space (key, tenant, name) VALUES (1, 'default', 'user:ada')")
    session.run("INSERT INTO job (id, space_key, kind, payload, run_at) VALUES ('old', 1, 'embed', '{}', 1)")


def _plan_of_speakers(unit: object) -> str:
    session = unit._entries.session  # type: ignore[attr-defined]
    return " | ".join(str(row) for row in session.rows(f"EXPLAIN QUERY PLAN {_SPEAKERS}", (1, 1, 9)))


def _insert_conversation(unit: object) -> None:
    """As the third version wrote it: three turns, two of them recorded, and a block."""
    session = unit._entries.session  # type: ignore[attr-defined]
    session.run("INSERT INTO space (key, tenant, name) VALUES (1, 'default', 'user:ada')")
    session.run("INSERT INTO conversation (key, space_key, id, opened_at, active_at) VALUES (1, 1, 'talk', 1, 1)")
    session.run_many(
        "INSERT INTO turn (conversation_key, id, status, started_at, touched_at, user_hash, recorded_at) "
        "VALUES (1, ?, ?, 1, 1, 'hash', ?)",
        [("turn-1", "completed", 2.0), ("turn-2", "completed", 3.0), ("turn-3", "open", None)],
    )
    session.run("INSERT INTO block VALUES (1, 'hash', 'turn-1', 40, 2.0)")
    session.run_many("INSERT INTO block_ref VALUES (1, 'hash', ?, ?)", [(0, "m1"), (1, "m2")])


def _insert_entry(unit: object, version: int, **more: str) -> None:
    session = unit._entries.session  # type: ignore[attr-defined]
    session.run("INSERT INTO space (key, tenant, name) VALUES (1, 'default', 'user:ada')")
    columns = {
        "id": "0001",
        "version": 1,
        "space_key": 1,
        "kind": "statement",
        "status": "active",
        "text": "Ada likes green tea",
        "target": "user",
        "origin": "user",
        "trust": 100,
        "content_hash": "hash",
        "occurred_at": 1.0,
        "recorded_at": 1.0,
        "pinned": 0,
        "metadata": "{}",
        "reason": "",
        "has_sources": 0,
        **more,
    }
    marks = ", ".join("?" for _ in columns)
    session.run(f"INSERT INTO entry ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values()))
    if version >= INDEXED:
        AFTER[INDEXED](session)


def test_a_new_store_keeps_no_copy(tmp_path: Path) -> None:
    """M4: there is nothing to keep before the first version."""
    engine = open_plain(tmp_path / "memory.db", migrations=(FIRST, SECOND, THIRD))
    assert engine.backups() == []
    engine.close()
    assert _version(tmp_path / "memory.db") == 3


def test_a_failing_migration_leaves_the_store_at_its_version(tmp_path: Path) -> None:
    """M4: each step is one transaction, and the older afterturn still opens the store."""
    path = tmp_path / "memory.db"
    _old_store(path)
    with pytest.raises(StoreError):
        open_plain(path, migrations=(FIRST, SECOND, BROKEN))
    assert _version(path) == 2
    engine = open_plain(path, migrations=(FIRST, SECOND))
    assert engine.read_now(lambda unit: unit.session.rows("SELECT name FROM sqlite_master WHERE name = 'half'")) == []  # type: ignore[attr-defined]
    engine.close()


def test_only_the_newest_automatic_copies_are_kept(tmp_path: Path) -> None:
    """M4: `backups_max` bounds what migrations leave behind."""
    path = tmp_path / "memory.db"
    _old_store(path)
    migrations: tuple[Sequence[str], ...] = (FIRST,)
    for number in range(4):
        migrations = (*migrations, (f"CREATE TABLE t{number} (a)",))
        engine = open_plain(path, migrations=migrations, backups_max=2)
        copies = engine.backups()
        engine.close()
    assert [_version(copy) for copy in copies] == [4, 3]


@pytest.mark.slow
def test_many_openings_at_once_migrate_once(tmp_path: Path) -> None:
    """M4: threads and processes that open one old store together all find it migrated, and nobody twice."""
    path = tmp_path / "memory.db"
    _old_store(path)
    children = [_start_opening(path) for _ in range(3)]
    thread = threading.Thread(target=lambda: open_plain(path, migrations=(FIRST, SECOND, THIRD)).close())
    thread.start()
    assert [child.wait(WAIT) for child in children] == [0, 0, 0]
    thread.join(WAIT)
    engine = open_plain(path, migrations=(FIRST, SECOND, THIRD))
    assert engine.read_now(lambda unit: unit.session.rows("SELECT count(*) FROM more")) == [(20,)]  # type: ignore[attr-defined]
    assert len(engine.backups()) == 1
    engine.close()


@pytest.mark.slow
def test_many_openings_at_once_create_one_store(tmp_path: Path) -> None:
    """M4: the same for a file that is not there yet."""
    path = tmp_path / "memory.db"
    children = [_start_opening(path) for _ in range(4)]
    assert [child.wait(WAIT) for child in children] == [0, 0, 0, 0]
    assert _version(path) == 3


@pytest.mark.slow
@pytest.mark.parametrize("call", range(0, 40, 3))
def test_a_migration_killed_at_any_call_goes_on_at_the_next_opening(tmp_path: Path, call: int) -> None:
    """M4: killed with -9 at the nth write, sync or truncate, the store is at one version or the other, whole."""
    path = tmp_path / "memory.db"
    _old_store(path)
    assert _start_opening(path, kill_at=call).wait(WAIT) == -signal.SIGKILL
    assert _version(path) in (1, 2, 3)
    engine = open_plain(path, migrations=(FIRST, SECOND, THIRD))
    assert engine.read_now(values) == list(range(20))
    assert engine.read_now(lambda unit: unit.session.rows("SELECT DISTINCT text, extra FROM item")) == [
        ("migrated", "two")
    ]  # type: ignore[attr-defined]
    assert engine.read_now(integrity) == "ok"
    engine.close()


def _old_store(path: Path) -> None:
    engine = open_plain(path)
    for value in range(20):
        engine.write_now(insert(value, "old" * 1000))
    engine.close()


_CHILD = """
import os, sys
from pathlib import Path
from faults import Disk
from plain import FIRST, SECOND, THIRD, open_plain

disk = Disk("deadly")
kill_at = int(sys.argv[2])
if kill_at >= 0:
    disk.break_down("write", "sync", "truncate", after=kill_at, error=lambda text: os.kill(os.getpid(), 9))
open_plain(Path(sys.argv[1]), migrations=(FIRST, SECOND, THIRD), vfs=disk.name).close()
"""


def _start_opening(path: Path, kill_at: int = -1) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    return subprocess.Popen([sys.executable, "-c", _CHILD, str(path), str(kill_at)], env=environment)
