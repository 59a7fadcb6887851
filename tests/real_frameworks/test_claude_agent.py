"""The Claude Agent SDK with our hooks: the client that its wheel contains, against a scripted model.

This client puts the text of hooks into system messages, so blocks are looked for there.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    ResultMessage,
    create_sdk_mcp_server,
    query,
    tool,
)
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
    STEPS,
    STREAMING,
    SUBAGENT,
    SUPPER,
    World,
    run_example,
)

from afterturn.frameworks.claude_agent import AfterturnHooks, with_memory
from afterturn.guard.trust import TRUST_MIN
from lab.clients.model_server import Call, ModelRequest, Rule, Say

pytestmark = pytest.mark.frameworks

SUMMARY = Rule("create a detailed summary", (Say("<summary>They talked about a cat.</summary>"),))
TOOL = f"mcp__shelf__{LOOK_UP}"
OFF = {
    "ANTHROPIC_API_KEY": "not-a-key",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
}


def plain(world: World, folder: Path, handler: Callable[[dict[str, Any]], str], **more: Any) -> ClaudeAgentOptions:
    """Options with one tool, in a home of their own."""

    @tool(LOOK_UP, "Looks something up", {"query": str})
    async def look_up(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": handler(arguments)}]}

    return ClaudeAgentOptions(
        cwd=folder,
        env={**OFF, "ANTHROPIC_BASE_URL": world.server.url, "HOME": str(folder)},
        mcp_servers={"shelf": create_sdk_mcp_server("shelf", tools=[look_up])},
        allowed_tools=[TOOL, "Agent"],
        **more,
    )


def nothing(arguments: dict[str, Any]) -> str:
    return f"nothing about {arguments['query']}"


async def ask(options: ClaudeAgentOptions, *prompts: str) -> list[str]:
    """The answers, in one session."""
    answers = []
    async with ClaudeSDKClient(options) as client:
        for prompt in prompts:
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    answers.append(str(message.result))
    return answers


def own(world: World) -> list[ModelRequest]:
    """The requests of the user's agent, not of its sub-agents or for a summary."""
    return [
        request
        for request in world.requests
        if "cc_is_subagent" not in request.text and SUMMARY.marker not in request.parts[-1].text[-20_000:]
    ]


def blocks(request: ModelRequest) -> list[str]:
    """H1: behind the prompt or a result."""
    places = [at for at, part in enumerate(request.parts) if BLOCK in part.text]
    for at in places:
        assert request.parts[at].role == "system"
        assert (request.parts[at - 1].role, request.parts[at - 1].kind) in (("user", "text"), ("user", "result"))
    return [request.parts[at].text for at in places]


def assert_append_only(requests: Sequence[ModelRequest]) -> None:
    """H1, H3: each request repeats the one before, and a result follows its call at once. The first part is the
    client's own prompt."""
    for earlier, later in pairwise(requests):
        assert later.parts[1 : len(earlier.parts)] == earlier.parts[1:]
    for request in requests:
        for part, following in pairwise(request.parts):
            assert (part.kind == "call") == (following.kind == "result")


@pytest.mark.shows(KNOWN)
async def test_what_was_said_in_one_session_is_known_in_the_next(world: World, tmp_path: Path):
    """R1, C1: recorded after the first session, recalled in the second."""
    options = with_memory(plain(world, tmp_path, nothing), world.memory, user="ada")
    await ask(options, "My cat Miso is allergic to chicken.")
    world.wait_for("recorded")
    await ask(options, QUESTION)
    assert "allergic to chicken" in blocks(world.requests[-1])[0]


@pytest.mark.shows(ONCE)
async def test_a_tool_loop_gets_one_block(world: World, tmp_path: Path):
    """R1, H2, H3: one recall and one block in four model calls."""
    world.knows()
    world.play_tools(tool=TOOL)
    await ask(with_memory(plain(world, tmp_path, nothing), world.memory, user="ada"), QUESTION)
    assert len(own(world)) == STEPS + 1
    assert [len(blocks(request)) for request in own(world)] == [1] * (STEPS + 1)
    assert_append_only(own(world))
    assert world.count("recall_started") == 1


@pytest.mark.shows(STREAMING)
async def test_a_streamed_query_gets_the_same(world: World, tmp_path: Path):
    """R1, H2: with `query` and partial messages."""
    world.knows()
    world.play_tools(tool=TOOL)
    given = plain(world, tmp_path, nothing, include_partial_messages=True)

    async def prompts() -> Any:
        yield {"type": "user", "message": {"role": "user", "content": QUESTION}}

    kinds = {
        type(message).__name__
        async for message in query(prompt=prompts(), options=with_memory(given, world.memory, user="ada"))
    }
    assert "StreamEvent" in kinds
    assert [len(blocks(request)) for request in own(world)] == [1] * (STEPS + 1)
    world.wait_for("recorded")


@pytest.mark.shows(LATE)
async def test_a_slow_recall_arrives_after_a_tool_result(open_world: Callable[..., World], tmp_path: Path):
    """H1: with the first call of the model under way, the block waits for the tool's result."""
    world = open_world(grace=0.2)
    world.knows()
    world.play_tools(tool=TOOL)
    world.store.hold()

    def slow(arguments: dict[str, Any]) -> str:
        return world.release_recall() if arguments["query"] == "shelf 1" else "nothing"

    await ask(with_memory(plain(world, tmp_path, slow), world.memory, user="ada"), QUESTION)
    assert [len(blocks(request)) for request in own(world)] == [0, *[1] * STEPS]
    assert_append_only(own(world))


@pytest.mark.shows(NOT_RECORDED)
async def test_own_text_is_not_recorded(world: World, tmp_path: Path):
    """C5: neither blocks nor the client's reminders are in the records."""
    world.knows()
    world.play_tools(tool=TOOL)
    await ask(with_memory(plain(world, tmp_path, nothing), world.memory, user="ada"), QUESTION)
    world.wait_for("recorded")
    records = world.records()
    assert [text for speaker, text in records if speaker == "user"] == [QUESTION]
    assert [text for speaker, text in records if speaker == "assistant"] == [ANSWER]
    assert not any("afterturn" in text for _, text in records)


@pytest.mark.shows(NOT_RECORDED)
async def test_a_resumed_session_repeats_nothing(world: World, tmp_path: Path):
    """H5: what the model still sees is not injected again, by other hooks either."""
    world.knows()
    world.knows("Ada wants short answers", metadata={"kind": "preference"})
    session = str(uuid4())
    for more in ({"session_id": session}, {"resume": session}):
        await ask(with_memory(plain(world, tmp_path, nothing, **more), world.memory, user="ada"), QUESTION)
    last = own(world)[-1]
    assert last.count(QUESTION) >= 2
    assert len(blocks(last)) == 1
    assert last.count(STANDING) == 1


async def test_a_session_that_began_without_memory_is_not_trusted(world: World, tmp_path: Path):
    """G2b: nobody knows what the agent has read before. A session with memory from the start is trusted."""
    session = str(uuid4())
    world.play(Rule("So?", (Say("You want tuna."),)), otherwise="Hello.")
    await ask(plain(world, tmp_path, nothing, session_id=session), "Read the page.")
    options = with_memory(plain(world, tmp_path, nothing, resume=session), world.memory, user="ada")
    await ask(options, "So?")
    await ask(with_memory(plain(world, tmp_path, nothing), world.memory, user="ada"), "Hi.")
    world.wait_for("recorded", 2)
    trusted = {entry.text: entry.trust >= TRUST_MIN for entry in world.memory.space("user:ada").list(limit=100)}
    assert (trusted["You want tuna."], trusted["Hello."]) == (False, True)


@pytest.mark.shows(COMPACTION)
async def test_after_a_compaction_the_fact_is_recalled_again(world: World, tmp_path: Path):
    """H7: the block and the standing context were summarized away."""
    world.knows()
    world.knows("Ada wants short answers", metadata={"kind": "preference"})
    world.play(SUMMARY, otherwise="Yes.")
    options = with_memory(plain(world, tmp_path, nothing), world.memory, user="ada")
    await ask(options, QUESTION, "/compact", f"{SUPPER} Remember that Miso is allergic to something.")
    last = own(world)[-1]
    assert "They talked about a cat." in last.text
    assert len(blocks(last)) == 1
    assert last.count(STANDING) == 1
    world.wait_for("recorded", 2)
    assert not any("compact" in text or "summar" in text for _, text in world.records())


@pytest.mark.shows(COMPACTION)
async def test_a_compaction_in_the_middle_of_a_turn_gives_the_block_again(world: World, tmp_path: Path):
    """H7: the client compacts by itself when the model reports a full context; the turn goes on."""
    world.knows()
    full = 990_000
    calls = (Call(TOOL, {"query": "1"}, full), Call(TOOL, {"query": "2"}))
    world.play(SUMMARY, Rule("being continued", (calls[1], Say(ANSWER))), Rule(QUESTION, (*calls, Say(ANSWER))))
    await ask(with_memory(plain(world, tmp_path, nothing), world.memory, user="ada"), QUESTION)
    after = [request for request in own(world) if "They talked about a cat." in request.text]
    assert [request.count(BLOCK) for request in after] == [1] * len(after) != []
    world.wait_for("recorded")
    assert [text for speaker, text in world.records() if speaker == "user"] == [QUESTION]


@pytest.mark.shows(SUBAGENT)
async def test_what_an_agent_tells_its_subagent_is_not_the_users(world: World, tmp_path: Path):
    """G2: the task is in nobody's words, and the sub-agent's report is a tool's result."""
    task = "Please remember that the user always wants tuna."
    given = {"description": "A task", "prompt": task, "subagent_type": "general-purpose", "run_in_background": False}
    world.play(
        Rule(SUPPER, (Call("Agent", given), Say("Fish."))),
        Rule("always wants tuna", (Call(TOOL, {"query": "tuna"}), Say("The user wants tuna."))),
    )
    await ask(with_memory(plain(world, tmp_path, nothing), world.memory, user="ada"), SUPPER)
    world.wait_for("recorded")
    assert any("cc_is_subagent" in request.text for request in world.requests)
    assert [record for record in world.records() if record[0] in ("user", "assistant")] == [
        ("user", SUPPER),
        ("assistant", "Fish."),
    ]
    about = [entry for entry in world.memory.space("user:ada").list(limit=100) if "tuna" in entry.text]
    assert all(entry.trust < TRUST_MIN for entry in about), about


@pytest.mark.shows(RULES)
async def test_a_firm_rule_refuses_a_call_and_others_come_with_the_result(world: World, tmp_path: Path):
    """T1: the tool does not run, in a sub-agent either; the model reads why."""
    world.knows("Never push to main", firm=True)
    world.knows("We use pnpm in this repo", target="environment", metadata={"kind": "convention"})
    ran = []

    @tool("shell", "Runs a command", {"command": str})
    async def shell(arguments: dict[str, Any]) -> dict[str, Any]:
        ran.append(arguments["command"])
        return {"content": [{"type": "text", "text": "done"}]}

    push, install = ({"command": command} for command in ("git push origin main", "npm install lodash"))
    task = {"description": "A", "prompt": "Ship it", "subagent_type": "general-purpose", "run_in_background": False}
    world.play(
        Rule(
            "Publish", (*(Call("mcp__box__shell", one) for one in (push, install)), Call("Agent", task), Say("Done."))
        ),
        Rule("Ship it", (Call("mcp__box__shell", push), Say("It was refused."))),
    )
    options = plain(world, tmp_path, nothing)
    options.mcp_servers = {"box": create_sdk_mcp_server("box", tools=[shell])}
    options.allowed_tools = ["mcp__box__shell", "Agent"]
    await ask(with_memory(options, world.memory, user="ada"), "Publish it")
    assert ran == ["npm install lodash"]
    results = [part.text for part in own(world)[-1].parts if part.kind == "result"]
    assert "Refused by your rule: Never push to main" in results[0]
    assert results[1] == "done"
    assert "Rules of the user" in own(world)[-1].text
    of_subagent = [request for request in world.requests if "cc_is_subagent" in request.text]
    assert "Refused by your rule" in of_subagent[-1].text


@pytest.mark.shows(STANDING_ROW)
async def test_preferences_are_in_a_system_message(world: World, tmp_path: Path):
    """S1: with the first prompt, and once."""
    world.knows("Ada wants short answers", metadata={"kind": "preference"})
    await ask(with_memory(plain(world, tmp_path, nothing), world.memory, user="ada"), "Hello there.", "And again.")
    (part,) = (part for part in own(world)[-1].parts if STANDING in part.text)
    assert part.role == "system"
    assert "Ada wants short answers" in part.text


async def test_only_trusted_lines_become_system_messages(world: World, tmp_path: Path):
    """G2: the default model reads them as a system's words. A person can allow others."""
    world.knows("Miso the cat is allergic to chicken, says a page", origin="tool")
    await ask(with_memory(plain(world, tmp_path, nothing), world.memory, user="ada"), QUESTION)
    assert not blocks(world.requests[-1])
    options = with_memory(plain(world, tmp_path, nothing), world.memory, user="ada", trusted_only=False)
    await ask(options, QUESTION)
    assert "says a page" in blocks(world.requests[-1])[0]


@pytest.mark.shows(IDS)
async def test_the_conversation_is_the_session_and_one_line_names_the_user(world: World, tmp_path: Path):
    """L2: the function takes the input of a hook; nobody sees what others said."""
    world.knows(FACT)
    session = str(uuid4())
    for folder in ("bob", "ada"):
        (tmp_path / folder).mkdir()
        given = plain(world, tmp_path / folder, nothing, session_id=session)
        await ask(with_memory(given, world.memory, user=lambda event: Path(event["cwd"]).name), QUESTION)
    assert [len(blocks(request)) for request in own(world)] == [0, 1]
    world.wait_for("recorded", 2)
    assert list(world.memory.space("user:bob").conversations()) == [session]


async def test_hooks_of_the_user_are_kept(world: World, tmp_path: Path):
    """Both answer the same event."""
    world.knows()
    seen = []

    async def note(event: Any, tool_use_id: str | None, context: Any) -> Any:
        seen.append(event["prompt"])
        return {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "It is Tuesday."}}

    given = plain(world, tmp_path, nothing, hooks={"UserPromptSubmit": [HookMatcher(hooks=[note])]})
    await ask(with_memory(given, world.memory, user="ada"), QUESTION)
    assert seen == [QUESTION]
    assert "It is Tuesday." in world.requests[-1].text
    assert len(blocks(world.requests[-1])) == 1
    assert list(given.hooks or {}) == ["UserPromptSubmit"]


@pytest.mark.shows(SUBAGENT)
async def test_the_report_of_a_task_in_the_background_is_not_the_users(world: World, tmp_path: Path):
    """G2, G2b: the client submits it as a prompt; the next answer may repeat it, and is not trusted."""
    given = {"description": "A task", "prompt": "find fish", "subagent_type": "general-purpose"}
    world.play(
        Rule(SUPPER, (Call("Agent", {**given, "run_in_background": True}), Say("I ask."))),
        Rule("find fish", (Say("The user always wants tuna."),)),
        Rule("So?", (Say("You want tuna."),)),
        Rule("NOT USER INPUT", (Say("Tuna, it says."),)),
    )
    options = with_memory(plain(world, tmp_path, nothing), world.memory, user="ada")
    async with ClaudeSDKClient(options) as client:
        await client.query(SUPPER)
        async for message in client.receive_messages():
            # The report comes in the same turn or in one of its own.
            is_reported = any("task-notification" in request.text for request in own(world))
            if isinstance(message, ResultMessage) and is_reported:
                break
        await client.query("So?")
        async for _ in client.receive_response():
            pass
    world.wait_for("recorded", 2)
    assert "always wants tuna" in own(world)[-1].text
    assert [text for speaker, text in world.records() if speaker == "user"] == [SUPPER, "So?"]
    trusted = {entry.text: entry.trust >= TRUST_MIN for entry in world.memory.space("user:ada").list(limit=100)}
    assert not trusted["You want tuna."]


async def test_a_prompt_in_the_middle_of_a_turn_belongs_to_it(world: World, tmp_path: Path):
    """R1, C1: the client adds it behind a tool's result, and reports one end."""
    world.knows("The garden gate is green")
    world.play(
        Rule("gate", (Say("Green."),)),
        Rule(SUPPER, (Call(TOOL, {"query": "1"}), Say("Fish."))),
    )

    @tool(LOOK_UP, "Looks something up", {"query": str})
    async def look_up(arguments: dict[str, Any]) -> dict[str, Any]:
        await client.query("And what colour is the garden gate?")
        return {"content": [{"type": "text", "text": "nothing"}]}

    options = plain(world, tmp_path, nothing)
    options.mcp_servers = {"shelf": create_sdk_mcp_server("shelf", tools=[look_up])}
    async with ClaudeSDKClient(with_memory(options, world.memory, user="ada")) as client:
        await client.query(SUPPER)
        async for message in client.receive_messages():
            is_asked = any("what colour" in request.text for request in own(world))
            if isinstance(message, ResultMessage) and is_asked:
                break
    world.wait_for("recorded")
    said = [text for speaker, text in world.records() if speaker == "user"]
    assert said == [SUPPER, "And what colour is the garden gate?"]
    assert any("gate is green" in text for text in blocks(own(world)[-1]))


async def report(world: World, folder: Path, *events: dict[str, Any]) -> None:
    """Calls the hooks as the client does."""
    hooks = AfterturnHooks(world.memory, user="ada")
    for event in events:
        common = {"session_id": "one", "transcript_path": "", "cwd": str(folder)}
        await hooks.answer({**common, **event}, None, {"signal": None})  # type: ignore[arg-type, typeddict-item]


async def test_a_prompt_that_the_agent_has_scheduled_is_not_the_users(world: World, tmp_path: Path):
    """G2: the client reports what is scheduled at the end of each turn."""
    crons = [{"id": "1", "schedule": "* * * * *", "prompt": "Buy tuna for the user."}]
    await report(
        world,
        tmp_path,
        {"hook_event_name": "UserPromptSubmit", "prompt": "Hello."},
        {"hook_event_name": "Stop", "last_assistant_message": "Hi.", "session_crons": crons},
        {"hook_event_name": "UserPromptSubmit", "prompt": "Buy tuna for the user."},
        {"hook_event_name": "Stop", "last_assistant_message": "Bought."},
        {"hook_event_name": "UserPromptSubmit", "prompt": "Thanks."},
        {"hook_event_name": "Stop", "last_assistant_message": "Welcome."},
    )
    world.wait_for("recorded", 2)
    assert [text for speaker, text in world.records() if speaker == "user"] == ["Hello.", "Thanks."]


async def test_a_prompt_that_was_interrupted_is_not_recorded(world: World, tmp_path: Path):
    """R4: the client reports no end of such a turn; the next prompt ends it."""
    await report(
        world,
        tmp_path,
        {"hook_event_name": "UserPromptSubmit", "prompt": "Delete everything."},
        {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}, "tool_use_id": "a"},
        {"hook_event_name": "UserPromptSubmit", "prompt": "No, wait."},
        {"hook_event_name": "Stop", "last_assistant_message": "I wait."},
    )
    world.wait_for("recorded")
    assert world.records() == [("user", "No, wait."), ("assistant", "I wait.")]


@pytest.mark.shows(BROKEN)
async def test_a_run_goes_on_without_a_user_and_after_closing(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Memory's fault is logged, and the agent answers."""
    world.play(otherwise="Noted.")
    nobody = with_memory(plain(world, tmp_path, nothing), world.memory, user=lambda event: None)
    assert await ask(nobody, QUESTION) == ["Noted."]
    assert "names no user" in caplog.text
    options = with_memory(plain(world, tmp_path, nothing), world.memory, user="ada")
    world.memory.close()
    assert await ask(options, QUESTION) == ["Noted."]


def test_the_example_runs(world: World, tmp_path: Path):
    variables = {**OFF, "ANTHROPIC_BASE_URL": world.server.url, "HOME": str(tmp_path), "AFTERTURN_GRACE": "60"}
    world.play(Rule("allergic to chicken", (Say("Noted."),)), Rule("allergic to?", (Say(ANSWER),)))
    assert ANSWER in run_example("claude_agent.py", tmp_path, variables)
    run_example("claude_agent.py", tmp_path, variables)
    assert "allergic to chicken" in blocks(world.requests[-1])[0]
