"""What the user typed, for a call of a memory tool that wants to save the same.

A server sees no turn, so it does not know whose words an agent saves. A hook that runs before the call does: it has the
user's prompt, and the name and arguments of the call. It leaves the user's own statement in a file that names exactly
this call. The server takes it when the call arrives, and stores it instead of the agent's text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from afterturn.config import state_folder
from afterturn.errors import InvalidFile
from afterturn.hosts.server.grant import Grant
from afterturn.hosts.state import open_state_folder
from afterturn.log import logger
from afterturn.runtime.clock import SystemClock
from afterturn.types import Target

# A client may ask its user for permission between the hook and the call.
VALID_SECONDS = 300.0
_FOLDER = "typed-statements"
# Claude Code, Codex and Qwen Code; Gemini CLI; opencode; Copilot CLI. The server is registered as "afterturn".
_OURS = re.compile(r"(?:mcp__?)?afterturn(?:__|[-_./])(add_memory|update_memory|delete_memory)")


@dataclass(frozen=True, slots=True)
class TypedStatement:
    """`is_quote`: the text is in the user's own words, so "I" is the user. `conversation` is where it was typed."""

    text: str
    target: Target
    kind: str
    is_quote: bool
    conversation: str = ""


def find_writing_tool(name: str) -> str | None:
    """The tool of ours that writes and that a client calls by this name, such as `mcp__afterturn__add_memory`."""
    found = _OURS.fullmatch(name)
    return found.group(1) if found is not None else None


def leave_statement(
    tenant: str, owner: str, name: str, arguments: Mapping[str, object], statement: TypedStatement
) -> None:
    """For the next call of the tool `name` with these arguments, by a connection of this owner's space.

    `name` is the tool's own, without a client's prefix. Raises InvalidFile if the file cannot be written.
    """
    folder = open_state_folder() / _FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        _remove_old(folder)
        descriptor, temporary = tempfile.mkstemp(prefix=".", dir=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(asdict(statement), stream)
        os.replace(temporary, folder / _name(tenant, owner, name, arguments))
    except OSError as error:
        raise InvalidFile(
            f"The folder {folder} cannot be written: {error.strerror}. Correct its permissions."
        ) from error


def take_statement(grant: Grant, name: str, arguments: Mapping[str, object]) -> TypedStatement | None:
    """What the user typed in the turn of this call, if it says what the call wants to save. It is given once."""
    path = state_folder() / _FOLDER / _name(grant.tenant, grant.owner, name, arguments)
    try:
        written_at, fields = path.stat().st_mtime, json.loads(path.read_text(encoding="utf-8"))
        # Of two calls at once, one finds nothing to remove.
        path.unlink()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        logger.warning("what the user typed cannot be read: %s", error)
        return None
    if abs(SystemClock().now() - written_at) > VALID_SECONDS:
        return None
    return TypedStatement(**{**fields, "target": Target(fields["target"])})


def _name(tenant: str, owner: str, name: str, arguments: Mapping[str, object]) -> str:
    call = json.dumps([tenant, owner, name, arguments], sort_keys=True, ensure_ascii=True, default=repr)
    return hashlib.sha256(call.encode()).hexdigest()


def _remove_old(folder: Path) -> None:
    """Those of calls that never came: a user refused them, or a client changed their arguments."""
    now = SystemClock().now()
    for path in folder.iterdir():
        try:
            if now - path.stat().st_mtime > VALID_SECONDS:
                path.unlink()
        except FileNotFoundError:
            continue  # a server has just taken it
