"""Two deep-copied views of a history (K2), and where it can be cut. The host's own objects are never edited."""

import copy
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from afterturn.dialects.dialect import Dialect, Element

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
    """Everything, as it is. What can not be copied is left out, and logged."""
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
