"""The verbs of a turn over HTTP, and what happens to them when answers are lost and servers end."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from served import CAT, HOST, QUESTION, WITHIN, Api, make_service, make_token, serving

from afterturn import blocking
from afterturn.hosts.server.app import Service, make_app

ANSWER = {"role": "assistant", "content": "Chicken."}
HOLD_STORE = (
    "import sqlite3, sys; store = sqlite3.connect(sys.argv[1], isolation_level=None); "
    "store.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
)


@contextmanager
def holding_store(path: Path) -> Iterator[None]:
    """Another process has begun to write."""
    command = [sys.executable, "-c", HOLD_STORE, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        yield
        other.communicate()


def recorded(folder: Path, space: str = "user:ada") -> list[str]:
    with blocking.open(folder / "memory.db") as memory:
        return sorted(one.text for one in memory.space(space).list(limit=100) if one.kind == "record")


async def test_a_turn_gets_a_block_and_is_recorded(api: Api):
    await api.add(CAT)
    await api.start(QUESTION)
    messages = await api.inject(QUESTION)
    assert len(messages) == 2
    assert messages[1]["role"] == "user"
    assert "Miso" in messages[1]["content"]
    assert await api.verb("finish", messages=[*messages, ANSWER]) == {
        "turn": "t1",
        "status": "completed",
        "recorded": True,
        "reason": "",
    }
    listed = await api.get("/spaces/user:ada/memories", kind="record")
    # C5: our own block is not recorded.
    assert sorted(one["text"] for one in listed["memories"]) == ["Chicken.", QUESTION[0]["content"]]


@pytest.mark.standing
async def test_the_standing_block_comes_with_the_first_block(api: Api):
    """S5: over HTTP, too."""
    await api.add("I prefer short answers.", metadata={"kind": "preference"})
    await api.start(QUESTION)
    messages = await api.inject(QUESTION)
    assert "<afterturn-standing>" in messages[1]["content"]
    await api.verb("finish", messages=[*messages, ANSWER])
    again = [*messages, ANSWER, {"role": "user", "content": "And water?"}]
    await api.start(again, "t2")
    assert not any("<afterturn-standing>" in one["content"] for one in (await api.inject(again, "t2"))[4:])


async def test_a_repeated_inject_brings_the_same_block_and_never_a_second_one(api: Api):
    """B4, H6: the answer was lost, so the list that is sent again lacks the block."""
    await api.add(CAT)
    await api.start(QUESTION)
    first = await api.inject(QUESTION)
    assert await api.inject(QUESTION) == first
    assert await api.inject(first) == first


async def test_an_inject_that_is_sent_twice_at_once_brings_one_block(api: Api):
    await api.add(CAT)
    await api.start(QUESTION)
    answers = await asyncio.gather(*(api.inject(QUESTION) for _ in range(4)))
    assert all(one == answers[0] for one in answers)
    assert len(answers[0]) == 2
    messages = await api.inject(answers[0])
    assert messages == answers[0]


async def test_a_start_that_is_repeated_is_the_same_turn(api: Api):
    """B4, C3: also while the first request still runs."""
    await asyncio.gather(*(api.start(QUESTION) for _ in range(3)))
    await api.start(QUESTION)
    await api.inject(QUESTION)
    assert (await api.verb("finish", messages=[*QUESTION, ANSWER]))["recorded"]
    trace = await api.get("/conversations/c1/trace")
    for _ in range(100):
        if trace["turns"][0]["recalls"]:
            break
        await asyncio.sleep(0.1)  # a recall that was late is stored when it ends
        trace = await api.get("/conversations/c1/trace")
    assert trace["turns_total"] == 1
    assert len({one["correlation"] for one in trace["turns"][0]["recalls"]}) == 1


async def test_a_start_without_an_id_gets_one(api: Api):
    answer = await api.post("/turns", conversation=api.conversation, messages=QUESTION)
    assert answer["status"] == "open"
    assert (await api.verb("finish", answer["turn"], messages=[*QUESTION, ANSWER]))["recorded"]


async def test_a_finish_that_is_repeated_records_once(api: Api, tmp_path: Path):
    """B4, C3: at once, and later."""
    await api.start(QUESTION)
    finished = await asyncio.gather(*(api.verb("finish", messages=[*QUESTION, ANSWER]) for _ in range(3)))
    assert all(one["recorded"] for one in finished)
    assert (await api.verb("wait"))["recorded"]
    assert (await api.verb("abort"))["status"] == "completed"
    assert len((await api.get("/spaces/user:ada/memories", kind="record"))["memories"]) == 2


async def test_an_ended_turn_takes_no_more_input(api: Api):
    await api.start(QUESTION)
    await api.verb("finish", messages=[*QUESTION, ANSWER])
    for verb, body in (("inject", {"messages": QUESTION}), ("block", {}), ("interject", {"text": "x"})):
        options = {"json": {"conversation": api.conversation, **body}}
        assert await api.status("POST", f"/turns/t1/{verb}", **options) == 409
    again = {"conversation": api.conversation, "messages": QUESTION, "turn": "t1"}
    assert await api.status("POST", "/turns", json=again) == 409


async def test_an_aborted_turn_is_not_recorded(api: Api):
    """B4, R4: nothing more is delivered either, and the same request says the same again."""
    await api.start(QUESTION)
    for _ in range(2):
        assert (await api.verb("abort", reason="stopped by the user"))["status"] == "aborted"
    assert not (await api.verb("finish", messages=[*QUESTION, ANSWER]))["recorded"]
    assert (await api.get("/spaces/user:ada/memories", kind="record"))["memories"] == []


async def test_a_turn_without_an_answer_says_that_it_was_not_recorded(api: Api):
    """C1: without a non-blank assistant message nothing is recorded."""
    await api.start(QUESTION)
    ended = await api.verb("finish", messages=QUESTION)
    assert not ended["recorded"]
    assert ended["status"] == "aborted"


async def test_a_turn_that_cannot_be_stored_yet_is_not_unknown(tmp_path: Path):
    """C3: it is recorded when another process lets go of the store."""
    app = make_app(make_service(tmp_path, busy_timeout=0.2))
    headers = {"Authorization": f"Bearer {make_token('ada')}"}
    transport = httpx2.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=headers, timeout=WITHIN) as client,
    ):
        api = Api(client)
        await api.add(CAT)
        with holding_store(tmp_path / "memory.db"):
            await api.start(QUESTION)
            ended = await api.verb("finish", messages=[*QUESTION, ANSWER], within=0)
            assert (ended["status"], ended["recorded"]) == ("completed", False)
        assert (await api.verb("wait", within=20))["recorded"]


async def test_an_unknown_turn_is_not_found(api: Api):
    body = {"conversation": api.conversation, "messages": QUESTION}
    for verb in ("inject", "finish"):
        assert await api.status("POST", f"/turns/nope/{verb}", json=body) == 404
    assert await api.status("POST", "/turns/nope/wait", json={"conversation": api.conversation}) == 404


async def test_block_gives_the_same_bytes_at_every_step(api: Api):
    """H8: for clients that write their prompt again."""
    await api.add(CAT)
    await api.start(QUESTION)
    first = (await api.verb("block", within=20))["text"]
    assert "Miso" in first
    assert (await api.verb("block"))["text"] == first


async def test_an_interjection_and_a_cue_start_recalls_of_their_own(api: Api):
    """B4, R1: each once, however often it is sent."""
    api = api.speaking_in(standing="off")
    await api.add(CAT)
    await api.add("The garage is rented from Mrs Jansen in Bremen.")
    await api.start(QUESTION)
    messages = await api.inject(QUESTION)
    for _ in range(2):
        await api.verb("interject", text="From whom is the garage rented?")
    messages = await api.inject([*messages, {"role": "user", "content": "From whom is the garage rented?"}])
    assert "Bremen" in messages[-1]["content"]
    for _ in range(2):
        await api.verb("cue", text="the garage's rent")
    await api.verb("finish", messages=[*messages, ANSWER])
    recalls = (await api.get("/conversations/c1/trace"))["turns"][0]["recalls"]
    assert [one["cause"] for one in recalls if one["phase"] == "fast"].count("interjection") == 1
    assert [one["cause"] for one in recalls if one["phase"] == "fast"].count("cue") == 1


async def test_a_firm_rule_refuses_a_tool_call(api: Api):
    """T1: with its reason, each rule once in a turn, and again if the same call repeats."""
    await api.add("Never use npm, we use pnpm here.", firm=True)
    await api.start(QUESTION)
    call = {"name": "bash", "arguments": {"command": "npm install left-pad"}}
    advice = await api.verb("before_tool", **call)
    assert "pnpm" in advice["text"]
    assert advice["refusal"]
    assert await api.verb("before_tool", **call) == advice
    outside = await api.post("/conversations/c1/before_tool", conversation={}, **call)
    assert outside["rules"] == advice["rules"]


async def test_merged_blocks_replace_the_last_message(api: Api):
    await api.add(CAT)
    merging = api.speaking_in(placement="merge")
    await merging.start(QUESTION)
    answer = await merging.verb("inject", messages=QUESTION, within=20)
    (inserted,) = answer["inserted"]
    assert inserted["replaces"]
    assert inserted["index"] == 0
    assert "Miso" in inserted["element"]["content"]
    messages = await merging.inject(QUESTION)
    assert len(messages) == 1
    deep = [{**QUESTION[0], "extra": json.loads("[" * 500 + "]" * 500)}]
    body = {"conversation": merging.conversation, "messages": deep}
    assert await merging.status("POST", "/turns/t1/inject", json=body) == 400


@pytest.mark.parametrize(
    "messages, text_of",
    [
        (
            [{"role": "user", "parts": [{"text": "What food is my cat allergic to?"}]}],
            lambda one: one["parts"][0]["text"],
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "What food is my cat allergic to?"}]}],
            lambda one: str(one["content"]),
        ),
        (
            [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "What food is my cat allergic to?"}],
                }
            ],
            lambda one: str(one["content"]),
        ),
    ],
    ids=["gemini", "anthropic", "responses"],
)
async def test_every_message_format_is_understood(api: Api, messages: list[Any], text_of: Callable[[Any], str]):
    await api.add(CAT)
    await api.start(messages)
    changed = await api.inject(messages)
    assert "Miso" in text_of(changed[-1])


async def test_incognito_is_not_recorded(api: Api):
    """P2: by turn, by conversation, and as it is kept in the store."""
    await api.start(QUESTION, incognito=True)
    ended = await api.verb("finish", messages=[*QUESTION, ANSWER])
    assert not ended["recorded"]
    assert ended["status"] == "completed"
    assert await api.put("/conversations/c1/incognito", conversation={}, on=True) == {"on": True}
    assert await api.get("/conversations/c1/incognito") == {"on": True}
    await api.start(QUESTION, "t2")
    assert not (await api.verb("finish", "t2", messages=[*QUESTION, ANSWER]))["recorded"]
    assert (await api.get("/spaces/user:ada/memories", kind="record"))["memories"] == []


async def test_what_was_lost_with_a_killed_server_is_delivered_once(tmp_path: Path):
    """B4, H6, C3: between any two verbs, and whether the answer had arrived or not."""
    token = make_token("ada")
    with serving(tmp_path) as server:
        async with server.client(token) as client:
            api = Api(client)
            await api.add(CAT)
            await api.start(QUESTION)
        server.end(signal.SIGKILL)
    with serving(tmp_path) as server:
        # It was started, and nothing was recalled for it that is known.
        async with server.client(token) as client:
            messages = await Api(client).inject(QUESTION)
            assert "Miso" in messages[1]["content"]
        server.end(signal.SIGKILL)
    with serving(tmp_path) as server:
        # The answer was lost with the server, or it was not.
        async with server.client(token) as client:
            api = Api(client)
            assert await api.inject(QUESTION) == messages
            assert await api.inject(messages) == messages
        server.end(signal.SIGKILL)
    with serving(tmp_path) as server:
        async with server.client(token) as client:
            assert await Api(client).inject(messages) == messages
            assert (await Api(client).verb("finish", messages=[*messages, ANSWER]))["recorded"]
        server.end(signal.SIGKILL)
    with serving(tmp_path) as server:
        async with server.client(token) as client:
            assert (await Api(client).verb("finish", messages=[*messages, ANSWER]))["recorded"]
    assert recorded(tmp_path) == ["Chicken.", QUESTION[0]["content"]]


async def test_a_turn_that_is_not_in_the_map_any_more_is_resumed(api: Api, monkeypatch: pytest.MonkeyPatch):
    """The map is bounded: what was used last stays."""
    monkeypatch.setattr("afterturn.hosts.server.open_turns.TURNS_MAX", 1)
    await api.add(CAT)
    await api.start(QUESTION)
    first = await api.inject(QUESTION)
    await api.speaking_in(id="c2").start(QUESTION, "t2")
    assert await api.inject(QUESTION) == first
    assert (await api.verb("finish", messages=[*first, ANSWER]))["recorded"]
    assert len((await api.get("/spaces/user:ada/memories", kind="record"))["memories"]) == 2


async def test_a_small_request_of_a_turn_makes_no_room_in_the_map(
    api: Api, service: Service, monkeypatch: pytest.MonkeyPatch
):
    """The messages of the turn are still in memory."""
    monkeypatch.setattr("afterturn.hosts.server.open_turns.BYTES_MAX", 3_000)
    long = [{"role": "user", "content": "x" * 2_000}]
    await api.start(long)
    await api.verb("cue", text="the cat")
    await api.start(long, "t2")
    assert service.turns.count("default") == 1
