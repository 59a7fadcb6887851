"""URLs of stores on a server: what is shown of them, where turns wait, and what is said without the client library."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from afterturn.config import Config, StoreUrl, find_store, spill_folder
from afterturn.errors import StoreUnavailable
from child_process import run_program

URL = "postgresql://ada:hunter2@db.example:6432/app?schema=memory&sslmode=require&sslpassword=hunter2"


def test_a_url_shows_everything_but_passwords() -> None:
    """A log or a traceback may show it."""
    found = find_store(URL)
    assert isinstance(found, StoreUrl)
    assert str(found) == "postgresql://ada@db.example:6432/app?schema=memory&sslmode=require"
    assert "hunter2" not in repr(found) + repr(Config(store=URL))


def test_the_command_that_prints_settings_leaves_passwords_out() -> None:
    command = [sys.executable, "-m", "afterturn", "config", "show", "--json", "--store", URL]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "schema=memory" in said
    assert "hunter2" not in said


def test_the_client_library_gets_the_url_without_our_schema() -> None:
    url = StoreUrl(URL)
    assert url.schema == "memory"
    assert url.connection_url == "postgresql://ada:hunter2@db.example:6432/app?sslmode=require&sslpassword=hunter2"


@pytest.mark.parametrize(
    "url, shown",
    [
        ("postgresql://host/app", "postgresql://host/app"),
        ("postgres://ada:p%40ss@[::1]:5432/app", "postgresql://ada@[::1]:5432/app"),
        ("postgresql://ada:ab@one:1,two:2/app", "postgresql://ada@one:1,two:2/app"),
        ("postgresql://ada%3Ahunter2@host/app", "postgresql://ada@host/app"),
        ("postgresql://host/app?oauth_client_secret=hunter2&scram_client_key=hunter2", "postgresql://host/app"),
        ("postgresql://host/app?pasword=hunter2&options=-c%20x.y%3Dhunter2", "postgresql://host/app"),
        ("postgresql://host/app?user=ada;password=hunter2", "postgresql://host/app"),
        ("postgresql://?service=memory&password=x", "postgresql://?service=memory"),
        ("postgresql:///app?host=/run/postgresql", "postgresql:///app?host=/run/postgresql"),
    ],
)
def test_every_form_of_url_is_read(url: str, shown: str) -> None:
    found = find_store(url)
    assert isinstance(found, StoreUrl)
    assert (str(found), found.schema) == (shown, "afterturn")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:p@ss/w#x@db/app",
        "postgresql://ada:s#t@db/app",
        "postgres://a:b/c@db/app",
        "postgresql://ada:s#t?x@db/app",
        "postgresql://ada:x@ss/w@db/app",
        "postgresql://ada:ss/w?x@db/app",
        "postgresql://ada:hunter2?x@db/app",
        "postgresql://ada:x@hunter2@db/app",
    ],
)
def test_a_password_that_is_not_encoded_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="percent-encoded") as refused:
        find_store(url)
    assert "ss/w" not in str(refused.value)
    assert "s#t" not in str(refused.value)
    assert "b/c" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:hunter2",
        "postgresql://ada:hunter2/app",
        "postgresql://db/user=ada%20password=hunter2",
        "postgresql://db/?dbname=postgresql%3A%2F%2Fada%3Ahunter2%40db%2Fapp",
        "host=db user=ada password=hunter2",
    ],
)
def test_a_password_in_the_wrong_place_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="postgresql://user@host") as refused:
        find_store(url)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_url_with_one_slash_is_not_taken_for_a_file() -> None:
    with pytest.raises(StoreUnavailable, match="two slashes"):
        find_store("postgresql:/ada@db/app")


@pytest.mark.parametrize("schema", ["Memory", "a-b", "", "x;drop", "x" * 64, "1st", "pg_temp"])
def test_a_schema_that_would_need_quotes_is_refused(schema: str) -> None:
    if schema:
        with pytest.raises(StoreUnavailable, match="not a valid schema"):
            find_store(f"postgresql://host/app?schema={schema}")
    else:
        assert find_store("postgresql://host/app?schema=") == StoreUrl("postgresql://host/app?schema=")


def test_a_url_that_cannot_be_read_is_not_quoted() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        find_store("postgresql://ada:hunter2@[broken/app")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_turns_wait_next_to_a_file_and_below_the_state_folder_for_a_url(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    assert spill_folder(Config(), tmp_path / "memory.db") == tmp_path / "memory.db.waiting"
    found = spill_folder(Config(), StoreUrl(URL), environment)
    assert found.parent == tmp_path / "afterturn" / "waiting"
    assert re.fullmatch(r"[0-9a-f]{16}", found.name)
    # Another password is the same store.
    assert spill_folder(Config(), StoreUrl(URL.replace("hunter2", "other")), environment) == found


def test_two_stores_do_not_share_the_folder_that_a_setting_names(tmp_path: Path) -> None:
    config = Config(spill_folder=str(tmp_path))
    folders = {spill_folder(config, target) for target in (tmp_path / "a.db", tmp_path / "b.db", StoreUrl(URL))}
    assert len(folders) == 3
    assert {folder.parent for folder in folders} == {tmp_path}


def test_without_the_client_library_the_error_names_the_extra() -> None:
    program = """
import sys
sys.modules["psycopg"] = None
from afterturn import blocking, recall_once
from afterturn.errors import ExtraMissing
for attempt in (
    lambda: blocking.open("postgresql://127.0.0.1:1/none").__enter__(),
    lambda: recall_once("bees", user="ada", store="postgresql://127.0.0.1:1/none"),
):
    try:
        attempt()
    except ExtraMissing as error:
        print(error)
"""
    said = run_program(program).splitlines()
    assert [line.rpartition(" ")[2] for line in said] == ["'afterturn[postgres]'`."] * 2
