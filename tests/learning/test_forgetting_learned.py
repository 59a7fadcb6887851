"""What was learned from a message goes with it, wherever a review has written it; what stands in a prompt is in use."""

from pathlib import Path

import pytest
from simple_host import open_memory, say, texts

from afterturn.testing.clock import ManualClock
from afterturn.testing.model import ScriptedModel, call_tools
from afterturn.types import Filter, Kind

NOTHING = "Nothing to save."
DAY = 86_400.0
TEA = call_tools(("add_memory", {"text": "Bob prefers oolong tea", "target": "user", "messages": [1]}))
PREFERENCE = call_tools(
    ("add_memory", {"text": "The user prefers oolong tea", "target": "user", "kind": "preference", "messages": [1]})
)
TWO = call_tools(
    ("add_memory", {"text": "The user is on sick leave", "target": "user", "messages": [1]}),
    ("add_memory", {"text": "The build runs on Debian", "target": "environment", "messages": [1]}),
)


async def test_what_a_speaker_s_space_learned_goes_with_the_shared_conversation(tmp_path: Path) -> None:
    """M2: the records are the team's, the statement is the speaker's."""
    async with open_memory(tmp_path, ScriptedModel(TEA, NOTHING), review_interval=1) as memory:
        talk = memory.conversation("c", owner="team:x", reads=["team:x", "user:bob"])
        await say(talk, "I prefer oolong tea, says Bob", speaker="bob")
        await memory.drain(within=20)
        bob = memory.space("user:bob")
        assert await texts(bob) == ["Bob prefers oolong tea"]
        await memory.space("team:x").forget(conversation="c")
        assert await texts(bob) == []


@pytest.mark.parametrize("how", ["memory", "conversation", "everything"])
async def test_what_a_user_s_space_learned_goes_with_the_project_s_record(tmp_path: Path, how: str) -> None:
    """M2: what was said into a project is recorded there; what it tells of the user is the user's."""
    async with open_memory(tmp_path, ScriptedModel(TWO, NOTHING), review_interval=1) as memory:
        await say(memory.conversation("c", user="ada", writes="project:x"), "I am on sick leave. We build on Debian.")
        await memory.drain(within=20)
        project, ada = memory.space("project:x"), memory.space("user:ada")
        assert await texts(ada) == ["The user is on sick leave"]
        said = [entry for entry in await project.list(filter=Filter(kind=Kind.RECORD)) if "sick" in entry.text]
        chosen: dict[str, dict[str, object]] = {
            "memory": {"memory": said[0].id},
            "conversation": {"conversation": "c"},
            "everything": {"everything": True},
        }
        await project.forget(**chosen[how])
        assert [await texts(space) for space in (project, ada)] == [[], []]


async def test_memories_in_system_prompts_do_not_fade(tmp_path: Path) -> None:
    """V10: a memory that every conversation begins with is in use."""
    script = ScriptedModel(PREFERENCE, NOTHING)
    async with open_memory(tmp_path, script, review_interval=1, fade_days=30.0) as memory:
        await say(memory.conversation("c", user="ada"), "I prefer oolong tea")
        await memory.drain(within=20)
        clock = memory._services.clock
        assert isinstance(clock, ManualClock)
        for day in range(4):
            clock.advance(10 * DAY)
            assert "oolong" in str(await memory.conversation(f"d{day}", user="ada").standing().block())
        assert (await memory.space("user:ada").consolidate(dry_run=True)).changes == ()
        clock.advance(31 * DAY)
        assert len((await memory.space("user:ada").consolidate(dry_run=True)).changes) == 1
