"""One event of a client in the form that all clients share, and the answer to it. Loads nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

Payload: TypeAlias = Mapping[str, Any]
"""The JSON object that a client writes to a hook's standard input."""


class EventKind(StrEnum):
    """What happened in a client's session."""

    SESSION_START = "session_start"
    PROMPT = "prompt"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    SUBAGENT_START = "subagent_start"
    SUBAGENT_STOP = "subagent_stop"
    COMPACTION = "compaction"
    TURN_END = "turn_end"
    SESSION_END = "session_end"


class HookEvent(NamedTuple):
    """`name` is the client's own name of the event.

    `text` is what the user typed, what a tool returned, or the agent's last words; then `prompt` may be what the user
    said. `loaded` is what the client itself has put into the user's message: files, or the text of a command. `turn` is
    the client's id of the turn, `call` that of a tool call. `agent` is set in a sub-agent. `source` says why a session
    starts, or who wrote a prompt.
    """

    client: str
    name: str
    kind: EventKind
    session: str
    cwd: str = ""
    text: str = ""
    loaded: str = ""
    prompt: str = ""
    turn: str = ""
    source: str = ""
    tool: str = ""
    arguments: Any = None
    call: str = ""
    agent: str = ""
    transcript: str = ""


class HookAnswer(NamedTuple):
    """`context` is text for the model, `refusal` the reason why a tool call is refused, `notice` a line for the
    user."""

    context: str = ""
    refusal: str = ""
    notice: str = ""


NOTHING = HookAnswer()


class InvalidPayload(ValueError):
    """A client's JSON is not what its hooks send. The message is one line without its content."""


SESSION_CHARS_MAX = 120
TEXT_CHARS_MAX = 1_000_000


def text_of(payload: Payload, *names: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """The first of these fields that is there and not empty. Raises InvalidPayload if it is not text, or too long."""
    for name in names:
        value = payload.get(name)
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            raise InvalidPayload(f"{name} is a {type(value).__name__}, not text")
        if len(value) > chars_max:
            raise InvalidPayload(f"{name} has {len(value)} characters; at most {chars_max} are read")
        return value.encode("utf-8", "replace").decode().replace("\0", "")
    return ""


def session_of(payload: Payload, *names: str) -> str:
    """The session's id. Raises InvalidPayload without one."""
    session = text_of(payload, *names, chars_max=SESSION_CHARS_MAX)
    if not session or not session.isprintable():
        raise InvalidPayload(f"{names[0]} is missing or not printable")
    return session


def check_folder(folder: str, usual: str) -> str:
    """The folder of a session: what the client reports, or where its hook ran if that is not a folder."""
    return folder if os.path.isabs(folder) and os.path.isdir(folder) else usual
