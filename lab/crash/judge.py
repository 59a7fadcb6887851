"""Checks a store after a crash: its content, and whether its tables agree."""

from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import apsw

from afterturn.errors import StoreCorrupt
from afterturn.stores.sqlite.session import ApswSession, FtsText
from afterturn.types import Status
from lab.crash.plan import ExpectedEntry, State

_CONTRADICTIONS = {
    "active without index entry": "SELECT key FROM entry WHERE status = 'active' EXCEPT SELECT rowid FROM entry_terms",
    "index entry without active entry": (
        "SELECT rowid FROM entry_terms EXCEPT SELECT key FROM entry WHERE status = 'active'"
    ),
    "entry without change row": "SELECT key FROM entry WHERE key NOT IN (SELECT entry_key FROM change)",
    "entry that no operation made": (
        "SELECT key FROM entry WHERE key NOT IN (SELECT entry_key FROM step WHERE before IS NULL)"
    ),
    "step without entry": "SELECT entry_key FROM step WHERE entry_key NOT IN (SELECT key FROM entry)",
    "step without operation": "SELECT operation_seq FROM step WHERE operation_seq NOT IN (SELECT seq FROM operation)",
    "operation without step": "SELECT id FROM operation WHERE seq NOT IN (SELECT operation_seq FROM step)",
    "newest change is not the space's": (
        "SELECT name FROM space WHERE seq <> coalesce((SELECT max(seq) FROM change WHERE space_key = space.key), 0)"
    ),
    "count of documents": (
        "SELECT name FROM space WHERE documents <> "
        "(SELECT count(*) FROM entry WHERE space_key = space.key AND status = 'active')"
    ),
    "two active versions": "SELECT id FROM entry WHERE status = 'active' GROUP BY space_key, id HAVING count(*) > 1",
    "record of a turn that is not recorded": (
        "SELECT id FROM entry WHERE kind = 'record' AND turn NOT IN (SELECT id FROM turn WHERE recorded_at IS NOT NULL)"
    ),
    "recorded turn without its records": (
        "SELECT id FROM turn WHERE recorded_at IS NOT NULL AND "
        "(SELECT count(*) FROM entry WHERE entry.turn = turn.id AND kind = 'record') <> 2"
    ),
    "count of recorded turns": (
        "SELECT id FROM conversation WHERE turns <> (SELECT count(*) FROM turn "
        "WHERE conversation_key = conversation.key AND recorded_at IS NOT NULL)"
    ),
    "block's reference without block": (
        "SELECT ref FROM block_ref AS r "
        "WHERE NOT EXISTS (SELECT 1 FROM block WHERE conversation_key = r.conversation_key AND hash = r.hash)"
    ),
    **{
        f"{table} without conversation": (
            f"SELECT conversation_key FROM {table} WHERE conversation_key NOT IN (SELECT key FROM conversation)"
        )
        for table in ("turn", "block", "carried", "standing", "standing_ref", "recall")
    },
}


def look_at(path: Path) -> tuple[dict[str, State], list[str]]:
    """The state of each space, and all contradictions. The store must not be open anywhere."""
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        session = ApswSession(connection)
        return _states(session), [*_damage(session), *_contradictions(session), *_wrong_figures(session)]


def _states(session: ApswSession) -> dict[str, State]:
    newest = session.rows(
        "SELECT name, version, status, kind, text FROM entry AS e JOIN space AS s ON s.key = e.space_key "
        "WHERE version = (SELECT max(version) FROM entry WHERE space_key = e.space_key AND id = e.id) ORDER BY e.key"
    )
    states: defaultdict[str, dict[str, ExpectedEntry]] = defaultdict(dict)
    for space, version, status, kind, text in newest:
        label = text.split(" ", 1)[0]
        earlier = states[space][label].texts if label in states[space] else ()
        states[space][label] = ExpectedEntry(version, Status(status), (*earlier, text), is_record=kind == "record")
    return dict(states)


def _damage(session: ApswSession) -> list[str]:
    said = [f"integrity: {row[0]}" for row in session.rows("PRAGMA integrity_check") if row[0] != "ok"]
    try:
        # FTS5 compares its index with its content and raises if they differ.
        session.rows("INSERT INTO entry_terms (entry_terms) VALUES ('integrity-check')")
    except StoreCorrupt as error:
        said.append(f"integrity of the index: {error}")
    return said


def _contradictions(session: ApswSession) -> list[str]:
    return [f"{name}: {row[0]}" for name, sql in _CONTRADICTIONS.items() for row in session.rows(sql)]


def _wrong_figures(session: ApswSession) -> list[str]:
    text = FtsText(session)
    counted: Counter[tuple[int, str]] = Counter()
    totals: Counter[int] = Counter()
    for space_key, stored in session.rows(
        "SELECT space_key, terms FROM entry_terms AS t JOIN entry AS e ON e.key = t.rowid"
    ):
        found = text.terms(stored)
        counted.update((space_key, term) for term in set(found))
        totals[space_key] += len(found)
    kept = {(row[0], row[1]): row[2] for row in session.rows("SELECT space_key, term, documents FROM frequency")}
    wrong = [f"frequency of {key}" for key in kept.keys() | counted.keys() if kept.get(key, 0) != counted[key]]
    sums = session.rows("SELECT key, terms_total FROM space")
    return wrong + [f"terms of space {key}" for key, total in sums if total != totals[key]]
