"""The clients whose hooks are understood: reads their payloads into events, and writes answers in their form.

The base class has the form that Claude Code introduced. Clients override what they do differently.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from afterturn.hosts.hooks.events import EventKind, HookAnswer, HookEvent, Payload, session_of, text_of
from afterturn.hosts.transcripts import REFERENCED_FILES

SCRIPT = Path(__file__).resolve().with_name("client.py")
OPENCODE_PLUGIN = SCRIPT.with_name("opencode_plugin.js")
_RESULT_CHARS_MAX = 20_000
# What the user waits for. Tools that are at work wait for other events.
_LONG_EVENTS = (EventKind.SESSION_START, EventKind.PROMPT, EventKind.TURN_END)
_TOOL_EVENTS = (EventKind.TOOL_CALL, EventKind.TOOL_RESULT)
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
    - `shows_notices`: it can show the user a line.
    - `expands_commands`: a prompt has the text of a command, and the transcript what the user typed.
    - `event_names`: the events that an installer registers, in words. `second` is one in the client's unit of time.
    """

    name = ""
    event_names = ""
    second = 1
    matcher = "*"
    session_field = "session_id"
    trusted_only = False
    takes_late = False
    takes_at_call = False
    takes_after_compaction = False
    reports_compactions = True
    has_transcript_of_history = False
    writes_transcript_late = False
    session_text = SessionText.WITH_PROMPT
    shares_session = False
    shows_notices = True
    plain_tools: frozenset[str] = frozenset()
    expands_commands = False
    kinds: Mapping[str, EventKind] = _KINDS

    @property
    def events(self) -> tuple[RegisteredEvent, ...]:
        return tuple(
            RegisteredEvent(
                name,
                self.second * (10 if self.kinds[name] in _LONG_EVENTS else 5),
                self.matcher if self.kinds[name] in _TOOL_EVENTS else "",
            )
            for name in self.event_names.split()
        )

    def read(self, name: str, payload: Payload) -> HookEvent | None:
        """The event, or None for one that means nothing to memory. Copilot CLI has camelCase. Raises InvalidPayload."""
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
            session=session_of(payload, self.session_field),
            cwd=text_of(payload, "cwd", chars_max=4096),
            text=self.text(kind, payload),
            loaded=self.loaded(payload) if kind is EventKind.PROMPT else "",
            prompt=text_of(payload, "prompt") if kind is EventKind.TURN_END else "",
            turn=text_of(payload, "prompt_id", "turn_id", chars_max=120),
            source=source,
            tool=text_of(payload, "tool_name", "toolName", chars_max=200),
            arguments=payload.get("tool_input"),
            call=text_of(payload, "tool_use_id", "tool_call_id", "toolCallId", chars_max=200),
            agent=text_of(payload, "agent_id", chars_max=200),
            transcript=text_of(payload, "transcript_path", "transcriptPath", chars_max=4096),
        )

    def text(self, kind: EventKind, payload: Payload) -> str:
        if kind is EventKind.PROMPT:
            return text_of(payload, "prompt")
        if kind is EventKind.TOOL_RESULT:
            results = (payload[name] for name in ("tool_response", "toolResult", "error") if name in payload)
            return shorten(next(results, None))
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


class ClaudeCode(HookClient):
    """Hook text becomes a system message, which stays in the session when it is resumed."""

    name = "claude-code"
    event_names = "SessionStart UserPromptSubmit PreToolUse PostToolUse PostToolUseFailure SubagentStop Stop SessionEnd"
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


class Codex(HookClient):
    """Hook text becomes a developer message. At a tool's call or result it would stand before the call's output."""

    name = "codex"
    event_names = "SessionStart UserPromptSubmit PreToolUse PostToolUse SubagentStop Stop"
    trusted_only = True
    takes_after_compaction = True
    session_text = SessionText.ONCE


class QwenCode(HookClient):
    """Hook text is a part of the user's message or of the tool's text. Each start makes a new system message."""

    name = "qwen-code"
    event_names = ClaudeCode.event_names
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


class GeminiCli(HookClient):
    """Hook text is a part of the user's message or of a tool's output, with `<` and `>` escaped.

    An answer to SessionStart makes a resumed session lose its first prompt, so it is always empty. PreCompress comes
    before every model call and says nothing about compactions: it is not registered. The transcript shows them.
    """

    name = "gemini-cli"
    event_names = "SessionStart BeforeAgent BeforeTool AfterTool AfterAgent SessionEnd"
    second = 1_000
    takes_late = True
    has_transcript_of_history = True
    shares_session = True
    expands_commands = True
    plain_tools = frozenset(
        "read_file read_many_files write_file replace glob grep_search search_file_content list_directory "
        "run_shell_command web_fetch google_web_search".split()
    )
    kinds: Mapping[str, EventKind] = {
        "SessionStart": EventKind.SESSION_START,
        "BeforeAgent": EventKind.PROMPT,
        "BeforeTool": EventKind.TOOL_CALL,
        "AfterTool": EventKind.TOOL_RESULT,
        "AfterAgent": EventKind.TURN_END,
        "SessionEnd": EventKind.SESSION_END,
    }

    def text(self, kind: EventKind, payload: Payload) -> str:
        if kind is EventKind.TURN_END:
            return text_of(payload, "prompt_response")
        text = super().text(kind, payload)
        return text.partition(REFERENCED_FILES)[0].rstrip() if kind is EventKind.PROMPT else text

    def loaded(self, payload: Payload) -> str:
        # The content of the files that a prompt names with @ is at its end.
        return text_of(payload, "prompt").partition(REFERENCED_FILES)[2]

    def write(self, event: HookEvent, answer: HookAnswer) -> dict[str, Any]:
        if answer.refusal and event.kind is EventKind.TOOL_CALL:
            return {"decision": "deny", "reason": answer.refusal}
        if event.kind is EventKind.SESSION_START:
            return {}
        return super().write(event, answer)


class Opencode(HookClient):
    """A plugin in JavaScript calls the same script, with Claude Code's names of events and fields.

    It adds the answer's text as a part of the user's message, and throws an error with the reason to refuse a call.
    """

    name = "opencode"
    shows_notices = False

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


class Copilot(HookClient):
    """Copilot CLI: payloads in camelCase, answers without `hookSpecificOutput`."""

    name = "copilot"
    event_names = "sessionStart userPromptSubmitted preToolUse postToolUse postToolUseFailure agentStop sessionEnd"
    matcher = ""
    session_field = "sessionId"
    shows_notices = False
    reports_compactions = False
    writes_transcript_late = True
    kinds: Mapping[str, EventKind] = {
        "sessionStart": EventKind.SESSION_START,
        "userPromptSubmitted": EventKind.PROMPT,
        "preToolUse": EventKind.TOOL_CALL,
        "postToolUse": EventKind.TOOL_RESULT,
        "postToolUseFailure": EventKind.TOOL_RESULT,
        "agentStop": EventKind.TURN_END,
        "sessionEnd": EventKind.SESSION_END,
    }

    def read(self, name: str, payload: Payload) -> HookEvent | None:
        event, arguments = super().read(name, payload), payload.get("toolArgs")
        if isinstance(arguments, str):
            # They are a JSON text.
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                arguments = {"arguments": arguments}
        return None if event is None else event._replace(arguments=arguments)

    def write(self, event: HookEvent, answer: HookAnswer) -> dict[str, Any]:
        if answer.refusal and event.kind is EventKind.TOOL_CALL:
            return {"permissionDecision": "deny", "permissionDecisionReason": answer.refusal}
        return {"additionalContext": answer.context} if answer.context and self.takes(event.kind) else {}


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


CLIENTS: dict[str, HookClient] = {
    client.name: client for client in (ClaudeCode(), GeminiCli(), QwenCode(), Codex(), Opencode(), Copilot())
}
HOOK_EVENTS: dict[str, tuple[RegisteredEvent, ...]] = {name: client.events for name, client in CLIENTS.items()}
"""The events that an installer registers, with timeouts in the client's own unit. Empty for opencode: its plugin
(`OPENCODE_PLUGIN`) starts the script itself."""


def hook_arguments(client: str, event: str) -> list[str]:
    """The command that a client runs for an event, as a list."""
    return [sys.executable, "-I", "-S", str(SCRIPT), client, event]


def hook_command(client: str, event: str) -> str:
    """The command that a client runs for an event, for a shell.

    Clients take exit code 2 for a refusal, and Python ends with it if the script is gone. A package that was removed
    must not refuse anything.
    """
    import shlex  # a hook never makes its own command

    return f"{shlex.join(hook_arguments(client, event))} || true"


def opencode_plugin() -> str:
    """The text of the plugin for opencode, with the command of this installation in it."""
    text = OPENCODE_PLUGIN.read_text(encoding="utf-8")
    return text.replace('["@COMMAND@"]', json.dumps(hook_arguments("opencode", "EVENT")[:-1]))
