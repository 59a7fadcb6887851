"""What a trace stores of the candidates of a recall, and what a conversation keeps of them."""

import gc
import json
from contextlib import closing
from pathlib import Path

import apsw
from spoken import OpenMemory, assistant, user

from afterturn.types import Decision, Hit

MEMORIES = 30


async def test_a_stored_candidate_is_a_reference_and_short_numbers(open_memory: OpenMemory, tmp_path: Path) -> None:
    """Recalls take most of the file, with dozens of candidates each."""
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


async def test_a_conversation_at_rest_keeps_only_what_it_offered(open_memory: OpenMemory) -> None:
    """A process may have thousands of open conversations, each with the candidates of its last turn."""
    async with open_memory() as memory:
        for number in range(MEMORIES):
            await memory.space("user:ada").add(f"In room {number} of the attic stands a chair")
        await memory.space("user:ada").add("The lamps are in a box in the attic")
        await memory.drain()
        conversation, messages = memory.conversation("c", user="ada"), [user("Where are the lamps?")]
        async with conversation.turn(messages) as turn:
            assert await turn.inject(messages) is not None
            messages.append(assistant("In the attic."))
        assert await turn.wait_recorded(within=10.0)
        assert await memory.drain()
        gc.collect()
        kept = {one.entry.ref for one in gc.get_objects() if type(one) is Hit and "the attic" in one.entry.text}
        (traced,) = (await conversation.trace("last")).turns
        weighed = {one.ref: one.decision for recall in traced.recalls for one in recall.row.candidates}
        assert kept == {ref for ref, decision in weighed.items() if decision is not Decision.FLOOR}
        assert len(kept) < len(weighed)
