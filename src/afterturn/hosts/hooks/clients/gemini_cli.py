"""Gemini CLI: hook text is a part of the user's message or of a tool's output, with `<` and `>` escaped."""

from __future__ import annotations

from typing import Any

from afterturn.hosts.hooks.clients.hook_client import HookClient, RegisteredEvent
from afterturn.hosts.hooks.events import EventKind, HookAnswer, HookEvent, Payload, text_of
from afterturn.hosts.transcripts import REFERENCED_FILES

_KINDS = {
    "SessionStart": EventKind.SESSION_START,
    "BeforeAgent": EventKind.PROMPT,
    "BeforeTool": EventKind.TOOL_CALL,
    "AfterTool": EventKind.TOOL_RESULT,
    "AfterAgent": EventKind.TURN_END,
    "SessionEnd": EventKind.SESSION_END,
}


class GeminiCli(HookClient):
    """An answer to SessionStart makes a resumed session lose its first prompt, so it is always empty. PreCompress comes
    before every model call and says nothing about compactions: it is not registered. The transcript shows them."""

    name = "gemini-cli"
    events = (
        RegisteredEvent("SessionStart", 10_000),
        RegisteredEvent("BeforeAgent", 10_000),
        RegisteredEvent("BeforeTool", 5_000, matcher="*"),
        RegisteredEvent("AfterTool", 5_000, matcher="*"),
        RegisteredEvent("AfterAgent", 10_000),
        RegisteredEvent("SessionEnd", 5_000),
    )
    takes_late = True
    has_transcript_of_history = True
    shares_session = True
    expands_commands = True
    plain_tools = frozenset(
        "read_file read_many_files write_file replace glob grep_search search_file_content list_directory "
        "run_shell_command web_fetch google_web_search".split()
    )
    kinds = _KINDS

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
