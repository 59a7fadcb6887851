"""What is said on which day. Basil's lines look at the messages they are given, and at nothing else.

A line that can not find what Ada once told falls back to what an agent without memory would say.
"""

import re
from dataclasses import dataclass

from afterturn.testing.model import Answer, Line, Messages, call_tools

USER = "ada"
SPACE = f"user:{USER}"
NUMBER = "555 0142"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn. `proof` is what the last answer can only contain when memory did its part.

    With `patient=False` the host does not wait even a moment for recall before it calls the model. `carries`: what is
    recalled comes too late for this turn. `terse`: the steps after the first are shown as one.
    """

    says: str
    replies: tuple[Line, ...]
    proof: str = ""
    patient: bool = True
    carries: bool = False
    terse: bool = False


@dataclass(frozen=True, slots=True)
class Day:
    """One process. `forgets` is erased from memory before the first word, `note` is added after the last one."""

    title: str
    days_ago: int
    conversation: str
    exchanges: tuple[Exchange, ...]
    note: str = ""
    forgets: str = ""
    full_block: bool = False


def _suggest(messages: Messages) -> Answer:
    if "allergic to peanuts" not in heard(messages):
        return "For Friday's dinner I suggest Satay House at 19:30, a lively place."
    return "For Friday's dinner I suggest Casa Nova at 20:30, after eight and without peanuts."


def _dish(messages: Messages) -> Answer:
    return "The grilled fish, without the peanut pesto." if "allergic" in heard(messages) else "The peanut pesto!"


def _book(messages: Messages) -> Answer:
    found = re.search(r"suggest (?P<place>[\w ]+) at (?P<time>\d\d:\d\d)", heard(messages))
    if found is None:
        return "Gladly. Which restaurant, and at what time?"
    note = "no peanuts" if "allergic to peanuts" in heard(messages) else "nothing special"
    return call_tools(("book_table", {**found.groupdict(), "note": note}))


def _booked(messages: Messages) -> Answer:
    results = [str(message["content"]) for message in messages if message["role"] == "tool"]
    return f"Booked. {'The kitchen knows: no peanuts.' if 'peanuts' in results[-1] else 'Enjoy!'}"


def _text(messages: Messages) -> Answer:
    number = re.search(r"\b\d{3} \d{4}\b", heard(messages))
    if number is None:
        return "I have no phone number for Grace. What is it?"
    return call_tools(("send_text", {"to": number.group(), "text": "20:30"}))


def heard(messages: Messages) -> str:
    return "\n".join(str(message.get("content") or "") for message in messages)


_TEXT_GRACE = "Text Grace the time, on her phone."

DAYS = (
    Day(
        "Day 1: Ada mentions two things, and a third in her settings",
        9,
        "getting-started",
        (
            Exchange(
                "When you book dinner for my mother Grace: she is allergic to peanuts.",
                ("Thank you, I will mind that.",),
            ),
            Exchange(f"Text Grace when the time changes. Her phone number is {NUMBER}.", ("I will, and only then.",)),
        ),
        note="Dinner on Fridays: never before eight.",
    ),
    Day(
        "Day 8: a new conversation, another process, and Basil knows",
        2,
        "friday",
        (
            Exchange(
                "A table for Friday's dinner with my mother?",
                (call_tools(("find_tables", {"day": "Friday", "guests": 2})), _suggest),
                proof="Casa Nova",
                patient=False,
            ),
            Exchange("What dinner should my mother order there?", (_dish,), proof="without the peanut"),
        ),
    ),
    Day(
        "Day 10: a third process, and Basil acts on what it was told",
        0,
        "booking",
        (
            Exchange(
                "Book Friday's dinner for my mother, as you suggested.", (_book, _booked), proof="knows: no peanuts"
            ),
            Exchange(_TEXT_GRACE, (_text, "Grace has it on her phone."), proof="Grace has it"),
        ),
        full_block=True,
    ),
    Day(
        "Later that day: Ada takes something back",
        0,
        "afterwards",
        (Exchange(_TEXT_GRACE, (_text, "Grace has it on her phone."), proof="no phone number"),),
        forgets=NUMBER,
    ),
)
