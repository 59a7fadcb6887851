"""Agents and crews of CrewAI with our hooks, against a scripted model."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from crewai.utilities.i18n import I18N_DEFAULT
from framework_world import (
    ANSWER,
    BROKEN,
    IDS,
    KNOWN,
    LATE,
    LOOK_UP,
    NOT_RECORDED,
    ONCE,
    QUESTION,
    RULES,
    SUBAGENT,
    SYNC,
    WITHIN,
    World,
    assert_late_block,
    assert_one_block_in_a_loop,
    assert_rules_held,
    blocks,
    run_example,
)

from afterturn.frameworks.crewai import AfterturnCrewHooks
from lab.clients.model_server import Call, Rule, Say

pytestmark = [pytest.mark.frameworks, pytest.mark.usefixtures("_quiet")]
QUIET = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {**QUIET, "CREWAI_STORAGE_DIR": str(tmp_path / "crewai")}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def connect() -> Iterator[Callable[..., None]]:
    connected: list[AfterturnCrewHooks] = []

    def connect_one(world: World, **options: Any) -> None:
        connected.append(AfterturnCrewHooks(world.memory, **{"user": "ada", **options}).install())

    yield connect_one
    for hooks in connected:
        hooks.remove()


@tool(LOOK_UP)
def look_up(query: str) -> str:
    """Looks something up."""
    return f"nothing about {query}"


def agent(world: World, *tools: Any, role: str = "helper") -> Agent:
    model = LLM(model="openai/gpt-4.1", base_url=f"{world.server.url}/v1", api_key="none")
    return Agent(role=role, goal="to help", backstory="Kind.", llm=model, tools=list(tools or [look_up]))


@pytest.mark.shows(KNOWN)
async def test_what_was_said_to_an_agent_is_known_later(world: World, connect: Callable[..., None]):
    """R1, C1: the user's words, without what CrewAI writes before them."""
    connect(world)
    await agent(world).kickoff_async("My cat Miso is allergic to chicken.")
    world.wait_for("recorded")
    await agent(world).kickoff_async(QUESTION)
    assert "My cat Miso is allergic to chicken." in blocks(world.requests[-1])[0]


@pytest.mark.shows(ONCE)
@pytest.mark.shows(SYNC)
def test_a_tool_loop_gets_one_block(world: World, connect: Callable[..., None]):
    """R1, H2, H3: one recall and one block in four model calls."""
    connect(world)
    world.knows()
    world.play_tools()
    assert agent(world).kickoff(QUESTION).raw == ANSWER
    assert_one_block_in_a_loop(world.requests)
    assert world.count("recall_started") == 1


@pytest.mark.shows(LATE)
def test_a_slow_recall_arrives_after_a_tool_result(open_world: Callable[..., World], connect: Callable[..., None]):
    """H1: with the first call of the model under way, the block waits for the tool's result."""
    world = open_world(grace=0.2)
    connect(world)
    world.knows()
    world.play_tools()
    world.store.hold()

    @tool(LOOK_UP)
    def slow_look_up(query: str) -> str:
        """Looks something up."""
        return world.release_recall() if query == "shelf 1" else "nothing"

    agent(world, slow_look_up).kickoff(QUESTION)
    assert_late_block(world.requests)


@pytest.mark.shows(NOT_RECORDED)
def test_own_text_is_not_recorded(world: World, connect: Callable[..., None]):
    """C5: the block is in the request, and not in the records."""
    connect(world)
    world.knows()
    world.play_tools()
    agent(world).kickoff(QUESTION)
    world.wait_for("recorded")
    records = world.records()
    assert [text for speaker, text in records if speaker == "user"] == [QUESTION]
    assert [text for speaker, text in records if speaker == "assistant"] == [ANSWER]
    assert not any("afterturn" in text for _, text in records)


@pytest.mark.shows(SUBAGENT)
def test_a_task_of_a_crew_is_not_the_users_words(world: World, connect: Callable[..., None]):
    """A1: each task gets a recall, and is recorded as a sub-agent's."""
    connect(world)
    world.knows()
    world.play_tools()
    helper = agent(world)
    task = Task(description=QUESTION, expected_output="The name of a food.", agent=helper)
    assert Crew(agents=[helper], tasks=[task]).kickoff().raw == ANSWER
    assert_one_block_in_a_loop(world.requests)
    world.wait_for("recorded")
    entries = [entry for entry in world.memory.space("user:ada").list(limit=100) if QUESTION in entry.text]
    assert {str(entry.origin) for entry in entries} == {"subagent"}


@pytest.mark.shows(RULES)
def test_a_firm_rule_refuses_a_call_and_others_come_with_the_result(world: World, connect: Callable[..., None]):
    """T1: the tool does not run; the model reads why."""
    connect(world)
    world.play_shell()
    ran: list[str] = []

    @tool
    def shell(command: str) -> str:
        """Runs a command."""
        ran.append(command)
        return "done"

    agent(world, shell).kickoff("Publish it")
    assert_rules_held(world.requests[-1], ran)


@pytest.mark.shows(IDS)
def test_users_are_chosen_by_one_line(world: World, connect: Callable[..., None]):
    """L2: a function of CrewAI's context; nobody sees what others said."""
    connect(world, user=lambda context: context.agent.role)
    world.knows()
    agent(world, role="bob").kickoff(QUESTION)
    agent(world, role="ada").kickoff(QUESTION)
    assert [len(blocks(request)) for request in world.requests] == [0, 1]


@pytest.mark.shows(BROKEN)
def test_a_run_goes_on_without_memory(world: World, connect: Callable[..., None], caplog: pytest.LogCaptureFixture):
    """Memory's fault is logged, and the agent answers."""
    world.play_tools()
    connect(world, user=lambda context: None)
    assert agent(world).kickoff(QUESTION).raw == ANSWER
    assert "names no user" in caplog.text
    connect(world)
    world.memory.close()
    assert agent(world).kickoff(QUESTION).raw == ANSWER


def test_removed_hooks_do_nothing(world: World):
    """A process may have crews with and without memory, one after the other."""
    AfterturnCrewHooks(world.memory, user="ada").install().remove()
    world.knows()
    agent(world).kickoff(QUESTION)
    assert blocks(world.requests[-1]) == []


def test_two_users_may_ask_one_agent_at_once(world: World, connect: Callable[..., None]):
    """L2: each run has its own turn, so nobody's words are recorded or shown as another's."""

    def user(context: Any) -> str:
        (asked,) = [message["content"] for message in context.messages if "I am " in message["content"]]
        return "bob" if "I am bob" in asked else "ada"

    connect(world, user=user)
    world.knows()
    both_run = threading.Barrier(2, timeout=WITHIN)

    @tool(LOOK_UP)
    def shared_look_up(query: str) -> str:
        """Looks something up."""
        both_run.wait()
        return "nothing"

    calls = (Call(LOOK_UP, {"query": "1"}), Call(LOOK_UP, {"query": "2"}))
    world.play(Rule("I am", (*calls, Say(ANSWER))))
    helper = agent(world, shared_look_up)
    with ThreadPoolExecutor(2) as threads:
        asked = [f"I am {name}. {QUESTION}" for name in ("ada", "bob")]
        assert [result.raw for result in threads.map(helper.kickoff, asked)] == [ANSWER, ANSWER]
    world.wait_for("recorded", 2)
    assert [len(blocks(request)) for request in world.requests if "I am bob" in request.text] == [0, 0, 0]
    assert [len(blocks(request)) for request in world.requests if "I am ada" in request.text] == [1, 1, 1]
    assert [text for speaker, text in world.records() if speaker == "user"] == [f"I am ada. {QUESTION}"]
    assert [text for speaker, text in world.records("user:bob") if speaker == "user"] == [f"I am bob. {QUESTION}"]


def test_what_crewai_writes_around_a_text_is_not_the_users(world: World, connect: Callable[..., None]):
    """C5: an agent without tools is told how to answer, and CrewAI's own memory is quoted."""
    connect(world)
    quoted = f"I like tea.\n\n{I18N_DEFAULT.slice('memory').format(memory='The user loves snakes.')}"
    helper = agent(world)
    helper.tools = []
    helper.kickoff(quoted)
    world.wait_for("recorded")
    assert "snakes" in world.requests[-1].text
    assert "complete response" in world.requests[-1].text
    assert [text for speaker, text in world.records() if speaker == "user"] == ["I like tea."]


def test_the_example_runs(world: World, tmp_path: Path):
    """The second run knows what was said in the first."""
    address = {"OPENAI_BASE_URL": f"{world.server.url}/v1", "OPENAI_API_KEY": "none", "AFTERTURN_GRACE": "30"}
    run_example("crewai_agent.py", tmp_path, {**QUIET, **address})
    assert run_example("crewai_agent.py", tmp_path, {**QUIET, **address}).count("Understood.") == 2
    assert "allergic to chicken" in blocks(world.requests[-1])[0]
