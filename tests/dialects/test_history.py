"""Properties of every format, for long and unusual lists."""

import copy
from collections.abc import Sequence

import pytest
from histories import NAMES, RESULTS, Turn, histories, turns, write
from hypothesis import given, settings
from hypothesis import strategies as st

from afterturn.dialects import DIALECTS, find_dialect, follow_dialect, get_dialect
from afterturn.dialects.history import (
    comprehensive_history,
    curated,
    find_exchange,
    find_latest_user,
    find_point,
    find_safe_cuts,
)
from afterturn.text import content_hash

LONG = 100_000
formats = pytest.mark.parametrize("name", NAMES)
some = settings(max_examples=40)


def keep(text: str) -> str:
    return text


class Counted(Sequence[object]):
    """A list that counts how many of its elements are touched."""

    def __init__(self, messages: list[object]) -> None:
        self.messages = messages
        self.touched = 0

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, at):
        found = self.messages[at]
        self.touched += len(found) if isinstance(at, slice) else 1
        return found


QUESTION, ANSWER, STRANGER, TOOL = "question", "answer", "stranger", "tool"
fillings = pytest.mark.parametrize("filling", [QUESTION, ANSWER, STRANGER, TOOL])


def filled(name: str, filling: str) -> list[object]:
    before = write(name, [Turn("said before", answer="answered before")])
    return [{QUESTION: before[0], ANSWER: before[1], STRANGER: None, TOOL: RESULTS[name]}[filling]] * LONG


@formats
@fillings
def test_a_hand_over_looks_at_the_tail_only(name, filling):
    """R2: a host's step costs the same in a list of a hundred thousand messages."""
    messages = Counted([*filled(name, filling), write(name, [Turn("question")])[0]])
    find_point(get_dialect(name), messages)
    follow_dialect(get_dialect(name), messages)
    assert messages.touched <= 1100


@formats
@fillings
def test_a_turn_reads_no_more_than_its_own_tail(name, filling):
    """C4: recording a turn does not read the conversation before it."""
    messages = Counted([*filled(name, filling), *write(name, [Turn("question", answer="answer")])])
    assert find_latest_user(get_dialect(name), messages, keep) == (LONG, "question")
    found = find_exchange(get_dialect(name), messages, content_hash("question"), keep)
    assert [message.text for message in found.messages] == ["question", "answer"]
    assert found.ends_complete
    assert messages.touched < 20


@formats
@fillings
def test_a_message_that_is_gone_is_not_looked_for_without_end(name, filling):
    """C1: a rewritten list is searched as far back as a turn may reach."""
    messages = Counted(filled(name, filling))
    assert find_exchange(get_dialect(name), messages, content_hash("gone"), keep).messages == ()
    assert messages.touched <= 10_000


@formats
@some
@given(data=st.data())
def test_the_hosts_objects_are_never_edited(name, data):
    """H3: everything is read, nothing is changed."""
    dialect, messages = get_dialect(name), data.draw(histories(name))
    before = copy.deepcopy(messages)
    find_exchange(dialect, messages, content_hash("x"), str.upper)
    find_latest_user(dialect, messages, str.upper)
    find_point(dialect, messages)
    for message in messages:
        dialect.merged(message, "BLOCK")
    assert messages == before


@some
@given(data=st.data())
def test_one_story_reads_alike_in_every_format(data):
    """C1, C6: who said what, in which order, and what the tools gave."""
    script = data.draw(turns())
    told = []
    for name in NAMES:
        read = [get_dialect(name).read(message) for message in write(name, script)]
        said = [message for element in read if element is not None for message in element.messages]
        # A blank result is written as a dash where a format wants text.
        told.append([(one.role, one.text) for one in said if one.text.strip() not in ("", "-")])
    assert told == [told[0]] * len(NAMES)


odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from("user assistant tool model system message text tool_use tool_result function_call".split())
    | st.sampled_from("function_call_output reasoning input_text output_text thinking".split())
    | st.sampled_from("human ai remove chat AIMessageChunk non_standard query default".split()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "role content tool_calls id text type tool_call_id parts call_id output tool_use_id name response "
                "function_call function_response functionResponse thought audio source execution toolUse toolUseId "
                "toolResult json guardContent qualifiers cachePoint citationsContent image document value "
                "invalid_tool_calls additional_kwargs lc_source response_metadata refusal".split()
            ),
            inner,
        )
    ),
    max_leaves=14,
)


@formats
@given(messages=st.lists(odd, max_size=6))
def test_no_list_makes_a_dialect_raise(name, messages):
    """§2: turn verbs never raise for what a host puts in its list."""
    dialect = DIALECTS[name]
    find_dialect(messages)
    find_latest_user(dialect, messages, keep)
    find_point(dialect, messages)
    for message in messages:
        dialect.merged(message, "BLOCK")
    found = find_exchange(dialect, messages, content_hash(""), keep)
    assert all(message.text.strip() for message in found.messages)
    assert comprehensive_history(messages) == messages
    assert len(curated(dialect, messages)) <= len(messages)
    assert len(find_safe_cuts(dialect, messages)) < max(len(messages), 1)


@pytest.mark.parametrize("cleared", [-1, True, "8", None])
def test_a_count_of_cleared_tool_uses_that_is_none_is_no_compaction(cleared: object) -> None:
    """H7: only a number above 0 reports one."""
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Done."}],
        "context_management": {"applied_edits": [{"cleared_tool_uses": cleared}]},
    }
    element = DIALECTS["anthropic"].read(message)
    assert element is not None
    assert element.compacted == 0
