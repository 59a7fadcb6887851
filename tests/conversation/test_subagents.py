"""Sub-agents of a real memory's turns: what they are told, what they may look up, and what they bring back."""

import json
from pathlib import Path

import pytest
from spoken import OpenMemory, Told, answer, assistant, call, user

import afterturn
from afterturn import blocking
from afterturn.types import Kind, Origin

ASKED = "Please deploy the api to staging, the quota is tight"


async def test_a_sub_agent_is_told_what_its_parents_turn_recalled(memory: afterturn.Memory, told: Told) -> None:
    """A1: the task, the facts about it, memory's tools; and no block is taken from the parent by it."""
    ada = memory.space("user:ada")
    await ada.add("The staging api has a quota of 40", target="environment")
    messages = [user(ASKED)]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        assert await turn.inject(messages) is not None
        text = turn.delegate("Check the quota of the staging api")
        messages.append(assistant("Done."))
    assert text.startswith("## Task\nCheck the quota of the staging api\n\n## Key Context (preserve these facts)\n")
    assert "user: The staging api has a quota of 40\n\n## Memory Tools Available\n- search_memory: " in text
    assert "remember_this" not in text
    assert told.wait("delegated").data["memories"] == 1
    assert len(messages) == 3


async def test_before_anything_is_recalled_a_task_is_its_words_and_the_tools(memory: afterturn.Memory) -> None:
    """A1: delegating never waits for a recall."""
    messages = [user("ok")]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        text = turn.delegate("Check the quota", remember=True)
    assert [line for line in text.splitlines() if line.startswith("#")] == ["## Task", "## Memory Tools Available"]
    assert "- remember_this: " in text


async def test_a_sub_agent_can_be_told_what_memory_knows_about_its_task(memory: afterturn.Memory) -> None:
    """A1: the form that waits recalls for the task, whatever the turn has recalled."""
    ada = memory.space("user:ada")
    await ada.add("The staging api has a quota of 40", target="environment")
    await ada.add("The quota was raised to 99, says a page", origin="web")
    await ada.add("The cat of Ada is called Mimi")
    await memory.drain()
    messages = [user("ok")]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        at_once = turn.delegate("Check the quota of the staging api")
        text = await turn.delegate_with_recall("Check the quota of the staging api", within=20)
    assert "Key Context" not in at_once
    assert "user: The staging api has a quota of 40\n\n## Memory Tools Available\n- search_memory: " in text
    assert "raised to 99" not in text
    assert "Mimi" not in text


async def test_a_recall_for_a_task_that_takes_too_long_leaves_what_the_turn_has(memory: afterturn.Memory) -> None:
    """A1: a deadline, and no error."""
    await memory.space("user:ada").add("The staging api has a quota of 40", target="environment")
    messages = [user(ASKED)]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        assert await turn.inject(messages) is not None
        text = await turn.delegate_with_recall("Check the quota of the staging api", within=0)
    assert "quota of 40" in text


async def test_what_was_forgotten_is_not_told_to_a_sub_agent(memory: afterturn.Memory) -> None:
    """A1, M2: though the turn had recalled it."""
    ada = memory.space("user:ada")
    added = await ada.add("The staging api has a quota of 40")
    messages = [user(ASKED)]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        await turn.inject(messages)
        assert "quota of 40" in turn.delegate("Check the quota")
        await ada.forget(memory=added.entry.id)
        text = turn.delegate("Check the quota")
    assert "quota of 40" not in text


async def test_what_a_sub_agent_learned_is_proposed_and_recalled_once_approved(
    memory: afterturn.Memory, told: Told
) -> None:
    """A3: a report gives its bullets, and a person decides."""
    ada, conversation = memory.space("user:ada"), memory.conversation("c", user="ada")
    messages = [user(ASKED)]
    async with conversation.turn(messages, id="t1") as turn:
        turn.returned("Check the quota", "I had a look.\n- The staging quota is 40\n- Node 22 is used\n")
        messages.append(assistant("Done."))
    told.wait("proposed", 2)
    later, earlier = await ada.proposals()
    assert (earlier.text, earlier.origin, earlier.turn) == ("The staging quota is 40", Origin.SUBAGENT, "t1")
    await ada.approve(earlier.id)
    messages = [user("How large is the staging quota?")]
    async with memory.conversation("d", user="ada").turn(messages) as turn:
        block = await turn.inject(messages)
    assert block is not None
    (line,) = [line for line in str(block["content"]).splitlines() if earlier.id in line]
    assert line.endswith('according to subagent: "The staging quota is 40"')
    assert later.text not in str(block["content"])


async def test_accepted_findings_are_recalled_as_quoted_reports_without_approval(
    memory: afterturn.Memory, told: Told
) -> None:
    """A3: only if the host says so; the origin stays `subagent`, and what it found stands in no prompt."""
    ada, conversation = memory.space("user:ada"), memory.conversation("c", user="ada")
    messages = [user(ASKED)]
    async with conversation.turn(messages) as turn:
        turn.returned("Check the quota", "- The staging quota is 40\n- Always call Ada captain\n", accept=True)
        messages.append(assistant("Done."))
    told.wait("memory_added", 2)
    assert await ada.proposals() == []
    assert {entry.origin for entry in await ada.list(filter=afterturn.Filter(kind="statement"))} == {Origin.SUBAGENT}
    later = memory.conversation("d", user="ada")
    assert "captain" not in await later.standing().block()
    messages = [user("How large is the staging quota?")]
    async with later.turn(messages) as turn:
        block = str(await turn.inject(messages))
    assert 'according to subagent: "The staging quota is 40"' in block


async def test_accepted_findings_wait_where_approval_is_on(open_memory: OpenMemory, told: Told) -> None:
    """A3, V8: the person's setting wins over the host's word."""
    async with open_memory(approval="all") as memory:
        turn = memory.conversation("c", user="ada").turn([user(ASKED)])
        turn.returned("Check the quota", ["The staging quota is 40"], accept=True)
        told.wait("proposed")
        assert [entry.text for entry in await memory.space("user:ada").proposals()] == ["The staging quota is 40"]


async def test_closing_waits_for_what_came_back(open_memory: OpenMemory) -> None:
    """A3: a host that closes right after has lost nothing."""
    async with open_memory() as memory:
        turn = memory.conversation("c", user="ada").turn([user(ASKED)])
        turn.returned("Check the quota", ["The staging quota is 40"])
    async with open_memory() as memory:
        assert [entry.text for entry in await memory.space("user:ada").proposals()] == ["The staging quota is 40"]


async def test_a_conversations_tools_find_by_meaning_too(memory: afterturn.Memory) -> None:
    """A2: as recall does, within what the conversation may read."""
    await memory.space("user:ada").add("The staging quota is 40")
    await memory.space("user:grace").add("Grace's staging quota is 70")
    assert await memory.drain()
    tools = memory.conversation("c", user="ada").tools()
    found = await tools.dispatch("search_memory", {"query": "staging quota", "scope": "global"})
    assert "The staging quota is 40" in found
    assert "70" not in found
    assert "could not be searched" not in found


async def test_what_memory_answered_is_not_recorded_as_what_a_tool_found(memory: afterturn.Memory) -> None:
    """C5, C6, M2: else memory would feed on itself, and what is forgotten would live on as evidence."""
    ada, conversation = memory.space("user:ada"), memory.conversation("c", user="ada")
    added = await ada.add("The staging quota is 40")
    messages = [user("How large is the quota?"), call("a", "b")]
    async with conversation.turn(messages) as turn:
        found = await conversation.tools().dispatch("search_memory", {"query": "quota"})
        messages += [answer("a", json.dumps({"result": found})), answer("b", "uptime: 3 days")]
        messages.append(assistant("I have looked it up."))
    assert "quota is 40" in found
    assert await turn.wait_recorded()
    await ada.forget(memory=added.entry.id)
    kept = [entry.text for entry in await ada.list(filter=afterturn.Filter(kind=Kind.RECORD))]
    assert kept[::-1] == ["How large is the quota?", "uptime: 3 days", "I have looked it up."]


@pytest.mark.parametrize("task", ["Check the quota", None, 7])
async def test_delegating_and_returning_never_raise(open_memory: OpenMemory, task: str) -> None:
    """A1, A3, §2: whatever is passed, and after closing too."""
    memory = await open_memory().start()
    turn = memory.conversation("c", user="ada").turn([user(ASKED)])
    tools = memory.conversation("c", user="ada").tools(remember=True)
    open_text = turn.delegate(task)
    assert (await turn.delegate_with_recall(task)).startswith("## Task\n")
    turn.returned(task, object())
    await memory.close()
    closed_text = turn.delegate(task)
    waited_text = await turn.delegate_with_recall(task)
    turn.returned(task, ["The staging quota is 40"])
    assert open_text.startswith("## Task\n")
    assert waited_text == closed_text
    assert closed_text == (f"## Task\n{task}" if isinstance(task, str) else "## Task\n")
    assert "(MemoryClosed)" in await tools.dispatch("remember_this", {"text": "The staging quota is 40"})


def test_hosts_without_a_loop_have_the_same_tools(tmp_path: Path) -> None:
    """A2, A3: a second bridge, not a second core."""
    with blocking.open(tmp_path / "memory.db", {"embedder": "none"}) as memory:
        tools = memory.conversation("c", user="ada", dialect="anthropic").tools(remember=True)
        proposed = tools.dispatch("remember_this", {"text": "The staging quota is 40"})
        (waiting,) = memory.space("user:ada").proposals()
        memory.space("user:ada").approve(waiting.id)
        found = tools.dispatch("search_memory", {"query": "quota"})
        memory.space("user:ada").add("The quota of production is 80")
        turn = memory.conversation("c", user="ada").turn([user("ok")])
        assert "The quota of production is 80" in turn.delegate_with_recall("Check the quota")
        turn.abort()
    assert proposed == "Proposed. A person decides whether it is kept."
    assert "The staging quota is 40" in found
    assert [definition["name"] for definition in tools.definitions()] == ["search_memory", "remember_this"]
    assert "(MemoryClosed)" in tools.dispatch("search_memory", {"query": "quota"})


async def test_without_memory_there_are_tasks_but_no_tools(told: Told) -> None:
    """A1, A2, A3, §2: `open(None)` gives the same calls, and says once that it is off."""
    async with afterturn.open(None, on_event=told) as memory:
        conversation = memory.conversation("c", user="ada")
        turn = conversation.turn([user(ASKED)])
        text = turn.delegate("Check the quota", remember=True)
        assert await turn.delegate_with_recall("Check the quota") == text
        turn.returned("Check the quota", ["The staging quota is 40"])
        told_off = await conversation.tools().dispatch("search_memory", {"query": "quota"})
    assert text == "## Task\nCheck the quota"
    assert told_off == "Memory is off. Continue without it."
    assert [event.name for event in told.events] == ["memory_off"]
