"""Events that reach the helper late, because it was being started."""

from pathlib import Path

import pytest

import afterturn
from afterturn.config import load_config
from afterturn.hosts.hooks.clients import CLIENTS
from afterturn.hosts.hooks.handler import HookHandler

CALL = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "t1"}


@pytest.mark.parametrize("was_shown", [True, False])
async def test_what_the_script_could_not_show_is_offered_at_a_later_point(tmp_path: Path, was_shown: bool) -> None:
    """H5, R8: a memory that the script has shown is not shown again; one that it has not found comes later."""
    config, client = load_config({"embedder": "none", "space": "user:ada"}), CLIENTS["claude-code"]

    async def handle(name: str, *, is_late: bool = False, **fields: object) -> str:
        event = client.read(name, {"session_id": "s", "cwd": str(tmp_path), **fields})
        assert event is not None
        left_at = 1.0 if is_late else None
        return (await handler.handle(client, event, left_at=left_at, was_shown=is_late and was_shown)).context

    async with afterturn.open(tmp_path / "memory.db", config) as memory:
        await memory.space("user:ada").add("Ada's cat is called Miso")
        handler = HookHandler(memory, config)
        assert await handle("UserPromptSubmit", is_late=True, prompt="What is my cat called?") == ""
        await handle("PreToolUse", **CALL)
        later = await handle("PostToolUse", tool_response="a.txt", **CALL)
    assert ("Miso" in later) is not was_shown
