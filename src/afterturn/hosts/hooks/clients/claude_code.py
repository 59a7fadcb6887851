"""Claude Code: hook text becomes a system message, which stays in the session when it is resumed."""

from __future__ import annotations

from afterturn.hosts.hooks.clients.hook_client import HookClient, RegisteredEvent, SessionText
from afterturn.hosts.hooks.events import EventKind, HookEvent, Payload


class ClaudeCode(HookClient):
    name = "claude-code"
    events = (
        RegisteredEvent("SessionStart", 10),
        RegisteredEvent("UserPromptSubmit", 10),
        RegisteredEvent("PreToolUse", 5, matcher="*"),
        RegisteredEvent("PostToolUse", 5, matcher="*"),
        RegisteredEvent("PostToolUseFailure", 5, matcher="*"),
        RegisteredEvent("SubagentStop", 5),
        RegisteredEvent("Stop", 10),
        RegisteredEvent("SessionEnd", 5),
    )
    trusted_only = True
    takes_late = True
    takes_at_call = True
    takes_after_compaction = True
    session_text = SessionText.ONCE

    def read(self, name: str, payload: Payload) -> HookEvent | None:
        event = super().read(name, payload)
        if event is not None and event.kind is EventKind.SUBAGENT_STOP and not payload.get("agent_type"):
            # A compaction ends with this event too.
            return None
        return event
