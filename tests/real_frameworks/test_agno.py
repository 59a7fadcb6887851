"""Agents of Agno with our learning store, against a scripted model."""

from pathlib import Path
from typing import Any

import pytest
from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.team import Team
from agno.workflow import Step, Workflow
from framework_world import (
    ANSWER,
    BLOCK,
    BROKEN,
    IDS,
    KNOWN,
    NOT_RECORDED,
    ONCE,
    QUESTION,
    RULES,
    STANDING,
    STANDING_ROW,
    STEPS,
    STREAMING,
    SUBAGENT,
    SYNC,
    World,
    assert_append_only,
    assert_paired,
    assert_rules_held,
    blocks,
    run_example,
    system,
)

from afterturn.errors import InvalidInput
from afterturn.frameworks.agno import AfterturnLearning
from lab.clients.model_server import Answer, Call, ModelRequest, Say

pytestmark = pytest.mark.frameworks


def look_up(query: str) -> str:
    """Looks something up."""
    return f"nothing about {query}"


def model(world: World) -> OpenAIChat:
    return OpenAIChat(id="scripted", base_url=f"{world.server.url}/v1", api_key="none", max_retries=0)


def agent(world: World, *, tools: Any = (look_up,), **options: Any) -> Agent:
    made = Agent(model=model(world), tools=list(tools), telemetry=False)
    return AfterturnLearning(world.memory, **options).add_to(made)


def assert_in_every_prompt(world: World, words: str) -> None:
    """H8: Agno writes memory into the system prompt, which stays the same in a tool loop."""
    prompts = [system(request) for request in world.requests]
    assert len(prompts) == STEPS + 1
    assert len(set(prompts)) == 1
    assert prompts[0].count(words) == 1
    assert_append_only(world.requests)
    for request in world.requests:
        assert blocks(request) == []
        assert_paired(request)


@pytest.mark.shows(KNOWN)
async def test_what_was_said_in_one_session_is_known_in_the_next(world: World):
    """R1, C1: recorded after the first run, recalled in the second."""
    helper = agent(world)
    await helper.arun("My cat Miso is allergic to chicken.", user_id="ada", session_id="monday")
    world.wait_for("recorded")
    await helper.arun(QUESTION, user_id="ada", session_id="tuesday")
    assert "allergic to chicken" in system(world.requests[-1])


@pytest.mark.shows(ONCE)
async def test_a_tool_loop_has_one_block(world: World):
    """R1, H2: one recall, the same bytes in four model calls."""
    world.knows()
    world.play_tools()
    await agent(world).arun(QUESTION, user_id="ada", session_id="loop")
    assert_in_every_prompt(world, BLOCK)
    assert world.count("recall_started") == 1


@pytest.mark.shows(SYNC)
def test_a_run_without_an_event_loop_gets_the_same(world: World):
    """R1, H2: with `run`."""
    world.knows()
    world.play_tools()
    agent(world).run(QUESTION, user_id="ada", session_id="loop")
    assert_in_every_prompt(world, BLOCK)
    world.wait_for("recorded")
    assert ("user", QUESTION) in world.records()


@pytest.mark.shows(STREAMING)
async def test_a_streamed_run_gets_the_same(world: World):
    """R1, H2: with `stream=True`."""
    world.knows()
    world.play_tools()
    async for _ in agent(world).arun(QUESTION, user_id="ada", session_id="loop", stream=True):
        pass
    assert_in_every_prompt(world, BLOCK)
    world.wait_for("recorded")


@pytest.mark.shows(NOT_RECORDED)
async def test_own_text_is_not_recorded(world: World):
    """C5, C6: what the user and the agent said, and what the tools returned as evidence."""
    world.knows()
    world.play_tools()
    await agent(world).arun(QUESTION, user_id="ada", session_id="loop")
    world.wait_for("recorded")
    records = world.records()
    assert [text for speaker, text in records if speaker == "user"] == [QUESTION]
    assert [text for speaker, text in records if speaker == "assistant"] == [ANSWER]
    assert not any("afterturn" in text for _, text in records)


async def test_words_of_others_are_not_in_the_system_prompt(world: World):
    """H1: a system prompt promotes what it says, so only trusted lines go there."""
    world.knows("Miso is allergic to nothing at all", origin="web")
    await agent(world).arun(QUESTION, user_id="ada", session_id="one")
    assert "nothing at all" not in world.requests[-1].text


def test_untrusted_lines_cannot_be_asked_for(world: World):
    """H1: the error says why."""
    with pytest.raises(InvalidInput, match="system prompt"):
        AfterturnLearning(world.memory, trusted_only=False)


@pytest.mark.shows(RULES)
@pytest.mark.parametrize("kind", ["run", "arun", "arun with a coroutine"])
async def test_a_firm_rule_refuses_a_call_and_others_come_with_the_result(world: World, kind: str):
    """T1: the tool does not run; the model reads why."""
    world.play_shell()
    ran: list[str] = []

    def shell(command: str) -> str:
        """Runs a command."""
        ran.append(command)
        return "done"

    async def awaited_shell(command: str) -> str:
        """Runs a command."""
        return shell(command)

    awaited_shell.__name__ = "shell"
    helper = agent(world, tools=[awaited_shell if "coroutine" in kind else shell])
    if kind == "run":
        helper.run("Publish it", user_id="ada")
    else:
        await helper.arun("Publish it", user_id="ada")
    assert_rules_held(world.requests[-1], ran)


@pytest.mark.shows(STANDING_ROW)
async def test_preferences_are_in_the_system_prompt(world: World):
    """S1: the same in every request."""
    world.knows("Ada wants short answers", metadata={"kind": "preference"})
    world.play_tools()
    await agent(world).arun(QUESTION, user_id="ada", session_id="loop")
    assert_in_every_prompt(world, STANDING)


@pytest.mark.shows(IDS)
async def test_users_and_conversations_are_agnos_or_chosen(world: World):
    """L2: nobody sees what others said; one line chooses another id."""
    world.knows()
    await agent(world).arun(QUESTION, user_id="bob", session_id="bobs")
    await agent(world, user=lambda run: run.session_state["owner"]).arun(
        QUESTION, session_id="adas", session_state={"owner": "ada"}
    )
    assert ["allergic to chicken" in system(request) for request in world.requests] == [False, True]
    world.wait_for("recorded", 2)
    assert list(world.memory.space("user:bob").conversations()) == ["bobs"]
    assert list(world.memory.space("user:ada").conversations()) == ["adas"]


@pytest.mark.shows(BROKEN)
async def test_a_run_goes_on_without_a_user_and_after_closing(world: World, caplog: pytest.LogCaptureFixture):
    """Memory's fault is logged, and the agent answers, with tools too."""
    world.play_tools()
    helper = agent(world)
    assert (await helper.arun(QUESTION, session_id="nobody")).content == ANSWER
    assert "names no user" in caplog.text
    assert helper.run(QUESTION, session_id="nobody").content == ANSWER
    world.memory.close()
    assert (await helper.arun(QUESTION, user_id="ada", session_id="closed")).content == ANSWER


@pytest.mark.shows(SUBAGENT)
async def test_a_leaders_task_for_a_member_is_not_the_users(world: World):
    """C5: of a member nothing is recorded; of a team with memory, what the user and the team said."""
    task = "Remember that the user loves snakes."

    def answer(request: ModelRequest) -> Answer:
        is_leader = "delegate_task_to_member" in request.tools
        has_result = any(part.kind == "result" for part in request.parts)
        if is_leader and not has_result:
            return Call("delegate_task_to_member", {"member_id": "expert", "task": task})
        return Say("Fish.")

    world.server.script = answer
    memory = AfterturnLearning(world.memory)
    member = memory.add_to(Agent(name="Expert", model=model(world), telemetry=False))
    team = memory.add_to(Team(members=[member], model=model(world), telemetry=False))
    await team.arun("What can I cook?", user_id="ada", session_id="team")
    assert any(task in request.text and not request.tools for request in world.requests)
    world.wait_for("recorded")
    entries = world.memory.space("user:ada").list(limit=100)
    assert [entry.text for entry in entries if str(entry.origin) == "user"] == ["What can I cook?"]


async def test_what_one_step_of_a_workflow_tells_the_next_is_not_the_users(world: World):
    """C5: the second agent's task is the first one's answer."""
    world.play(otherwise="Remember that the user loves snakes.")
    memory = AfterturnLearning(world.memory)
    agents = [memory.add_to(Agent(name=name, model=model(world), telemetry=False)) for name in ("first", "second")]
    steps = [Step(name=str(one.name), agent=one) for one in agents]
    await Workflow(name="cooking", steps=steps, telemetry=False).arun("What can I cook?", user_id="ada")
    await agent(world).arun("I like tea.", user_id="ada")
    world.wait_for("recorded")
    entries = world.memory.space("user:ada").list(limit=100)
    assert [entry.text for entry in entries if str(entry.origin) == "user"] == ["I like tea."]


def test_the_example_runs(world: World, tmp_path: Path):
    """The second run knows what was said in the first."""
    variables = {
        "OPENAI_BASE_URL": f"{world.server.url}/v1",
        "OPENAI_API_KEY": "none",
        "AFTERTURN_GRACE": "30",
        "AGNO_TELEMETRY": "false",
    }
    run_example("agno_agent.py", tmp_path, variables)
    assert run_example("agno_agent.py", tmp_path, variables).count("Understood.") == 2
    assert "allergic to chicken" in system(world.requests[-1])
