"""Conversations: turns, blocks, the carried recall, the standing block, recalls, and the count of forgets."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import fields, replace
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from afterturn.stores.sql.entries import REFERENCE, Entries
from afterturn.stores.sql.records import finding_position, read_position
from afterturn.stores.sql.sealing import Sealer, hidden, open_text, row_name, seal_text
from afterturn.stores.sql.session import Row, Statement, Value, load_queries, values_clause
from afterturn.types import RecallRow, Showing, StandingRow, StoredTurn, TurnRow
from afterturn.types.conversations import Outcome, Phase, RecallCause, Taint, TurnStatus
from afterturn.types.entries import ConversationKey, Scope, reference
from afterturn.types.rows import BlockRow, Candidate, CarriedRow, ConversationSnapshot, ConversationState, Decision
from afterturn.types.searches import Lane

_SQL = load_queries(__file__)
FIND_CONVERSATION = _SQL["find_conversation"]
_TURNS = _SQL["turns"]


class ActiveConversation(NamedTuple):
    """The keys of a conversation and its space, and the results of further statements."""

    key: int
    space_key: int
    results: list[list[Row]]


_OF_CONVERSATION = f"conversation_key = ({FIND_CONVERSATION})"


class ConversationKeys:
    """The keys of conversations, by tenant, owning space and id."""

    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._spaces = entries.spaces
        self._active = entries.active_conversations

    def find(self, key: ConversationKey) -> int | None:
        row = self._session.row(FIND_CONVERSATION, _place(key))
        return None if row is None else int(row[0])

    def activate(self, key: ConversationKey, at: float, *then: Statement) -> ActiveConversation:
        """Sets its activity to `at`, and runs the statements that follow. Creates it if it is new."""
        statement = _activating(key, at)
        found, *results = self._session.batch(statement, *then)
        if not found:
            self._spaces.key(key.tenant, key.space)
            found, *results = self._session.batch(statement, *then)
        conversation, space_key = found[0]
        self._active[key] = at
        self._spaces.note(key.tenant, key.space, space_key)
        return ActiveConversation(conversation, space_key, results)

    def active(self, key: ConversationKey, at: float) -> int:
        return self.activate(key, at).key

    def activate_later(self, key: ConversationKey, at: float) -> None:
        """As `activate`, unless this unit has done it already, for statements that find the key by themselves."""
        if at > self._active.get(key, -math.inf):
            self._spaces.ensure(key.tenant, key.space)
            self._session.later(*_activating(key, at))
            self._active[key] = at

    def touch(self, key: ConversationKey, conversation: int, at: float, *, turns: int = 0) -> None:
        """Sets its activity to `at`, and counts recorded turns."""
        self._session.later(
            "UPDATE conversation SET active_at = CASE WHEN active_at < ? THEN ? ELSE active_at END, "
            "turns = turns + ? WHERE key = ?",
            (at, at, turns, conversation),
        )
        self._active[key] = at


def _activating(key: ConversationKey, at: float) -> Statement:
    return _SQL["activate"], (key.id, at, at, key.tenant, key.space)


def _place(key: ConversationKey) -> tuple[str, str, str]:
    """The values for `FIND_CONVERSATION`."""
    return key.tenant, key.space, key.id


class LiveRefs:
    """Finds which versions still exist, so that a late write does not bring back forgotten ones."""

    def __init__(self, entries: Entries) -> None:
        self._session = entries.session

    def live(self, tenant: str, space: str, refs: Collection[str]) -> set[str]:
        """Those of `refs` that the space has, with any status."""
        if not refs:
            return set()
        return {reference(*row) for row in self._session.rows(*self.reading(tenant, space, refs))} & set(refs)

    def reading(self, tenant: str, space: str, refs: Collection[str]) -> Statement:
        """Reads id and version of all versions of the memories in `refs`."""
        condition, value = self._session.among("id", _ids(refs))
        space_key = "(SELECT key FROM space WHERE tenant = ? AND name = ?)"
        sql = f"SELECT id, version FROM entry WHERE space_key = {space_key} AND {condition}"
        return sql, (tenant, space, value)

    def live_ids(self, tenant: str, ids: Collection[str]) -> set[str]:
        """Those of `ids` that one of the tenant's spaces has."""
        if not ids:
            return set()
        condition, value = self._session.among("e.id", sorted(ids))
        rows = self._session.rows(
            f"SELECT DISTINCT e.id FROM entry AS e WHERE e.tenant = ? AND {condition}", (tenant, value)
        )
        return {entry_id for (entry_id,) in rows}

    def all_live(self, tenant: str, refs: Collection[str]) -> bool:
        """Whether the tenant's spaces have all of `refs`."""
        condition, value = self._session.among("e.id", _ids(refs))
        rows = self._session.rows(
            f"SELECT e.id, e.version FROM entry AS e WHERE e.tenant = ? AND {condition}", (tenant, value)
        )
        return set(refs) <= {reference(*row) for row in rows}


def _ids(refs: Collection[str]) -> list[str]:
    return sorted({ref.partition(".")[0] for ref in refs})


def finding_forgets(tenant: str) -> Statement:
    """The statement that finds the number of the tenant's newest forget, for `read_forgets`."""
    return "SELECT forgets FROM tenant WHERE name = ?", (tenant,)


def read_forgets(rows: Sequence[Row]) -> int:
    return int(rows[0][0]) if rows else 0


class Tombstones:
    """The forgets of each tenant, counted: they keep a turn that began earlier from writing back what was forgotten.

    Names are stored as hashes, so a tombstone does not reveal what was forgotten.
    """

    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._newest = entries.newest_forgets

    def newest(self, tenant: str) -> int:
        if tenant not in self._newest:
            self._newest[tenant] = read_forgets(self._session.rows(*finding_forgets(tenant)))
        return self._newest[tenant]

    def count(self, tenant: str) -> int:
        """Returns the number of a new forget."""
        row = self._session.row(
            "INSERT INTO tenant (name, forgets) VALUES (?, 1) "
            "ON CONFLICT (name) DO UPDATE SET forgets = tenant.forgets + 1 RETURNING forgets",
            (tenant,),
        )
        assert row is not None
        self._newest[tenant] = int(row[0])
        return self._newest[tenant]

    def add(self, space_key: int, kind: str, name: str, *, number: int, at: float) -> None:
        self._session.run(
            "INSERT INTO tombstone (space_key, kind, hash, seq, at) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (space_key, kind, hash) DO UPDATE SET seq = excluded.seq, at = excluded.at",
            (space_key, kind, _hash(kind, name), number, at),
        )

    def covering(self, scope: Scope, *, conversation: str, speakers: Iterable[str], since: int) -> Statement:
        """Reads a row if a forget after number `since` covered the conversation, a speaker, or one of the spaces."""
        hashes = [_hash("everything", ""), _hash("conversation", conversation)]
        hashes += [_hash("speaker", speaker) for speaker in speakers]
        condition, value = self._session.among("hash", hashes)
        named, names = self._session.among("name", scope.spaces)
        sql = (
            f"SELECT 1 FROM tombstone WHERE space_key IN (SELECT key FROM space WHERE tenant = ? AND {named}) "
            f"AND seq > ? AND {condition} LIMIT 1"
        )
        return sql, (scope.tenant, names, since, value)


def _hash(kind: str, name: str) -> str:
    return hashlib.blake2b(f"{kind}\0{name}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


# Recalls as rows: fields that are queried have columns, the rest is JSON

RECALL_COLUMNS = ("correlation", "phase", "turn", "delivered_in", "asked_at")
"""The fields of a recall row that have columns of their own."""
_candidate_values = attrgetter(*(item.name for item in fields(Candidate)))
_TUPLES = ("reads", "missing", "excluded", "visible", "terms")


class CandidateRows:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._live_refs = LiveRefs(entries)

    def live(self, tenant: str, *several: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
        """Each sequence without its forgotten candidates."""
        statements = self.reading(tenant, *several)
        return self.chosen(self._session.batch(*statements.values()) if statements else [], statements, *several)

    def reading(self, tenant: str, *several: Sequence[Candidate]) -> dict[str, Statement]:
        """By space, what reads which of the candidates are live."""
        named: dict[str, set[str]] = {}
        for candidate in chain.from_iterable(several):
            named.setdefault(candidate.space, set()).add(candidate.ref)
        return {space: self._live_refs.reading(tenant, space, refs) for space, refs in named.items()}

    def chosen(
        self, results: Sequence[Sequence[Row]], spaces: Iterable[str], *several: Sequence[Candidate]
    ) -> list[tuple[Candidate, ...]]:
        """The live ones, by the results of `reading`."""
        live = {space: {reference(*row) for row in rows} for space, rows in zip(spaces, results, strict=True)}
        return [
            tuple(candidate for candidate in candidates if candidate.ref in live[candidate.space])
            for candidates in several
        ]


def names_of(candidates: Iterable[Candidate], others: Iterable[str] = ()) -> str:
    return _joined((*(candidate.ref for candidate in candidates), *others))


def decode_recall(row: Row) -> RecallRow:
    """Reads a row of `RECALL_COLUMNS` and the detail."""
    values = {**json.loads(row[-1]), **dict(zip(RECALL_COLUMNS, row[:-1], strict=True))}
    for name in _TUPLES:
        values[name] = tuple(values[name])
    values["candidates"] = _candidates(values["candidates"])
    values["cause"] = RecallCause(values["cause"])
    values["phase"] = Phase(values["phase"])
    values["outcome"] = Outcome(values["outcome"])
    return RecallRow(**values)


def detail_row(conversation: str, correlation: str, phase: str | None = None) -> str:
    """The name of a recall's row; without a phase, of a carried one's."""
    return row_name(conversation, correlation, *(() if phase is None else (phase,)))


def without(detail: str, space: str, refs: Set[str]) -> tuple[str, str]:
    """Names and detail of a recall or carried row, without these versions of that space."""
    values = json.loads(detail)
    values["candidates"] = [row for row in values["candidates"] if row[1] != space or row[0] not in refs]
    excluded = [ref for ref in values.get("excluded", ()) if ref not in refs]
    if "excluded" in values:
        values["excluded"] = excluded
    return _joined((*(row[0] for row in values["candidates"]), *excluded)), _written(values)


def _joined(refs: Iterable[str]) -> str:
    """References contain no blanks, so one text can list them."""
    return " ".join(dict.fromkeys(refs))


def _written(values: Mapping[str, Any]) -> str:
    # Escaped: a question may contain half of a surrogate pair, which could not be stored otherwise.
    return json.dumps(values, separators=(",", ":"))


def _encoded(row: RecallRow | CarriedRow, columns: Sequence[str]) -> str:
    detail = {item.name: getattr(row, item.name) for item in fields(row) if item.name not in columns}
    detail["candidates"] = [_candidate_row(candidate) for candidate in row.candidates]
    if isinstance(row, RecallRow):
        detail["settings"] = dict(row.settings)
    return _written(detail)


def _candidate_row(candidate: Candidate) -> tuple[Any, ...]:
    """Without the fields at the end that most candidates do not need: there are up to 128 in a recall."""
    values: tuple[Any, ...] = _candidate_values(candidate)
    return values if candidate.is_earlier or candidate.answer is not None else values[:-2]


def _candidates(rows: list[list[Any]]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(ref, space, Lane(lane), score, lexical, similarity, Decision(decision) if decision else None, *rest)
        for ref, space, lane, score, lexical, similarity, decision, *rest in rows
    )


# The blocks that were really injected into a conversation, by the hash of their bytes.

_SELECT_REFS = f"SELECT hash, ref FROM block_ref WHERE {_OF_CONVERSATION} ORDER BY hash, ordinal"
# A memory is shown in a block of a turn, or in a standing block as long as its conversation is active.
_SHOWING = (
    (
        "b.injected_at",
        "block_ref AS r JOIN block AS b ON b.conversation_key = r.conversation_key AND b.hash = r.hash",
    ),
    ("c.active_at", "standing_ref AS r"),
)


def _hash_column(key: ConversationKey) -> str:
    return row_name("block.hash", key.tenant, key.space)


def _open_block(sealer: Sealer, key: ConversationKey, block: BlockRow) -> BlockRow:
    found = sealer.store.reveal(_hash_column(key), block.hash)
    if not block.text and not block.anchor:
        return replace(block, hash=found)
    cipher, row = sealer.opener(key.tenant, key.space), row_name(key.id, found)
    return replace(
        block,
        hash=found,
        text=open_text(cipher, "block.text", row, block.text),
        anchor=open_text(cipher, "block.anchor", row, block.anchor),
    )


class BlockRows:
    """The blocks that were injected into conversations, by the hash of their bytes."""

    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._sealer = entries.sealer

    def add(self, key: ConversationKey, block: BlockRow) -> None:
        if self._sealer is not None:
            cipher, row = self._sealer.get(key.tenant, key.space), row_name(key.id, block.hash)
            block = replace(
                block,
                hash=self._sealer.store.hide(_hash_column(key), block.hash),
                text=seal_text(cipher, "block.text", row, block.text),
                anchor=seal_text(cipher, "block.anchor", row, block.anchor),
            )
        placed: list[Value] = [block.turn, block.injected_at, block.point, block.anchor]
        named: list[Value] = [*_place(key), block.hash]
        cleared: list[Value] = [*_place(key), block.injected_at]
        if block.refs:
            rows, values = values_clause(list(enumerate(block.refs)))
            self._session.later(_SQL["insert_refs"].format(rows=rows), [*values, *named, *named])
        self._session.later(_SQL["insert_block"], [*named, block.size_bytes, *placed, *cleared, int(block.in_sight)])
        if block.in_sight:
            self._session.later(_SQL["move_block"], [*placed, *named, *cleared])
        if block.text:
            refs = sorted(set(block.refs))
            ids, id_values = self._session.among("e.id", _ids(refs))
            versions, version_values = self._session.among(REFERENCE, refs)
            self._session.later(
                _SQL["set_block_text"].format(condition=f"{ids} AND {versions}"),
                [block.text, *named, key.tenant, id_values, version_values, len(refs)],
            )

    def known(self, key: ConversationKey, *, in_full: bool) -> list[BlockRow]:
        """The blocks of the space's forgotten conversations, then those of this one, oldest first.

        Unless `in_full`, hidden blocks have no text and references.
        """
        return self.read(key, self._session.batch(*self.reading(key, in_full=in_full)))

    def reading(self, key: ConversationKey, *, in_full: bool) -> list[Statement]:
        """The statements whose rows `read` takes."""
        return [
            (_SELECT_REFS if in_full else _SQL["select_visible_refs"], _place(key)),
            (_SQL["select_blocks"] if in_full else _SQL["select_visible_blocks"], _place(key)),
            (_SQL["select_spent"], (key.tenant, key.space)),
        ]

    def read(self, key: ConversationKey, results: Sequence[Sequence[Row]]) -> list[BlockRow]:
        ref_rows, own_rows, spent_rows = results
        refs: dict[str, list[str]] = {}
        for block_hash, ref in ref_rows:
            refs.setdefault(block_hash, []).append(ref)
        own = [
            BlockRow(
                hash=row[0],
                turn=row[1],
                refs=tuple(refs.get(row[0], ())),
                size_bytes=row[2],
                injected_at=row[3],
                point=row[4],
                anchor=row[5],
                text=row[6],
                in_sight=bool(row[7]),
            )
            for row in own_rows
        ]
        known = {block.hash for block in own}
        spent = [
            BlockRow(block_hash, "", (), size_bytes, 0.0, in_sight=False)
            for block_hash, size_bytes in spent_rows
            if block_hash not in known
        ]
        if self._sealer is None or not (spent or own):
            return spent + own
        spent = [_open_block(self._sealer, key, block) for block in spent]
        own = [_open_block(self._sealer, key, block) for block in own]
        # In the order of the hashes that are not sealed.
        return [
            *sorted(spent, key=lambda block: block.hash),
            *sorted(own, key=lambda block: (block.injected_at, block.hash)),
        ]

    def hide(self, key: ConversationKey, conversation: int, still: Collection[str]) -> None:
        """Marks all blocks as not in sight, except those whose hashes are in `still`."""
        if self._sealer is not None and still:
            still = hidden((self._sealer.store,), _hash_column(key), still)
        condition, value = self._session.among("hash", sorted(still))
        self._session.later(
            f"UPDATE block SET in_sight = 0 WHERE conversation_key = ? AND in_sight = 1 AND NOT ({condition})",
            (conversation, value),
        )

    def last_shown(self, tenant: str, refs: Collection[str]) -> dict[str, float]:
        condition, value = self._session.among("r.ref", sorted(refs))
        shown = " UNION ALL ".join(
            f"SELECT r.ref AS ref, {at} AS at FROM {naming} "
            "JOIN conversation AS c ON c.key = r.conversation_key JOIN space AS s ON s.key = c.space_key "
            f"WHERE {condition} AND s.tenant = ?"
            for at, naming in _SHOWING
        )
        rows = self._session.rows(
            f"SELECT ref, max(at) FROM ({shown}) AS shown GROUP BY ref", (value, tenant) * len(_SHOWING)
        )
        return dict(rows)

    def showings(self, tenant: str, refs: Collection[str], *, limit: int) -> list[Showing]:
        condition, value = self._session.among("r.ref", sorted(refs))
        rows = self._session.rows(
            f"SELECT r.ref, s.name, c.id, b.turn, b.injected_at FROM {_SHOWING[0][1]} "
            "JOIN conversation AS c ON c.key = r.conversation_key JOIN space AS s ON s.key = c.space_key "
            f"WHERE {condition} AND s.tenant = ? ORDER BY b.injected_at DESC, b.turn, r.ref LIMIT ?",
            (value, tenant, limit),
        )
        return [Showing(*row) for row in rows]


class CarriedRows:
    """A recall that finished too late for its turn, for the conversation's next turn."""

    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._sealer = entries.sealer
        self._candidates = CandidateRows(entries)

    def put(self, key: ConversationKey, conversation: int, carried: CarriedRow) -> None:
        (live,) = self._candidates.live(key.tenant, carried.candidates)
        kept = replace(carried, candidates=live)
        names, detail = names_of(kept.candidates), _encoded(kept, ("correlation", "turn"))
        if self._sealer is not None:
            cipher = self._sealer.get(key.tenant, key.space)
            detail = cipher.seal("carried.detail", detail_row(key.id, kept.correlation), detail)
        self._session.later(_SQL["put_carried"], (conversation, kept.correlation, kept.turn, names, detail))

    def reading(self, key: ConversationKey) -> Statement:
        return f"SELECT correlation, turn, detail FROM carried WHERE {_OF_CONVERSATION}", _place(key)

    def read(self, key: ConversationKey, rows: Sequence[Row]) -> CarriedRow | None:
        """Candidates are checked again, because a forget in another space does not change this row."""
        if not rows:
            return None
        correlation, turn, detail = rows[0]
        if self._sealer is not None:
            cipher = self._sealer.opener(key.tenant, key.space)
            detail = cipher.open("carried.detail", detail_row(key.id, correlation), detail)
        values = json.loads(detail)
        values["phases"] = tuple(Phase(phase) for phase in values["phases"])
        values["candidates"] = _candidates(values["candidates"])
        values["cause"] = RecallCause(values["cause"])
        values["refined"], values["speakers"] = tuple(values["refined"]), tuple(values["speakers"])
        carried = CarriedRow(correlation=correlation, turn=turn, **values)
        (live,) = self._candidates.live(key.tenant, carried.candidates)
        return replace(carried, candidates=live) if live else None

    def drop(self, conversation: int, correlation: str) -> bool:
        dropped = self._session.run(
            "DELETE FROM carried WHERE conversation_key = ? AND correlation = ?", (conversation, correlation)
        )
        return dropped == 1

    def clear(self, conversation: int) -> None:
        self._session.later("DELETE FROM carried WHERE conversation_key = ?", (conversation,))


class StandingRows:
    """The standing block of a conversation, with the versions of memories in it."""

    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._sealer = entries.sealer
        self._live_refs = LiveRefs(entries)

    def put(self, key: ConversationKey, conversation: int, standing: StandingRow) -> None:
        """Replaces it. A block that shows a forgotten memory is not stored, and will be built again."""
        self.clear(conversation)
        if not self._live_refs.all_live(key.tenant, standing.refs):
            return
        text = standing.text
        if self._sealer is not None:
            text = seal_text(self._sealer.get(key.tenant, key.space), "standing.text", row_name(key.id), text)
        self._session.later(
            "INSERT INTO standing (conversation_key, made_at, text) VALUES (?, ?, ?)",
            (conversation, standing.made_at, text),
        )
        self._session.run_many(
            "INSERT INTO standing_ref (conversation_key, ordinal, ref) VALUES (?, ?, ?)",
            [(conversation, ordinal, ref) for ordinal, ref in enumerate(standing.refs)],
        )

    def reading(self, key: ConversationKey) -> tuple[Statement, Statement]:
        return (
            (f"SELECT text, made_at FROM standing WHERE {_OF_CONVERSATION}", _place(key)),
            (f"SELECT ref FROM standing_ref WHERE {_OF_CONVERSATION} ORDER BY ordinal", _place(key)),
        )

    def read(self, key: ConversationKey, rows: Sequence[Row], refs: Sequence[Row]) -> StandingRow | None:
        if not rows:
            return None
        text, made_at = rows[0]
        if self._sealer is not None:
            text = open_text(self._sealer.opener(key.tenant, key.space), "standing.text", row_name(key.id), text)
        return StandingRow(text, tuple(ref for (ref,) in refs), made_at)

    def clear(self, conversation: int) -> None:
        for table in ("standing", "standing_ref"):
            self._session.later(f"DELETE FROM {table} WHERE conversation_key = ?", (conversation,))


_TAINTED = f"SELECT 1 FROM turn WHERE {_OF_CONVERSATION} AND (taint <> '' OR status = 'abandoned') LIMIT 1"


class SqlConversations:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._keys = ConversationKeys(entries)
        self._find, self._active = self._keys.find, self._keys.active
        self._blocks = BlockRows(entries)
        self._carried = CarriedRows(entries)
        self._standing = StandingRows(entries)
        self._tombstones = Tombstones(entries)
        self._sealer = entries.sealer

    def start_turn(self, key: ConversationKey, turn: TurnRow) -> bool:
        (started,) = self._keys.activate(key, turn.started_at, self._starting(key, turn)).results
        return bool(started)

    def find_turn(self, key: ConversationKey, turn_id: str) -> TurnRow | None:
        row = self._session.row(f"{_TURNS} AND id = ?", (key.tenant, key.space, key.id, turn_id))
        return None if row is None else self._turn(key, row)

    def turns(self, key: ConversationKey) -> list[TurnRow]:
        rows = self._session.rows(f"{_TURNS} ORDER BY started_at, id", _place(key))
        return [self._turn(key, row) for row in rows]

    def end_turn(
        self,
        key: ConversationKey,
        turn_id: str,
        *,
        status: TurnStatus,
        at: float,
        recorded: bool,
        taint: Taint | None = None,
        start: TurnRow | None = None,
    ) -> bool:
        still = "recorded_at IS NULL" if recorded else "status = 'open'"
        ending: Statement = (
            "UPDATE turn SET status = ?, ended_at = ?, recorded_at = ?, taint = COALESCE(?, taint) "
            f"WHERE {_OF_CONVERSATION} AND id = ? AND {still} RETURNING conversation_key",
            (status.value, at, at if recorded else None, taint, *_place(key), turn_id),
        )
        if start is None:
            ended = self._session.rows(*ending)
        else:
            _, ended = self._keys.activate(key, start.started_at, self._starting(key, start), ending).results
        if ended:
            self._keys.touch(key, ended[0][0], at, turns=int(recorded))
        return recorded and bool(ended)

    def taint_turn(self, key: ConversationKey, turn_id: str, taint: Taint) -> None:
        self._session.later(
            f"UPDATE turn SET taint = ? WHERE conversation_key = ({FIND_CONVERSATION}) "
            "AND id = ? AND status = 'open' AND taint = ''",
            (taint.value, key.tenant, key.space, key.id, turn_id),
        )

    def is_tainted(self, key: ConversationKey) -> bool:
        return self._session.row(_TAINTED, _place(key)) is not None

    def touch_turn(self, key: ConversationKey, turn_id: str, *, at: float) -> None:
        self._session.later(
            "UPDATE turn SET touched_at = ? "
            f"WHERE conversation_key = ({FIND_CONVERSATION}) AND id = ? AND status = 'open'",
            (at, key.tenant, key.space, key.id, turn_id),
        )

    def abandon_turns(self, tenant: str, *, idle_since: float, at: float) -> int:
        return self._session.run(
            "UPDATE turn SET status = 'abandoned', ended_at = ? "
            "WHERE tenant = ? AND status = 'open' AND touched_at < ?",
            (at, tenant, idle_since),
        )

    def add_block(self, key: ConversationKey, block: BlockRow) -> None:
        self._keys.activate_later(key, block.injected_at)
        self._blocks.add(key, block)

    def blocks(self, key: ConversationKey) -> list[BlockRow]:
        return self._blocks.known(key, in_full=True)

    def known_blocks(self, key: ConversationKey) -> list[BlockRow]:
        return self._blocks.known(key, in_full=False)

    def last_shown(self, tenant: str, refs: Collection[str]) -> dict[str, float]:
        return self._blocks.last_shown(tenant, refs)

    def showings(self, tenant: str, refs: Collection[str], *, limit: int) -> list[Showing]:
        return self._blocks.showings(tenant, refs, limit=limit)

    def state(self, key: ConversationKey) -> ConversationState:
        return _state(self._session.rows(_SQL["state"], _place(key)))

    def read(self, key: ConversationKey) -> ConversationSnapshot:
        *blocks, state, carried, forgets, standing, refs = self._session.batch(
            *self._blocks.reading(key, in_full=False),
            (_SQL["state"], _place(key)),
            self._carried.reading(key),
            finding_forgets(key.tenant),
            *self._standing.reading(key),
        )
        return ConversationSnapshot(
            tuple(self._blocks.read(key, blocks)),
            _state(state),
            self._carried.read(key, carried),
            read_forgets(forgets),
            self._standing.read(key, standing, refs),
        )

    def read_turn(
        self, key: ConversationKey, turn_id: str, *, writes: str, speakers: Iterable[str], since: int
    ) -> StoredTurn:
        spaces = Scope(key.tenant, tuple(dict.fromkeys((key.space, writes))))
        covered, turns, tainted, state, forgets, position = self._session.batch(
            self._tombstones.covering(spaces, conversation=key.id, speakers=speakers, since=since),
            (f"{_TURNS} AND id = ?", (*_place(key), turn_id)),
            (_TAINTED, _place(key)),
            (_SQL["state"], _place(key)),
            finding_forgets(key.tenant),
            finding_position(key.tenant, writes, key.id, owner=key.space),
        )
        found = self._turn(key, turns[0]) if turns else None
        return StoredTurn(
            found,
            _state(state),
            read_forgets(forgets),
            any_tainted=bool(tainted),
            is_forgotten=bool(covered),
            next_position=read_position(position),
        )

    def set_incognito(self, key: ConversationKey, *, on: bool, at: float) -> None:
        conversation = self._active(key, at)
        self._session.later("UPDATE conversation SET incognito = ? WHERE key = ?", (int(on), conversation))

    def mark_incognito(self, key: ConversationKey, turn_id: str) -> None:
        self._session.later(
            f"UPDATE turn SET incognito = 1, user_hash = '' WHERE conversation_key = ({FIND_CONVERSATION}) AND id = ?",
            (key.tenant, key.space, key.id, turn_id),
        )

    def clear(self, key: ConversationKey, *, at: float, compacted: bool, still: Collection[str] = ()) -> None:
        conversation = self._active(key, at)
        self._session.later(
            "UPDATE conversation SET cleared_at = ? WHERE key = ? AND (cleared_at IS NULL OR cleared_at < ?)",
            (at, conversation, at),
        )
        if compacted:
            self._session.later(
                "UPDATE conversation SET compactions = compactions + 1, compacted_at = ? WHERE key = ?",
                (at, conversation),
            )
        self._blocks.hide(key, conversation, still)
        self._carried.clear(conversation)

    def carry(self, key: ConversationKey, carried: CarriedRow) -> None:
        self._carried.put(key, self._active(key, carried.settled_at), carried)

    def drop_carried(self, key: ConversationKey, correlation: str) -> bool:
        found = self._find(key)
        return found is not None and self._carried.drop(found, correlation)

    def find_standing(self, key: ConversationKey) -> StandingRow | None:
        return self._standing.read(key, *self._session.batch(*self._standing.reading(key)))

    def put_standing(self, key: ConversationKey, standing: StandingRow | None) -> None:
        if standing is not None:
            self._standing.put(key, self._active(key, standing.made_at), standing)
        elif (found := self._find(key)) is not None:
            self._standing.clear(found)

    def forgets(self, tenant: str) -> int:
        return self._tombstones.newest(tenant)

    def is_forgotten(self, tenant: str, space: str, *, conversation: str, speakers: Iterable[str], since: int) -> bool:
        covering = self._tombstones.covering(
            Scope(tenant, (space,)), conversation=conversation, speakers=speakers, since=since
        )
        return bool(self._session.rows(*covering))

    def page(self, tenant: str, space: str, *, limit: int, before: str | None = None) -> list[str]:
        after, values = ("", [tenant, space]) if before is None else (_SQL["before"], [tenant, space, before])
        rows = self._session.rows(
            "SELECT c.id FROM conversation AS c JOIN space AS s ON s.key = c.space_key "
            f"WHERE s.tenant = ? AND s.name = ? {after} ORDER BY c.active_at DESC, c.key DESC LIMIT ?",
            [*values, limit],
        )
        return [conversation for (conversation,) in rows]

    def _starting(self, key: ConversationKey, turn: TurnRow) -> Statement:
        user_hash = turn.user_hash
        if self._sealer is not None:
            cipher, row = self._sealer.get(key.tenant, key.space), row_name(key.id, turn.id)
            user_hash = seal_text(cipher, "turn.user_hash", row, user_hash)
        values: list[Value] = [turn.id, turn.status.value, turn.started_at, turn.started_at, user_hash, turn.ended_at]
        values += [turn.recorded_at, turn.taint or "", int(turn.incognito), *_place(key)]
        return _SQL["start_turn"], values

    def _turn(self, key: ConversationKey, row: Row) -> TurnRow:
        turn_id, status, started_at, user_hash, ended_at, recorded_at, taint, incognito = row
        if self._sealer is not None and user_hash:
            cipher = self._sealer.opener(key.tenant, key.space)
            user_hash = cipher.open("turn.user_hash", row_name(key.id, turn_id), user_hash)
        found = Taint(taint) if taint else None
        return TurnRow(
            turn_id, TurnStatus(status), started_at, user_hash, ended_at, recorded_at, found, incognito=bool(incognito)
        )


def _state(rows: Sequence[Row]) -> ConversationState:
    if not rows:
        return ConversationState()
    turns, compactions, compacted_at, incognito, had_incognito = rows[0]
    return ConversationState(turns, compactions, compacted_at, bool(incognito), bool(had_incognito))


# The results of recalls, a limited number in each space.


class SqlRecalls:
    def __init__(self, entries: Entries) -> None:
        self._session = entries.session
        self._sealer = entries.sealer
        self._keys = ConversationKeys(entries)
        self._candidates = CandidateRows(entries)

    def add(self, key: ConversationKey, recall: RecallRow, *, entries_max: int) -> None:
        reading = self._candidates.reading(key.tenant, recall.candidates)
        conversation, space_key, results = self._keys.activate(key, recall.asked_at, *reading.values())
        (live,) = self._candidates.chosen(results, reading, recall.candidates)
        kept = replace(recall, candidates=live)
        detail = _encoded(kept, RECALL_COLUMNS)
        if self._sealer is not None:
            row = detail_row(key.id, kept.correlation, kept.phase.value)
            detail = self._sealer.get(key.tenant, key.space).seal("recall.detail", row, detail)
        values: list[Value] = [
            space_key,
            conversation,
            kept.correlation,
            kept.phase.value,
            kept.turn,
            kept.delivered_in,
            kept.asked_at,
            names_of(kept.candidates, kept.excluded),
            detail,
        ]
        self._session.later(_SQL["put_recall"], values)
        self._session.later(_SQL["trim_recalls"], (space_key, space_key, entries_max))

    def page(self, key: ConversationKey, *, turn: str | None = None, limit: int = 1000) -> list[RecallRow]:
        conversation = self._keys.find(key)
        if conversation is None:
            return []
        values: list[Value] = [conversation]
        within = ""
        if turn is not None:
            within = "AND (turn = ? OR delivered_in = ?)"
            values += [turn, turn]
        rows = self._session.rows(
            f"SELECT {', '.join(RECALL_COLUMNS)}, detail FROM recall "
            f"WHERE conversation_key = ? {within} ORDER BY asked_at DESC, key DESC LIMIT ?",
            [*values, limit],
        )
        if self._sealer is not None and rows:
            cipher = self._sealer.opener(key.tenant, key.space)
            rows = [
                (*row[:-1], cipher.open("recall.detail", detail_row(key.id, row[0], row[1]), row[-1])) for row in rows
            ]
        recalls = [decode_recall(row) for row in reversed(rows)]
        live = self._candidates.live(key.tenant, *(recall.candidates for recall in recalls))
        return [replace(recall, candidates=left) for recall, left in zip(recalls, live, strict=True)]
