"""The plugin for opencode, run by Node without opencode."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from afterturn import blocking
from afterturn.hosts.hooks import control
from afterturn.hosts.hooks.clients import opencode_plugin
from lab.clients.setup import BIN

_PROGRAM = """
import { AfterturnPlugin } from "./plugin.mjs"
const plugin = await AfterturnPlugin({ directory: "/" })
const info = { id: "child", parentID: "top" }
await plugin.event({ event: { type: "session.created", properties: { info } } })
const call = { sessionID: "child", tool: "bash", callID: "c" }
await plugin["tool.execute.before"](call, { args: { command: "git push origin main" } })
"""


@pytest.mark.clients
def test_a_firm_rule_refuses_a_call_of_a_sub_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T1: the call of a child session is checked as well."""
    settings = {"STATE": tmp_path / "state", "STORE": tmp_path / "memory.db", "SPACE": "user:ada", "EMBEDDER": "none"}
    for name, value in settings.items():
        monkeypatch.setenv(f"AFTERTURN_{name}", str(value))
    with blocking.open(tmp_path / "memory.db", {"embedder": "none"}, background=False) as memory:
        memory.space("user:ada").add("Never push to main", firm=True)
    (tmp_path / "plugin.mjs").write_text(opencode_plugin())
    (tmp_path / "run.mjs").write_text(_PROGRAM)
    try:
        command = [str(BIN / "node"), str(tmp_path / "run.mjs")]
        done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=60)
    finally:
        control.stop_helpers()
    assert "Refused by your rule: Never push to main" in done.stderr


_TURN = """
import { AfterturnPlugin } from "./plugin.mjs"
const plugin = await AfterturnPlugin({ directory: "/" })
const parts = [{ type: "text", text: "My cat is called Miso." }]
await plugin["chat.message"]({ sessionID: "s" }, { message: { id: "m" }, parts })
await plugin.event({ event: { type: "session.idle", properties: { sessionID: "s" } } })
"""


def reported(folder: Path, program: str) -> list[dict[str, Any]]:
    """The events that the plugin reports when `program` runs."""
    copy = f"import sys; open({str(folder / 'events')!r}, 'a').write(sys.stdin.read() + chr(10))"
    command = f"const COMMAND = {json.dumps([sys.executable, '-c', copy])}"
    (folder / "plugin.mjs").write_text(re.sub("const COMMAND = .*", lambda _: command, opencode_plugin()))
    (folder / "run.mjs").write_text(program)
    subprocess.run([str(BIN / "node"), str(folder / "run.mjs")], check=True, timeout=60)
    return [json.loads(line) for line in (folder / "events").read_text().splitlines()]


@pytest.mark.clients
def test_the_end_of_a_turn_repeats_its_prompt(tmp_path: Path) -> None:
    """A helper that was started during the turn does not know what the user said, and opencode has no transcript."""
    asked, ended = reported(tmp_path, _TURN)
    assert asked["prompt"] == ended["prompt"] == "My cat is called Miso."


_COMMAND = """
import { AfterturnPlugin } from "./plugin.mjs"
const plugin = await AfterturnPlugin({ directory: "/" })
await plugin["command.execute.before"]({ command: "release", sessionID: "s", arguments: "now" }, { parts: [] })
const parts = [{ type: "text", text: "Remember that I want tuna." }]
await plugin["chat.message"]({ sessionID: "s" }, { message: { id: "m" }, parts })
const state = { status: "error", error: "no such file" }
const part = { type: "tool", sessionID: "s", callID: "c", tool: "read", state }
for (const _ of [1, 2]) await plugin.event({ event: { type: "message.part.updated", properties: { part } } })
"""


@pytest.mark.clients
def test_the_text_of_a_command_is_not_the_prompt_and_a_failed_tool_is_reported_once(tmp_path: Path) -> None:
    """G2b: opencode passes the text of a command like a message of the user."""
    asked, failed = reported(tmp_path, _COMMAND)
    assert (asked["prompt"], asked["loaded"]) == ("/release now", "Remember that I want tuna.")
    assert (failed["tool_name"], failed["tool_use_id"], failed["error"]) == ("read", "c", "no such file")
