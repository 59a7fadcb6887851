"""Where a history is cut, and what becomes of it, in every dialect (K1)."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from long_histories import NAMES, HistoryTurn, Step, Writer, calls_and_answers, memory_block, stories, written

from afterturn.conversation.compactor import (
    ACKNOWLEDGEMENT,
    KEEP_SHARE,
    THRESHOLD_SHARE,
    Compacted,
    CompactionPlan,
    StateSnapshot,
    element_tokens,
    is_block,
    plan,
    rebuild,
)

SHORT = StateSnapshot("Ship the api.", "- The port is 5432.", "None.", "- Read the log.", "[TODO] Ship it.")
TINY = 1


def tokens_of(dialect, messages):
    return sum(element_tokens(dialect, message) for message in messages)


def role_of(dialect, message):
    return dialect.read(message).role


def planned_for(dialect, messages, **how):
    found = plan(dialect, messages, **how)
    assert isinstance(found, CompactionPlan)
    return found


@given(stories)
def test_no_call_is_cut_from_its_responses(story):
    """K1: calls and responses pair on both sides of the cut."""
    dialect, messages = written(story)
    planned = plan(dialect, messages, limit_tokens=TINY)
    if isinstance(planned, Compacted):
        return
    for part in (messages[: planned.cut], messages[planned.cut :]):
        pairs = calls_and_answers(dialect, part)
        assert [call for calls, _ in pairs for call in calls] == [answer for _, answers in pairs for answer in answers]


@given(stories)
def test_a_tail_begins_with_a_user_or_after_complete_responses(story):
    """K1: and never with a block of ours, which belongs to what it follows."""
    dialect, messages = written(story)
    planned = plan(dialect, messages, limit_tokens=TINY)
    if isinstance(planned, Compacted):
        return
    first = dialect.read(messages[planned.cut])
    assert not is_block(first)
    before = [element for element in map(dialect.read, messages[: planned.cut]) if not is_block(element)]
    assert first.role == "user" or before[-1].answers


@given(stories)
def test_a_rebuilt_history_is_instructions_summary_acknowledgement_and_tail(story):
    """K1: the tail's elements are the host's own, and instructions stand in front as they were."""
    dialect, messages = written(story)
    original = copy.deepcopy(messages)
    planned = plan(dialect, messages, limit_tokens=TINY)
    if isinstance(planned, Compacted):
        return
    compacted = rebuild(dialect, messages, planned, SHORT)
    assert messages == original
    if not compacted.changed:
        assert compacted.messages == messages
        return
    tail = messages[planned.cut :]
    assert all(ours is theirs for ours, theirs in zip(compacted.messages[-len(tail) :], tail, strict=True))
    instructions = [message for message in messages if role_of(dialect, message) == "system"]
    made = compacted.messages[len(instructions) : -len(tail)]
    assert compacted.messages[: len(instructions)] == instructions
    summary = [dialect.make_message("user", SHORT.text), dialect.make_message("assistant", ACKNOWLEDGEMENT)]
    assert made == [*summary, *(messages[at] for at in planned.kept)]
    assert bool(planned.kept) == (role_of(dialect, tail[0]) == "assistant")
    assert compacted.summarised == planned.cut - len(instructions) - len(planned.kept)


@given(stories)
def test_what_is_reported_about_tokens_is_true(story):
    """K1: and a history never grows by being compacted."""
    dialect, messages = written(story)
    planned = plan(dialect, messages, limit_tokens=TINY)
    if isinstance(planned, Compacted):
        return
    compacted = rebuild(dialect, messages, planned, SHORT)
    assert compacted.tokens_before == tokens_of(dialect, messages)
    assert compacted.tokens_after == tokens_of(dialect, compacted.messages)
    assert (compacted.tokens_after < compacted.tokens_before) == compacted.changed


@given(stories, st.integers(0, 3))
def test_a_history_up_to_half_of_the_limit_is_left_alone(story, spare):
    """K1: over 50 %, and not before."""
    dialect, messages = written(story)
    limit = int(tokens_of(dialect, messages) / THRESHOLD_SHARE) + spare
    found = plan(dialect, messages, limit_tokens=limit)
    assert isinstance(found, Compacted)
    assert (found.messages, found.reason) == (messages, "below_threshold")


@given(stories)
def test_an_older_snapshot_is_found_again_and_is_no_part_of_what_is_read(story):
    """K1: it is merged, so it is the base of the next one."""
    dialect, messages = written(story)
    planned = plan(dialect, messages, limit_tokens=TINY)
    if isinstance(planned, Compacted):
        return
    compacted = rebuild(dialect, messages, planned, SHORT)
    if not compacted.changed:
        return
    grown = [*compacted.messages, *Writer(dialect.name).write("", [HistoryTurn("and now?"), HistoryTurn("and then?")])]
    again = plan(dialect, grown, limit_tokens=TINY)
    assert isinstance(again, CompactionPlan)
    assert again.older == SHORT
    twice = rebuild(dialect, grown, again, SHORT)
    assert str(twice.messages).count("<state_snapshot>") == str(messages[planned.cut :]).count("<state_snapshot>") + 1


@pytest.mark.parametrize("name", NAMES)
def test_about_the_last_third_is_kept(name):
    """K1: by tokens, cut at a user's message where turns are of ordinary length."""
    writer = Writer(name)
    messages = writer.write("", [HistoryTurn(f"question {at} " + "word " * 50, "answer " * 50) for at in range(20)])
    planned = planned_for(writer.dialect, messages, limit_tokens=TINY)
    kept = tokens_of(writer.dialect, messages[planned.cut :]) / tokens_of(writer.dialect, messages)
    assert KEEP_SHARE - 0.06 < kept <= KEEP_SHARE
    assert role_of(writer.dialect, messages[planned.cut]) == "user"


@pytest.mark.parametrize("name", NAMES)
def test_one_endless_turn_is_cut_after_complete_responses(name):
    """K1: a turn of a hundred steps has no other place; the blocks in it stay with their results."""
    steps = tuple(Step((f"line {at} " * 30,) * 2, "I look.", memory_block(f"fact {at}")) for at in range(40))
    writer = Writer(name)
    told = [HistoryTurn("Hello."), HistoryTurn("Read everything.", "", steps, block=memory_block("Ada reads"))]
    messages = writer.write("", told)
    planned = planned_for(writer.dialect, messages, limit_tokens=TINY)
    assert role_of(writer.dialect, messages[planned.cut]) == "assistant"
    compacted = rebuild(writer.dialect, messages, planned, SHORT)
    # The question that is being answered, and its block, stand where they stood: before what the assistant does.
    asked = messages[2:3] if writer.dialect.alternates else messages[2:4]
    assert compacted.messages[2 : len(asked) + 3] == [*asked, messages[planned.cut]]


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_is_rather_at_a_users_message(name):
    """K1: a turn is kept whole where that keeps nearly as much."""
    steps = tuple(Step(("line " * 20,)) for _ in range(4))
    writer = Writer(name)
    messages = writer.write("", [HistoryTurn("go", "done", steps) for _ in range(11)])
    planned = planned_for(writer.dialect, messages, limit_tokens=TINY)
    assert role_of(writer.dialect, messages[planned.cut]) == "user"
    assert planned.kept == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_is_in_a_turn_when_little_would_be_left_of_it_otherwise(name):
    """K1: a last short question does not make everything before it old."""
    steps = tuple(Step(("line " * 20,)) for _ in range(60))
    writer = Writer(name)
    messages = writer.write("", [HistoryTurn("hi"), HistoryTurn("go", "done", steps), HistoryTurn("and?", "")])
    planned = planned_for(writer.dialect, messages, limit_tokens=TINY)
    assert role_of(writer.dialect, messages[planned.cut]) == "assistant"


def test_what_was_said_while_tools_ran_is_kept_with_the_question():
    """K1: what the user wants now is both."""
    writer = Writer("openai_chat")
    steps = tuple(Step(("line " * 50,)) for _ in range(10))
    messages = writer.write("", [HistoryTurn("Hello."), HistoryTurn("Read all.", "", steps)])
    messages.append({"role": "user", "content": "Be quick."})
    Writer("openai_chat", messages).work(steps)
    planned = planned_for(writer.dialect, messages, limit_tokens=TINY)
    assert planned.cut > 23
    assert [messages[at]["content"] for at in planned.kept] == ["Read all.", "Be quick."]


def test_a_history_without_a_user_has_no_acknowledgement_either():
    """K1: two elements of the assistant's in a row, the second a call, are refused by some providers."""
    writer = Writer("gemini")
    writer.work(tuple(Step(("line " * 50,)) for _ in range(10)))
    planned = planned_for(writer.dialect, writer.messages, limit_tokens=TINY)
    compacted = rebuild(writer.dialect, writer.messages, planned, SHORT)
    assert [role_of(writer.dialect, message) for message in compacted.messages[:2]] == ["user", "assistant"]
    assert compacted.messages[1] is writer.messages[planned.cut]


@pytest.mark.parametrize("name", NAMES)
def test_what_the_user_asks_now_is_never_summarised_away(name):
    """K1: the last question stays, however large it is."""
    writer = Writer(name)
    messages = writer.write("", [HistoryTurn("first"), HistoryTurn("second"), HistoryTurn("now " * 3000, "")])
    planned = planned_for(writer.dialect, messages, limit_tokens=TINY)
    assert planned.cut == len(messages) - 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("turns", [[], [HistoryTurn("hello", "")], [HistoryTurn("hello", "", block=memory_block("x"))]])
def test_what_cannot_be_cut_is_left_alone(name, turns):
    """K1: an empty list, a single question."""
    writer = Writer(name)
    messages = writer.write("Be brief.", turns)
    found = plan(writer.dialect, messages, limit_tokens=TINY)
    assert isinstance(found, Compacted)
    assert (found.messages, found.changed) == (messages, False)


def test_instructions_in_the_middle_are_kept_as_they_are():
    """K1: what a developer demanded does not become a report of it."""
    writer = Writer("openai_chat")
    messages = writer.write("Be brief.", [HistoryTurn("word " * 300)])
    demanded = {"role": "developer", "content": "Speak French."}
    messages.append(demanded)
    Writer("openai_chat", messages).write("", [HistoryTurn("bonjour"), HistoryTurn("et alors?")])
    planned = planned_for(writer.dialect, messages, limit_tokens=TINY)
    compacted = rebuild(writer.dialect, messages, planned, SHORT)
    assert compacted.messages[:2] == [{"role": "system", "content": "Be brief."}, demanded]
    assert compacted.messages[1] is demanded
