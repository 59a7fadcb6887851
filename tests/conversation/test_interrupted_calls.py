"""A tool call that never gets its result: the turn was given up, and the user says the next thing (H1)."""

import copy

import pytest
from controlled_store import Stage, learn, settled
from hosted import FORMATS, Format, Listed

from afterturn import blocking

CAT = "What is my cat called?"
DOG = "Where does the dog sleep?"
PETS = ["Ada's cat is called Miso", "Rex the dog sleeps in the barn"]
formats = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


@formats
@pytest.mark.parametrize("answered", [0, 1])
@pytest.mark.parametrize("end", ["aborted", "left with an exception", "abandoned"])
async def test_the_next_user_message_gets_its_block(stage: Stage, form: Format, end: str, answered: int) -> None:
    """H1, R1: the call belongs to an earlier turn, so no response will follow it; one of two may have answered."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        conversation = memory.conversation("c", user="ada", dialect=form.name)
        messages: Listed = [form.user(CAT)]
        turn = conversation.turn(messages)
        await turn.inject(messages)
        messages += [*form.calls(["one", "two"]), *form.answers(["one", "two"][:answered])]
        if end == "aborted":
            turn.abort()
        elif end != "abandoned":
            await turn.__aexit__(RuntimeError, RuntimeError(), None)
        messages.append(form.user(DOG))
        async with conversation.turn(messages) as following:
            element = await following.inject(messages)
            following.abort()
    assert "Rex" in str(element)
    assert messages[-1] is element


@formats
async def test_a_host_that_rebuilds_its_list_gets_it_too(stage: Stage, form: Format) -> None:
    """H1, H6: the elements are others, and say the same."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        messages: Listed = [form.user(CAT), *form.calls(["one"]), form.user(DOG)]
        async with memory.conversation("c", user="ada", dialect=form.name).turn(messages) as turn:
            rebuilt = copy.deepcopy(messages)
            element = await turn.inject(rebuilt)
            turn.abort()
    assert "Rex" in str(element)


@formats
async def test_a_turn_that_is_resumed_in_another_process_gets_it_too(stage: Stage, form: Format) -> None:
    """H1: there only the text of the turn's user message is known."""
    messages: Listed = [form.user(CAT), *form.calls(["one"]), form.user(DOG)]
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        started = await memory.conversation("c", user="ada", dialect=form.name).start_turn(messages)
        await settled(started)
    async with stage.open() as memory:
        turn = await memory.conversation("c", user="ada", dialect=form.name).resume_turn(started.id)
        element = await turn.inject(messages)
        turn.abort()
    assert "Rex" in str(element)


@formats
async def test_a_call_of_this_turn_is_still_waited_for(stage: Stage, form: Format) -> None:
    """H1: a user who speaks while a tool runs does not interrupt it; the block comes after the tool's response."""
    async with stage.open() as memory:
        await learn(memory, stage.clock, PETS)
        messages: Listed = [form.user(CAT)]
        async with memory.conversation("c", user="ada", dialect=form.name).turn(messages) as turn:
            await settled(turn)
            messages += [*form.calls(["one"]), form.user("Are you still there?")]
            between = await turn.inject(messages)
            messages += form.answers(["one"])
            after = await turn.inject(messages)
            turn.abort()
    assert between is None
    assert "Miso" in str(after)


def test_the_blocking_facade_hands_it_over_too(stage: Stage) -> None:
    """H1: both facades look for the place in the same way."""
    with blocking.open(stage.path, {"embedder": "none", "grace": 5.0}) as memory:
        memory.space("user:ada").add(PETS[1])
        conversation = memory.conversation("c", user="ada")
        form = FORMATS[0]
        messages: Listed = [form.user(CAT), *form.calls(["one"]), form.user(DOG)]
        with conversation.turn(messages) as turn:
            element = turn.inject(messages)
            turn.abort()
    assert "Rex" in str(element)
