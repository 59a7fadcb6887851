"""The plugin for opencode, run by Node without opencode."""

import os
import subprocess
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
