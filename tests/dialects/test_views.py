"""Deep copies of a history, and the positions at which it may be cut."""

import copy
import threading
from typing import Any

import pytest
from client_libraries import as_objects, parsed
from histories import EMPTY, NAMES, Call, Step, Turn, broken_histories, histories, unpaired, write
from hypothesis import given, settings
from hypothesis import strategies as st

import afterturn
from afterturn.dialects import get_dialect
from afterturn.dialects.history import comprehensive_history, curated, find_safe_cuts

some = settings(max_examples=40)
formats = pytest.mark.parametrize("name", NAMES)
HALF_ANSWERED = Step("Let me look.", (Call("a", "search", "one"), Call("b", "weather", None)), thinks=True)
TURN = Turn("Is it raining?", steps=(HALF_ANSWERED,), answer="Yes.", thinks=True)


@formats
@some
@given(data=st.data())
def test_a_valid_history_is_curated_as_it_is(name, data):
    """K2: and both views are copies, whatever is done to them."""
    messages = data.draw(histories(name))
    before = copy.deepcopy(messages)
    views: list[list[Any]] = [comprehensive_history(messages), curated(get_dialect(name), messages)]
    assert views == [messages, messages]
    for view in views:
        for message in view:
            for part in message.get("content") or message.get("parts") or []:
                if isinstance(part, dict):
                    part.clear()
            message.clear()
    assert messages == before


@formats
@some
@given(data=st.data())
def test_the_clients_objects_are_curated_too(name, data):
    """K2: as what they are."""
    messages = as_objects(name, data.draw(histories(name)))
    view = curated(get_dialect(name), messages)
    assert view == messages
    assert [type(message) for message in view] == [type(message) for message in messages]


@formats
@some
@given(data=st.data())
def test_whatever_is_left_of_a_broken_history_pairs(name, data):
    """K2: no call without its response, no response without its call, nothing that its provider would refuse."""
    messages = data.draw(broken_histories(name))
    before = copy.deepcopy(messages)
    view = curated(get_dialect(name), messages)
    parsed(name, view)
    assert unpaired(name, view) == []
    assert not any(message in EMPTY[name] for message in view)
    assert curated(get_dialect(name), view) == view
    assert messages == before


@formats
@some
@given(data=st.data())
def test_memories_that_users_wrote_are_never_removed_by_curation(name, data):
    """K2: a broken call takes its responses with it, not the words beside them."""
    dialect = get_dialect(name)
    messages = data.draw(broken_histories(name))

    def written(view):
        read = [dialect.read(message) for message in view]
        return [text.strip() for element in read if element and (text := element.text_of("user"))]

    assert written(curated(dialect, messages)) == written(messages)


@formats
def test_calls_that_were_partly_answered_go_with_their_answers(name):
    """K2: the rest of the turn stays."""
    dialect = get_dialect(name)
    view = curated(dialect, write(name, [TURN]))
    read = [dialect.read(message) for message in view]
    assert [call for element in read if element for call in (*element.calls, *element.answers)] == []
    said = [element.text_of(element.role) for element in read if element and element.utterances]
    # In OpenAI's Responses, words and calls are elements of their own.
    assert said == ["Is it raining?", *(["Let me look."] if name == "openai_responses" else []), "Yes."]


@formats
@pytest.mark.parametrize("at_end", [True, False])
def test_a_question_without_an_answer_is_not_a_turn(name, at_end):
    """K2: blank, or cut off in its thinking."""
    messages = write(name, [Turn("Hello", answer="Hi")])
    messages = messages[:-1] + EMPTY[name] if at_end else messages[:-1] + EMPTY[name] + messages[-1:]
    kept = write(name, [Turn("Hello", answer="Hi")])
    assert curated(get_dialect(name), messages) == (kept[:-1] if at_end else kept)


THINKING_ALONE = {
    "openai_responses": [{"type": "reasoning", "id": "r", "summary": []}],
    "anthropic": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "…", "signature": "s"}]}],
    "gemini": [{"role": "model", "parts": [{"text": "…", "thought": True}]}],
    "langchain": [{"type": "ai", "content": [{"type": "reasoning", "reasoning": "…"}]}],
    "bedrock": [{"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "…"}}}]}],
}


@pytest.mark.parametrize("name", THINKING_ALONE)
def test_thinking_that_led_to_nothing_goes(name):
    """K2: providers refuse it."""
    messages = write(name, [Turn("Hello", answer="Hi")])
    assert curated(get_dialect(name), [*messages, *THINKING_ALONE[name]]) == messages


def test_a_reply_without_text_stays():
    """K2: a picture is an answer."""
    picture = {"role": "model", "parts": [{"inline_data": {"mime_type": "image/png", "data": "iVBO"}}]}
    assert curated(get_dialect("gemini"), [picture]) == [picture]
    searched = {"type": "web_search_call", "id": "w", "status": "completed"}
    assert curated(get_dialect("openai_responses"), [searched]) == [searched]


def test_a_call_that_another_voice_cut_off_is_not_whole():
    """K2: providers want responses directly after their call."""
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}
    wait = {"role": "user", "content": "wait"}
    late = {"role": "tool", "tool_call_id": "a", "content": "late"}
    assert curated(get_dialect("openai_chat"), [call, wait, late]) == [wait]
    twice = [call, late, late]
    assert curated(get_dialect("openai_chat"), twice) == twice[:2]


def test_an_object_that_cannot_be_copied_is_left_out_with_its_pair(caplog):
    """K2: and logged; the host's object stays where it is."""
    call = {"role": "assistant", "content": "x", "tool_calls": [{"id": "a"}], "lock": threading.Lock()}
    messages = [{"role": "user", "content": "hi"}, call, {"role": "tool", "tool_call_id": "a", "content": "x"}, None]
    assert comprehensive_history(messages) == [messages[0], messages[2], None]
    assert curated(get_dialect("openai_chat"), messages) == messages[:1]
    assert "could not be copied" in caplog.text


@formats
@some
@given(data=st.data())
def test_a_cut_parts_no_call_from_its_response(name, data):
    """K1: both halves pair by themselves."""
    messages = data.draw(histories(name))
    cuts = find_safe_cuts(get_dialect(name), messages)
    for cut in cuts:
        assert unpaired(name, messages[:cut]) == []
        assert unpaired(name, messages[cut:]) == []
    assert set(cuts) <= set(range(1, len(messages)))


@formats
@some
@given(data=st.data())
def test_a_history_can_be_cut_before_each_user_message(name, data):
    """K1: and after complete responses, so that a long turn can be cut too."""
    dialect = get_dialect(name)
    messages = data.draw(histories(name))
    cuts = find_safe_cuts(dialect, messages)
    roles = [element.role for message in messages if (element := dialect.read(message))]
    for at in range(1, len(messages)):
        spoke = roles[at - 1] == "assistant" and roles[at] == "assistant"
        assert (at in cuts) == (not unpaired(name, messages[:at]) and not spoke)


@formats
@some
@given(data=st.data())
def test_a_broken_history_is_cut_between_pairs_only(name, data):
    """K1: responses that came late hold on to their call."""
    dialect = get_dialect(name)
    messages = data.draw(broken_histories(name))
    read = [dialect.read(message) for message in messages]
    for cut in find_safe_cuts(dialect, messages):
        before = {call for element in read[:cut] if element for call in element.calls}
        answered = {answer for element in read[:cut] if element for answer in element.answers}
        after = {answer for element in read[cut:] if element for answer in element.answers}
        # Gemini's calls go by their tool, so that only there an unanswered one may meet another's response.
        assert name == "gemini" or not (before - answered) & after


def test_calls_without_names_are_cut_nowhere_between():
    """K1: some local servers give none."""
    call, response = {"role": "assistant", "tool_calls": [{}, {}]}, {"role": "tool", "content": "1"}
    user = {"role": "user", "content": "hi"}
    assert find_safe_cuts(get_dialect("openai_chat"), [user, call, response, response, user]) == [1, 4]
    assert find_safe_cuts(get_dialect("openai_chat"), []) == []


def test_a_long_broken_history_is_viewed_in_no_time():
    """K2: twenty thousand calls that nobody answered, and as many responses that nobody asked for."""
    chat = get_dialect("openai_chat")
    calls = [{"role": "assistant", "tool_calls": [{"id": f"call {at}"}]} for at in range(20_000)]
    responses = [{"role": "tool", "tool_call_id": f"other {at}", "content": "x"} for at in range(20_000)]
    assert curated(chat, [*calls, *responses]) == []
    assert find_safe_cuts(chat, [*calls, *responses]) == list(range(20_000, 40_000))


@formats
def test_both_views_are_public(name):
    """K2: the format is detected or named; the copies share nothing with the host's list."""
    messages = write(name, [TURN])
    before = copy.deepcopy(messages)
    view = afterturn.curated_history(messages, dialect=name)
    assert view == curated(get_dialect(name), messages)
    assert afterturn.comprehensive_history(messages) == messages
    view[0].clear()
    assert messages == before


def test_a_public_view_of_an_unknown_format_is_an_error():
    """K2: a program that names no format learns which there are."""
    with pytest.raises(afterturn.InvalidInput, match="openai_chat"):
        afterturn.curated_history([{"speaker": "ada", "words": "hi"}])
    with pytest.raises(afterturn.InvalidInput, match="openai_chat"):
        afterturn.curated_history([], dialect="morse")
    assert afterturn.curated_history([{"role": "user", "content": "hi"}]) == [{"role": "user", "content": "hi"}]
