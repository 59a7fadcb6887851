"""Codex: hook text becomes a developer message. At a tool's call or result it would stand before the call's output."""

from __future__ import annotations

from afterturn.hosts.hooks.clients.hook_client import HookClient, RegisteredEvent, SessionText


class Codex(HookClient):
    name = "codex"
    events = (
        RegisteredEvent("SessionStart", 10),
        RegisteredEvent("UserPromptSubmit", 10),
        RegisteredEvent("PreToolUse", 5, matcher="*"),
        RegisteredEvent("PostToolUse", 5, matcher="*"),
        RegisteredEvent("SubagentStop", 5),
        RegisteredEvent("Stop", 10),
    )
    trusted_only = True
    takes_after_compaction = True
    session_text = SessionText.ONCE
