"""Anthropic's messages, as dictionaries and as the client library's objects."""

import pytest
from client_libraries import anthropic_message

from afterturn.dialects.anthropic import Anthropic
from afterturn.dialects.dialect import Utterance
from afterturn.dialects.history import find_exchange, find_latest_user, find_point
from afterturn.text import content_hash
from afterturn.types import HandoverPoint

ANTHROPIC = Anthropic()


def keep(text: str) -> str:
    return text


def strip(text: str) -> str:
    return text.replace("BLOCK", "")


def user(*content) -> dict:
    return {"role": "user", "content": [text(one) if isinstance(one, str) else one for one in content]}


def assistant(*content) -> dict:
    return user(*content) | {"role": "assistant"}


def text(said: str) -> dict:
    return {"type": "text", "text": said}


def tool_use(id: str) -> dict:
    return {"type": "tool_use", "id": id, "name": "f", "input": {}}


def result(id: str, content="done") -> dict:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
SEARCHING = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}


@pytest.mark.parametrize(
    "messages, point",
    [
        ([user("hi")], HandoverPoint.USER_MESSAGE),
        ([user("hi"), assistant(THINKING, tool_use("a"))], None),
        ([user("hi"), assistant(tool_use("a")), user(result("a"))], HandoverPoint.TOOL_RESULT),
        ([user("hi"), assistant(tool_use("a"), tool_use("b")), user(result("b"))], None),
        (
            [user("hi"), assistant(tool_use("a"), tool_use("b")), user(result("b")), user(result("a"))],
            HandoverPoint.TOOL_RESULT,
        ),
        (
            [user("hi"), assistant(tool_use("a"), tool_use("b")), user(result("b"), result("a"))],
            HandoverPoint.TOOL_RESULT,
        ),
        ([user("hi"), assistant(tool_use("a")), user(result("a"), "and hurry")], HandoverPoint.USER_MESSAGE),
        ([user("hi"), assistant(tool_use("a")), user("wait")], None),
        ([user("hi"), assistant(SEARCHING, "found"), user("and?")], HandoverPoint.USER_MESSAGE),
        ([user("hi"), {"role": "system", "content": "be brief"}], HandoverPoint.USER_MESSAGE),
    ],
)
def test_a_block_goes_after_the_user_or_after_all_results(messages, point):
    """H1: results may come in one message or in several."""
    assert find_point(ANTHROPIC, messages) is point


@pytest.mark.parametrize(
    "message, said",
    [
        ({"role": "user", "content": "hi"}, [Utterance("user", "hi")]),
        (user("one", "two"), [Utterance("user", "one\ntwo")]),
        (user(IMAGE, "what?"), [Utterance("user", ""), Utterance("user", "what?")]),
        (user(IMAGE), [Utterance("user", "")]),
        (user(), [Utterance("user", "")]),
        (user(None, 7, {"type": "text"}, "rest"), [Utterance("user", ""), Utterance("user", "rest")]),
        (
            user(result("a", "x"), result("b", [text("y"), IMAGE, text("z")])),
            [Utterance("tool", "x"), Utterance("tool", "y\nz")],
        ),
        (user(result("a"), "and hurry"), [Utterance("tool", "done"), Utterance("user", "and hurry")]),
        (assistant(THINKING, "answer"), [Utterance("assistant", "answer")]),
        (assistant("It is ", "raining."), [Utterance("assistant", "It is raining.")]),
        (assistant("Let me see.", SEARCHING, "Yes."), [Utterance("assistant", "Let me see.\nYes.")]),
        (assistant(THINKING), [Utterance("assistant", "")]),
        (assistant(tool_use("a")), []),
        (assistant(SEARCHING), []),
        ({"role": "system", "content": [text("be brief")]}, [Utterance("system", "be brief")]),
    ],
)
def test_a_message_is_read_as_a_person_would_read_it(message, said):
    """C1, C6: thinking, images and files give no text; results are the tools', whatever their message's role."""
    read = ANTHROPIC.read(message)
    assert read is not None
    assert list(read.utterances) == said


def test_the_clients_message_reads_as_its_blocks_do():
    """C1: hosts append the response as it is, or its content."""
    blocks = [THINKING, text("Let me see."), tool_use("a")]
    message = anthropic_message(blocks)
    assert ANTHROPIC.read(message) == ANTHROPIC.read(assistant(*blocks))
    assert ANTHROPIC.read({"role": "assistant", "content": message.content}) == ANTHROPIC.read(assistant(*blocks))


def test_results_are_not_what_the_user_said():
    """R1, R6: the latest user message is looked for behind them; a picture alone is not looked past."""
    messages = [user("question"), assistant(tool_use("a")), user(result("a"), "BLOCK")]
    assert find_latest_user(ANTHROPIC, messages, strip) == (0, "question")
    assert find_latest_user(ANTHROPIC, [*messages, assistant("x"), user(IMAGE, "BLOCK")], strip) is None


def test_a_turn_begins_with_its_users_words():
    """C1, C5: not with the results of an earlier turn in the same message, and our block is no part of it."""
    messages = [user("old"), assistant(tool_use("a")), user(result("a"), "never mind", "BLOCK"), assistant("fine")]
    found = find_exchange(ANTHROPIC, messages, content_hash("never mind"), strip)
    assert [(message.role, message.text.strip()) for message in found.messages] == [
        ("user", "never mind"),
        ("assistant", "fine"),
    ]
    assert found.ends_complete


@pytest.mark.parametrize(
    "message, merged",
    [
        ({"role": "user", "content": "hi"}, {"role": "user", "content": "hi\n\nBLOCK"}),
        (user(result("a")), user(result("a"), "BLOCK")),
        (user(IMAGE), user(IMAGE, "BLOCK")),
        (assistant("no"), None),
        ({"role": "user", "content": ""}, None),
    ],
)
def test_a_block_is_merged_after_the_results(message, merged):
    """H1: they stay in front, as the format demands."""
    assert ANTHROPIC.merged(message, "BLOCK") == merged


def test_nothing_is_taken_out_of_a_text_that_has_no_block():
    """C1: verbatim."""
    messages = [user("  padded  "), assistant(" said ")]
    found = find_exchange(ANTHROPIC, messages, content_hash("padded"), keep)
    assert [message.text for message in found.messages] == ["  padded  ", " said "]
