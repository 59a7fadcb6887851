"""What the real mem0 returns and stores, as `afterturn import --from mem0` reads it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from afterturn.errors import InvalidFile
from afterturn.hosts.transcripts.libraries import make_reader, read_library
from afterturn.hosts.transcripts.library_export import LibraryExport
from lab.bench.compat import open_mem0

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Any]:
    memory = open_mem0(tmp_path / "real")
    yield memory
    memory.close()
    memory.vector_store.client.close()


def _read(file: Path) -> LibraryExport:
    return read_library(make_reader("mem0", None), file, 1.0, lambda done, total: None)


def test_what_get_all_returns_is_read(real: Any, tmp_path: Path):
    real.add("Ada drinks oolong", user_id="ada", metadata={"team": "tea", "tags": ["a"]}, infer=False)
    said = [{"role": "user", "content": "I live in Lyon", "name": "Ada"}, {"role": "assistant", "content": "Nice."}]
    real.add(said, user_id="ada", agent_id="barista", run_id="r1", infer=False)
    real.add("The kettle is red", agent_id="barista", infer=False)
    returned = [real.get_all(filters=one, top_k=100) for one in ({"user_id": "ada"}, {"agent_id": "barista"})]
    file = tmp_path / "mem0.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in returned), encoding="utf-8")
    export = _read(file)
    assert (export.refused, dict(export.left_out)) == ([], {})
    facts = {fact.draft.text: fact for fact in export.facts}
    assert facts.keys() == {"Ada drinks oolong", "I live in Lyon", "Nice.", "The kettle is red"}
    assert facts["Ada drinks oolong"].draft.metadata["team"] == "tea"
    assert json.loads(str(facts["Ada drinks oolong"].draft.metadata["mem0"])) == {"tags": ["a"]}
    lyon = facts["I live in Lyon"].draft
    assert facts["I live in Lyon"].owner == "user:ada"
    assert (lyon.agent, lyon.conversation, lyon.speaker) == ("barista", "r1", "Ada")
    assert facts["The kettle is red"].owner == "agent:barista"
    assert all(fact.draft.occurred_at > 1_700_000_000 for fact in export.facts)


def test_the_files_of_mem0_are_refused(real: Any, tmp_path: Path):
    real.add("Ada drinks oolong", user_id="ada", infer=False)
    databases = [path for path in (tmp_path / "real").rglob("*") if path.suffix in (".sqlite", ".db")]
    assert len(databases) >= 2
    for path in databases:
        with pytest.raises(InvalidFile, match="is a database of mem0"):
            _read(path)
