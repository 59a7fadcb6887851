"""Gemini's contents, as dictionaries and as the client library's objects."""

import copy

import pytest
from client_libraries import types

from afterturn.dialects.dialect import Utterance
from afterturn.dialects.gemini import Gemini
from afterturn.dialects.history import find_latest_user, find_point
from afterturn.types import HandoverPoint

GEMINI = Gemini()


def user(*parts) -> dict:
    return {"role": "user", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def model(*parts) -> dict:
    return user(*parts) | {"role": "model"}


def call(name: str, id: str | None = None) -> dict:
    return {"function_call": {"id": id, "name": name, "args": {}}}


def response(name: str, value="done") -> dict:
    return {"function_response": {"name": name, "response": {"result": value}}}


IMAGE = {"inline_data": {"mime_type": "image/png", "data": "iVBO"}}
THOUGHT = {"text": "hm", "thought": True}


@pytest.mark.parametrize("shape", [dict, types.Content.model_validate], ids=["dictionaries", "objects"])
@pytest.mark.parametrize(
    "contents, point",
    [
        ([user("hi")], HandoverPoint.USER_MESSAGE),
        ([user("hi"), model(THOUGHT, call("f"))], None),
        ([user("hi"), model(call("f", "id-1")), user(response("f"))], HandoverPoint.TOOL_RESULT),
        ([user("hi"), model(call("f"), call("f")), user(response("f"))], None),
        ([user("hi"), model(call("f"), call("f")), user(response("f"), response("f"))], HandoverPoint.TOOL_RESULT),
        (
            [user("hi"), model(call("f"), call("g")), user(response("g")), user(response("f"))],
            HandoverPoint.TOOL_RESULT,
        ),
        ([user("hi"), model(call("f")), {"role": "tool", "parts": [response("f")]}], HandoverPoint.TOOL_RESULT),
        ([user("hi"), model(call("f")), user(response("f"), "and hurry")], HandoverPoint.USER_MESSAGE),
        ([user("hi"), model("hello")], None),
        ([{"parts": [{"text": "hi"}]}], HandoverPoint.USER_MESSAGE),
    ],
)
def test_a_block_goes_after_the_user_or_after_all_responses(contents, point, shape):
    """H1: calls go by their tool's name, for hosts leave ids out of responses."""
    assert find_point(GEMINI, [shape(content) for content in contents]) is point


@pytest.mark.parametrize(
    "content, said",
    [
        (user("one", "two"), [Utterance("user", "one\ntwo")]),
        (user("one", IMAGE), [Utterance("user", ""), Utterance("user", "one")]),
        (user(IMAGE), [Utterance("user", "")]),
        (user(), [Utterance("user", "")]),
        ({"role": "user", "parts": ["one"]}, [Utterance("user", "one")]),
        (user(None, 7, {"hologram": 1}, "rest"), [Utterance("user", ""), Utterance("user", "rest")]),
        (model(THOUGHT, "It is ", "raining."), [Utterance("assistant", "It is raining.")]),
        (model("Look:", IMAGE, "a cat"), [Utterance("assistant", "Look:\na cat")]),
        (model(THOUGHT), [Utterance("assistant", "")]),
        (model(IMAGE), []),
        (model(call("f")), []),
        (user(response("f"), "go on"), [Utterance("tool", "done"), Utterance("user", "go on")]),
        (user(response("f", {"a": [1, "ü"]})), [Utterance("tool", '{"a": [1, "ü"]}')]),
        (
            user({"functionResponse": {"name": "f", "response": {"a": 1, "b": 2}}}),
            [Utterance("tool", '{"a": 1, "b": 2}')],
        ),
        (user({"functionResponse": {"name": "f"}}), [Utterance("tool", "")]),
    ],
)
def test_a_content_is_read_as_a_person_would_read_it(content, said):
    """C1, C6: thoughts, images and files give no text; responses are the tools'."""
    read = GEMINI.read(content)
    assert read is not None
    assert list(read.utterances) == said


@pytest.mark.parametrize("content", [{"role": "user", "content": "hi"}, {"role": "user"}, {"role": "x", "parts": []}])
def test_another_formats_message_is_not_read(content):
    """C1: nothing is guessed."""
    assert GEMINI.read(content) is None


def test_a_response_that_cannot_be_serialised_is_blank(caplog):
    """§2: no host's object fails a turn."""
    circle: dict[str, object] = {"a": 1}
    circle["self"] = circle
    read = GEMINI.read(user({"function_response": {"name": "f", "response": circle}}))
    assert read is not None
    assert (read.utterances, read.answers) == ((Utterance("tool", ""),), ("f",))
    assert "could not be read" in caplog.text


def test_a_block_merged_into_responses_is_ours_and_not_the_users():
    """C5, R1: the user's words are looked for behind it."""
    merged = GEMINI.merged(user(response("f")), "BLOCK")
    assert merged == user(response("f"), "BLOCK")
    contents = [user("question"), model(call("f")), merged]
    assert find_latest_user(GEMINI, contents, lambda text: text.replace("BLOCK", "")) == (0, "question")


@pytest.mark.parametrize("content", [user("hi"), user(response("f")), user(IMAGE)])
def test_a_merged_object_is_a_copy(content):
    """H3: with a part of the library's own class at its end."""
    whole = types.Content.model_validate(content)
    before = copy.deepcopy(whole)
    merged = GEMINI.merged(whole, "BLOCK")
    assert isinstance(merged, types.Content)
    assert merged.parts is not None
    assert merged.parts[-1] == types.Part(text="BLOCK")
    assert whole == before


def test_the_models_words_are_not_extended():
    """H1: a block is the user's."""
    assert GEMINI.merged(model("x"), "BLOCK") is None
    assert GEMINI.merged(types.Content(role="user", parts=None), "BLOCK") is None
    assert GEMINI.merged({"role": "user", "parts": "no list"}, "BLOCK") is None
