"""Runs a real client headless in a fresh home, against the scripted model server: one class per client.

A driver knows its client's settings, commands and tool names. It installs no memory; tests do that with
`afterturn install`, as a user would.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import subprocess
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.clients.model_server import Answer, Call, ModelRequest, Rule, Say, Script
from lab.clients.setup import BIN

# Some clients compact only when a model reports that its context is nearly full.
_FULL = "The context is nearly full."
_FULL_TOKENS = 99_000


@dataclass(frozen=True, slots=True)
class Reply:
    """How one run of a client ended. `text` is the model's last answer as the client printed it."""

    text: str
    code: int
    stdout: str
    stderr: str
    seconds: float


class Client(ABC):
    """A client with its own home and project folder. `ask` runs one turn; with `resume` it continues a conversation."""

    name: str

    def __init__(self, home: Path, server_url: str, *, environment: Mapping[str, str] | None = None) -> None:
        self.home, self.server_url = home, server_url
        self.project = home / "work" / "project"
        self.temporary = home / "tmp"
        for folder in (self.project, self.temporary):
            folder.mkdir(parents=True, exist_ok=True)
        self.session = ""
        self.more = dict(environment or {})
        self.configure()

    @abstractmethod
    def configure(self) -> None:
        """Writes the client's settings: the model's address, no telemetry, no updates."""

    @abstractmethod
    def arguments(self, prompt: str, *, resume: bool) -> list[str]:
        """The command line of one turn."""

    @abstractmethod
    def shell(self, command: str) -> Call:
        """The call of the client's own shell tool."""

    @abstractmethod
    def memory_tool(self, name: str, arguments: Mapping[str, Any]) -> Call:
        """The call of a tool of the MCP server `afterturn`."""

    def until_tools_are_there(self) -> tuple[Answer, ...]:
        """Calls that pass the time until the client offers the tools of a server that it has just started."""
        return ()

    @abstractmethod
    def delegate(self, task: str) -> tuple[Answer | Script, ...]:
        """The calls that let a sub-agent do a task and wait for it."""

    def report(self, text: str) -> Answer:
        """The last answer of a sub-agent."""
        return Say(text)

    @abstractmethod
    def summary(self) -> tuple[Rule, ...]:
        """Rules for the requests with which the client lets the model summarize a conversation."""

    def variables(self) -> dict[str, str]:
        """The client's environment variables, besides those of `environment`."""
        return {}

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TMPDIR": str(self.temporary),
            "USER": getpass.getuser(),
            "LOGNAME": getpass.getuser(),
            **self.variables(),
            **self.more,
        }

    def ask(self, prompt: str, *, resume: bool = False, timeout: float = 90) -> Reply:
        if not resume:
            self.session = str(uuid.uuid4())
        return self.run(self.arguments(prompt, resume=resume), timeout=timeout)

    def compact(self) -> Reply:
        """Compacts the last conversation, at once or when it continues."""
        return self.ask("/compact", resume=True)

    def run(self, arguments: list[str], *, timeout: float = 90) -> Reply:
        """A client that does not end in time is stopped with all its children, and its code is -9."""
        began = time.monotonic()
        process = subprocess.Popen(
            [str(BIN / arguments[0]), *arguments[1:]],
            cwd=self.project,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
        return Reply(self.answer(stdout), process.returncode, stdout, stderr, time.monotonic() - began)

    def answer(self, stdout: str) -> str:
        """The model's last answer in the client's output."""
        return stdout.strip()

    def is_own_request(self, request: ModelRequest) -> bool:
        """Whether a request belongs to the conversation, not to a title, a summary or the client's own memory."""
        summaries = [rule.marker for rule in self.summary() if rule.marker != _FULL]
        last = request.parts[-1].text if request.parts else ""
        return bool(request.tools) and not any(marker in last for marker in summaries)


class ClaudeCode(Client):
    name = "claude-code"

    def configure(self) -> None:
        (self.home / ".claude").mkdir(exist_ok=True)

    def variables(self) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": self.server_url,
            "ANTHROPIC_API_KEY": "not-a-key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def arguments(self, prompt: str, *, resume: bool) -> list[str]:
        session = ["--resume" if resume else "--session-id", self.session]
        allowed = ["--allowedTools", "Bash", "mcp__afterturn", "Agent"]
        return [
            "claude",
            "-p",
            prompt,
            *session,
            "--output-format",
            "json",
            "--permission-mode",
            "acceptEdits",
            *allowed,
        ]

    def answer(self, stdout: str) -> str:
        try:
            return str(json.loads(stdout)["result"])
        except (ValueError, KeyError):
            return stdout.strip()

    def shell(self, command: str) -> Call:
        return Call("Bash", {"command": command, "description": "Run a command"})

    def memory_tool(self, name: str, arguments: Mapping[str, Any]) -> Call:
        return Call(f"mcp__afterturn__{name}", arguments)

    def delegate(self, task: str) -> tuple[Answer | Script, ...]:
        given = {
            "description": "A task",
            "prompt": task,
            "subagent_type": "general-purpose",
            "run_in_background": False,
        }
        return (Call("Agent", given),)

    def summary(self) -> tuple[Rule, ...]:
        text = "<analysis>Short.</analysis>\n<summary>The conversation was summarized.</summary>"
        return (Rule("create a detailed summary", (Say(text),)),)


class GeminiCli(Client):
    name = "gemini-cli"

    def configure(self) -> None:
        folder = self.home / ".gemini"
        folder.mkdir(exist_ok=True)
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        }
        (folder / "settings.json").write_text(json.dumps(settings, indent=2) + "\n")

    def variables(self) -> dict[str, str]:
        return {
            "GOOGLE_GEMINI_BASE_URL": self.server_url,
            "GEMINI_API_KEY": "not-a-key",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }

    def arguments(self, prompt: str, *, resume: bool) -> list[str]:
        session = ["--resume", "latest"] if resume else []
        return ["gemini", "-p", prompt, *session, "-m", "gemini-2.5-pro", "--approval-mode", "yolo"]

    def compact(self) -> Reply:
        return self.ask("/compress", resume=True)

    def shell(self, command: str) -> Call:
        return Call("run_shell_command", {"command": command, "description": "Run a command"})

    def memory_tool(self, name: str, arguments: Mapping[str, Any]) -> Call:
        return Call(f"mcp_afterturn_{name}", arguments)

    def delegate(self, task: str) -> tuple[Answer | Script, ...]:
        return (Call("invoke_agent", {"agent_name": "generalist", "prompt": task}),)

    def report(self, text: str) -> Answer:
        return Call("complete_task", {"result": {"response": text}})

    def summary(self) -> tuple[Rule, ...]:
        text = "<state_snapshot><overall_goal>The conversation was summarized.</overall_goal></state_snapshot>"
        return (Rule("<state_snapshot>", (Say(text),)),)


class QwenCode(Client):
    name = "qwen-code"

    def configure(self) -> None:
        folder = self.home / ".qwen"
        folder.mkdir(exist_ok=True)
        settings = {
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        }
        (folder / "settings.json").write_text(json.dumps(settings, indent=2) + "\n")

    def variables(self) -> dict[str, str]:
        return {
            "OPENAI_BASE_URL": f"{self.server_url}/v1",
            "OPENAI_API_KEY": "not-a-key",
            "OPENAI_MODEL": "scripted",
            "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
        }

    def arguments(self, prompt: str, *, resume: bool) -> list[str]:
        session = ["--resume" if resume else "--session-id", self.session]
        return ["qwen", "-p", prompt, *session, "--auth-type", "openai", "--approval-mode", "yolo"]

    def compact(self) -> Reply:
        return self.ask("/compress", resume=True)

    def shell(self, command: str) -> Call:
        return Call("run_shell_command", {"command": command, "description": "Run a command", "is_background": False})

    def memory_tool(self, name: str, arguments: Mapping[str, Any]) -> Call:
        return Call(f"mcp__afterturn__{name}", arguments)

    def delegate(self, task: str) -> tuple[Answer | Script, ...]:
        given = {
            "description": "A task",
            "prompt": task,
            "subagent_type": "general-purpose",
            "run_in_background": False,
        }
        return (Call("agent", given),)

    def is_own_request(self, request: ModelRequest) -> bool:
        """Qwen Code keeps a memory of its own, with requests after a turn."""
        return super().is_own_request(request) and "memory extraction subagent" not in request.parts[0].text

    def summary(self) -> tuple[Rule, ...]:
        text = "<state_snapshot><overall_goal>The conversation was summarized.</overall_goal></state_snapshot>"
        return (
            Rule("component that summarizes a conversation", (Say(text),)),
            Rule("produce the <state_snapshot> XML", (Say(text),)),
        )


class Codex(Client):
    """`hooks_trusted` stands for a user who has trusted the hooks with /hooks, which has no headless form."""

    name = "codex"
    hooks_trusted = True

    def configure(self) -> None:
        folder = self.home / ".codex"
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(
            f"""\
model = "scripted"
model_provider = "fake"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.fake]
name = "fake"
base_url = "{self.server_url}/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
"""
        )

    def variables(self) -> dict[str, str]:
        return {"FAKE_KEY": "not-a-key"}

    def arguments(self, prompt: str, *, resume: bool) -> list[str]:
        options = ["--skip-git-repo-check", "--json", "--dangerously-bypass-approvals-and-sandbox"]
        options += ["--dangerously-bypass-hook-trust"] if self.hooks_trusted else []
        options += ["-c", f"model_auto_compact_token_limit={_FULL_TOKENS // 2}"]
        return ["codex", "exec", *options, *(["resume", self.session] if resume else []), prompt]

    def ask(self, prompt: str, *, resume: bool = False, timeout: float = 90) -> Reply:
        """Codex chooses the id of a conversation. `resume --last` would continue a sub-agent's if one ran last."""
        reply = self.run(self.arguments(prompt, resume=resume), timeout=timeout)
        if not resume:
            started = re.search(r'"thread_id":"([^"]+)"', reply.stdout)
            self.session = "" if started is None else started[1]
        return reply

    def answer(self, stdout: str) -> str:
        events = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
        items = [event.get("item", {}) for event in events]
        return next((str(item["text"]) for item in reversed(items) if item.get("type") == "agent_message"), "")

    def shell(self, command: str) -> Call:
        return Call("exec_command", {"cmd": command})

    def memory_tool(self, name: str, arguments: Mapping[str, Any]) -> Call:
        return Call(f"mcp__afterturn/{name}", arguments)

    def until_tools_are_there(self) -> tuple[Answer, ...]:
        """Codex waits about a second for a server before it sends the first request, and offers its tools later."""
        return (self.shell("sleep 8"),)

    def delegate(self, task: str) -> tuple[Answer | Script, ...]:
        def wait(request: ModelRequest) -> Call:
            started = next(part.text for part in reversed(request.parts) if part.kind == "result")
            given = {"targets": [json.loads(started)["agent_id"]], "timeout_ms": 30_000}
            return Call("multi_agent_v1/wait_agent", given)

        return Call("multi_agent_v1/spawn_agent", {"message": task}), wait

    def summary(self) -> tuple[Rule, ...]:
        return (
            Rule(_FULL, (Say("So it is.", input_tokens=_FULL_TOKENS),)),
            Rule("CONTEXT CHECKPOINT COMPACTION", (Say("The conversation was summarized."),)),
        )

    def compact(self) -> Reply:
        return self.ask(_FULL, resume=True)


class OpenCode(Client):
    name = "opencode"

    def configure(self) -> None:
        folder = self.home / ".config" / "opencode"
        folder.mkdir(parents=True, exist_ok=True)
        model = {"name": "scripted", "limit": {"context": 100_000, "output": 8_000}}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "fake",
            "options": {"baseURL": f"{self.server_url}/v1", "apiKey": "not-a-key"},
            "models": {"scripted": model},
        }
        settings = {
            "autoupdate": False,
            "model": "fake/scripted",
            "small_model": "fake/scripted",
            "provider": {"fake": provider},
        }
        (folder / "opencode.json").write_text(json.dumps(settings, indent=2) + "\n")

    def variables(self) -> dict[str, str]:
        return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}

    def arguments(self, prompt: str, *, resume: bool) -> list[str]:
        return ["opencode", "run", "--format", "json", *(["--continue"] if resume else []), prompt]

    def answer(self, stdout: str) -> str:
        events = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
        return next((str(event["part"]["text"]) for event in reversed(events) if event["type"] == "text"), "")

    def shell(self, command: str) -> Call:
        return Call("bash", {"command": command, "description": "Run a command"})

    def memory_tool(self, name: str, arguments: Mapping[str, Any]) -> Call:
        return Call(f"afterturn_{name}", arguments)

    def delegate(self, task: str) -> tuple[Answer | Script, ...]:
        return (Call("task", {"description": "A task", "prompt": task, "subagent_type": "general"}),)

    def summary(self) -> tuple[Rule, ...]:
        return (
            Rule(_FULL, (Say("So it is.", input_tokens=_FULL_TOKENS),)),
            Rule("Create a new anchored summary", (Say("The conversation was summarized."),)),
        )

    def compact(self) -> Reply:
        return self.ask(_FULL, resume=True)


CLIENTS: dict[str, type[Client]] = {one.name: one for one in (ClaudeCode, GeminiCli, QwenCode, Codex, OpenCode)}
