"""A client of hooks: reads its payloads into events, and writes answers in its form.

The base class is the form that Claude Code introduced. Clients override what they do differently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from afterturn.hosts.hooks.events import EventKind, HookAnswer, HookEvent, Payload, session_of, text_of

_RESULT_CHARS_MAX = 20_000
_KINDS = {
    "SessionStart": EventKind.SESSION_START,
    "UserPromptSubmit": EventKind.PROMPT,
    "PreToolUse": EventKind.TOOL_CALL,
    "PostToolUse": EventKind.TOOL_RESULT,
    "PostToolUseFailure": EventKind.TOOL_RESULT,
    "SubagentStart": EventKind.SUBAGENT_START,
    "SubagentStop": EventKind.SUBAGENT_STOP,
    "Stop": EventKind.TURN_END,
    "SessionEnd": EventKind.SESSION_END,
}


class RegisteredEvent(NamedTuple):
    """An event that an installer registers. `timeout` is in the client's unit; `matcher` is blank if it takes none."""

    name: str
    timeout: int
    matcher: str = ""


class SessionText(StrEnum):
    """Where standing memories and the briefing go."""

    ONCE = "once"
    """Into the answer to the session's start. The client keeps it when the session is resumed."""
    ALWAYS = "always"
    """Into the answer to every start of the session: the client does not keep it."""
    WITH_PROMPT = "with_prompt"
    """In front of the first prompt's block: an answer to the session's start is lost, or loses something. The client
    keeps it like the block."""


class HookClient:
    """What differs between clients.

    - `trusted_only`: hook text becomes a system or developer message.
    - `takes_late`: text at a tool's result stays behind the result.
    - `takes_at_call`: text at a tool's call reaches the model behind the call's result.
    - `takes_after_compaction`: text in the answer to a compaction reaches the model.
    - `reports_compactions`: there is an event for every compaction.
    - `has_transcript_of_history`: compactions are seen in the transcript, which has what the model sees now.
    - `writes_transcript_late`: the end of a turn is in the transcript only some time after the event.
    - `shares_session`: a sub-agent's events have no id that tells them from those of the user's agent.
    - `plain_tools`: tools of such a client that start no sub-agent.
    - `expands_commands`: a prompt has the text of a command, and the transcript what the user typed.
    """

    name = ""
    events: tuple[RegisteredEvent, ...] = ()
    trusted_only = False
    takes_late = False
    takes_at_call = False
    takes_after_compaction = False
    reports_compactions = True
    has_transcript_of_history = False
    writes_transcript_late = False
    session_text = SessionText.WITH_PROMPT
    shares_session = False
    plain_tools: frozenset[str] = frozenset()
    expands_commands = False
    kinds: Mapping[str, EventKind] = _KINDS

    def read(self, name: str, payload: Payload) -> HookEvent | None:
        """The event, or None for one that means nothing to memory. Raises InvalidPayload."""
        kind = self.kinds.get(name)
        if kind is None:
            return None
        source = text_of(payload, "source", chars_max=100)
        if kind is EventKind.SESSION_START and source == "compact":
            kind = EventKind.COMPACTION
        return HookEvent(
            client=self.name,
            name=name,
            kind=kind,
            session=session_of(payload, "session_id"),
            cwd=text_of(payload, "cwd", chars_max=4096),
            text=self.text(kind, payload),
            loaded=self.loaded(payload) if kind is EventKind.PROMPT else "",
            prompt=text_of(payload, "prompt") if kind is EventKind.TURN_END else "",
            turn=text_of(payload, "prompt_id", "turn_id", chars_max=120),
            source=source,
            tool=text_of(payload, "tool_name", chars_max=200),
            arguments=payload.get("tool_input"),
            call=text_of(payload, "tool_use_id", "tool_call_id", chars_max=200),
            agent=text_of(payload, "agent_id", chars_max=200),
            transcript=text_of(payload, "transcript_path", chars_max=4096),
        )

    def text(self, kind: EventKind, payload: Payload) -> str:
        if kind is EventKind.PROMPT:
            return text_of(payload, "prompt")
        if kind is EventKind.TOOL_RESULT:
            return shorten(payload.get("tool_response", payload.get("error")))
        if kind in (EventKind.TURN_END, EventKind.SUBAGENT_STOP):
            return text_of(payload, "last_assistant_message")
        return ""

    def loaded(self, payload: Payload) -> str:
        """What the client itself has put into the user's message."""
        return ""

    def write(self, event: HookEvent, answer: HookAnswer) -> dict[str, Any]:
        """The answer as the client's JSON."""
        written: dict[str, Any] = {}
        if event.kind in (EventKind.TURN_END, EventKind.SESSION_END, EventKind.SUBAGENT_STOP):
            return written
        output: dict[str, Any] = {"hookEventName": event.name}
        if answer.refusal and event.kind is EventKind.TOOL_CALL:
            output |= {"permissionDecision": "deny", "permissionDecisionReason": answer.refusal}
        elif answer.context and self.takes(event.kind):
            output["additionalContext"] = answer.context
        if len(output) > 1:
            written["hookSpecificOutput"] = output
        if answer.notice:
            written["systemMessage"] = answer.notice
        return written

    def takes(self, kind: EventKind) -> bool:
        """Whether text in the answer to such an event reaches the model at a safe place."""
        match kind:
            case EventKind.PROMPT:
                return True
            case EventKind.SESSION_START:
                return self.session_text is not SessionText.WITH_PROMPT
            case EventKind.COMPACTION:
                return self.takes_after_compaction
            case EventKind.TOOL_CALL:
                return self.takes_at_call
            case EventKind.TOOL_RESULT:
                return self.takes_late
            case _:
                return False


def shorten(value: Any) -> str:
    """A tool's result as text: it is evidence for a review, so its beginning is enough."""
    if value is None:
        return ""
    if not isinstance(value, str):
        try:
            value = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            return ""
    text: str = value[:_RESULT_CHARS_MAX]
    return text.encode("utf-8", "replace").decode().replace("\0", "")
