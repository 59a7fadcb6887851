"""Reads the end of a client's transcript, for what its events do not contain."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from afterturn.hosts.transcripts.coding_agents import LINE_TRANSCRIPTS
from afterturn.hosts.transcripts.transcript import open_file, parse_objects
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
    reader, answer = LINE_TRANSCRIPTS.get(client), ""
    if not path or reader is None:
        return "", ""
    try:
        lines = _read_tail(path)
    except (OSError, ValueError) as error:
        logger.warning("%s: the transcript is not read: %s", client, error)
        return "", ""
    for line in parse_objects(reversed(lines)):
        for message in reversed(reader.messages(line)):
            if message.role == "user":
                return message.text, answer
            answer = answer or message.text
    return "", answer


def are_in_history(client: str, path: str, shown: Collection[str]) -> bool:
    """Whether the model still sees all these parts of our blocks. True if the transcript cannot be read."""
    try:
        with _open(path) as stream:
            text = stream.read(_HISTORY_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        logger.warning("%s: the transcript is not read: %s", client, error)
        return True
    if not text or len(text) > _HISTORY_BYTES_MAX:
        return True
    history = text[max(0, text.rfind(_REPLACED)) :]
    return all(part.encode() in history for part in shown)


def _read_tail(path: str) -> list[bytes]:
    with _open(path) as stream:
        start = max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES)
        stream.seek(start)
        lines = stream.read(_TAIL_BYTES).splitlines()
    return lines[1:] if start else lines


@contextmanager
def _open(path: str) -> Iterator[BinaryIO]:
    """Raises ValueError if it is not a file that a client of this user may have written. They write no links."""
    if not os.path.isabs(path) or not path.endswith(_SUFFIXES):
        raise ValueError("it is not an absolute path of a JSON file")
    with open_file(Path(path), os.O_NOFOLLOW) as stream:
        if os.fstat(stream.fileno()).st_uid != os.getuid():
            raise ValueError("it is not a file of this user")
        yield stream
