"""A turn in which somebody says a secret: where it must not end up, and what goes on as before."""

import json
from pathlib import Path

import pytest

import afterturn
from afterturn.config import Config
from afterturn.guard import gate as guard_gate
from afterturn.testing import EventLog
from afterturn.testing.clock import ManualClock
from afterturn.testing.hashing import HashingEmbedder
from afterturn.types import Entry, Filter, Kind, Status

TOKEN = "ghp_" + "a1B2" * 9
SAID = f"Deploy the api with {TOKEN} please"
CLEAN = "Deploy the api with [redacted: github token] please"
EVERY = Filter(kind=Kind.RECORD, statuses=tuple(Status))


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, object]:
    return {"role": "assistant", "content": text}


def tool(text: str) -> list[dict[str, object]]:
    calls = [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": text},
    ]


async def speak(memory: afterturn.Memory, messages: list[dict[str, object]], *more: dict[str, object]) -> None:
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        await turn.inject(messages)
        messages.extend([*more, assistant("Done.")])
    assert await turn.wait_recorded()


async def records(memory: afterturn.Memory) -> list[Entry]:
    found = await memory.space("user:ada").list(filter=EVERY, limit=100)
    return sorted(found, key=lambda entry: entry.position or 0)


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_a_secret_that_was_said_is_nowhere_in_the_store(
    opened, tmp_path: Path, told: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    """G1: neither in records nor in recalls, the index, the timeline, a waiting job, an event or the log."""
    caplog.set_level("DEBUG")
    async with opened() as memory:
        await memory.space("user:ada").add("The api is deployed with make ship")
        messages = [user(SAID)]
        await speak(memory, messages, *tool(f"token {TOKEN} accepted"))
        async with memory.conversation("c", user="ada").turn([*messages, user("and now?")]) as turn:
            turn.interject(f"use {TOKEN} for the api instead")
            turn.cue(f"deploying the api with {TOKEN}")
            await turn.block(within=5.0)
            turn.abort(f"failed: {TOKEN}")
        memory.conversation("c", user="ada").expect(f"the api and {TOKEN}")
        await memory.space("user:ada").search(f"the api and {TOKEN}")
        await memory.drain()
        lines = json.dumps(await memory.space("user:ada").export(), default=str)
    assert "make ship" in str(messages[1]["content"])
    assert TOKEN not in lines
    assert TOKEN.encode() not in files(tmp_path)
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(told.events)


async def test_a_turn_is_kept_without_secrets_in_its_names(opened, tmp_path: Path) -> None:
    """G1: who speaks, for which agent and project; neither in the store nor in what waits for it."""
    async with opened() as memory:
        messages = [user("Deploy the api")]
        talk = memory.conversation("c", user="ada", agent=f"agent {TOKEN}", project=f"project {TOKEN}")
        async with talk.turn(messages, speaker=f"speaker {TOKEN}") as turn:
            await turn.inject(messages)
            messages.append(assistant("Done."))
        assert await turn.wait_recorded()
        await memory.drain()
        first, _ = await records(memory)
    mark = "[redacted: github token]"
    assert (first.agent, first.project, first.speaker) == (f"agent {mark}", f"project {mark}", f"speaker {mark}")
    assert TOKEN.encode() not in files(tmp_path)


async def test_what_waits_to_be_reviewed_names_no_secret(opened, tmp_path: Path) -> None:
    """G1, V9: messages that are compacted wait in the store with who said them."""
    messages = [{**user("I prefer oolong tea"), "name": f"bot {TOKEN}"}, assistant("Good."), user("go on")]
    async with opened(review_compaction=True) as memory:
        memory.conversation("c", user="ada").compacting(messages)
        await memory.drain()
        assert len(await memory.space("user:ada").reviews()) == 1
    assert TOKEN.encode() not in files(tmp_path)


async def test_a_project_that_is_named_by_a_secret_is_one_project(memory: afterturn.Memory) -> None:
    """G1: whatever is remembered there is kept under the name that its turns have."""
    tools = memory.conversation("c", user="ada", project=f"project {TOKEN}").tools(remember=True)
    await tools.dispatch("remember_this", {"text": "The api is deployed with make ship", "target": "environment"})
    (kept,) = await memory.space("user:ada").list(filter=Filter(statuses=tuple(Status)))
    assert kept.project == "project [redacted: github token]"


async def test_the_hosts_own_messages_stay_as_they_are(memory: afterturn.Memory) -> None:
    """H3, G1: what the model was told is the host's business."""
    messages = [user(SAID)]
    await speak(memory, messages)
    assert messages[0] == user(SAID)


async def test_what_is_recorded_is_redacted_and_what_a_tool_said_is_quarantined(
    memory: afterturn.Memory, told: EventLog
) -> None:
    """G1, G2: with the reason; and an event tells how many secrets of which kinds."""
    await speak(memory, [user(SAID)], *tool(f"token {TOKEN} accepted"))
    kept = [(entry.text, entry.status, entry.reason) for entry in await records(memory)]
    assert kept == [
        (CLEAN, Status.ACTIVE, "github token redacted"),
        ("token [redacted: github token] accepted", Status.QUARANTINED, "github token redacted"),
        ("Done.", Status.ACTIVE, ""),
    ]
    event = told.wait("secrets_redacted")
    assert event.data == {"secrets": 2, "kinds": "github token"}


async def test_nothing_is_redacted_while_scanning_is_off(opened, told: EventLog) -> None:
    """G1: a host that scans elsewhere gets what was said, and no event."""
    async with opened(scanners="none") as memory:
        await speak(memory, [user(SAID)], *tool(f"token {TOKEN} accepted"))
        kept = await records(memory)
    assert [(entry.text, entry.status) for entry in kept][:2] == [
        (SAID, Status.ACTIVE),
        (f"token {TOKEN} accepted", Status.ACTIVE),
    ]
    assert told.named("secrets_redacted") == []


@pytest.mark.parametrize("scanning", [True, False])
async def test_what_the_model_still_sees_is_not_recalled_though_it_was_redacted(opened, scanning: bool) -> None:
    """L9, G1: the message in sight and its record are known for the same."""
    stated = f"The api is deployed with {TOKEN}"
    async with opened(scanners=Config().scanners if scanning else "none") as memory:
        messages = [user(stated)]
        await speak(memory, messages)
        await memory.drain()
        messages.append(user("How is the api deployed, please?"))
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            assert await turn.inject(messages) is None
            turn.abort()
        fresh = [user("How is the api deployed, please?")]
        async with memory.conversation("d", user="ada").turn(fresh) as turn:
            element = await turn.inject(fresh)
            turn.abort()
    assert element is not None
    assert (stated.replace(TOKEN, "[redacted: github token]") if scanning else stated) in str(element["content"])


async def test_a_turn_that_waits_in_a_file_waits_without_its_secret(tmp_path: Path, clock: ManualClock) -> None:
    """G1, C4: a store that can not be written makes a file, and the file holds no secret."""
    path = tmp_path / "memory.db"
    parts = afterturn.Components(embedder=HashingEmbedder(), clock=clock)
    settings = {"grace": 0.0, "busy_timeout": 0.1, "close_timeout": 2.0, "rules": False}
    async with afterturn.open(path, settings, components=parts) as memory:
        await memory.ready()
        await memory.drain()
        holder = _locked(path)
        messages = [user(SAID)]
        async with memory.conversation("c", user="ada").turn(messages):
            messages.append(assistant("Done."))
    waiting = list(Path(f"{path}.waiting").glob("*.json*"))
    holder.close()
    assert len(waiting) == 1
    assert TOKEN not in waiting[0].read_text()
    async with afterturn.open(path, settings, components=parts) as memory:
        await memory.drain()
        first = (await records(memory))[0]
    assert (first.text, first.reason) == (CLEAN, "github token redacted")


def _locked(path: Path):
    """Another process that holds the store."""
    import apsw

    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)
    connection.execute("BEGIN IMMEDIATE")
    return connection


async def test_a_recall_that_is_carried_is_carried_without_the_secret(opened, tmp_path: Path, told: EventLog) -> None:
    """G1, R8: what was asked waits in the store for the next turn, in another process maybe."""
    async with opened() as memory:
        await memory.space("user:ada").add("The api is deployed with make ship")
        messages = [user(SAID)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            told.wait("recall_settled")
            messages.append(assistant("Done."))
        assert await turn.wait_recorded()
        told.wait("recall_carried")
        await memory.drain()
    assert TOKEN.encode() not in files(tmp_path)
    async with opened() as memory:
        messages.append(user("And how is it shipped?"))
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            element = await turn.inject(messages)
            turn.abort()
    assert "make ship" in str(element)


async def test_a_question_that_is_nothing_but_a_secret_is_not_asked(memory: afterturn.Memory, told: EventLog) -> None:
    """G1, R6: there are no words left to ask with, so nothing is embedded either."""
    await memory.space("user:ada").add("The token is renewed on Mondays, redacted or not")
    messages = [user(TOKEN)]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        assert await turn.inject(messages) is None
        turn.abort()
    assert told.named("recall_started") == []


async def test_what_was_asked_is_kept_without_its_secret(memory: afterturn.Memory) -> None:
    """G1, R5: a mark without words stands in the trace."""
    await memory.space("user:ada").add("The api is deployed with make ship")
    messages = [user(SAID)]
    await speak(memory, messages)
    traced = await memory.conversation("c", user="ada").trace("last")
    (recall,) = [recall for turn in traced.turns for recall in turn.recalls]
    assert recall.row.question == "Deploy the api with […] please"


async def test_what_is_too_long_to_be_kept_is_cut_where_no_secret_is_split(
    opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G1, C1: a message is scanned beyond the place where it is cut."""
    monkeypatch.setattr(guard_gate, "RECORD_BYTES_MAX", 1024)
    async with opened() as memory:
        await speak(memory, [user("x " * 500 + TOKEN + " y" * 20_000)])
        first = (await records(memory))[0]
    assert ("ghp_" in first.text, len(first.text.encode()) <= 1024) == (False, True)
    assert "cut from" in first.reason
