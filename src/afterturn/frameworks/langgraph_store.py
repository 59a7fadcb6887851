"""A store of LangGraph (`BaseStore`) whose items are memories of afterturn.

Each namespace is a space: `("memories", "ada")` below the root "store" is the space `store:memories.ada`. So users are
as separate as spaces are: words of one do not rank another's results, and `afterturn list`, `export` and `forget` take
one namespace. One space for the whole store would be simpler, but every search of one user would read what all have.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import operator
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cache
from math import isfinite
from typing import Any, Literal, Self, TypeAlias
from urllib.parse import quote, unquote
from uuid import UUID

from afterturn.errors import AfterturnError, InvalidInput, InvalidName, NotAllowed, NotFound, TooLarge
from afterturn.frameworks.core import FrameworkMemory, MemoryTarget, without_secrets
from afterturn.frameworks.requirements import check_framework
from afterturn.guard.gate import Gate
from afterturn.guard.statement_writer import StatementWriter
from afterturn.log import logger
from afterturn.ports import Unit
from afterturn.recall.search import search
from afterturn.services import Services
from afterturn.space.arguments import LIMIT_MAX, search_request
from afterturn.types import (
    Admitted,
    Draft,
    Entry,
    Filter,
    Kind,
    Lane,
    Operation,
    Origin,
    Scalar,
    Scope,
    Status,
    Step,
    Tenant,
    Verb,
)
from afterturn.validation import METADATA_BYTES_MAX, NAME_CHARS_MAX, is_storable

check_framework("langgraph")

from langgraph.store.base import (  # noqa: E402
    BaseStore,
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
)

Namespace: TypeAlias = tuple[str, ...]
JsonObject: TypeAlias = dict[str, Any]
# The one operation of a transaction with a verb in a space.
_OperationOf: TypeAlias = Callable[[Verb, str], Operation]

# As long as a recorded message may be.
VALUE_BYTES_MAX = 1_048_576
SWEEP_MINUTES = 5.0
# Four bytes each, and the rest of an item's metadata, fit into the metadata of a memory.
KEY_CHARS_MAX = 900
# Each page sorts the whole space, so there are few, and those that Python filters grow.
_PAGE, _PAGE_FIRST, _PAGE_GROWTH = 5_000, 200, 5
_ROOT = re.compile(r"[a-z][a-z0-9_-]{0,31}")

# Keys of metadata. A value that is too long for metadata is the text of the memory instead.
_KEY, _VALUE, _CREATED, _TTL, _INDEXED = "store_key", "store_value", "store_created_at", "store_ttl", "store_indexed"
# The fields of a value are members, too, by which SQL filters. False: they do not fit.
_FIELDS = "store_fields"
# Of a longer text, the member is a hash.
_FIELD_CHARS_MAX = 64


class AfterturnStore(BaseStore):
    """LangGraph's long-term memory in a store of afterturn: `graph.compile(store=AfterturnStore("memory.db"))`.

    `memory` is a path, or a memory that you have opened. Only spaces of the kind `root` are used. With `root="user"`,
    the namespace `("ada",)` is the space of the user ada, so that items are recalled in her turns too.

    `index={"fields": ["text"]}` says which fields a query searches, as `index=` of `put` does for one item. The default
    is all of them. Memory embeds texts itself, so no `embed` is needed. `ttl` is LangGraph's configuration for items
    that expire, in minutes.

    `delete` hides an item, and `undo` of its space brings it back; `forget` of its space erases it. Secrets are removed
    from values. A value may have 1 MiB of JSON.
    """

    supports_ttl = True

    def __init__(
        self,
        memory: MemoryTarget,
        *,
        root: str = "store",
        index: IndexConfig | Literal[False] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        if not _ROOT.fullmatch(root):
            raise InvalidName(f"{root!r} is not a valid root. Use up to 32 lower-case letters, digits, _ and -.")
        if index and index.get("embed"):
            logger.warning(
                "`embed` of a store's index is not used: memory embeds texts itself, see the setting embedder"
            )
        self._memory = FrameworkMemory(memory, needs_user=False)
        self._root = root
        self._fields: Sequence[str] = () if index is False else tuple((index or {}).get("fields") or ("$",))
        self._current: ItemStore | None = None
        self._sweeper: Future[None] | None = None
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Reads first, then puts, in one transaction. Raises AfterturnError, and then nothing was put."""
        items = self._items()
        return items.services.loop.wait(items.run(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        items = self._items()
        return await items.services.loop.run(items.run(list(ops)))

    def sweep_ttl(self) -> int:
        """Deletes the items that have expired, and returns how many. Reads never return them anyway."""
        items = self._items()
        return items.services.loop.wait(items.sweep())

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Sweeps at this interval, or at that of `ttl`, or every five minutes, until the future is cancelled."""
        if self._sweeper is None or self._sweeper.done():
            configured = (self.ttl_config or {}).get("sweep_interval_minutes")
            items, minutes = self._items(), sweep_interval_minutes or configured or SWEEP_MINUTES
            self._sweeper = items.services.loop.submit(items.sweep_for_ever(minutes * 60.0))
        return self._sweeper

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Returns True: the sweeper stops at once, and `timeout` is not needed."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        return True

    def close(self) -> None:
        """Closes a store that was opened by its path. Without it, that happens when the process exits."""
        self.stop_ttl_sweeper()
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def _items(self) -> ItemStore:
        """A store that was closed, or opened before a fork, is opened again."""
        services, current = self._memory.services, self._current
        if current is None or current.services is not services:
            current = self._current = ItemStore(services, self._root, self._fields)
        return current


# Names


def space_of(root: str, namespace: Namespace) -> str:
    """The space of a namespace. Labels have no periods, so they separate them. Raises InvalidNamespaceError."""
    try:
        name = f"{root}:{'.'.join(map(_escape, namespace))}"
    except UnicodeEncodeError as error:
        raise InvalidNamespaceError(f"{namespace!r} contains half of a surrogate pair. Use plain text.") from error
    if len(name) > NAME_CHARS_MAX:
        raise InvalidNamespaceError(
            f"The namespace {name[:60]!r} has {len(name)} characters; at most {NAME_CHARS_MAX} fit. Shorten its labels."
        )
    return name


def _check_labels(labels: object) -> None:
    """`batch` is called without the checks of `put` and `get`, and "foo.bar" would be the namespace ("foo", "bar")."""
    if isinstance(labels, str):
        raise InvalidNamespaceError("The namespace is a text. Use a tuple, for example ('memories', 'ada').")
    for label in labels if isinstance(labels, Iterable) else ():
        if not isinstance(label, str) or not label or "." in label or "\0" in label:
            raise InvalidNamespaceError(f"{label!r} is not a valid label. Use text that is not empty, without periods.")


def namespace_of(space: str) -> Namespace:
    return tuple(map(unquote, space.partition(":")[2].split(".")))


def _escape(label: str) -> str:
    """Names of spaces have no blanks at their ends and no unprintable characters."""
    return "".join(
        character if character.isprintable() and character not in "% " else quote(character, safe="")
        for character in label
    )


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"{condition.match_type!r} is not a way to match namespaces. Use 'prefix' or 'suffix'.")
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))


def _id_of(space: str, key: str) -> str:
    """The same key has the same id in every process, so that concurrent puts of one key meet in one memory."""
    named = f"{space}\0{key}".encode(errors="surrogatepass")
    return base64.b32encode(hashlib.blake2b(named, digest_size=10).digest()).decode().lower()


def _check_key(key: object) -> None:
    if not isinstance(key, str) or not is_storable(key):
        raise InvalidName(f"{str(key)[:60]!r} is not a valid key. Use text without NUL or halves of surrogate pairs.")
    if len(key) > KEY_CHARS_MAX:
        raise InvalidName(f"The key {key[:60]!r} has {len(key)} characters; at most {KEY_CHARS_MAX} fit. Use another.")


# Values


def _encode(value: Mapping[str, Any]) -> str:
    try:
        encoded = json.dumps(dict(value), ensure_ascii=False, default=_as_json)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"The value cannot be written as JSON: {error}. Pass a dictionary of plain values."
        ) from error
    return encoded if is_storable(encoded) else json.dumps(dict(value), default=_as_json)


def _size_bytes(metadata: Mapping[str, Scalar]) -> int:
    return len(json.dumps(metadata, ensure_ascii=False).encode())


def _as_json(value: object) -> str:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _indexed_text(value: Mapping[str, Any], fields: Sequence[str]) -> str:
    """The text that a query searches: the texts of the fields, one a line; for "$" every field with its name."""
    lines = (line for field in fields for line in (_lines(value) if field == "$" else get_text_at_path(value, field)))
    text = "\n".join(lines)
    return text if is_storable(text) else "".join(one if is_storable(one) else "\ufffd" for one in text)


def _lines(value: Any, name: str = "") -> Iterator[str]:
    """A value that is a single text has no name before it: `{"text": "Ada keeps bees"}` reads as the statement."""
    if isinstance(value, Mapping):
        is_single = not name and len(value) == 1
        for key, one in value.items():
            yield from _lines(one, "" if is_single and isinstance(one, str) else str(key))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _lines(one, name)
    elif value is not None and str(value).strip():
        yield f"{name}: {value}" if name else str(value)


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def _admits(wanted: object, value: object) -> bool:
    """Whether a field has the wanted value, or all operators such as `{"$gt": 3}` hold for it."""
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compare(str(name), value, limit) for name, limit in wanted.items())
        return isinstance(value, Mapping) and all(_admits(one, _field(value, name)) for name, one in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_admits, wanted, value))
    return value == wanted


def _field(value: Mapping[str, Any], path: str) -> object:
    """The field of this name, or the one at a path such as "address.city"."""
    if path in value:
        return value[path]
    name, _, rest = path.partition(".")
    inner = value.get(name)
    return _field(inner, rest) if rest and isinstance(inner, Mapping) else None


def _fields(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Scalar]]:
    """The members of a value's texts, numbers and truth values, by the hashes of their paths."""
    for name, one in value.items():
        if isinstance(one, Mapping):
            yield from _fields(one, f"{path}{name}.")
        elif isinstance(one, str | int) or (isinstance(one, float) and isfinite(one)):
            yield _hash(f"{path}{name}"), _member(one)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def _member(value: str | float) -> Scalar:
    is_long = isinstance(value, str) and (len(value) > _FIELD_CHARS_MAX or not is_storable(value))
    return _hash(str(value)) if is_long else value


def _equalities(wanted: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, tuple[Scalar, ...]]]:
    """The members that an admitted item has, as far as SQL can find them. For Python, 1, 1.0 and True are equal."""
    for name, one in wanted.items():
        if isinstance(one, Mapping) and not any(str(key).startswith("$") for key in one):
            yield from _equalities(one, f"{path}{name}.")
            continue
        value = one.get("$eq") if isinstance(one, Mapping) else one
        if isinstance(value, str):
            yield _hash(f"{path}{name}"), (_member(value),)
        elif isinstance(value, int | float) and abs(value) < 2**53:
            same: list[Scalar] = [float(value), *([int(value)] if value == int(value) else [])]
            same += [-0.0, False] if value == 0 else [True] if value == 1 else []
            yield _hash(f"{path}{name}"), tuple(same)


def _compare(name: str, value: Any, limit: Any) -> bool:
    """Numbers by size, also those in texts, and other texts by alphabet. A field that is missing is not comparable."""
    if name in ("$eq", "$ne"):
        return (value == limit) is (name == "$eq")
    if name not in _COMPARISONS:
        raise ValueError(f"Unsupported operator: {name}. Use $eq, $ne, {', '.join(_COMPARISONS)}.")
    if value is None or limit is None:
        return False
    try:
        return _COMPARISONS[name](float(value), float(limit))
    except (TypeError, ValueError):
        are_texts = isinstance(value, str) and isinstance(limit, str)
        return are_texts and _COMPARISONS[name](value, limit)


# Items


@dataclass(frozen=True, slots=True)
class _StoredItem:
    """A memory that is an item."""

    entry: Entry
    key: str
    value: JsonObject

    @classmethod
    def read(cls, entry: Entry, now: float) -> Self | None:
        """None if the memory is not an item of the store, is not active, or has expired."""
        key = entry.metadata.get(_KEY)
        if not isinstance(key, str) or not entry.holds(now):
            return None
        written = entry.metadata.get(_VALUE)
        try:
            value = json.loads(written if isinstance(written, str) else entry.text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            logger.warning("%s in %s is not an item any more: its text was changed", entry.id, entry.space)
            return None
        return cls(entry, key, value)

    @property
    def created_at(self) -> float:
        created = self.entry.metadata.get(_CREATED)
        return float(created) if isinstance(created, int | float) else self.entry.recorded_at

    @property
    def ttl(self) -> float | None:
        """In minutes."""
        minutes = self.entry.metadata.get(_TTL)
        return float(minutes) if isinstance(minutes, int | float) else None

    def admitted_by(self, wanted: Mapping[str, Any] | None) -> bool:
        return all(_admits(one, _field(self.value, name)) for name, one in (wanted or {}).items())

    def as_item(self) -> Item:
        return Item(value=self.value, key=self.key, namespace=namespace_of(self.entry.space), **self._times())

    def as_search_item(self, score: float | None) -> SearchItem:
        return SearchItem(namespace_of(self.entry.space), self.key, self.value, score=score, **self._times())

    def _times(self) -> dict[str, datetime]:
        return {
            "created_at": datetime.fromtimestamp(self.created_at, UTC),
            "updated_at": datetime.fromtimestamp(self.entry.recorded_at, UTC),
        }


@dataclass(frozen=True, slots=True)
class _Put:
    """One put: the draft that the guard admitted, or None to delete the item."""

    space: str
    id: str
    admitted: Admitted | None


class ItemStore:
    """The operations of a store. They run on memory's loop, for callers with an event loop and without."""

    def __init__(self, services: Services, root: str, fields: Sequence[str]) -> None:
        self.services = services
        self._root = root
        self._fields = fields
        # An item may be longer than a statement, which is one sentence.
        self._gate = Gate(services.config, services.clock, services.ids, statement_bytes_max=VALUE_BYTES_MAX)
        self._writer: StatementWriter = services.statement_writer
        # Puts are written in the order in which they were asked for, however long the guard takes.
        self._in_order = asyncio.Lock()

    async def run(self, ops: Sequence[Op]) -> list[Result]:
        """Reads see what was there before the puts of the same batch. Of two puts of one key, the later counts."""
        for op in ops:
            for labels in (getattr(op, "namespace", ()), getattr(op, "namespace_prefix", ())):
                _check_labels(labels)
            for condition in getattr(op, "match_conditions", None) or ():
                _check_labels(condition.path)
        puts = {(tuple(op.namespace), op.key): op for op in ops if isinstance(op, PutOp)}
        read: list[_StoredItem] = []
        results = await self._read_all(ops, read)
        postponed, written = self._postponed(read), list[_Put]()
        async with self._in_order if puts else nullcontext():
            written = await self._prepare(list(puts.values()))
        spaces = [*(entry.space for entry, _ in postponed), *(put.space for put in written)]

        if spaces:
            await self._write(
                lambda unit, of: self._apply(unit, of, postponed, written), spaces, is_group=len(puts) > 1
            )
        return results

    async def _read_all(self, ops: Sequence[Op], read: list[_StoredItem]) -> list[Result]:
        """Adds to `read` the items whose time starts again."""
        gets = [op for op in ops if isinstance(op, GetOp)]
        named = [(space, _id_of(space, op.key)) for op in gets for space in [space_of(self._root, op.namespace)]]
        found, now = iter(list[Entry | None]()), self.services.clock.now()
        if named:
            scope = self._scope(*(space for space, _ in named))
            found = iter(
                await self.services.store.read(lambda unit: [self._find(unit, *one) for one in named], at=scope)
            )
        results: list[Result] = []
        for op in ops:
            match op:
                case GetOp():
                    entry = next(found)
                    item = None if entry is None else _StoredItem.read(entry, now)
                    results.append(None if item is None else item.as_item())
                    read += [item] if item is not None and op.refresh_ttl else []
                case SearchOp():
                    page = await self._search(op)
                    results.append([item.as_search_item(score) for item, score in page])
                    read += [item for item, _ in page] if op.refresh_ttl else []
                case ListNamespacesOp():
                    results.append(await self._list_namespaces(op))
                case PutOp():
                    results.append(None)
                case _:
                    raise ValueError(f"{type(op).__name__} is not an operation of a store.")
        return results

    # Reads

    async def _search(self, op: SearchOp) -> list[tuple[_StoredItem, float | None]]:
        now, query, offset = self.services.clock.now(), (op.query or "").strip(), max(0, op.offset)
        until = offset + op.limit
        wanted = Filter(kind=Kind.STATEMENT, metadata={_INDEXED: True} if query else {})

        def look(unit: Unit) -> tuple[list[str], Filter]:
            spaces, fields = self._spaces_below(unit, tuple(op.namespace_prefix)), dict(_equalities(op.filter or {}))
            without = Filter(kind=Kind.STATEMENT, metadata={_FIELDS: False})
            if not spaces or not fields or unit.memories.newest(self._scope(*spaces), without, limit=1):
                return spaces, wanted
            return spaces, replace(wanted, metadata={**wanted.metadata, **fields})

        spaces, wanted = await self.services.store.read(look, at=Tenant(self.services.tenant))
        if not spaces or op.limit <= 0:
            return []
        scope = Scope(self.services.tenant, tuple(spaces))
        found: list[tuple[_StoredItem, float | None]] = []
        if query:
            found = await self._ranked(op, query, scope, wanted, now, until)
        if len(found) < until:
            ranked = {item.entry.id for item, _ in found}
            others = await self.services.store.read(
                lambda unit: self._newest(unit, scope, wanted, op, until - len(found), ranked), at=scope
            )
            # A query orders all that is indexed, as the cosine of vectors does; these have nothing in common with it.
            found += [(item, 0.0 if query else None) for item in others]
        return found[offset:until]

    async def _ranked(
        self, op: SearchOp, query: str, scope: Scope, wanted: Filter, now: float, until: int
    ) -> list[tuple[_StoredItem, float | None]]:
        request = search_request(
            query,
            scope,
            self.services.config,
            limit=LIMIT_MAX if op.filter else min(until, LIMIT_MAX),
            lanes=(Lane.LONG_TERM,),
            filter=wanted,
            exclude=(),
            now=now,
            correlation=self.services.ids.new(),
            score_min=0.0,
        )
        results = await self.services.recall_client.ask(request, search)
        scores = {hit.entry.id: hit.score for hit in results.hits}
        items = self._read([hit.entry for hit in results.hits], now)
        return [(item, scores.get(item.entry.id)) for item in items if item.admitted_by(op.filter)][:until]

    def _newest(
        self, unit: Unit, scope: Scope, wanted: Filter, op: SearchOp, count: int, known: set[str]
    ) -> list[_StoredItem]:
        """The items that were changed last, without those that are known."""
        found: list[_StoredItem] = []
        now, before = self.services.clock.now(), None
        size = min(_PAGE, max(_PAGE_FIRST if op.filter else 0, count + len(known)))
        while len(found) < count:
            page = unit.memories.newest(scope, wanted, limit=size, before=before)
            items = self._read(page, now)
            found += [item for item in items if item.entry.id not in known and item.admitted_by(op.filter)]
            if len(page) < size:
                break
            before, size = page[-1].id, min(_PAGE, size * _PAGE_GROWTH)
            unit.check()
        return found[:count]

    async def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        def work(unit: Unit) -> list[Namespace]:
            now, found = self.services.clock.now(), set()
            for space in self._spaces_below(unit, ()):
                namespace = namespace_of(space)
                if all(_matches(condition, namespace) for condition in op.match_conditions or ()):
                    shown = namespace if op.max_depth is None else namespace[: op.max_depth]
                    items = (entry for entry in self._statements(unit, space) if _KEY in entry.metadata)
                    if shown not in found and any(entry.holds(now) for entry in items):
                        found.add(shown)
            return sorted(found)

        namespaces = await self.services.store.read(work, at=Tenant(self.services.tenant))
        return namespaces[op.offset : op.offset + op.limit]

    def _spaces_below(self, unit: Unit, prefix: Namespace) -> list[str]:
        """Of this store alone: the spaces of the namespace and of those below it."""
        top = space_of(self._root, prefix)
        names = unit.memories.space_names(self.services.tenant, top)
        return [name for name in names if not prefix or name == top or name.startswith(f"{top}.")]

    def _statements(self, unit: Unit, space: str) -> Iterator[Entry]:
        size, before = 1, None
        while page := unit.memories.newest(self._scope(space), Filter(kind=Kind.STATEMENT), limit=size, before=before):
            yield from page
            size, before = _PAGE, page[-1].id
            unit.check()

    def _find(self, unit: Unit, space: str, entry_id: str) -> Entry | None:
        try:
            return unit.memories.get(self._scope(space), entry_id)
        except NotFound:
            return None

    def _scope(self, *spaces: str) -> Scope:
        return Scope(self.services.tenant, tuple(dict.fromkeys(spaces)))

    def _read(self, entries: Iterable[Entry], now: float) -> list[_StoredItem]:
        found = (_StoredItem.read(entry, now) for entry in entries)
        return [item for item in found if item is not None and item.entry.id == _id_of(item.entry.space, item.key)]

    # Writes

    async def _prepare(self, ops: Sequence[PutOp]) -> list[_Put]:
        """Checks everything before anything is written."""
        puts: list[_Put] = []
        for op in ops:
            space = space_of(self._root, op.namespace)
            # A name with a secret is refused.
            self.services.space(space)
            try:
                admitted = None if op.value is None else self._admit(op, op.value, space, self.services.clock.now())
            except RecursionError as error:
                raise InvalidInput(f"The value of {op.key[:60]!r} is nested too deeply. Make it flatter.") from error
            puts.append(_Put(space, _id_of(space, op.key), admitted))
            # The guard takes a millisecond or more, and open turns are not held up.
            await asyncio.sleep(0)
        return puts

    def _admit(self, op: PutOp, value: Mapping[str, Any], space: str, now: float) -> Admitted:
        _check_key(op.key)
        encoded = _encode(value)
        if (size := len(encoded.encode())) > VALUE_BYTES_MAX:
            raise TooLarge(
                f"The value of {op.key[:60]!r} has {size} bytes as JSON; "
                f"an item is limited to {VALUE_BYTES_MAX}. Split it.",
                size_bytes=size,
                limit_bytes=VALUE_BYTES_MAX,
            )
        clean = without_secrets(json.loads(encoded), lambda text: self._gate.redact(text).text)
        encoded, entry_id = _encode(clean), _id_of(space, op.key)
        text = _indexed_text(clean, self._fields if op.index is None else op.index or ())
        metadata: dict[str, Scalar] = {_KEY: op.key, _INDEXED: bool(text.strip()), _CREATED: now, _TTL: op.ttl}
        metadata[_FIELDS] = False
        if _size_bytes({**metadata, _VALUE: encoded}) <= METADATA_BYTES_MAX:
            metadata[_VALUE] = encoded
        else:
            # Texts are normalised when they are stored, and a value must not change.
            text = encoded if unicodedata.is_normalized("NFC", encoded) else json.dumps(clean)
        members = list(_fields(clean))
        with_fields = {**metadata, **dict(members), _FIELDS: True}
        # Two fields may have the same path: {"a.b": 1, "a": {"b": 2}}.
        is_exact = len(with_fields) == len(metadata) + len(members)
        if is_exact and _size_bytes(with_fields) <= METADATA_BYTES_MAX:
            metadata = with_fields
        draft = Draft(
            text=next(one for one in (text, op.key, entry_id) if one.strip()),
            id=entry_id,
            origin=Origin.AGENT,
            # Items with the same text are different items.
            agent=f"store-{entry_id}",
            metadata=metadata,
            expires_at=None if op.ttl is None else now + op.ttl * 60.0,
        )
        admitted = self._gate.admit(draft)
        try:
            stored = json.loads(str(admitted.draft.metadata.get(_VALUE) or admitted.text))
        except ValueError:
            stored = None
        if not isinstance(stored, dict):
            raise NotAllowed(f"The value of {op.key[:60]!r} has a secret that cannot be removed. Leave it out.")
        if admitted.draft.metadata[_KEY] != op.key:
            raise InvalidName("The key contains a secret, which is never stored. Use another key.")
        return admitted

    async def _write(
        self, apply: Callable[[Unit, _OperationOf], list[Operation]], spaces: Iterable[str], *, is_group: bool = False
    ) -> int:
        """Runs the work in these spaces as one transaction, and reports what its operations changed. Returns how many
        changes there were. Several puts are one group for `undo`."""
        services = self.services

        def work(unit: Unit) -> tuple[int, list[Step]]:
            group, actor, at = services.ids.new() if is_group else None, Origin.AGENT, services.clock.now()
            of = cache(
                lambda verb, space: Operation(services.ids.new(), services.tenant, space, verb, actor, at, group)
            )
            made, steps = apply(unit, of), []
            for one in dict.fromkeys(made) if services.events.has_handler else ():
                steps += unit.operations.steps(self._scope(one.space), operation_id=one.id)
            return len(made), steps

        count, steps = await services.store.write(work, at=self._scope(*spaces))
        services.wake_jobs()
        services.events.report_changes(steps)
        return count

    def _apply(
        self, unit: Unit, of: _OperationOf, postponed: Sequence[tuple[Entry, float]], puts: Sequence[_Put]
    ) -> list[Operation]:
        for entry, expires_at in postponed:
            newest = self._find(unit, entry.space, entry.id)
            if newest is not None and newest.version == entry.version and newest.status is Status.ACTIVE:
                unit.memories.postpone(of(Verb.UPDATE, entry.space), entry.id, expires_at=expires_at)
        return [made for put in puts for made in self._put(unit, of, put)]

    def _put(self, unit: Unit, of: _OperationOf, put: _Put) -> Iterator[Operation]:
        current = self._find(unit, put.space, put.id)
        is_active = current is not None and current.status is Status.ACTIVE
        if put.admitted is not None:
            item = None if current is None else _StoredItem.read(current, self.services.clock.now())
            created = put.admitted.recorded_at if item is None else item.created_at
            draft = replace(put.admitted.draft, metadata={**put.admitted.draft.metadata, _CREATED: created})
            operation = of(Verb.UPDATE if is_active else Verb.ADD, put.space)
            self._writer.put_item(unit, operation, put.admitted._replace(draft=draft))
            yield operation
        elif is_active:
            operation = of(Verb.DELETE, put.space)
            self._writer.delete(unit, operation, put.id, trust=Origin.TOOL.trust)
            yield operation

    def _postponed(self, items: Iterable[_StoredItem]) -> list[tuple[Entry, float]]:
        """Items that were read live for their whole time again: each with the time at which it expires then."""
        now = self.services.clock.now()
        later = {item.entry.ref: (item.entry, now + item.ttl * 60.0) for item in items if item.ttl is not None}
        return [(entry, at) for entry, at in later.values() if at > (entry.expires_at or at)]

    async def sweep(self) -> int:
        now = self.services.clock.now()

        def find(unit: Unit) -> list[Entry]:
            found = (entry for space in self._spaces_below(unit, ()) for entry in self._statements(unit, space))
            return [entry for entry in found if _has_expired(entry, now)]

        def delete(unit: Unit, of: _OperationOf) -> list[Operation]:
            # They may have been read or put again since.
            current = (self._find(unit, entry.space, entry.id) for entry in expired)
            made = []
            for entry in current:
                if entry is not None and _has_expired(entry, now):
                    made.append(of(Verb.DELETE, entry.space))
                    self._writer.delete(unit, made[-1], entry.id, trust=Origin.USER.trust)
            return made

        expired = await self.services.store.read(find, at=Tenant(self.services.tenant))
        return await self._write(delete, (entry.space for entry in expired)) if expired else 0

    async def sweep_for_ever(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            try:
                await self.sweep()
            except AfterturnError as error:
                logger.warning("expired items stay until the next sweep: %s", error)


def _has_expired(entry: Entry, now: float) -> bool:
    is_item = _KEY in entry.metadata and entry.status is Status.ACTIVE
    return is_item and entry.expires_at is not None and entry.expires_at <= now
