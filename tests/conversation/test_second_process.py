"""What one process injected and began, another knows: the ledger, open turns, whose conversation it is."""

import asyncio
from pathlib import Path

import apsw
import pytest
from spoken import Message, OpenMemory, Told, assistant, user

import afterturn
from afterturn import blocking
from afterturn.conversation import recorder
from afterturn.types import Filter, Kind

RECORDS = Filter(kind=Kind.RECORD)
WORDS = {"embedder": "none", "grace": 5.0}


async def test_what_an_earlier_process_injected_is_not_injected_again(open_memory: OpenMemory) -> None:
    """H5, H6: the block in the messages is known by its bytes, whoever put it there."""
    messages = [user("What is my cat called?")]
    async with open_memory() as memory:
        await _miso(memory)
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            first = await turn.inject(messages)
            turn.abort()
    messages += [assistant("Miso."), user("And what is my cat called in full?")]
    async with open_memory() as memory, memory.conversation("c", user="ada").turn(messages) as turn:
        second = await turn.inject(messages)
        turn.abort()
    assert first is not None
    assert second is None


async def test_without_the_block_in_its_messages_another_process_injects_it(open_memory: OpenMemory) -> None:
    """H6: that it was injected once hides nothing from a model that does not see it."""
    async with open_memory() as memory:
        await _miso(memory)
        await _asked(memory, [user("What is my cat called?")])
    async with open_memory() as memory:
        assert await _asked(memory, [user("What is my cat called?")]) is not None


async def test_a_block_that_is_not_stored_yet_is_known_all_the_same(open_memory: OpenMemory, tmp_path: Path) -> None:
    """H5: the next turn may begin while the store can not be written."""
    messages = [user("What is my cat called?")]
    async with open_memory(busy_timeout=20.0) as memory:
        await _miso(memory)
        other = _locking(tmp_path)
        first = await _asked(memory, messages)
        messages += [assistant("Miso."), user("And what is my cat called in full?")]
        second = await _asked(memory, messages)
        other.execute("ROLLBACK")
        other.close()
    assert first is not None
    assert second is None


async def test_a_block_that_could_not_be_stored_is_stored_with_its_turn(
    open_memory: OpenMemory, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H5: a recorded turn brings its blocks along, so that the next process knows them."""
    monkeypatch.setattr(recorder, "RETRY_FIRST", 0.02)
    messages = [user("What is my cat called?")]
    async with open_memory(busy_timeout=0.05) as memory:
        await _miso(memory)
        other = _locking(tmp_path)
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            assert await turn.inject(messages) is not None
            messages.append(assistant("Miso."))
        await asyncio.to_thread(told.wait, "recording_waits")
        other.execute("ROLLBACK")
        other.close()
        assert await turn.wait_recorded(within=20.0)
    messages.append(user("And what is my cat called in full?"))
    async with open_memory() as memory:
        assert await _asked(memory, messages) is None


async def test_whoever_finishes_a_turn_knows_our_words_from_the_users(open_memory: OpenMemory) -> None:
    """C5: the block that another process injected is stripped before the turn is recorded."""
    messages = [user("What is my cat called?")]
    async with open_memory() as memory:
        await _miso(memory)
        turn = await memory.conversation("c", user="ada").start_turn(messages, id="hook-1")
        assert await turn.inject(messages) is not None
    messages.append(assistant("Miso."))
    async with open_memory() as memory:
        turn = await memory.conversation("c", user="ada").resume_turn("hook-1")
        turn.finish(messages)
        assert await turn.wait_recorded()
        texts = [entry.text for entry in await memory.space("user:ada").list(filter=RECORDS)]
    assert sorted(texts) == ["Miso.", "What is my cat called?"]


async def test_a_resumed_turn_puts_back_what_a_rebuilt_list_lacks(open_memory: OpenMemory) -> None:
    """H6: a host that keeps no blocks in its list gets those of this and of earlier turns in another process, too."""
    messages, shown = [user("What is my cat called?")], list[Message]()
    async with open_memory() as memory:
        await _miso(memory)
        await memory.space("user:ada").add("Ada's tea is oolong")
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            shown = list(messages)
            assert await turn.inject(shown) is not None
            turn.complete([*shown, assistant("Miso.")])
        assert await turn.wait_recorded()
        messages += [assistant("Miso."), user("Which tea is it that I like?")]
        shown = list(messages)
        turn = await memory.conversation("c", user="ada").start_turn(shown, id="t2")
        assert await turn.inject(shown) is not None
        assert [said["content"][:17] for said in shown if "<afterturn-" in said["content"]] == ["<afterturn-memory"] * 2
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    step: list[Message] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Nothing."},
    ]
    rebuilt = [*messages, *step]
    async with open_memory() as memory:
        turn = await memory.conversation("c", user="ada").resume_turn("t2")
        await turn.inject(rebuilt)
        assert rebuilt == [*shown, *step]
        turn.abort()


def test_a_host_without_a_loop_starts_resumes_and_finishes_a_turn(tmp_path: Path) -> None:
    """C1, C3: `afterturn.blocking` has the same open turns, in another process too."""
    messages: list[Message] = [user("What is my cat called?")]
    with blocking.open(tmp_path / "memory.db", WORDS) as memory:
        memory.space("user:ada").add("Ada's cat is called Miso")
        turn = memory.conversation("c", user="ada").start_turn(messages, id="hook-1")
        injected = turn.inject(messages)
    messages.append(assistant("Miso."))
    with blocking.open(tmp_path / "memory.db", WORDS) as memory:
        turn = memory.conversation("c", user="ada").resume_turn("hook-1")
        again = turn.inject(messages)
        turn.finish(messages)
        recorded = turn.wait_recorded()
        texts = [entry.text for entry in memory.space("user:ada").list(filter=RECORDS)]
        with pytest.raises(afterturn.AfterturnError, match="completed"):
            memory.conversation("c", user="ada").resume_turn("hook-1")
    assert injected is not None
    assert again is None
    assert recorded
    assert sorted(texts) == ["Miso.", "What is my cat called?"]


async def test_agent_and_project_are_stored_and_narrow_a_recall(memory: afterturn.Memory) -> None:
    """L2: what a conversation says about itself stands in its records, and a filter finds them by it."""
    for agent, project in (("planner", "api"), ("planner", "web"), ("coder", "api")):
        conversation = memory.conversation("c", user="ada", agent=agent, project=project)
        async with conversation.turn(_said(f"Deploy with {agent} {project}")) as turn:
            pass
        assert await turn.wait_recorded()
    by_agent = await memory.space("user:ada").search("How do we deploy?", filter=Filter(agent="planner"))
    by_project = await memory.space("user:ada").search("How do we deploy?", filter=Filter(project="api"))
    assert {hit.entry.agent for hit in by_agent.hits} == {"planner"}
    assert {hit.entry.project for hit in by_project.hits} == {"api"}
    assert _deploys(by_agent) == {"Deploy with planner api", "Deploy with planner web"}
    assert _deploys(by_project) == {"Deploy with planner api", "Deploy with coder api"}


async def test_two_owners_of_one_id_have_lanes_and_positions_of_their_own(memory: afterturn.Memory) -> None:
    """L2: Ada's "standup" and Bob's are two conversations, though both write what the team reads."""
    for name in ("ada", "bob"):
        standup = memory.conversation("standup", user=name, reads=["team:x"], writes="team:x")
        async with standup.turn(_said(f"The deploy of {name} is on Friday")) as turn:
            pass
        assert await turn.wait_recorded()
    records = await memory.space("team:x").list(filter=RECORDS)
    asked = [user("When is the deploy?")]
    async with memory.conversation("standup", user="ada", reads=["team:x"]).turn(asked) as turn:
        await turn.inject(asked)
        asked.append(assistant("On Friday."))
    assert await turn.wait_recorded()
    traced = await memory.conversation("standup", user="ada", reads=["team:x"]).trace(turn.id)
    [recalled] = traced.turns[0].recalls
    lanes = {candidate.ref: candidate.lane for candidate in recalled.row.candidates}
    assert sorted((entry.owner or "", entry.position) for entry in records) == [
        ("user:ada", 0),
        ("user:ada", 1),
        ("user:bob", 0),
        ("user:bob", 1),
    ]
    assert {(entry.owner, lanes[entry.ref]) for entry in records if entry.position == 0} == {
        ("user:ada", "short_term"),
        ("user:bob", "episodic"),
    }
    assert {(entry.owner, lanes.get(entry.ref)) for entry in records} <= {
        *(("user:ada", "short_term"), ("user:bob", "episodic"), ("user:ada", None), ("user:bob", None)),
    }


def _deploys(found: afterturn.SearchResults) -> set[str]:
    return {hit.entry.text for hit in found.hits if hit.entry.text.startswith("Deploy")}


def _said(text: str) -> list[Message]:
    return [user(text), assistant("Noted.")]


async def _miso(memory: afterturn.Memory) -> None:
    await memory.space("user:ada").add("Ada's cat is called Miso")
    await memory.drain()


async def _asked(memory: afterturn.Memory, messages: list[Message]) -> Message | None:
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        element = await turn.inject(messages)
        turn.abort()
    return element


def _locking(folder: Path) -> apsw.Connection:
    connection = apsw.Connection(str(folder / "memory.db"))
    connection.set_busy_timeout(10_000)
    connection.execute("BEGIN IMMEDIATE")
    return connection
