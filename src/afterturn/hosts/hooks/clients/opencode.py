"""opencode: a plugin in JavaScript calls the same script, with payloads of our own making."""

from __future__ import annotations

from typing import Any

from afterturn.hosts.hooks.clients.hook_client import HookClient
from afterturn.hosts.hooks.events import EventKind, HookAnswer, HookEvent, Payload, text_of


class Opencode(HookClient):
    """The plugin uses Claude Code's names of events and fields. It adds the answer's text as a part of the user's
    message, and throws an error with the reason to refuse a call."""

    name = "opencode"
    takes_after_compaction = False

    def read(self, name: str, payload: Payload) -> HookEvent | None:
        event = super().read(name, payload)
        # A child session belongs to a sub-agent.
        return None if event is not None and text_of(payload, "parent_id", chars_max=200) else event

    def loaded(self, payload: Payload) -> str:
        return text_of(payload, "loaded")

    def write(self, event: HookEvent, answer: HookAnswer) -> dict[str, Any]:
        if answer.refusal and event.kind is EventKind.TOOL_CALL:
            return {"refusal": answer.refusal}
        return {"context": answer.context} if answer.context and self.takes(event.kind) else {}
