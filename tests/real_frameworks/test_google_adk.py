"""Google's Agent Development Kit with our plugin and our memory service, against a scripted model."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
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
    assert_append_only,
    assert_late_block,
    assert_one_block_in_a_loop,
    assert_paired,
    blocks,
    parts,
    run_example,
    system,
)
from google.adk.agents import Agent, BaseAgent, ParallelAgent, SequentialAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.events import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models.google_llm import Gemini
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import AgentTool, FunctionTool, LongRunningFunctionTool, load_memory, preload_memory
from google.adk.workflow import Workflow
from google.genai import types

from afterturn.frameworks.google_adk import AdkContents, AfterturnMemoryService, AfterturnPlugin
from lab.clients.model_server import Call, ModelRequest, Rule, Say

pytestmark = pytest.mark.frameworks

APP = "cats"


def look_up(query: str) -> str:
    """Looks something up."""
    return f"nothing about {query}"


def model(world: World) -> Gemini:
    return Gemini(model="gemini-2.5-flash", base_url=world.server.url)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "none")


def agent(world: World, *, tools: Sequence[Any] = (look_up,), **options: Any) -> Agent:
    return Agent(
        **{"name": "helper", "model": model(world), "instruction": "Be kind.", "tools": list(tools), **options}
    )


def runner(world: World, root: BaseAgent | None = None, *, app: str = APP, sessions: Any = None, **of: Any) -> Runner:
    of_app = {name: of.pop(name) for name in ("events_compaction_config",) if name in of}
    service = of.pop("memory_service", None)
    plugin = AfterturnPlugin(of.pop("memory", world.memory), **of)
    built = App(name=app, root_agent=root or agent(world), plugins=[plugin], **of_app)
    sessions = sessions or InMemorySessionService()
    return Runner(app=built, session_service=sessions, memory_service=service, auto_create_session=True)


def said(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


async def run(one: Runner, text: str, session: str = "s1", user: str = "ada", **options: Any) -> list[Event]:
    return [e async for e in one.run_async(user_id=user, session_id=session, new_message=said(text), **options)]


def answer(events: Sequence[Event]) -> str:
    content = events[-1].content
    assert content is not None
    return "".join(part.text or "" for part in content.parts or ())


@pytest.mark.shows(KNOWN)
async def test_what_was_said_in_one_session_is_known_in_the_next(world: World):
    """R1, C1: recorded after the first run, recalled in the second."""
    helper = runner(world)
    await run(helper, "My cat Miso is allergic to chicken.", "monday")
    world.wait_for("recorded")
    await run(helper, QUESTION, "tuesday")
    assert "allergic to chicken" in blocks(world.requests[-1])[0]
    assert parts(world.requests[-1])[0][2] == QUESTION


@pytest.mark.shows(ONCE)
async def test_a_tool_loop_gets_one_block(world: World):
    """R1, H2, H3: one recall and one block in four model calls."""
    world.knows()
    world.play_tools()
    await run(runner(world), QUESTION)
    assert_one_block_in_a_loop(world.requests)
    assert world.count("recall_started") == 1


@pytest.mark.shows(ONCE)
async def test_the_next_run_begins_with_the_same_bytes(world: World):
    """H3, H6: the session does not have the block; it is put back where it was."""
    world.knows()
    world.play_tools()
    helper = runner(world)
    await run(helper, QUESTION)
    await run(helper, "Thank you.")
    assert_append_only(world.requests)
    assert len(blocks(world.requests[-1])) == 1
    session = await helper.session_service.get_session(app_name=APP, user_id="ada", session_id="s1")
    assert session is not None
    assert not any("afterturn" in str(event.content) for event in session.events)


@pytest.mark.shows(SYNC)
def test_a_run_without_an_event_loop_gets_the_same(world: World):
    """R1, H2, H3: with `run`."""
    world.knows()
    world.play_tools()
    for _ in runner(world).run(user_id="ada", session_id="s1", new_message=said(QUESTION)):
        pass
    assert_one_block_in_a_loop(world.requests)
    world.wait_for("recorded")
    assert ("user", QUESTION) in world.records()


@pytest.mark.shows(STREAMING)
async def test_a_streamed_run_gets_the_same(world: World):
    """R1, H2, H3: with StreamingMode.SSE."""
    world.knows()
    world.play_tools()
    await run(runner(world), QUESTION, run_config=RunConfig(streaming_mode=StreamingMode.SSE))
    assert {request.path.rpartition(":")[2] for request in world.requests} == {"streamGenerateContent"}
    assert_one_block_in_a_loop(world.requests)
    world.wait_for("recorded")
    assert [text for speaker, text in world.records() if speaker == "assistant"] == [ANSWER]


@pytest.mark.shows(LATE)
async def test_a_slow_recall_arrives_after_a_tool_result(open_world: Callable[..., World]):
    """H1, H6: with the first call of the model under way, the block waits for the tool's result."""
    world = open_world(grace=0.2)
    world.knows()
    world.play_tools()
    world.store.hold()

    def slow_look_up(query: str) -> str:
        """Looks something up."""
        return world.release_recall() if query == "shelf 1" else "nothing"

    slow_look_up.__name__ = LOOK_UP
    helper = runner(world, agent(world, tools=[slow_look_up]))
    await run(helper, QUESTION)
    assert_late_block(world.requests)
    await run(helper, "Thank you.")
    assert_append_only(world.requests)


async def test_another_process_puts_a_late_block_back(open_world: Callable[..., World], tmp_path: Path):
    """H6: with ADK's sessions in a file, another runner and another memory send the same bytes."""
    world = open_world(grace=0.2)
    world.knows()
    world.play_tools()
    world.store.hold()

    def slow_look_up(query: str) -> str:
        """Looks something up."""
        return world.release_recall() if query == "shelf 1" else "nothing"

    slow_look_up.__name__ = LOOK_UP
    sessions = str(tmp_path / "sessions.db")
    await run(runner(world, agent(world, tools=[slow_look_up]), sessions=SqliteSessionService(sessions)), QUESTION)
    world.wait_for("recorded")
    world.memory.close()
    later = runner(world, agent(world), sessions=SqliteSessionService(sessions), memory=world.path)
    await run(later, "Thank you.")
    await later.close()
    assert len(blocks(world.requests[-1])) == 1
    assert_append_only(world.requests)


@pytest.mark.shows(NOT_RECORDED)
async def test_own_text_is_not_recorded(world: World):
    """C5: the block is in the request, and not in the records."""
    world.knows()
    world.play_tools()
    await run(runner(world), QUESTION)
    world.wait_for("recorded")
    records = world.records()
    assert [text for speaker, text in records if speaker == "user"] == [QUESTION]
    assert [text for speaker, text in records if speaker == "assistant"] == [ANSWER]
    assert not any("afterturn" in text for _, text in records)


@pytest.mark.shows(NOT_RECORDED)
async def test_the_next_turn_of_a_session_repeats_nothing(world: World):
    """H5: what the model still sees is not injected again."""
    world.knows()
    helper = runner(world)
    await run(helper, QUESTION)
    await run(helper, QUESTION + " Tell me again.")
    assert len(blocks(world.requests[-1])) == 1
    assert_append_only(world.requests)


@pytest.mark.shows(COMPACTION)
async def test_after_a_summary_the_fact_is_recalled_again(world: World):
    """H7: ADK has summarized the first turn, and the place of the block is gone."""
    world.knows()
    world.play(Rule("summar", (Say("They talked about a cat."),)), otherwise="Yes.")
    compaction = EventsCompactionConfig(compaction_interval=1, overlap_size=0)
    helper = runner(world, events_compaction_config=compaction)
    await run(helper, QUESTION)
    await run(helper, f"{SUPPER} Remember that Miso is allergic to something.")
    (last,) = [request for request in world.requests if parts(request)[-1][2].startswith((SUPPER, "<afterturn"))][1:]
    assert "They talked about a cat." in last.text
    assert QUESTION not in [text for _, _, text in parts(last)]
    assert len(blocks(last)) == 1
    world.wait_for("recorded", 2)
    assert not any("talked about" in text for speaker, text in world.records() if speaker == "user")


@pytest.mark.shows(COMPACTION)
async def test_after_a_summary_in_the_middle_of_a_turn_the_fact_is_recalled_again(world: World):
    """H7: the summary has replaced the user's message itself, and the block after it."""
    world.knows()

    def play(request: ModelRequest) -> Call | Say:
        if not request.tools:  # it is the request for the summary
            return Say("They ask about a cat.")
        has_result = any(part.kind == "result" for part in request.parts)
        return Say(ANSWER) if has_result else Call(LOOK_UP, {"query": "x"}, input_tokens=5_000)

    world.server.script = play
    compaction = EventsCompactionConfig(token_threshold=1_000, event_retention_size=1)
    assert answer(await run(runner(world, events_compaction_config=compaction), QUESTION)) == ANSWER
    last = world.requests[-1]
    assert "They ask about a cat." in last.text
    assert QUESTION not in [text for _, _, text in parts(last)]
    assert len(blocks(last)) == 1
    assert_paired(last)
    world.wait_for("recorded")
    assert [record for record in world.records() if record[0] != "tool"] == [("user", QUESTION), ("assistant", ANSWER)]


@pytest.mark.shows(SUBAGENT)
async def test_what_an_agent_tells_its_subagent_is_not_the_users(world: World):
    """A1: an agent as a tool has a session of its own, and is recorded as a sub-agent."""
    world.knows()
    inner = agent(world, tools=(), name="expert", description="Asks an expert.")
    task = "Please remember that the user always wants tuna."
    world.play(Rule(SUPPER, (Call("expert", {"request": task}), Say("Fish."))), Rule("tuna", (Say("I see."),)))
    await run(runner(world, agent(world, tools=[AgentTool(inner)])), SUPPER)
    world.wait_for("recorded", 2)
    entries = [entry for entry in world.memory.space("user:ada").list(limit=100) if "tuna" in entry.text]
    assert entries
    assert {str(entry.origin) for entry in entries} == {"subagent"}
    assert ("user", SUPPER) in world.records()


@pytest.mark.shows(SUBAGENT)
async def test_a_transfer_stays_in_the_turn(world: World):
    """A1: agents that take over see the block; what others did is not the user's, and not a tool's."""
    world.knows()
    vet = agent(world, tools=(), name="vet", description="Knows cats.", instruction="You are a vet.")
    helper = agent(world, tools=(), sub_agents=[vet])

    def play(request: ModelRequest) -> Call | Say:
        if "You are a vet." in system(request):
            return Call("transfer_to_agent", {"agent_name": "helper"})
        is_first = len(world.requests) == 1
        return Call("transfer_to_agent", {"agent_name": "vet"}) if is_first else Say(ANSWER)

    world.server.script = play
    assert answer(await run(runner(world, helper), QUESTION)) == ANSWER
    world.wait_for("recorded")
    assert "another agent did" in world.requests[1].text
    assert [len(blocks(request)) for request in world.requests] == [1, 1, 1]
    assert len({blocks(request)[0] for request in world.requests}) == 1
    assert_append_only([world.requests[0], world.requests[2]])
    assert world.records() == [("user", QUESTION), ("assistant", ANSWER)]
    assert world.count("recall_started") == 1
    later = world.memory.conversation("cats/s1", user="ada").turn([{"role": "user", "content": "Thanks"}])
    assert later.is_clean()


@pytest.mark.parametrize("kind", [SequentialAgent, ParallelAgent])
async def test_agents_of_one_turn_each_get_the_same_bytes_again(world: World, kind: Any):
    """H3, H6: each reads another list, and the block has its place in each of them, also in the next turn."""
    world.knows()
    both = [agent(world, tools=(), name=name, instruction=f"You are {name}.") for name in ("first", "second")]
    helper = runner(world, kind(name="both", sub_agents=both))
    await run(helper, QUESTION)
    await run(helper, "Thank you.")
    assert [len(blocks(request)) for request in world.requests] == [1, 1, 1, 1]
    assert len({blocks(request)[0] for request in world.requests}) == 1
    for name in ("first", "second"):
        assert_append_only([request for request in world.requests if f"You are {name}." in system(request)])
    assert world.count("recall_started") == 1


@pytest.mark.parametrize("kind", [SequentialAgent, ParallelAgent])
async def test_agents_that_answer_differently_get_the_blocks_of_every_turn_again(world: World, kind: Any):
    """H3, H6: from the second turn on, only the user's messages are the same in both lists."""
    world.knows()
    world.server.script = lambda request: Say(f"Noted by {system(request)[:16]}")
    both = [agent(world, tools=(), name=name, instruction=f"You are {name}.") for name in ("first", "second")]
    helper = runner(world, kind(name="both", sub_agents=both))
    for text in (QUESTION, "What food is my dog Rex allergic to?", "Thank you."):
        await run(helper, text)
        # Only now, or the first block would have it too.
        world.knows("Ada's dog Rex is allergic to wheat.")
    for name in ("first", "second"):
        requests = [request for request in world.requests if f"You are {name}." in system(request)]
        assert [len(blocks(request)) for request in requests] == [1, 2, 2]
        assert_append_only(requests)


async def test_agents_that_run_at_once_get_every_block_in_many_turns(world: World):
    """H3, H6: while one of them waits for its recall, the list of another one is read."""
    world.knows()
    world.server.script = lambda request: Say(f"Noted by {system(request)[:16]}")
    names = ("first", "second", "third")
    three = [agent(world, tools=(), name=name, instruction=f"You are {name}.") for name in names]
    helper = runner(world, ParallelAgent(name="all", sub_agents=three))
    texts = [QUESTION, *(f"What food is my dog Rex{number} allergic to?" for number in range(5))]
    for number, text in enumerate(texts):
        await run(helper, text)
        world.knows(f"Ada's dog Rex{number} is allergic to wheat.")
    for name in names:
        requests = [request for request in world.requests if f"You are {name}." in system(request)]
        assert [len(blocks(request)) for request in requests] == list(range(1, len(texts) + 1))
        assert_append_only(requests)


@pytest.mark.parametrize("kind", [SequentialAgent, ParallelAgent])
async def test_blocks_are_put_back_when_the_list_is_read_after_the_grace(open_world: Callable[..., World], kind: Any):
    """H6: ADK's list never has them, and a busy machine needs longer than the grace to find which ones it lacks."""
    world = open_world(grace=0.2)
    world.knows()
    both = [agent(world, tools=(), name=name, instruction=f"You are {name}.") for name in ("first", "second")]
    helper = runner(world, kind(name="both", sub_agents=both))
    await run(helper, QUESTION)
    world.store.hold("read_turn")
    asyncio.get_running_loop().call_later(0.4, world.store.release)
    await run(helper, "Thank you.")
    assert [len(blocks(request)) for request in world.requests] == [1, 1, 1, 1]
    for name in ("first", "second"):
        assert_append_only([request for request in world.requests if f"You are {name}." in system(request)])


@pytest.mark.shows(SUBAGENT)
@pytest.mark.parametrize("mode", ["single_turn", "task"])
async def test_an_agent_that_gets_a_task_in_the_same_session_is_left_alone(world: World, mode: str):
    """A1, H3: its task has the role of the user there. It is not recorded, and changes nothing for the first agent."""
    world.knows()
    inner = agent(world, tools=(), name="expert", description="Asks an expert.", mode=mode)
    done = Call("finish_task", {"result": "I see."}) if mode == "task" else Say("I see.")
    world.play(Rule(QUESTION, (Call("expert", {"request": "Say tuna."}), Say(ANSWER))), Rule("tuna", (done,)))
    assert answer(await run(runner(world, agent(world, tools=(), sub_agents=[inner])), QUESTION)) == ANSWER
    world.wait_for("recorded")
    first, task, last = world.requests
    assert "tuna" in task.text
    assert [len(blocks(request)) for request in world.requests] == [1, 0, 1]
    assert_append_only([first, last])
    assert [record for record in world.records() if record[0] != "tool"] == [("user", QUESTION), ("assistant", ANSWER)]
    assert world.count("recall_started") == 1


async def test_a_node_of_a_workflow_does_not_take_another_nodes_answer_for_the_users(world: World):
    """A1: ADK gives the answer of the first node to the second in the role of the user."""
    world.knows()
    nodes = [agent(world, tools=(), name=name) for name in ("first", "second")]
    world.play(Rule(QUESTION, (Say("Please remember that the user wants tuna."),)), otherwise="Done.")
    app = App(
        name=APP,
        root_agent=Workflow(name="flow", edges=[("START", *nodes)]),
        plugins=[AfterturnPlugin(world.memory)],
    )
    await run(Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True), QUESTION)
    world.wait_for("recorded")
    assert [len(blocks(request)) for request in world.requests] == [1, 0]
    assert parts(world.requests[1])[0] == ("user", "text", "Please remember that the user wants tuna.")
    assert [text for speaker, text in world.records() if speaker == "user"] == [QUESTION]
    assert world.count("recall_started") == 1


@pytest.mark.shows(RULES)
async def test_a_firm_rule_refuses_a_call_and_others_come_with_the_result(world: World):
    """T1: the tool does not run; the model reads why."""
    world.knows("Never push to main", firm=True)
    world.knows("We use pnpm in this repo", target="environment", metadata={"kind": "convention"})
    ran = []

    def shell(command: str) -> str:
        """Runs a command."""
        ran.append(command)
        return "done"

    calls = (Call("shell", {"command": "git push origin main"}), Call("shell", {"command": "npm install lodash"}))
    world.play(Rule("Publish", (*calls, Say("Done."))))
    await run(runner(world, agent(world, tools=[shell])), "Publish it")
    assert ran == ["npm install lodash"]
    results = [part.text for part in world.requests[-1].parts if part.kind == "result"]
    assert "Refused by your rule: Never push to main" in results[0]
    assert "done" in results[1]
    assert "Rules of the user" in results[1]
    assert_paired(world.requests[-1])


@pytest.mark.shows(STANDING_ROW)
async def test_preferences_are_in_the_system_instruction(world: World):
    """S1: at its end, and the same in every request."""
    world.knows("Ada wants short answers", metadata={"kind": "preference"})
    world.play_tools()
    await run(runner(world), QUESTION)
    prompts = [system(request) for request in world.requests]
    assert prompts[0].startswith("Be kind.")
    assert STANDING in prompts[0]
    assert "Ada wants short answers" in prompts[0]
    assert len(set(prompts)) == 1


@pytest.mark.shows(IDS)
async def test_users_and_sessions_are_the_frameworks(world: World):
    """L2: nothing is configured; nobody sees what others said."""
    world.knows(FACT)
    helper = runner(world)
    await run(helper, QUESTION, "s1", "bob")
    await run(helper, QUESTION, "s1", "ada")
    assert [len(blocks(request)) for request in world.requests] == [0, 1]
    world.wait_for("recorded", 2)
    assert ("user", QUESTION) in world.records("user:bob")
    assert list(world.memory.space("user:ada").conversations()) == ["cats/s1"]


@pytest.mark.shows(IDS)
async def test_apps_share_a_users_memory_unless_one_line_keeps_them_apart(world: World):
    """L2: the same user id in two apps is one person, or two."""
    await run(runner(world, app="cats"), "My cat Miso is allergic to chicken.")
    world.wait_for("recorded")
    await run(runner(world, app="dogs"), QUESTION)
    assert len(blocks(world.requests[-1])) == 1
    apart = {"user": lambda run: f"{run.app_name}.{run.user_id}"}
    await run(runner(world, app="cats", **apart), "My cat Tofu is allergic to tuna.", "s2")
    world.wait_for("recorded", 3)
    await run(runner(world, app="dogs", **apart), "What is my cat Tofu allergic to?", "s2")
    assert blocks(world.requests[-1]) == []
    await run(runner(world, app="cats", **apart), "What is my cat Tofu allergic to?", "s3")
    assert "tuna" in blocks(world.requests[-1])[0]


@pytest.mark.shows(BROKEN)
async def test_a_run_goes_on_without_a_user_and_after_closing(world: World, caplog: pytest.LogCaptureFixture):
    """Memory's fault is logged, and the agent answers."""
    world.play_tools()

    def nobody(run: InvocationContext) -> str:
        raise LookupError("no such user")

    assert answer(await run(runner(world, user=nobody), QUESTION)) == ANSWER
    assert "no such user" in caplog.text
    known = runner(world)
    world.memory.close()
    assert answer(await run(known, QUESTION)) == ANSWER


async def test_a_failed_run_is_not_recorded(world: World):
    """C4: the tool raised, and the run with it."""

    def broken(query: str) -> str:
        """Looks something up."""
        raise RuntimeError("no shelf")

    world.play(Rule(QUESTION, (Call("broken", {"query": "x"}),)))
    with pytest.raises(RuntimeError, match="no shelf"):
        await run(runner(world, agent(world, tools=[broken])), QUESTION)
    world.wait_for("turn_aborted")
    assert world.records() == []


async def test_an_invocation_that_goes_on_after_its_answer_is_recorded_once(world: World):
    """C3: a long-running tool reports its result later, in the same invocation."""
    slow = LongRunningFunctionTool(look_up)
    world.play(Rule(QUESTION, (Call(LOOK_UP, {"query": "x"}), Say("I have asked."), Say(ANSWER))))
    helper = runner(world, agent(world, tools=[slow]))
    events = await run(helper, QUESTION)
    (call,) = [call for event in events for call in event.get_function_calls()]
    world.wait_for("recorded")
    result = types.FunctionResponse(id=call.id, name=call.name, response={"result": "chicken"})
    content = types.Content(role="user", parts=[types.Part(function_response=result)])
    more = [e async for e in helper.run_async(user_id="ada", session_id="s1", new_message=content)]
    assert {event.invocation_id for event in more} == {event.invocation_id for event in events}
    world.memory.drain()
    assert [text for speaker, text in world.records() if speaker == "user"] == [QUESTION]


async def test_an_agent_without_a_model_is_recorded(world: World):
    """C1: the answer is in the session, though no model was called."""

    class Echo(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
            content = types.Content(role="model", parts=[types.Part(text="I heard you.")])
            yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content)

    await run(runner(world, Echo(name="echo")), "I like tea.")
    world.wait_for("recorded")
    assert world.records() == [("user", "I like tea."), ("assistant", "I heard you.")]


async def test_a_call_that_waits_for_approval_is_one_turn(world: World):
    """C3: a person confirms the call in between."""
    world.knows()
    world.play(Rule(QUESTION, (Call(LOOK_UP, {"query": "x"}), Say(ANSWER))))
    helper = runner(world, agent(world, tools=[FunctionTool(look_up, require_confirmation=True)]))
    events = await run(helper, QUESTION)
    (asked,) = [call for e in events for call in e.get_function_calls() if call.name == "adk_request_confirmation"]
    approved = types.FunctionResponse(id=asked.id, name=asked.name, response={"confirmed": True})
    content = types.Content(role="user", parts=[types.Part(function_response=approved)])
    async for _ in helper.run_async(user_id="ada", session_id="s1", new_message=content):
        pass
    world.wait_for("recorded")
    assert [text for speaker, text in world.records() if speaker == "user"] == [QUESTION]
    assert [text for speaker, text in world.records() if speaker == "assistant"][-1] == ANSWER
    assert len(blocks(world.requests[-1])) == 1
    assert world.count("turn_started") == 1
    assert_append_only(world.requests)


def test_what_adk_writes_in_the_role_of_the_user_is_not_the_users():
    """C5: a transcript of another agent is not something that the user said."""
    read = AdkContents().read
    quoted = read(said("For context: below is a transcript of what another agent did, quoted between ..."))
    own = read(said("For context: I am a vet."))
    assert quoted is not None
    assert own is not None
    assert (quoted.role, own.role) == ("system", "user")


# The memory service.


def session_event(text: str, author: str = "user", invocation: str = "i1", **fields: Any) -> Event:
    role = "user" if author == "user" else "model"
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(author=author, invocation_id=invocation, content=content, **fields)


async def texts(service: AfterturnMemoryService, query: str = QUESTION, app: str = APP, user: str = "ada") -> list[str]:
    found = await service.search_memory(app_name=app, user_id=user, query=query)
    return [(memory.content.parts or [])[0].text or "" for memory in found.memories]


@pytest.mark.shows(KNOWN)
async def test_a_session_that_was_added_is_found_by_the_frameworks_own_tools(world: World):
    """C1: `load_memory` and `preload_memory` work as with ADK's own services."""
    service = AfterturnMemoryService(world.memory)
    sessions = InMemorySessionService()
    first = await sessions.create_session(app_name=APP, user_id="ada", session_id="old")
    await sessions.append_event(first, session_event("My cat Miso is allergic to chicken."))
    await sessions.append_event(first, session_event("Noted.", "helper"))
    await service.add_session_to_memory(first)
    world.memory.ready()

    def own(tool: Any) -> Runner:
        root = agent(world, tools=[tool])
        return Runner(
            app_name=APP, agent=root, session_service=sessions, memory_service=service, auto_create_session=True
        )

    world.play(Rule(QUESTION, (Call("load_memory", {"query": "Miso allergy"}), Say(ANSWER))))
    await run(own(load_memory), QUESTION)
    assert "allergic to chicken" in next(part.text for part in world.requests[-1].parts if part.kind == "result")
    world.play()
    await run(own(preload_memory), QUESTION, "s2")
    assert "user: My cat Miso is allergic to chicken." in world.requests[-1].text


async def test_events_are_added_once(world: World):
    """C3: by their ids, from a session or as a part of it, also after a deletion."""
    service = AfterturnMemoryService(world.memory)
    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name=APP, user_id="ada", session_id="old")
    event = await sessions.append_event(session, session_event("My cat Miso is allergic to chicken."))
    await service.add_events_to_memory(app_name=APP, user_id="ada", events=[event], session_id="old")
    await service.add_session_to_memory(session)
    await service.add_events_to_memory(app_name=APP, user_id="ada", events=[event])
    assert await texts(service) == ["My cat Miso is allergic to chicken."]
    (found,) = (await service.search_memory(app_name=APP, user_id="ada", query=QUESTION)).memories
    assert (found.author, found.content.role) == ("user", "user")
    await service.delete_memory(app_name=APP, user_id="ada", memory_id=found.id)
    await service.add_session_to_memory(session)
    assert await texts(service) == []


@pytest.mark.shows(IDS)
async def test_the_service_keeps_apps_and_users_apart(world: World):
    """L1: neither a search nor a deletion reaches another app or another user."""
    service = AfterturnMemoryService(world.memory)
    memory = MemoryEntry(content=said(FACT), author="user")
    await service.add_memory(app_name=APP, user_id="ada", memories=[memory])
    assert await texts(service) == [FACT]
    assert await texts(service, app="dogs") == []
    assert await texts(service, user="bob") == []
    (found,) = (await service.search_memory(app_name=APP, user_id="ada", query=QUESTION)).memories
    await service.delete_memory(app_name="dogs", user_id="ada", memory_id=found.id)
    await service.delete_memory(app_name=APP, user_id="bob", memory_id=found.id)
    await service.delete_memory(app_name=APP, user_id="ada", memory_id="no such id")
    assert await texts(service) == [FACT]
    await service.delete_memory(app_name=APP, user_id="ada", memory_id=found.id)
    assert await texts(service) == []


async def test_the_service_finds_what_the_plugin_has_recorded(world: World):
    """C1: both have the same space and the same project."""
    await run(runner(world), "My cat Miso is allergic to chicken.")
    world.wait_for("recorded")
    service = AfterturnMemoryService(world.memory)
    assert "My cat Miso is allergic to chicken." in await texts(service)
    assert await texts(service, app="dogs") == []


async def test_what_others_say_is_quoted(world: World):
    """G4: a memory without an author is a report, and comes with what the caller said about it."""
    service = AfterturnMemoryService(world.memory)
    memory = MemoryEntry(content=said(FACT), timestamp="2026-01-02T03:04:05+00:00", custom_metadata={"source": "crm"})
    await service.add_memory(app_name=APP, user_id="ada", memories=[memory], custom_metadata={"batch": 7})
    (found,) = (await service.search_memory(app_name=APP, user_id="ada", query=QUESTION)).memories
    assert (found.content.parts or [])[0].text == f'According to assistant: "{FACT}"'
    assert found.timestamp == "2026-01-02T03:04:05+00:00"
    assert found.custom_metadata == {"source": "crm", "batch": 7}
    assert await texts(service, query=" ") == []


def test_the_example_runs(world: World, tmp_path: Path):
    """What is in the documentation works as it is there."""
    settings = {"GOOGLE_GEMINI_BASE_URL": world.server.url, "GOOGLE_API_KEY": "none", "AFTERTURN_GRACE": "30"}
    assert "Understood." in run_example("google_adk_agent.py", tmp_path, settings)
    assert "allergic to chicken" in blocks(world.requests[-1])[0]
