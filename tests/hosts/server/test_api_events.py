"""Server-sent events: of this process, and of other processes on the same store."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from served import QUESTION, WITHIN, Api, Server, make_token, serving

import afterturn
from afterturn.config import Config
from afterturn.hosts.server.access import Caller
from afterturn.hosts.server.api_context import RequestContext
from afterturn.hosts.server.api_events import stream_events
from afterturn.hosts.server.app import Service
from afterturn.hosts.server.feed import QUEUE_MAX
from afterturn.hosts.server.grant import make_grant
from afterturn.hosts.server.tokens import revoke_token
from afterturn.types import Event

OTHER = """
import sys
import afterturn.blocking
with afterturn.blocking.open(sys.argv[1]) as memory:
    messages = [{"role": "user", "content": "I moved to Oslo."}]
    with memory.conversation(sys.argv[2], owner=sys.argv[3]).turn(messages, id="elsewhere") as turn:
        messages.append({"role": "assistant", "content": "Noted."})
    turn.wait_recorded(60)
"""


@asynccontextmanager
async def listening(server: Server, token: str, **query: Any) -> AsyncIterator[asyncio.Queue[dict[str, Any]]]:
    """The events, from the moment when the stream is open."""
    arrived: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    opened = asyncio.Event()

    async def listen() -> None:
        async with (
            server.client(token) as client,
            client.stream("GET", "/api/v1/events", params=query, headers={"Last-Event-ID": "7"}) as answer,
        ):
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for line in answer.aiter_lines():
                if line.startswith(": connected"):
                    opened.set()
                elif line.startswith("data: "):
                    arrived.put_nowait(json.loads(line.removeprefix("data: ")))
        arrived.put_nowait({"name": "closed"})

    task = asyncio.create_task(listen())
    try:
        async with asyncio.timeout(WITHIN):
            await opened.wait()
        yield arrived
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(arrived: asyncio.Queue[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """All events up to the first one with this name."""
    events = []
    async with asyncio.timeout(WITHIN):
        while not events or events[-1]["name"] != name:
            events.append(await arrived.get())
    return events


@pytest.fixture
def server(tmp_path: Path):
    make_token("first", space="user:nobody")
    with serving(tmp_path) as running:
        yield running


async def test_a_turn_is_seen_as_it_happens(server: Server):
    token = make_token("ada")
    async with listening(server, token) as arrived, server.client(token) as client:
        api = Api(client)
        await api.start(QUESTION)
        await api.verb("finish", messages=[*QUESTION, {"role": "assistant", "content": "Chicken."}])
        events = await until(arrived, "recorded")
    assert [one["name"] for one in events if one["name"] == "turn_started"] == ["turn_started"]
    assert {(one["space"], one["tenant"]) for one in events} == {("user:ada", "default")}
    assert {one["turn"] for one in events} <= {"t1", ""}


async def test_turns_of_another_process_are_seen_once(server: Server, tmp_path: Path):
    """Also while this process makes turns of its own: those do not come twice."""
    token = make_token("all", space="*")
    async with listening(server, token) as arrived, server.client(token) as client:
        api = Api(client, {"id": "c1", "owner": "user:ada"})
        await api.start(QUESTION)
        command = [sys.executable, "-c", OTHER, str(tmp_path / "memory.db"), "c7", "project:heron"]
        child = await asyncio.create_subprocess_exec(*command, env=dict(os.environ))
        assert await child.wait() == 0
        events = []
        while not events or (events[-1]["name"], events[-1]["turn"]) != ("recorded", "elsewhere"):
            events += await until(arrived, "recorded")
        await api.verb("finish", messages=[*QUESTION, {"role": "assistant", "content": "Chicken."}])
        events += await until(arrived, "recorded")
    started = [(one["space"], one["turn"]) for one in events if one["name"] == "turn_started"]
    assert sorted(started) == [("project:heron", "elsewhere"), ("user:ada", "t1")]


async def test_a_token_hears_only_of_its_spaces(server: Server, tmp_path: Path):
    """B1: nothing of other spaces, other tenants or other conversations."""
    ada, talk = make_token("ada"), make_token("talk", conversation="c2")
    everybody, acme = make_token("all", space="*"), make_token("acme", space="*", tenant="acme")
    async with (
        listening(server, ada) as heard,
        listening(server, talk) as of_one,
        listening(server, everybody, space="user:eve") as narrowed,
        listening(server, acme) as elsewhere,
        server.client(everybody) as client,
    ):
        for owner, conversation in (("user:eve", "c1"), ("user:ada", "c1"), ("user:ada", "c2")):
            api = Api(client, {"id": conversation, "owner": owner})
            turn = f"{owner}-{conversation}"
            await api.start(QUESTION, turn)
            await api.verb("finish", turn, messages=[*QUESTION, {"role": "assistant", "content": "Yes."}])
        assert {one["conversation"] for one in await until(of_one, "recorded")} == {"c2"}
        for_ada = await until(heard, "recorded") + await until(heard, "recorded")
        assert {one["space"] for one in for_ada} == {"user:ada"}
        assert {one["space"] for one in await until(narrowed, "recorded")} == {"user:eve"}
        async with server.client(acme) as other:
            api = Api(other, {"id": "c9", "owner": "user:zoe"})
            await api.start(QUESTION)
            await api.verb("finish", messages=[*QUESTION, {"role": "assistant", "content": "Yes."}])
        assert {one["tenant"] for one in await until(elsewhere, "recorded")} == {"acme"}


async def test_a_stream_ends_with_its_token(server: Server):
    token, other = make_token("short"), make_token("other")
    async with listening(server, token) as arrived, server.client(other) as client:
        revoke_token("short")
        await Api(client).start(QUESTION)
        assert (await until(arrived, "closed"))[-1]["name"] == "closed"


async def test_a_quiet_stream_has_a_heartbeat(service: Service, connect: object, monkeypatch: pytest.MonkeyPatch):
    """A proxy closes what is silent. The store is asked for events only while somebody listens."""
    monkeypatch.setattr("afterturn.hosts.server.api_events.HEARTBEAT", 0.01)

    def polls() -> list[str]:
        return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("events of")]

    context = cast(RequestContext, Listener(service))
    stream, second = stream_events(context, frozenset()), stream_events(context, frozenset())
    assert [await anext(stream), await anext(stream)] == [": connected\n\n", ": heartbeat\n\n"]
    await anext(second)
    assert polls() == ["events of default"]
    await stream.aclose()
    assert polls() == ["events of default"]
    await second.aclose()
    await asyncio.sleep(0)
    assert polls() == []


class Listener:
    """What a stream needs of a request."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.caller = Caller("t", "listener", make_grant(Config(), space="*"))

    def is_allowed_still(self) -> bool:
        return True


async def test_a_listener_that_is_too_slow_loses_the_oldest_events(service: Service, connect: object):
    async with service.feed.subscribe("default") as queue:
        for number in range(QUEUE_MAX + 5):
            service.feed.publish(Event("recorded", float(number), "default", "user:ada"))
        await asyncio.sleep(0)
        assert queue.qsize() == QUEUE_MAX
        assert (await queue.get()).at == 5.0


async def test_the_timeline_of_a_tenant_has_all_its_spaces(tmp_path: Path):
    """Pages by the heads of an earlier page; what was forgotten does not confuse them."""

    async def speak(user: str, turn: str, tenant: str = "default") -> None:
        # Closing stores the events.
        async with afterturn.open(tmp_path / "memory.db", tenant=tenant) as memory:
            messages = [*QUESTION]
            async with memory.conversation("c1", user=user).turn(messages, id=turn):
                messages.append({"role": "assistant", "content": "Chicken."})

    await speak("ada", "t1")
    await speak("eve", "t2")
    await speak("zoe", "t3", "acme")
    async with afterturn.open(tmp_path / "memory.db") as memory:
        first = await memory.timeline()
        assert {one.turn for one in first.events} >= {"t1", "t2"}
        assert {one.space for one in first.events} == {"user:ada", "user:eve"}
        assert [one.at for one in first.events] == sorted(one.at for one in first.events)
        assert len((await memory.timeline(limit=1)).events) == 1
        assert (await memory.timeline(first.heads)).events == ()
        await memory.space("user:ada").forget(conversation="c1")
        await speak("ada", "t4")
        page = await memory.timeline(first.heads)
        assert "t4" in {one.turn for one in page.events}
        assert {one.space for one in page.events} == {"user:ada"}
