"""Microsoft Agent Framework with our context provider, against a scripted model."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    CompactionProvider,
    ContextProvider,
    InMemoryHistoryProvider,
    Message,
    SlidingWindowStrategy,
    tool,
)
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from agent_framework.orchestrations import HandoffBuilder
from framework_world import (
    ANSWER,
    BLOCK,
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
from openai import AsyncOpenAI

from afterturn.frameworks.agent_framework import AfterturnContextProvider
from lab.clients.model_server import Call, ModelRequest, Rule, Say

pytestmark = pytest.mark.frameworks


@tool(approval_mode="never_require")
def look_up(query: str) -> str:
    """Looks something up."""
    return f"nothing about {query}"


def openai(world: World) -> AsyncOpenAI:
    """It keeps no connection open, so nobody needs to close it."""
    closing = {"Connection": "close"}
    return AsyncOpenAI(base_url=f"{world.server.url}/v1", api_key="none", max_retries=0, default_headers=closing)


def responses(world: World) -> Any:
    return OpenAIChatClient("gpt-5", async_client=openai(world))


def completions(world: World) -> Any:
    return OpenAIChatCompletionClient("gpt-5", async_client=openai(world))


both_clients = pytest.mark.parametrize("client", [responses, completions])


def provider(world: World, **options: Any) -> AfterturnContextProvider:
    return AfterturnContextProvider(world.memory, **{"user": "ada", **options})


def agent(
    world: World,
    *,
    client: Callable[[World], Any] = completions,
    tools: Any = (look_up,),
    ours: AfterturnContextProvider | None = None,
    before: Any = (),
    after: Any = (),
    **options: Any,
) -> Agent:
    """The session has the history. The service would have it with the other client, unless it is told not to."""
    providers = [*before, ours or provider(world), *after]
    options.setdefault("default_options", {"store": False} if client is responses else {})
    return Agent(client(world), "Be brief.", name="helper", tools=list(tools), context_providers=providers, **options)


def session(name: str = "one") -> AgentSession:
    return AgentSession(session_id=name)


def stored(of: AgentSession) -> list[Message]:
    return list(of.state[InMemoryHistoryProvider.DEFAULT_SOURCE_ID]["messages"])


def spoken(world: World) -> list[tuple[str | None, str]]:
    return [record for record in world.records() if record[0] in ("user", "assistant")]


@pytest.mark.shows(KNOWN)
@both_clients
async def test_what_was_said_in_one_session_is_known_in_the_next(world: World, client: Callable[[World], Any]):
    """R1, C1: recorded after the first run, recalled in the second."""
    helper, tuesday = agent(world, client=client), session("tuesday")
    await helper.run("My cat Miso is allergic to chicken.", session=session("monday"))
    world.wait_for("recorded")
    await helper.run(QUESTION, session=tuesday)
    assert "allergic to chicken" in blocks(world.requests[-1])[0]
    # The history has the block after the user's message.
    assert [BLOCK in message.text for message in stored(tuesday)] == [False, True, False]
    assert stored(tuesday)[1].additional_properties["_attribution"]["origin_session_ids"] == ["monday"]


@pytest.mark.shows(ONCE)
@both_clients
async def test_a_tool_loop_gets_one_block(world: World, client: Callable[[World], Any]):
    """R1, H2, H3: one recall and one block in four model calls."""
    world.knows()
    world.play_tools()
    await agent(world, client=client).run(QUESTION, session=session())
    assert_one_block_in_a_loop(world.requests)
    assert world.count("recall_started") == 1


@pytest.mark.shows(ONCE)
@both_clients
async def test_the_next_run_of_a_session_repeats_what_was_sent(world: World, client: Callable[[World], Any]):
    """H3, H5: one prefix for the whole session, and nothing twice."""
    world.knows()
    world.play_tools()
    helper, one = agent(world, client=client), session()
    await helper.run(QUESTION, session=one)
    await helper.run(QUESTION + " Tell me again.", session=one)
    assert_append_only(world.requests)
    assert len(blocks(world.requests[-1])) == 1


@pytest.mark.shows(STREAMING)
@both_clients
async def test_a_streamed_run_gets_the_same(world: World, client: Callable[[World], Any]):
    """R1, H2, H3: with `stream=True`."""
    world.knows()
    world.play_tools()
    async for _ in agent(world, client=client).run(QUESTION, stream=True, session=session()):
        pass
    assert_one_block_in_a_loop(world.requests)
    world.wait_for("recorded")
    assert spoken(world) == [("user", QUESTION), ("assistant", ANSWER)]


@pytest.mark.shows(LATE)
@both_clients
@pytest.mark.parametrize("is_streamed", [False, True], ids=["run", "stream"])
async def test_a_slow_recall_arrives_after_a_tool_result(
    open_world: Callable[..., World], client: Callable[[World], Any], is_streamed: bool
):
    """H1: with the first call of the model under way, the block waits for the tool's result."""
    world = open_world(grace=0.2)
    world.knows()
    world.play_tools()
    world.store.hold()

    @tool(name=LOOK_UP, approval_mode="never_require")
    def slow_look_up(query: str) -> str:
        """Looks something up."""
        return world.release_recall() if query == "shelf 1" else "nothing"

    helper, one = agent(world, client=client, tools=[slow_look_up]), session()
    if is_streamed:
        async for _ in helper.run(QUESTION, stream=True, session=one):
            pass
    else:
        await helper.run(QUESTION, session=one)
    assert_late_block(world.requests)
    # The history has no late block, and memory puts it back in its place.
    await helper.run("Thank you.", session=one)
    assert_append_only(world.requests)


@pytest.mark.shows(NOT_RECORDED)
async def test_own_text_is_not_recorded(world: World):
    """C5: the block is in the request, and not in the records."""
    world.knows()
    world.play_tools()
    await agent(world).run(QUESTION, session=session())
    world.wait_for("recorded")
    assert spoken(world) == [("user", QUESTION), ("assistant", ANSWER)]
    assert not any("afterturn" in text for _, text in world.records())


class Weather(ContextProvider):
    """A provider of somebody else, which writes in the role of the user."""

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: Any) -> None:
        context.extend_messages(self, [Message("user", ["It rains, and all users want umbrellas."])])


@pytest.mark.shows(NOT_RECORDED)
async def test_what_other_providers_add_is_not_the_users(world: World):
    """C5: it has the user's role, and is not recorded as the user's words."""
    await agent(world, after=[Weather("weather")]).run(QUESTION, session=session())
    world.wait_for("recorded")
    assert "umbrellas" in world.requests[-1].text
    assert [text for speaker, text in world.records() if speaker == "user"] == [QUESTION]


async def test_a_run_that_fails_is_not_recorded(world: World):
    """C3: the turn is given up."""

    def fail(request: Any) -> Any:
        raise ConnectionAbortedError

    world.server.script = fail
    with pytest.raises(Exception, match="Connection error"):
        await agent(world).run(QUESTION, session=session())
    world.wait_for("turn_aborted")
    assert world.records() == []


@pytest.mark.shows(COMPACTION)
async def test_after_a_compaction_the_fact_is_recalled_again(world: World):
    """H7: the provider of compaction left the block out."""
    world.knows()
    history = InMemoryHistoryProvider()
    cut = CompactionProvider(before_strategy=SlidingWindowStrategy(keep_last_groups=1))
    helper, one = agent(world, before=[history, cut]), session()
    await helper.run(QUESTION, session=one)
    await helper.run(f"{SUPPER} Remember that Miso is allergic to something.", session=one)
    last = world.requests[-1]
    assert len(blocks(last)) == 1
    assert QUESTION not in [text for _, _, text in parts(last)]


@pytest.mark.shows(COMPACTION)
async def test_after_a_compaction_in_the_client_the_fact_is_recalled_again(world: World):
    """H7: the client leaves messages out at each request, and marks them."""
    world.knows()
    helper, one = agent(world, compaction_strategy=SlidingWindowStrategy(keep_last_groups=2)), session()
    await helper.run(QUESTION, session=one)
    await helper.run("Thank you.", session=one)
    await helper.run(f"{SUPPER} Remember that Miso is allergic to something.", session=one)
    last = world.requests[-1]
    assert QUESTION not in [text for _, _, text in parts(last)]
    assert len(blocks(last)) == 1


@pytest.mark.shows(SUBAGENT)
async def test_what_an_agent_tells_its_subagent_is_not_the_users(world: World):
    """A1: the sub-agent's task has the role of a user there, and is recorded as a sub-agent's."""
    world.knows()
    ours = provider(world)
    expert = Agent(completions(world), "You are an expert.", name="expert", context_providers=[ours])
    task = "Please remember that the user always wants tuna."
    world.play(Rule(SUPPER, (Call("ask_expert", {"task": task}), Say("Fish."))), Rule("tuna", (Say("I see."),)))
    helper = agent(world, ours=ours, tools=[expert.as_tool(name="ask_expert", description="Asks an expert.")])
    await helper.run(SUPPER, session=session("outer"))
    world.wait_for("recorded", 2)
    assert [text for speaker, text in world.records() if speaker == "user" and "tuna" not in text] == [SUPPER]
    entries = [entry for entry in world.memory.space("user:ada").list(limit=100) if "tuna" in entry.text]
    assert {str(entry.origin) for entry in entries} == {"subagent"}
    assert {entry.conversation for entry in entries} == {"outer/expert"}


@pytest.mark.shows(SUBAGENT)
async def test_a_hand_off_has_one_block_and_one_record(world: World):
    """H5: the agent that takes over is a run of its own, with the user's message and one block."""
    world.knows()
    ours, options = provider(world), {"require_per_service_call_history_persistence": True}
    helper, cook = (
        Agent(completions(world), f"You are the {name}.", name=name, context_providers=[ours], **options)
        for name in ("helper", "cook")
    )

    def answer(request: ModelRequest) -> Say | Call:
        return Say(ANSWER) if "You are the cook." in request.text else Call("handoff_to_cook", {})

    world.play(Rule(QUESTION, (answer,)))
    workflow = HandoffBuilder(name="kitchen", participants=[helper, cook]).with_start_agent(helper).build()
    async for _ in workflow.run(QUESTION, stream=True):
        pass
    world.wait_for("recorded")
    assert ["cook" in system(request) for request in world.requests] == [False, True]
    assert [len(blocks(request)) for request in world.requests] == [1, 1]
    assert spoken(world) == [("user", QUESTION), ("assistant", ANSWER)]


@pytest.mark.shows(RULES)
@both_clients
async def test_a_firm_rule_refuses_a_call_and_others_come_with_the_result(world: World, client: Callable[[World], Any]):
    """T1: the tool does not run; the model reads why."""
    world.knows("Never push to main", firm=True)
    world.knows("We use pnpm in this repo", target="environment", metadata={"kind": "convention"})
    ran = []

    @tool(approval_mode="never_require")
    def shell(command: str) -> str:
        """Runs a command."""
        ran.append(command)
        return "done"

    calls = (Call("shell", {"command": "git push origin main"}), Call("shell", {"command": "npm install lodash"}))
    world.play(Rule("Publish", (*calls, Say("Done."))))
    await agent(world, client=client, tools=[shell]).run("Publish it", session=session())
    assert ran == ["npm install lodash"]
    results = [part.text for part in world.requests[-1].parts if part.kind == "result"]
    assert "Refused by your rule: Never push to main" in results[0]
    assert results[1].startswith("done\n\nRules of the user")
    assert_paired(world.requests[-1])


@pytest.mark.shows(STANDING_ROW)
@both_clients
async def test_preferences_are_in_the_system_prompt(world: World, client: Callable[[World], Any]):
    """S1: at its end, and the same in every request."""
    world.knows("Ada wants short answers", metadata={"kind": "preference"})
    world.play_tools()
    await agent(world, client=client).run(QUESTION, session=session())
    prompts = [system(request) for request in world.requests]
    assert prompts[0].startswith("Be brief.")
    assert STANDING in prompts[0]
    assert "Ada wants short answers" in prompts[0]
    assert len(set(prompts)) == 1


@pytest.mark.shows(IDS)
async def test_users_come_from_the_sessions_state(world: World):
    """L2: one line says where the id is; nobody sees what others said, also of runs at the same time."""
    world.knows(FACT)
    helper = agent(world, ours=provider(world, user=lambda run: run.session.state["user_id"]))
    users = ["bob", "ada", "eve"]

    async def run(user: str) -> None:
        one = session(user)
        one.state["user_id"] = user
        await helper.run(f"{user}: {QUESTION}", session=one)

    await asyncio.gather(*map(run, users))
    found = {user: blocks(request) for user in users for request in world.requests if f"{user}: " in request.text}
    assert [len(found[user]) for user in users] == [0, 1, 0]
    world.wait_for("recorded", 3)
    assert ("user", f"bob: {QUESTION}") in world.records("user:bob")


@pytest.mark.shows(IDS)
async def test_the_conversation_is_the_session(world: World):
    """L2: its id is the session's."""
    await agent(world).run("I like tea.", session=session("session-7"))
    world.wait_for("recorded")
    assert list(world.memory.space("user:ada").conversations()) == ["session-7"]


@pytest.mark.shows(ONCE)
async def test_a_service_that_has_the_history_is_sent_what_is_new(world: World):
    """H3: as OpenAI's Responses do unless `store` is false; the block is sent once."""
    world.knows()
    world.play(Rule(QUESTION, (Call(LOOK_UP, {"query": "x"}),)), otherwise=ANSWER)
    await agent(world, client=responses, default_options={}).run(QUESTION, session=session())
    world.wait_for("recorded")
    asked, looked = world.requests
    assert [len(blocks(asked)), len(blocks(looked))] == [1, 0]
    assert [kind for _, kind, _ in parts(looked)] == ["result"]
    assert spoken(world) == [("user", QUESTION), ("assistant", ANSWER)]


async def test_a_history_that_is_saved_at_each_request_has_the_block(world: World):
    """H3: the framework loads the history behind our middleware, and saves the block with it."""
    world.knows()
    world.play_tools()
    history = InMemoryHistoryProvider()
    helper = agent(world, before=[history], require_per_service_call_history_persistence=True)
    await helper.run(QUESTION, session=session())
    assert_one_block_in_a_loop(world.requests)
    world.wait_for("recorded")
    assert spoken(world) == [("user", QUESTION), ("assistant", ANSWER)]


async def test_a_run_without_a_session_gets_the_same(world: World):
    """R1, H2, H3: the framework makes a session for it."""
    world.knows()
    world.play_tools()
    await agent(world).run(QUESTION)
    assert_one_block_in_a_loop(world.requests)
    world.wait_for("recorded")


@pytest.mark.shows(BROKEN)
async def test_a_run_goes_on_without_a_user_and_after_closing(world: World, caplog: pytest.LogCaptureFixture):
    """Memory's fault is logged, and the agent answers."""
    world.play(otherwise="Noted.")
    nobody = agent(world, ours=provider(world, user=lambda run: None))
    assert (await nobody.run(QUESTION, session=session())).text == "Noted."
    assert "names no user" in caplog.text
    known = agent(world)
    world.memory.close()
    assert (await known.run(QUESTION, session=session("two"))).text == "Noted."


async def test_an_interrupted_run_is_one_turn(world: World):
    """C3: a person approves the call in between."""
    world.knows()

    @tool(name=LOOK_UP, approval_mode="always_require")
    def approved_look_up(query: str) -> str:
        """Looks something up."""
        return "nothing"

    world.play(Rule(QUESTION, (Call(LOOK_UP, {"query": "x"}), Say(ANSWER))))
    helper, one = agent(world, tools=[approved_look_up]), session()
    stopped = await helper.run(QUESTION, session=one)
    (request,) = stopped.user_input_requests
    await helper.run(Message("user", [request.to_function_approval_response(approved=True)]), session=one)
    world.wait_for("recorded")
    assert spoken(world) == [("user", QUESTION), ("assistant", ANSWER)]
    assert len(blocks(world.requests[-1])) == 1
    assert world.count("recall_started") == 1


@pytest.mark.shows(KNOWN)
def test_the_example_runs(world: World, tmp_path: Path):
    """The second session knows what was said in the first."""
    address = {"OPENAI_BASE_URL": f"{world.server.url}/v1", "OPENAI_API_KEY": "none"}
    variables = {**address, "AFTERTURN_GRACE": "30"}
    run_example("agent_framework_agent.py", tmp_path, variables)
    assert run_example("agent_framework_agent.py", tmp_path, variables).count("Understood.") == 2
    assert "allergic to chicken" in blocks(world.requests[-1])[0]
