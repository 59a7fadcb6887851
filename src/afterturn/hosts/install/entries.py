"""The entries that an installation adds to a client's files: hooks, the MCP server, or a file of its own.

Each part finds its own entries again by the path of our script or the server's name, and touches no others.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from afterturn.hosts.hooks.clients import HOOK_EVENTS, hook_command
from afterturn.hosts.install import json_text

SERVER = "afterturn"
_SCRIPT = "afterturn/hosts/hooks/client.py"


class State(StrEnum):
    """Whether a part is in a file."""

    ABSENT = "absent"
    CURRENT = "current"
    OUTDATED = "outdated"
    """Ours, but with another command, such as that of an earlier Python environment."""
    FOREIGN = "foreign"
    """Somebody else's entry has our name. It is kept."""


class Part(Protocol):
    """One thing that is added to a file. `text` is the file's, blank if there is no file."""

    @property
    def title(self) -> str: ...

    def state(self, text: str) -> State: ...

    def add(self, text: str) -> str: ...

    def remove(self, text: str) -> str:
        """The text without this part, and without what is empty then. Blank if the file is not needed."""
        ...


@dataclass(frozen=True, slots=True)
class HooksPart:
    """Entries under `hooks`, in the form that Claude Code introduced."""

    client: str
    title: str = "hooks"

    def state(self, text: str) -> State:
        ours = _hooks_of(json_text.parse(text or "{}"))
        if not ours:
            return State.ABSENT
        found = sorted((event, json.dumps(group, sort_keys=True)) for event, _, _, group in ours)
        wanted = sorted((event, json.dumps(group, sort_keys=True)) for event, group in self._wanted())
        return State.CURRENT if found == wanted else State.OUTDATED

    def add(self, text: str) -> str:
        text = self.remove(text) or "{}\n"
        for event, group in self._wanted():
            text = json_text.append(text, ("hooks", event), group)
        return text

    def remove(self, text: str) -> str:
        ours = _hooks_of(json_text.parse(text or "{}"))
        for event, at, inner, _ in reversed(ours):
            text = json_text.remove(text, ("hooks", event, at, "hooks", inner))
            if not json_text.parse(text)["hooks"][event][at]["hooks"]:
                text = json_text.remove(text, ("hooks", event, at))
        for event in {event for event, *_ in ours}:
            text = _remove_if_empty(text, ("hooks", event))
        return _blank_if_empty(_remove_if_empty(text, ("hooks",)) if ours else text)

    def _wanted(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for event in HOOK_EVENTS[self.client]:
            command = hook_command(self.client, event.name)
            hook = {"type": "command", "command": command, "timeout": event.timeout}
            yield event.name, ({"matcher": event.matcher} if event.matcher else {}) | {"hooks": [hook]}


@dataclass(frozen=True, slots=True)
class ServerPart:
    """The MCP server in a JSON file, under the given key."""

    key: str
    entry: dict[str, Any]
    title: str = "MCP server"

    def state(self, text: str) -> State:
        return _server_state(json_text.parse(text or "{}"), self.key, self.entry)

    def add(self, text: str) -> str:
        return json_text.set_value(text or "{}\n", (self.key, SERVER), self.entry)

    def remove(self, text: str) -> str:
        if self.state(text) in (State.ABSENT, State.FOREIGN):
            return text
        return _blank_if_empty(_remove_if_empty(json_text.remove(text, (self.key, SERVER)), (self.key,)))


@dataclass(frozen=True, slots=True)
class TomlServerPart:
    """The MCP server as a table at the end of Codex's config.toml. `option` is that of the command that writes it."""

    command: Sequence[str]
    title: str = "MCP server"
    option: str = ""

    def state(self, text: str) -> State:
        return _server_state(tomllib.loads(text), "mcp_servers", self._entry())

    def add(self, text: str) -> str:
        newline = "\r\n" if "\r\n" in text else "\n"
        text = self.remove(text)
        entry = self._entry()
        lines = [
            _COMMENT.format(self.option),
            f"[mcp_servers.{SERVER}]",
            # TOML knows no pairs of escapes for one character.
            f"command = {json.dumps(entry['command'], ensure_ascii=False)}",
            f"args = {json.dumps(entry['args'], ensure_ascii=False)}",
        ]
        separator = "" if not text else newline if text.endswith("\n") else newline * 2
        return text + separator + newline.join(lines) + newline

    def remove(self, text: str) -> str:
        """The table, its own tables, and the comment above."""
        if self.state(text) in (State.ABSENT, State.FOREIGN):
            return text
        kept: list[str] = []
        ours = False
        for line in text.splitlines(keepends=True):
            if line.lstrip().startswith("["):
                ours = _TABLE.match(line) is not None
            if ours or line.strip() in (_COMMENT.format(""), _COMMENT.format(" --project")):
                continue
            kept.append(line)
        # A table is appended after a line break.
        ending = "\r\n" if "\r\n" in text else "\n"
        return "".join(kept).rstrip("\r\n") + ending if any(line.strip() for line in kept) else ""

    def _entry(self) -> dict[str, Any]:
        program, *arguments = self.command
        return {"command": program, "args": arguments}


_COMMENT = "# Written by `afterturn install codex{0}`; `afterturn uninstall codex{0}` removes it."
_TABLE = re.compile(rf"\s*\[\s*mcp_servers\s*\.\s*\"?{SERVER}\"?\s*[.\]]")


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file that only we write."""

    content: str
    title: str = "hooks"

    def state(self, text: str) -> State:
        if not text:
            return State.ABSENT
        if text == self.content:
            return State.CURRENT
        return State.OUTDATED if "afterturn" in text else State.FOREIGN

    def add(self, text: str) -> str:
        return self.content

    def remove(self, text: str) -> str:
        return text if self.state(text) is State.FOREIGN else ""


def server_command(client: str) -> list[str]:
    """The command of the MCP server: the script of this installation, else Python with the module."""
    script = Path(sys.executable).with_name("afterturn")
    # -P: clients start it in the folder of a project, whose files must not be imported.
    start = [str(script)] if script.is_file() else [sys.executable, "-P", "-m", "afterturn"]
    return [*start, "mcp", "--client", client]


def copilot_hooks() -> str:
    """The whole file of hooks for Copilot CLI, which has a form of its own."""
    hooks = {
        event.name: [{"type": "command", "bash": hook_command("copilot", event.name), "timeoutSec": event.timeout}]
        for event in HOOK_EVENTS["copilot"]
    }
    return json.dumps({"version": 1, "hooks": hooks}, indent=2) + "\n"


def _is_ours(hook: Any) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and _SCRIPT in command.replace("\\", "/")


def _hooks_of(data: Any) -> list[tuple[str, int, int, dict[str, Any]]]:
    """Our hooks as (event, index of the group, index in the group, group). Raises ValueError if `hooks` is not one."""
    hooks = data.get("hooks", {}) if isinstance(data, dict) else None
    if not isinstance(hooks, dict):
        raise ValueError('"hooks" is not an object')
    return [
        (event, at, inner, group)
        for event, groups in hooks.items()
        if isinstance(groups, list)
        for at, group in enumerate(groups)
        if isinstance(group, dict) and isinstance(group.get("hooks"), list)
        for inner, hook in enumerate(group["hooks"])
        if _is_ours(hook)
    ]


def _server_state(data: Any, key: str, entry: dict[str, Any]) -> State:
    servers = data.get(key, {}) if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise ValueError(f'"{key}" is not an object')
    if SERVER not in servers:
        return State.ABSENT
    found = servers[SERVER]
    if found == entry:
        return State.CURRENT
    if not isinstance(found, dict):
        return State.FOREIGN
    given, rest = found.get("command"), found.get("args")
    words = [
        *(shlex.split(given) if isinstance(given, str) else given if isinstance(given, list) else ()),
        *(rest if isinstance(rest, list) else ()),
    ]
    ours = "mcp" in words and any("afterturn" in str(word) for word in words)
    if ours and {name: found.get(name) for name in entry} == entry:
        return State.CURRENT
    return State.OUTDATED if ours else State.FOREIGN


def _remove_if_empty(text: str, path: Sequence[str | int]) -> str:
    value = json_text.parse(text)
    for step in path:
        value = value[step]
    return text if value else json_text.remove(text, path)


def _blank_if_empty(text: str) -> str:
    """A file that has nothing but an empty object is not needed."""
    return "" if "".join(text.split()) == "{}" else text
