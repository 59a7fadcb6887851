"""Memory on a server, as programs and commands use it: turns, a second process, forgetting, settings, errors."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import afterturn
from afterturn import blocking
from afterturn.config import Config, StoreUrl, spill_folder
from afterturn.errors import StoreError, StoreUnavailable
from afterturn.oneshot import recall_block_once, recall_once
from child_process import run_program
from lab.postgres.server import PostgresServer

pytestmark = pytest.mark.postgres

RunSql = Callable[..., list[tuple[Any, ...]]]
QUICK = {"embedder": "none", "grace": 5.0}
CHICKEN = "My cat Miso is allergic to chicken."
QUESTION = "What food is my cat allergic to?"


def say(memory: blocking.Memory, conversation: str, text: str) -> str:
    """One turn. Returns the block."""
    messages: list[dict[str, str]] = [{"role": "user", "content": text}]
    with memory.conversation(conversation, user="ada").turn(messages) as turn:
        turn.inject(messages)
        blocks = [message["content"] for message in messages[1:]]
        messages.append({"role": "assistant", "content": "Noted."})
    assert turn.wait_recorded(within=20.0)
    return "".join(blocks)


def wait_for_file(folder: Path) -> None:
    """Returns when a turn waits there."""
    gate = threading.Event()
    for _ in range(400):
        if list(folder.rglob("*.json")):
            return
        gate.wait(0.05)
    raise AssertionError("no turn waits")


def run_cli(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "afterturn", *arguments],
        env={**os.environ, "AFTERTURN_STORE": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_a_turn_is_recalled_in_the_next_conversation(url: str) -> None:
    """R1, C1: with an event loop, by the URL alone."""
    async with afterturn.open(url, QUICK) as memory:
        messages: list[dict[str, str]] = [{"role": "user", "content": CHICKEN}]
        async with memory.conversation("monday", user="ada").turn(messages) as turn:
            messages.append({"role": "assistant", "content": "Noted."})
        assert await turn.wait_recorded(within=20.0)
    async with afterturn.open(url, QUICK) as memory:
        messages = [{"role": "user", "content": QUESTION}]
        async with memory.conversation("tuesday", user="ada").turn(messages) as turn:
            await turn.inject(messages)
        assert CHICKEN in messages[-1]["content"]


def test_what_one_process_records_another_recalls_while_both_run(url: str) -> None:
    """C2: no process recalls a stale state, and none recalls what another has forgotten."""
    with blocking.open(url, QUICK) as memory:
        assert say(memory, "one", "What do I keep?") == ""
        program = f"""
            import afterturn.blocking as blocking
            with blocking.open({url!r}, {QUICK!r}) as memory:
                messages = [{{"role": "user", "content": {CHICKEN!r}}}]
                with memory.conversation("there", user="ada").turn(messages) as turn:
                    messages.append({{"role": "assistant", "content": "Noted."}})
                assert turn.wait_recorded(within=20.0)
        """
        run_program("\n".join(line[12:] for line in program.splitlines()))
        assert CHICKEN in say(memory, "two", QUESTION)
        program = f"""
            import afterturn.blocking as blocking
            with blocking.open({url!r}, {QUICK!r}) as memory:
                print(memory.space("user:ada").forget(conversation="there"))
        """
        said = run_program("\n".join(line[12:] for line in program.splitlines()))
        assert "write-ahead log" in said
        assert CHICKEN not in say(memory, "three", QUESTION)


def test_vectors_are_stored_and_used(url: str) -> None:
    """M3: the built-in embedder works as on a file."""
    with blocking.open(url) as memory:
        memory.space("user:ada").add("Ada's favourite animal is the honey bee")
        assert memory.ready(within=60.0)
        assert memory.drain(within=60.0)
        assert memory.stats()["vectors_waiting"] == 0
        [hit] = memory.space("user:ada").search("favourite animal").hits
        assert hit.similarity is not None


def test_a_killed_host_keeps_nobody_waiting_and_loses_nothing(url: str, run_sql: RunSql) -> None:
    """C2: kill -9 at any moment; what it had acknowledged is there, and another host goes on at once."""
    program = f"""
import afterturn.blocking as blocking
with blocking.open({url!r}, {QUICK!r}) as memory:
    for number in range(100000):
        memory.space("user:ada").add(f"statement number{{number}}")
        print(number, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        acknowledged = [int(host.stdout.readline()) for _ in range(30)]
        host.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in host.stdout if line.endswith("\n")]
    with blocking.open(url, QUICK) as memory:
        memory.space("user:ada").add("Ada keeps bees")
        found = {entry.text for entry in memory.space("user:ada").list(limit=1000)}
    assert {f"statement number{number}" for number in acknowledged} <= found
    # At most the one write that was under way.
    assert len(found) <= len(acknowledged) + 2


def test_turns_of_two_processes_in_one_conversation_get_their_own_positions(url: str, run_sql: RunSql) -> None:
    """C2: two hosts of one user."""
    program = f"""
import sys
import afterturn.blocking as blocking
with blocking.open({url!r}, {QUICK!r}) as memory:
    for number in range(15):
        messages = [{{"role": "user", "content": f"I met person{{number}}{{sys.argv[1]}} today."}}]
        with memory.conversation("shared", user="ada").turn(messages) as turn:
            messages.append({{"role": "assistant", "content": "Nice."}})
        assert turn.wait_recorded(within=30.0)
"""
    hosts = [subprocess.Popen([sys.executable, "-c", program, name]) for name in ("a", "b")]
    assert [host.wait(100) for host in hosts] == [0, 0]
    schema = StoreUrl(url).schema
    counted = run_sql(
        f"SELECT count(*), count(DISTINCT position), max(position) FROM {schema}.entry WHERE kind = 'record'"
    )
    assert counted == [(60, 60, 59)]


def test_a_turn_waits_in_a_file_while_the_server_is_away(own_server: PostgresServer, tmp_path: Path) -> None:
    """C2: the host's turn goes on without memory, and the recording is stored when the server is back."""
    settings = {**QUICK, "busy_timeout": 0.3, "spill_folder": str(tmp_path / "waiting"), "grace": 0.2}
    with blocking.open(own_server.url(), settings) as memory:
        own_server.stop()
        messages = [{"role": "user", "content": CHICKEN}]
        with memory.conversation("monday", user="ada").turn(messages) as turn:
            turn.inject(messages)
            messages.append({"role": "assistant", "content": "Noted."})
        assert len(messages) == 2
        wait_for_file(tmp_path / "waiting")
        own_server.start()
        assert memory.drain(within=60.0)
        assert list((tmp_path / "waiting").rglob("*.json")) == []
    with blocking.open(own_server.url(), QUICK) as memory:
        assert CHICKEN in say(memory, "tuesday", QUESTION)


def test_recall_once_reads_a_server_and_creates_nothing(url: str, run_sql: RunSql) -> None:
    with pytest.raises(StoreUnavailable, match="Open it once"):
        recall_once("bees", user="ada", store=url)
    assert run_sql(f"SELECT 1 FROM pg_namespace WHERE nspname = '{StoreUrl(url).schema}'") == []
    with blocking.open(url, QUICK) as memory:
        memory.space("user:ada").add("Ada keeps bees")
    assert [hit.entry.text for hit in recall_once("bees", user="ada", store=url).hits] == ["Ada keeps bees"]
    assert "Ada keeps bees" in recall_block_once("What does Ada keep?", user="ada", store=url)


def test_commands_take_the_url_from_the_environment(url: str) -> None:
    assert run_cli(url, "add", "Ada keeps bees", "--space", "user:ada").returncode == 0
    assert "Ada keeps bees" in run_cli(url, "search", "bees", "--space", "user:ada").stdout
    stats = json.loads(run_cli(url, "stats", "--json").stdout)
    assert stats["store"]["entries"] == {"statement.active": 1}
    findings = run_cli(url, "doctor", "--json")
    assert "PostgreSQL 1" in findings.stdout


@pytest.mark.parametrize("arguments", [["list"], ["search", "bees"], ["stats"], ["doctor"], ["worker", "--status"]])
def test_commands_that_read_create_no_store(url: str, run_sql: RunSql, arguments: list[str]) -> None:
    """In the words that are used for a file."""
    done = run_cli(url, *arguments)
    assert done.returncode != 0
    assert "There is no store at postgresql://" in done.stdout + done.stderr
    assert run_sql(f"SELECT 1 FROM pg_namespace WHERE nspname = '{StoreUrl(url).schema}'") == []


def test_the_size_is_that_of_the_tables(url: str, run_sql: RunSql) -> None:
    schema = StoreUrl(url).schema
    with blocking.open(url, QUICK) as memory:
        memory.space("user:ada").add("Ada keeps bees")
        size = memory.stats()["size_bytes"]
    tables = run_sql(
        f"SELECT pg_total_relation_size(oid) FROM pg_class WHERE relname = 'entry' "
        f"AND relnamespace = '{schema}'::regnamespace"
    )
    assert size > tables[0][0] > 0


def test_a_check_reports_a_server_that_is_down(own_server: PostgresServer, tmp_path: Path) -> None:
    """L1: an error among the findings, next to those that need no server."""
    settings = {**QUICK, "spill_folder": str(tmp_path), "busy_timeout": 0.0, "background": False}
    with blocking.open(own_server.url(), settings) as memory:
        assert [one for one in memory.check() if one.level == "error"] == []
        own_server.stop()
        findings = memory.check()
        [error] = [one for one in findings if one.level == "error"]
        assert (error.subject, "cannot be reached" in error.message) == ("store", True)
        own_server.start()
        assert [one for one in memory.check() if one.level == "error"] == []
    own_server.stop()
    done = run_cli(own_server.url(), "doctor")
    assert (done.returncode, done.stderr) == (1, "")
    assert "cannot be reached" in done.stdout


def test_copies_of_files_are_left_to_the_server(url: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with blocking.open(url, QUICK) as memory:
        with pytest.raises(StoreError, match="pg_dump"):
            memory.backup(copy)
        with pytest.raises(StoreError, match="pg_restore"):
            memory.restore(copy)
    with pytest.raises(StoreUnavailable, match="pg_restore"):
        blocking.rescue(url, copy)
    assert not copy.exists()


def test_forget_says_where_the_server_still_has_the_bytes(url: str) -> None:
    """M2: no query finds the text, and nothing has to be tried again."""
    with blocking.open(url, QUICK) as memory:
        ada = memory.space("user:ada")
        forgotten = ada.forget(memory=ada.add("Ada keeps bees").entry.id)
        kept = ada.add("Ada likes tea").entry.id
    assert (forgotten.state, [remaining.retry for remaining in forgotten.remaining]) == ("erased", [False] * 5)
    shown = run_cli(url, "forget", kept, "--yes", "--space", "user:ada").stdout
    assert "the server's write-ahead log and its archive, until they are recycled and deleted" in shown


def test_a_password_is_never_shown(url: str, capfd: pytest.CaptureFixture[str], caplog: Any) -> None:
    """Not in a repr, a statistic, an error, a log or a finding."""
    locked_url = url.replace("memory@", "memory:hunter2horse@")
    with blocking.open(locked_url, QUICK) as memory:
        shown = [repr(memory), repr(memory.config), repr(StoreUrl(locked_url)), json.dumps(memory.stats())]
        shown += [str(finding) for finding in memory.check()]
    for wrong in (locked_url.replace("/postgres?", "/nothing?"), f"{locked_url}&nonsense=1"):
        with pytest.raises(StoreError) as caught, blocking.open(wrong, QUICK):
            pass
        shown.append(str(caught.value))
    shown.append(run_cli(locked_url.replace("/postgres?", "/nothing?"), "stats").stderr)
    shown += [caplog.text, *capfd.readouterr()]
    assert len(shown) > 8
    assert [text for text in shown if "hunter2" in text] == []


def test_two_stores_of_one_database_share_nothing(url: str, run_sql: RunSql) -> None:
    other = url.replace("schema=", "schema=other_")
    try:
        for place, text in ((url, "Ada keeps bees"), (other, "Ada keeps goats")):
            with blocking.open(place, QUICK) as memory:
                memory.space("user:ada").add(text)
                assert [entry.text for entry in memory.space("user:ada").list()] == [text]
        assert spill_folder(Config(), StoreUrl(url)) != spill_folder(Config(), StoreUrl(other))
    finally:
        run_sql(f"DROP SCHEMA {StoreUrl(other).schema} CASCADE")


def test_a_turn_with_nul_characters_is_recorded(url: str) -> None:
    """H2, C1: PostgreSQL stores no NUL, so records have a mark in its place."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "My cat\0 Miso is allergic to chicken."}]
    with blocking.open(url, QUICK) as memory:
        with memory.conversation("talk", user="ada").turn(messages) as turn:
            turn.inject(messages)
            call = {"id": "c\0", "type": "function", "function": {"name": "look\0", "arguments": '{"a": "\0"}'}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": "c\0", "content": "Chicken\0 is not good for Miso."})
            messages.append({"role": "assistant", "content": "Noted\0."})
        assert turn.wait_recorded(within=20.0)
        assert "allergic" in say(memory, "other", QUESTION)
        entries = memory.space("user:ada").list(limit=20)
    assert "My cat\ufffd Miso is allergic to chicken." in [entry.text for entry in entries]
