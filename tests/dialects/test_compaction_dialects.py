"""Compacted histories are still valid for each provider, by its client library's own types (K1)."""

import copy
from typing import Any

import pytest
from client_libraries import as_objects, parsed
from histories import NAMES, broken_histories, histories, unpaired, write
from histories import turns as scripts
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from afterturn.conversation.compactor import (
    CompactionPlan,
    StateSnapshot,
    element_tokens,
    plan,
    read_contents,
    rebuild,
    write_request,
)
from afterturn.dialects.history import find_point, get_dialect

SHORT = StateSnapshot("x", "y", "None.", "z", "[TODO] w")
BLOCK = "<afterturn-memory>\n## Relevant Memory\n- [m1] yesterday, user: Miso is my cat\n</afterturn-memory>"
TINY = 1
by_dialect = pytest.mark.parametrize("name", NAMES)


def with_blocks(name: str, messages: list[Any], places: list[bool]) -> list[Any]:
    """As a turn would have left them: at some of the points where a block may go."""
    dialect = get_dialect(name)
    filled: list[Any] = []
    for at, message in enumerate(messages):
        filled.append(message)
        if places[at % len(places)] and find_point(dialect, filled) is not None:
            filled.append(dialect.make_message("user", BLOCK))
    return filled


def with_padding(messages: list[Any], dialect: Any) -> list[Any]:
    """So long a beginning that any summary is shorter."""
    return [dialect.make_message("user", "word " * 300), dialect.make_message("assistant", "Yes."), *messages]


@by_dialect
@settings(max_examples=30)
@given(st.data())
def test_a_compacted_history_is_what_the_provider_takes(name, data):
    """K1, H1: it parses, every call is directly followed by its responses, and blocks stand where they stood."""
    dialect = get_dialect(name)
    places = data.draw(st.lists(st.booleans(), min_size=1, max_size=5))
    messages = with_padding(with_blocks(name, data.draw(histories(name, system=False)), places), dialect)
    planned = plan(dialect, messages, limit_tokens=TINY)
    assert isinstance(planned, CompactionPlan)
    compacted = rebuild(dialect, messages, planned, SHORT)
    assert compacted.changed
    parsed(name, compacted.messages)
    assert unpaired(name, compacted.messages) == []
    tail = messages[planned.cut :]
    assert compacted.messages[-len(tail) :] == tail
    assert tail[0] != dialect.make_message("user", BLOCK)


@by_dialect
@settings(max_examples=30)
@given(st.data())
def test_a_client_librarys_objects_are_cut_where_mappings_are(name, data):
    """K1: hosts append what their client gave them."""
    dialect = get_dialect(name)
    messages = with_padding(write(name, data.draw(scripts())), dialect)
    objects = [*messages[:2], *as_objects(name, messages[2:])]
    assert [element_tokens(dialect, one) for one in objects] == [element_tokens(dialect, one) for one in messages]
    planned = plan(dialect, messages, limit_tokens=TINY)
    assert isinstance(planned, CompactionPlan)
    assert plan(dialect, objects, limit_tokens=TINY) == planned
    request = write_request(dialect, objects, planned, limit_tokens=10_000)
    assert request == write_request(dialect, messages, planned, limit_tokens=10_000)


@by_dialect
@settings(max_examples=30)
@given(st.data())
def test_a_broken_history_raises_nothing_and_is_not_edited(name, data):
    """K1, K2: what nobody can read is not summarised, and stays where it is kept."""
    dialect = get_dialect(name)
    messages = data.draw(broken_histories(name))
    original = copy.deepcopy(messages)
    planned = plan(dialect, messages, limit_tokens=TINY)
    assume(isinstance(planned, CompactionPlan))
    assert isinstance(planned, CompactionPlan)
    request = write_request(dialect, messages, planned, limit_tokens=10_000)
    assert "note" not in request[1]["content"]
    compacted = rebuild(dialect, messages, planned, SHORT)
    assert messages == original
    if compacted.changed:
        tail = messages[planned.cut :]
        assert all(ours is theirs for ours, theirs in zip(compacted.messages[-len(tail) :], tail, strict=True))


@by_dialect
@settings(max_examples=30)
@given(st.data())
def test_shown_memories_and_calls_are_counted(name, data):
    """K1: pictures, files and calls are no text, and cost a model something."""
    dialect = get_dialect(name)
    script = data.draw(scripts(turns_max=1))
    messages = write(name, script)
    held = [read_contents(message) for message in messages]
    turn = script[0]
    assert sum(len(one.shown) for one in held) == turn.image + turn.file
    assert [call.name for one in held for call in one.calls] == [
        call.tool for step in turn.steps for call in step.calls
    ]
    assert element_tokens(dialect, messages[0]) > 1_000 * (turn.image + turn.file)
