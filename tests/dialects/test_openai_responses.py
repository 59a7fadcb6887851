"""Items of OpenAI's Responses API, as dictionaries and as the client library's objects."""

import pytest

from afterturn.dialects.dialect import Utterance
from afterturn.dialects.history import find_point, has_open_call
from afterturn.dialects.openai_responses import OpenAIResponses
from afterturn.types import HandoverPoint

RESPONSES = OpenAIResponses()
USER = {"role": "user", "content": "hi"}
REASONING = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}


def call(id: str, kind: str = "function_call") -> dict:
    return {"type": kind, "call_id": id, "name": "f", "arguments": "{}"}


def output(id: str, kind: str = "function_call_output") -> dict:
    return {"type": kind, "call_id": id, "output": "done"}


def answer(text: str) -> dict:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


@pytest.mark.parametrize(
    "items, point",
    [
        ([USER], HandoverPoint.USER_MESSAGE),
        ([USER, REASONING], None),
        ([USER, REASONING, call("a")], None),
        ([USER, call("a"), call("b"), output("a")], None),
        ([USER, REASONING, call("a"), REASONING, call("b"), output("b"), output("a")], HandoverPoint.TOOL_RESULT),
        ([USER, call("a"), output("a"), call("b"), output("b")], HandoverPoint.TOOL_RESULT),
        ([USER, answer("let me look"), call("a"), output("a")], HandoverPoint.TOOL_RESULT),
        ([USER, call("a"), answer("meanwhile"), USER], None),
        ([output("a")], HandoverPoint.TOOL_RESULT),
        ([USER, {"type": "web_search_call", "id": "w", "status": "completed"}, answer("found")], None),
        (
            [USER, {"type": "web_search_call", "id": "w", "status": "completed"}, answer("found"), USER],
            HandoverPoint.USER_MESSAGE,
        ),
        (
            [USER, {"type": "configuration_update"}, {"type": "additional_tools", "role": "developer"}],
            HandoverPoint.USER_MESSAGE,
        ),
        ([USER, {"type": "item_reference", "id": "x"}], None),
        ([USER, {"type": "some_new_call", "id": "x"}], None),
    ],
)
def test_a_block_goes_after_the_outputs_of_all_calls(items, point):
    """H1: of all that the model called in one go, in however many items; earlier ones may be the server's to keep."""
    assert find_point(RESPONSES, items) is point


@pytest.mark.parametrize(
    "asked, responded",
    [
        (call("a", "custom_tool_call"), output("a", "custom_tool_call_output")),
        (call("a", "computer_call"), {"type": "computer_call_output", "call_id": "a", "output": {"type": "x"}}),
        (call("a", "shell_call"), {"type": "shell_call_output", "call_id": "a", "output": [{"stdout": "done"}]}),
        (call("a", "apply_patch_call"), output("a", "apply_patch_call_output")),
        (
            {"type": "local_shell_call", "id": "l", "call_id": "a"},
            {"type": "local_shell_call_output", "id": "a", "output": "done"},
        ),
        (
            {"type": "mcp_approval_request", "id": "a"},
            {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
        ),
        (
            {"type": "tool_search_call", "execution": "client", "call_id": "a"},
            {"type": "tool_search_output", "execution": "client", "call_id": "a", "tools": []},
        ),
    ],
    ids=lambda item: item["type"],
)
def test_every_kind_of_call_waits_for_its_own_output(asked, responded):
    """H1: whatever the host is asked to do."""
    assert has_open_call(RESPONSES, [USER, asked])
    assert not has_open_call(RESPONSES, [USER, asked, responded])
    assert find_point(RESPONSES, [USER, asked, responded]) is HandoverPoint.TOOL_RESULT


@pytest.mark.parametrize("kind", ["web_search_call", "mcp_call", "code_interpreter_call", "tool_search_call"])
def test_a_call_that_the_server_runs_is_not_open(kind):
    """H1: it has answered it in the same response."""
    assert not has_open_call(RESPONSES, [USER, {"type": kind, "id": "x"}])


@pytest.mark.parametrize(
    "item, said",
    [
        (USER, [Utterance("user", "hi")]),
        ({"role": "developer", "content": "be kind"}, [Utterance("system", "be kind")]),
        (answer("one"), [Utterance("assistant", "one")]),
        (
            {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            [Utterance("assistant", "No.")],
        ),
        (
            {"role": "user", "content": [{"type": "input_image"}, {"type": "input_text", "text": "what?"}]},
            [Utterance("user", ""), Utterance("user", "what?")],
        ),
        ({"role": "user", "content": [{"type": "input_file"}]}, [Utterance("user", "")]),
        (
            {"role": "user", "content": [{"type": "hologram"}, {"type": "input_text", "text": "rest"}]},
            [Utterance("user", ""), Utterance("user", "rest")],
        ),
        (REASONING, []),
        (call("a"), []),
        (output("a"), [Utterance("tool", "done")]),
        (
            output("a") | {"output": [{"type": "input_text", "text": "x"}, {"type": "input_image"}]},
            [Utterance("tool", "x")],
        ),
        (
            {"type": "shell_call_output", "output": [{"stdout": "out", "stderr": "err"}]},
            [Utterance("tool", "out\nerr")],
        ),
    ],
)
def test_an_item_is_read_as_a_person_would_read_it(item, said):
    """C1, C6: reasoning, images and files give no text; outputs are the tools'."""
    read = RESPONSES.read(item)
    assert read is not None
    assert list(read.utterances) == said


@pytest.mark.parametrize(
    "item, merged",
    [
        (USER, {"role": "user", "content": "hi\n\nBLOCK"}),
        (
            {"role": "user", "content": [{"type": "input_image"}]},
            {"role": "user", "content": [{"type": "input_image"}, {"type": "input_text", "text": "BLOCK"}]},
        ),
        (output("a"), None),
        (answer("no"), None),
        ({"role": "user", "content": " "}, None),
        ({"role": "user", "content": []}, None),
        (None, None),
    ],
)
def test_a_block_is_merged_into_a_users_message_only(item, merged):
    """H1: an output has no place for one."""
    assert RESPONSES.merged(item, "BLOCK") == merged
