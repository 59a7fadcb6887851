"""A directory of tenants in a file: each tenant has the URL of its store."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from afterturn import blocking
from afterturn.errors import StoreUnavailable
from afterturn.hosts.cli.app import run
from afterturn.oneshot import recall_once

pytestmark = pytest.mark.postgres

QUICK = {"embedder": "none", "background": False, "synchronous": "normal"}


@pytest.fixture
def file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_sql: Any) -> Iterator[Path]:
    """A directory with the tenants `acme` and `beta`, each with a store of its own."""
    found = tmp_path / "tenants.json"
    monkeypatch.setenv("AFTERTURN_STORE", at(found))
    found.write_text(json.dumps({"acme": f"{url}_one", "beta": f"{url}_two"}))
    yield found
    for name in ("one", "two"):
        run_sql(f"DROP SCHEMA IF EXISTS {url.rpartition('=')[2]}_{name} CASCADE")


def at(file: Path) -> str:
    return f"postgresql://?directory={file}"


def add(target: str, tenant: str, text: str) -> list[str]:
    with blocking.open(target, QUICK, tenant=tenant) as memory:
        memory.space("user:ada").add(text)
        return sorted(entry.text for entry in memory.space("user:ada").list(limit=100))


def test_each_tenant_has_the_store_that_the_file_names(file: Path, url: str) -> None:
    """C8: hosts, commands and recall_once find it, and one worker serves all stores."""
    assert add(at(file), "acme", "Ada keeps bees") == ["Ada keeps bees"]
    assert add(at(file), "beta", "Ada has a cat") == ["Ada has a cat"]
    assert [hit.entry.text for hit in recall_once("bees", user="ada", store=at(file), config={"tenant": "acme"}).hits]
    assert add(f"{url}_one", "acme", "Ada likes tea") == ["Ada keeps bees", "Ada likes tea"]
    assert run(["worker", "--once"]) == 0
    assert run(["worker", "--status"]) == 0


def test_the_file_is_read_again_for_each_opening(file: Path, url: str) -> None:
    with pytest.raises(StoreUnavailable, match="'gamma' is not in the directory"):
        add(at(file), "gamma", "x")
    file.write_text(json.dumps({**json.loads(file.read_text()), "gamma": f"{url}_one"}))
    assert add(at(file), "gamma", "Ada sings") == ["Ada sings"]


def test_the_stores_of_a_directory_can_be_sealed(file: Path, tmp_path: Path, run_sql: Any, url: str) -> None:
    settings = {**QUICK, "keys": str(tmp_path / "keys")}
    for tenant in ("acme", "beta"):
        with blocking.open(at(file), settings, tenant=tenant) as memory:
            memory.space("user:ada").add("Ada keeps bees")
            assert [hit.entry.text for hit in memory.space("user:ada").search("bees").hits] == ["Ada keeps bees"]
    assert run_sql(f"SELECT count(*) FROM {url.rpartition('=')[2]}_two.entry WHERE text LIKE '%bees%'") == [(0,)]


def test_a_file_that_cannot_be_used_is_named(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoreUnavailable, match=r"other\.json cannot be read"):
        add(at(tmp_path / "other.json"), "acme", "x")
    for content in ("{", "[]", '{"acme": 1}', '{"acme": "mysql://secret@db/app"}'):
        file.write_text(content)
        with pytest.raises(StoreUnavailable, match="is not a directory of tenants") as refused:
            add(at(file), "acme", "x")
        assert "secret" not in str(refused.value)
    file.write_text(json.dumps({"acme": "memory.db", "beta": at(file)}))
    with pytest.raises(StoreUnavailable, match="without a store on a server: acme, beta"):
        add(at(file), "acme", "x")
    assert run(["worker", "--once"]) != 0
    assert "Traceback" not in capsys.readouterr().err
    with pytest.raises(StoreUnavailable, match="absolute path"):
        blocking.open("postgresql://?directory=tenants.json", QUICK)
