"""Reads a host's list in any format: user messages, open calls, exchanges, places for a block, valid views.

Pure: nothing is edited, nothing raises. Lists may be endless, so every search is bounded, from the end.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, islice, pairwise

from afterturn.dialects.dialect import Dialect, Element, Strip, made_like
from afterturn.text import content_hash
from afterturn.types import HandoverPoint, Message

_RESPONSES_LOOKED_AT = 512
_TURN_MESSAGES_MAX = 10_000
_USERS_COMPARED = 256


@dataclass(frozen=True, slots=True)
class Exchange:
    """The messages of one turn, as they will be recorded; empty when its user message is not in the list.

    `ends_complete`: the list ends in an assistant's message and no call is open. Elements that cannot be read are
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


def find_point(dialect: Dialect, messages: Sequence[object]) -> HandoverPoint | None:
    """Where a block may be appended now: after a user's message or after all responses to the calls.

    System and developer messages at the end are looked past; an unknown element there could be anything.
    """
    step = _step(dialect, messages)
    last = next((element for element in step if element is None or element.role != "system"), None)
    if last is None or last.role == "assistant" or _is_open(step, len(messages)):
        return None
    return HandoverPoint.TOOL_RESULT if last.role == "tool" else HandoverPoint.USER_MESSAGE


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
    """The turn whose user message is at index `start`: the same words may be said twice in a turn."""
    if not messages:
        return Exchange((), ends_complete=False)
    # Responses that precede the user's words in the same element answer an earlier turn's calls.
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


# Two deep-copied views of a history, and where it can be cut. The host's own objects are never edited.

logger = logging.getLogger(__name__)
# Calls that nobody answered pile up in a broken history, and each response looks for its own among them.
_OPEN_CALLS_KEPT = 512


@dataclass(slots=True)
class _Step:
    """What an assistant says in one go and the responses directly after it, as indices into the history.

    Before an assistant has spoken, `speaking` is empty.
    """

    speaking: list[int] = field(default_factory=list)
    answering: list[int] = field(default_factory=list)


def comprehensive(messages: Sequence[object]) -> list[object]:
    """Everything, as it is. What cannot be copied is left out, and logged."""
    return [twin for message in messages for twin in _copied(message)]


def curated(dialect: Dialect, messages: Sequence[object]) -> list[object]:
    """Valid turns only: each call directly followed by all of its responses, and no response without its call.

    A call that was not answered in full goes with the responses it had; what a user wrote beside them stays. What can
    not be read goes, and so does an assistant's element with nothing in it.
    """
    twins = comprehensive(messages)
    elements = [dialect.read(twin) for twin in twins]
    kept = {at: twins[at] for at, element in enumerate(elements) if element and _is_others(element)}
    for step in _steps(elements):
        valid = _valid(step, elements)
        kept.update((at, twins[at]) for at in valid)
        for at in set(step.answering) - valid:
            if text := _of_user(elements[at]):
                kept[at] = dialect.said("user", text)
    return [kept[at] for at in sorted(kept)]


def safe_cuts(dialect: Dialect, messages: Sequence[object]) -> list[int]:
    """Where a history can be split into `messages[:cut]` and `messages[cut:]`: no call is cut from its response.

    Neither end is among them, nor any place amid what an assistant said in one go.
    """
    elements = [dialect.read(message) for message in messages]
    ends: dict[int, int] = {}
    for start, end in (*_pairs(elements), *_spans(elements)):
        ends[start] = max(end, ends.get(start, end))
    cuts: list[int] = []
    held = 0
    for at in range(len(messages)):
        if at > held:
            cuts.append(at)
        held = max(held, ends.get(at, at))
    return cuts


def _pairs(elements: Sequence[Element | None]) -> Iterator[tuple[int, int]]:
    """Where a call is and where its response, which is that of the latest open one of its name."""
    waiting: list[tuple[str, int]] = []
    for at, element in enumerate(elements):
        if element is None:
            continue
        for answer in element.answers:
            for call in reversed(waiting):
                if call[0] == answer or not (call[0] and answer):
                    waiting.remove(call)
                    yield call[1], at
                    break
        waiting.extend((call, at) for call in element.calls)
        del waiting[:-_OPEN_CALLS_KEPT]


def _spans(elements: Sequence[Element | None]) -> Iterator[tuple[int, int]]:
    for step in _steps(elements):
        yield from pairwise(step.speaking)


def _steps(elements: Sequence[Element | None]) -> list[_Step]:
    """The first may be responses alone, and so may one after another's words: their calls are not before them."""
    steps = [_Step()]
    goes_on = True
    for at, element in enumerate(elements):
        if element is None:
            continue
        if element.role == "assistant":
            if not goes_on or steps[-1].answering:
                steps.append(_Step())
            steps[-1].speaking.append(at)
            goes_on = True
        elif element.answers:
            if not goes_on:
                steps.append(_Step())
            steps[-1].answering.append(at)
            goes_on = True
        else:
            goes_on = False
    return steps


def _valid(step: _Step, elements: Sequence[Element | None]) -> set[int]:
    calls = [call for at in step.speaking for call in _calls(elements[at])]
    given = {at: _answers(elements[at]) for at in step.answering}
    if "" in calls or any("" in answers for answers in given.values()):
        # Some local servers give calls no ids; then only their number can tell.
        calls, given = [""] * len(calls), {at: [""] * len(answers) for at, answers in given.items()}
    waiting = Counter(calls)
    answering: set[int] = set()
    for at, answers in given.items():
        if all(count <= waiting[answer] for answer, count in Counter(answers).items()):
            waiting.subtract(answers)
            answering.add(at)
    is_whole = not +waiting
    return _speaking(step, elements, is_whole=is_whole) | (answering if is_whole else set())


def _speaking(step: _Step, elements: Sequence[Element | None], *, is_whole: bool) -> set[int]:
    """From the end, for what leads goes with the element after it."""
    valid: set[int] = set()
    is_next_valid = False
    for at in reversed(step.speaking):
        element = elements[at]
        assert element is not None
        if element.leads:
            is_valid = is_next_valid
        elif element.calls:
            is_valid = is_whole
        else:
            is_valid = not element.said or bool(element.text_of("assistant").strip())
        if is_valid:
            valid.add(at)
        is_next_valid = is_valid
    return valid


def _is_others(element: Element) -> bool:
    return element.role != "assistant" and not element.answers


def _of_user(element: Element | None) -> str:
    return element.text_of("user").strip() if element else ""


def _calls(element: Element | None) -> Sequence[str]:
    return element.calls if element else ()


def _answers(element: Element | None) -> Sequence[str]:
    return element.answers if element else ()


def _copied(message: object) -> list[object]:
    try:
        return [copy.deepcopy(message)]
    except Exception:  # the boundary: a host's object may refuse to be copied, and a view goes without it
        logger.exception("A %s could not be copied; it is left out of the view", type(message).__name__)
        return []
