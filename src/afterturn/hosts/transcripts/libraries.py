"""Exports of mem0, Zep, Letta and LangGraph's stores, in the forms that their documentation and APIs have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import apsw

from afterturn.compat.mem0.payload import NESTED, OWN_KEYS
from afterturn.errors import InvalidFile, InvalidInput
from afterturn.hosts.transcripts.library_export import (
    LibraryExport,
    LibraryReader,
    Report,
    first_text,
    flat_metadata,
    latest,
    name_in,
    owner_of,
    parse_end,
    parse_utc,
    read_values,
    text_of,
)
from afterturn.hosts.transcripts.memory_folder import split_statements
from afterturn.hosts.transcripts.transcript import (
    Object,
    assistant_text,
    mapping,
    open_file,
    open_read_only,
    sequence,
    text_field,
    user_text,
)
from afterturn.types import Draft, Target

_SQLITE = b"SQLite format 3\0"
MISSING_PAGES = "pages that follow in the API, and are not in the file"
# The Python client writes the second.
_ZEP_IDS = ("uuid", "uuid_")
# A memory of mem0 expires when its last day ends, in UTC.
_DAY = timedelta(days=1).total_seconds()


class Mem0Export:
    """The result of `get_all` of mem0's Memory or MemoryClient, or a list named `memories`."""

    name = "mem0"
    expected = (
        "the JSON of get_all, for example: python -c 'import json, mem0; print(json.dumps(mem0.Memory().get_all("
        'filters={"user_id": "ada"}, top_k=100000)))\' > mem0.json'
    )

    def read(self, file: Path, export: LibraryExport, report: Report) -> None:
        self._refuse_database(file)
        for where, value in read_values(file, export, report):
            found = mapping(value)
            lists = [sequence(found[key]) for key in ("results", "memories") if isinstance(found.get(key), list)]
            if not lists:
                self._take(where, found, export)
            for number, item in enumerate((item for one in lists for item in one), start=1):
                self._take(f"{where}, memory {number}", mapping(item), export)
            export.left_out["relations of mem0's graph"] += len(sequence(found.get("relations")))
            export.left_out[MISSING_PAGES] += bool(lists and found.get("next"))

    def _refuse_database(self, file: Path) -> None:
        """Qdrant's files are pickles, which could run code when they are read; history.db does not name users."""
        if file.is_dir() or is_sqlite(file):
            raise InvalidFile(
                f"{file} is a database of mem0, which is not read: the points of a local Qdrant are pickled, and "
                f"history.db does not say whose memories it has. Export them instead: name {self.expected}"
            )

    def _take(self, where: str, item: Object, export: LibraryExport) -> None:
        text = first_text(item, "memory")
        if not text:
            export.refuse(where, 'It has no "memory" with a text.')
            return
        if item.get("event") == "DELETE":
            export.left_out["facts that are no longer valid"] += 1
            return
        created, updated = item.get("created_at"), item.get("updated_at")
        last_day = parse_end(item.get("expiration_date"))
        user, agent, run = (name_in(item, key) for key in ("user_id", "agent_id", "run_id"))
        metadata = mapping(item.get("metadata"))
        # One JSON text under its own key, as afterturn's mem0 interface writes and reads it.
        nested = {key: held for key, held in metadata.items() if isinstance(held, dict | list) or key in OWN_KEYS}
        nested |= {"categories": item["categories"]} if item.get("categories") else {}
        kept = {key: item.get(key) for key in ("app_id", "attributed_to", "role", "expiration_date")}
        kept |= {"mem0_id": item.get("id"), "created_at": created if updated != created else None}
        owner = owner_of(user) or (f"agent:{agent}" if agent else f"run:{run}" if run else "")
        draft = Draft(
            text,
            agent=agent or None,
            # The same words in two runs are two facts.
            project=run or None,
            conversation=run or None,
            speaker=name_in(item, "actor_id") or None,
            occurred_at=latest(created, updated) or None,
            expires_at=last_day + _DAY if last_day is not None else None,
            metadata=flat_metadata(
                {key: held for key, held in metadata.items() if key not in nested},
                kept,
                ours={NESTED: text_of(nested)} if nested else None,
            ),
        )
        export.add_fact(where, owner, draft)


class ZepExport:
    """Edges, episodes, threads or sessions with messages, and lists of them, of Zep's API 2 to 4; Graphiti's edges."""

    name = "zep"
    expected = (
        "JSON or JSON Lines of what its API returns: edges (graph.edge.get_by_user_id), episodes, or threads such as "
        '{"thread_id": "...", "user_id": "...", "messages": [...]}'
    )
    _LISTS = ("edges", "episodes", "items", "relevant_facts", "facts", "threads", "sessions")

    def read(self, file: Path, export: LibraryExport, report: Report) -> None:
        for where, value in read_values(file, export, report):
            self._take(where, value, export, user="", session=file.stem, depth=0)

    def _take(self, where: str, value: object, export: LibraryExport, *, user: str, session: str, depth: int) -> None:
        if isinstance(value, str) and depth:
            export.left_out["facts without times, which may not be valid any more"] += 1
            return
        item = mapping(value)
        user = name_in(item, "user_id", "user_uuid", "group_id") or user
        session = first_text(item, "thread_id", "session_id", "thread_uuid") or session
        names = [name for name in (*self._LISTS, "messages") if isinstance(item.get(name), list)]
        if text := first_text(item, "fact"):
            self._take_edge(where, text, item, export, user)
        elif names and depth < 3:
            for name in names:
                for number, one in enumerate(item[name], start=1):
                    place = f"{where}, {name} {number}"
                    self._take(place, one, export, user=user, session=session, depth=depth + 1)
            export.left_out["nodes, whose facts are in edges"] += len(sequence(item.get("nodes")))
            export.left_out[MISSING_PAGES] += bool(item.get("next_cursor"))
        elif isinstance(item.get("content"), str):
            self._take_message(where, item, export, user, session)
        elif "thread_id" in item or "session_id" in item:
            export.left_out["threads without messages"] += 1
        elif "labels" in item and "summary" in item:
            export.left_out["nodes, whose facts are in edges"] += 1
        else:
            export.refuse(where, 'It has no "fact", no "messages", and no "content" with a "role".')

    def _take_edge(self, where: str, text: str, item: Object, export: LibraryExport, user: str) -> None:
        if item.get("expired_at"):
            export.left_out["facts that are no longer valid"] += 1
            return
        names = ("name", "source_node_name", "target_node_name", "attributes")
        draft = Draft(
            text,
            occurred_at=parse_utc(item.get("created_at")) or None,
            valid_from=parse_utc(item.get("valid_at")) or None,
            valid_to=parse_end(item.get("invalid_at")),
            metadata=flat_metadata({key: item.get(key) for key in names}, {"zep_id": first_text(item, *_ZEP_IDS)}),
        )
        export.add_fact(where, owner_of(user), draft)

    def _take_message(self, where: str, item: Object, export: LibraryExport, user: str, session: str) -> None:
        """In API 2, `role` is a name and `role_type` the role."""
        role = first_text(item, "role_type", "role")
        if not role:
            export.left_out["episodes that are not messages, whose facts are in edges"] += 1
            return
        at = parse_utc(item.get("reference_time")) or parse_utc(item.get("created_at"))
        text, id = text_field(item, "content"), first_text(item, *_ZEP_IDS)
        export.add_message(where, owner_of(user), session, role, text, at, id)


class LettaExport:
    """Agent files (.af) of both versions, and lists of blocks, passages or messages as the API returns them."""

    name = "letta"
    expected = (
        "an agent file (.af) from agents.export_file, or the JSON of agents.passages.list, agents.blocks.list or "
        "agents.messages.list"
    )

    def read(self, file: Path, export: LibraryExport, report: Report) -> None:
        for where, value in read_values(file, export, report):
            item = mapping(value)
            if isinstance(item.get("agents"), list) and isinstance(item.get("blocks"), list):
                for number, agent in enumerate(map(mapping, item["agents"]), start=1):
                    self._take_agent(f"agent {number}", agent, export, file.stem)
                self._take_all("block", item["blocks"], export, file.stem)
                export.left_out["files of the agent's sources"] += len(sequence(item.get("files")))
            elif isinstance(item.get("core_memory"), list):
                self._take_agent("the agent", item, export, file.stem)
            else:
                self._take(where, item, export, file.stem)

    def _take_agent(self, where: str, agent: Object, export: LibraryExport, stem: str) -> None:
        """Every export numbers its messages again, so their ids are not kept."""
        session = first_text(agent, "name") or stem
        self._take_all(f"{where}, block", sequence(agent.get("core_memory")), export, session)
        for number, message in enumerate(map(mapping, sequence(agent.get("messages"))), start=1):
            self._take_message(f"{where}, message {number}", message, export, session)

    def _take_all(self, where: str, items: Sequence[object], export: LibraryExport, session: str) -> None:
        for number, item in enumerate(items, start=1):
            self._take(f"{where} {number}", mapping(item), export, session)

    def _take(self, where: str, item: Object, export: LibraryExport, session: str) -> None:
        if "message_type" in item or "role" in item:
            self._take_message(where, item, export, session)
        elif isinstance(item.get("value"), str) and isinstance(item.get("label"), str):
            self._take_block(where, item, export)
        elif isinstance(item.get("text"), str):
            self._take_passage(where, item, export)
        else:
            export.refuse(where, "It is neither an agent, a block, a passage nor a message.")

    def _take_block(self, where: str, block: Object, export: LibraryExport) -> None:
        """Each line or paragraph is a statement. An agent's description of itself is not a memory."""
        label, at = text_field(block, "label"), latest(block.get("updated_at"), block.get("created_at"))
        if label == "persona":
            export.left_out["persona blocks, which describe the agent"] += 1
            return
        target = Target.USER if label == "human" else Target.ENVIRONMENT
        for text in split_statements(text_field(block, "value")):
            draft = Draft(text, target=target, occurred_at=at or None, metadata=flat_metadata({"block": label}))
            export.add_fact(where, "", draft)

    def _take_passage(self, where: str, passage: Object, export: LibraryExport) -> None:
        if passage.get("is_deleted"):
            export.left_out["facts that are no longer valid"] += 1
        elif passage.get("file_id") or passage.get("source_id"):
            export.left_out["passages of files"] += 1
        else:
            kept = {"tags": passage.get("tags"), "letta_id": passage.get("id"), "archive_id": passage.get("archive_id")}
            at, metadata = (
                latest(passage.get("updated_at"), passage.get("created_at")),
                mapping(passage.get("metadata")),
            )
            text = text_field(passage, "text")
            export.add_fact(where, "", Draft(text, occurred_at=at or None, metadata=flat_metadata(metadata, kept)))

    def _take_message(self, where: str, message: Object, export: LibraryExport, session: str) -> None:
        role = text_field(message, "role") or text_field(message, "message_type").removesuffix("_message")
        at = parse_utc(message.get("created_at")) or parse_utc(message.get("date"))
        content = message.get("content")
        text = _unpacked(user_text(content)) if role == "user" else assistant_text(content)
        if role == "assistant" and isinstance(message.get("tool_calls"), list):
            # With these calls, older agents answer; their text is what they think.
            functions = [mapping(mapping(call).get("function")) for call in message["tool_calls"]]
            sent = [read_object(one.get("arguments")) for one in functions if one.get("name") == "send_message"]
            text = "\n".join(filter(None, (text_field(one, "message") for one in sent))) or text
        export.add_message(where, "", session, role, text, at)


def read_object(text: object) -> Object:
    """The JSON object in a text; empty if there is none."""
    try:
        return mapping(json.loads(text)) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}


def _unpacked(text: str) -> str:
    """The words of a user, which Letta packs as JSON with the time. Blank for events, which it packs likewise."""
    packed = read_object(text) if text.startswith("{") else {}
    if not isinstance(packed.get("type"), str):
        return text
    return text_field(packed, "message") if packed["type"] == "user_message" else ""


class LangGraphExport:
    """The items of a store: `Item.dict()` as JSON or JSON Lines, the server's `items`, or the file of a SqliteStore.

    `pattern` says which part of a namespace is the user. Without it, the whole namespace is the user.
    """

    name = "langgraph"
    expected = (
        "the items of a store as JSON Lines, for example: print(json.dumps(item.dict())) for each of "
        "store.search((), limit=100000), or the file of a SqliteStore"
    )

    def __init__(self, pattern: str | None = None) -> None:
        self._pattern = pattern.split(".") if pattern is not None else None
        if self._pattern is not None and self._pattern.count("{user}") != 1:
            raise InvalidInput(f"{pattern!r} does not say where the user is. Write it like 'memories.{{user}}'.")

    def read(self, file: Path, export: LibraryExport, report: Report) -> None:
        values = _store_rows(file) if is_sqlite(file) else read_values(file, export, report)
        for where, value in values:
            items = mapping(value).get("items")
            for number, item in enumerate(items if isinstance(items, list) else [value], start=1):
                self._take(f"{where}, item {number}" if isinstance(items, list) else where, mapping(item), export)

    def _take(self, where: str, item: Object, export: LibraryExport) -> None:
        namespace = sequence(item.get("namespace"))
        is_named = bool(namespace) and all(isinstance(part, str) for part in namespace)
        if not is_named or not isinstance(item.get("key"), str) or not isinstance(item.get("value"), dict):
            export.refuse(where, 'It has no "namespace", "key" and "value" of an item.')
            return
        user = self._user_of(namespace)
        if user is None:
            export.left_out["items in other namespaces than --namespace"] += 1
            return
        value, names = mapping(item["value"]), ("text", "memory", "content", "data")
        # The text that a value has under a usual name, else all of its fields.
        text = first_text(value, *names) or first_text(value.get("content"), *names)
        draft = Draft(
            text or "; ".join(f"{key}: {text_of(held)}" for key, held in value.items() if held is not None),
            occurred_at=latest(item.get("updated_at"), item.get("created_at")) or None,
            expires_at=parse_end(item.get("expires_at")),
            metadata=flat_metadata({"namespace": ".".join(namespace), "key": item["key"]}),
        )
        export.add_fact(where, owner_of(user), draft)

    def _user_of(self, namespace: Sequence[str]) -> str | None:
        """None if the pattern does not match."""
        if self._pattern is None:
            return ".".join(namespace)
        if len(namespace) != len(self._pattern):
            return None
        pairs = list(zip(self._pattern, namespace, strict=True))
        is_match = all(wanted in ("{user}", "*", part) for wanted, part in pairs)
        return next(part for wanted, part in pairs if wanted == "{user}") if is_match else None


def _store_rows(file: Path) -> Iterator[tuple[str, Object]]:
    """The rows of a SqliteStore, which may be in use. Tables of older versions have no `expires_at`."""
    try:
        with open_read_only(file) as connection:
            columns = {row[1] for row in connection.execute("PRAGMA table_info(store)")}
            expires = "expires_at" if "expires_at" in columns else "NULL"
            rows = connection.execute(
                f"SELECT prefix, key, value, created_at, updated_at, {expires} FROM store ORDER BY prefix, key"
            )
            for number, (prefix, key, value, created, updated, ends) in enumerate(rows, start=1):
                try:
                    held = json.loads(value)
                except (ValueError, TypeError, RecursionError):
                    held = None
                times = {"created_at": created, "updated_at": updated, "expires_at": ends}
                yield f"row {number}", {"namespace": str(prefix).split("."), "key": key, "value": held, **times}
    except apsw.Error as error:
        raise InvalidFile(
            f"{file} cannot be read as a SqliteStore: {error}. Name a file with its table `store`."
        ) from error


def is_sqlite(file: Path) -> bool:
    try:
        with open_file(file) as stream:
            return stream.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {error.strerror}. Check the name and permissions.") from error


def make_reader(library: str, namespace: str | None) -> LibraryReader:
    """Raises InvalidInput if `namespace` is not a pattern."""
    if library == LangGraphExport.name:
        return LangGraphExport(namespace)
    readers: tuple[LibraryReader, ...] = (Mem0Export(), ZepExport(), LettaExport())
    return next(reader for reader in readers if reader.name == library)


def read_library(reader: LibraryReader, file: Path, now: float, report: Report) -> LibraryExport:
    """Reads a whole export. Raises InvalidFile if there is nothing in it that the library writes."""
    export = LibraryExport(reader.name, now)
    try:
        file.stat()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidFile(f"{str(file)[:200]!r} cannot be read: {reason}. Name {reader.expected}.") from error
    reader.read(file, export, report)
    export.left_out = +export.left_out  # without reasons that are counted zero times
    if not export.facts and not export.left_out and next(export.conversations(), None) is None:
        first = f" It begins with {export.refused[0].where}: {export.refused[0].message}" if export.refused else ""
        raise InvalidFile(f"{file} has no memories of {reader.name}.{first} Name {reader.expected}.")
    return export
