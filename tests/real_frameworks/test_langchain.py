"""LangChain's `create_agent` with our middleware, against a scripted model."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from framework_world import (
    ANSWER,
    BROKEN,
    COMPACTION,
    FACT,
    IDS,
    KNOWN,
    LATE,
    LOOK_UP,
    NOT_RECORDED,
    ONCE,
    QUESTION,
    RULES,
    STANDING,
    STANDING_ROW,
    STREAMING,
    SUBAGENT,
    SUPPER,
    SYNC,
    World,
    assert_late_block,
    assert_one_block_in_a_loop,
    assert_paired,
    assert_rules_held,
    blocks,
    run_example,
    system,
)
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, SummarizationMiddleware
from langchain.tools import tool
from langchain_core.messages import SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from afterturn.frameworks.langchain import AfterturnMiddleware
from lab.clients.model_server import Call, Rule, Say

pytestmark = pytest.mark.frameworks


@tool
def look_up(query: str) -> str:
    """Looks something up."""
    return f"nothing about {query}"


def model(world: World) -> ChatOpenAI:
    return ChatOpenAI(model="scripted", base_url=f"{world.server.url}/v1", api_key="none", max_retries=0)


def agent(world: World, *more: Any, tools: Any = (look_up,), before: Any = (), **options: Any) -> Any:
    options = {"user": "ada", **options}
    middleware = [*before, AfterturnMiddleware(world.memory, **options), *more]
    return create_agent(model(world), list(tools), middleware=middleware, checkpointer=InMemorySaver())


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


@pytest.mark.shows(KNOWN)
async def test_what_was_said_in_one_thread_is_known_in_the_next(world: World):
    """R1, C1: recorded after the first run, recalled in the second."""
    helper = agent(world)
    await helper.ainvoke(said("My cat Miso is allergic to chicken."), thread("monday"))
    world.wait_for("recorded")
    answer = await helper.ainvoke(said(QUESTION), thread("tuesday"))
    assert "allergic to chicken" in blocks(world.requests[-1])[0]
    # The block is in the state, after the user's message, so the next run in the thread has it too.
    assert [message.type for message in answer["messages"]] == ["human", "human", "ai"]


@pytest.mark.shows(ONCE)
async def test_a_tool_loop_gets_one_block(world: World):
    """R1, H2, H3: one recall and one block in four model calls."""
    world.knows()
    world.play_tools()
    await agent(world).ainvoke(said(QUESTION), thread("loop"))
    assert_one_block_in_a_loop(world.requests)
    assert world.count("recall_started") == 1


@pytest.mark.shows(SYNC)
def test_a_run_without_an_event_loop_gets_the_same(world: World):
    """R1, H2, H3: with `invoke`."""
    world.knows()
    world.play_tools()
    agent(world).invoke(said(QUESTION), thread("loop"))
    assert_one_block_in_a_loop(world.requests)
    world.wait_for("recorded")
    assert ("user", QUESTION) in world.records()


@pytest.mark.shows(STREAMING)
async def test_a_streamed_run_gets_the_same(world: World):
    """R1, H2, H3: with `astream`."""
    world.knows()
    world.play_tools()
    async for _ in agent(world).astream(said(QUESTION), thread("loop"), stream_mode="messages"):
        pass
    assert_one_block_in_a_loop(world.requests)
    world.wait_for("recorded")


@pytest.mark.shows(LATE)
async def test_a_slow_recall_arrives_after_a_tool_result(open_world: Callable[..., World]):
    """H1: with the first call of the model under way, the block waits for the tool's result."""
    world = open_world(grace=0.2)
    world.knows()
    world.play_tools()
    world.store.hold()

    @tool(LOOK_UP)
    def slow_look_up(query: str) -> str:
        """Looks something up."""
        return world.release_recall() if query == "shelf 1" else "nothing"

    await agent(world, tools=[slow_look_up]).ainvoke(said(QUESTION), thread("late"))
    assert_late_block(world.requests)


@pytest.mark.shows(NOT_RECORDED)
async def test_own_text_is_not_recorded(world: World):
    """C5: the block is in the request, and not in the records."""
    world.knows()
    world.play_tools()
    await agent(world).ainvoke(said(QUESTION), thread("loop"))
    world.wait_for("recorded")
    records = world.records()
    assert [text for speaker, text in records if speaker == "user"] == [QUESTION]
    assert [text for speaker, text in records if speaker == "assistant"] == [ANSWER]
    assert not any("afterturn" in text for _, text in records)


@pytest.mark.shows(NOT_RECORDED)
async def test_the_next_turn_of_a_thread_repeats_nothing(world: World):
    """H5: what the model still sees is not injected again."""
    world.knows()
    helper = agent(world)
    await helper.ainvoke(said(QUESTION), thread("one"))
    await helper.ainvoke(said(QUESTION + " Tell me again."), thread("one"))
    assert len(blocks(world.requests[-1])) == 1


@pytest.mark.shows(COMPACTION)
async def test_after_a_summary_the_fact_is_recalled_again(world: World):
    """H7: the block was summarized away."""
    world.knows()
    world.play(Rule("summar", (Say("They talked about a cat."),)), otherwise="Yes.")
    summary = SummarizationMiddleware(model(world), trigger=("messages", 4), keep=("messages", 1))
    helper = agent(world, before=[summary])
    await helper.ainvoke(said(QUESTION), thread("long"))
    await helper.ainvoke(said(f"{SUPPER} Remember that Miso is allergic to something."), thread("long"))
    last = world.requests[-1]
    assert len(blocks(last)) == 1
    assert "They talked about a cat." in last.text or QUESTION not in last.text
    world.wait_for("recorded", 2)
    assert not any("summary" in text for speaker, text in world.records() if speaker == "user")


@pytest.mark.shows(SUBAGENT)
async def test_what_an_agent_tells_its_subagent_is_not_the_users(world: World):
    """A1: the sub-agent's task has the role of a user there, and is recorded as a sub-agent's."""
    world.knows()
    inner = create_agent(model(world), [], middleware=[AfterturnMiddleware(world.memory, user="ada")], name="inner")

    @tool
    async def ask_expert(task: str) -> str:
        """Asks an expert."""
        done = await inner.ainvoke(said(task))
        return str(done["messages"][-1].content)

    task = "Please remember that the user always wants tuna."
    world.play(Rule(SUPPER, (Call("ask_expert", {"task": task}), Say("Fish."))), Rule("tuna", (Say("I see."),)))
    await agent(world, tools=[ask_expert]).ainvoke(said(SUPPER), thread("outer"))
    world.wait_for("recorded", 2)
    assert [text for speaker, text in world.records() if speaker == "user" and "tuna" not in text] == [SUPPER]
    entries = [entry for entry in world.memory.space("user:ada").list(limit=100) if "tuna" in entry.text]
    assert entries
    assert {str(entry.origin) for entry in entries} == {"subagent"}


@pytest.mark.shows(RULES)
async def test_a_firm_rule_refuses_a_call_and_others_come_with_the_result(world: World):
    """T1: the tool does not run; the model reads why."""
    world.play_shell()
    ran: list[str] = []

    @tool
    def shell(command: str) -> str:
        """Runs a command."""
        ran.append(command)
        return "done"

    await agent(world, tools=[shell]).ainvoke(said("Publish it"), thread("rules"))
    assert_rules_held(world.requests[-1], ran)
    assert_paired(world.requests[-1])


@pytest.mark.shows(RULES)
def test_rules_hold_without_an_event_loop(world: World):
    """T1: with `invoke`."""
    world.knows("Never push to main", firm=True)

    @tool
    def shell(command: str) -> str:
        """Runs a command."""
        raise AssertionError(command)

    world.play(Rule("Publish", (Call("shell", {"command": "git push origin main"}), Say("Done."))))
    agent(world, tools=[shell]).invoke(said("Publish it"), thread("rules"))
    assert "Refused by your rule" in world.requests[-1].text


@pytest.mark.shows(STANDING_ROW)
async def test_preferences_are_in_the_system_prompt(world: World):
    """S1: at its end, and the same in every request."""
    world.knows("Ada wants short answers", metadata={"kind": "preference"})
    world.play_tools()
    await agent(world).ainvoke(said(QUESTION), thread("loop"))
    prompts = [system(request) for request in world.requests]
    assert STANDING in prompts[0]
    assert "Ada wants short answers" in prompts[0]
    assert len(set(prompts)) == 1


async def test_a_system_prompt_in_blocks_keeps_them(world: World):
    """S1: a block that is marked for the provider's cache stays as it is."""
    world.knows("Ada wants short answers", metadata={"kind": "preference"})
    marked = {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}
    ours = AfterturnMiddleware(world.memory, user="ada")
    await create_agent(model(world), [], system_prompt=SystemMessage([marked]), middleware=[ours]).ainvoke(said("Hi!"))
    content = world.requests[-1].body["messages"][0]["content"]
    assert content[0]["text"] == "Be kind."
    assert "Ada wants short answers" in content[1]["text"]


@dataclass
class Context:
    user_id: str


@pytest.mark.shows(IDS)
async def test_users_come_from_the_runs_context(world: World):
    """L2: one line says where the id is; nobody sees what others said."""
    world.knows(FACT)
    middleware = AfterturnMiddleware(world.memory, user=lambda runtime: runtime.context.user_id)
    helper = create_agent(model(world), [], middleware=[middleware], context_schema=Context)
    await helper.ainvoke(said(QUESTION), context=Context("bob"))
    await helper.ainvoke(said(QUESTION), context=Context("ada"))
    assert [len(blocks(request)) for request in world.requests] == [0, 1]
    world.wait_for("recorded", 2)
    assert ("user", QUESTION) in world.records("user:bob")


@pytest.mark.shows(IDS)
async def test_the_conversation_is_the_thread(world: World):
    """L2: its id is LangGraph's."""
    await agent(world).ainvoke(said("I like tea."), thread("thread-7"))
    world.wait_for("recorded")
    assert list(world.memory.space("user:ada").conversations()) == ["thread-7"]


@pytest.mark.shows(BROKEN)
async def test_a_run_goes_on_without_a_user_and_after_closing(world: World, caplog: pytest.LogCaptureFixture):
    """Memory's fault is logged, and the agent answers."""
    world.play(otherwise="Noted.")
    helper = agent(world, user=lambda runtime: None)
    answer = await helper.ainvoke(said(QUESTION), thread("nobody"))
    assert answer["messages"][-1].content == "Noted."
    assert "names no user" in caplog.text
    known = agent(world)
    world.memory.close()
    answer = await known.ainvoke(said(QUESTION), thread("closed"))
    assert answer["messages"][-1].content == "Noted."


async def test_an_interrupted_run_is_one_turn(world: World):
    """C3: a person approves the call in between."""
    world.knows()
    world.play(Rule(QUESTION, (Call(LOOK_UP, {"query": "x"}), Say(ANSWER))))
    helper = agent(world, HumanInTheLoopMiddleware(interrupt_on={LOOK_UP: True}))
    await helper.ainvoke(said(QUESTION), thread("asked"))
    await helper.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), thread("asked"))
    world.wait_for("recorded")
    assert [text for speaker, text in world.records() if speaker == "user"] == [QUESTION]
    assert len(blocks(world.requests[-1])) == 1


async def test_an_interrupted_run_continues_in_another_process(world: World):
    """C3: another middleware has not seen the beginning, and finds the turn's id in the state."""
    world.knows()
    world.play(Rule(QUESTION, (Call(LOOK_UP, {"query": "x"}), Say(ANSWER))))
    saver = InMemorySaver()

    def build() -> Any:
        asking = HumanInTheLoopMiddleware(interrupt_on={LOOK_UP: True})
        ours = AfterturnMiddleware(world.memory, user="ada")
        return create_agent(model(world), [look_up], middleware=[ours, asking], checkpointer=saver)

    await build().ainvoke(said(QUESTION), thread("asked"))
    await build().ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), thread("asked"))
    world.wait_for("recorded")
    assert [text for speaker, text in world.records() if speaker == "user"] == [QUESTION]
    assert len(blocks(world.requests[-1])) == 1


async def test_runs_that_began_without_memory_are_not_mixed_up(world: World):
    """L2: their states have no id of a turn, so they have no turn that another user's run could get."""
    world.knows()
    world.play(Rule("cat", (Call(LOOK_UP, {"query": "x"}), Say(ANSWER))))
    saver, asking = InMemorySaver(), HumanInTheLoopMiddleware(interrupt_on={LOOK_UP: True})

    def build(*ours: Any) -> Any:
        return create_agent(
            model(world), [look_up], middleware=[*ours, asking], checkpointer=saver, context_schema=Context
        )

    before, ours = build(), AfterturnMiddleware(world.memory, user=lambda runtime: runtime.context.user_id)
    for user in ("ada", "bob"):
        await before.ainvoke(
            said(f"I am {user}. What is my cat Miso allergic to?"), thread(user), context=Context(user)
        )
    after, approved = build(ours), Command(resume={"decisions": [{"type": "approve"}]})
    await asyncio.gather(*(after.ainvoke(approved, thread(user), context=Context(user)) for user in ("ada", "bob")))
    await after.ainvoke(said("I like tea."), thread("ada"), context=Context("ada"))
    world.wait_for("recorded")
    assert [text for speaker, text in world.records() if speaker == "user"] == ["I like tea."]
    assert world.records("user:bob") == []


def test_the_example_runs(world: World, tmp_path: Path):
    """The second run knows what was said in the first."""
    variables = {"OPENAI_BASE_URL": f"{world.server.url}/v1", "OPENAI_API_KEY": "none", "AFTERTURN_GRACE": "30"}
    run_example("langchain_agent.py", tmp_path, variables)
    assert run_example("langchain_agent.py", tmp_path, variables).count("Understood.") == 2
    assert "allergic to chicken" in blocks(world.requests[-1])[0]
