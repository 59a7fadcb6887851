"""The history of a store. Undo changes statuses; it never rewrites a text."""

from collections.abc import Mapping

from afterturn.errors import Conflict, NotFound
from afterturn.stores.sql.entries import Conditions, Entries
from afterturn.stores.sql.forget import Eraser
from afterturn.stores.sql.sealing import open_entry_text
from afterturn.stores.sql.session import Row, load_queries
from afterturn.types import Erased, LoggedOperation, Operation, Origin, Scope, Selector, Status, Step, Verb

_OPERATION = "o.id, s.tenant, s.name, o.verb, o.actor, o.at, o.grp"
_SQL = load_queries(__file__)
_STEPS = _SQL["steps"]
_RIVAL = _SQL["rival"]
# By status: the versions, of the same id or with the same text, that cannot have it at the same time. The status is
# in each alternative, so that SQLite uses an index for both.
_SAME_WORDS = (
    "(r.kind = 'statement' AND e.kind = 'statement' AND r.target = e.target "
    "AND coalesce(r.agent, '') = coalesce(e.agent, '') AND coalesce(r.project, '') = coalesce(e.project, '') "
    "AND r.content_hash = e.content_hash)"
)
_ONE_WAITS = "(r.id = e.id AND r.status IN ('proposed', 'withdrawal'))"
_RIVALRY = {
    Status.ACTIVE: f"((r.status = 'active' AND r.id = e.id) OR (r.status = 'active' AND {_SAME_WORDS}))",
    Status.PROPOSED: f"({_ONE_WAITS} OR (r.status = 'proposed' AND {_SAME_WORDS}))",
    Status.WITHDRAWAL: _ONE_WAITS,
}


class SqlOperations:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._session = entries.session
        self._eraser = Eraser(entries)

    def page(
        self, scope: Scope, *, limit: int, entry_id: str | None = None, before: str | None = None
    ) -> list[Operation]:
        self._entries.flush()
        where = Conditions(self._entries, scope)
        if entry_id is not None:
            where.add(
                "o.seq IN (SELECT p.operation_seq FROM step AS p JOIN entry AS e ON e.key = p.entry_key "
                "WHERE e.id = ? AND e.space_key = s.key)",
                entry_id,
            )
        if before is not None:
            where.add("o.seq < (SELECT seq FROM operation WHERE id = ?)", before)
        rows = self._session.rows(
            f"SELECT {_OPERATION} FROM operation AS o JOIN space AS s ON s.key = o.space_key WHERE {where.sql} "
            "ORDER BY o.seq DESC LIMIT ?",
            [*where.values, limit],
        )
        return [_operation(row) for row in rows]

    def log(self, scope: Scope, *, limit: int) -> list[LoggedOperation]:
        self._entries.flush()
        where = Conditions(self._entries, scope)
        rows = self._session.rows(_SQL["log"].format(where=where.sql), [*where.values, limit])
        return [
            LoggedOperation(*_fields(row), entry_id=row[7], text=self._text(*row[7:11]), entries=row[11])
            for row in rows
        ]

    def _text(self, entry_id: str, version: int, space_key: int, text: str | None) -> str:
        if not text or self._entries.sealer is None:
            return text or ""
        return open_entry_text(self._entries.sealer.of(space_key), entry_id, version, text)

    def steps(
        self, scope: Scope, *, operation_id: str | None = None, entry_id: str | None = None, group: str | None = None
    ) -> list[Step]:
        self._entries.flush()
        where = Conditions(self._entries, scope)
        of_entry = "e.tenant = s.tenant AND e.id = ?"
        for condition, value in (("o.id = ?", operation_id), (of_entry, entry_id), ("o.grp = ?", group)):
            if value is not None:
                where.add(condition, value)
        rows = self._session.rows(f"{_STEPS} WHERE {where.sql} ORDER BY o.seq, p.ordinal", where.values)
        return [_step(row) for row in rows]

    def undo(self, operation: Operation, *, target: str) -> list[Step]:
        self._entries.flush()
        space_key = self._entries.spaces.key(operation.tenant, operation.space)
        touched = self._session.rows(_SQL["touched"], (space_key, target, target))
        if not touched:
            hint = "Is it of another space? `afterturn history` lists the ids of a space."
            raise NotFound(f"{operation.space} has no operation or group {target!r}. {hint}")
        # A later, undone operation does not matter.
        for key, (left, now) in {key: (after, status) for key, _, after, status in touched}.items():
            latest = self._session.row(_SQL["latest"], (key,))
            if left != now and latest is not None:
                raise Conflict(f"{latest[0]} was changed later by operation {latest[1]}. Undo that one first.")
        marked = {key for key, before, after, _ in touched if before == after}
        first: dict[int, tuple[Status, Status]] = {}
        for key, before, _, status in touched:
            if key not in first:
                first[key] = (Status(status), Status(before) if before is not None else Status.UNDONE)
        self._check_no_rivals(first)
        for key in sorted(first, key=lambda key: (*_order(*first[key]), key)):
            now, restored = first[key]
            if now is not restored:
                self._entries.move(operation, key, now, restored)
            elif key in marked:
                self._entries.journal.step(operation, key, now, now)
        return self.steps(Scope(operation.tenant, (operation.space,)), operation_id=operation.id)

    def forget(self, tenant: str, space: str, selector: Selector, *, at: float) -> Erased:
        return self._eraser.forget(tenant, space, selector, at=at)

    def _check_no_rivals(self, states: Mapping[int, tuple[Status, Status]]) -> None:
        for key, (now, restored) in states.items():
            if restored not in _RIVALRY or now is restored:
                continue
            sql = _RIVAL.format(rivalry=_RIVALRY[restored])
            for rival, rival_id, status, same_id in self._session.rows(sql, (key,)):
                if rival not in states or states[rival][1].value == status:
                    what = "has another version that" if same_id else "has the same text and"
                    raise Conflict(f"{rival_id} {what} is {status}. Delete it first, then undo again.")


def _order(now: Status, restored: Status) -> tuple[bool, bool]:
    """The order of the changes: versions that give up a status come first."""
    return restored in _RIVALRY, now is not Status.ACTIVE


def _operation(row: Row) -> Operation:
    return Operation(*_fields(row))


def _fields(row: Row) -> tuple[str, str, str, Verb, Origin, float, str | None]:
    return row[0], row[1], row[2], Verb(row[3]), Origin(row[4]), row[5], row[6]


def _step(row: Row) -> Step:
    entry_id, version, before, after = row[7:]
    return Step(_operation(row[:7]), entry_id, version, None if before is None else Status(before), Status(after))
