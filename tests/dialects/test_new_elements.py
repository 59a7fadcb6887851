"""In a list of objects, a block is an object too."""

import pytest
from client_libraries import types
from histories import NAMES, RESULTS, Turn, write
from pydantic import BaseModel

from afterturn.dialects import get_dialect
from afterturn.dialects.history import new_element

QUESTION = types.Content(role="user", parts=[types.Part(text="hi")])
RESPONSE = types.Content(role="user", parts=[types.Part.from_function_response(name="f", response={"result": "x"})])


class Spoken(BaseModel):
    """As a host may write its messages."""

    role: str
    content: str


class Numbered(Spoken):
    number: int


@pytest.mark.parametrize("name", NAMES)
def test_among_mappings_it_is_a_mapping(name):
    """H1: as the format has it."""
    dialect = get_dialect(name)
    question = write(name, [Turn("hi")])[0]
    for messages in ([], [question], [question, RESULTS[name]]):
        assert new_element(dialect, messages, "BLOCK") == dialect.make_message("user", "BLOCK")


@pytest.mark.parametrize("newest", [QUESTION, RESPONSE, types.UserContent(parts="hi")])
def test_among_geminis_objects_it_is_one_of_them(newest):
    """H1: the client's own loops read `content.parts`."""
    made = new_element(get_dialect("gemini"), [QUESTION, newest], "BLOCK")
    assert made == types.Content(role="user", parts=[types.Part(text="BLOCK")])
    assert type(made) is types.Content


def test_among_a_hosts_own_objects_it_is_one_of_them_if_it_can_be():
    """H1: a class that wants more than a message has is not filled with guesses."""
    chat = get_dialect("openai_chat")
    assert new_element(chat, [Spoken(role="user", content="hi")], "BLOCK") == Spoken(role="user", content="BLOCK")
    numbered = Numbered(role="user", content="hi", number=1)
    assert new_element(chat, [numbered], "BLOCK") == Spoken(role="user", content="BLOCK")

    class Odd(BaseModel):
        role: str
        content: str
        number: int

    assert new_element(chat, [Odd(role="user", content="hi", number=1)], "BLOCK") == chat.make_message("user", "BLOCK")
