"""The three things a review may do, and how a model's call of them is read."""

import json

import pytest

from afterturn.errors import InvalidInput
from afterturn.learning.changes import Action, Change, read_answer, read_call, schema, tools
from afterturn.types import Target


def test_there_are_three_tools() -> None:
    """V3: add, update and delete, and nothing else, natively and by schema."""
    names = [tool["function"]["name"] for tool in tools()]

    assert names == ["add_memory", "update_memory", "delete_memory"]
    assert schema(5)["properties"]["operations"]["items"]["properties"]["operation"]["enum"] == names
    assert schema(5)["properties"]["operations"]["maxItems"] == 5


def test_a_call_is_read() -> None:
    """V3: arguments come as JSON text or as an object; messages are counted from 1."""
    arguments = {"text": "Prefers tea", "target": "user", "kind": "preference", "messages": [2, "3", 2]}
    change = Change(Action.ADD, "Prefers tea", Target.USER, "preference", messages=(1, 2))

    assert read_call("add_memory", arguments) == change
    assert read_call("add_memory", json.dumps(arguments)) == change
    assert read_call("delete_memory", {"id": "abc1", "messages": [1]}) == Change(
        Action.DELETE, entry_id="abc1", messages=(0,)
    )


def test_memory_is_an_older_name_of_environment() -> None:
    """V6: the target `memory` is accepted."""
    assert read_call("add_memory", {"text": "x", "target": "memory", "messages": [1]}).target is Target.ENVIRONMENT


@pytest.mark.parametrize(
    "name, arguments, wrong",
    [
        ("run_shell", {"command": "rm -rf /"}, "The tools are add_memory, update_memory, delete_memory"),
        (None, {}, "The tools are add_memory"),
        ("add_memory", "{not json", "not valid JSON"),
        ("add_memory", "[1]", "one JSON object"),
        ("add_memory", {"target": "user"}, "`text`"),
        ("add_memory", {"text": "  ", "target": "user"}, "`text`"),
        ("add_memory", {"text": "x", "target": "everyone"}, "`target`"),
        ("update_memory", {"id": "abc", "text": ""}, "`text`"),
        ("update_memory", {"text": "x"}, "`id`"),
        ("add_memory", {"text": "x", "target": "user", "messages": ["first"]}, "`messages`"),
        ("add_memory", "x" * 70_000, "Be brief"),
        ("add_memory", "[" * 30_000, "not valid JSON"),
    ],
)
def test_a_malformed_call_is_refused_with_what_is_wrong(name: object, arguments: object, wrong: str) -> None:
    """V3, V12: another tool, missing fields, blank rewrites and broken JSON are told to the model."""
    with pytest.raises(InvalidInput, match=wrong):
        read_call(name, arguments)


@pytest.mark.parametrize(
    "answer",
    [
        '{"operations": [{"operation": "delete_memory", "id": "abc", "messages": [1]}]}',
        'Sure:\n```json\n{"operations": [{"operation": "delete_memory", "id": "abc", "messages": [1]}]}\n```',
        '<think>{"operations": []}</think>{"operations": [{"name": "delete_memory", '
        '"arguments": {"id": "abc", "messages": [1]}}]}',
        '{"name": "delete_memory", "parameters": {"id": "abc", "messages": [1]}}',
        '[{"operation": "delete_memory", "id": "abc", "messages": [1]}]',
    ],
)
def test_operations_are_found_in_whatever_way_a_small_model_writes_them(answer: str) -> None:
    """V12: bare JSON, in a fence, after thoughts, as a call that was written out."""
    ((name, arguments),) = read_answer(answer)

    assert read_call(name, arguments) == Change(Action.DELETE, entry_id="abc", messages=(0,))


@pytest.mark.parametrize("answer", ["", "I saved it.", "{", '{"operations": "all"}', "[1, 2]", "{" * 5_000])
def test_what_is_no_answer_is_refused(answer: str) -> None:
    """V12: an answer without operations can not be used, and costs little to refuse."""
    with pytest.raises(InvalidInput):
        read_answer(answer)
