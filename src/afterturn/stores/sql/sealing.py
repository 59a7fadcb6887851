"""Which columns of a sealed store are sealed, and how its rows are sealed and opened.

A store is sealed from its first space on, or never: `meta` says so (`keys`). It also has the id of each space's key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from afterturn.errors import KeyMissing, KeysUnavailable, StoreCorrupt
from afterturn.stores.keys import KeyNeeded, KeyRing, SpaceCipher
from afterturn.stores.sql.session import SEALED_WITH_KEYS, Row, Session, find_meta, set_meta
from afterturn.types import PASTED, Entry, Metadata, ReadMetadata, Scope

# Its key "why" says what each table is for.
_TABLES = json.loads(Path(__file__).with_suffix(".json").read_bytes())
SEALED: Final[Mapping[str, list[str]]] = _TABLES["sealed"]
COMPARED: Final[Mapping[str, list[str]]] = _TABLES["compared"]
READABLE: Final[Mapping[str, str]] = _TABLES["readable"]
OPEN: Final[Mapping[str, Mapping[str, list[str]]]] = _TABLES["open"]
"""Every other column of text, by the reason for which it is readable."""

OF_STORE: Final = ("", "")
"""In place of tenant and space: the store's own key, which is never destroyed."""
_SEALED_MEMBER = "sealed"
_IS_KEY = "substr(key, 1, 4) = ?"
# Rows of `meta`. The second has a line for each key that is to be destroyed: its id, tenant and space.
_KEY, _DESTROY = "key ", "keys_to_destroy"
# In the name of a second row of a space: ids of keys that only other backups than the restored one need.
_OLDER = "older"


def check_keys(session: Session, keys: KeyRing | None, name: str) -> None:
    """Raises KeysUnavailable if there are keys, but the store is not sealed. `refusal` has the opposite case."""
    if keys is None:
        return
    keys.note_store_key(find_key(session, *OF_STORE))
    if not is_sealed_store(session) and session.row("SELECT 1 FROM space LIMIT 1") is not None:
        raise KeysUnavailable(
            f"The store {name} was made without keys, so its text is not sealed. Open it without the setting `keys`, "
            "or export its spaces and import them into a new store with keys."
        )


def is_sealed_store(session: Session) -> bool:
    return session.row("SELECT 1 FROM meta WHERE key = ?", (SEALED_WITH_KEYS,)) is not None


def mark_sealed(session: Session) -> None:
    """Before the first space: everything that follows is sealed."""
    session.run("INSERT INTO meta (key, value) VALUES (?, 'space') ON CONFLICT (key) DO NOTHING", (SEALED_WITH_KEYS,))


def store_key(session: Session, tenant: str, space: str, key_id: str) -> str:
    """Makes this the space's key, unless it has one. Returns the id of the one that it has then.

    Raises KeysUnavailable if the id is that of another key: what is sealed with it would be lost with that one.
    """
    name = _name(tenant, space)
    # The rows of other spaces with this id, and all lists of older ids.
    sql = f"SELECT key, value FROM meta WHERE (value = ? OR value LIKE ?) AND key <> ? AND {_IS_KEY}"
    known = {one for ids in _key_ids(session.rows(sql, (key_id, "[%", name, _KEY))).values() for one in ids}
    known.update(dropped for dropped, *_ in keys_to_destroy(session))
    if key_id in known:
        raise KeysUnavailable(
            f"The provider of keys returned the id {key_id!r} for a new key, but another key of the store has it. "
            "Correct its `make`: it must return an id that was never used before."
        )
    session.run("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING", (name, key_id))
    stored = find_meta(session, name)
    assert stored is not None
    return stored


def find_key(session: Session, tenant: str, space: str) -> str | None:
    """The id of the space's key."""
    return find_meta(session, _name(tenant, space))


def _note_dropped(session: Session, keys: Iterable[tuple[str, str, str]]) -> None:
    # Not read first: another unit may add to it at the same time.
    session.run(
        "INSERT INTO meta (key, value) VALUES (?, ?) "
        "ON CONFLICT (key) DO UPDATE SET value = meta.value || excluded.value",
        (_DESTROY, "".join(_line(*key) for key in keys)),
    )


def _line(key_id: str, tenant: str, space: str) -> str:
    return json.dumps([key_id, tenant, space]) + "\n"


def keys_to_destroy(session: Session) -> list[tuple[str, str, str]]:
    """(key id, tenant, space) of those that were dropped."""
    lines = map(json.loads, (find_meta(session, _DESTROY) or "").splitlines())
    return [(key_id, tenant, space) for key_id, tenant, space in lines]


def note_destroyed(session: Session, key_id: str, tenant: str, space: str) -> None:
    line = _line(key_id, tenant, space)
    session.run("UPDATE meta SET value = replace(value, ?, '') WHERE key = ?", (line, _DESTROY))


def drop_key_rows(session: Session) -> None:
    session.run(f"DELETE FROM meta WHERE {_IS_KEY}", (_KEY,))


def key_rows(session: Session) -> list[tuple[str, str]]:
    """The rows of `meta` that a copy of a sealed store needs."""
    sql = f"SELECT key, value FROM meta WHERE key IN (?, ?) OR {_IS_KEY}"
    return list(session.rows(sql, (SEALED_WITH_KEYS, _DESTROY, _KEY)))


def keep_keys(replaced: Session, restored: Session) -> None:
    """Lets a restored store destroy keys that only the content that it replaces has noted.

    A newer backup may need such a key, so it stays until its space is forgotten.
    """
    known = _key_ids(_rows_of_keys(restored))
    for place, key_ids in _key_ids(_rows_of_keys(replaced)).items():
        if place == OF_STORE:
            store_key(restored, *place, key_ids[0])
        elif not set(key_ids) <= set(known.get(place, ())):
            set_meta(restored, _name(*place, _OLDER), json.dumps([*known.get(place, ()), *key_ids]))
    if dropped := set(keys_to_destroy(replaced)) - set(keys_to_destroy(restored)):
        _note_dropped(restored, sorted(dropped))


def _rows_of_keys(session: Session) -> list[Row]:
    return session.rows(f"SELECT key, value FROM meta WHERE {_IS_KEY}", (_KEY,))


def _key_ids(rows: Iterable[Row]) -> dict[tuple[str, str], list[str]]:
    """By tenant and space, each id once."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for name, value in rows:
        tenant, space, *older = json.loads(str(name).removeprefix(_KEY))
        found.setdefault((tenant, space), {}).update(dict.fromkeys(json.loads(value) if older else [str(value)]))
    return {place: list(key_ids) for place, key_ids in found.items()}


def _name(tenant: str, space: str, *older: str) -> str:
    return _KEY + json.dumps([tenant, space, *older])


class Sealer:
    """The ciphers of one unit of work. Created only if the store is sealed."""

    def __init__(self, session: Session, keys: KeyRing) -> None:
        self._session = session
        self._keys = keys
        self._ciphers: dict[tuple[str, str], SpaceCipher | None] = {}
        self._places: dict[int, tuple[str, str]] = {}

    def find(self, tenant: str, space: str) -> SpaceCipher | None:
        """None for a space without a key, which has nothing sealed. Raises KeyNeeded or KeyMissing."""
        place = (tenant, space)
        if place not in self._ciphers:
            key_id = find_key(self._session, tenant, space)
            self._keys.drop(tenant, space, key_id)
            try:
                self._ciphers[place] = None if key_id is None else self._keys.cipher(key_id, tenant, space)
            except KeyNeeded:
                # By which it is found out whether a key that the provider does not have was destroyed.
                self._keys.note_store_key(find_key(self._session, *OF_STORE))
                raise
        return self._ciphers[place]

    def get(self, tenant: str, space: str) -> SpaceCipher:
        """To seal. A space without a key gets one first."""
        cipher = self.find(tenant, space)
        if cipher is None:
            raise KeyNeeded(spaces=[(tenant, space)])
        return cipher

    @property
    def store(self) -> SpaceCipher:
        """The cipher of the store itself, for hashes of blocks: they outlive their space, because a host that still
        shows a block must not have it recorded as a message."""
        return self.get(*OF_STORE)

    def opener(self, tenant: str, space: str) -> SpaceCipher:
        """To open what a row of this space has. Raises KeyMissing if the space has no key."""
        cipher = self.find(tenant, space)
        if cipher is None:
            raise KeyMissing(
                f"The store has no key for {space}, so what it has cannot be read. Forget it with everything=True.",
                space=space,
            )
        return cipher

    def of(self, space_key: int) -> SpaceCipher:
        return self.opener(*self._place(space_key))

    def get_of(self, space_key: int) -> SpaceCipher:
        return self.get(*self._place(space_key))

    def readable_of(self, space_key: int) -> SpaceCipher | None:
        """As `find`, and None too if the key is missing."""
        try:
            return self.find(*self._place(space_key))
        except KeyMissing:
            return None

    def drop(self, tenant: str, space: str) -> tuple[str, ...]:
        """Takes its keys from a space that is erased. Returns their ids."""
        self._ciphers.pop((tenant, space), None)
        # Takes the key from the space, and older keys, and notes that they are to be destroyed. Returns their ids.
        names = (_name(tenant, space), _name(tenant, space, _OLDER))
        rows = self._session.rows("SELECT key, value FROM meta WHERE key IN (?, ?)", names)
        key_ids = tuple(_key_ids(rows).get((tenant, space), ()))
        if key_ids:
            self._session.run("DELETE FROM meta WHERE key IN (?, ?)", names)
            _note_dropped(self._session, [(key_id, tenant, space) for key_id in key_ids])
        return key_ids

    def require(self, space_keys: Iterable[int]) -> None:
        """Asks for all keys at once, which takes one more run and not one for each."""
        self._require((self.find, self._place(space_key)) for space_key in space_keys)

    def require_to_seal(self, places: Iterable[tuple[str, str]]) -> None:
        self._require((self.get, place) for place in places)

    def _require(self, calls: Iterable[tuple[Callable[[str, str], object], tuple[str, str]]]) -> None:
        needed: list[KeyNeeded] = []
        for call, place in calls:
            try:
                call(*place)
            except KeyNeeded as one:
                needed.append(one)
            except KeyMissing:
                # Raised where it is used.
                continue
        if needed:
            raise KeyNeeded(
                [key for one in needed for key in one.ids], [place for one in needed for place in one.spaces]
            )

    def ciphers(self, scope: Scope) -> list[SpaceCipher]:
        """Those of the spaces that have a key."""
        found = [self.find(scope.tenant, space) for space in scope.spaces]
        return [cipher for cipher in found if cipher is not None]

    def _place(self, space_key: int) -> tuple[str, str]:
        place = self._places.get(space_key)
        if place is None:
            row = self._session.row("SELECT tenant, name FROM space WHERE key = ?", (space_key,))
            assert row is not None
            place = self._places[space_key] = (str(row[0]), str(row[1]))
        return place


def row_name(*parts: object) -> str:
    """The name of a row, to which its values are bound."""
    return json.dumps([str(part) for part in parts])


def seal_text(cipher: SpaceCipher, column: str, row: str, text: str) -> str:
    return cipher.seal(column, row, text) if text else ""


def open_text(cipher: SpaceCipher, column: str, row: str, sealed: str) -> str:
    return cipher.open(column, row, sealed) if sealed else ""


def try_to_open(cipher: SpaceCipher, column: str, row: str, sealed: str) -> str | None:
    """None if the value was changed or moved."""
    try:
        return cipher.open(column, row, sealed)
    except StoreCorrupt:
        return None


# Entries

TEXT_SIZE = "octet_length(e.text) * 3 / 4 - 28"
"""The size in bytes of the text of a row of `entry AS e`: base64 without padding, a nonce and a tag."""


def seal_entry(cipher: SpaceCipher, entry: Entry) -> Entry:
    row = row_name(entry.id, entry.version)
    return replace(
        entry,
        text=cipher.seal("entry.text", row, entry.text),
        reason=seal_text(cipher, "entry.reason", row, entry.reason),
        content_hash=cipher.hide("entry.content_hash", entry.content_hash),
        metadata=_seal_metadata(cipher, row, entry.metadata),
    )


def open_entry(cipher: SpaceCipher, entry: Entry) -> Entry:
    row, metadata = row_name(entry.id, entry.version), entry.metadata
    if metadata:
        sealed = str(metadata.get(_SEALED_MEMBER, ""))
        metadata = ReadMetadata(json.loads(cipher.open("entry.metadata", row, sealed)))
    return replace(
        entry,
        text=cipher.open("entry.text", row, entry.text),
        reason=open_text(cipher, "entry.reason", row, entry.reason),
        content_hash=cipher.reveal("entry.content_hash", entry.content_hash),
        metadata=metadata,
    )


def open_entry_text(cipher: SpaceCipher, entry_id: str, version: int, sealed: str) -> str:
    return cipher.open("entry.text", row_name(entry_id, version), sealed)


def _seal_metadata(cipher: SpaceCipher, row: str, metadata: Metadata) -> Metadata:
    """One member with everything, and one of digests for each, by which filters find it."""
    if not metadata:
        return metadata
    plain = json.dumps(dict(metadata), ensure_ascii=False)
    sealed: dict[str, Any] = {_SEALED_MEMBER: cipher.seal("entry.metadata", row, plain)}
    for name, value in metadata.items():
        sealed[member_name(cipher, name)] = member_value(cipher, name, value)
    if metadata.get(PASTED) is True:
        # Read by recall; it says nothing about the text.
        sealed[PASTED] = True
    return sealed


def member_name(cipher: SpaceCipher, name: str) -> str:
    return cipher.digest("entry.metadata", name)


def member_value(cipher: SpaceCipher, name: str, value: object) -> str:
    return cipher.digest("entry.metadata", name, json.dumps(value, ensure_ascii=False))


def hidden(ciphers: Sequence[SpaceCipher], column: str, values: Iterable[str]) -> list[str]:
    """The values as each of the spaces has them."""
    found = list(values)
    return [cipher.hide(column, value) for cipher in ciphers for value in found]
