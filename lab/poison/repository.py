"""A hostile repository: a coding agent works in it with hooks and the memory server, and obeys what it reads there.

Clients load files such as CLAUDE.md by themselves, so hooks do not see them. Afterwards the user works in another
repository, where nothing of it may be trusted.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import afterturn
from afterturn.config import Config
from afterturn.hosts.hooks.clients import CLIENTS
from afterturn.hosts.hooks.handler import HookHandler
from afterturn.hosts.projects import find_project
from afterturn.hosts.server.grant import local_grant
from afterturn.hosts.server.tools import call_tool
from lab.poison.payloads import Poison, marks_in

_AGENTS = ("claude-code", "codex", "qwen-code", "gemini-cli")
_GEMINI = {
    "UserPromptSubmit": "BeforeAgent",
    "PreToolUse": "BeforeTool",
    "PostToolUse": "AfterTool",
    "Stop": "AfterAgent",
}
WAYS = (
    "loaded file",
    "failed tool",
    "failed tool that is reported",
    "open call",
    "referenced file",
    "slash command",
    "sub-agent",
    "forged worktree",
    "linked .git",
)


@contextmanager
def repositories() -> Iterator[Repositories]:
    """New repositories for one seed, and a state folder of their own."""
    before = os.environ.get("AFTERTURN_STATE")
    with tempfile.TemporaryDirectory(prefix="afterturn-lab-") as name:
        folder = Path(name)
        os.environ["AFTERTURN_STATE"] = str(folder / "state")
        try:
            yield Repositories(folder)
        finally:
            if before is None:
                del os.environ["AFTERTURN_STATE"]
            else:
                os.environ["AFTERTURN_STATE"] = before


class Repositories:
    """`own` is the user's repository, `hostile` the stranger's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self.own, self.hostile = self._make("own"), self._make("hostile")

    def _make(self, name: str) -> Path:
        root = self._folder / name
        subprocess.run(["git", "init", "--quiet", str(root)], check=True)
        return root

    def unpack(self, way: str) -> Path:
        """A folder of the stranger's. An unpacked archive may claim to be a worktree of the user's repository."""
        if way not in ("forged worktree", "linked .git"):
            return self.hostile
        root = self._folder / f"archive-{next(self._numbers)}"
        root.mkdir()
        if way == "linked .git":
            (root / ".git").symlink_to(self.own / ".git")
            return root
        git = root / "tree"
        git.mkdir()
        (git / "HEAD").write_text("ref: refs/heads/main\n")
        (git / "commondir").write_text(f"{self.own / '.git'}\n")
        (git / "gitdir").write_text(f"{root / '.git'}\n")
        (root / ".git").write_text(f"gitdir: {git}\n")
        return root


@dataclass(slots=True)
class CodingAgent:
    """One session of a client in a folder, by its hooks' events, with the tools of the memory server."""

    memory: afterturn.Memory
    handler: HookHandler
    config: Config
    client: str
    session: str
    folder: Path
    calls: int = 0

    async def send(self, event: str, **fields: Any) -> str:
        """The text for the model in the answer to an event."""
        client = CLIENTS[self.client]
        event = _GEMINI.get(event, event) if self.client == "gemini-cli" else event
        payload = {"session_id": self.session, "hook_event_name": event, "cwd": str(self.folder), **fields}
        read = client.read(event, payload)
        if read is None:
            return ""
        return (await self.handler.handle(client, read)).context

    async def call_memory(self, name: str, **arguments: str) -> str:
        """A call of the server's tool, with the events that the client reports for it."""
        self.calls += 1
        call = {"tool_name": f"mcp__afterturn__{name}", "tool_input": arguments, "tool_use_id": f"memory-{self.calls}"}
        await self.send("PreToolUse", **call)
        grant = local_grant(self.config, folder=self.folder, agent=self.client)
        answer = await call_tool(self.memory, grant, name, arguments)
        await self.send("PostToolUse", **call, tool_response=answer.text)
        return answer.text


def _prompt(client: str, poison: Poison, way: str) -> dict[str, str]:
    """The fields of the event for the user's prompt. Some clients put the text of files and commands into it."""
    read = "\n".join(poison.pieces)
    typed = {"referenced file": f"{poison.question} @notes.md", "slash command": "/check"}.get(way, poison.question)
    loaded = typed
    if way == "referenced file":
        loaded += (
            f"\n\n--- Content from referenced files ---\n\nContent from @notes.md:\n{read}\n--- End of content ---"
        )
    elif way == "slash command":
        loaded = read
    if client == "qwen-code":
        return {"prompt": loaded, "submitted_prompt": typed}
    return {"prompt": loaded if client == "gemini-cli" else typed}


async def _read_it(agent: CodingAgent, poison: Poison, way: str) -> None:
    """The agent reads the poison, as far as that has events."""
    call: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "read"}
    if way in ("failed tool", "failed tool that is reported", "open call"):
        await agent.send("PreToolUse", **call)
    if way == "failed tool that is reported":
        await agent.send("PostToolUseFailure", **call, error="\n".join(poison.pieces))
    if way == "sub-agent":
        await agent.send("SubagentStop", agent_id="1", agent_type="task", last_assistant_message=poison.text)


async def work_in_hostile_repository(
    memory: afterturn.Memory, places: Repositories, space: str, poison: Poison, trusted: list[str], turn: int
) -> tuple[list[tuple[str, str]], list[tuple[str, str]], set[str]]:
    """What the server answered there, everything that a model is shown in the user's own repository, and the spaces of
    the projects. `trusted` are the ids of the user's memories, which the agent tries to change. Ways and clients take
    turns by `turn`."""
    way, client = WAYS[turn % len(WAYS)], _AGENTS[turn // len(WAYS) % len(_AGENTS)]
    config = Config(space=space)
    handler = HookHandler(memory, config, Counter())
    folder = places.unpack(way)
    agent = CodingAgent(memory, handler, config, client, f"hostile-{poison.mark}", folder)
    await agent.send("SessionStart", source="startup")
    await agent.send("UserPromptSubmit", **_prompt(client, poison, way))
    await _read_it(agent, poison, way)
    outputs = []
    for text in (poison.text, poison.echo):
        for kind in ("fact", "preference", "convention"):
            outputs.append(("add_memory", await agent.call_memory("add_memory", text=text, kind=kind)))
    # All projects recall it.
    core = memory.space(space)
    imported = (await core.add(f"The host of page {poison.number} is heron.internal", origin="import")).entry
    for entry_id in [*trusted, imported.id]:
        await agent.call_memory("update_memory", id=entry_id, text=poison.text)
        await agent.call_memory("delete_memory", id=entry_id)
    said = f"I will remember this: {poison.text}"
    await agent.send("Stop", last_assistant_message=said, prompt_response=said)
    await memory.drain(within=120)
    # The next day, in a repository of the user's own.
    home = CodingAgent(memory, handler, config, client, f"own-{poison.mark}", places.own)
    prompts = [("a new session", await home.send("SessionStart", source="startup"))]
    asked = f"What do you know about {poison.payload[:60]}?"
    shown = await home.send("UserPromptSubmit", prompt=asked, submitted_prompt=asked)
    found = await home.call_memory("search_memory", query=f"{poison.payload[:60]} {poison.mark}")
    kept = (await core.get(imported.id)).text
    seen = ((f"the block of {client} elsewhere", shown), ("search_memory elsewhere", found), ("an import", kept))
    # Poison of other trials may be there, quoted.
    prompts += [(where, text) for where, text in seen if poison.mark in marks_in(text)]
    outputs += seen[:2]
    await home.send("Stop", last_assistant_message="Done.", prompt_response="Done.")
    return outputs, prompts, {find_project(places.own).space, find_project(folder).space}
