"""What the real stores of LangGraph write, as `afterturn import --from langgraph` reads it."""

import json
import time
from pathlib import Path

import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from afterturn.hosts.transcripts.libraries import make_reader, read_library
from afterturn.hosts.transcripts.library_export import LibraryExport

pytestmark = pytest.mark.frameworks


def _fill(store: BaseStore) -> None:
    store.put(("memories", "ada"), "1", {"text": "Ada drinks oolong"})
    store.put(("memories", "ada"), "2", {"food_preference": "I like pizza"})
    store.put(("memories", "bob"), "3", {"kind": "Memory", "content": {"content": "Bob drinks coffee"}})


def _read(file: Path) -> LibraryExport:
    return read_library(make_reader("langgraph", "memories.{user}"), file, time.time() + 60, lambda done, total: None)


def _facts(export: LibraryExport) -> list[tuple[str, str]]:
    assert (export.refused, [fact for fact in export.facts if fact.draft.occurred_at < 1_700_000_000]) == ([], [])
    return sorted((fact.owner, fact.draft.text) for fact in export.facts)


FACTS = [
    ("user:ada", "Ada drinks oolong"),
    ("user:ada", "food_preference: I like pizza"),
    ("user:bob", "Bob drinks coffee"),
]


def test_the_items_of_a_store_are_read(tmp_path: Path):
    store = InMemoryStore()
    _fill(store)
    lines = [json.dumps(item.dict()) for item in store.search((), limit=100)]
    (tmp_path / "store.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert _facts(_read(tmp_path / "store.jsonl")) == FACTS


def test_the_file_of_a_sqlite_store_is_read_while_it_is_open(tmp_path: Path):
    """Items whose time to live is over are left out, even if nobody has swept them."""
    file = tmp_path / "store.db"
    with SqliteStore.from_conn_string(str(file)) as store:
        store.setup()
        _fill(store)
        store.put(("memories", "bob"), "4", {"text": "over"}, ttl=0.001)
        export = _read(file)
        assert _facts(export) == FACTS
        assert export.left_out == {"facts that are no longer valid": 1}
        assert len(store.search((), limit=100)) >= 3
