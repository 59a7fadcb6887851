"""Agents of LlamaIndex with our memory, against a scripted model."""

from pathlib import Path
from typing import Any

import pytest
from framework_world import (
    ANSWER,
    BROKEN,
    COMPACTION,
    IDS,
    KNOWN,
    NOT_RECORDED,
    ONCE,
    QUESTION,
    STREAMING,
    SUBAGENT,
    SUPPER,
    SYNC,
    World,
    assert_append_only,
    assert_one_block_in_a_loop,
    blocks,
    parts,
    run_example,
)
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.llms.openai_like import OpenAILike

from afterturn.errors import InvalidInput
from afterturn.frameworks.llama_index import AfterturnChatMemory, LlamaIndexMessages
from lab.clients.model_server import Call, Rule, Say

pytestmark = pytest.mark.frameworks


def look_up(query: str) -> str:
    """Looks something up."""
    return f"nothing about {query}"


def model(world: World) -> OpenAILike:
    address = f"{world.server.url}/v1"
    return OpenAILike(
        model="scripted", api_base=address, api_key="none", is_chat_model=True, is_function_calling_model=True
    )


def agent(world: World, *, streaming: bool = False, **options: Any) -> FunctionAgent:
    return FunctionAgent(tools=[look_up], llm=model(world), streaming=streaming, **options)


def memory(world: World, session: str, **options: Any) -> AfterturnChatMemory:
    return AfterturnChatMemory.open(world.memory, **{"user": "ada", "session_id": session, **options})


@pytest.mark.shows(KNOWN)
async def test_what_was_said_in_one_session_is_known_in_the_next(world: World):
    """R1, C1: recorded after the first run, recalled in the second."""
    await agent(world).run("My cat Miso is allergic to chicken.", memory=memory(world, "monday"))
    world.wait_for("recorded")
    await agent(world).run(QUESTION, memory=memory(world, "tuesday"))
    assert "allergic to chicken" in blocks(world.requests[-1])[0]


@pytest.mark.shows(ONCE)
@pytest.mark.parametrize("streaming", [False, pytest.param(True, marks=pytest.mark.shows(STREAMING))])
async def test_a_tool_loop_gets_one_block(world: World, streaming: bool):
    """R1, H2, H3: one recall and one block in four model calls."""
    world.knows()
    world.play_tools()
    await agent(world, streaming=streaming).run(QUESTION, memory=memory(world, "loop"))
    assert_one_block_in_a_loop(world.requests)
    assert world.count("recall_started") == 1


@pytest.mark.shows(NOT_RECORDED)
async def test_own_text_is_not_recorded_and_not_repeated(world: World):
    """C5, H3, H5: the next turn has the same beginning, and no second block."""
    world.knows()
    world.play_tools()
    session = memory(world, "loop")
    await agent(world).run(QUESTION, memory=session)
    world.wait_for("recorded")
    records = world.records()
    assert [text for speaker, text in records if speaker == "user"] == [QUESTION]
    assert [text for speaker, text in records if speaker == "assistant"] == [ANSWER]
    assert not any("afterturn" in text for _, text in records)
    world.play(otherwise="Yes.")
    await agent(world).run(f"{QUESTION} Are you sure?", memory=session)
    assert len(blocks(world.requests[-1])) == 1
    assert_append_only(world.requests)


@pytest.mark.shows(COMPACTION)
async def test_what_left_the_short_term_memory_is_recalled_again(world: World):
    """H7: LlamaIndex has flushed the block together with its turn."""
    world.knows()
    session = memory(world, "long", token_limit=300, chat_history_token_ratio=0.5, token_flush_size=10)
    await agent(world).run(QUESTION, memory=session)
    await agent(world).run(f"What is the square root of {'2 plus ' * 60}2?", memory=session)
    assert blocks(world.requests[-1]) == []
    await agent(world).run(f"{SUPPER} What is Miso allergic to?", memory=session)
    assert len(blocks(world.requests[-1])) == 1
    assert not any(text == QUESTION for _, _, text in parts(world.requests[-1]))


@pytest.mark.shows(SUBAGENT)
async def test_a_hand_off_stays_in_the_turn(world: World):
    """A1: two agents with one memory answer one message of the user."""
    world.knows()
    world.play(Rule(QUESTION, (Call("handoff", {"to_agent": "vet", "reason": "It is about a cat."}), Say(ANSWER))))
    desk = agent(world, name="desk", description="Answers first", can_handoff_to=["vet"])
    vet = agent(world, name="vet", description="Knows about animals")
    team = AgentWorkflow(agents=[desk, vet], root_agent="desk")
    await team.run(user_msg=QUESTION, memory=memory(world, "team"))
    world.wait_for("recorded")
    assert [text for speaker, text in world.records() if speaker == "user"] == [QUESTION]
    assert [len(blocks(request)) for request in world.requests] == [1] * len(world.requests)


@pytest.mark.shows(SYNC)
def test_the_memory_works_without_an_event_loop(world: World):
    """R1, C1: with `put` and `get`, as chat engines use it."""
    world.knows()
    session = memory(world, "sync")
    session.put(ChatMessage(role="user", content=QUESTION))
    given = session.get()
    assert [message.role.value for message in given] == ["user", "user"]
    assert "allergic to chicken" in str(given[1].content)
    session.put(ChatMessage(role="assistant", content=ANSWER))
    world.wait_for("recorded")
    assert ("user", QUESTION) in world.records()


@pytest.mark.shows(IDS)
async def test_the_session_is_the_conversation_and_users_are_apart(world: World):
    """L2: nobody sees what others said."""
    world.knows()
    await agent(world).run(QUESTION, memory=memory(world, "bobs", user="bob"))
    assert blocks(world.requests[-1]) == []
    world.wait_for("recorded")
    assert list(world.memory.space("user:bob").conversations()) == ["bobs"]


def test_a_memory_without_a_user_is_refused(world: World):
    """L2: there is no call that omits the space."""
    with pytest.raises(InvalidInput, match="whose memory"):
        AfterturnChatMemory.open(world.memory, session_id="nobody")


@pytest.mark.shows(BROKEN)
async def test_a_run_goes_on_after_closing(world: World):
    """Memory's fault is logged, and the agent answers."""
    world.play_tools()
    session = memory(world, "closed")
    world.memory.close()
    assert str(await agent(world).run(QUESTION, memory=session)) == ANSWER


def test_only_typed_text_is_the_users():
    """G2b: a picture entered the turn."""
    message = ChatMessage(role="user", blocks=[TextBlock(text="Look!"), ImageBlock(image=b"x")])
    element = LlamaIndexMessages().read(message)
    assert element is not None
    assert element.outside
    assert element.text_of("user") == "Look!"


async def test_results_that_an_agent_quotes_taint_its_turn(world: World):
    """G2b: LlamaIndex stores the steps of an agent without tool calls, results included, as the agent's words."""
    step = 'Thought: I need a tool.\nAction: look_up\nAction Input: {"query": "x"}'
    answers = iter([Say(step), Say("Thought: I know it.\nAnswer: Chicken.")])
    world.server.script = lambda request: next(answers)
    session = memory(world, "steps")
    await ReActAgent(tools=[look_up], llm=model(world), streaming=False).run(QUESTION, memory=session)
    stored = (await session.aget_all())[-1]
    assert "Observation: nothing about x" in str(stored.content)
    element = LlamaIndexMessages().read(stored)
    assert element is not None
    assert element.outside


def test_the_example_runs(world: World, tmp_path: Path):
    """The second run knows what was said in the first."""
    variables = {"OPENAI_API_BASE": f"{world.server.url}/v1", "OPENAI_API_KEY": "none", "AFTERTURN_GRACE": "30"}
    run_example("llama_index_agent.py", tmp_path, variables)
    assert run_example("llama_index_agent.py", tmp_path, variables).count("Understood.") == 2
    assert "allergic to chicken" in blocks(world.requests[-1])[0]
