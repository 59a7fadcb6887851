"""The standing block reaches hosts that call `inject` or `block` and never ask for it (S5)."""

import copy
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hosted import FORMATS, Format, Listed, written
from spoken import assistant, exchange, user

import afterturn
from afterturn.errors import InvalidInput

pytestmark = pytest.mark.standing
QUESTION = "How heavy was the hive?"
RULE = "Answer Ada in French"
formats = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[afterturn.Memory]:
    async with afterturn.open(tmp_path / "memory.db") as opened:
        ada = opened.space("user:ada")
        await ada.add(RULE, pinned=True)
        # Not typed by the user, so it does not stand.
        await ada.add("The hive weighed 41 kilos", origin=afterturn.Origin.AGENT)
        yield opened


def standing_blocks(messages: Listed) -> list[str]:
    return re.findall(r"<afterturn-standing>.*?</afterturn-standing>", "\n".join(written(messages)), re.DOTALL)


async def take_turn(conversation: afterturn.Conversation, messages: Listed, answer: str = "41 kilos.") -> None:
    async with conversation.turn(messages) as turn:
        await turn.inject(messages, within=10)
        messages.append(assistant(answer))
    assert await turn.wait_recorded()


@formats
async def test_the_first_point_brings_it_in_front_of_the_block_in_one_element(
    memory: afterturn.Memory, form: Format
) -> None:
    """S5: each part has its own tag, and `inject` adds one element."""
    messages = [form.user(QUESTION)]
    async with memory.conversation("c", user="ada", dialect=form.name).turn(messages) as turn:
        added = await turn.inject(messages, within=10)
        text = "\n".join(written([added] if added is not None else []))
        turn.abort()
    assert text.index("<afterturn-standing>") < text.index(RULE) < text.index("<afterturn-memory>")
    assert len(messages) <= 2


@formats
async def test_it_comes_once_in_a_conversation(memory: afterturn.Memory, form: Format) -> None:
    """S5: the next turns see it in the list."""
    conversation, messages = memory.conversation("c", user="ada", dialect=form.name), [form.user(QUESTION)]
    for said in ("Tell me more about honey.", "thanks"):
        async with conversation.turn(messages) as turn:
            await turn.inject(messages, within=10)
            messages.append(form.assistant("Fine."))
        messages.append(form.user(said))
    assert len(standing_blocks(messages)) == 1


@pytest.mark.parametrize("said", ["ok", "How heavy was the hive?"])
@pytest.mark.parametrize("settings", [{}, {"recall": False}])
async def test_it_comes_with_an_acknowledgement_and_with_recall_off(
    tmp_path: Path, said: str, settings: dict[str, bool]
) -> None:
    """S5, R6: what stands does not depend on what is recalled."""
    async with afterturn.open(tmp_path / "memory.db", settings) as memory:
        await memory.space("user:ada").add(RULE, pinned=True)
        messages = [user(said)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await turn.inject(messages, within=10)
            turn.abort()
    assert len(standing_blocks(messages)) == 1


async def test_it_comes_incognito(memory: afterturn.Memory) -> None:
    """S5, P2."""
    messages = [user(QUESTION)]
    async with memory.conversation("c", user="ada", incognito=True).turn(messages) as turn:
        await turn.inject(messages, within=10)
        turn.abort()
    assert len(standing_blocks(messages)) == 1


async def test_it_is_never_recorded_or_taken_for_what_the_user_said(memory: afterturn.Memory) -> None:
    """S5, C5."""
    messages: Listed = [user(QUESTION)]
    await take_turn(memory.conversation("c", user="ada"), messages)
    records = await memory.space("user:ada").list(filter=afterturn.Filter(kind=afterturn.Kind.RECORD))
    assert sorted(entry.text for entry in records) == ["41 kilos.", QUESTION]


async def test_a_host_that_rebuilds_its_list_gets_the_same_bytes_back(memory: afterturn.Memory) -> None:
    """S5, H6."""
    conversation, messages = memory.conversation("c", user="ada"), [user(QUESTION)]
    async with conversation.turn(messages) as turn:
        await turn.inject(messages, within=10)
        whole = written(messages)
        rebuilt = [user(QUESTION)]
        turn.inject_now(rebuilt)
        turn.abort()
    assert "<afterturn-standing>" in "".join(whole)
    assert written(rebuilt) == whole


async def test_a_list_that_was_cut_to_a_window_gets_it_again_without_a_compaction(memory: afterturn.Memory) -> None:
    """S5: losing the standing block is not a compaction."""
    conversation, messages = memory.conversation("c", user="ada"), [user("ok")]
    await take_turn(conversation, messages, "Fine.")
    messages = [user("Now something else.")]
    await take_turn(conversation, messages, "Fine.")
    assert len(standing_blocks(messages)) == 1
    events = await memory.events(conversation="c", owner="user:ada") if hasattr(memory, "events") else []
    assert not [event for event in events if event.name == "compacted"]


async def test_after_a_compaction_it_is_offered_again_as_it_is_now(memory: afterturn.Memory) -> None:
    """S5, S3, H7: in a hidden history, after the host has reported it."""
    conversation = memory.conversation("c", user="ada", history="hidden")
    first, second, third = [user(QUESTION)], [user("And honey?")], [user("And wax?")]
    await take_turn(conversation, first)
    await memory.space("user:ada").add("Never suggest sugar to Ada", pinned=True)
    await take_turn(conversation, second)
    conversation.compacted()
    await take_turn(conversation, third)
    assert len(standing_blocks(first)) == 1
    assert standing_blocks(second) == []
    assert "Never suggest sugar" in standing_blocks(third)[0]


async def test_a_compaction_within_a_turn_brings_it_again_in_the_same_turn(memory: afterturn.Memory) -> None:
    """S5, H7: at the next point, since the model sees none any more."""
    conversation, messages = memory.conversation("c", user="ada"), [user("ok, how heavy was the hive then?")]
    async with conversation.turn(messages) as turn:
        await turn.inject(messages, within=10)
        assert len(standing_blocks(messages)) == 1
        messages[:] = [user("Summary of before: we talked about bees.")]
        conversation.compacted(messages)
        messages += [assistant("Let me look."), user("Go on.")]
        await turn.inject(messages, within=10)
        turn.abort()
    assert len(standing_blocks(messages)) == 1


@pytest.mark.parametrize("asks", [False, True])
async def test_a_line_that_was_replaced_meanwhile_is_corrected_by_the_next_block(
    memory: afterturn.Memory, asks: bool
) -> None:
    """S5, S3: the frozen bytes stay, and the new value is marked as newer, once."""
    ada, conversation = memory.space("user:ada"), memory.conversation("c", user="ada")
    home = (await ada.add("Ada lives in Berlin")).entry.id
    prompt = await conversation.standing().block() if asks else ""
    messages: Listed = [user("ok")]
    await take_turn(conversation, messages)
    assert "Ada lives in Berlin" in prompt + "".join(standing_blocks(messages))
    await ada.update(home, "Ada lives in Hamburg")
    for said in ("What is the capital of Spain?", "ok"):
        messages.append(user(said))
        await take_turn(conversation, messages)
    assert "".join(standing_blocks(messages)).count("- (newer) Ada lives in Hamburg") == 1


async def test_what_stands_is_not_recalled_again(memory: afterturn.Memory) -> None:
    """S5: a pinned memory that answers the question is in sight already."""
    messages: Listed = [user("In which language shall I answer Ada?")]
    await take_turn(memory.conversation("c", user="ada"), messages)
    assert "\n".join(written(messages)).count(RULE) == 1


async def test_a_fact_that_was_said_twice_is_not_recalled_where_it_stands(memory: afterturn.Memory) -> None:
    """S5: one of the two stands, and the other says the same."""
    fact = "My brother Anselm is a beekeeper."
    for name in ("monday", "tuesday"):
        await take_turn(memory.conversation(name, user="ada"), [user(fact)], "Understood.")
    messages: Listed = [user("What does my brother Anselm do?")]
    await take_turn(memory.conversation("c", user="ada"), messages, "He keeps bees.")
    assert "\n".join(written(messages)).count(fact) == 1


@pytest.mark.parametrize("asks", ["block", "appended"])
async def test_a_host_that_asks_for_it_first_is_not_given_it_twice(memory: afterturn.Memory, asks: str) -> None:
    """S5: also in another conversation object of the same conversation."""
    standing = memory.conversation("c", user="ada").standing()
    prompt = await (standing.block() if asks == "block" else standing.appended("You are an agent."))
    messages: Listed = [user(QUESTION)]
    await take_turn(memory.conversation("c", user="ada"), messages)
    assert RULE in prompt
    assert standing_blocks(messages) == []


@pytest.mark.parametrize("standing", ["system", "off"])
async def test_a_host_can_say_how_it_gets_it(memory: afterturn.Memory, standing: str) -> None:
    """S5."""
    messages: Listed = [user(QUESTION)]
    await take_turn(memory.conversation("c", user="ada", standing=standing), messages)  # type: ignore[arg-type]
    assert standing_blocks(messages) == []


async def test_another_value_is_refused_with_the_choices(memory: afterturn.Memory) -> None:
    """S5."""
    with pytest.raises(InvalidInput, match='"inject" or "system" or "off"'):
        memory.conversation("c", user="ada", standing="always")  # type: ignore[arg-type]


async def test_a_setting_switches_it_off(tmp_path: Path) -> None:
    """S5."""
    async with afterturn.open(tmp_path / "memory.db", {"standing": False}) as memory:
        await memory.space("user:ada").add(RULE, pinned=True)
        messages: Listed = [user(QUESTION)]
        await take_turn(memory.conversation("c", user="ada"), messages)
    assert standing_blocks(messages) == []


async def test_a_sub_agent_gets_none(memory: afterturn.Memory) -> None:
    """S5, A1."""
    messages: Listed = [user(QUESTION)]
    async with memory.conversation("c", user="ada", subagent=True).turn(messages) as turn:
        await turn.inject(messages, within=10)
        turn.abort()
    assert standing_blocks(messages) == []


async def test_a_prompt_that_is_written_at_every_step_has_it_in_every_turn(memory: afterturn.Memory) -> None:
    """S5, H8: the same bytes, whatever was learned meanwhile."""
    texts = []
    for said in (QUESTION, "And honey?"):
        messages = [user(said)]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            steps = [await turn.block(within=10), await turn.block()]
            messages.append(assistant("Fine."))
        assert await turn.wait_recorded()
        assert steps[0] == steps[1]
        texts.append(steps[0])
        await memory.space("user:ada").add("Never suggest sugar to Ada", pinned=True)
    frozen = [re.findall(r"<afterturn-standing>.*</afterturn-standing>", text, re.DOTALL) for text in texts]
    assert len(frozen[0]) == 1
    assert frozen[0] == frozen[1]


async def test_a_host_that_never_waits_gets_it_at_a_later_point(memory: afterturn.Memory) -> None:
    """S5: if it is not ready at a point, the next point brings it, also that of the next turn."""
    conversation, messages, turns = memory.conversation("c", user="ada"), list[Any](), 0
    while not standing_blocks(messages) and turns < 50:
        messages.append(user("ok"))
        async with conversation.turn(messages) as turn:
            turn.inject_now(messages)
            messages.append(assistant("Fine."))
        assert await turn.wait_recorded()
        turns += 1
    assert len(standing_blocks(messages)) == 1


async def test_a_forgotten_memory_is_not_delivered_and_not_put_back(memory: afterturn.Memory) -> None:
    """S5, M2."""
    conversation, messages = memory.conversation("c", user="ada"), [user(QUESTION)]
    async with conversation.turn(messages) as turn:
        await turn.inject(messages, within=10)
        found = await memory.space("user:ada").list()
        await memory.space("user:ada").forget(memory=next(entry.id for entry in found if entry.text == RULE))
        rebuilt = [user(QUESTION)]
        turn.inject_now(rebuilt)
        turn.abort()
    assert len(standing_blocks(messages)) == 1
    assert RULE not in "".join(written(rebuilt))


async def test_blocks_of_another_conversation_are_not_the_users_words(memory: afterturn.Memory) -> None:
    """S5: a host with a conversation per request brings the blocks of earlier requests along."""
    messages: Listed = [user(QUESTION)]
    await take_turn(memory.conversation("request-1", user="ada"), messages)
    brought = [*copy.deepcopy(messages), user("And honey?")]
    await take_turn(memory.conversation("request-2", user="ada"), brought, "Sweet.")
    records = await memory.space("user:ada").list(filter=afterturn.Filter(kind=afterturn.Kind.RECORD))
    assert not [entry for entry in records if "afterturn-" in entry.text]


async def test_what_the_model_reads_in_the_list_is_not_repeated_in_the_standing_block(tmp_path: Path) -> None:
    """S5, L9: in a first conversation there is nothing to bring."""
    async with afterturn.open(tmp_path / "memory.db") as memory:
        conversation, messages = memory.conversation("c", user="ada"), [user("Always answer me in French.")]
        await take_turn(conversation, messages, "D'accord.")
        assert await memory.drain(within=30)
        messages.append(user("What is the capital of Spain?"))
        await take_turn(conversation, messages, "Madrid.")
        assert standing_blocks(messages) == []
        later: Listed = [user("What is the capital of Spain?")]
        await take_turn(memory.conversation("d", user="ada"), later, "Madrid.")
        assert "French" in standing_blocks(later)[0]


async def test_a_recording_of_a_conversation_starts_with_nothing_to_bring(tmp_path: Path) -> None:
    """S5: an empty space brings no block."""
    async with afterturn.open(tmp_path / "memory.db") as memory:
        await exchange(memory, "a", "What rhymes with window?")
        messages: Listed = [user("Hello!")]
        await take_turn(memory.conversation("c", user="ada"), messages, "Hello!")
    assert len(messages) == 2


async def test_a_grant_that_is_withdrawn_takes_its_standing_lines_along(memory: afterturn.Memory) -> None:
    """S5, L2: also from prompts that are written at every step, and for hosts that never wait."""
    await memory.space("project:secret").add("The launch is called Falcon", target="environment", pinned=True)
    granted = memory.conversation("c", user="ada", reads=["project:secret"])
    messages: Listed = [user("ok")]
    async with granted.turn(messages) as turn:
        first = await turn.block(within=10)
        messages.append(assistant("Fine."))
    assert await turn.wait_recorded()
    async with memory.conversation("c", user="ada").turn([user("ok")]) as turn:
        now, second = turn.block_now(), await turn.block(within=10)
        turn.abort()
    assert "Falcon" in first
    assert "Falcon" not in now + second
    assert RULE in second


async def test_a_fault_while_it_is_made_does_not_cost_the_recall(
    memory: afterturn.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S5: memory's fault never fails the turn."""

    def fail(*values: Any) -> Any:
        raise ValueError("a bad pattern")

    monkeypatch.setattr("afterturn.conversation.standing.find_standing", fail)
    messages: Listed = [user(QUESTION)]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        await turn.inject(messages, within=10)
        turn.abort()
    assert "41 kilos" in "".join(written(messages))


async def test_a_broad_question_does_not_repeat_what_stands(memory: afterturn.Memory) -> None:
    """S5, L14."""
    await memory.space("user:ada").add("Ada is allergic to nuts")
    messages: Listed = [user("What do you know about me?")]
    await take_turn(memory.conversation("c", user="ada"), messages)
    assert "\n".join(written(messages)).count("allergic to nuts") == 1


@pytest.mark.parametrize("asks", [False, True])
async def test_prompts_of_later_turns_have_the_correction_too(memory: afterturn.Memory, asks: bool) -> None:
    """S5, H8: a prompt that is written at every step does not keep the correction of an earlier turn."""
    ada, conversation = memory.space("user:ada"), memory.conversation("c", user="ada")
    home = (await ada.add("Ada lives in Berlin")).entry.id
    prompt = await conversation.standing().block() if asks else ""
    texts = []
    for number in range(3):
        messages: Listed = [user(f"ok {number}")]
        async with conversation.turn(messages) as turn:
            texts.append(prompt + await turn.block(within=10))
            messages.append(assistant("Fine."))
        assert await turn.wait_recorded()
        if not number:
            await ada.update(home, "Ada lives in Hamburg")
    assert ["(newer) Ada lives in Hamburg" in text for text in texts] == [False, True, True]
