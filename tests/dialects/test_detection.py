"""Which format a list is in."""

from types import SimpleNamespace

import pytest

from afterturn.dialects import find_dialect

USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER],
        [{"role": "system", "content": "x"}],
        [USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}],
        [SimpleNamespace(role="assistant", content="hello")],
        [{"role": "user", "content": [{"type": "image_url"}, {"type": "video_url"}]}],
        [object(), USER],
    ],
)
def test_openai_chat_is_recognised(messages):
    """H1: dictionaries, objects, parts of any provider; a blank list speaks against nothing."""
    dialect = find_dialect(messages)
    assert dialect is not None
    assert dialect.name == "openai_chat"


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]}],
        [USER, {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}],
        [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        [{"role": "model", "parts": [{"text": "hi"}]}],
        ["just text"],
        [object()],
        [None],
    ],
)
def test_another_format_is_not_taken_for_it(messages):
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
def test_a_foreign_message_at_either_end_is_seen(at):
    """H1: no block rather than one in the wrong shape."""
    messages: list[object] = [USER] * 1000
    messages[at] = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    assert find_dialect(messages) is None
