"""Detects the message format of a host's list, and reads a list in any: user messages, open calls, exchanges, places
for a block, valid views.

Pure: nothing is edited, nothing raises. Lists may be endless, so every search is bounded, from the end.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile, islice, pairwise
from typing import NamedTuple, TypeVar, cast

from afterturn.dialects.anthropic import Anthropic
from afterturn.dialects.bedrock import Bedrock
from afterturn.dialects.dialect import Dialect, Element, Strip, convert_like, plain_fields
from afterturn.dialects.gemini import Gemini
from afterturn.dialects.langchain import LangChain
from afterturn.dialects.openai_chat import OpenAIChat
from afterturn.dialects.openai_responses import OpenAIResponses
from afterturn.errors import InvalidInput
from afterturn.log import logger
from afterturn.text import content_hash
from afterturn.types import HandoverPoint, Message

M = TypeVar("M")
_ALL: tuple[Dialect, ...] = (OpenAIChat(), OpenAIResponses(), Anthropic(), Gemini(), Bedrock(), LangChain())
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in _ALL}
"""By name. If a list may be in several formats, the first is chosen: its messages are valid in the next two."""

# A list may hold a hundred thousand messages, so only its beginning and end are read. Formats do not mix within one.
_FIRST = 20
_NEWEST = 200
_FOLLOWED = 16


def get_dialect(name: str) -> Dialect:
    if (dialect := DIALECTS.get(name)) is None:
        raise InvalidInput(f"There is no dialect {name!r}. Use one of {', '.join(DIALECTS)}.")
    return dialect


def register_dialect(dialect: Dialect) -> None:
    """Adds the format of a framework, which is used where it is named and never detected."""
    DIALECTS[dialect.name] = dialect


def find_dialect(messages: Sequence[object], named: str | None = None) -> Dialect | None:
    """Returns None if no known format fits. An empty list counts as OpenAI chat.

    Reads only the beginning and the end of a long list. A format that the host has `named` is not checked.
    """
    if named is not None:
        return DIALECTS.get(named)
    newest = messages[-_NEWEST:]
    examined = _distinctive([*messages[: min(_FIRST, len(messages) - len(newest))], *newest])
    if all(map(plain_fields, examined)):
        return _ALL[0]  # every format reads these alike
    possible: list[Dialect] = []
    for dialect, is_certain in _possible(examined):
        if is_certain:
            return dialect
        possible.append(dialect)
    for dialect in possible:
        if not examined or any(dialect.read(message) is not None for message in examined):
            return dialect
    return None


def follow_dialect(dialect: Dialect, messages: Sequence[object]) -> Dialect | None:
    """Returns `dialect` if the newest messages may be in it, else the format that is detected now.

    A conversation often begins with messages that may be in several formats. Fast enough for every hand-over.
    """
    verdicts = list(map(dialect.recognises, _distinctive(messages[-_FOLLOWED:])))
    return find_dialect(messages) if False in verdicts else dialect


def _distinctive(messages: Sequence[object]) -> list[object]:
    """Leaves out all but the first plain message of each role: the others show nothing new about the format.

    Most messages are plain, and testing one against every format takes several microseconds.
    """
    kept: list[object] = []
    roles: set[str] = set()
    for message in messages:
        plain = plain_fields(message)
        if plain is None or plain[0] not in roles:
            kept.append(message)
        if plain is not None:
            roles.add(plain[0])
    return kept


def _possible(messages: Sequence[object]) -> Iterator[tuple[Dialect, bool]]:
    """The formats that no message rules out, each with whether a message proves it."""
    for dialect in _ALL:
        is_certain = False
        for message in messages:
            verdict = dialect.recognises(message)
            if verdict is False:
                break
            is_certain = is_certain or verdict is True
        else:
            yield dialect, is_certain


_RESPONSES_READ_MAX = 512
_TURN_MESSAGES_MAX = 10_000
_USERS_COMPARED = 256


class Exchange(NamedTuple):
    """The messages of one turn, as they will be recorded. Empty if its user message is not in the list.

    `ends_complete`: the list ends with an assistant's message and no call is open. Elements that cannot be read are
    left out. `outside`: something entered the turn that is not in `messages` and that neither the user nor the
    assistant wrote: a picture, a file, a result without text, what a tool of the provider returned, the response to a
    call of an earlier turn, or an element that cannot be read.
    """

    messages: tuple[Message, ...]
    ends_complete: bool
    outside: bool = False

    @property
    def is_untrusted(self) -> bool:
        """Whether anything in the turn comes from a tool, a file or another source besides the user and the assistant.

        Whatever the assistant said in such a turn may come from there.
        """
        return self.outside or any(message.role == "tool" for message in self.messages)


def find_latest_user(dialect: Dialect, messages: Sequence[object], strip: Strip) -> tuple[int, str] | None:
    """The index and text of the latest user message that has text besides our own blocks."""
    return _latest(_users(len(messages), lambda at: dialect.read(messages[at])), strip)


def find_user_in(elements: Sequence[Element | None], strip: Strip) -> tuple[int, str] | None:
    """The same in a list that was read."""
    return _latest(_users(len(elements), elements.__getitem__), strip)


def _latest(users: Iterable[tuple[int, Element]], strip: Strip) -> tuple[int, str] | None:
    for at, element in users:
        text = strip(element.text_of("user"))
        if text.strip():
            return at, text
        if any(not one.text.strip() for one in element.utterances if one.role == "user"):
            return None  # the latest message of the user has no text: an image, or blank
    return None


def has_open_call(dialect: Dialect, messages: Sequence[object]) -> bool:
    """Whether one of the assistant's latest calls has no response yet.

    Assumes so if the call is not found because there are too many responses.
    """
    return _is_open(_step(dialect, messages), len(messages))


def _is_open(step: Sequence[Element | None], length: int) -> bool:
    calls = [call for element in step if element for call in element.calls]
    answers = [answer for element in step if element for answer in element.answers]
    if any(element is not None and element.role == "assistant" for element in step):
        return _is_waiting(calls, answers)
    return bool(answers) and length > _RESPONSES_READ_MAX


def _step(dialect: Dialect, messages: Sequence[object]) -> list[Element | None]:
    """The latest step, newest element first: the assistant's elements, of which there may be several, and all after."""
    step: list[Element | None] = []
    has_spoken = False
    for message in islice(reversed(messages), _RESPONSES_READ_MAX):
        element = dialect.read(message)
        if element is not None:
            if has_spoken and element.role != "assistant":
                break
            has_spoken = has_spoken or element.role == "assistant"
        step.append(element)
    return step


def _is_waiting(calls: Sequence[str], answers: Sequence[str]) -> bool:
    if "" in calls or "" in answers:
        # Some local servers give calls no ids, so they can only be counted.
        return len(answers) < len(calls)
    return bool(Counter(calls) - Counter(answers))


def find_point(dialect: Dialect, messages: Sequence[object], *, turn_start: int = 0) -> HandoverPoint | None:
    """Where a block may be appended now: after a user's message, or after the responses to all calls.

    Ignores system and developer messages at the end. None if an unknown element is there. Calls before the index
    `turn_start` belong to earlier turns: if one has no response, it was interrupted and will not get any.
    """
    step = _step(dialect, messages)
    last = next((element for element in step if element is None or element.role != "system"), None)
    if last is None or last.role == "assistant" or _is_open(step[: len(messages) - turn_start], len(messages)):
        return None
    return HandoverPoint.TOOL_RESULT if last.role == "tool" else HandoverPoint.USER_MESSAGE


def new_element(dialect: Dialect, messages: Sequence[object], text: str, role: str = "user") -> object:
    """A message with this text, of the same class as the newest element of that role if possible, else a mapping.

    The tool loops of Gemini's client read attributes, so they need objects. In a list without a user's element, the
    class of a tool's element is tried: Gemini has one class for both.
    """
    made = dialect.make_message(role, text)
    sample = _newest(dialect, messages, role)
    wanted = dialect.read(made)
    return next((one for one in convert_like(sample, made) if dialect.read(one) == wanted), made)


def _newest(dialect: Dialect, messages: Sequence[object], role: str) -> object | None:
    tools: object | None = None
    for message in islice(reversed(messages), _RESPONSES_READ_MAX):
        element = dialect.read(message)
        if element is not None and element.role == role:
            return message
        if tools is None and role == "user" and element is not None and element.role == "tool":
            tools = message
    return tools


def find_exchange(dialect: Dialect, messages: Sequence[object], user_hash: str, strip: Strip) -> Exchange:
    """The turn that began with the last user message of that content hash.

    Text that an assistant wrote together with a call is included, because the user has read it. Calls are not.
    """
    start = find_user(dialect, messages, user_hash, strip)
    return Exchange((), ends_complete=False) if start is None else read_exchange(dialect, messages, start, strip)


def read_exchange(dialect: Dialect, messages: Sequence[object], start: int, strip: Strip) -> Exchange:
    """The turn whose user message is at index `start`. By index, because a turn may contain the same words twice."""
    if not messages:
        return Exchange((), ends_complete=False)
    elements = dropwhile(lambda element: element is None or not _has_user(element), map(dialect.read, messages[start:]))
    turn = list(elements)
    # Responses before the user's text in the same element belong to calls of an earlier turn.
    earlier = len(turn[0].answers) if turn and turn[0] is not None else 0
    own = [message for element in turn if element is not None for message in element.messages][earlier:]
    spoken = [(message, strip(message.text)) for message in own if message.role != "system"]
    last = dialect.read(messages[-1])
    read = [element for element in turn if element is not None]
    is_blank = any(one.role == "tool" and not one.text.strip() for element in read for one in element.utterances)
    return Exchange(
        tuple(
            message if text == message.text else replace(message, text=text, hash=content_hash(text))
            for message, text in spoken
            if text.strip()
        ),
        ends_complete=last is not None and last.role == "assistant" and not has_open_call(dialect, messages),
        outside=earlier > 0 or is_blank or len(read) < len(turn) or any(element.outside for element in read),
    )


def _has_user(element: Element) -> bool:
    return "user" in [one.role for one in element.utterances]


def any_untrusted(elements: Iterable[Element | None]) -> bool:
    """Whether one of the elements has text that neither the user nor the assistant wrote, or cannot be read."""
    return any(element is None or element.is_untrusted for element in elements)


def _users(length: int, read: Callable[[int], Element | None]) -> Iterator[tuple[int, Element]]:
    """The users' elements with their indexes, latest first, as far back as a turn may reach."""
    for at in range(length - 1, max(-1, length - 1 - _TURN_MESSAGES_MAX), -1):
        element = read(at)
        if element is not None and _has_user(element):
            yield at, element


def find_user(dialect: Dialect, messages: Sequence[object], user_hash: str, strip: Strip) -> int | None:
    """The index of the last user message of that content hash."""
    for at, element in islice(_users(len(messages), lambda at: dialect.read(messages[at])), _USERS_COMPARED):
        if content_hash(strip(element.text_of("user"))) == user_hash:
            return at
    return None


# Copies of a history, complete or valid turns only, and the places where it can be cut.

# A broken history may have many calls without a response, and each response is compared with all of them.
_OPEN_CALLS_MAX = 512


@dataclass(slots=True)
class _Step:
    """Consecutive elements of the assistant and the responses directly after them, as indexes into the history.

    `speaking` is empty for responses before the first element of the assistant.
    """

    speaking: list[int] = field(default_factory=list)
    answering: list[int] = field(default_factory=list)


def comprehensive_history(messages: Sequence[M]) -> list[M]:
    """Returns a deep copy of all messages. Those that cannot be copied are left out and logged."""
    return [twin for message in messages for twin in _copied(message)]


def curated_history(messages: Sequence[M], *, dialect: str | None = None) -> list[M]:
    """Returns a deep copy of the valid turns of a history: each call is directly followed by all of its responses.

    Left out are calls with missing responses and the responses they have, responses without a call, elements that
    cannot be read, and empty elements of the assistant. `dialect` names the message format instead of detecting it.
    Raises InvalidInput for a format that is not known.
    """
    found = find_dialect(messages) if dialect is None else get_dialect(dialect)
    if found is None:
        raise InvalidInput(f"The message format is not known. Use one of: {', '.join(DIALECTS)}.")
    return cast(list[M], curated(found, messages))


def curated(dialect: Dialect, messages: Sequence[object]) -> list[object]:
    """As `curated_history`, in a known format. A user's text in the same element as a response stays."""
    twins = comprehensive_history(messages)
    elements = [dialect.read(twin) for twin in twins]
    others = (at for at, one in enumerate(elements) if one and one.role != "assistant" and not one.answers)
    kept = {at: twins[at] for at in others}
    for step in _steps(elements):
        valid = _valid(step, elements)
        kept.update((at, twins[at]) for at in valid)
        for at in set(step.answering) - valid:
            if (element := elements[at]) and (text := element.text_of("user").strip()):
                kept[at] = dialect.make_message("user", text)
    return [kept[at] for at in sorted(kept)]


def find_safe_cuts(dialect: Dialect, messages: Sequence[object]) -> list[int]:
    """The indexes at which a history can be split into `messages[:cut]` and `messages[cut:]`, without both ends.

    No call is separated from its response, and consecutive elements of the assistant stay together.
    """
    elements = [dialect.read(message) for message in messages]
    ends: dict[int, int] = {}
    together = (pair for step in _steps(elements) for pair in pairwise(step.speaking))
    for start, end in (*_pairs(elements), *together):
        ends[start] = max(end, ends.get(start, end))
    cuts: list[int] = []
    held = 0
    for at in range(len(messages)):
        if at > held:
            cuts.append(at)
        held = max(held, ends.get(at, at))
    return cuts


def _pairs(elements: Sequence[Element | None]) -> Iterator[tuple[int, int]]:
    """The indexes of each call and its response. A response belongs to the latest open call of its id."""
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
        del waiting[:-_OPEN_CALLS_MAX]


def _steps(elements: Sequence[Element | None]) -> list[_Step]:
    """The first step may be responses alone, and so may one after a user's message: their calls are missing."""
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
    calls = [call for at in step.speaking if (element := elements[at]) for call in element.calls]
    given = {at: list(element.answers) for at in step.answering if (element := elements[at])}
    if "" in calls or any("" in answers for answers in given.values()):
        # Some local servers give calls no ids; then only their number can be compared.
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
    """Goes backwards, because an element that leads is valid if the next one is."""
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
            is_valid = not element.utterances or bool(element.text_of("assistant").strip())
        if is_valid:
            valid.add(at)
        is_next_valid = is_valid
    return valid


def _copied(message: M) -> list[M]:
    try:
        return [copy.deepcopy(message)]
    except Exception:  # the boundary: an object that cannot be copied is left out
        logger.exception("a %s could not be copied and is left out", type(message).__name__)
        return []
