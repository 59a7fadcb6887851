"""A directory of shards in a file: listing tenants, moving them while they are in use, copies of the file."""

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from afterturn import blocking
from afterturn.config import StoreUrl
from afterturn.errors import NotFound, StoreUnavailable
from afterturn.hosts.cli.app import run
from afterturn.oneshot import recall_once
from afterturn.stores.postgres.shards import FileDirectory

pytestmark = pytest.mark.postgres

QUICK = {"embedder": "none", "background": False, "synchronous": "normal"}


@pytest.fixture
def file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_sql: Any) -> Iterator[Path]:
    """A directory with the buckets `one` and `two`, that the commands have made."""
    found = tmp_path / "shards.json"
    monkeypatch.setenv("AFTERTURN_STORE", at(found))
    schemas = [f"{url.rpartition('=')[2]}_{name}" for name in ("one", "two")]
    for name in ("one", "two"):
        assert run(["shards", "add", name, f"{url}_{name}"]) == 0
    yield found
    for schema in schemas:
        run_sql(f"DROP SCHEMA {schema} CASCADE")


def at(file: Path) -> str:
    return f"postgresql://?directory={file}"


def change(file: Path, **tenants: object) -> None:
    """As an administrator does with an editor."""
    content = json.loads(file.read_text())
    content["tenants"] |= tenants
    file.write_text(json.dumps(content))


def texts(memory: blocking.Memory) -> list[str]:
    return sorted(entry.text for entry in memory.space("user:ada").list(limit=1000))


def add(file: Path, tenant: str, text: str) -> None:
    with blocking.open(at(file), QUICK, tenant=tenant) as memory:
        memory.space("user:ada").add(text)


def test_a_tenant_is_found_when_the_file_lists_it(file: Path) -> None:
    """Read again for each question; a host decides nothing for others."""
    with pytest.raises(StoreUnavailable, match="'acme' is not in the directory"):
        add(file, "acme", "Ada keeps bees")
    # URLs may have passwords.
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_text()
    change(file, acme="two", beta="one")
    add(file, "acme", "Ada keeps bees")
    add(file, "beta", "Ada has a cat")
    assert [hit.entry.text for hit in recall_once("bees", user="ada", store=at(file), config={"tenant": "acme"}).hits]
    bucket = json.loads(before)["buckets"]["two"]["url"]
    with blocking.open(bucket, QUICK, tenant="acme") as memory:
        assert texts(memory) == ["Ada keeps bees"]
    assert run(["worker", "--once"]) == 0


def test_a_tenant_moves_there_and_back_while_it_is_in_use_and_a_copy_of_the_file_may_be_old(file: Path) -> None:
    """C2: a host with an old copy, as another machine has it, follows the mark that the tenant has left."""
    change(file, acme="one")
    copy = Path(shutil.copy(file, file.with_name("copy.json")))
    expected = ["Fact 0"]
    add(file, "acme", "Fact 0")
    with blocking.open(at(file), QUICK, tenant="acme") as open_host:
        for number, to in enumerate(("two", "one", "two"), start=1):
            assert run(["shards", "move", "acme", to]) == 0
            assert json.loads(file.read_text())["tenants"]["acme"] == {"bucket": to, "moves": number}
            open_host.space("user:ada").add(f"Fact {number}")
            expected.append(f"Fact {number}")
            add(copy, "acme", f"Fact {number} of another machine")
            expected.append(f"Fact {number} of another machine")
            assert texts(open_host) == sorted(expected)
    for directory in (file, copy):
        with blocking.open(at(directory), QUICK, tenant="acme") as memory:
            assert texts(memory) == sorted(expected)


def test_changes_at_the_same_time_lose_none(file: Path) -> None:
    directory = FileDirectory(StoreUrl(at(file)))
    file.chmod(0o640)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: directory.place(f"t{number:02d}", "one", 1), range(40)))
    assert [tenant for tenant, _, _ in directory.tenants()] == [f"t{number:02d}" for number in range(40)]
    assert file.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in file.parent.iterdir() if one.name.startswith(".")] == []


def test_a_file_that_cannot_be_used_is_named(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoreUnavailable, match="There is no file"):
        add(tmp_path / "other.json", "acme", "x")
    change(file, acme="one", beta="three")
    with pytest.raises(NotFound, match="no bucket 'three'"):
        add(file, "beta", "x")
    for content in (
        "{",
        "[]",
        '{"buckets": {}}',
        '{"buckets": {"one": 1}, "tenants": {}}',
        '{"buckets": {}, "tenants": {"a": 1}}',
    ):
        file.write_text(content)
        with pytest.raises(StoreUnavailable, match="is not a directory of shards"):
            add(file, "acme", "x")
    assert run(["shards", "list"]) != 0
    assert "Traceback" not in capsys.readouterr().err
    with pytest.raises(StoreUnavailable, match="absolute path"):
        blocking.open("postgresql://?directory=shards.json", QUICK)
