"""A cached dialect gives what the format itself would read, and reads what has not changed once."""

import copy
from typing import Any

import pytest
from histories import histories
from hypothesis import given
from hypothesis import strategies as st

from afterturn.dialects.dialect import CachedDialect, Element
from afterturn.dialects.history import DIALECTS, get_dialect
from afterturn.dialects.openai_chat import OpenAIChat


class CountingChat(OpenAIChat):
    def __init__(self) -> None:
        self.reads = 0

    def read(self, message: object) -> Element | None:
        self.reads += 1
        return super().read(message)


class Parted:
    """A client library's message."""

    role = "user"

    def __init__(self, *parts: dict[str, str]) -> None:
        self.content = list(parts)


def call(id: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "function": {"name": "look"}}]}


@pytest.mark.parametrize("name", ["openai_chat", "openai_responses", "anthropic", "gemini", "bedrock", "langchain"])
@given(data=st.data())
def test_whatever_is_edited_in_place_is_read_as_the_format_reads_it(name: str, data: st.DataObject) -> None:
    dialect = get_dialect(name)
    cached = CachedDialect(dialect)
    # A copy, because the strategies share constants.
    messages = copy.deepcopy(data.draw(histories(name)))
    for _ in range(3):
        assert [cached.read(one) for one in messages] == [dialect.read(one) for one in messages]
        for message in data.draw(st.lists(st.sampled_from(messages), max_size=3)):
            _edit(message, data)


def _edit(value: Any, data: st.DataObject) -> None:
    """Changes one thing in nested dictionaries and lists, at any depth."""
    if not isinstance(value, dict | list):
        return
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys or data.draw(st.integers(0, 4)) == 0:
        if isinstance(value, list):
            value.append({"type": "tool_result", "text": "added"})
        else:
            value["annotations"] = [{"type": "url_citation"}]
        return
    key = data.draw(st.sampled_from(keys))
    if isinstance(value[key], dict | list):
        _edit(value[key], data)
    else:
        value[key] = data.draw(st.sampled_from(["user", "assistant", "tool", "other", None, 7]))


def test_known_messages_are_not_read_again() -> None:
    chat = CountingChat()
    cached = CachedDialect(chat)
    messages: list[object] = [{"role": "user", "content": "Hello"}, call("1"), {"role": "tool", "content": "42"}]
    first = [cached.read(message) for message in messages]
    assert [cached.read(message) for message in messages] == first
    assert chat.reads == 3


def test_a_plain_message_that_is_built_again_is_not_read_again() -> None:
    """Hosts build their lists again from their own records."""
    chat = CountingChat()
    cached = CachedDialect(chat)
    assert cached.read({"role": "user", "content": "Hello"}) is cached.read({"role": "user", "content": "Hello"})
    assert chat.reads == 1


def test_an_object_is_read_again_and_keeps_what_was_derived_from_it() -> None:
    cached, message = CachedDialect(get_dialect("openai_chat")), Parted({"type": "text", "text": "Hello"})
    first = cached.read(message)
    assert cached.read(message) is first
    message.content.append({"type": "image_url"})
    assert (element := cached.read(message)) is not None
    assert element.is_untrusted


def test_a_value_that_refuses_to_be_compared_is_read_again() -> None:
    class Refusing:
        def __eq__(self, other: object) -> bool:
            raise ValueError("no")

        __hash__ = None  # type: ignore[assignment]

    cached = CachedDialect(get_dialect("openai_chat"))
    message: dict[str, object] = {"role": "user", "content": "Hello", "name": "ada"}
    assert cached.read(message) is not None
    message["content"] = Refusing()
    assert (element := cached.read(message)) is not None
    assert element.text_of("user") == ""


def test_other_messages_are_forgotten_when_they_are_the_most() -> None:
    chat = CountingChat()
    cached = CachedDialect(chat)
    older, newer = [call(str(id)) for id in range(3)], [call("new")]
    for message in (*older, *newer):
        cached.read(message)
    cached.keep([])
    assert [cached.read(message) for message in older]
    assert chat.reads == 4
    cached.keep(newer)
    chat.reads = 0
    for message in (*newer, *older):
        cached.read(message)
    assert chat.reads == len(older)


def test_what_was_read_is_recognised_as_before() -> None:
    cached, message = CachedDialect(DIALECTS["openai_chat"]), {"type": "reasoning", "id": "r1", "summary": []}
    assert cached.recognises(message) is False
    cached.read(message)
    assert cached.recognises(message) is False
