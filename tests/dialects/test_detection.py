"""Detecting the format of a message list."""

from types import SimpleNamespace

import pytest
from histories import NAMES

from afterturn.dialects import DIALECTS, find_dialect, follow_dialect, get_dialect
from afterturn.errors import InvalidInput

USER = {"role": "user", "content": "hi"}
RESPONSES_USER = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
CALL_ITEM = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
ANTHROPIC_RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]}
ANTHROPIC_IMAGE = {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}]}
GEMINI_USER = {"role": "user", "parts": [{"text": "hi"}]}
REASONED = {"role": "assistant", "content": [{"type": "thinking"}], "tool_calls": [{"id": "a"}]}
BEDROCK_USER = {"role": "user", "content": [{"text": "hi"}]}
LANGCHAIN_CALL = {"type": "ai", "content": "", "tool_calls": [{"id": "a", "name": "f", "args": {}}]}
TOOL_CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}


@pytest.mark.parametrize(
    "messages, name",
    [
        ([], "openai_chat"),
        ([USER], "openai_chat"),
        ([{"role": "system", "content": "x"}], "openai_chat"),
        ([{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "openai_chat"),
        ([USER, TOOL_CALL], "openai_chat"),
        ([USER, {"role": "tool", "tool_call_id": "a", "content": "x"}], "openai_chat"),
        ([SimpleNamespace(role="assistant", content="hello")], "openai_chat"),
        ([{"role": "user", "content": [{"type": "image_url"}, {"type": "video_url"}]}], "openai_chat"),
        ([{"role": "user", "content": [{"type": "image", "image": "cat.png"}]}], "openai_chat"),
        ([{"role": "user", "content": "hi", "type": "human"}], "openai_chat"),
        ([{"role": "user", "content": "hi", "parts": [{"type": "text", "text": "hi"}]}], "openai_chat"),
        ([REASONED, {"role": "tool", "tool_call_id": "a", "content": "x"}], "openai_chat"),
        ([object(), USER], "openai_chat"),
        ([USER, CALL_ITEM], "openai_responses"),
        ([RESPONSES_USER], "openai_responses"),
        ([USER, {"type": "reasoning", "id": "r", "summary": []}], "openai_responses"),
        ([{"type": "message", "role": "user", "content": "hi"}], "openai_responses"),
        ([ANTHROPIC_RESULT], "anthropic"),
        ([ANTHROPIC_IMAGE], "anthropic"),
        ([USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "…"}]}], "anthropic"),
        ([USER, SimpleNamespace(role="assistant", type="message", content=[{"type": "text"}])], "anthropic"),
        ([GEMINI_USER], "gemini"),
        ([{"parts": [{"text": "hi"}]}], "gemini"),
        ([{"role": "model", "parts": [{"functionCall": {"name": "f"}}]}], "gemini"),
        ([BEDROCK_USER], "bedrock"),
        ([{"role": "user", "content": [{"image": {"format": "png"}}]}], "bedrock"),
        ([BEDROCK_USER, {"role": "assistant", "content": []}], "bedrock"),
        ([BEDROCK_USER, {"role": "assistant", "content": [{"SDK_UNKNOWN_MEMBER": {"name": "x"}}]}], "bedrock"),
        ([{"type": "human", "content": "hi"}], "langchain"),
        ([{"role": "human", "content": "hi"}], "langchain"),
        ([USER, LANGCHAIN_CALL], "langchain"),
        ([USER, LANGCHAIN_CALL, {"role": "tool", "tool_call_id": "a", "content": "x"}], "langchain"),
        ([{"type": "chat", "role": "user", "content": "hi"}], "langchain"),
        ([USER, {"type": "AIMessageChunk", "content": [{"type": "tool_use", "id": "a"}]}], "langchain"),
    ],
)
def test_a_format_is_recognised_by_what_only_it_has(messages, name):
    """H1: dictionaries and objects; what could be in several formats is OpenAI chat, which the next two take too."""
    dialect = find_dialect(messages)
    assert dialect is not None
    assert dialect.name == name


@pytest.mark.parametrize(
    "messages",
    [
        ["just text"],
        [object()],
        [None],
        [{"role": "narrator", "content": "x"}],
        [{"role": "user", "content": [{"mystery": "x"}]}],
        [BEDROCK_USER, ANTHROPIC_RESULT],
        [BEDROCK_USER, TOOL_CALL],
        [{"type": "human", "content": "hi"}, ANTHROPIC_RESULT],
        [{"type": "human", "content": "hi"}, GEMINI_USER],
        [{"type": "human", "content": "hi"}, CALL_ITEM],
        [{"type": "human", "content": "hi"}, BEDROCK_USER],
        [{"type": "human", "data": {"content": "hi"}}],
        [TOOL_CALL, CALL_ITEM],
        [TOOL_CALL, ANTHROPIC_RESULT],
        [RESPONSES_USER, ANTHROPIC_RESULT],
        [USER, GEMINI_USER],
    ],
)
def test_a_list_in_no_format_or_in_two_has_no_dialect(messages):
    """H1: no block rather than one in the wrong shape."""
    assert find_dialect(messages) is None


def test_of_a_long_list_the_beginning_and_the_end_are_read():
    """R2: what is read does not grow with the list."""
    read: list[int] = []

    class Noted(dict[str, object]):
        def get(self, name, default=None):
            read.append(int(str(self["number"])))
            return super().get(name, default)

    messages = [Noted(role="user", content="hi", number=number) for number in range(100_000)]
    assert find_dialect(messages) is not None
    assert set(read) == {*range(20), *range(99_800, 100_000)}


@pytest.mark.parametrize("at", [0, 19, -1, -200])
@pytest.mark.parametrize("telling, name", [(RESPONSES_USER, "openai_responses"), (ANTHROPIC_RESULT, "anthropic")])
def test_a_telling_message_at_either_end_is_seen(at, telling, name):
    """H1: no block rather than one in the wrong shape."""
    messages: list[object] = [USER] * 1000
    messages[at] = telling
    found = find_dialect(messages)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("name", NAMES)
def test_a_named_dialect_is_not_doubted(name):
    """H1: the host knows what it speaks."""
    assert find_dialect([USER], named=name) is get_dialect(name)
    assert find_dialect([USER, GEMINI_USER], named=name) is DIALECTS[name]


def test_a_name_that_is_none_is_answered_with_the_choices():
    """§2: a message tells what happened, then what to do."""
    choices = "openai_chat, openai_responses, anthropic, gemini, bedrock, langchain"
    with pytest.raises(InvalidInput, match=rf"'cohere'.* {choices}"):
        get_dialect("cohere")
    assert find_dialect([USER], named="cohere") is None


@pytest.mark.parametrize(
    "later, name",
    [
        ([USER], "openai_chat"),
        ([TOOL_CALL], "openai_chat"),
        ([object()], "openai_chat"),
        ([CALL_ITEM], "openai_responses"),
        ([{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}, ANTHROPIC_RESULT], "anthropic"),
        ([LANGCHAIN_CALL, {"type": "tool", "tool_call_id": "a", "content": "x"}], "langchain"),
    ],
)
def test_a_list_that_could_be_anything_shows_itself_later(later, name):
    """H1: the next hand-over has the shape of what the model has answered."""
    begun = find_dialect([USER])
    assert begun is not None
    followed = follow_dialect(begun, [USER, *later])
    assert followed is not None
    assert followed.name == name


def test_a_list_in_two_formats_gets_no_block():
    """H1: no block rather than one in the wrong shape."""
    assert follow_dialect(get_dialect("openai_chat"), [TOOL_CALL, ANTHROPIC_RESULT]) is None


def test_following_looks_at_the_newest_only():
    """R2: a host's step costs the same in a list of a hundred thousand messages."""
    chat = get_dialect("openai_chat")
    assert follow_dialect(chat, [CALL_ITEM, *[USER] * 100]) is chat


@pytest.mark.parametrize("at", [0, 60, 119])
@pytest.mark.parametrize("telling", [TOOL_CALL, CALL_ITEM, ANTHROPIC_RESULT])
def test_one_message_decides_the_format_among_many_plain_ones(telling: dict[str, object], at: int):
    """R2: of plain messages one a role is looked at, so that a long conversation costs its turns little."""
    plain = [{"role": ("user", "assistant")[place % 2], "content": f"line {place}"} for place in range(119)]
    assert find_dialect([*plain[:at], telling, *plain[at:]]) is find_dialect([telling])


def test_a_plain_message_of_another_role_is_looked_at():
    """R2: Anthropic's messages have no tool's role, however many users spoke before."""
    results = [ANTHROPIC_RESULT, *([USER] * 5), {"role": "tool", "content": "x"}]
    assert find_dialect(results) is None
