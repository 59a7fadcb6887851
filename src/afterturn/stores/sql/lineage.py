"""What goes when something is forgotten: what was selected, then whatever rests on nothing else, in any space."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from afterturn.base.types import reference
from afterturn.stores.sql.session import Session, Value

_VERSION = "e.key, e.space_key, e.id, e.version, e.kind"
# The tenant is asked of each entry: it may have more spaces than there are entries that an id or a source leads to.
_OF_TENANT = "EXISTS (SELECT 1 FROM space AS s WHERE s.key = e.space_key AND s.tenant = ?)"
RESTING = (
    f"SELECT {_VERSION}, o.source FROM entry AS e JOIN source AS o ON o.entry_key = e.key "
    f"WHERE e.key IN (SELECT entry_key FROM source WHERE {{named}}) AND e.kind = 'statement' AND {_OF_TENANT}"
)
CALLED = f"SELECT {_VERSION} FROM entry AS e WHERE {{condition}} AND {_OF_TENANT}"


class Version(NamedTuple):
    space_key: int
    id: str
    version: int
    kind: str


Doomed: TypeAlias = dict[int, Version]


@dataclass(frozen=True, slots=True)
class Names:
    """What others may call the doomed: a version by its reference, an id when no version of it stays.

    `own` by space, for that space's own statements. `gone` are those of records, by which another space's statements
    mean them too: a review writes what one person said in a shared space into that person's own. A record that another
    space holds as well is not among them, since there is no telling which of the two is meant.
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
        """By key. A memory goes with every version. Of what was said in a conversation, or by somebody, only those
        versions go: another may have said what they changed.
        """
        condition, values = self._condition(kind, chosen)
        if kind in ("memory", "source"):
            condition = f"e.id IN (SELECT e.id FROM entry AS e WHERE e.space_key = ? AND {condition})"
            values = [space_key, *values]
        selected = f"SELECT {_VERSION} FROM entry AS e WHERE e.space_key = ? AND {condition}"
        doomed = self._versions(selected, space_key, *values)
        fresh = doomed
        while fresh:
            names = self.names(tenant, doomed)
            fresh = self._resting_on(tenant, names, doomed)
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

    def _condition(self, kind: str, chosen: Sequence[str]) -> tuple[str, list[Value]]:
        if kind == "everything":
            return "1 = 1", []
        named, value = self._session.among("e.id" if kind in ("memory", "source") else f"e.{kind}", chosen)
        if kind != "source":
            return named, [value]
        resting, _ = self._session.among("source", chosen)
        return f"({named} OR e.key IN (SELECT entry_key FROM source WHERE {resting}))", [value, value]

    def _versions(self, sql: str, *values: Value) -> Doomed:
        return {key: Version(*version) for key, *version in self._session.rows(sql, values)}

    def _resting_on(self, tenant: str, names: Names, doomed: Doomed) -> Doomed:
        """More statements that rest on one of the names, and on nothing that stays."""
        named, value = self._session.among("source", sorted(names.all()))
        resting: Doomed = {}
        staying: set[int] = set()
        for key, *version, source in self._session.each(RESTING.format(named=named), (value, tenant)):
            resting[key] = Version(*version)
            if not names.cover(resting[key].space_key, source):
                staying.add(key)
        return {key: version for key, version in resting.items() if key not in doomed and key not in staying}
