"""Hosts that write their prompt anew at every step: the same bytes each time, and later ones only appended (H8)."""

import json

from controlled_store import Stage, caught_up, learn, learn_herbs, letters, references, settled
from spoken import Message, answer, assistant, call, user

from afterturn import blocking
from afterturn.testing import Held, ScriptedModel

SOUP = "What goes into the soup?"
CAT = "What is my cat called?"
MISO = "Ada's cat is called Miso"
THREE = {"recall_entries_max": 3, "recording": False}


async def test_every_step_gets_the_same_bytes_from_one_recall(stage: Stage) -> None:
    """H8, R1: block and block_now give the same text at each step, whatever the messages have become."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        messages = [user(SOUP)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            texts = [await turn.block()]
            for step in range(6):
                messages += [call(f"c{step}"), answer(f"c{step}")]
                stage.clock.advance(3600)
                texts += [turn.block_now(), await turn.block(within=1.0)]
            turn.abort()
        await caught_up(memory)
    assert len(set(texts)) == 1
    assert letters(texts[0]) == "ABC"
    assert stage.store.searches == 1
    assert messages[0] == user(SOUP)
    assert stage.endings() == [("delivered", "prompt")]


async def test_until_it_is_there_the_text_is_blank_and_nothing_waits(stage: Stage) -> None:
    """H8, R2: the first that is not blank is the first that was ready."""
    async with stage.open(grace=0.0, **THREE) as memory:
        await learn_herbs(memory, stage.clock)
        stage.store.searching.shut()
        async with memory.conversation("c", user="ada").turn([user(SOUP)]) as turn:
            blank = [turn.block_now(), await turn.block()]
            stage.store.searching.open()
            await settled(turn)
            text = turn.block_now()
            turn.abort()
    assert blank == ["", ""]
    assert letters(text) == "ABC"


async def test_what_comes_later_is_appended(stage: Stage) -> None:
    """H8, R7: the model's choice, and what an interjection finds, come after the bytes that stood there."""
    line = Held(json.dumps({"ids": [7]}))
    async with stage.open(model=ScriptedModel(line, '{"ids": []}'), refined=True, **THREE) as memory:
        await learn_herbs(memory, stage.clock)
        await learn(memory, stage.clock, [MISO])
        async with memory.conversation("c", user="ada").turn([user(SOUP)]) as turn:
            fast = await turn.block()
            line.release()
            refined = await turn.block(phase="refined")
            turn.interject(CAT)
            interjected = await turn.block()
            turn.abort()
        await caught_up(memory)
    assert letters(fast) == "ABC"
    assert refined.startswith(fast)
    assert letters(refined[len(fast) :]) == "G"
    assert interjected.startswith(refined)
    assert "Miso" in interjected[len(refined) :]
    assert len(references(interjected)) == len(set(references(interjected)))


async def test_the_next_turn_excludes_nothing_of_it(stage: Stage) -> None:
    """H8: the model sees only the prompt of its own step, so the next turn may show the same."""
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        for history in ("shown", "hidden"):
            conversation = memory.conversation(history, user="ada", history=history)  # type: ignore[arg-type]
            shown = []
            for _ in range(2):
                messages: list[Message] = [user(SOUP)]
                async with conversation.turn(messages) as turn:
                    shown.append(letters(await turn.block()))
                    messages.append(assistant("Herbs."))
                await caught_up(memory)
            assert shown == ["ABC", "ABC"]


async def test_another_process_that_goes_on_with_the_turn_gives_the_same_bytes(stage: Stage) -> None:
    """H8: an open turn that is resumed elsewhere has the prompt it had."""
    messages = [user(SOUP)]
    async with stage.open(**THREE) as memory:
        await learn_herbs(memory, stage.clock)
        turn = await memory.conversation("c", user="ada").start_turn(messages, id="hook-1")
        first = await turn.block()
    stage.clock.advance(86_400)
    async with stage.open(**THREE) as memory:
        turn = await memory.conversation("c", user="ada").resume_turn("hook-1")
        again = turn.block_now()
        turn.abort()
    assert letters(first) == "ABC"
    assert again == first


def test_a_host_without_a_loop_gets_the_same_bytes_too(stage: Stage) -> None:
    """H8: `afterturn.blocking` has the same two verbs."""
    with blocking.open(stage.path, {"embedder": "none", "grace": 5.0}) as memory:
        memory.space("user:ada").add(MISO)
        turn = memory.conversation("c", user="ada").turn([user(CAT)])
        texts = [turn.block(), turn.block_now(), turn.block(within=0.0)]
        turn.abort()
    assert len(set(texts)) == 1
    assert "Miso" in texts[0]
