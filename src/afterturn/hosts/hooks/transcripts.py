"""Reads a client's transcript, for what its events do not contain."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from afterturn.log import logger

_TAIL_BYTES = 512 * 1024
_SUFFIXES = (".jsonl", ".json")
_HISTORY_BYTES_MAX = 64 * 1024 * 1024
# Gemini CLI writes such a line when it replaces the whole history. Later lines add messages.
_REPLACED = b'{"$set":{"messages":'


def find_exchange(client: str, path: str) -> tuple[str, str]:
    """The user's last message and the last words of the assistant after it, each blank if there is none.

    Reads only the end of a regular file of this user; anything else is refused with one line in the log.
    """
    answer = ""
    if not path:
        return "", ""
    try:
        lines = _read_tail(path)
    except (OSError, ValueError) as error:
        logger.warning("%s: the transcript is not read: %s", client, error)
        return "", ""
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(entry, dict):
            continue
        role, text = find_entry_text(entry)
        if role == "user" and text.strip() and not text.startswith("<"):
            return text, answer
        if role == "assistant":
            answer = answer or text.strip()
    return "", answer


def are_in_history(client: str, path: str, memories: Collection[str]) -> bool:
    """Whether the model still sees all these memories, by their ids. True if the transcript cannot be read."""
    try:
        with _open(path) as stream:
            text = stream.read(_HISTORY_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        logger.warning("%s: the transcript is not read: %s", client, error)
        return True
    if not text or len(text) > _HISTORY_BYTES_MAX:
        return True
    history = text[max(0, text.rfind(_REPLACED)) :]
    return all(f"[{id}]".encode() in history for id in memories)


def _read_tail(path: str) -> list[bytes]:
    with _open(path) as stream:
        start = max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES)
        stream.seek(start)
        lines = stream.read(_TAIL_BYTES).splitlines()
    return lines[1:] if start else lines


@contextmanager
def _open(path: str) -> Iterator[BinaryIO]:
    """Raises ValueError if it is not a file that a client of this user may have written."""
    if not os.path.isabs(path) or not path.endswith(_SUFFIXES):
        raise ValueError("it is not an absolute path of a JSON file")
    with open(path, "rb", opener=_open_plainly) as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            raise ValueError("it is not a regular file of this user")
        yield stream


def _open_plainly(path: str, flags: int) -> int:
    """Without waiting: the path may name a pipe. Clients write no symbolic links."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)


def find_entry_text(entry: dict[str, Any]) -> tuple[str, str]:
    """The role and the text of a line, in the forms of all clients; blank for other lines."""
    if entry.get("isSidechain") is True or entry.get("isMeta") is True:
        return "", ""
    if entry.get("provenance", "real_user") != "real_user":
        return "", ""
    kind, data = entry.get("type"), entry.get("data")
    if kind == "response_item" and isinstance(entry.get("payload"), dict):  # Codex
        item = entry["payload"]
        return (str(item.get("role", "")), _text(item.get("content"))) if item.get("type") == "message" else ("", "")
    if kind in ("assistant.message", "user.message") and isinstance(data, dict):  # Copilot
        return str(kind).split(".")[0], _text(data.get("content"))
    if kind in ("user", "assistant", "gemini", "qwen"):
        message = entry.get("message")
        content = message.get("content", message.get("parts")) if isinstance(message, dict) else entry.get("content")
        if kind == "user" and _is_tool_result(content):
            return "", ""
        return "user" if kind == "user" else "assistant", _text(content)
    return "", ""


def _is_tool_result(content: Any) -> bool:
    parts = content if isinstance(content, list) else []
    return any(
        isinstance(part, dict) and ("functionResponse" in part or part.get("type") == "tool_result") for part in parts
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and not part.get("thought")]
    return "\n".join(text for text in texts if isinstance(text, str))
