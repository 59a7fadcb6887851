"""Calls that a hook vouches for: no text of others had reached the agent when it made them.

A server sees no turn, so it cannot know what the agent has read. A hook that runs before the call can: it sees the
whole turn, and the name and arguments of the call. It leaves a file that names exactly this call. The server takes it
away when the same call arrives. A conversation's id alone would prove nothing, since any agent may send one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from afterturn.config import state_folder
from afterturn.errors import InvalidFile
from afterturn.hosts.server.grant import Grant
from afterturn.hosts.state import open_state_folder
from afterturn.log import logger
from afterturn.runtime.clock import SystemClock

# A client may ask its user for permission between the hook and the call.
VALID_SECONDS = 300.0
_FOLDER = "clean-calls"
# Claude Code, Codex and Qwen Code; Gemini CLI; opencode; Copilot CLI. The server is registered as "afterturn".
_OURS = re.compile(r"(?:mcp__?)?afterturn(?:__|[-_./])(add_memory|update_memory|delete_memory)")


def find_writing_tool(name: str) -> str | None:
    """The tool of ours that writes and that a client calls by this name, such as `mcp__afterturn__add_memory`."""
    found = _OURS.fullmatch(name)
    return found.group(1) if found is not None else None


def report_clean_call(tenant: str, owner: str, name: str, arguments: Mapping[str, object]) -> None:
    """Vouches for the next call of the tool `name` with these arguments, by a connection of this owner's space.

    `name` is the tool's own, without a client's prefix. Raises InvalidFile if the file cannot be written.
    """
    folder = open_state_folder() / _FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        _remove_old(folder)
        os.close(os.open(folder / _name(tenant, owner, name, arguments), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        os.utime(folder / _name(tenant, owner, name, arguments))
    except OSError as error:
        raise InvalidFile(
            f"The folder {folder} cannot be written: {error.strerror}. Correct its permissions."
        ) from error


def take_clean_call(grant: Grant, name: str, arguments: Mapping[str, object]) -> bool:
    """Whether a hook has vouched for this call. It counts once."""
    path = state_folder() / _FOLDER / _name(grant.tenant, grant.owner, name, arguments)
    try:
        written_at = path.stat().st_mtime
        # Of two calls at once, one finds nothing to remove.
        path.unlink()
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            logger.warning("the report of a clean call cannot be read: %s", error.strerror)
        return False
    return abs(SystemClock().now() - written_at) <= VALID_SECONDS


def _name(tenant: str, owner: str, name: str, arguments: Mapping[str, object]) -> str:
    call = json.dumps([tenant, owner, name, arguments], sort_keys=True, ensure_ascii=True, default=repr)
    return hashlib.sha256(call.encode()).hexdigest()


def _remove_old(folder: Path) -> None:
    """Calls that never came: a user refused them, or a client changed their arguments."""
    now = SystemClock().now()
    for path in folder.iterdir():
        if now - path.stat().st_mtime > VALID_SECONDS:
            path.unlink(missing_ok=True)
