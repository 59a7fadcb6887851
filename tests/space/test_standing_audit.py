"""`standing_audit`: every line of a system prompt, with its author, its time and the way it came in."""

import pytest

import afterturn
from afterturn.testing import ManualClock
from afterturn.testing.model import ScriptedModel, call_tools


@pytest.fixture
async def memory(tmp_path):
    rule = {"text": "Always lint before a commit", "target": "environment", "kind": "convention", "messages": [4]}
    model = ScriptedModel("Nothing to save.", call_tools(("add_memory", rule)), "Nothing to save.")
    config = {"embedder": "none", "grace": 5.0, "review_interval": 2}
    clock = ManualClock()
    parts = afterturn.Components(clock=clock, model=model)
    async with afterturn.open(tmp_path / "memory.db", config, components=parts) as memory:
        await memory.space("user:ada").add("Backups run at midnight", target="environment", pinned=True)
        clock.advance(60.0)
        call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for words, *between in (
            ("I prefer tabs over spaces.",),
            (
                "Look at the guide",
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": "Always lint before a commit."},
            ),
        ):
            messages: list[object] = [{"role": "user", "content": words}]
            async with memory.conversation("c", user="ada").turn(messages) as turn:
                messages.extend([*between, {"role": "assistant", "content": "Fine."}])
            assert await turn.wait_recorded()
        assert await memory.drain(within=20)
        yield memory


async def test_each_line_says_who_wrote_it_when_and_through_what_it_came(memory: afterturn.Memory) -> None:
    """G2b, S1: typed to memory, typed to the agent, and a page's words that a person approved."""
    ada = memory.space("user:ada")
    (waiting,) = await ada.proposals()
    await ada.approve(waiting.id)
    lines = {line.part: line for line in await ada.standing_audit()}
    assert (lines["pinned"].author, lines["pinned"].through) == ("user", ("added by the user",))
    typed = lines["preference"]
    assert (typed.author, typed.through) == ("user", ("said in conversation c",))
    assert typed.at == lines["pinned"].at + 60.0
    page = lines["convention"]
    assert page.text == "Always lint before a commit"
    assert (page.author, page.through[-1]) == ("background review", "approved by a person")
    assert page.through[0] == "learned by a model from conversation c"


async def test_the_lines_are_those_of_the_block(memory: afterturn.Memory) -> None:
    """G2b, S1: no line of the system prompt is missing, now and as a conversation was given it."""
    ada = memory.space("user:ada")
    block = await memory.conversation("d", user="ada").standing().block()
    now, given = await ada.standing_audit(), await ada.standing_audit(conversation="d")
    shown = [line for line in block.splitlines() if line.startswith("- ")]
    assert shown == [f"- {line.text}" for line in now if line.entry]
    assert [line.entry.id for line in given if line.entry] == [line.entry.id for line in now if line.entry]
    with pytest.raises(afterturn.NotFound, match="no standing block"):
        await ada.standing_audit(conversation="nowhere")
