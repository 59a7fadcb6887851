"""Erases entries for good: the selected ones, what was learned from them alone, and every trace in other tables."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeAlias

from afterturn.errors import InvalidInput, StoreCorrupt
from afterturn.stores.sql.conversations import FIND_CONVERSATION, Tombstones, detail_row, without
from afterturn.stores.sql.entries import FROM_ENTRY, Entries, encode_metadata
from afterturn.stores.sql.sealing import Sealer, try_to_open
from afterturn.stores.sql.session import Row, Session, Value, load_queries
from afterturn.stores.sql.timeline import open_event, read_event
from afterturn.types import Erased, Selector, reference

# Which versions are erased: the selected ones, then statements all of whose sources are erased, in any space

_VERSION = "e.key, e.space_key, e.id, e.version, e.kind"
_SQL = load_queries(__file__)
RESTING = _SQL["resting"]
_UNRECORDED = _SQL["unrecorded"]
BY_SOURCE = _SQL["by_source"]
_RECORDED = _SQL["recorded"]
GONE_SOURCES = _SQL["gone_sources"]
CALLED = f"SELECT {_VERSION} FROM entry AS e WHERE {{condition}} AND e.tenant = ?"


class Version(NamedTuple):
    space_key: int
    id: str
    version: int
    kind: str


Doomed: TypeAlias = dict[int, Version]


class Names(NamedTuple):
    """The names of the versions to erase: references of versions, and ids of which no version stays.

    `own` by space, for that space's statements. `gone` are ids of records, by which statements of other spaces name
    them too: a review writes what a person said in a shared space into that person's own space. A record that another
    space has too is not among them, because the name could mean either.
    """

    own: Mapping[int, set[str]]
    gone: set[str]

    def cover(self, space_key: int, source: str) -> bool:
        return source in self.gone or source in self.own.get(space_key, ())

    def all(self) -> set[str]:
        return self.gone.union(*self.own.values())


class Lineage:
    def __init__(self, session: Session) -> None:
        self._session = session

    def doomed(self, tenant: str, space_key: int, kind: str, chosen: Sequence[str]) -> Doomed:
        """The versions to erase, by key. A memory or source is erased with every version.

        For a conversation or speaker only those versions are erased: others may have been said elsewhere.
        """
        condition, values = "1 = 1", list[Value]()
        if kind != "everything":
            condition, value = self._session.among("e.id" if kind in ("memory", "source") else f"e.{kind}", chosen)
            values = [value]
        if kind == "source":
            resting, _ = self._session.among("source", chosen)
            condition = f"({condition} OR e.key IN (SELECT entry_key FROM source WHERE {resting}))"
            values *= 2
        if kind in ("memory", "source"):
            condition = f"e.id IN (SELECT e.id FROM entry AS e WHERE e.space_key = ? AND {condition})"
            values = [space_key, *values]
        selected = f"SELECT {_VERSION} FROM entry AS e WHERE e.space_key = ? AND {condition}"
        doomed = self._versions(selected, space_key, *values)
        fresh = doomed
        while fresh:
            names = self.names(tenant, doomed)
            # More statements that have one of the names as a source, and no source that stays.
            named, value = self._session.among("source", sorted(names.all()))
            left: Doomed = {}
            staying: set[int] = set()
            for key, *version, source in self._session.each(RESTING.format(named=named), (value, tenant)):
                left[key] = Version(*version)
                if not names.cover(left[key].space_key, source):
                    staying.add(key)
            fresh = {key: version for key, version in left.items() if key not in doomed and key not in staying}
            doomed = doomed | fresh
        return doomed

    def names(self, tenant: str, doomed: Doomed) -> Names:
        condition, value = self._session.among("e.id", sorted({version.id for version in doomed.values()}))
        found = self._versions(CALLED.format(condition=condition), value, tenant)
        staying = [version for key, version in found.items() if key not in doomed]
        held = {(version.space_key, version.id) for version in staying}
        held_anywhere = {version.id for version in staying}
        own: dict[int, set[str]] = {version.space_key: set() for version in doomed.values()}
        gone: set[str] = set()
        for version in doomed.values():
            if version.version > 1:
                own[version.space_key].add(reference(version.id, version.version))
            if (version.space_key, version.id) not in held:
                own[version.space_key].add(version.id)
            if version.kind == "record" and version.id not in held_anywhere:
                gone.add(version.id)
        return Names(own, gone)

    def _versions(self, sql: str, *values: Value) -> Doomed:
        return {key: Version(*version) for key, *version in self._session.rows(sql, values)}


# Entries in the tables of conversations: block texts, standing blocks, carried recalls, recall rows

_ASKING = ("recall", "carried")


class ConversationEraser:
    def __init__(self, session: Session, sealer: Sealer | None) -> None:
        self._session = session
        self._sealer = sealer

    def hide_texts(self, tenant: str, refs: Set[str]) -> set[int]:
        """Clears texts in every conversation of the tenant, because blocks do not name the spaces of their memories.

        Returns the keys of the spaces of these conversations."""
        found = self._naming("block_ref", "c.space_key, r.conversation_key, r.hash", tenant, refs)
        self._session.run_many(
            "UPDATE block SET text = '' WHERE conversation_key = ? AND hash = ? AND text <> ''",
            [(conversation, block_hash) for _, conversation, block_hash in found],
        )
        named = self._naming("standing_ref", "c.space_key, r.conversation_key", tenant, refs)
        standing = [(conversation,) for _, conversation in named]
        for table in ("standing", "standing_ref"):
            self._session.run_many(f"DELETE FROM {table} WHERE conversation_key = ?", standing)
        return {row[0] for row in (*found, *named)}

    def erase_names(self, space_key: int, space: str, refs: Set[str]) -> None:
        """Removes names from the candidates of the space's conversations, in one pass."""
        for table in _ASKING:
            if self._sealer is not None:
                self._erase_sealed_names(self._sealer, table, space_key, space, refs)
                continue
            rows = [(*without(detail, space, refs), key) for key, detail in self._weighing(table, space_key, refs)]
            self._session.run_many(f"UPDATE {table} SET names = ?, detail = ? WHERE key = ?", rows)

    def _erase_sealed_names(self, sealer: Sealer, table: str, space_key: int, space: str, refs: Set[str]) -> None:
        """A row that cannot be opened, or was changed, is deleted: it must not keep anything from being forgotten."""
        rows = self._weighing(table, space_key, refs)
        cipher = sealer.readable_of(space_key) if rows else None
        phase = "r.phase" if table == "recall" else "NULL"
        changed: list[tuple[str, str, int]] = []
        for key, detail in rows:
            where = self._session.row(
                f"SELECT c.id, r.correlation, {phase} FROM {table} AS r JOIN conversation AS c "
                "ON c.key = r.conversation_key WHERE r.key = ?",
                (key,),
            )
            column, row = f"{table}.detail", "" if where is None else detail_row(*where)
            opened = None if cipher is None else try_to_open(cipher, column, row, detail)
            if cipher is None or opened is None:
                self._session.run(f"DELETE FROM {table} WHERE key = ?", (key,))
                continue
            names, left = without(opened, space, refs)
            changed.append((names, cipher.seal(column, row, left), key))
        self._session.run_many(f"UPDATE {table} SET names = ?, detail = ? WHERE key = ?", changed)

    def erase_turns(self, tenant: str, turns: Iterable[tuple[str, str, str]]) -> None:
        """Erases the questions of turns, given as (owner, conversation, id)."""
        rows = [(tenant, *turn) for turn in turns]
        self._erase_asking(f"conversation_key = ({FIND_CONVERSATION}) AND turn = ?", rows)

    def erase_unrecorded(self, space_key: int) -> None:
        """Erases the questions of turns without records, whose speaker is not known."""
        self._erase_asking(_UNRECORDED, [(space_key,)])

    def erase_questions(self, space_key: int, conversation: str) -> None:
        within = "conversation_key IN (SELECT key FROM conversation WHERE space_key = ? AND id = ?)"
        self._erase_asking(within, [(space_key, conversation)])

    def _erase_asking(self, within: str, rows: Sequence[Sequence[Value]]) -> None:
        """Erases these questions, and the texts of late blocks, which quote them."""
        self._session.run_many(
            "UPDATE block SET text = '' WHERE (conversation_key, turn) IN (SELECT conversation_key, delivered_in "
            f"FROM recall WHERE {within.format(table='recall')} AND delivered_in <> turn)",
            rows,
        )
        for table in _ASKING:
            self._session.run_many(f"DELETE FROM {table} WHERE {within.format(table=table)}", rows)

    def _naming(self, table: str, columns: str, tenant: str, refs: Set[str]) -> list[Row]:
        condition, value = self._session.among("r.ref", sorted(refs))
        return self._session.rows(
            f"SELECT DISTINCT {columns} FROM {table} AS r JOIN conversation AS c ON c.key = r.conversation_key "
            f"JOIN space AS s ON s.key = c.space_key WHERE {condition} AND s.tenant = ?",
            (value, tenant),
        )

    def _weighing(self, table: str, space_key: int, refs: Set[str]) -> list[Row]:
        """(key, detail) of the rows that name one of `refs`. Of other rows only the names are read."""
        rows = self._session.rows(
            f"SELECT r.key, r.names FROM {table} AS r JOIN conversation AS c ON c.key = r.conversation_key "
            "WHERE c.space_key = ?",
            (space_key,),
        )
        keys = [key for key, names in rows if not refs.isdisjoint(names.split())]
        if not keys:
            return []
        condition, value = self._session.among("key", keys)
        return self._session.rows(f"SELECT key, detail FROM {table} WHERE {condition}", (value,))


# Reviews: those of a conversation or space are erased, others lose some messages

_WRITING = "(space_key, review) IN (SELECT r.space_key, r.id FROM review AS r WHERE r.tenant = ? AND r.writes = ?"
"""A message of a review that writes to this space, for any owner of the conversation; binds tenant and space."""


class ReviewEraser:
    def __init__(self, session: Session) -> None:
        self._session = session

    def erase(self, space_key: int, conversations: Sequence[str] | None) -> set[str]:
        """Erases the space's reviews of these conversations, or all, and returns their ids, which jobs name."""
        values: list[Value] = [space_key]
        within = "space_key = ?"
        if conversations is not None:
            condition, value = self._session.among("conversation", conversations)
            within, values = f"{within} AND {condition}", [space_key, value]
        ids = {review for (review,) in self._session.rows(f"SELECT id FROM review WHERE {within}", values)}
        rows = [(space_key, review) for review in sorted(ids)]
        self._session.run_many("DELETE FROM review_message WHERE space_key = ? AND review = ?", rows)
        self._session.run_many("DELETE FROM review WHERE space_key = ? AND id = ?", rows)
        return ids

    def erase_sources(self, tenant: str, names: Collection[str]) -> None:
        """Erases messages of these records in all reviews of the tenant: no other space has a record of that id."""
        condition, value = self._session.among("source", sorted(names))
        self._session.run(BY_SOURCE.format(condition=condition), (value, tenant))

    def erase_own_sources(self, tenant: str, space_key: int, space: str, names: Collection[str]) -> None:
        """Erases messages of these records in the reviews of this space, and in those that write here."""
        condition, value = self._session.among("source", sorted(names))
        self._session.run(
            f"DELETE FROM review_message WHERE {condition} AND (space_key = ? OR {_WRITING}))",
            (value, space_key, tenant, space),
        )

    def erase_unrecorded(self, tenant: str, conversations: Collection[tuple[str, str]]) -> None:
        """Erases messages without a record, by owner and conversation: they may have the same text."""
        self._session.run_many(
            "DELETE FROM review_message WHERE space_key = (SELECT key FROM space WHERE tenant = ? AND name = ?) "
            "AND source IS NULL AND EXISTS (SELECT 1 FROM review AS r WHERE r.space_key = review_message.space_key "
            "AND r.id = review_message.review AND r.conversation = ?)",
            [(tenant, *conversation) for conversation in sorted(conversations)],
        )

    def set_back(self, tenant: str, space: str, conversations: Collection[tuple[str, str]]) -> None:
        """Sets the read positions back after records of conversations, given as (owner, id), were erased.

        The next records in this space may get the positions of the erased ones, and no review has read them."""
        self._session.run_many(
            _SQL["set_back"],
            [
                (tenant, space, conversation, "" if owner == space else owner, tenant, owner, conversation)
                for owner, conversation in sorted(conversations)
            ],
        )

    def erase_speaker(self, tenant: str, space_key: int, space: str, speaker: str) -> None:
        self._session.run("DELETE FROM review_message WHERE space_key = ? AND speaker = ?", (space_key, speaker))
        self._session.run(f"DELETE FROM review_message WHERE {_WRITING}) AND speaker = ?", (tenant, space, speaker))

    def erase_written(self, tenant: str, space: str, conversation: str | None) -> None:
        """Erases messages of other owners' conversations that write here: of one conversation id, or of all."""
        values: list[Value] = [tenant, space]
        named = ""
        if conversation is not None:
            named, values = " AND r.conversation = ?", [*values, conversation]
        self._session.run(f"DELETE FROM review_message WHERE {_WRITING}{named})", values)


# The eraser: entries, and every trace of them in the other tables

_BATCH = 500
_DROP_WITHOUT_STEPS = (
    "DELETE FROM operation WHERE seq = ? AND NOT EXISTS (SELECT 1 FROM step WHERE operation_seq = operation.seq)"
)
# Texts that may contain an id or a name are split at these before they are compared.
_SEPARATORS = str.maketrans(dict.fromkeys(",;|[](){}\"'", " "))


class Eraser:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._session = entries.session
        self._tombstones = Tombstones(entries)
        self._sealer = entries.sealer
        self._traces = ConversationEraser(entries.session, entries.sealer)
        self._reviews = ReviewEraser(entries.session)
        self._lineage = Lineage(entries.session)

    def forget(self, tenant: str, space: str, selector: Selector, *, at: float) -> Erased:
        kind, chosen = _selected(selector)
        space_key = self._entries.spaces.key(tenant, space)
        self._entries.flush()
        doomed = self._lineage.doomed(tenant, space_key, kind, chosen)
        names = self._lineage.names(tenant, doomed)
        # Before the entries are erased, which name the owners.
        owners = self._owners(tenant, space_key, chosen[0]) if kind == "conversation" else []
        turns = self._turns(list(doomed))
        self._erase_entries(doomed)
        self._spend(doomed, names)
        self._reviews.set_back(tenant, space, {turn[:2] for turn in turns})
        self._erase_messages(tenant, space, kind, chosen, names)
        self._erase_traces(space_key, kind, chosen, names.own.get(space_key, set()))
        self._traces.erase_turns(tenant, turns)
        self._reviews.erase_unrecorded(tenant, {turn[:2] for turn in turns})
        elsewhere = self._erase_references(tenant, doomed, names)
        for other in names.own.keys() - {space_key}:
            self._erase_jobs(other, names.own[other])
            self._erase_timeline(other, "", names.own[other])
        for owner in owners:
            self._erase_elsewhere(owner, chosen[0])
        self._set_change_times({space_key, *_by_space(doomed), *owners})
        number = self._tombstones.count(tenant)
        if kind in ("conversation", "speaker", "everything"):
            self._tombstones.add(space_key, kind, "".join(chosen), number=number, at=at)
        spaces = sorted(self._entries.spaces.name(key) for key in _by_space(doomed))
        ids = tuple(sorted({version.id for version in doomed.values()}))
        erased = Erased(ids, len(doomed), tuple(spaces))
        if self._sealer is None or kind != "everything":
            return erased
        reviewing = self._session.rows(
            "SELECT DISTINCT s.name FROM review AS r JOIN space AS s ON s.key = r.space_key "
            "WHERE r.tenant = ? AND r.writes = ?",
            (tenant, space),
        )
        # Spaces that have, or had, copies of its text, which are sealed with their own keys.
        copied = {*spaces, *(owner for owner, *_ in turns), *(name for (name,) in reviewing)}
        copied |= {self._entries.spaces.name(key) for key in elsewhere}
        key_ids = self._sealer.drop(tenant, space)
        return erased._replace(key_ids=key_ids, copied_to=tuple(sorted(copied - {space})))

    def _set_change_times(self, space_keys: Collection[int]) -> None:
        """A space whose operations or consolidations were erased is due for a consolidation by those that are left."""
        self._session.run_many(_SQL["change_times"], [(key, key, key) for key in sorted(space_keys)])

    def _owners(self, tenant: str, space_key: int, conversation: str) -> list[int]:
        """The other spaces that own a conversation with this id that was recorded here."""
        rows = self._session.rows(
            "SELECT DISTINCT o.key FROM entry AS e JOIN space AS o ON o.name = e.owner "
            f"WHERE e.space_key = ? AND e.conversation = ? AND o.tenant = ? AND {_RECORDED}",
            (space_key, conversation, tenant),
        )
        return [key for (key,) in rows]

    def _turns(self, keys: list[int]) -> list[tuple[str, str, str]]:
        """(owner, conversation, turn) of the recorded messages among these entries."""
        condition, value = self._session.among("e.key", keys)
        owner = f"CASE WHEN e.owner IS NOT NULL AND {_RECORDED} THEN e.owner ELSE s.name END"
        rows = self._session.rows(
            f"SELECT DISTINCT {owner}, e.conversation, e.turn FROM {FROM_ENTRY} "
            f"WHERE {condition} AND e.kind = 'record' AND e.conversation IS NOT NULL AND e.turn IS NOT NULL",
            (value,),
        )
        return [(owner, conversation, turn) for owner, conversation, turn in rows]

    def _erase_elsewhere(self, owner: int, conversation: str) -> None:
        """Erases what the owner's space stores of a conversation that was recorded here."""
        self._session.run("DELETE FROM timeline WHERE space_key = ? AND conversation = ?", (owner, conversation))
        self._traces.erase_questions(owner, conversation)
        if reviews := self._reviews.erase(owner, [conversation]):
            self._erase_jobs(owner, reviews)

    def _replaced(self, doomed: Doomed) -> list[tuple[int, int, int]]:
        """(operation, key, space) of versions that stay and whose last step was to be superseded by an erased one."""
        condition, value = self._session.among("made.entry_key", sorted(doomed))
        rows = self._session.rows(
            "SELECT p.operation_seq, e.key, e.space_key FROM step AS made "
            "JOIN step AS p ON p.operation_seq = made.operation_seq "
            "AND p.before = 'active' AND p.after = 'superseded' JOIN entry AS e ON e.key = p.entry_key "
            f"WHERE {condition} AND made.after = 'active' AND e.status = 'superseded' AND p.operation_seq = "
            "(SELECT max(operation_seq) FROM step WHERE entry_key = e.key)",
            (value,),
        )
        return [(operation, key, space_key) for operation, key, space_key in rows if key not in doomed]

    def _reinstate(self, replaced: Sequence[tuple[int, int, int]]) -> None:
        """Makes these versions active again, unless an equal one is active."""
        for operation, key, space_key in replaced:
            if self._session.row(_SQL["rival"], (key,)) is None:
                self._session.run("DELETE FROM step WHERE operation_seq = ? AND entry_key = ?", (operation, key))
                self._session.run(_DROP_WITHOUT_STEPS, (operation,))
                self._entries.reinstate(space_key, key)

    def _erase_entries(self, doomed: Doomed) -> None:
        replaced = self._replaced(doomed)
        for space_key, keys in _by_space(doomed).items():
            self._entries.withdraw(space_key, keys)
            for start in range(0, len(keys), _BATCH):
                self._erase_batch(space_key, keys[start : start + _BATCH])
        self._reinstate(replaced)

    def _spend(self, doomed: Doomed, names: Names) -> None:
        """Notes the numbers of erased versions of a memory that stays, so that they are not used again."""
        spent = {
            (version.version, version.space_key, version.id, version.version)
            for version in doomed.values()
            if version.id not in names.own[version.space_key]
        }
        self._session.run_many("UPDATE entry SET spent = ? WHERE space_key = ? AND id = ? AND spent < ?", sorted(spent))

    def _erase_batch(self, space_key: int, keys: list[int]) -> None:
        condition, value = self._session.among("entry_key", keys)
        operations = self._session.rows(f"SELECT DISTINCT operation_seq FROM step WHERE {condition}", (value,))
        for table in ("source", "step"):
            self._session.run(f"DELETE FROM {table} WHERE {condition}", (value,))
        self._session.run(
            f"DELETE FROM embedding WHERE embedder_key IN (SELECT key FROM embedder) AND space_key = ? AND {condition}",
            (space_key, value),
        )
        self._session.run_many(_DROP_WITHOUT_STEPS, operations)
        self._session.run_many("DELETE FROM entry WHERE key = ?", [(key,) for key in keys])

    def _erase_references(self, tenant: str, doomed: Doomed, names: Names) -> set[int]:
        """Returns the keys of the spaces whose conversations showed one of them, or that learned from one."""
        learned = self._mark_changed(tenant, names.all())
        # By version, because a conversation shows versions, and before the names that lead to its blocks are erased.
        showing = self._traces.hide_texts(
            tenant, {reference(version.id, version.version) for version in doomed.values()}
        )
        for space_key, keys in _by_space(doomed).items():
            shown = {reference(doomed[key].id, doomed[key].version) for key in keys}
            self._traces.erase_names(space_key, self._entries.spaces.name(space_key), shown)
            # In this space only: another space may use the same id for its own entry.
            for table, column, parent, parent_key in _NAMING:
                condition, value = self._session.among(column, sorted(names.own[space_key]))
                within = f"EXISTS (SELECT 1 FROM {parent} AS p WHERE p.key = {table}.{parent_key} AND p.space_key = ?)"
                self._session.run(f"DELETE FROM {table} WHERE {condition} AND {within}", (value, space_key))
        condition, value = self._session.among("source", sorted(names.gone))
        self._session.run(GONE_SOURCES.format(condition=condition), (value, tenant))
        return showing | learned

    def _mark_changed(self, tenant: str, names: Set[str]) -> set[int]:
        """Adds active statements with one of these sources to the change log, for indexes in memory.

        Returns the keys of the spaces of all statements with one of them: they stay, because of other sources.
        """
        condition, value = self._session.among("o.source", sorted(names))
        rows = self._session.rows(
            f"SELECT DISTINCT e.key, e.space_key, e.status FROM {FROM_ENTRY} JOIN source AS o ON o.entry_key = e.key "
            f"WHERE {condition} AND s.tenant = ?",
            (value, tenant),
        )
        for key, space_key, status in rows:
            if status == "active":
                self._entries.stats.changed(key, space_key)
        return {space_key for _, space_key, _ in rows}

    def _erase_traces(self, space_key: int, kind: str, chosen: Sequence[str], names: Set[str]) -> None:
        """One pass over the space's jobs and timeline, because each row has to be parsed."""
        ids = names | set(chosen) if kind in ("memory", "source") else names
        if kind in ("conversation", "everything"):
            self._erase_conversations(space_key, kind, chosen)
            ids |= self._reviews.erase(space_key, chosen if kind == "conversation" else None)
        if kind == "speaker":
            self._traces.erase_unrecorded(space_key)
        if kind == "everything":
            self._session.run("DELETE FROM usage WHERE space_key = ?", (space_key,))
            self._session.run("DELETE FROM job WHERE space_key = ?", (space_key,))
        self._erase_jobs(space_key, ids, conversation=chosen[0] if kind == "conversation" else None)
        self._erase_timeline(space_key, kind, ids | set(chosen))

    def _erase_messages(self, tenant: str, space: str, kind: str, chosen: Sequence[str], names: Names) -> None:
        """Erases messages that reviews are to read, of this space's conversations and of those that write here."""
        space_key = self._entries.spaces.key(tenant, space)
        self._reviews.erase_sources(tenant, names.gone)
        self._reviews.erase_own_sources(tenant, space_key, space, names.own.get(space_key, set()))
        if kind == "speaker":
            self._reviews.erase_speaker(tenant, space_key, space, chosen[0])
        if kind in ("conversation", "everything"):
            self._reviews.erase_written(tenant, space, chosen[0] if chosen else None)

    def _erase_conversations(self, space_key: int, kind: str, chosen: Sequence[str]) -> None:
        named, value = self._session.among("id", chosen)
        keys = self._session.rows(
            f"SELECT key FROM conversation WHERE space_key = ? AND ({named} OR ? = 'everything')",
            (space_key, value, kind),
        )
        self._session.run_many(_SQL["keep_hashes"], [(space_key, key) for (key,) in keys])
        for table in ("turn", "block", "block_ref", "carried", "standing", "standing_ref", "recall"):
            self._session.run_many(f"DELETE FROM {table} WHERE conversation_key = ?", keys)
        self._session.run_many("DELETE FROM conversation WHERE key = ?", keys)
        self._entries.active_conversations.clear()

    def _erase_jobs(self, space_key: int, ids: Set[str], *, conversation: str | None = None) -> None:
        rows = self._session.rows("SELECT id, payload FROM job WHERE space_key = ?", (space_key,))
        named = [
            (job_id,) for job_id, payload in rows if job_id in ids or _is_about(json.loads(payload), ids, conversation)
        ]
        self._session.run_many("DELETE FROM job WHERE id = ?", named)
        # An error message may quote the text.
        self._session.run("UPDATE job SET error = '' WHERE space_key = ? AND error <> ''", (space_key,))

    def _erase_timeline(self, space_key: int, kind: str, words: Set[str]) -> None:
        if self._sealer is not None and kind != "everything":
            rows = self._open_timeline(self._sealer, space_key)
        else:
            rows = self._session.rows("SELECT seq, conversation, data FROM timeline WHERE space_key = ?", (space_key,))
        named = [
            (space_key, seq)
            for seq, conversation, data in rows
            if kind == "everything" or (kind == "conversation" and conversation in words) or _mentions(data, words)
        ]
        self._session.run_many("DELETE FROM timeline WHERE space_key = ? AND seq = ?", named)

    def _open_timeline(self, sealer: Sealer, space_key: int) -> list[Row]:
        """(seq, conversation, data) of the space's events. Those that cannot be opened are deleted."""
        cipher = sealer.readable_of(space_key)
        if cipher is None:
            self._session.run("DELETE FROM timeline WHERE space_key = ?", (space_key,))
            return []
        rows = self._session.rows(
            "SELECT t.seq, t.name, t.at, s.tenant, s.name, t.conversation, t.turn, t.data FROM timeline AS t "
            "JOIN space AS s ON s.key = t.space_key WHERE t.space_key = ?",
            (space_key,),
        )
        found: list[Row] = []
        for seq, *row in rows:
            try:
                found.append((seq, row[4], encode_metadata(open_event(sealer, read_event(row)).data)))
            except StoreCorrupt:
                self._session.run("DELETE FROM timeline WHERE space_key = ? AND seq = ?", (space_key, seq))
        return found


_NAMING = (("source", "source", "entry", "entry_key"), ("block_ref", "ref", "conversation", "conversation_key"))


def _selected(selector: Selector) -> tuple[str, tuple[str, ...]]:
    """The kind of the selector and its values: several for memories, none for everything."""
    options: list[tuple[str, tuple[str, ...]]] = [
        (kind, (value,))
        for kind in ("memory", "conversation", "source", "speaker")
        if (value := getattr(selector, kind)) is not None
    ]
    options += [("memory", selector.memories)] if selector.memories else []
    options += [("everything", ())] if selector.everything else []
    if len(options) != 1:
        raise InvalidInput("Pass exactly one of memory, conversation, source, speaker or everything.")
    return options[0]


def _by_space(doomed: Doomed) -> dict[int, list[int]]:
    by_space: defaultdict[int, list[int]] = defaultdict(list)
    for key, version in doomed.items():
        by_space[version.space_key].append(key)
    return by_space


def _is_about(payload: Any, ids: Set[str], conversation: str | None) -> bool:
    """Whether a job names one of the ids, or this conversation, as a whole string."""
    if isinstance(payload, dict):
        named = payload.get("conversation")
        rest = [item for key, item in payload.items() if key != "conversation"]
        return (named is not None and named == conversation) or _is_about(rest, ids, conversation)
    if isinstance(payload, list):
        return any(_is_about(item, ids, conversation) for item in payload)
    return isinstance(payload, str) and payload in ids


def _mentions(payload: str, words: Set[str]) -> bool:
    """Whether a JSON text has one of the words: as a whole string, or as an element of a list in a string."""
    texts = _strings(json.loads(payload))
    return any(text in words or not words.isdisjoint(text.translate(_SEPARATORS).split()) for text in texts)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
