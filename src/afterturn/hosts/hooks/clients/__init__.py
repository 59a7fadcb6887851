"""The clients whose hooks are understood, the events that are registered for each, and the command of a hook."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from afterturn.hosts.hooks.clients.claude_code import ClaudeCode
from afterturn.hosts.hooks.clients.codex import Codex
from afterturn.hosts.hooks.clients.copilot import Copilot
from afterturn.hosts.hooks.clients.gemini_cli import GeminiCli
from afterturn.hosts.hooks.clients.hook_client import HookClient, RegisteredEvent
from afterturn.hosts.hooks.clients.opencode import Opencode
from afterturn.hosts.hooks.clients.qwen_code import QwenCode

CLIENTS: dict[str, HookClient] = {
    client.name: client for client in (ClaudeCode(), GeminiCli(), QwenCode(), Codex(), Opencode(), Copilot())
}
HOOK_EVENTS: dict[str, tuple[RegisteredEvent, ...]] = {name: client.events for name, client in CLIENTS.items()}
"""The events that an installer registers, with timeouts in the client's own unit. Empty for opencode: its plugin
(`OPENCODE_PLUGIN`) starts the script itself."""

SCRIPT = Path(__file__).resolve().parent.parent / "client.py"
OPENCODE_PLUGIN = Path(__file__).resolve().parent / "opencode_plugin.js"


def hook_arguments(client: str, event: str) -> list[str]:
    """The command that a client runs for an event, as a list."""
    return [sys.executable, "-I", "-S", str(SCRIPT), client, event]


def hook_command(client: str, event: str) -> str:
    """The command that a client runs for an event, for a shell.

    Clients take exit code 2 for a refusal, and Python ends with it if the script is gone. A package that was removed
    must not refuse anything.
    """
    return f"{shlex.join(hook_arguments(client, event))} || true"


def opencode_plugin() -> str:
    """The text of the plugin for opencode, with the command of this installation in it."""
    import json

    text = OPENCODE_PLUGIN.read_text(encoding="utf-8")
    return text.replace('["@COMMAND@"]', json.dumps(hook_arguments("opencode", "EVENT")[:-1]))
