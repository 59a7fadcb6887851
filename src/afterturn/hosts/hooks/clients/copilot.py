"""Copilot CLI: payloads in camelCase, answers without `hookSpecificOutput`."""

from __future__ import annotations

import json
from typing import Any

from afterturn.hosts.hooks.clients.hook_client import HookClient, RegisteredEvent, shorten
from afterturn.hosts.hooks.events import EventKind, HookAnswer, HookEvent, Payload, session_of, text_of

_KINDS = {
    "sessionStart": EventKind.SESSION_START,
    "userPromptSubmitted": EventKind.PROMPT,
    "preToolUse": EventKind.TOOL_CALL,
    "postToolUse": EventKind.TOOL_RESULT,
    "postToolUseFailure": EventKind.TOOL_RESULT,
    "agentStop": EventKind.TURN_END,
    "sessionEnd": EventKind.SESSION_END,
}


class Copilot(HookClient):
    name = "copilot"
    events = (
        RegisteredEvent("sessionStart", 10),
        RegisteredEvent("userPromptSubmitted", 10),
        RegisteredEvent("preToolUse", 5),
        RegisteredEvent("postToolUse", 5),
        RegisteredEvent("postToolUseFailure", 5),
        RegisteredEvent("agentStop", 10),
        RegisteredEvent("sessionEnd", 5),
    )
    reports_compactions = False
    writes_transcript_late = True
    kinds = _KINDS

    def read(self, name: str, payload: Payload) -> HookEvent | None:
        kind = self.kinds.get(name)
        if kind is None:
            return None
        return HookEvent(
            client=self.name,
            name=name,
            kind=kind,
            session=session_of(payload, "sessionId"),
            cwd=text_of(payload, "cwd", chars_max=4096),
            text=self.text(kind, payload),
            source=text_of(payload, "source", chars_max=100),
            tool=text_of(payload, "toolName", chars_max=200),
            arguments=_arguments(payload.get("toolArgs")),
            call=text_of(payload, "toolCallId", chars_max=200),
            transcript=text_of(payload, "transcriptPath", chars_max=4096),
        )

    def text(self, kind: EventKind, payload: Payload) -> str:
        if kind is EventKind.PROMPT:
            return text_of(payload, "prompt")
        if kind is EventKind.TOOL_RESULT:
            return shorten(payload.get("toolResult", payload.get("error")))
        return ""

    def write(self, event: HookEvent, answer: HookAnswer) -> dict[str, Any]:
        if answer.refusal and event.kind is EventKind.TOOL_CALL:
            return {"permissionDecision": "deny", "permissionDecisionReason": answer.refusal}
        return {"additionalContext": answer.context} if answer.context and self.takes(event.kind) else {}


def _arguments(value: Any) -> Any:
    """Copilot gives a tool's arguments as a JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return {"arguments": value}
