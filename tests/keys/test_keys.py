"""Keys of spaces: what is sealed, what a forget destroys, and what happens without a key or its provider."""

import asyncio
import json
import logging
import os
import stat
import sys
import threading
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import afterturn
from afterturn.config import Config
from afterturn.conversation import recorder
from afterturn.conversation.spill import Spill
from afterturn.errors import InvalidFile, KeyMissing, KeysUnavailable, StoreCorrupt, StoreError
from afterturn.runtime.clock import SystemClock
from afterturn.services import migrate
from afterturn.stores import keys as keys_module
from afterturn.stores.keys import FolderKeys, KeyRing, SpaceCipher
from afterturn.stores.sql.sealing import COMPARED, OPEN, READABLE, SEALED
from afterturn.stores.sqlite.engine import open_engine
from afterturn.stores.sqlite.store import SqliteStore
from afterturn.testing import HashingEmbedder, ManualClock
from afterturn.types import Draft, Event, Forgotten, JobKind, Kind

_QUIET: dict[str, Any] = {"synchronous": "normal", "background": False, "embedder": "none"}


class Keys:
    """A `KeyProvider` in memory that can be away, or hang until `let_go`."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.is_away = False
        self.calls: list[str] = []
        self.let_go = threading.Event()
        self.let_go.set()
        self.has_hung = threading.Event()

    def make(self, tenant: str, space: str) -> str:
        self._answer("make")
        key_id = f"{tenant}-{space}-{uuid.uuid4().hex}"
        self.held[key_id] = os.urandom(32)
        return key_id

    def get(self, key_id: str) -> bytes | None:
        self._answer("get")
        return self.held.get(key_id)

    def destroy(self, key_id: str) -> None:
        self._answer("destroy")
        self.held.pop(key_id, None)

    def _answer(self, call: str) -> None:
        self.calls.append(call)
        if not self.let_go.is_set():
            self.has_hung.set()
        self.let_go.wait()
        if self.is_away:
            raise ConnectionError(f"the key is {next(iter(self.held.values()), b'')!r}")


@asynccontextmanager
async def _open(
    store: Path, keys: Any, settings: dict[str, Any] | None = None, events: list[Event] | None = None, **parts: Any
) -> AsyncIterator[afterturn.Memory]:
    components = afterturn.Components(keys=keys, **parts)
    note = None if events is None else events.append
    async with afterturn.open(store, {**_QUIET, **(settings or {})}, components=components, on_event=note) as memory:
        yield memory


def _lost(events: list[Event]) -> set[str]:
    """What recalls had to leave out, and why they ended."""
    return {str(event.data.get(name, "")) for event in events for name in ("missing", "outcome", "reason")}


async def _say(memory: afterturn.Memory, text: str, *, space: str = "user:ada", talk: str = "talk") -> afterturn.Turn:
    messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
    async with memory.conversation(talk, owner=space).turn(messages) as turn:
        await turn.inject(messages)
        messages.append({"role": "assistant", "content": "I see."})
    return turn


def _run(store: Path, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
    connection = apsw.Connection(str(store))
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


# What is sealed


def test_every_column_of_text_is_sealed_or_readable_for_a_reason(tmp_path: Path) -> None:
    """M2: a new column cannot be forgotten. `tests/stores` and `tests/postgres` compare the tables of both stores."""
    open_engine(tmp_path / "memory.db", Config(), SystemClock()).close()
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    found = set()
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        if not str(table).startswith(("sqlite_", "entry_terms_")):
            for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table})"):
                if kind not in ("INTEGER", "REAL"):
                    found.add((table, name))
    connection.close()
    sealed = {(table, column) for part in (SEALED, COMPARED) for table, columns in part.items() for column in columns}
    readable = {(table, column) for table, why in OPEN.items() for columns in why.values() for column in columns}
    assert {reason for why in OPEN.values() for reason in why} == set(READABLE)
    assert not sealed & readable
    assert found - sealed - readable == set()
    # The others are on PostgreSQL only.
    assert {table for table, _ in (sealed | readable) - found} == {"entry_terms", "last_commit", "migration"}


async def test_sealed_columns_differ_for_equal_texts_and_compared_ones_do_not(tmp_path: Path) -> None:
    store = tmp_path / "memory.db"
    async with _open(store, Keys()) as memory:
        for conversation in ("one", "two"):
            await (await _say(memory, "The boat is red.", talk=conversation)).wait_recorded(within=10)
        await (await _say(memory, "The boat is red.", space="user:bob")).wait_recorded(within=10)
    rows = _run(store, "SELECT text, content_hash FROM entry WHERE origin = 'user' ORDER BY key")
    assert len({text for text, _ in rows}) == 3
    assert rows[0][1] == rows[1][1] != rows[2][1]
    terms = {row[0].split(" ", 1)[1] for row in _run(store, "SELECT terms FROM entry_terms")}
    assert all(not set(text) - set("0123456789abcdef ") for text in terms)


async def test_a_value_that_was_moved_is_refused_and_the_turn_goes_on(tmp_path: Path) -> None:
    """M2: between rows, columns and spaces."""
    store = tmp_path / "memory.db"
    keys = Keys()
    async with _open(store, keys) as memory:
        ada, bob = memory.space("user:ada"), memory.space("user:bob")
        first = (await ada.add("The boat is red.")).entry.id
        second = (await ada.add("The house is blue.", metadata={"colour": "blue"})).entry.id
        third = (await bob.add("The boat is green.")).entry.id
    moves = {
        "row": (first, "UPDATE entry SET text = (SELECT text FROM entry WHERE id = ?) WHERE id = ?", (second, first)),
        "space": (third, "UPDATE entry SET text = (SELECT text FROM entry WHERE id = ?) WHERE id = ?", (first, third)),
        "column": (second, "UPDATE entry SET reason = text WHERE id = ?", (second,)),
        "metadata": (second, 'UPDATE entry SET metadata = \'{"place": "x"}\' WHERE id = ?', (second,)),
        "cut": (first, "UPDATE entry SET text = substr(text, 1, 20) WHERE id = ?", (first,)),
        "plain": (first, "UPDATE entry SET text = 'The boat is blue.' WHERE id = ?", (first,)),
    }
    original = store.read_bytes()
    for name, (entry_id, sql, values) in moves.items():
        store.write_bytes(original)
        _run(store, sql, values)
        events: list[Event] = []
        async with _open(store, keys, {"grace": 5.0}, events) as memory:
            space = memory.space("user:bob" if name == "space" else "user:ada")
            with pytest.raises(StoreCorrupt, match=r"was changed, or belongs to another row") as refused:
                await space.get(entry_id)
            assert "boat" not in str(refused.value)
            turn = await _say(memory, "Where are the boat and the house?", space=space.name)
            assert await turn.wait_recorded(within=10)
        assert any("long_term" in lost for lost in _lost(events)), (name, events)


# Forget


async def test_a_changed_value_keeps_nothing_from_being_forgotten(tmp_path: Path) -> None:
    """M2: what cannot be opened is deleted with it."""
    store, keys = tmp_path / "memory.db", Keys()
    async with _open(store, keys, {"recall_score_min": 0.0, "grace": 5.0}) as memory:
        added = await memory.space("user:ada").add("The boat is red.")
        await (await _say(memory, "What colour is the boat?")).wait_recorded(within=10)
    assert _run(store, "SELECT 1 FROM recall WHERE names LIKE '%' || ? || '%'", (added.entry.id,))
    _run(store, "UPDATE recall SET detail = substr(detail, 2)")
    _run(store, 'UPDATE timeline SET data = \'{"sealed": "x"}\'')
    async with _open(store, keys) as memory:
        forgotten = await memory.space("user:ada").forget(memory=added.entry.id)
        assert forgotten.erased == 1
        assert "The boat is red." not in {entry.text for entry in await memory.space("user:ada").list()}
    assert not _run(store, "SELECT 1 FROM recall WHERE names LIKE '%' || ? || '%'", (added.entry.id,))


async def test_forgetting_a_space_destroys_its_key_and_leaves_nothing_out_of_reach(tmp_path: Path) -> None:
    """M2: also while a backup still has the rows."""
    keys = FolderKeys(tmp_path / "keys")
    async with _open(tmp_path / "memory.db", keys) as memory:
        ada, bob = memory.space("user:ada"), memory.space("user:bob")
        added = await ada.add("The boat is red.")
        await bob.add("The house is blue.")
        await memory.backup(tmp_path / "copy.db")
        # As before for a part of it.
        part = await ada.forget(memory=added.entry.id)
        assert (part.key_destroyed, [Path(place).name for place in part.out_of_reach]) == (False, ["copy.db"])
        before = {path.name for path in (tmp_path / "keys").iterdir()}
        whole = await ada.forget(everything=True)
        after = {path.name for path in (tmp_path / "keys").iterdir()}
        assert len(before - after) == 1
        assert whole == Forgotten("erased", 0, key_destroyed=True)
        assert [entry.text for entry in await bob.list()] == ["The house is blue."]
        # The space can be used again, with another key.
        await ada.add("The boat is green.")
        assert [entry.text for entry in await ada.list()] == ["The boat is green."]
        assert {path.name for path in (tmp_path / "keys").iterdir()} > after


async def test_copies_in_other_spaces_are_named(tmp_path: Path) -> None:
    """M2: a conversation that quoted the space has a key of its own."""
    async with _open(tmp_path / "memory.db", Keys(), {"recall_score_min": 0.0, "grace": 5.0}) as memory:
        club = memory.space("project:club")
        await club.add("The boat is red.")
        messages: list[dict[str, Any]] = [{"role": "user", "content": "What colour is the boat?"}]
        talk = memory.conversation("talk", owner="user:ada", reads=["project:club"])
        async with talk.turn(messages) as turn:
            await turn.inject(messages)
            messages.append({"role": "assistant", "content": "It is red."})
        await turn.wait_recorded(within=10)
        await memory.backup(tmp_path / "copy.db")
        assert "red" in messages[1]["content"]
        forgotten = await club.forget(everything=True)
    assert forgotten.key_destroyed
    assert [place.rpartition("/")[2] for place in forgotten.out_of_reach] == [
        "copy.db",
        "rows of user:ada or copies of them: it quoted or learned from project:club, and has a key of its own",
    ]


@pytest.mark.parametrize("is_active", [True, False])
async def test_a_space_that_still_shows_the_text_is_named(tmp_path: Path, is_active: bool) -> None:
    """M2: a statement that rests also on something else stays, and so does its text."""
    async with _open(tmp_path / "memory.db", Keys()) as memory:
        ada, club = memory.space("user:ada"), memory.space("project:club")
        for space, text in ((ada, "The boat is red."), (club, "The house is blue.")):
            await space.add_many([Draft(text, kind=Kind.RECORD, conversation="talk", position=0, speaker="Ada")])
        sources = [(await space.list())[0].id for space in (ada, club)]
        added = await club.add("The boat is red and the house is blue.", sources=sources)
        if not is_active:
            await club.delete(added.entry.id)
        forgotten = await ada.forget(everything=True)
        assert forgotten.key_destroyed
        first = (await club.history(added.entry.id)).versions[0]
        assert first.text == "The boat is red and the house is blue."
    assert forgotten.out_of_reach == (
        "rows of project:club or copies of them: it quoted or learned from user:ada, and has a key of its own",
    )


async def test_a_key_that_cannot_be_destroyed_is_destroyed_later(tmp_path: Path) -> None:
    """M2: until then, forget says so; the job tries again, in this process or another one."""
    keys = Keys()
    async with _open(tmp_path / "memory.db", keys) as memory:
        ada = memory.space("user:ada")
        await ada.add("The boat is red.")
        held = set(keys.held)
        keys.is_away = True
        forgotten = await ada.forget(everything=True)
        assert (forgotten.state, forgotten.key_destroyed) == ("pending", False)
        assert "the key of user:ada, until" in str(forgotten.remaining[0])
        assert set(keys.held) == held
    keys.is_away = False
    async with _open(tmp_path / "memory.db", keys) as memory:
        assert await memory._services.store.scrub() == ()
    assert not [key_id for key_id in keys.held if "user:ada" in key_id]


async def test_a_second_forget_does_not_hide_a_key_that_is_left(tmp_path: Path) -> None:
    """M2: the space was used again in between. Keys of other tenants do not count, and are not named."""

    class Stubborn(Keys):
        kept: frozenset[str] = frozenset()

        def destroy(self, key_id: str) -> None:
            if key_id in self.kept:
                raise ConnectionError
            super().destroy(key_id)

    keys = Stubborn()
    async with (
        _open(tmp_path / "memory.db", keys) as memory,
        _open(tmp_path / "memory.db", keys, {"tenant": "other"}) as other,
    ):
        ada = memory.space("user:ada")
        await ada.add("The boat is red.")
        keys.kept = first = frozenset(key_id for key_id in keys.held if "user" in key_id)
        assert (await ada.forget(everything=True)).state == "pending"
        await ada.add("The boat is green.")
        forgotten = await ada.forget(everything=True)
        assert (forgotten.state, forgotten.key_destroyed) == ("pending", False)
        assert "the key of user:ada, until" in str(forgotten.remaining[0])
        # Another space is told, but its own key is destroyed.
        await memory.space("user:bob").add("The house is blue.")
        forgotten = await memory.space("user:bob").forget(everything=True)
        assert (forgotten.key_destroyed, len(forgotten.remaining)) == (True, 1)
        await other.space("user:ada").add("The boat is blue.")
        assert await other.space("user:ada").forget(everything=True) == Forgotten("erased", 1, key_destroyed=True)
        keys.kept = frozenset()
        await ada.add("The boat is blue.")
        assert await ada.forget(everything=True) == Forgotten("erased", 1, key_destroyed=True)
    assert not first & set(keys.held)


async def test_a_provider_without_the_keys_of_the_store_destroys_nothing(tmp_path: Path) -> None:
    """M2: otherwise a forget with the wrong folder would say that the key is gone."""
    keys, others = FolderKeys(tmp_path / "keys"), FolderKeys(tmp_path / "others")
    (tmp_path / "others").mkdir(mode=0o700)
    async with _open(tmp_path / "memory.db", keys) as memory:
        await memory.space("user:ada").add("The boat is red.")
    held = {path.name for path in (tmp_path / "keys").iterdir()}
    async with _open(tmp_path / "memory.db", others) as memory:
        forgotten = await memory.space("user:ada").forget(everything=True)
        assert (forgotten.state, forgotten.key_destroyed) == ("pending", False)
    async with _open(tmp_path / "memory.db", keys) as memory:
        assert {path.name for path in (tmp_path / "keys").iterdir()} == held
        assert await memory._services.store.scrub() == ()
    assert len(held - {path.name for path in (tmp_path / "keys").iterdir()}) == 1


async def test_a_folder_that_was_replaced_by_an_empty_one_counts_as_away(tmp_path: Path) -> None:
    """M2: as when its volume is unmounted. This holds although the process still has the store's own key."""
    folder, store, events = tmp_path / "keys", tmp_path / "memory.db", list[Event]()
    async with _open(store, FolderKeys(folder)) as memory:
        await memory.space("user:bob").add("The house is blue.")
    async with _open(store, FolderKeys(folder), {"recall_score_min": 0.0, "grace": 5.0}, events) as memory:
        ada, bob = memory.space("user:ada"), memory.space("user:bob")
        await ada.add("The boat is red.")
        await (await _say(memory, "What colour is the boat?")).wait_recorded(within=10)
        held = {path.name for path in folder.iterdir()}
        folder.rename(tmp_path / "volume")
        folder.mkdir(mode=0o700)
        forgotten = await ada.forget(everything=True)
        assert (forgotten.state, forgotten.key_destroyed) == ("pending", False)
        assert "the key of user:ada, until" in str(forgotten.remaining[0])
        faults = [fault for fault in await memory._services.store.check() if fault.subject == "keys"]
        assert [fault.level for fault in faults] == ["error"]
        # The key of this space was not used yet.
        with pytest.raises(KeysUnavailable, match="does not have this store's own key"):
            await bob.list()
        turn = await _say(memory, "Where is the house?", space="user:bob", talk="other")
        assert not await turn.wait_recorded(within=0.2)
        folder.rmdir()
        (tmp_path / "volume").rename(folder)
        assert {path.name for path in folder.iterdir()} == held
        assert await turn.wait_recorded(within=30)
        assert await memory._services.store.scrub() == ()
        assert len(held - {path.name for path in folder.iterdir()}) == 1
    assert "KeyMissing" not in _lost(events)


async def test_another_host_cannot_read_after_a_forget(tmp_path: Path) -> None:
    """M2: from its next recall on, and it lets go of the key."""
    keys, store = Keys(), tmp_path / "memory.db"
    async with _open(store, keys) as one, _open(store, keys) as other:
        await one.space("user:ada").add("The boat is red.")
        assert (await other.space("user:ada").search("boat")).hits
        store_of_other = other._services.store
        assert isinstance(store_of_other, SqliteStore)
        ring = store_of_other.keys
        assert ring is not None
        assert any("user:ada" in key_id for key_id in ring._keys)
        await one.space("user:ada").forget(everything=True)
        assert not (await other.space("user:ada").search("boat")).hits
        assert not any("user:ada" in key_id for key_id in ring._keys)
        # What this host writes now is sealed with a new key, which the first one can read.
        await other.space("user:ada").add("The boat is green.")
        assert [entry.text for entry in await one.space("user:ada").list()] == ["The boat is green."]


async def test_a_host_drops_keys_after_some_minutes(tmp_path: Path) -> None:
    """M2: a provider that refuses a key is noticed without a forget, too."""
    keys, clock = Keys(), ManualClock()
    async with _open(tmp_path / "memory.db", keys, clock=clock) as memory:
        await memory.space("user:ada").add("The boat is red.")
        keys.held = {key_id: key for key_id, key in keys.held.items() if "user:ada" not in key_id}
        assert await memory.space("user:ada").list()
        clock.advance(301.0)
        with pytest.raises(KeyMissing):
            await memory.space("user:ada").list()


async def test_expired_keys_are_dropped_when_another_key_is_used(tmp_path: Path) -> None:
    keys, clock = Keys(), ManualClock()
    async with _open(tmp_path / "memory.db", keys, clock=clock) as memory:
        ring = memory._services.store.keys  # type: ignore[attr-defined]
        await memory.space("user:ada").add("The boat is red.")
        clock.advance(200.0)
        await memory.space("user:bob").add("The house is blue.")
        assert any("user:ada" in key_id for key_id in ring._keys)
        clock.advance(101.0)
        await memory.space("user:bob").list()
        assert not any("user:ada" in key_id for key_id in ring._keys)
        assert any("bob" in key_id for key_id in ring._keys)


async def test_a_restored_backup_brings_back_nothing_of_a_forgotten_space(tmp_path: Path) -> None:
    """M2: an error for that space only, until it is forgotten again."""
    keys, store = FolderKeys(tmp_path / "keys"), tmp_path / "memory.db"
    events: list[Event] = []
    async with _open(store, keys, {"grace": 5.0, "close_timeout": 1.0}, events) as memory:
        ada, bob = memory.space("user:ada"), memory.space("user:bob")
        await ada.add("The boat is red.")
        await (await _say(memory, "The boat has two masts.")).wait_recorded(within=10)
        await bob.add("The house is blue.")
        await memory.backup(tmp_path / "copy.db")
        await ada.forget(everything=True)
        await memory.restore(tmp_path / "copy.db")
        for call in (ada.list, ada.export, lambda: ada.add("The boat is green.")):
            with pytest.raises(KeyMissing, match=r"The key of user:ada is gone.*everything=True") as missing:
                await call()
            assert missing.value.space == "user:ada"
        found = await ada.search("boat")
        assert (found.hits, "long_term" in found.missing) == ((), True)
        assert [entry.text for entry in await bob.list()] == ["The house is blue."]
        turn = await _say(memory, "Where is the boat?", talk="other")
        assert not await turn.wait_recorded(within=10)
        # Turns of other spaces are recorded.
        turn = await _say(memory, "Where is the house?", space="user:bob")
        assert await turn.wait_recorded(within=10)
        await ada.forget(everything=True)
        await ada.add("The boat is green.")
        assert [entry.text for entry in await ada.list()] == ["The boat is green."]
    assert {"degraded", "KeyMissing"} <= _lost(events)
    for path in sorted((tmp_path).glob("memory.db*")):
        assert b"masts" not in (path.read_bytes() if path.is_file() else b"")


async def test_a_key_that_only_a_newer_backup_needs_is_destroyed_with_its_space(tmp_path: Path) -> None:
    """M2: although the restored backup does not name it."""
    keys, store = FolderKeys(tmp_path / "keys"), tmp_path / "memory.db"
    async with _open(store, keys) as memory:
        bob = memory.space("user:bob")
        await memory.space("user:ada").add("The house is blue.")
        await memory.backup(tmp_path / "old.db")
        await bob.add("The boat is red.")
        await memory.backup(tmp_path / "new.db")
        await memory.restore(tmp_path / "old.db")
        await memory.restore(tmp_path / "new.db")
        assert [entry.text for entry in await bob.list()] == ["The boat is red."]
        await memory.restore(tmp_path / "old.db")
        await bob.add("The boat is green.")
        assert (await bob.forget(everything=True)).key_destroyed
        await memory.restore(tmp_path / "new.db")
        with pytest.raises(KeyMissing):
            await bob.list()
        # Also if the space was not used again.
        assert not (await bob.forget(everything=True)).out_of_reach
        await bob.add("The boat is blue.")
        await memory.backup(tmp_path / "newest.db")
        await memory.restore(tmp_path / "old.db")
        assert (await bob.forget(everything=True)).key_destroyed
        await memory.restore(tmp_path / "newest.db")
        with pytest.raises(KeyMissing):
            await bob.list()
        assert [entry.text for entry in await memory.space("user:ada").list()] == ["The house is blue."]


async def test_an_older_key_that_is_left_makes_a_forget_pending(tmp_path: Path) -> None:
    class Stubborn(Keys):
        kept = ""

        def destroy(self, key_id: str) -> None:
            if key_id == self.kept:
                raise ConnectionError
            super().destroy(key_id)

    keys = Stubborn()
    async with _open(tmp_path / "memory.db", keys) as memory:
        bob = memory.space("user:bob")
        await memory.space("user:ada").add("The house is blue.")
        await memory.backup(tmp_path / "old.db")
        await bob.add("The boat is red.")
        (keys.kept,) = (key_id for key_id in keys.held if "bob" in key_id)
        await memory.restore(tmp_path / "old.db")
        await bob.add("The boat is green.")
        forgotten = await bob.forget(everything=True)
        assert (forgotten.state, forgotten.key_destroyed) == ("pending", False)
        assert [key_id for key_id in keys.held if "bob" in key_id] == [keys.kept]


@pytest.mark.parametrize("returns", ["before the restore", "after the restore"])
async def test_a_restore_does_not_stop_the_destruction_of_a_key(tmp_path: Path, returns: str) -> None:
    """M2: of a space that the backup has, and of one that is newer."""
    keys = Keys()
    async with _open(tmp_path / "memory.db", keys) as memory:
        ada, bob = memory.space("user:ada"), memory.space("user:bob")
        await ada.add("The boat is red.")
        await memory.backup(tmp_path / "copy.db")
        await bob.add("The boat is green.")
        held = {key_id for key_id in keys.held if "user" in key_id}
        keys.is_away = True
        for space in (ada, bob):
            assert (await space.forget(everything=True)).state == "pending"
        keys.is_away = returns == "after the restore"
        await memory.restore(tmp_path / "copy.db")
        keys.is_away = False
        assert await memory._services.jobs.run_due([JobKind.SCRUB])
        with pytest.raises(KeyMissing):
            await ada.list()
    assert (len(held), held & set(keys.held)) == (2, set())


@pytest.mark.parametrize("is_readable", [True, False])
async def test_a_rescue_keeps_the_keys_that_it_can_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_readable: bool
) -> None:
    keys, store = FolderKeys(tmp_path / "keys"), tmp_path / "memory.db"
    async with _open(store, keys) as memory:
        await memory.space("user:ada").add("The house is blue.")
        await memory.backup(tmp_path / "old.db")
        await memory.space("user:bob").add("The boat is red.")
        await memory.backup(tmp_path / "new.db")
    if not is_readable:
        store.write_bytes(b"damaged" * 1000)
    await asyncio.to_thread(afterturn.blocking.rescue, store, tmp_path / "old.db")
    assert ("could not be read" in caplog.text) is not is_readable
    async with _open(store, keys) as memory:
        assert (await memory.space("user:bob").forget(everything=True)).key_destroyed is is_readable
        await memory.restore(tmp_path / "new.db")
        if is_readable:
            with pytest.raises(KeyMissing):
                await memory.space("user:bob").list()


# The provider


async def test_without_the_provider_turns_go_on_and_say_so(tmp_path: Path) -> None:
    """Nothing is written in plain text meanwhile, and the turn is stored when the provider is back."""
    keys, store = Keys(), tmp_path / "memory.db"
    async with _open(store, keys) as memory:
        await memory.space("user:ada").add("The boat is red.")
    keys.is_away = True
    events: list[Event] = []
    async with _open(store, keys, {"close_timeout": 1.0, "grace": 5.0}, events) as memory:
        turn = await _say(memory, "Where is the greenhouse?")
        assert not await turn.wait_recorded(within=0.2)
        with pytest.raises(KeysUnavailable, match="ConnectionError"):
            await memory.space("user:ada").list()
        assert "degraded" in _lost(events)
        waits = next(event for event in events if event.name == "recording_waits")
        # The key of the space is not known to this process, so the turn is held in memory only.
        assert waits.data["spilled"] is False
        assert not list(tmp_path.glob("memory.db.waiting*/*"))
        keys.is_away = False
        assert await turn.wait_recorded(within=30)
    assert b"greenhouse" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


async def test_a_provider_that_hangs_delays_no_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4: and other spaces, whose keys are held, are used meanwhile."""
    monkeypatch.setattr(keys_module, "LOAD_WITHIN", 0.3)
    keys = Keys()
    async with _open(tmp_path / "memory.db", keys, {"close_timeout": 1.0}) as memory:
        await memory.space("user:bob").add("The house is blue.")
        keys.let_go.clear()
        turn = await _say(memory, "Where is the boat?")
        await asyncio.to_thread(keys.has_hung.wait, 10)
        assert await memory.space("user:bob").list()
        with pytest.raises(KeysUnavailable, match="did not answer within"):
            await memory.space("user:ada").add("The boat is red.")
        keys.let_go.set()
        assert await turn.wait_recorded(within=30)


async def test_a_closed_store_leaves_no_thread_of_its_keys(tmp_path: Path) -> None:
    async with _open(tmp_path / "memory.db", FolderKeys(tmp_path / "keys")) as memory:
        await memory.space("user:ada").add("The boat is red.")
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("afterturn-keys")]


async def test_turns_that_wait_in_files_are_sealed(tmp_path: Path) -> None:
    """C2: they are stored by the next process; a forget of the space erases them, with or without its key."""
    keys, store = FolderKeys(tmp_path / "keys"), tmp_path / "memory.db"
    folder = tmp_path / "memory.db.waiting"

    async def leave_a_turn() -> None:
        async with _open(store, keys, {"busy_timeout": 0.05, "close_timeout": 0.3, "grace": 0.0}) as memory:
            await memory.space("user:ada").add("The boat is red.")
            lock = apsw.Connection(str(store))
            lock.set_busy_timeout(10_000)
            lock.execute("BEGIN IMMEDIATE")
            await _say(memory, "Where is the greenhouse?")
            await memory.close()
            lock.close()

    await leave_a_turn()
    Spill(folder).unpack()
    (file,) = folder.iterdir()
    assert b"greenhouse" not in file.read_bytes()
    content = json.loads(file.read_text())
    ring = KeyRing(keys, SystemClock())
    (found,) = Spill(folder, ring).waiting()
    assert found.messages[0].text == "Where is the greenhouse?"
    async with _open(store, keys, {"background": True}) as memory:
        async with asyncio.timeout(30):
            while list(folder.glob("*.json")):
                await memory.drain(within=5)
        texts = [entry.text for entry in await memory.space("user:ada").list(limit=100)]
    assert "Where is the greenhouse?" in texts
    # A file whose key is gone is kept for a person, and `forget` erases it.
    file.write_text(json.dumps({**content, "key": "0" * 32}))
    # Not before it is known that the provider is the store's.
    assert list(Spill(folder, ring).waiting()) == []
    assert Spill(folder, ring).damaged() == []
    async with _open(store, keys) as memory:
        opened = memory._services.store
        assert isinstance(opened, SqliteStore)
        assert list(Spill(folder, opened.keys).waiting()) == []
    assert Spill(folder, ring).damaged() == [file.with_suffix(".bad")]
    assert Spill(folder, ring).forget("default", "user:ada", afterturn.types.Selector(everything=True)) == 1


async def test_turns_that_are_appended_to_one_file_are_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C2, C4: they are stored by the next process; one whose key is not known here is held in memory."""
    keys, store = FolderKeys(tmp_path / "keys"), tmp_path / "memory.db"
    folder = tmp_path / "memory.db.waiting"
    monkeypatch.setattr(recorder, "RECORDING_QUEUE_MAX", 1)
    async with _open(store, keys, {"grace": 0.0}) as memory:
        await memory.space("user:ada").add("The boat is red.")
        lock = apsw.Connection(str(store))
        lock.set_busy_timeout(10_000)
        lock.execute("BEGIN IMMEDIATE")
        turns = [await _say(memory, f"Where is the {what}?") for what in ("greenhouse", "orchard")]
        (file,) = folder.glob("*.jsonl")
        content = file.read_text()
        lock.close()
        assert await turns[0].wait_recorded(within=30)
        assert await memory.drain(within=30)
        texts = [entry.text for entry in await memory.space("user:ada").list(limit=100)]
    assert "orchard" not in content
    assert "Where is the orchard?" in texts
    assert list(folder.iterdir()) == []


async def test_an_id_that_another_key_has_is_refused(tmp_path: Path) -> None:
    """M2: of another space, of a key that is not destroyed yet, and of one that only a backup needs."""

    class Repeating(Keys):
        repeated = ""

        def make(self, tenant: str, space: str) -> str:
            return self.repeated or super().make(tenant, space)

        def destroy(self, key_id: str) -> None:
            assert key_id != self.repeated
            super().destroy(key_id)

    keys = Repeating()
    async with _open(tmp_path / "memory.db", keys) as memory:
        ada, bob = memory.space("user:ada"), memory.space("user:bob")
        await memory.space("user:eve").add("The lake is deep.")
        await memory.backup(tmp_path / "copy.db")
        await ada.add("The boat is red.")
        (keys.repeated,) = (key_id for key_id in keys.held if "user:ada" in key_id)
        for step in ("in use", "only in a backup", "to be destroyed"):
            if step == "only in a backup":
                await memory.restore(tmp_path / "copy.db")
            if step == "to be destroyed":
                assert (await ada.forget(everything=True)).state == "pending"
            for space in (bob,) if step == "in use" else (ada, bob):
                with pytest.raises(KeysUnavailable, match=r"returned the id 'default-user:ada.*another key"):
                    await space.add("The house is blue.")
        assert keys.repeated in keys.held
        keys.repeated = ""
        await bob.add("The house is blue.")
        assert [entry.text for entry in await bob.list()] == ["The house is blue."]


# Key files


async def test_keys_are_files_that_only_their_owner_can_read(tmp_path: Path) -> None:
    keys = FolderKeys(tmp_path / "keys")
    async with _open(tmp_path / "memory.db", keys) as memory:
        await memory.space("user:ada").add("The boat is red.")
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    files = sorted((tmp_path / "keys").iterdir(), key=lambda path: "ada" not in path.read_text())
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {json.loads(path.read_text())["space"] for path in files} == {"user:ada", ""}
    for path, mode in ((files[0], 0o640), (tmp_path / "keys", 0o750)):
        path.chmod(mode)
        async with _open(tmp_path / "memory.db", keys) as memory:
            with pytest.raises(KeysUnavailable, match="chmod"):
                await memory.space("user:ada").list()
        path.chmod(0o600 if path.is_file() else 0o700)
    (tmp_path / "others").mkdir(mode=0o700)
    async with _open(tmp_path / "memory.db", FolderKeys(tmp_path / "others")) as memory:
        with pytest.raises(KeysUnavailable, match="does not have this store's own key"):
            await memory.space("user:ada").list()
    (tmp_path / "keys").rename(tmp_path / "elsewhere")
    async with _open(tmp_path / "memory.db", keys) as memory:
        # Not a missing key: a folder that is not mounted must not look like a forget.
        with pytest.raises(KeysUnavailable, match="Check the setting `keys`"):
            await memory.space("user:ada").list()


@pytest.mark.parametrize("exists", [False, True])
async def test_a_wrong_folder_gets_no_key_and_sets_no_turn_aside(exists: bool, tmp_path: Path) -> None:
    """M2: what is sealed with a key there could not be read with the right folder."""
    store, wrong = tmp_path / "memory.db", tmp_path / "wrong"
    if exists:
        wrong.mkdir(mode=0o700)
    settings = {"busy_timeout": 0.05, "close_timeout": 0.3, "grace": 0.0}
    async with _open(store, FolderKeys(tmp_path / "keys"), settings) as memory:
        await memory.space("user:ada").add("The boat is red.")
        lock = apsw.Connection(str(store))
        lock.set_busy_timeout(10_000)
        lock.execute("BEGIN IMMEDIATE")
        await _say(memory, "Where is the greenhouse?")
        await memory.close()
        lock.close()
    Spill(tmp_path / "memory.db.waiting").unpack()
    (file,) = (tmp_path / "memory.db.waiting").iterdir()
    async with _open(store, FolderKeys(wrong), {"background": True}) as memory:
        await memory.drain(within=1)
        with pytest.raises(KeysUnavailable, match="Check the setting `keys`"):
            await memory.space("user:bob").add("The house is blue.")
        store_with_keys = memory._services.store
        assert isinstance(store_with_keys, SqliteStore)
        assert list(Spill(file.parent, store_with_keys.keys).waiting()) == []
    assert not wrong.exists() or not list(wrong.iterdir())
    assert list(file.parent.iterdir()) == [file]


async def test_a_relative_folder_stays_where_it_was_when_the_store_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with _open(tmp_path / "memory.db", None, {"keys": "keys"}) as memory:
        await memory.space("user:ada").add("The boat is red.")
        monkeypatch.chdir(tmp_path / "elsewhere")
        await memory.space("user:bob").add("The house is blue.")
    assert len(list((tmp_path / "keys").iterdir())) == 3
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_new_folder_of_keys_is_durable_with_its_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(keys_module, "sync", synced.append)
    FolderKeys(tmp_path / "new" / "folder" / "keys").make("", "")
    assert {tmp_path, tmp_path / "new", tmp_path / "new" / "folder", tmp_path / "new" / "folder" / "keys"} == set(
        synced
    )


def test_a_key_whose_destruction_was_interrupted_is_destroyed(tmp_path: Path) -> None:
    """The file was overwritten, and not removed."""
    keys = FolderKeys(tmp_path / "keys")
    key_id = keys.make("", "")
    path = tmp_path / "keys" / f"{key_id}.key"
    path.write_bytes(bytes(path.stat().st_size))
    assert keys.get(key_id) is None
    keys.destroy(key_id)
    assert not path.exists()
    path.touch(mode=0o600)
    with pytest.raises(KeysUnavailable, match="is damaged"):
        keys.get(key_id)


def test_no_symbolic_link_to_a_key_is_followed(tmp_path: Path) -> None:
    keys = FolderKeys(tmp_path / "keys")
    key_id = keys.make("", "")
    path = tmp_path / "keys" / f"{key_id}.key"
    path.rename(tmp_path / "target")
    path.symlink_to(tmp_path / "target")
    before = (tmp_path / "target").read_bytes()
    for call in (keys.get, keys.destroy):
        with pytest.raises(KeysUnavailable, match="is a symbolic link"):
            call(key_id)
    assert (tmp_path / "target").read_bytes() == before


async def test_no_key_is_in_a_log_an_error_or_a_repr(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys, said = Keys(), []
    with caplog.at_level(logging.DEBUG):
        async with _open(tmp_path / "memory.db", keys) as memory:
            await memory.space("user:ada").add("The boat is red.")
        keys.is_away = True
        async with _open(tmp_path / "memory.db", keys) as memory:
            with pytest.raises(KeysUnavailable) as refused:
                await memory.space("user:ada").list()
            said += [repr(refused.value), str(refused.value), repr(refused.value.__cause__)]
    key = next(iter(keys.held.values()))
    ring, cipher = KeyRing(keys, SystemClock()), SpaceCipher(key, "id", "default", "user:ada")
    said += [repr(ring), repr(cipher), caplog.text]
    for form in (repr(key), key.hex(), repr(key)[2:12]):
        assert form not in "\n".join(said)


# Stores with and without keys


async def test_a_store_is_sealed_from_the_beginning_or_never(tmp_path: Path) -> None:
    async with _open(tmp_path / "plain.db", None) as memory:
        await memory.space("user:ada").add("The boat is red.")
    async with _open(tmp_path / "sealed.db", Keys()) as memory:
        await memory.space("user:ada").add("The boat is red.")
    with pytest.raises(KeysUnavailable, match=r"was made without keys.*export its spaces"):
        async with _open(tmp_path / "plain.db", Keys()):
            pass
    with pytest.raises(KeysUnavailable, match=r"is sealed with keys\. Set `keys`"):
        async with _open(tmp_path / "sealed.db", None):
            pass
    with pytest.raises(KeysUnavailable, match=r"is sealed with keys"):
        afterturn.recall_once("boat", user="ada", store=tmp_path / "sealed.db")
    async with _open(tmp_path / "plain.db", None) as memory:
        with pytest.raises(InvalidFile, match="sealed with keys, unlike this store"):
            await memory.restore(tmp_path / "sealed.db")


async def test_a_host_without_keys_cannot_write_to_a_store_that_was_sealed_meanwhile(tmp_path: Path) -> None:
    async with _open(tmp_path / "memory.db", None) as plain:
        async with _open(tmp_path / "memory.db", Keys()) as memory:
            await memory.space("user:ada").add("The boat is red.")
        with pytest.raises(KeysUnavailable, match="is sealed with keys"):
            await plain.space("user:bob").add("The greenhouse is blue.")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert b"greenhouse" not in b"".join(path.read_bytes() for path in files)


async def test_an_import_of_many_new_spaces_makes_a_key_for_each(tmp_path: Path) -> None:
    keys, names = Keys(), [f"user:person-{number}" for number in range(40)]
    async with _open(tmp_path / "memory.db", keys) as memory:
        await asyncio.gather(*(memory.space(name).add(f"The boat of {name} is red.") for name in names))
        assert {summary.name for summary in await memory.spaces()} == set(names)
    # And one of the store.
    assert len(keys.held) == len(names) + 1
    # One more process, which has no key yet.
    async with _open(tmp_path / "memory.db", keys) as memory:
        for name in names:
            assert [entry.text for entry in await memory.space(name).list()] == [f"The boat of {name} is red."]


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(afterturn.ExtraMissing, match=r"pip install 'afterturn\[keys\]'"):
        open_engine(tmp_path / "memory.db", Config(), SystemClock(), keys=Keys())


async def test_a_sealed_store_can_be_moved_as_a_whole(tmp_path: Path) -> None:
    keys = FolderKeys(tmp_path / "keys")
    async with _open(tmp_path / "one.db", keys, {"embedder": "static"}, embedder=HashingEmbedder()) as memory:
        await memory.ready()
        await memory.space("user:ada").add("The boat is red.")
        await (await _say(memory, "The boat has two masts.")).wait_recorded(within=10)
    config = Config(keys=str(tmp_path / "keys"))
    with pytest.raises(StoreError, match="without --keep"):
        migrate(tmp_path / "one.db", tmp_path / "two.db", config, tenant=None, keep=True, progress=lambda *_: None)
    done = migrate(tmp_path / "one.db", tmp_path / "two.db", config, tenant=None, keep=False, progress=lambda *_: None)
    assert done.is_equal
    async with _open(tmp_path / "two.db", keys) as memory:
        texts = {hit.entry.text for hit in (await memory.space("user:ada").search("boat masts", limit=5)).hits}
        assert {"The boat is red.", "The boat has two masts."} <= texts
        assert (await memory.space("user:ada").forget(everything=True)).key_destroyed
    async with _open(tmp_path / "plain.db", None) as memory:
        await memory.space("user:ada").add("The boat is red.")
    with pytest.raises(StoreError, match="is not sealed with keys, and rows are copied as they are"):
        migrate(tmp_path / "plain.db", tmp_path / "new.db", config, tenant=None, keep=False, progress=lambda *_: None)
