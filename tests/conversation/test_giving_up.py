"""Wherever a host gives up, so does its recall: dropped, with one outcome, and nothing of it comes later (R4)."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import pytest
from controlled_store import Stage, caught_up, learn, letters, settled
from spoken import answer, assistant, call, user

import afterturn
from afterturn import blocking
from afterturn.errors import Conflict

SOUP = "What goes into the soup?"
ANISE = "Anise goes into the soup"


@pytest.fixture
async def memory(stage: Stage) -> AsyncIterator[afterturn.Memory]:
    async with stage.open() as opened:
        await learn(opened, stage.clock, [ANISE])
        yield opened


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("reason", ["turn limit", "no steps left", "token limit", "control signal"])
async def test_an_aborted_turn_drops_its_recall(
    stage: Stage, memory: afterturn.Memory, reason: str, *, is_settled: bool
) -> None:
    """R4, R5: in flight or ready, it is cancelled; the event tells the host's reason."""
    messages = [user(SOUP)]
    if not is_settled:
        stage.store.searching.shut()
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        await (settled(turn) if is_settled else stage.held())
        turn.abort(reason)
        assert await turn.inject(messages, within=1.0) is None
    await caught_up(memory)
    stage.store.searching.open()
    assert stage.told.wait("turn_aborted").data["reason"] == reason
    assert stage.endings() == [("cancelled", "abort")]
    assert messages == [user(SOUP)]


async def test_reset_drops_the_recall_of_an_open_turn_and_no_memory(stage: Stage, memory: afterturn.Memory) -> None:
    """R4: what the turn has not got it never gets; the next turn finds everything."""
    conversation, messages = memory.conversation("c", user="ada"), [user(SOUP)]
    async with conversation.turn(messages) as turn:
        await settled(turn)
        conversation.reset()
        await caught_up(memory)
        assert await turn.inject(messages) is None
        turn.abort()
    async with conversation.turn(messages) as turn:
        element = await turn.inject(messages)
        turn.abort()
    await caught_up(memory)
    assert letters(element) == "A"
    assert stage.endings()[0] == ("cancelled", "reset")


async def test_reset_clears_the_ledger_of_a_hidden_history(stage: Stage, memory: afterturn.Memory) -> None:
    """R4: what was shown counts as shown no more."""
    conversation = memory.conversation("c", user="ada", history="hidden")
    shown = []
    for _ in range(2):
        messages = [user(SOUP)]
        async with conversation.turn(messages) as turn:
            shown.append(letters(await turn.inject(messages)))
            turn.abort()
        conversation.reset()
    assert shown == ["A", "A"]
    assert stage.count("exclusions_exhausted") == 0


async def test_a_host_that_is_cancelled_while_it_waits_drops_its_recall(stage: Stage, memory: afterturn.Memory) -> None:
    """R4: at `inject`, `block` and anything of its own; the cancellation passes through."""
    stage.store.searching.shut()
    for number, verb in enumerate(("inject", "block", "sleep")):
        entered = asyncio.Event()

        async def host(verb: str = verb, entered: asyncio.Event = entered) -> None:
            messages = [user(SOUP)]
            async with memory.conversation("c", user="ada").turn(messages) as turn:
                entered.set()
                if verb == "inject":
                    await turn.inject(messages, within=30.0)
                elif verb == "block":
                    await turn.block(phase="refined")
                await asyncio.Event().wait()

        task = asyncio.get_running_loop().create_task(host())
        await entered.wait()
        await stage.heard("recall_started", number + 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await stage.heard("turn_aborted", number + 1)
    stage.store.searching.open()
    await caught_up(memory)
    assert stage.endings() == [("cancelled", "abort")] * 3


async def test_a_host_that_is_cancelled_already_starts_no_recall(stage: Stage, memory: afterturn.Memory) -> None:
    """R4: its turn begins in a task that was told to end."""

    async def host() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        async with memory.conversation("c", user="ada").turn([user(SOUP)]):
            await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(host())
    with pytest.raises(asyncio.CancelledError):
        await task
    await caught_up(memory)
    assert stage.count("recall_started") == 0
    assert stage.store.searches == 0


async def test_closing_with_a_recall_in_flight_cancels_it(stage: Stage) -> None:
    """R4, R5: closing waits for nothing that hangs; the recall ends as cancelled, the turn as abandoned."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, [ANISE])
        stage.store.searching.shut()
        turn = memory.conversation("c", user="ada").turn([user(SOUP)], id="left-open")
        await stage.held()
    assert stage.endings() == [("cancelled", "shutdown")]
    assert not await turn.wait_recorded(within=0.0)
    async with stage.open() as memory:
        with pytest.raises(afterturn.AfterturnError, match="abandoned"):
            await memory.conversation("c", user="ada").resume_turn("left-open")


async def test_closing_leaves_a_started_turn_open_with_what_was_ready(stage: Stage) -> None:
    """R4, R8: a turn that may be resumed elsewhere finds its recall there."""
    messages = [user(SOUP)]
    async with stage.open() as memory:
        await learn(memory, stage.clock, [ANISE])
        turn = await memory.conversation("c", user="ada").start_turn(messages, id="hook-1")
        await settled(turn)
    async with stage.open() as memory:
        turn = await memory.conversation("c", user="ada").resume_turn("hook-1")
        element = await turn.inject(messages)
        messages.append(assistant("Anise."))
        turn.finish(messages)
        assert await turn.wait_recorded()
    assert letters(element) == "A"
    assert stage.endings() == [("delivered", "user_message")]


async def test_a_streaming_host_loses_recall_to_its_next_turn_and_nothing_else(
    stage: Stage, memory: afterturn.Memory
) -> None:
    """R3: never left, the earlier turn is recorded if it completes, and abandoned when memory closes if not."""
    conversation = memory.conversation("c", user="ada")
    messages = [user(SOUP)]
    turns = []
    for number in range(3):
        turns.append(conversation.turn(list(messages), id=f"t{number}"))
        await settled(turns[-1])
        messages += [assistant("Anise."), user(f"{SOUP} {number}")]
    assert turns[0].inject_now([user(SOUP)]) is None
    turns[0].finish([user(SOUP), assistant("Anise.")])
    assert await turns[0].wait_recorded()
    await memory.close()
    async with stage.open() as again:
        for name, status in (("t0", "completed"), ("t1", "abandoned"), ("t2", "abandoned")):
            with pytest.raises(afterturn.AfterturnError, match=status):
                await again.conversation("c", user="ada").resume_turn(name)


async def test_nested_turns_of_one_conversation_are_both_recorded(stage: Stage, memory: afterturn.Memory) -> None:
    """R3: the inner one owns recall from its beginning on, also after its end."""
    conversation = memory.conversation("c", user="ada")
    outer, inner = [user(SOUP)], [user(f"{SOUP} Really?")]
    async with conversation.turn(outer) as first:
        await settled(first)
        async with conversation.turn(inner) as second:
            element = await second.inject(inner)
            inner.append(assistant("Yes."))
        outer += [call("one"), answer("one")]
        late = await first.inject(outer, within=1.0)
        outer.append(assistant("Anise."))
    assert await first.wait_recorded()
    assert await second.wait_recorded()
    assert letters(element) == "A"
    assert late is None
    assert stage.endings() == [("superseded", "new_query"), ("delivered", "user_message")]


async def test_the_earlier_of_two_open_turns_does_not_take_the_block_of_the_later(memory: afterturn.Memory) -> None:
    """R3, H8: the later turn owns recall, also for hosts that write their prompt themselves."""
    conversation = memory.conversation("c", user="ada")
    earlier = conversation.turn([user(SOUP)])
    await settled(earlier)
    later = conversation.turn([user(f"{SOUP} Really?")])
    await settled(later)
    assert earlier.block_now() == ""
    assert ANISE in later.block_now()
    earlier.abort()
    later.abort()


async def test_turns_of_several_threads_have_one_recall_at_a_time(stage: Stage, memory: afterturn.Memory) -> None:
    """R3, R5: of eight that begin at once the last owns recall; each recall that began has one outcome."""
    conversation = memory.conversation("c", user="ada")
    turns: list[afterturn.Turn] = []
    threads = [
        threading.Thread(target=lambda: turns.append(conversation.turn([user(SOUP), assistant("Anise.")])))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for turn in turns:
        turn.finish()
    recorded = [await turn.wait_recorded() for turn in turns]
    await caught_up(memory)
    started = sorted(str(event.data["correlation"]) for event in stage.told.named("recall_started"))
    carried = {str(event.data["correlation"]) for event in stage.told.named("recall_carried")}
    ended = sorted(str(event.data["correlation"]) for event in stage.told.named("recall_ended"))
    assert recorded == [True] * 8
    assert sorted({*ended, *carried}) == started
    assert len(ended) == len(set(ended))


async def test_a_blocking_client_library_does_not_stall_the_recall(stage: Stage, memory: afterturn.Memory) -> None:
    """R2: the host's loop stands still in its first model call, and the recall is there when it is done."""
    messages = [user(SOUP)]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        # A sync SDK inside async code: nothing of the host's runs until it returns.
        assert turn._turn is not None
        assert turn._turn.shared.current.fast.settled.wait_blocking(within=10.0)
        messages += [call("one"), answer("one")]
        element = turn.inject_now(messages)
        turn.abort()
    assert letters(element) == "A"


def test_a_host_without_a_loop_gives_up_alike(stage: Stage) -> None:
    """R4: leaving by an exception aborts, in `afterturn.blocking` too."""
    with blocking.open(stage.path, {"embedder": "none"}, on_event=stage.told) as memory:
        memory.space("user:ada").add(ANISE)
        with contextlib.suppress(KeyError), memory.conversation("c", user="ada").turn([user(SOUP)]) as turn:
            assert turn._turn is not None
            turn._turn.shared.current.fast.settled.wait_blocking(within=10.0)
            raise KeyError("a tool failed")
        stage.told.wait("turn_aborted")
        memory.stats()
    assert stage.endings() == [("cancelled", "abort")]


async def test_a_turn_that_has_ended_says_so_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """C4: what a host reports too late has no effect, and is not silent."""
    async with stage.open() as memory:
        messages = [user("What goes into the soup?"), assistant("Herbs.")]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            pass
        turn.abort()
        turn.finish(messages)
        assert stage.count("turn_reused") == 0
        assert await turn.inject([user("And into bread?")]) is None
        assert (await turn.block(), turn.interject("more"), turn.cue("tea"), turn.complete(messages)) == (
            "",
            *[None] * 3,
        )
        assert await turn.wait_recorded()
    assert stage.count("turn_reused") == 1
    assert caplog.text.count("after it had ended (begin another: `conversation.turn(messages)`)") == 1


async def test_a_turn_is_entered_once(stage: Stage) -> None:
    """C4: two blocks of one turn would be recorded as one."""
    async with stage.open() as memory:
        turn = memory.conversation("c", user="ada").turn([user("hello")])
        async with turn:
            with pytest.raises(Conflict, match="Begin another"):
                async with turn:
                    pass
        with pytest.raises(Conflict, match="Begin another"):
            await turn.__aenter__()
