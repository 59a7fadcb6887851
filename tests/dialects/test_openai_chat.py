"""OpenAI chat messages, as dictionaries and as a client library's objects."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from afterturn.dialects.dialect import Element, Utterance
from afterturn.dialects.history import find_exchange, find_latest_user, find_point, has_open_call
from afterturn.dialects.openai_chat import OpenAIChat
from afterturn.text import content_hash
from afterturn.types import HandoverPoint

CHAT = OpenAIChat()


def keep(text: str) -> str:
    return text


def user(text) -> dict:
    return {"role": "user", "content": text}


def assistant(text, *calls: str) -> dict:
    message = {"role": "assistant", "content": text}
    return (
        message | {"tool_calls": [{"id": call, "type": "function", "function": {}} for call in calls]}
        if calls
        else message
    )


def tool(call: str, text: str = "done") -> dict:
    return {"role": "tool", "tool_call_id": call, "content": text}


SYSTEM = {"role": "system", "content": "be brief"}
DEVELOPER = {"role": "developer", "content": "be kind"}


def as_object(message: dict) -> SimpleNamespace:
    fields = {
        name: [as_object(item) for item in value] if name == "tool_calls" else value for name, value in message.items()
    }
    return SimpleNamespace(**fields)


AFTER_USER, AFTER_TOOL = HandoverPoint.USER_MESSAGE, HandoverPoint.TOOL_RESULT
POINTS = [
    ([user("hi")], AFTER_USER),
    ([SYSTEM, user("hi")], AFTER_USER),
    ([user("hi"), SYSTEM], AFTER_USER),
    ([user("hi"), DEVELOPER], AFTER_USER),
    ([], None),
    ([SYSTEM], None),
    ([user("hi"), assistant("hello")], None),
    ([user("hi"), assistant(None, "a")], None),
    ([user("hi"), assistant(None, "a"), tool("a")], AFTER_TOOL),
    ([user("hi"), assistant(None, "a", "b"), tool("a")], None),
    ([user("hi"), assistant(None, "a", "b"), tool("b"), tool("a")], AFTER_TOOL),
    ([user("hi"), assistant(None, "a"), user("wait")], None),
    ([user("hi"), assistant(None, "a"), tool("a"), assistant(None, "b")], None),
    ([user("hi"), assistant(None, "a"), tool("a"), assistant(None, "b"), tool("b")], AFTER_TOOL),
    ([user("hi"), object()], None),
]


@pytest.mark.parametrize("shape", [dict, as_object], ids=["dictionaries", "objects"])
@pytest.mark.parametrize("messages, point", POINTS)
def test_a_block_goes_after_the_user_or_after_all_results(messages, point, shape):
    """H1: never between a call and its responses, never after the assistant."""
    shaped = [shape(message) if isinstance(message, dict) else message for message in messages]
    assert find_point(CHAT, shaped) is point


@pytest.mark.parametrize(
    "messages, is_open",
    [
        ([assistant(None, "a", "b"), tool("a")], True),
        ([assistant(None, "a", "b"), tool("a"), tool("b")], False),
        ([assistant(None, "a"), tool("b")], True),
        ([{"role": "assistant", "content": None, "function_call": {"name": "f"}}], True),
        (
            [{"role": "assistant", "function_call": {"name": "f"}}, {"role": "function", "name": "f", "content": "1"}],
            False,
        ),
        ([{"role": "assistant", "tool_calls": [{}, {}]}, {"role": "tool", "content": "1"}], True),
        ([{"role": "assistant", "tool_calls": [{}, {}]}, tool(""), tool("")], False),
        ([assistant("hello"), user("hi")], False),
        ([], False),
    ],
)
def test_a_call_is_open_until_each_response_is_there(messages, is_open):
    """H1: parallel calls, older function calls, and calls without ids."""
    assert has_open_call(CHAT, messages) is is_open


def test_a_block_has_the_users_role():
    """H1: never system, which would promote untrusted text."""
    assert CHAT.make_message("user", "text") == {"role": "user", "content": "text"}


def test_the_latest_user_message_is_not_one_of_our_blocks():
    """R1: an epoch begins with what a person said."""
    messages = [user("first"), assistant("yes"), user("second"), user("BLOCK"), SYSTEM]
    assert find_latest_user(CHAT, messages, lambda text: text.replace("BLOCK", "")) == (2, "second")


@pytest.mark.parametrize("content", ["   ", None, [{"type": "image_url", "image_url": {"url": "x"}}]])
def test_a_user_message_without_text_is_not_looked_past(content):
    """R6: what was said before it is no new input."""
    assert find_latest_user(CHAT, [user("first"), assistant("yes"), user(content)], keep) is None


def test_a_list_without_a_user_has_no_latest_one():
    """R6: nothing said, nothing recalled."""
    assert find_latest_user(CHAT, [SYSTEM, assistant("hello"), user(None)], keep) is None


@pytest.mark.parametrize(
    "message, text",
    [
        (user("plain"), "plain"),
        (user([{"type": "text", "text": "one"}, {"type": "image_url", "image_url": {"url": "x"}}]), "one"),
        (user([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]), "one\ntwo"),
        (user(["one", "two"]), "one\ntwo"),
        (user([{"type": "image_url", "image_url": {"url": "x"}}]), ""),
        (user(None), ""),
        (user(7), ""),
        ({"role": "user"}, ""),
        ({"role": "assistant", "content": None, "refusal": "I can't do that"}, "I can't do that"),
        (assistant([{"type": "refusal", "refusal": "No."}]), "No."),
        (user([SimpleNamespace(type="text", text="object part")]), "object part"),
        (user([None, 3, {"type": "text"}, {"type": "text", "text": "rest"}]), "rest"),
    ],
)
def test_a_message_is_read_as_a_person_would_read_it(message, text):
    """C1: text parts and refusals; images and odd parts leave nothing."""
    read = CHAT.read(message)
    assert read is not None
    assert (read.text_of(read.role), read.messages[-1].hash) == (text, content_hash(text))


def test_a_named_user_is_the_speaker():
    """C1: who said it is kept with what was said."""
    read = [CHAT.read(user("hi") | {"name": "ada"}), CHAT.read(user("hi")), CHAT.read(tool("a"))]
    assert [element and element.messages[0].speaker for element in read] == ["ada", "user", "tool"]


def test_an_exchange_is_what_was_said_since_the_users_message():
    """C1, C6: tool outputs are kept as such; calls, system and developer messages are not said by anybody."""
    messages = [
        SYSTEM,
        user("old"),
        assistant("old answer"),
        user("my question"),
        DEVELOPER,
        assistant("let me look", "a", "b"),
        tool("a", "result a"),
        tool("b", "  "),
        assistant(None, "c"),
        tool("c", "result c"),
        assistant("the answer"),
    ]
    found = find_exchange(CHAT, messages, content_hash("my question"), keep)
    assert [(message.role, message.text) for message in found.messages] == [
        ("user", "my question"),
        ("assistant", "let me look"),
        ("tool", "result a"),
        ("tool", "result c"),
        ("assistant", "the answer"),
    ]
    assert found.ends_complete


def test_our_blocks_are_not_part_of_the_exchange():
    """C5: neither alone nor at the end of the user's own message."""
    messages = [user("question BLOCK"), user("BLOCK"), assistant("answer")]
    found = find_exchange(CHAT, messages, content_hash("question"), lambda text: text.replace("BLOCK", ""))
    assert [message.text.strip() for message in found.messages] == ["question", "answer"]
    assert found.messages[0].hash == content_hash("question")


@pytest.mark.parametrize(
    "ending, is_complete",
    [
        ([assistant("answer")], True),
        ([assistant(None, "a")], False),
        ([assistant("one moment", "a"), tool("a")], False),
        ([], False),
        ([assistant("answer"), user("and?")], False),
    ],
)
def test_a_turn_is_complete_when_the_assistant_had_the_last_word(ending, is_complete):
    """C1: with no call open."""
    found = find_exchange(CHAT, [user("question"), *ending], content_hash("question"), keep)
    assert found.ends_complete is is_complete


def test_equal_questions_belong_to_their_own_turns():
    """C3: the turn begins at the last of them."""
    messages = [user("again"), assistant("one"), user("again"), assistant("two")]
    found = find_exchange(CHAT, messages, content_hash("again"), keep)
    assert [message.text for message in found.messages] == ["again", "two"]


def test_a_turn_whose_message_is_gone_has_no_exchange():
    """C1: nothing is recorded that did not begin with its user's message."""
    found = find_exchange(CHAT, [user("other"), assistant("answer")], content_hash("question"), keep)
    assert (found.messages, found.ends_complete) == ((), False)


class Hostile:
    """An object that fails whenever it is touched."""

    def __getattr__(self, name: str):
        raise RuntimeError(f"no {name} for you")


def test_unreadable_messages_are_left_out(caplog):
    """C1: a host's odd object costs its own record, not the turn."""
    messages = [user("question"), Hostile(), {"role": "narrator", "content": "x"}, None, assistant("answer")]
    found = find_exchange(CHAT, messages, content_hash("question"), keep)
    assert [message.text for message in found.messages] == ["question", "answer"]
    assert "no role for you" in caplog.text


def hostile_with(error: BaseException):
    class Message:
        role = "user"

        @property
        def content(self):
            raise error

    return Message()


def on_another_thread(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(10)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError(), GeneratorExit()])
def test_an_object_cannot_end_memorys_thread(error, caplog):
    """C1: what a property raises is the object's doing, whatever it raises."""
    read = on_another_thread(lambda: CHAT.read(hostile_with(error)))
    assert read.utterances == (Utterance("user", ""),)
    assert "could not be read" in caplog.text


def test_a_persons_interrupt_passes_through():
    """§2: on the main thread nobody can tell Ctrl-C from what an object raises."""
    with pytest.raises(KeyboardInterrupt):
        CHAT.read(hostile_with(KeyboardInterrupt()))


def test_text_of_a_subclass_becomes_plain():
    """C1: later uses of it run no code of the host's."""

    class Loud(str):
        def strip(self, characters=None):
            raise RuntimeError("touched")

    read = CHAT.read({"role": "user", "content": [{"type": "text", "text": Loud("quiet")}], "name": Loud("ada")})
    assert read is not None
    assert [type(read.utterances[0].text), type(read.utterances[0].name)] == [str, str]
    read = CHAT.read({"role": "user", "content": Loud("quiet")})
    assert read is not None
    assert type(read.utterances[0].text) is str


def test_no_block_goes_after_results_of_a_call_that_is_not_visible():
    """H1: rather no block than one between a call and its responses."""
    assert not find_point(CHAT, [assistant(None, "a"), *[tool("b")] * 600])


@pytest.mark.parametrize(
    "message, merged",
    [
        (user("hi"), user("hi\n\nBLOCK")),
        (user([{"type": "image_url"}]), user([{"type": "image_url"}, {"type": "text", "text": "BLOCK"}])),
        (user(["one"]), user(["one", {"type": "text", "text": "BLOCK"}])),
        (user("hi") | {"name": "ada"}, user("hi\n\nBLOCK") | {"name": "ada"}),
        (user("  "), None),
        (user(None), None),
        (tool("a"), None),
        (assistant("hi"), None),
        (SYSTEM, None),
        (None, None),
    ],
)
def test_a_block_is_merged_into_a_users_message_only(message, merged):
    """H1: for templates that demand alternating roles."""
    assert CHAT.merged(message, "BLOCK") == merged


def test_an_object_is_merged_into_a_copy_of_its_class():
    """H3: the host's own stays as it was."""
    text, image = SimpleNamespace(type="text", text="hi"), SimpleNamespace(type="image_url")
    message = SimpleNamespace(role="user", content=[text, image])
    merged = CHAT.merged(message, "BLOCK")
    assert isinstance(merged, SimpleNamespace)
    assert merged.content == [text, image, SimpleNamespace(type="text", text="BLOCK")]
    assert message.content == [text, image]
    assert CHAT.merged(as_object(user("hi")), "BLOCK") == as_object(user("hi\n\nBLOCK"))


def test_an_object_that_cannot_be_copied_gets_no_block(caplog):
    """H3: rather none than one in the host's own object."""

    class Single:
        role, content = "user", "hi"

        def __copy__(self):
            raise RuntimeError("there is only one of me")

    assert CHAT.merged(Single(), "BLOCK") is None
    assert "there is only one of me" in caplog.text


def test_audio_transcripts_are_read_and_images_have_no_text():
    """C1: an assistant's audio comes with its transcript."""
    spoken = {"role": "assistant", "content": None, "audio": {"id": "x", "transcript": "Hello."}}
    assert CHAT.read(spoken) == CHAT.read(assistant("Hello."))
    assert CHAT.read({"role": "assistant", "content": None, "audio": {"id": "x"}}) == Element(())
    assert CHAT.read(assistant([{"type": "image_url"}])) == Element((), outside=True)
    assert CHAT.read(assistant(None)) == Element((Utterance("assistant", ""),))


def test_a_picture_with_our_block_in_it_is_still_the_users():
    """R6: what was said before it is no new input."""
    shown = CHAT.merged(user([{"type": "image_url"}]), "BLOCK")
    messages = [user("first"), assistant("yes"), shown]
    assert find_latest_user(CHAT, messages, lambda text: text.replace("BLOCK", "")) is None


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer", "tool", "function", "nobody", ""])
@pytest.mark.parametrize("text", ["Hello", "", " ", "<context>\npasted\n</context>\nWhat is this?"])
def test_a_plain_message_is_read_as_any_other(role, text):
    """H6: a dictionary with a role and a text is read by a shorter way, with the same result."""
    assert CHAT.read({"role": role, "content": text}) == CHAT.read({"role": role, "content": text, "name": None})
