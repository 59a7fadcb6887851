"""Each client remembers: told in one conversation, known in the next, and nothing is shown twice."""

from dataclasses import dataclass

import pytest

from lab.clients.drivers import CLIENTS, Client
from lab.clients.machine import ClientTurn, Machine, blocks_in, memories_in
from lab.clients.model_server import Rule, Say

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

TOLD = "Our staging server is called heron and it runs in Oslo."
ASKED = "In which city does our staging server run? Check it in the shell."
ASKED_AGAIN = "Remind me, in which city does our staging server run?"
ANSWER = "It runs in Oslo."
LOOK_UP = "Look it up with the memory tool."
DELEGATE = "Let a sub-agent look it up."
TASK = "Find the town of the machine for tests, with the memory tool."
PUSH = "Now push it."
QUERY = {"query": "the server called heron"}


@dataclass
class Story:
    """What a user does with one client. Each test looks at one thing in it."""

    machine: Machine
    client: Client
    told: ClientTurn
    asked: ClientTurn
    resumed: ClientTurn
    compaction: ClientTurn
    after_compaction: ClientTurn


@pytest.fixture(scope="module", params=list(CLIENTS))
def client_name(request):
    return request.param


@pytest.fixture(scope="module")
def story(client_name):
    with Machine() as machine:
        client = machine.client(client_name)
        machine.rules += [
            Rule("Check it in the shell.", (client.shell("echo checked"), client.shell("echo twice"), Say(ANSWER))),
            Rule("does our staging server run?", (Say(ANSWER),)),
            Rule(LOOK_UP, (*client.until_tools_are_there(), client.memory_tool("search_memory", QUERY), Say("Found."))),
            Rule(
                TASK,
                (
                    *client.until_tools_are_there(),
                    client.memory_tool("search_memory", QUERY),
                    client.report("The sub-agent found it."),
                ),
            ),
            Rule(DELEGATE, (*client.until_tools_are_there(), *client.delegate(TASK), Say("The sub-agent is back."))),
            Rule(PUSH, (client.shell("git push origin main; touch pushed"), Say("I did what I could."))),
        ]
        machine.command("install", client_name)
        told = machine.tell(client, TOLD)
        asked = machine.ask(client, ASKED)
        resumed = machine.ask(client, ASKED_AGAIN, resume=True)
        compaction = machine.turn(client, client.compact)
        after_compaction = machine.ask(client, ASKED_AGAIN, resume=True)
        yield Story(machine, client, told, asked, resumed, compaction, after_compaction)


@pytest.mark.shows("what you told it is known in the next conversation")
def test_what_was_said_is_in_the_models_request_in_the_next_conversation(story):
    assert story.told.reply.code == 0
    assert not blocks_in(story.told.last)
    assert story.asked.reply.text == ANSWER
    assert "runs in Oslo" in "".join(blocks_in(story.asked.requests[0]))


@pytest.mark.shows("shown once within a tool loop")
def test_memories_are_injected_once_within_a_tool_loop(story):
    assert len(story.asked.requests) == 3
    assert [len(blocks_in(request)) for request in story.asked.requests] == [1, 1, 1]
    assert blocks_in(story.asked.requests[0]) == blocks_in(story.asked.last)
    assert "checked" in story.asked.last.text


@pytest.mark.shows("nothing is doubled when a session is resumed")
def test_nothing_is_doubled_when_a_session_is_resumed(story):
    assert ASKED in story.resumed.last.text
    shown = memories_in(story.resumed.last)
    assert len(shown) == len(set(shown))
    assert "runs in Oslo" in story.resumed.last.text


@pytest.mark.shows("recalled again after a compaction")
def test_memories_come_back_after_a_compaction(story):
    last = story.after_compaction.last
    assert "The conversation was summarized." in last.text
    assert "checked" not in last.text
    assert "Oslo" in "".join(blocks_in(last))
    shown = memories_in(last)
    assert len(shown) == len(set(shown))


@pytest.mark.shows("MCP search")
def test_the_memory_tool_finds_what_was_said(story):
    looked = story.machine.ask(story.client, LOOK_UP)
    assert looked.reply.text == "Found."
    results = [part.text for part in looked.last.parts if part.kind == "result"]
    assert "runs in Oslo" in results[-1]
    # Codex does not report the end of a command that it leaves in the background.
    unseen = [entry for entry in story.machine.records() if entry["text"] == "(not reported)"]
    assert len(unseen) <= len(story.client.until_tools_are_there())


@pytest.mark.shows("MCP search from a sub-agent")
def test_a_sub_agent_finds_what_was_said(story):
    delegated = story.machine.ask(story.client, DELEGATE)
    assert delegated.reply.text == "The sub-agent is back."
    own = [request for request in delegated.requests if TASK in request.text and DELEGATE not in request.text]
    results = [part.text for request in own for part in request.parts if part.kind == "result"]
    assert any("runs in Oslo" in result for result in results)
    assert "The sub-agent found it." in delegated.last.text


@pytest.mark.shows("a firm rule stops a tool call")
def test_a_firm_rule_stops_a_tool_call(story):
    story.machine.command("add", "--firm", "Never push to main.")
    pushed = story.machine.ask(story.client, PUSH)
    assert pushed.reply.text == "I did what I could."
    (result,) = [part.text for part in pushed.last.parts if part.kind == "result"]
    assert "Never push to main" in result
    assert not (story.client.project / "pushed").exists()


@pytest.mark.shows("an installation for one project, alone and together with that for the user")
def test_an_installation_for_the_project_works_and_two_show_memories_once(machine, client_name):
    client = machine.client(client_name)
    machine.command("install", client_name, "--project")
    machine.tell(client, TOLD)
    assert "Oslo" in "".join(blocks_in(machine.ask(client, ASKED_AGAIN).last))
    machine.command("install", client_name)
    assert len(blocks_in(machine.ask(client, ASKED_AGAIN).last)) == 1


def test_only_what_the_user_and_the_agent_said_is_recorded(story):
    texts = [entry["text"] for entry in story.machine.records()]
    assert TOLD in texts
    assert not any(
        part in text for text in texts for part in ("afterturn-memory", "afterturn-standing", "system-reminder")
    )
