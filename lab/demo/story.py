"""The script of each day. Basil's answers depend only on the messages that the model gets.

An answer that does not find an earlier fact there is what an agent without memory would say.
"""

import re
from dataclasses import dataclass

from afterturn.testing.model import Answer, Line, Messages, call_tools

USER = "ada"
SPACE = f"user:{USER}"
NUMBER = "555 0142"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn. `proof` is a text that the last answer contains only if memory worked.

    With `patient=False` the host calls the model without waiting for recall. `carries`: the recall ends after this
    turn. `terse`: the steps after the first are printed as one line.
    """

    says: str
    replies: tuple[Line, ...]
    proof: str = ""
    patient: bool = True
    carries: bool = False
    terse: bool = False


@dataclass(frozen=True, slots=True)
class Day:
    """One process. `forgets` is erased before the first message, `note` is added after the last one."""

    title: str
    days_ago: int
    conversation: str
    exchanges: tuple[Exchange, ...]
    note: str = ""
    forgets: str = ""
    full_block: bool = False


def _suggest(messages: Messages) -> Answer:
    if "allergic to peanuts" not in text_of(messages):
        return "For Friday's dinner I suggest Satay House at 19:30, a lively place."
    return "For Friday's dinner I suggest Casa Nova at 20:30, after eight and without peanuts."


def _dish(messages: Messages) -> Answer:
    return "The grilled fish, without the peanut pesto." if "allergic" in text_of(messages) else "The peanut pesto!"


def _book(messages: Messages) -> Answer:
    found = re.search(r"suggest (?P<place>[\w ]+) at (?P<time>\d\d:\d\d)", text_of(messages))
    if found is None:
        return "Gladly. Which restaurant, and at what time?"
    note = "no peanuts" if "allergic to peanuts" in text_of(messages) else "nothing special"
    return call_tools(("book_table", {**found.groupdict(), "note": note}))


def _booked(messages: Messages) -> Answer:
    results = [str(message["content"]) for message in messages if message["role"] == "tool"]
    return f"Booked. {'The kitchen knows: no peanuts.' if 'peanuts' in results[-1] else 'Enjoy!'}"


def _text(messages: Messages) -> Answer:
    number = re.search(r"\b\d{3} \d{4}\b", text_of(messages))
    if number is None:
        return "I have no phone number for Grace. What is it?"
    return call_tools(("send_text", {"to": number.group(), "text": "20:30"}))


def text_of(messages: Messages) -> str:
    return "\n".join(str(message.get("content") or "") for message in messages)


_TEXT_GRACE = "Text Grace the time, on her phone."

DAYS = (
    Day(
        "Day 1: Ada mentions two things, and saves a note",
        9,
        "getting-started",
        (
            Exchange(
                "My mother Grace is allergic to peanuts. Mind that when you book our dinner.",
                ("Thank you, I will keep that in mind.",),
            ),
            Exchange(f"Text Grace when the time changes. Her phone number is {NUMBER}.", ("I will, and only then.",)),
        ),
        note="Dinner on Fridays: never before eight.",
    ),
    Day(
        "Day 8: a new conversation in another process, and Basil remembers",
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
        "Day 10: a third process, and Basil acts on what it remembers",
        0,
        "booking",
        (
            Exchange(
                "Book Friday's dinner for my mother Grace, as you suggested.",
                (_book, _booked),
                proof="knows: no peanuts",
            ),
            Exchange(_TEXT_GRACE, (_text, "Grace has it on her phone."), proof="Grace has it"),
        ),
        full_block=True,
    ),
    Day(
        "Later that day: Ada has a phone number erased",
        0,
        "afterwards",
        (Exchange(_TEXT_GRACE, (_text, "Grace has it on her phone."), proof="no phone number"),),
        forgets=NUMBER,
    ),
)
