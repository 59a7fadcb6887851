"""`afterturn mcp` over stdio, with the real client of the SDK and a real process, in both eras of the protocol."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mcp_clients import ERAS, WITHIN, ask, over_stdio

from afterturn import blocking
from afterturn.conversation.scope import clean_name
from afterturn.hosts.projects import find_project


@pytest.fixture(autouse=True)
def _state_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_writes_and_finds_memories(tmp_path: Path, mode: str):
    async with over_stdio(tmp_path, "--client", "codex", mode=mode) as client:
        assert client.protocol_version == ERAS[mode]
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == [
            "search_memory",
            "add_memory",
            "update_memory",
            "delete_memory",
            "list_memories",
        ]
        assert all(tool.output_schema is None for tool in tools)
        reading = [tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint]
        assert reading == ["search_memory", "list_memories"]
        assert (await ask(client, "add_memory", text="The deploy script is tools/deploy")).startswith("Saved: [")
        waits = await ask(client, "add_memory", text="Prefers short answers", kind="preference")
        assert waits == "It waits for approval: `afterturn inbox`."
        assert "tools/deploy" in await ask(client, "search_memory", query="Where is the deploy script?")
        assert "tools/deploy" in await ask(client, "list_memories")
    with blocking.open(tmp_path / "memory.db") as memory:
        (fact,) = memory.space(find_project(tmp_path).space).list()
        assert (fact.text, fact.metadata["client"]) == ("The deploy script is tools/deploy", "codex")
        assert [entry.text for entry in memory.space("user:ada").proposals()] == ["Prefers short answers"]


async def test_a_search_can_leave_out_other_projects(tmp_path: Path):
    """A2, B1: the scope narrows what the starter granted, and never reaches another space."""
    with blocking.open(tmp_path / "memory.db") as memory:
        space = memory.space("user:ada")
        space.add("The billing service deploys on Fridays", project="other")
        here = clean_name(find_project(tmp_path).name, "project", scanning=memory.config.scan_policy)
        space.add("The billing service deploys with tools/ship", project=here)
        space.add("The billing service is written in Go")
        memory.space("team:all").add("The billing service deploys to Oslo")
    async with over_stdio(tmp_path) as client:
        (search,) = [tool for tool in (await client.list_tools()).tools if tool.name == "search_memory"]
        assert search.input_schema["properties"]["scope"]["enum"] == ["project", "global"]
        query = "How does the billing service deploy?"
        here = await ask(client, "search_memory", query=query, scope="project")
        everywhere = await ask(client, "search_memory", query=query, scope="global")
        assert await ask(client, "search_memory", query=query) == everywhere
        refused = await client.call_tool("search_memory", {"query": query, "scope": "team:all"})
    assert ("tools/ship" in here, "in Go" in here, "Fridays" in here, "Oslo" in here) == (True, True, False, False)
    assert ("tools/ship" in everywhere, "Fridays" in everywhere, "Oslo" in everywhere) == (True, True, False)
    assert refused.is_error


async def test_the_handshake_brings_the_instructions(tmp_path: Path):
    async with over_stdio(tmp_path) as client:
        assert "search_memory: before you ask the user" in (client.instructions or "")
        assert client.server_info.name == "afterturn"


async def test_a_reader_is_offered_two_tools(tmp_path: Path):
    async with over_stdio(tmp_path, "--read-only") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["search_memory", "list_memories"]
        refused = await client.call_tool("add_memory", {"text": "x"})
        assert refused.is_error


async def test_another_space_is_named_by_its_starter_alone(tmp_path: Path):
    with blocking.open(tmp_path / "memory.db") as memory:
        memory.space("user:ada").add("Ada lives in Oslo")
        memory.space("team:all").add("The office is closed on Friday")
    async with over_stdio(tmp_path, "--space", "team:all") as client:
        listed = await ask(client, "list_memories")
        assert "The office" in listed
        assert "Oslo" not in listed
        refused = await client.call_tool("list_memories", {"space": "user:ada"})
        assert refused.is_error


@pytest.mark.parametrize("damage", ["no folder", "no store", "settings"])
async def test_a_broken_store_is_an_answer_and_no_crash(tmp_path: Path, damage: str):
    """B3: the client connects, gets the list of tools, and is told at a call; later the store works."""
    variables = {}
    if damage == "no folder":
        (tmp_path / "file").write_text("x", encoding="utf-8")
        variables["AFTERTURN_STORE"] = str(tmp_path / "file" / "memory.db")
    elif damage == "no store":
        (tmp_path / "memory.db").write_text("This is not a store.", encoding="utf-8")
    else:
        config = tmp_path / "config.toml"
        config.write_text("grace = [", encoding="utf-8")
        variables["AFTERTURN_CONFIG"] = str(config)
    async with over_stdio(tmp_path, **variables) as client:
        assert len((await client.list_tools()).tools) == 5
        for name, arguments in (("search_memory", {"query": "tea"}), ("add_memory", {"text": "Ada drinks tea"})):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert len(result.content[0].text) < 400
        (tmp_path / "file").unlink(missing_ok=True)
        (tmp_path / "memory.db").unlink(missing_ok=True)
        (tmp_path / "config.toml").write_text("grace = 0.1", encoding="utf-8")
        (tmp_path / "file").mkdir()
        assert (await ask(client, "search_memory", query="tea")).startswith("Nothing relevant")


def talk(folder: Path, *lines: bytes) -> dict[int, dict]:
    """Sends raw lines, and returns the answers by their id when the last one is there. All of stdout must be JSON."""
    known = {**os.environ, "AFTERTURN_STORE": str(folder / "memory.db")}
    last, answers, pipe = json.loads(lines[-1])["id"], {}, subprocess.PIPE
    command = [sys.executable, "-m", "afterturn", "mcp"]
    with subprocess.Popen(command, env=known, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for line in lines:
            child.stdin.write(line + b"\n")
        child.stdin.flush()
        while last not in answers:
            answer = json.loads(child.stdout.readline())
            answers[answer.get("id")] = answer
        rest, errors = child.communicate(timeout=WITHIN)
    assert (child.returncode, rest) == (0, b"")
    assert b"Traceback" not in errors
    return answers


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_while_the_client_still_holds_the_pipe(tmp_path: Path, number: signal.Signals):
    known = {**os.environ, "AFTERTURN_STORE": str(tmp_path / "memory.db")}
    command, pipe = [sys.executable, "-m", "afterturn", "mcp"], subprocess.PIPE
    with subprocess.Popen(command, env=known, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(HELLO).encode() + b"\n")
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["id"] == 1
        child.send_signal(number)
        assert child.wait(timeout=WITHIN) == 0
        assert child.stderr is not None
        assert child.stderr.read() == b""


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def test_the_oldest_version_is_spoken_too(tmp_path: Path):
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_memories", "arguments": {}}}
    answers = talk(tmp_path, *(json.dumps(message).encode() for message in (HELLO, READY, call)))
    assert answers[1]["result"]["protocolVersion"] == "2024-11-05"
    assert answers[2]["result"]["content"] == [{"type": "text", "text": "There are no memories yet."}]


def test_hostile_lines_do_not_stop_the_server(tmp_path: Path):
    call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "list_memories", "arguments": {}}}
    hostile = [
        b"{",
        b"\xff\xfe\x00",
        b"[" * 5_000,
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":7}}',
        b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"add_memory","arguments":"x"}}',
        b'{"jsonrpc":"2.0","id":4,"method":"no/such"}',
        json.dumps(
            {**call, "id": 5, "params": {"name": "add_memory", "arguments": {"text": "x" * 10_000_000}}}
        ).encode(),
    ]
    lines = [json.dumps(HELLO).encode(), json.dumps(READY).encode(), *hostile, json.dumps(call).encode()]
    answers = talk(tmp_path, *lines)
    assert all("error" in answers[number] for number in (2, 3, 4))
    assert answers[5]["result"]["isError"]
    assert answers[9]["result"]["content"][0]["text"] == "There are no memories yet."
