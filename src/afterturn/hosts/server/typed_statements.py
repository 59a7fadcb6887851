"""Hands the user's typed sentence from a hook to the MCP server, for a tool call that wants to save the same.

A server sees no turn, so it does not know whose words an agent saves. A hook that runs before the call does: it has the
user's prompt, and the name and arguments of the call. It leaves the user's own statement in a file that names exactly
this call. The server takes it when the call arrives, and stores it instead of the agent's text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from afterturn.config import state_folder
from afterturn.errors import InvalidFile
from afterturn.hosts.server.grant import Grant
from afterturn.hosts.state import open_state_folder
from afterturn.log import describe, logger
from afterturn.runtime.clock import SystemClock
from afterturn.runtime.files import replace_file
from afterturn.types import Target

# A client may ask its user for permission between the hook and the call.
VALID_SECONDS = 300.0
_FOLDER = "typed-statements"
# A statement, or one that is being written.
_FILE = re.compile(r"[0-9a-f]{64}|\..*")
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
        if folder.is_symlink():
            raise InvalidFile(f"{folder} is a symbolic link, and links are not followed. Remove it.")
        remove_old_statements()
        with replace_file(folder / _name(tenant, owner, name, arguments), mode=0o600) as stream:
            stream.write(json.dumps(asdict(statement)).encode())
    except OSError as error:
        raise InvalidFile(
            f"The folder {folder} cannot be written: {error.strerror}. Correct its permissions."
        ) from error


def take_statement(grant: Grant, name: str, arguments: Mapping[str, object]) -> TypedStatement | None:
    """The sentence that the user typed for this call, or None. It is returned once."""
    folder = state_folder() / _FOLDER
    if folder.is_symlink():
        return None
    path = folder / _name(grant.tenant, grant.owner, name, arguments)
    try:
        written_at = path.stat().st_mtime
        try:
            content = path.read_bytes()
        finally:
            # Of two calls at once, one finds nothing to remove.
            path.unlink()
        fields = json.loads(content)
        statement = TypedStatement(**{**fields, "target": Target(fields["target"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("the sentence that the user typed cannot be read: %s", describe(error))
        return None
    return statement if abs(SystemClock().now() - written_at) <= VALID_SECONDS else None


def remove_old_statements() -> None:
    """Removes statements whose call was never made: a user refused it, or a client changed its arguments."""
    folder = state_folder() / _FOLDER
    if folder.is_symlink():
        return
    try:
        oldest = SystemClock().now() - VALID_SECONDS
        for path in folder.iterdir():
            if _FILE.fullmatch(path.name) and path.lstat().st_mtime < oldest:
                path.unlink(missing_ok=True)
    except FileNotFoundError:
        return  # no folder, or a server has just taken a statement
    except OSError as error:
        logger.warning("sentences that no tool call has taken cannot be removed: %s", describe(error))


def _name(tenant: str, owner: str, name: str, arguments: Mapping[str, object]) -> str:
    call = json.dumps([tenant, owner, name, arguments], sort_keys=True, ensure_ascii=True, default=repr)
    return hashlib.sha256(call.encode()).hexdigest()
