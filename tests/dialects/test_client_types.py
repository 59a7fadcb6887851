"""Histories with an afterturn block are still valid for the client libraries."""

import copy
from typing import Any

import pytest
from client_libraries import TOOLS, as_objects, parsed
from histories import NAMES, Call, Step, Turn, histories, unpaired, write
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from afterturn.dialects import Dialect, ToolDefinition, find_dialect, get_dialect
from afterturn.dialects.history import find_point, has_open_call
from afterturn.types import HandoverPoint

BLOCK = "<afterturn-memory>\n## Relevant Memory\n</afterturn-memory>"
some = settings(max_examples=60)
formats = pytest.mark.parametrize("name", NAMES)


@formats
def test_the_checks_refuse_what_a_provider_refuses(name):
    """H1: a block between a call and its response is seen, and so is one in another format's shape."""
    messages = write(name, [Turn("Hello", steps=(Step("", (Call("a", "search", "x"),)),))])
    dialect = get_dialect(name)
    opened = next(at for at in range(len(messages)) if has_open_call(dialect, messages[:at]))
    assert unpaired(name, [*messages[:opened], dialect.make_message("user", BLOCK), *messages[opened:]]) != []
    with pytest.raises((ValidationError, TypeError)):
        parsed(name, [*messages, {"role": "user", "content": [{"type": "memory", "text": BLOCK}]}])


def points(dialect: Dialect, messages: list[Any]) -> list[tuple[int, HandoverPoint]]:
    found = [(at, find_point(dialect, messages[:at])) for at in range(len(messages) + 1)]
    return [(at, point) for at, point in found if point is not None]


@formats
@some
@given(data=st.data())
def test_a_block_at_any_point_leaves_calls_and_responses_together(name, data):
    """H1: as an element of its own, and merged into the one before it."""
    dialect = get_dialect(name)
    messages = data.draw(histories(name))
    before = copy.deepcopy(messages)
    assert unpaired(name, messages) == []
    for at, _ in points(dialect, messages):
        appended = [*messages[:at], dialect.make_message("user", BLOCK), *messages[at:]]
        parsed(name, appended)
        assert unpaired(name, appended) == []
        merged = dialect.merged(messages[at - 1], BLOCK)
        if merged is not None:
            replaced = [*messages[: at - 1], merged, *messages[at:]]
            parsed(name, replaced)
            assert unpaired(name, replaced) == []
    assert messages == before


@formats
@some
@given(data=st.data())
def test_every_place_where_no_call_is_open_and_the_model_speaks_next_is_a_point(name, data):
    """H1: each model call is preceded by one, whether a user or a tool had the word."""
    dialect = get_dialect(name)
    messages = data.draw(histories(name))
    found = dict(points(dialect, messages))
    for at in range(1, len(messages)):
        read = [dialect.read(message) for message in messages[at - 1 : at + 1]]
        roles = [element.role for element in read if element is not None]
        if roles[0] != "assistant" and roles[1] == "assistant" and not unpaired(name, messages[:at]):
            assert at in found
    assert not any(has_open_call(dialect, messages[:at]) for at in found)
    assert all(unpaired(name, messages[:at]) == [] for at in found)


@formats
@some
@given(data=st.data())
def test_the_clients_own_objects_read_as_their_dictionaries_do(name, data):
    """C1: what a host appends is what its client gave it."""
    dialect = get_dialect(name)
    messages = data.draw(histories(name))
    objects = as_objects(name, messages)
    assert [dialect.read(message) for message in objects] == [dialect.read(message) for message in messages]
    assert points(dialect, objects) == points(dialect, messages)
    assert None not in [dialect.read(message) for message in messages]


@formats
@some
@given(data=st.data())
def test_a_generated_history_is_found_to_be_in_its_format(name, data):
    """H1: or in one whose messages are valid in it, while nothing in it tells them apart."""
    messages = data.draw(histories(name))
    found = find_dialect(as_objects(name, messages))
    assert found is not None
    if found.name != name:
        assert found.name == "openai_chat"
        assert [found.read(message) for message in messages] == [
            get_dialect(name).read(message) for message in messages
        ]
        parsed(name, [*messages, found.make_message("user", BLOCK)])


@some
@given(data=st.data())
def test_a_block_merged_into_geminis_own_objects_is_a_part_of_theirs(data):
    """H1, H3: a copy, which the client can send; the host's object stays as it was."""
    dialect = get_dialect("gemini")
    messages = as_objects("gemini", data.draw(histories("gemini")))
    before = copy.deepcopy(messages)
    for at, _ in points(dialect, messages):
        merged: Any = dialect.merged(messages[at - 1], BLOCK)
        assert type(merged) is type(messages[at - 1])
        assert merged.parts[-1].text == BLOCK
        assert merged.parts[:-1] == messages[at - 1].parts
        assert type(merged).model_validate(merged.model_dump()) == merged
    assert messages == before


DEFINITION = ToolDefinition(
    "search_memory",
    "Looks something up.",
    {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)


@formats
def test_a_tool_is_defined_as_the_client_wants_it(name):
    """A2: in each format's own schema."""
    tool = get_dialect(name).tool(DEFINITION)
    assert TOOLS[name].validate_python(tool)
    assert "search_memory" in str(tool)
