"""The plugin for opencode, run by Node without opencode."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.clients
def test_the_end_of_a_turn_repeats_its_prompt(tmp_path: Path) -> None:
    """A helper that was started during the turn does not know what the user said, and opencode has no transcript."""
    copy = f"import sys; open({str(tmp_path / 'events')!r}, 'a').write(sys.stdin.read() + chr(10))"
    command = f"const COMMAND = {json.dumps([sys.executable, '-c', copy])}"
    plugin = re.sub("const COMMAND = .*", lambda _: command, opencode_plugin())
    (tmp_path / "plugin.mjs").write_text(plugin)
    (tmp_path / "run.mjs").write_text(_TURN)
    subprocess.run([str(BIN / "node"), str(tmp_path / "run.mjs")], check=True, timeout=60)
    asked, ended = map(json.loads, (tmp_path / "events").read_text().splitlines())
    assert asked["prompt"] == ended["prompt"] == "My cat is called Miso."
