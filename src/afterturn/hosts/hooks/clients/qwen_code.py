"""Qwen Code: hook text is a part of the user's message or of the tool's text. Each start makes a new system message."""

from __future__ import annotations

from afterturn.hosts.hooks.clients.hook_client import HookClient, RegisteredEvent, SessionText
from afterturn.hosts.hooks.events import EventKind, Payload, text_of


class QwenCode(HookClient):
    name = "qwen-code"
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
    takes_late = True
    session_text = SessionText.ALWAYS

    def text(self, kind: EventKind, payload: Payload) -> str:
        if kind is EventKind.PROMPT:
            # Before every tool follow-up the event comes again with an empty prompt.
            return text_of(payload, "submitted_prompt") if text_of(payload, "prompt") else ""
        return super().text(kind, payload)

    def loaded(self, payload: Payload) -> str:
        # The prompt has the text of commands and files. In its vim mode Qwen Code does not say what was typed.
        return "" if text_of(payload, "submitted_prompt") else text_of(payload, "prompt")
