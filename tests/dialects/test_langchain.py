"""LangChain's messages: its objects, its dictionaries, and those of OpenAI that it accepts among them."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from histories import Call, Step, Turn, write
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    add_notification_metadata,
    convert_to_messages,
    message_chunk_to_message,
)
from pydantic import TypeAdapter

import afterturn
from afterturn.conversation.compactor import CompactionPlan, StateSnapshot, plan, read_contents, rebuild
from afterturn.dialects import find_dialect, follow_dialect, get_dialect
from afterturn.dialects.history import curated, find_exchange, find_latest_user, find_point, has_open_call, new_element
from afterturn.dialects.langchain import LangChain
from afterturn.text import content_hash
from afterturn.types import Filter, HandoverPoint, Kind

LANGCHAIN = LangChain()
CALL: Any = {"id": "a", "name": "f", "args": {"x": 1}, "type": "tool_call"}
CALLING = AIMessage("", tool_calls=[CALL])
RESULT = ToolMessage("done", tool_call_id="a")
USER = {"role": "user", "content": "hi"}


def keep(text: str) -> str:
    return text


def read(message: object):
    element = LANGCHAIN.read(message)
    assert element is not None
    return element


@pytest.mark.parametrize(
    "messages, point",
    [
        ([HumanMessage("hi")], HandoverPoint.USER_MESSAGE),
        ([HumanMessageChunk("hi")], HandoverPoint.USER_MESSAGE),
        ([HumanMessage("hi"), CALLING], None),
        ([HumanMessage("hi"), CALLING, RESULT], HandoverPoint.TOOL_RESULT),
        (
            [HumanMessage("hi"), CALLING, {"role": "tool", "tool_call_id": "a", "content": "x"}],
            HandoverPoint.TOOL_RESULT,
        ),
        ([HumanMessage("hi"), AIMessage("", tool_calls=[CALL, {**CALL, "id": "b"}]), RESULT], None),
        ([HumanMessage("hi"), CALLING, RESULT, SystemMessage("Be brief.")], HandoverPoint.TOOL_RESULT),
        ([HumanMessage("hi"), CALLING, RESULT, RemoveMessage(id="1")], HandoverPoint.TOOL_RESULT),
        ([USER, CALLING, RESULT], HandoverPoint.TOOL_RESULT),
        ([HumanMessage("hi"), ChatMessage("Not bad.", role="critic")], None),
        ([ChatMessage("hi", role="human")], HandoverPoint.USER_MESSAGE),
        ([HumanMessage("hi"), AIMessage("Hello.")], None),
    ],
)
def test_a_block_goes_after_the_user_or_after_all_results(messages, point):
    """H1: in LangChain's own objects."""
    found = find_dialect(messages)
    assert found is not None
    assert found.name == "langchain"
    assert find_point(found, messages) is point


@pytest.mark.parametrize("kind", ["invalid", "block", "tool_use", "old tool_calls"])
def test_every_call_that_a_provider_is_sent_needs_its_response(kind):
    """H1: calls that could not be parsed, and calls that are only blocks of the content, are sent too."""
    made = {
        "invalid": AIMessage(
            "", invalid_tool_calls=[{**CALL, "args": "{", "error": "no JSON", "type": "invalid_tool_call"}]
        ),
        "block": AIMessage([CALL]),
        "tool_use": AIMessage([{"type": "tool_use", "id": "a", "name": "f", "input": {}}]),
        "old tool_calls": {"type": "ai", "content": "", "additional_kwargs": {"tool_calls": [{"id": "a"}]}},
    }[kind]
    assert read(made).calls == ("a",)
    assert has_open_call(LANGCHAIN, [HumanMessage("hi"), made])
    assert not has_open_call(LANGCHAIN, [HumanMessage("hi"), made, RESULT])


def test_a_function_of_the_older_kind_is_paired_by_its_name():
    """H1: it has no id."""
    called = AIMessage("", additional_kwargs={"function_call": {"name": "f", "arguments": "{}"}})
    assert has_open_call(LANGCHAIN, [HumanMessage("hi"), called])
    assert not has_open_call(LANGCHAIN, [HumanMessage("hi"), called, FunctionMessage("done", name="f")])


def test_the_chunks_of_a_stream_read_as_the_message_they_make():
    """C1: a host adds them up and appends the sum, or the message that LangChain makes of it."""
    chunks = [
        AIMessageChunk("Let me "),
        AIMessageChunk("look."),
        AIMessageChunk("", tool_call_chunks=[{"index": 0, "id": "a", "name": "f", "args": '{"x"'}]),
        AIMessageChunk("", tool_call_chunks=[{"index": 0, "id": None, "name": None, "args": ": 1}"}]),
    ]
    total = chunks[0] + chunks[1] + chunks[2] + chunks[3]
    assert isinstance(total, AIMessageChunk)
    assert read(total) == read(message_chunk_to_message(total)) == read(AIMessage("Let me look.", tool_calls=[CALL]))
    assert read(total).calls == ("a",)


def test_typed_content_blocks_read_as_a_providers_own_blocks_do():
    """C1: the older blocks of a provider, and the standard ones."""
    older = AIMessage(
        [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        ],
        tool_calls=[CALL],
    )
    typed = AIMessage(
        content_blocks=[{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "Let me look."}, CALL]
    )
    assert read(older) == read(typed)
    assert read(typed).calls == ("a",)
    assert read(HumanMessage(content_blocks=[{"type": "text", "text": "hi"}])) == read(HumanMessage("hi"))


def test_a_call_in_two_places_is_counted_once():
    """K1: LangChain lists a call beside the content that has it."""
    both = AIMessage([{"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}], tool_calls=[CALL])
    assert [call.name for call in read_contents(both).calls] == ["f"]
    twice = AIMessage("", tool_calls=[CALL, {**CALL, "id": "b"}])
    assert [call.name for call in read_contents(twice).calls] == ["f", "f"]


def test_what_a_middleware_adds_is_not_what_the_user_said():
    """G2, R1: a summary quotes tools and is no question; neither is the report of a background task."""
    summary = HumanMessage(
        "Here is a summary: the user wants to be called Max.", additional_kwargs={"lc_source": "summarization"}
    )
    report = add_notification_metadata(HumanMessage("My name is Max."), source="async_subagent")
    messages = [summary, HumanMessage("What is the time?"), AIMessage("Noon."), report, AIMessage("Hello, Max.")]

    assert find_latest_user(LANGCHAIN, messages, keep) == (1, "What is the time?")
    found = find_exchange(LANGCHAIN, messages, content_hash("What is the time?"), keep)
    assert [message.text for message in found.messages] == ["What is the time?", "Noon.", "Hello, Max."]
    assert found.is_untrusted
    assert not find_exchange(LANGCHAIN, messages[:3], content_hash("What is the time?"), keep).is_untrusted
    assert LANGCHAIN.merged(summary, "BLOCK") is None


def test_a_summary_as_a_dictionary_is_not_what_the_user_said():
    """G2: LangChain takes OpenAI's dictionaries too, with its own keys in them."""
    summary = {"role": "user", "content": "Call me Max.", "additional_kwargs": {"lc_source": "summarization"}}
    element = LANGCHAIN.read(summary)
    assert element is not None
    assert (element.text_of("user"), element.text_of("system"), element.outside) == ("", "Call me Max.", True)
    assert LANGCHAIN.merged(summary, "BLOCK") is None


def test_a_block_that_runs_code_of_its_own_is_read():
    """K1: reading never raises."""

    class Odd(dict[str, str]):
        def keys(self) -> Any:
            raise RuntimeError("no keys")

    element = LANGCHAIN.read({"type": "human", "content": [Odd(text="x"), {"type": "text", "text": "Hello"}]})
    assert element is not None
    assert "Hello" in element.text_of("user")


def test_a_removed_message_is_a_command_and_not_a_message():
    """C1, G2: it adds nothing to a turn and does not taint it."""
    messages = [HumanMessage("hi"), RemoveMessage(id="1"), AIMessage("Hello.")]
    found = find_exchange(LANGCHAIN, messages, content_hash("hi"), keep)
    assert [message.text for message in found.messages] == ["hi", "Hello."]
    assert not found.is_untrusted


@pytest.mark.parametrize(
    "messages, kind",
    [
        ([HumanMessage("hi"), CALLING, RESULT], HumanMessage),
        ([HumanMessageChunk("hi")], HumanMessage),
        ([USER, CALLING, RESULT], dict),
        ([{"type": "human", "content": "hi"}], dict),
        ([CALLING, RESULT], dict),
    ],
)
def test_a_block_is_of_the_kind_of_the_users_messages(messages, kind, caplog):
    """H1: an object among objects, a dictionary among dictionaries; LangChain takes both in one list."""
    made: Any = new_element(LANGCHAIN, messages, "BLOCK")
    assert type(made) is kind
    assert convert_to_messages([made]) == [HumanMessage("BLOCK")]
    assert caplog.text == ""


def test_a_message_of_the_base_class_is_none_of_langchains():
    """H1: its own functions refuse it."""
    assert LANGCHAIN.read(BaseMessage(content="hi", type="human")) is None


def test_a_merged_block_is_in_a_copy_with_the_same_id():
    """H3: LangGraph replaces messages by their ids; the host's object stays as it was."""
    asked = HumanMessage("hi", id="1", name="ada")
    merged: Any = LANGCHAIN.merged(asked, "BLOCK")
    assert (merged.content, merged.id, merged.name) == ("hi\n\nBLOCK", "1", "ada")
    assert asked.content == "hi"
    parts: Any = LANGCHAIN.merged(HumanMessage([{"type": "image", "url": "u"}]), "BLOCK")
    assert parts.content == [{"type": "image", "url": "u"}, {"type": "text", "text": "BLOCK"}]
    assert LANGCHAIN.merged(RESULT, "BLOCK") is None
    assert LANGCHAIN.merged(USER, "BLOCK") == {"role": "user", "content": "hi\n\nBLOCK"}


def test_a_list_of_plain_dictionaries_shows_itself_with_the_first_answer():
    """H1: hosts often begin with a dictionary and append what the model returns."""
    begun = find_dialect([USER])
    assert begun is get_dialect("openai_chat")
    assert follow_dialect(begun, [USER, AIMessage("Hello."), USER]) is get_dialect("langchain")


def test_a_compacted_list_of_objects_has_objects():
    """K1: hosts read the attributes of their messages."""
    script = [
        Turn("word " * 300, answer="Yes."),
        Turn("And?", steps=(Step("", (Call("a", "f", "x"),)),)),
        Turn("Go on."),
    ]
    messages = TypeAdapter(list[AnyMessage]).validate_python(write("langchain", script))
    planned = plan(LANGCHAIN, messages, limit_tokens=1)
    assert isinstance(planned, CompactionPlan)
    done = rebuild(LANGCHAIN, messages, planned, StateSnapshot("x", "y", "None.", "z", "[TODO] w"))
    assert [type(message) for message in done.messages[:2]] == [HumanMessage, AIMessage]
    assert done.messages[2:] == messages[planned.cut :]
    assert curated(LANGCHAIN, done.messages) == done.messages


async def test_a_loop_over_a_chat_model_is_reminded_and_recorded(tmp_path: Path):
    """H1, H3, C1, C5: the model is given LangChain's messages, and the host keeps what the model returned."""
    asked: list[list[BaseMessage]] = []

    class Model(FakeMessagesListChatModel):
        """Keeps what it is asked."""

        def _generate(self, messages: list[BaseMessage], *rest: Any, **options: Any) -> Any:
            asked.append(copy.deepcopy(messages))
            return super()._generate(messages, *rest, **options)

    model = Model(responses=[AIMessage("Let me look.", tool_calls=[CALL]), AIMessage("Turing.")])
    async with afterturn.open(tmp_path / "memory.db") as memory:
        await memory.space("user:ada").add("Ada's cat is called Turing")
        await memory.ready()
        messages: list[Any] = [SystemMessage("Be brief."), HumanMessage("What is my cat called?")]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            await turn.inject(messages, within=30)
            while True:
                reply = await model.ainvoke(messages)
                messages.append(reply)
                if not reply.tool_calls:
                    break
                messages.append(ToolMessage("a cat", tool_call_id=reply.tool_calls[0]["id"]))
                await turn.inject(messages)
        assert await turn.wait_recorded(within=30)
        records = await memory.space("user:ada").list(filter=Filter(kind=Kind.RECORD))
    first, second = asked
    assert [type(message) for message in first] == [SystemMessage, HumanMessage, HumanMessage]
    assert "Turing" in str(first[2].content)
    assert second[:3] == first
    assert sorted(record.text for record in records) == ["Let me look.", "Turing.", "What is my cat called?", "a cat"]


async def test_a_list_of_dictionaries_can_still_be_written_as_json(tmp_path: Path):
    """H1: a block among dictionaries is one, though LangChain is loaded."""
    async with afterturn.open(tmp_path / "memory.db") as memory:
        await memory.space("user:ada").add("Ada's cat is called Turing")
        messages: list[Any] = [{"type": "human", "content": "What is my cat called?"}]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            assert await turn.inject(messages, within=30) is not None
            turn.abort()
    assert json.loads(json.dumps(messages)) == messages
    assert len(convert_to_messages(messages)) == 2
