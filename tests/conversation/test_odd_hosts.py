"""Hosts that do what nobody expects: the turn goes on, and what was said is kept as it was said."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from spoken import OpenMemory, Told, assistant, call, exchange, user

import afterturn
from afterturn.testing.hashing import HashingEmbedder
from afterturn.types import Filter, Kind, Selector


async def said(memory: afterturn.Memory) -> list[str]:
    entries = await memory.space("user:ada").list(filter=Filter(kind=Kind.RECORD), limit=1000)
    return [entry.text for entry in sorted(entries, key=lambda entry: entry.position or 0)]


async def test_edits_deep_inside_a_message_do_not_reach_the_record(memory: afterturn.Memory) -> None:
    """C4: a snapshot holds what was said, also in the parts of a message and in a client library's objects."""
    parts = [{"type": "text", "text": "I like tea"}]
    reply = SimpleNamespace(role="assistant", content="Noted.", tool_calls=None)
    messages: list[object] = [{"role": "user", "content": parts}]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        messages.append(reply)
    parts[0]["text"] = "(trimmed)"
    reply.content = "(trimmed)"
    assert await turn.wait_recorded()
    assert await said(memory) == ["I like tea", "Noted."]


class Explosive(Mapping[str, object]):
    def __getitem__(self, key: str) -> object:
        return {"role": "user", "content": "I like tea"}[key]

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("not today")

    def __len__(self) -> int:
        return 2


async def test_messages_that_can_not_be_copied_end_the_turn_and_say_so(memory: afterturn.Memory, told: Told) -> None:
    """C4: leaving never raises, and nobody waits for what will not come."""
    messages: list[object] = [Explosive()]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        messages.append(assistant("Noted."))
    assert not await turn.wait_recorded(within=5.0)
    assert told.wait("turn_aborted").data["reason"] == "unreadable_messages"


@pytest.mark.parametrize("within", [float("inf"), 1e10, "1", "soon", None, -1])
async def test_odd_times_to_wait_do_not_raise(memory: afterturn.Memory, within: object) -> None:
    """H1: turn verbs never raise."""
    messages = [user("hello there, my cat")]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        await turn.inject(messages, within=within)  # type: ignore[arg-type]
        messages.append(assistant("Hello."))
    await turn.wait_recorded(within=within if within != -1 else 5.0)  # type: ignore[arg-type]
    assert await turn.wait_recorded(within=5.0)


async def test_a_list_that_can_not_grow_leaves_the_block_for_one_that_can(memory: afterturn.Memory) -> None:
    """H2: a block is taken when it can be handed over, and not before."""
    await exchange(memory, "monday", "My cat is called Miso")
    messages = [user("What is my cat called?")]
    async with memory.conversation("tuesday", user="ada").turn(messages) as turn:
        assert await turn.inject(tuple(messages), within=5.0) is None  # type: ignore[arg-type]
        assert await turn.inject(messages, within=5.0) is not None
        turn.abort()


async def test_a_deque_of_messages_gets_its_block(memory: afterturn.Memory) -> None:
    """H1: any mutable sequence will do."""
    await exchange(memory, "monday", "My cat is called Miso")
    messages = deque([user("What is my cat called?")])
    async with memory.conversation("tuesday", user="ada").turn(messages) as turn:
        assert await turn.inject(messages) is not None
        turn.abort()


@pytest.mark.parametrize("name", ["\ud83d", "a\nb", "", "x" * 300, 17, ["x"], object()])
async def test_names_that_can_not_be_stored_cost_the_name_and_not_the_turn(
    memory: afterturn.Memory, name: object
) -> None:
    """C1: a turn is recorded whatever its host calls it, or its speaker."""
    messages: list[object] = [{"role": "user", "name": name, "content": "I like tea"}]
    conversation = memory.conversation("c", user="ada")
    async with conversation.turn(messages, id=name, speaker=name) as turn:  # type: ignore[arg-type]
        messages.append(assistant("Noted."))
    assert await turn.wait_recorded()
    assert await said(memory) == ["I like tea", "Noted."]


async def test_an_unknown_format_costs_neither_time_at_closing_nor_an_error(
    open_memory: OpenMemory, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    """C1: nothing is recorded, and closing has nothing to wait for."""
    caplog.set_level(logging.WARNING, "afterturn")
    async with open_memory() as memory:
        async with memory.conversation("c", user="ada").turn([1, 2]) as turn:
            pass
        assert not await turn.wait_recorded()
    assert [record.message for record in caplog.records if "closing" in record.message] == []
    assert "openai_chat" in caplog.text


async def test_a_started_turn_can_be_started_again_by_a_host_that_retries(memory: afterturn.Memory) -> None:
    """C3: the same id is the same turn, until it has ended."""
    messages = [user("I like tea")]
    conversation = memory.conversation("c", user="ada")
    await conversation.start_turn(messages, id="turn-1")
    again = await conversation.start_turn(messages, id="turn-1")
    again.finish([*messages, assistant("Noted.")])
    assert await again.wait_recorded()
    assert await said(memory) == ["I like tea", "Noted."]
    with pytest.raises(afterturn.AfterturnError, match="already completed"):
        await conversation.start_turn(messages, id="turn-1")


@pytest.mark.parametrize("selector", [Selector(everything=True), Selector(conversation="c")])
async def test_a_block_shown_before_a_forget_is_not_recorded_after_it(
    memory: afterturn.Memory, selector: Selector
) -> None:
    """C5, M2: a host that still shows our words, though their source is forgotten, does not bring them back."""
    ada = memory.space("user:ada")
    await ada.add("Ada's secret is xylophone")
    conversation = memory.conversation("c", user="ada")
    messages = [user("What is my secret?")]
    async with conversation.turn(messages) as turn:
        assert await turn.inject(messages, within=5.0) is not None
        turn.abort()
    await ada.forget(conversation=selector.conversation, everything=selector.everything)
    messages.append(user("Never mind."))
    async with conversation.turn(messages) as turn:
        messages.append(assistant("As you like."))
    assert await turn.wait_recorded()
    async with conversation.turn(messages[:2]) as turn:
        turn.complete([*messages[:2], assistant("I do not know.")])
    assert await turn.wait_recorded()
    assert "xylophone" not in str(await said(memory))


async def test_work_for_another_tenant_is_not_told_to_this_host(tmp_path: Path) -> None:
    """L2: whoever does the jobs of a store learns nothing of other tenants, and nor does their timeline of it."""

    class Talkative(HashingEmbedder):
        def embed(self, texts):  # type: ignore[no-untyped-def]
            if any("zebra" in text for text in texts):
                raise ValueError(f"refused: {texts}")
            return super().embed(texts)

    path, told = tmp_path / "memory.db", Told()
    async with afterturn.open(path, {"embedder": "none"}, tenant="acme", background=False) as memory:
        await memory.space("user:ada").add("Ada keeps a zebra")
    parts = afterturn.Components(embedder=Talkative())
    async with afterturn.open(path, tenant="other", on_event=told, components=parts) as memory:
        await memory.space("user:bob").add("Bob keeps bees")
        await memory.drain(within=5.0)
        assert not [event for event in told.events if event.space == "user:ada"]
    async with afterturn.open(path, {"embedder": "none"}, tenant="acme", background=False) as memory:
        assert "zebra" not in str(await memory.space("user:ada").trace())
        assert "zebra" not in str(await memory.check())


async def test_a_name_of_a_space_is_not_taken_for_a_users(memory: afterturn.Memory) -> None:
    """L2: `user="user:ada"` would be another space than Ada's; it is an error that says so."""
    with pytest.raises(afterturn.AfterturnError, match='user="ada"'):
        memory.conversation("c", user="user:ada")


async def test_a_message_without_text_is_not_taken_for_the_one_before(memory: afterturn.Memory, told: Told) -> None:
    """R6, C1: an image alone asks nothing that could be recalled, and what was said before is not said again."""
    messages: list[object] = [user("My cat is called Miso"), assistant("Noted.")]
    messages.append({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]})
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        messages.append(assistant("A fine cat."))
    assert not await turn.wait_recorded()
    assert told.named("recall_started") == []
    assert told.wait("not_recorded").data["reason"] == "no_exchange"


async def test_the_same_conversation_with_other_grants_has_one_recall(memory: afterturn.Memory) -> None:
    """R3: what a conversation may read changes from turn to turn; which conversation it is does not."""
    one, other = memory.conversation("c", user="ada"), memory.conversation("c", user="ada", reads=["project:api"])
    assert one._core is other._core


async def test_waiting_for_a_block_does_nothing_while_a_call_is_open(memory: afterturn.Memory) -> None:
    """H1: with a call open `inject` does nothing, however long it might wait."""
    messages = [user("What is my cat called?"), call("one")]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        assert turn._find_wait(messages, 5.0, "fast", 0.0) is None
        assert turn._find_wait(messages, None, "refined", 0.0) is None
        turn.abort()


async def test_a_block_says_the_same_sentence_once(memory: afterturn.Memory) -> None:
    """L10: what was said three times in the same words is one memory to the model."""
    for day in ("monday", "tuesday", "wednesday"):
        await exchange(memory, day, "My cat is called Miso")
    messages = [user("What is my cat called?")]
    async with memory.conversation("thursday", user="ada").turn(messages) as turn:
        element = await turn.inject(messages)
        turn.abort()
    assert element is not None
    assert str(element["content"]).count("My cat is called Miso") == 1


async def test_a_handler_that_raises_whatever_it_likes_does_not_end_memory(tmp_path: Path) -> None:
    """§2: what a host's handler raises goes no further."""

    def angry(event: object) -> None:
        raise KeyboardInterrupt

    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}, on_event=angry) as memory:
        await exchange(memory, "c", "I like tea")
        assert await said(memory) == ["I like tea", "Noted."]


async def test_events_of_a_forgotten_conversation_do_not_come_back(memory: afterturn.Memory) -> None:
    """M2: what was still on its way to the timeline is dropped with the rest."""
    await exchange(memory, "secret-talk", "I like tea")
    ada = memory.space("user:ada")
    await ada.forget(conversation="secret-talk")
    await asyncio.sleep(0)
    await memory._loop.run(memory._services.timeline.flush())
    assert "secret-talk" not in str(await ada.trace())
