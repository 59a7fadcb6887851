"""What a trace stores of the candidates of a recall."""

import json
from contextlib import closing
from pathlib import Path

import apsw
from spoken import OpenMemory, assistant, user

MEMORIES = 40


async def test_a_stored_candidate_is_a_reference_and_short_numbers(open_memory: OpenMemory, tmp_path: Path) -> None:
    """Recalls take most of the file, with up to 128 candidates each."""
    async with open_memory() as memory:
        for number in range(MEMORIES):
            await memory.space("user:ada").add(f"Box {number} in the cellar holds the tools of workbench {number}")
        await memory.drain()
        messages = [user("Which box in the cellar holds the tools?")]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            assert await turn.inject(messages) is not None
            messages.append(assistant("Box 3."))
        assert await turn.wait_recorded(within=10.0)
    with closing(apsw.Connection(str(tmp_path / "memory.db"))) as connection:
        [(detail,)] = connection.execute("SELECT detail FROM recall").fetchall()
    candidates = json.loads(str(detail))["candidates"]
    assert len(candidates) == MEMORIES
    assert len(json.dumps(candidates, separators=(",", ":"))) < MEMORIES * 80
