"""The files of each client, and what goes into them: for one user, or for one project."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from afterturn.config import folder_of_program
from afterturn.hosts.hooks.clients import opencode_plugin
from afterturn.hosts.install.entries import (
    HooksPart,
    OwnFile,
    Part,
    ServerPart,
    TomlServerPart,
    copilot_hooks,
    server_command,
)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file and the parts that go into it. `project` is the folder of the project that it is in, if it is in one."""

    path: Path
    parts: tuple[Part, ...]
    project: Path | None = None


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """A client's files. `folder` is there if the client was used; `next_step` is what its user does next."""

    name: str
    title: str
    program: str
    folder: Callable[[], Path]
    for_user: Callable[[Path], list[ConfigFile]]
    for_project: Callable[[Path], list[ConfigFile]]
    next_step: str

    def targets(self, project: Path | None) -> list[ConfigFile]:
        found = self.for_user(self.folder()) if project is None else self.for_project(project)
        is_kept = has_server()
        kept = [(one.path, tuple(part for part in one.parts if is_kept or part.title != "MCP server")) for one in found]
        return [ConfigFile(path, parts, project) for path, parts in kept if parts]

    def is_found(self) -> bool:
        return shutil.which(self.program) is not None or self.folder().is_dir()


def has_server() -> bool:
    """Whether the packages of the MCP server are installed."""
    return importlib.util.find_spec("mcp") is not None


def _server(client: str, **more: object) -> ServerPart:
    program, *arguments = server_command(client)
    return ServerPart("mcpServers", {**more, "command": program, "args": arguments})


def _claude_code(folder: Path, servers: Path) -> list[ConfigFile]:
    return [
        ConfigFile(folder / "settings.json", (HooksPart("claude-code"),)),
        ConfigFile(servers, (_server("claude-code", type="stdio"),)),
    ]


def _with_settings(name: str, title: str, program: str, folder: Callable[[], Path]) -> ClientFiles:
    """A client with one file for everything, in its own folder or in a folder of the same name in a project."""

    def find(folder: Path) -> list[ConfigFile]:
        return [ConfigFile(folder / "settings.json", (HooksPart(name), _server(name)))]

    next_step = f"Start {title} again. /hooks and /mcp show what was added."
    return ClientFiles(name, title, program, folder, find, lambda root: find(root / f".{program}"), next_step)


def _codex(folder: Path, option: str = "") -> list[ConfigFile]:
    return [
        ConfigFile(folder / "hooks.json", (HooksPart("codex"),)),
        ConfigFile(folder / "config.toml", (TomlServerPart(server_command("codex"), option=option),)),
    ]


def _opencode(folder: Path, settings: Path) -> list[ConfigFile]:
    names = [settings / name for name in ("opencode.jsonc", "opencode.json", "config.json")]
    file = next((path for path in names if path.exists()), settings / "opencode.json")
    server = ServerPart("mcp", {"type": "local", "command": server_command("opencode"), "enabled": True})
    plugin = OwnFile(opencode_plugin(), title="plugin")
    return [ConfigFile(folder / "plugin" / "afterturn.js", (plugin,)), ConfigFile(file, (server,))]


def _copilot(folder: Path) -> ConfigFile:
    return ConfigFile(folder / "hooks" / "afterturn.json", (OwnFile(copilot_hooks()),))


CLIENTS: dict[str, ClientFiles] = {
    one.name: one
    for one in (
        ClientFiles(
            "claude-code",
            "Claude Code",
            "claude",
            lambda: folder_of_program("CLAUDE_CONFIG_DIR", ".claude"),
            # Its servers are next to its folder, or inside if a variable names the folder.
            lambda folder: _claude_code(
                folder, (folder.parent if folder == Path.home() / ".claude" else folder) / ".claude.json"
            ),
            lambda root: _claude_code(root / ".claude", root / ".mcp.json"),
            "Start a new session in Claude Code. /hooks and /mcp show what was added.",
        ),
        _with_settings(
            "gemini-cli", "Gemini CLI", "gemini", lambda: folder_of_program("GEMINI_CLI_HOME", "") / ".gemini"
        ),
        _with_settings("qwen-code", "Qwen Code", "qwen", lambda: folder_of_program("QWEN_HOME", ".qwen")),
        ClientFiles(
            "codex",
            "Codex",
            "codex",
            lambda: folder_of_program("CODEX_HOME", ".codex"),
            _codex,
            lambda root: _codex(root / ".codex", " --project"),
            "Codex skips new hooks, without a message, until you trust them: start codex, type /hooks, and trust them.",
        ),
        ClientFiles(
            "opencode",
            "opencode",
            "opencode",
            lambda: folder_of_program("XDG_CONFIG_HOME", ".config") / "opencode",
            lambda folder: _opencode(folder, folder),
            lambda root: _opencode(root / ".opencode", root),
            "Start opencode again.",
        ),
        ClientFiles(
            "copilot",
            "Copilot CLI",
            "copilot",
            lambda: folder_of_program("COPILOT_HOME", ".copilot"),
            lambda folder: [
                _copilot(folder),
                ConfigFile(folder / "mcp-config.json", (_server("copilot", type="local", tools=["*"]),)),
            ],
            lambda root: [_copilot(root / ".github")],
            "Start Copilot CLI again.",
        ),
    )
}
