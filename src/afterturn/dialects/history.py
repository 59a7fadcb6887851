"""What a turn asks of a host's list, the same in every format. Pure: nothing is edited, nothing raises.

Hosts' lists may be endless, so all looking is bounded, from the end.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, islice

from afterturn.base.terms import content_hash
from afterturn.base.turns import Message, Point
from afterturn.dialects.dialect import Dialect, Element, Strip
from afterturn.dialects.parts import made_like

_RESPONSES_LOOKED_AT = 512
_TURN_MESSAGES_MAX = 10_000
_USERS_COMPARED = 256


@dataclass(frozen=True, slots=True)
class Exchange:
    """The messages of one turn, as they will be recorded (C1); empty when its user message is not in the list.

    `ends_complete`: the list ends in an assistant's message and no call is open. Elements that can not be read are
    left out.
    """

    messages: tuple[Message, ...]
    ends_complete: bool


def latest_user(dialect: Dialect, messages: Sequence[object], strip: Strip) -> tuple[int, str] | None:
    """Where the user last said something, and what: not blank once our own blocks are out of it."""
    for at, element in _users(dialect, messages):
        said = strip(element.text_of("user"))
        if said.strip():
            return at, said
        if any(not one.text.strip() for one in element.said if one.role == "user"):
            return None  # the user's own message, with nothing in it to read: an image, or blank
    return None


def has_open_call(dialect: Dialect, messages: Sequence[object]) -> bool:
    """Whether the assistant waits for a response to one of its latest calls.

    Responses whose call is out of sight are taken for those of one that still waits.
    """
    return _is_open(_step(dialect, messages), len(messages))


def _is_open(step: Sequence[Element | None], length: int) -> bool:
    calls = [call for element in step if element for call in element.calls]
    answers = [answer for element in step if element for answer in element.answers]
    if any(element is not None and element.role == "assistant" for element in step):
        return _is_waiting(calls, answers)
    return bool(answers) and length > _RESPONSES_LOOKED_AT


def _step(dialect: Dialect, messages: Sequence[object]) -> list[Element | None]:
    """From the end, the newest first, to where the assistant last began to speak: it may do so in several elements."""
    step: list[Element | None] = []
    has_spoken = False
    for message in islice(reversed(messages), _RESPONSES_LOOKED_AT):
        element = dialect.read(message)
        if element is not None:
            if has_spoken and element.role != "assistant":
                break
            has_spoken = has_spoken or element.role == "assistant"
        step.append(element)
    return step


def _is_waiting(calls: Sequence[str], answers: Sequence[str]) -> bool:
    if "" in calls or "" in answers:
        # Some local servers give calls no ids; then only their number can tell.
        return len(answers) < len(calls)
    return bool(Counter(calls) - Counter(answers))


def find_point(dialect: Dialect, messages: Sequence[object]) -> Point | None:
    """Where a block may be appended now: after a user's message or after all responses to the calls (H1).

    System and developer messages at the end are looked past; an unknown element there could be anything.
    """
    step = _step(dialect, messages)
    last = next((element for element in step if element is None or element.role != "system"), None)
    if last is None or last.role == "assistant" or _is_open(step, len(messages)):
        return None
    return Point.TOOL_RESULT if last.role == "tool" else Point.USER_MESSAGE


def new_element(dialect: Dialect, messages: Sequence[object], text: str) -> object:
    """A user's message with this text: an object of the class that the newest user's element has, else a mapping.

    Gemini's own loops hold objects, and read their fields.
    """
    said = dialect.said("user", text)
    for message in islice(reversed(messages), _RESPONSES_LOOKED_AT):
        element = dialect.read(message)
        if element is not None and element.role in ("user", "tool"):
            wanted = dialect.read(said)
            return next((made for made in made_like(message, said) if dialect.read(made) == wanted), said)
    return said


def exchange(dialect: Dialect, messages: Sequence[object], user_hash: str, strip: Strip) -> Exchange:
    """The turn that began with the last user message of that content hash.

    Text that an assistant wrote beside a call is kept (the user has read it); a call alone is not.
    """
    start = _find_user(dialect, messages, user_hash, strip)
    return Exchange((), ends_complete=False) if start is None else exchange_from(dialect, messages, start, strip)


def exchange_from(dialect: Dialect, messages: Sequence[object], start: int, strip: Strip) -> Exchange:
    """The turn whose user message stands at `start`: the same words may be said twice in a turn."""
    if not messages:
        return Exchange((), ends_complete=False)
    # What stands before the user's words in their own element are responses to an earlier turn's calls.
    said = dropwhile(lambda message: message.role != "user", spoken(dialect, messages[start:]))
    known = (_without_blocks(message, strip) for message in said if message.role != "system")
    return Exchange(
        tuple(message for message in known if message.text.strip()),
        ends_complete=_ends_complete(dialect, messages),
    )


def spoken(dialect: Dialect, messages: Iterable[object]) -> Iterator[Message]:
    """Every message of every element that can be read, blank ones too."""
    for message in messages:
        element = dialect.read(message)
        if element is not None:
            yield from element.messages


def _users(dialect: Dialect, messages: Sequence[object]) -> Iterator[tuple[int, Element]]:
    """Where the users' messages are, the latest first, as far back as a turn may reach."""
    for at in range(len(messages) - 1, max(-1, len(messages) - 1 - _TURN_MESSAGES_MAX), -1):
        element = dialect.read(messages[at])
        if element is not None and any(one.role == "user" for one in element.said):
            yield at, element


def _find_user(dialect: Dialect, messages: Sequence[object], user_hash: str, strip: Strip) -> int | None:
    for at, element in islice(_users(dialect, messages), _USERS_COMPARED):
        if content_hash(strip(element.text_of("user"))) == user_hash:
            return at
    return None


def _ends_complete(dialect: Dialect, messages: Sequence[object]) -> bool:
    last = dialect.read(messages[-1])
    return last is not None and last.role == "assistant" and not has_open_call(dialect, messages)


def _without_blocks(message: Message, strip: Strip) -> Message:
    said = strip(message.text)
    if said == message.text:
        return message
    return Message(role=message.role, text=said, speaker=message.speaker, hash=content_hash(said))
