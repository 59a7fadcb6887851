"""Memories that were stored before their secrets were known, and what models are shown of them now."""

import pytest

import afterturn
from afterturn.config import Config
from afterturn.guard.output_filter import OutputFilter
from afterturn.recall import block as recall_block
from afterturn.recall.answer import compose
from afterturn.testing import EventLog, ScriptedModel
from afterturn.testing.entries import entry
from afterturn.types import Draft, Hit, Lane, Origin, Target

TOKEN = "ghp_" + "a1B2" * 9
QUESTION = "How is the api deployed?"


async def stored_before(opened, **fields: object) -> str:
    """As if today's scanner had not been there."""
    async with opened(scanners="none") as memory:
        added = await memory.space("user:ada").add(f"The api is deployed with {TOKEN}", **fields)
        await memory.drain()
    return added.entry.ref


async def shown(memory: afterturn.Memory, text: str = QUESTION) -> str:
    messages = [{"role": "user", "content": text}]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        await turn.inject(messages)
        block = "" if len(messages) == 1 else str(messages[1]["content"])
        messages.append({"role": "assistant", "content": "Done."})
    assert await turn.wait_recorded()
    await memory.drain()
    return block


async def test_a_trusted_memory_is_shown_without_its_secret(opened, told: EventLog) -> None:
    """G3: what is known of secrets improves after the fact; the memory itself stays as it was."""
    ref = await stored_before(opened)
    async with opened() as memory:
        text = await shown(memory)
        assert "deployed with [redacted: github token]" in text
        assert TOKEN in (await memory.space("user:ada").get(ref)).text
    assert told.named("withheld") == []


@pytest.mark.parametrize("origin", ["tool", "web", "import", "subagent"])
async def test_an_untrusted_memory_with_a_secret_is_withheld(opened, told: EventLog, origin: str) -> None:
    """G3, R5: an event says which and why, once; the recall says that the guard held it back."""
    ref = await stored_before(opened, origin=origin)
    async with opened() as memory:
        assert await shown(memory) == ""
        traced = await memory.conversation("c", user="ada").trace("last")
    (event,) = told.named("withheld")
    assert event.data == {"memory": ref, "reason": "github token redacted"}
    (recall,) = traced.turns[0].recalls
    assert (recall.row.outcome, recall.row.reason) == ("empty", "withheld")
    assert [(one.ref, one.why) for one in recall.left_out] == [(ref, "quarantined")]


async def test_what_is_withheld_gives_its_place_to_others(opened) -> None:
    """G3, H9: a block of what remains, which a replay makes again."""
    ref = await stored_before(opened, origin="web")
    async with opened(recall_entries_max=1) as memory:
        await memory.space("user:ada").add("The api is deployed with make ship on Mondays, says Grace")
        await memory.drain()
        text = await shown(memory)
        (block,) = (await memory.conversation("c", user="ada").replay("last")).blocks
    assert ("make ship" in text, ref in text) == (True, False)
    assert block.identical


async def test_nothing_is_withheld_while_scanning_is_off(opened) -> None:
    """G3: a host that scans elsewhere decides."""
    await stored_before(opened, origin="web")
    async with opened(scanners="none") as memory:
        assert TOKEN in await shown(memory)


@pytest.mark.parametrize("origin, answer", [("user", "[redacted: github token]"), ("web", "Nothing relevant")])
async def test_search_answers_are_looked_at_too(opened, told: EventLog, origin: str, answer: str) -> None:
    """G3, A2: a tool shows a model no more than a block does."""
    await stored_before(opened, origin=origin)
    async with opened() as memory:
        tools = memory.conversation("c", user="ada").tools()
        text = await tools.dispatch("search_memory", {"query": QUESTION})
    assert (answer in text, TOKEN in text) == (True, False)
    assert len(told.named("withheld")) == (origin == "web")


@pytest.mark.parametrize("origin", ["user", "web"])
async def test_a_sub_agent_is_told_no_secret(opened, told: EventLog, origin: str) -> None:
    """G3, A1: key facts are looked at as well."""
    await stored_before(opened, origin=origin)
    async with opened() as memory:
        messages = [{"role": "user", "content": QUESTION}]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await turn.inject(messages)
            task = turn.delegate("Deploy the api")
            turn.abort()
    assert TOKEN not in task
    assert ("[redacted: github token]" in task) == (origin == "user")


async def test_the_standing_block_holds_no_secret_however_old_it_is(opened) -> None:
    """G3, S3: one that was frozen before is made anew."""
    await stored_before(opened, pinned=True)
    async with opened(scanners="none") as memory:
        before = await memory.conversation("c", user="ada").standing().block()
    async with opened() as memory:
        standing = memory.conversation("c", user="ada").standing(instructions=[f"Use {TOKEN} for staging"])
        after = await standing.block()
        again = await standing.block()
    assert TOKEN in before
    assert (TOKEN in after, after == again) == (False, True)
    assert "- The api is deployed with [redacted: github token]" in after
    assert "Use [redacted: github token] for staging" in after


async def test_relevant_context_is_looked_at_too(opened, told: EventLog) -> None:
    """G3, S4: for hosts that write their prompt themselves."""
    await stored_before(opened, origin="web")
    async with opened() as memory:
        assert await memory.conversation("c", user="ada").standing().relevant_context(QUESTION) == ""
    assert len(told.named("withheld")) == 1


async def test_a_model_that_chooses_sees_no_secret_either(opened, tmp_path, clock) -> None:
    """G3, R7: what it is offered is looked at before it leaves the machine."""
    await stored_before(opened)
    await stored_before(opened, origin="web", target="environment")
    model = ScriptedModel(['{"chosen": [1]}', '{"chosen": [1]}'])
    parts = afterturn.Components(clock=clock, model=model)
    settings = {"refined": True, "embedder": "none", "rules": False, "grace": 5.0}
    async with afterturn.open(tmp_path / "memory.db", settings, components=parts) as memory:
        messages = [{"role": "user", "content": QUESTION}]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await turn.inject(messages, phase="refined")
            turn.abort()
    asked = repr([call.messages for call in model.calls])
    assert model.calls
    assert (TOKEN in asked, "[redacted: github token]" in asked) == (False, True)


def test_a_secret_is_taken_out_before_a_window_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """G3, H9: half a token in a window is none that a scanner knows."""
    text = "word " * 300 + f"the key is {TOKEN} " + "word " * 300
    hit = Hit(entry(text), Lane.LONG_TERM, 1.0, 1.0, None, ("key",))
    for size in range(20, 120, 7):
        monkeypatch.setattr(recall_block, "ENTRY_BYTES_MAX", max(size, 64))
        screen = OutputFilter(scanning=True)
        block = compose([hit], Config(), visible_bytes=0, now=0.0, screen=screen)
        assert block is not None
        assert "ghp_" not in block.text


def test_a_screen_looks_once_and_says_why() -> None:
    """G3: untrusted by lineage is untrusted."""
    screen = OutputFilter(scanning=True)
    reviewed = entry(f"key {TOKEN}", origin=Origin.BACKGROUND_REVIEW, trust=40, target=Target.USER)
    assert (screen.shown(reviewed), screen.beginning(reviewed, 10)) == (None, None)
    assert screen.withheld == {reviewed.ref: "github token redacted"}
    assert OutputFilter(scanning=False).shown(reviewed) == reviewed.text


async def test_what_an_untrusted_lineage_says_is_quoted(memory: afterturn.Memory) -> None:
    """G2, H4: by trust, not by who wrote it down."""
    ada = memory.space("user:ada")
    await ada.add_many([Draft("the api is deployed by hand", origin=Origin.WEB, id="claimed1")])
    await ada.add("The api is deployed by Grace", origin="background_review", sources=["claimed1"])
    await memory.drain()
    lines = [line for line in (await shown(memory)).splitlines() if "by Grace" in line]
    assert len(lines) == 1
    assert "according to" in lines[0]
    assert '"The api is deployed by Grace"' in lines[0]
