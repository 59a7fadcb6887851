"""Amazon Bedrock's messages, and that their roles alternate whatever memory adds to them."""

import copy
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from client_libraries import parsed
from histories import Call, Step, Turn, histories, unpaired, write
from hypothesis import given, settings
from hypothesis import strategies as st

import afterturn
from afterturn.conversation.compactor import CompactionPlan, StateSnapshot, plan, read_contents, rebuild
from afterturn.conversation.delivery import insert_block
from afterturn.conversation.scope import Placement
from afterturn.dialects.bedrock import Bedrock
from afterturn.dialects.dialect import Utterance
from afterturn.dialects.history import find_exchange, find_latest_user, find_point
from afterturn.text import content_hash
from afterturn.types import Filter, HandoverPoint, Kind

BEDROCK = Bedrock()
CAT = "Ada's cat is called Turing"
BLOCK = "<afterturn-memory>\n## Relevant Memory\n- [m1] yesterday, user: Miso is my cat\n</afterturn-memory>"
CALLS = (Call("a", "search", "a cat"), Call("b", "weather", "rain"))
TURN = Turn("What is my cat called?", steps=(Step("Let me look.", CALLS), Step("", CALLS[:1])), answer="Turing.")
NEXT = Turn("And what is my dog called?", steps=(Step("", CALLS[:1]),), answer="Ada.")
placements = pytest.mark.parametrize("placement", ["append", "merge"])


def keep(text: str) -> str:
    return text


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"text": one} if isinstance(one, str) else one for one in blocks]}


def assistant(*blocks: Any) -> dict[str, Any]:
    return user(*blocks) | {"role": "assistant"}


def tool_use(id: str, **fields: str) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": id, "name": "f", "input": {}, **fields}}


def result(id: str, *content: Any, **fields: str) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": id, "content": list(content) or [{"text": "done"}], **fields}}


CACHE = {"cachePoint": {"type": "default"}}
IMAGE = {"image": {"format": "png", "source": {"bytes": b"PNG"}}}
DOCUMENT = {"document": {"format": "txt", "name": "a", "source": {"text": "My name is Smith."}}}
REASONING = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
SEARCHING = tool_use("s", type="server_tool_use")
SEARCHED = result("s", {"text": "found"}, type="web_search_tool_result")


def alternate(messages: list[Any]) -> bool:
    return all(before["role"] != after["role"] for before, after in pairwise(messages))


@pytest.mark.parametrize(
    "messages, point",
    [
        ([user("hi")], HandoverPoint.USER_MESSAGE),
        ([user("hi", CACHE)], HandoverPoint.USER_MESSAGE),
        ([user("hi"), assistant(REASONING, tool_use("a"))], None),
        ([user("hi"), assistant(tool_use("a")), user(result("a"))], HandoverPoint.TOOL_RESULT),
        ([user("hi"), assistant(tool_use("a")), user(result("a", status="error"))], HandoverPoint.TOOL_RESULT),
        ([user("hi"), assistant(tool_use("a"), tool_use("b")), user(result("b"))], None),
        (
            [user("hi"), assistant(tool_use("a"), tool_use("b")), user(result("b"), result("a"))],
            HandoverPoint.TOOL_RESULT,
        ),
        ([user("hi"), assistant(tool_use("a")), user(result("a"), CACHE)], HandoverPoint.TOOL_RESULT),
        ([user("hi"), assistant(tool_use("a")), user(result("a"), "and hurry")], HandoverPoint.USER_MESSAGE),
        ([user("hi"), assistant(SEARCHING, SEARCHED, "Yes."), user("and?")], HandoverPoint.USER_MESSAGE),
    ],
)
def test_a_block_goes_after_the_user_or_after_all_results(messages, point):
    """H1: a tool that the provider runs is not waited for."""
    parsed("bedrock", messages)
    assert find_point(BEDROCK, messages) is point


@pytest.mark.parametrize(
    "message, said",
    [
        (user("one", "two"), [Utterance("user", "one\ntwo")]),
        (user("hi", CACHE), [Utterance("user", "hi")]),
        (user(IMAGE, "what?"), [Utterance("user", ""), Utterance("user", "what?")]),
        (user(DOCUMENT, "whose?"), [Utterance("user", ""), Utterance("user", "whose?")]),
        (user(IMAGE), [Utterance("user", "")]),
        (
            user(result("a", {"text": "x"}), result("b", {"json": {"a": 1, "b": "z"}}, IMAGE, {"text": "y"}), CACHE),
            [Utterance("tool", "x"), Utterance("tool", '{"a": 1, "b": "z"}\ny')],
        ),
        (user(result("a"), "and hurry"), [Utterance("tool", "done"), Utterance("user", "and hurry")]),
        (user(result("a", IMAGE)), [Utterance("tool", "")]),
        (assistant(REASONING, "answer"), [Utterance("assistant", "answer")]),
        (assistant("It is ", "raining."), [Utterance("assistant", "It is raining.")]),
        (assistant("Let me see.", SEARCHING, SEARCHED, "Yes."), [Utterance("assistant", "Let me see.\nYes.")]),
        (
            assistant("So ", {"citationsContent": {"content": [{"text": "it is."}], "citations": [{"title": "x"}]}}),
            [Utterance("assistant", "So it is.")],
        ),
        (assistant(REASONING), [Utterance("assistant", "")]),
        (assistant(tool_use("a")), []),
        (assistant(SEARCHING, SEARCHED), []),
    ],
)
def test_a_message_is_read_as_a_person_would_read_it(message, said):
    """C1, C6: reasoning, images and documents give no text; results are the tools', whatever their message's role."""
    parsed("bedrock", [message])
    read = BEDROCK.read(message)
    assert read is not None
    assert list(read.utterances) == said


def test_results_are_not_what_the_user_said():
    """R1, R6: the latest user message is looked for behind them; a picture alone is not looked past."""
    messages = [user("question"), assistant(tool_use("a")), user(result("a"), CACHE)]
    assert find_latest_user(BEDROCK, messages, keep) == (0, "question")
    assert find_latest_user(BEDROCK, [*messages, assistant("x"), user(IMAGE)], keep) is None


def test_a_turn_begins_with_its_users_words():
    """C1: not with the results of an earlier turn in the same message."""
    messages = [user("old"), assistant(tool_use("a")), user(result("a"), "never mind"), assistant("fine")]
    found = find_exchange(BEDROCK, messages, content_hash("never mind"), keep)
    assert [message.text for message in found.messages] == ["never mind", "fine"]
    assert found.is_untrusted
    assert found.ends_complete


def test_pictures_in_results_and_calls_are_counted():
    """K1: a block's only key says what it is."""
    held = read_contents(user(result("a", IMAGE, {"text": "x"}), IMAGE, DOCUMENT))
    assert held.shown == ("image", "image", "document")
    called = read_contents(assistant(REASONING, tool_use("a"), tool_use("b")))
    assert [call.name for call in called.calls] == ["f", "f"]
    assert called.reasoning == "hm"


@settings(max_examples=60)
@given(data=st.data())
def test_roles_alternate_after_a_block_at_every_point(data):
    """H1, H3: the API refuses two messages of one role in a row. The host's own elements stay as they were."""
    messages = data.draw(histories("bedrock"))
    before = copy.deepcopy(messages)
    for at in range(1, len(messages) + 1):
        if find_point(BEDROCK, messages[:at]) is not None:
            changed: list[Any] = list(messages)
            index, element = insert_block(BEDROCK, changed, BLOCK, Placement.APPEND, at=at - 1)
            assert (index, len(changed)) == (at - 1, len(messages))
            assert element["content"] == [*before[at - 1]["content"], {"text": BLOCK}]
            assert alternate(changed)
            parsed("bedrock", changed)
            assert unpaired("bedrock", changed) == []
    assert messages == before


@settings(max_examples=60)
@given(data=st.data())
def test_roles_alternate_in_a_compacted_history(data):
    """K1, H1: with blocks in it, and wherever it is cut."""
    messages: list[Any] = [user("word " * 300), assistant("Yes."), *data.draw(histories("bedrock"))]
    for at in range(len(messages)):
        if data.draw(st.booleans()) and find_point(BEDROCK, messages[: at + 1]) is not None:
            insert_block(BEDROCK, messages, BLOCK, Placement.APPEND, at=at)
    planned = plan(BEDROCK, messages, limit_tokens=1, keep_share=data.draw(st.floats(0.1, 0.9)))
    assert isinstance(planned, CompactionPlan)
    done = rebuild(BEDROCK, messages, planned, StateSnapshot("x", "y", "None.", "z", "[TODO] w"))
    assert done.changed
    assert alternate(done.messages)
    parsed("bedrock", done.messages)
    assert unpaired("bedrock", done.messages) == []


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[afterturn.Memory]:
    async with afterturn.open(tmp_path / "memory.db") as opened:
        await opened.space("user:ada").add(CAT)
        await opened.ready()
        yield opened


async def play(conversation: Any, messages: list[Any], script: list[Any], *, begin_at: int) -> None:
    """One turn of a raw loop, whose every prompt the provider would take and begins with the one before."""
    sent: list[Any] = []
    messages.append(script[0])
    async with conversation.turn(messages) as turn:
        for at, message in enumerate(script[1:], 1):
            if message["role"] == "assistant":
                if at >= begin_at:
                    await turn.inject(messages, within=30)
                assert alternate(messages)
                assert unpaired("bedrock", messages) == []
                assert messages[: len(sent)] == sent
                sent = copy.deepcopy(messages)
            messages.append(message)
    assert await turn.wait_recorded(within=30)


@placements
@pytest.mark.parametrize("begin_at", [1, 3], ids=["at the user's message", "at the tool results"])
async def test_every_prompt_of_a_conversation_alternates(memory: afterturn.Memory, placement: Any, begin_at: int):
    """H1, H2, H3, C5: over turns, and our text is recorded in none of them."""
    conversation = memory.conversation("c", user="ada", placement=placement)
    messages: list[Any] = []
    for turn in (TURN, NEXT):
        await play(conversation, messages, write("bedrock", [turn]), begin_at=begin_at)
    assert str(messages).count(CAT) == 1
    assert CAT in str(messages[begin_at - 1])
    records = await memory.space("user:ada").list(filter=Filter(kind=Kind.RECORD), limit=100)
    assert "afterturn-memory" not in str([record.text for record in records])


@placements
@pytest.mark.parametrize("begin_at", [1, 3], ids=["at the user's message", "at the tool results"])
async def test_a_dropped_block_is_put_back_into_its_message(memory: afterturn.Memory, placement: Any, begin_at: int):
    """H6, H3: a host that writes its list anew gets the same bytes in the same place, and roles still alternate."""
    conversation = memory.conversation("c", user="ada", placement=placement)
    messages: list[Any] = []
    await play(conversation, messages, write("bedrock", [TURN]), begin_at=begin_at)
    rebuilt: list[Any] = [*write("bedrock", [TURN]), user("Thanks, and what is the weather?")]
    async with conversation.turn(rebuilt) as turn:
        await turn.inject(rebuilt, within=30)
        turn.abort()
    assert alternate(rebuilt)
    assert CAT in str(rebuilt)
    assert rebuilt[: len(messages)] == messages


async def test_blocks_of_two_turns_are_put_back_in_one_go(memory: afterturn.Memory):
    """H6: each into its own message, though none of them is a new element."""
    conversation = memory.conversation("c", user="ada")
    turns = [Turn("What is my cat called?", answer="Turing."), Turn("And what is my dog called?", answer="Babbage.")]
    messages: list[Any] = []
    for turn in turns:
        await play(conversation, messages, write("bedrock", [turn]), begin_at=1)
        await memory.space("user:ada").add("Ada's dog is called Babbage")
        await memory.ready()
    assert str(messages).count("<afterturn-memory>") == 2
    own: list[Any] = write("bedrock", turns)
    async with conversation.turn([*own, user("Thanks.")]) as later:
        rebuilt: list[Any] = [*copy.deepcopy(own), user("Thanks.")]
        await later.inject(rebuilt, within=30)
        later.abort()
    assert rebuilt[:4] == messages
    assert alternate(rebuilt)
