"""Whether recall keeps quiet at what asks for nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from afterturn.lab.eval.conversations import Talk
from afterturn.lab.eval.small_talk import SMALL_TALK
from afterturn.lab.eval.sources import Utterances
from afterturn.lab.eval.subject import DAY, Subject

OWN = Utterances("small_talk", SMALL_TALK)
# An utterance takes about as long as a question.
SAMPLE = 300


def sampled(texts: Sequence[str], count: int = SAMPLE) -> Sequence[str]:
    """At even distances, the same ones each time."""
    if len(texts) <= count:
        return texts
    return [texts[at * len(texts) // count] for at in range(count)]


def spoken_to(
    subject: Subject, spaces: Sequence[tuple[str, Talk]], utterances: Utterances, asked: Callable[[], None]
) -> tuple[int, list[str]]:
    """How many things were said, each in the next of the spaces, and those at which it spoke."""
    texts = sampled(utterances.texts)
    heard: list[str] = []
    for at, text in enumerate(texts):
        space, talk = spaces[at % len(spaces)]
        subject.clock.set(max(item.at for item in talk.items) + DAY)
        if subject.handed_over(space, text).text:
            heard.append(text)
        asked()
    return len(texts), heard
