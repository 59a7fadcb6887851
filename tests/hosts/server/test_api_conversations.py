"""The verbs of a conversation over HTTP: standing context, compaction, and why a turn got what it got."""

from collections.abc import Callable

import pytest
from served import CAT, QUESTION, Api

from afterturn.hosts.server.app import Service

ANSWER = {"role": "assistant", "content": "Chicken."}


@pytest.fixture
async def told(api: Api) -> Api:
    """A conversation with one turn that was given a block and recorded."""
    api = api.speaking_in(standing="off")
    await api.add(CAT)
    await api.start(QUESTION)
    messages = await api.inject(QUESTION)
    assert (await api.verb("finish", messages=[*messages, ANSWER]))["recorded"]
    return api


async def test_the_standing_block_is_frozen_until_it_is_refreshed(api: Api):
    """S3."""
    await api.add(CAT)
    first = (await api.post("/conversations/c1/standing", conversation={}))["text"]
    assert "Miso" in first
    await api.add("My dog Rex is afraid of thunder.")
    assert (await api.post("/conversations/c1/standing", conversation={}))["text"] == first
    again = await api.post("/conversations/c1/standing", conversation={}, refresh=True, instructions=["Be brief."])
    assert "Rex" in again["text"]
    assert "Be brief." in again["text"]


async def test_a_trace_shows_what_was_delivered_and_why(told: Api):
    (turn,) = (await told.get("/conversations/c1/trace"))["turns"]
    assert turn["id"] == "t1"
    assert turn["recorded_at"]
    assert "Miso" in turn["blocks"][0]["text"]
    (recall,) = turn["recalls"]
    assert (recall["outcome"], recall["question"]) == ("delivered", QUESTION[0]["content"])
    assert [one["reason"] for one in recall["shown"]] == ["it is in the block"]
    assert (await told.get("/conversations/c1/trace", turn="t1"))["turns"] == [turn]
    assert await told.status("GET", "/conversations/c1/trace?turn=nope") == 404
    assert await told.status("GET", "/conversations/other/trace") == 404


async def test_why_and_replay_explain_a_turn(told: Api):
    memory = await told.add("The tests take two minutes.")
    (answer,) = (await told.get("/conversations/c1/why", memory=memory))["answers"]
    assert answer["explained"]["why"] == "later"
    replayed = await told.post("/conversations/c1/replay", turn="t1")
    assert replayed["identical"]
    changed = await told.post("/conversations/c1/replay", changes={"recall_score_min": 1.0})
    assert changed["blocks"][0]["changed"] == ""
    wrong = {"changes": {"embedder": "minilm"}}
    assert await told.status("POST", "/conversations/c1/replay", json=wrong) == 400


async def test_a_compaction_lets_memories_come_again(told: Api):
    """H7: for a client that hides its history."""
    hidden = told.speaking_in(id="c2", history="hidden")
    await hidden.start(QUESTION)
    assert len(await hidden.inject(QUESTION)) == 2
    await hidden.verb("finish", messages=[*QUESTION, ANSWER])
    where = {"history": "hidden", "standing": "off"}
    assert (await told.post("/conversations/c2/compacting", conversation=where, messages=QUESTION))["done"]
    assert (await told.post("/conversations/c2/compacted", conversation=where))["done"]
    await hidden.start(QUESTION, "t2")
    assert len(await hidden.inject(QUESTION, "t2")) == 2


async def test_reset_expect_and_briefing_answer(told: Api):
    assert (await told.post("/conversations/c1/reset", conversation={}))["done"]
    assert (await told.post("/conversations/c1/expect", conversation={}, text="What food"))["done"]
    assert (await told.post("/conversations/c1/briefing", conversation={}))["text"] == ""
    project = {"project": "heron", "standing": "off"}
    talking = told.speaking_in(id="c3", **project)
    messages = [{"role": "user", "content": "Fix the login test in heron."}]
    await talking.start(messages)
    done = {"role": "assistant", "content": "The login test passes. Next: the logout test."}
    assert (await talking.verb("finish", messages=[*messages, done]))["recorded"]
    briefing = await told.post("/conversations/c4/briefing", conversation=project)
    assert "logout" in briefing["text"]


async def test_the_conversation_of_the_path_counts(api: Api):
    body = {"conversation": {"id": "other"}}
    assert await api.status("POST", "/conversations/c1/reset", json=body) == 400


async def test_a_narrow_token_does_not_see_lines_of_other_spaces(connect: Callable[..., Api]):
    """L2: neither in the trace, nor in a replay or an export of the conversation that read them."""
    wide = connect("wide", space="user:ada", reads=["team:x"])
    everything = connect("all", space="*")
    await everything.add("The alarm code of the office is 4711.", "team:x")
    question = [{"role": "user", "content": "What is the alarm code of the office?"}]
    talking = wide.speaking_in(reads=["team:x"], standing="off")
    await talking.start(question)
    messages = await talking.inject(question)
    assert "4711" in messages[1]["content"]
    assert "4711" in (await wide.ask("GET", "/conversations/c1/trace")).text
    narrow = connect("narrow", space="user:ada")
    trace = await narrow.ask("GET", "/conversations/c1/trace")
    assert trace.json()["turns"][0]["blocks"][0]["refs"]
    assert "4711" not in trace.text
    assert "team:x" not in trace.text
    assert await narrow.status("POST", "/conversations/c1/replay", json={"turn": "t1"}) == 403
    assert "4711" not in (await narrow.ask("GET", "/spaces/user:ada/export")).text
    assert "4711" in (await everything.ask("GET", "/spaces/user:ada/export")).text
    # Nor by the verbs of that turn: it was opened with more than this token may read.
    body = {"conversation": {"id": "c1", "standing": "off"}, "messages": question}
    assert await narrow.status("POST", "/turns/t1/inject", json=body) == 403
    memory = (await everything.get("/spaces/team:x/memories"))["memories"][0]["id"]
    assert await narrow.status("GET", f"/conversations/c1/why?memory={memory}") == 404


@pytest.mark.parametrize("verb", ["inject", "block"])
async def test_a_narrow_token_continues_no_turn_with_lines_of_other_spaces(
    connect: Callable[..., Api], service: Service, verb: str
):
    """L2: also if the server has forgotten who had started the turn, or was restarted."""
    wide = connect("wide", space="user:ada", reads=["team:x"])
    await connect("all", space="*").add("The alarm code of the office is 4711.", "team:x")
    question = [{"role": "user", "content": "What is the alarm code of the office?"}]
    talking, more = (
        wide.speaking_in(reads=["team:x"], standing="off"),
        {"messages": question} if verb == "inject" else {},
    )
    await talking.start(question)
    assert "4711" in str(await talking.verb(verb, within=20, **more))
    narrow = connect("narrow", space="user:ada").speaking_in(standing="off")
    service.turns._turns.clear()
    for one in ("inject", "block"):
        body = {"messages": question} if one == "inject" else {}
        assert "4711" not in str(await narrow.verb(one, within=0, **body))
    service.turns._turns.clear()
    await service.memories.close()
    for one in ("block", "inject"):
        body = {"messages": question} if one == "inject" else {}
        assert "4711" not in str(await narrow.verb(one, within=0, **body))
    service.turns._turns.clear()
    await service.memories.close()
    assert "4711" in str(await talking.verb(verb, within=20, **more))


async def test_a_rule_of_another_space_is_not_shown_and_can_be_forgotten(connect: Callable[..., Api], service: Service):
    """L2, M2: neither the trace nor an export of the conversation keeps its text."""
    everything = connect("all", space="*")
    await everything.add("Never run npm install with the zebra registry.", "team:x", firm=True)
    wide = connect("wide", space="user:ada", reads=["team:x"]).speaking_in(reads=["team:x"], standing="off")
    question = [{"role": "user", "content": "Install the packages please."}]
    await wide.start(question)
    assert (await wide.verb("before_tool", name="bash", arguments={"command": "npm install zebra"}))["refusal"]
    assert (await wide.verb("finish", messages=[*question, ANSWER]))["recorded"]
    narrow, trace, export = connect("narrow"), "/conversations/c1/trace?owner=user:ada", "/spaces/user:ada/export"
    await service.memories.close()
    assert "zebra registry" in (await everything.ask("GET", trace)).text
    for path in (trace, export):
        found = (await narrow.ask("GET", path)).text
        assert "zebra registry" not in found
        assert "team:x" not in found
    await everything.post("/spaces/team:x/forget", everything=True)
    for path in (trace, export):
        assert "zebra registry" not in (await everything.ask("GET", path)).text
