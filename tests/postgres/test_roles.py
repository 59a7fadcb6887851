"""Roles with fewer rights than the owner, and the SQL of docs/production.md that creates them."""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from afterturn import blocking
from afterturn.config import Config, StoreUrl
from afterturn.errors import StoreError, StoreReadOnly, StoreUnavailable
from afterturn.oneshot import recall_once
from afterturn.runtime.clock import SystemClock
from afterturn.stores.postgres.engine import open_engine
from afterturn.stores.postgres.schema import MIGRATIONS, Migration
from afterturn.stores.postgres.store import find_faults
from lab.postgres.server import PostgresServer

pytestmark = pytest.mark.postgres

RunSql = Callable[..., list[tuple[Any, ...]]]
QUICK = {"embedder": "none", "grace": 5.0}
GUIDE = Path(__file__).parents[2] / "docs" / "production.md"
ROLES = ("owner", "host", "worker", "reader")


def sql_of(heading: str) -> str:
    """The SQL block below a heading of the guide."""
    found = re.search(rf"^## {heading}\n.*?^```sql\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def as_role(server: PostgresServer, run_sql: RunSql) -> Iterator[Callable[[str], str]]:
    """The URL of a store for one of the roles of the guide, which its script has created in a new database."""
    run_sql("CREATE DATABASE guide")
    run_sql(sql_of("Roles"), database="guide")
    yield lambda role: server.url("guide", user=f"memory_{role}")
    run_sql("DROP DATABASE guide WITH (FORCE)")
    run_sql(f"DROP ROLE {', '.join(f'memory_{role}' for role in ROLES)}")


def talk(url: str, conversation: str, text: str) -> str:
    """One turn. Returns the block."""
    with blocking.open(url, QUICK) as memory:
        messages: list[dict[str, str]] = [{"role": "user", "content": text}]
        with memory.conversation(conversation, user="ada").turn(messages) as turn:
            turn.inject(messages)
            blocks = [message["content"] for message in messages[1:]]
            messages.append({"role": "assistant", "content": "Noted."})
        assert turn.wait_recorded(within=20.0)
    return "".join(blocks)


def run_cli(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "afterturn", *arguments],
        env={**os.environ, "AFTERTURN_STORE": url, "AFTERTURN_EMBEDDER": "none"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_hosts_and_workers_need_no_right_to_change_tables(as_role: Callable[[str], str]) -> None:
    with pytest.raises(StoreUnavailable, match="as the owner"):
        talk(as_role("host"), "early", "The tables are not there yet.")
    open_engine(StoreUrl(as_role("owner")), Config(), SystemClock()).close()
    assert talk(as_role("host"), "monday", "My cat Miso is allergic to chicken.") == ""
    assert "chicken" in talk(as_role("host"), "tuesday", "What food is my cat allergic to?")
    worked = run_cli(as_role("worker"), "worker", "--once")
    assert (worked.returncode, worked.stderr) == (0, "")
    findings = {one.subject: one for one in find_faults(_server(as_role("host")))}
    assert findings["role"].message == "The role may read and write."
    assert findings["row-level security"].level == "ok"


def test_a_reader_recalls_searches_lists_and_checks_but_cannot_write(as_role: Callable[[str], str]) -> None:
    with blocking.open(as_role("owner"), QUICK) as memory:
        memory.space("user:ada").add("Ada keeps bees")
    reader = as_role("reader")
    assert "bees" in str(recall_once("What does Ada keep?", store=reader, user="ada"))
    for arguments, expected in (
        (("search", "bees", "--space", "user:ada"), "Ada keeps bees"),
        (("list", "--space", "user:ada"), "Ada keeps bees"),
        (("doctor",), "may only read"),
    ):
        done = run_cli(reader, *arguments)
        assert (done.returncode, expected in done.stdout, done.stderr) == (0, True, "")
    with blocking.open(reader, QUICK) as memory, pytest.raises(StoreReadOnly, match="a role that may write"):
        memory.space("user:ada").add("Ada likes tea")
    refused = run_cli(reader, "add", "Ada likes tea", "--space", "user:ada")
    assert refused.returncode != 0
    assert "may write" in refused.stderr


NEWER = (*MIGRATIONS, Migration("ALTER TABLE entry ADD COLUMN length BIGINT"))


def test_only_the_owner_migrates(as_role: Callable[[str], str]) -> None:
    talk(as_role("owner"), "monday", "My cat Miso is allergic to chicken.")
    with pytest.raises(StoreUnavailable, match="open it once as the owner"):
        open_engine(StoreUrl(as_role("host")), Config(), SystemClock(), migrations=NEWER)
    for role in ("owner", "host"):
        open_engine(StoreUrl(as_role(role)), Config(), SystemClock(), migrations=NEWER).close()


def test_a_password_is_in_no_message_when_the_connection_fails(
    own_server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the environment, a password file and a service file: not in an error, its causes, a log or a command."""
    url = own_server.url()
    open_engine(StoreUrl(url), Config(), SystemClock()).close()
    passfile, service = tmp_path / "pass", tmp_path / "service"
    passfile.write_text("*:*:*:*:hunter2horse\n")
    passfile.chmod(0o600)
    service.write_text(f"[memory]\nhost=127.0.0.1\nport={own_server.port}\nuser=postgres\npassword=hunter2horse\n")
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    for names, target in (
        ({"PGPASSWORD": "hunter2horse"}, url),
        ({"PGPASSFILE": str(passfile)}, url),
        ({"PGSERVICEFILE": str(service)}, "postgresql://?service=memory"),
    ):
        with monkeypatch.context() as environment:
            for name, value in names.items():
                environment.setenv(name, value)
            with blocking.open(target, QUICK) as memory:
                shown += [str(finding) for finding in memory.check()]
                own_server.stop("immediate")
                with pytest.raises(StoreError) as caught:
                    memory.space("user:ada").add("Ada keeps bees")
                shown += _with_causes(caught.value)
            with pytest.raises(StoreError) as caught, blocking.open(target, QUICK):
                pass
            shown += _with_causes(caught.value)
            done = run_cli(target, "doctor")
            shown += [done.stdout, done.stderr]
            own_server.start()
    shown += [caplog.text, *(str(vars(record)) for record in caplog.records)]
    assert any("cannot be reached" in text for text in shown)
    assert [text for text in shown if "hunter2" in text] == []


def _with_causes(error: BaseException | None) -> list[str]:
    texts = []
    while error is not None:
        texts += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    return texts


def _server(url: str) -> Any:
    engine = open_engine(StoreUrl(url), Config(), SystemClock())
    engine.close()
    return engine.server
