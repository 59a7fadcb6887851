"""Whether recall keeps quiet at what asks for nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from afterturn.evaluation.conversations import Talk
from afterturn.evaluation.small_talk import SMALL_TALK
from afterturn.evaluation.sources import Utterances
from afterturn.evaluation.subject import DAY, Subject
from afterturn.recall.query import is_askable

OWN = Utterances("small_talk", SMALL_TALK)
# An utterance takes about as long as a question.
SAMPLE = 300


@dataclass(slots=True)
class Spoken:
    """How many things were said, how many of them were not worth a recall, and those at which there was a block."""

    count: int = 0
    not_asked: int = 0
    heard: list[str] = field(default_factory=list)

    def add(self, other: Spoken) -> None:
        self.count += other.count
        self.not_asked += other.not_asked
        self.heard += other.heard

    def shares(self) -> dict[str, float]:
        """Of all that was said. Silence is the sum of the two that follow it."""
        silent = self.count - len(self.heard)
        return {
            "silence": silent / self.count,
            "not_asked": self.not_asked / self.count,
            "below_floor": (silent - self.not_asked) / self.count,
        }


def sampled(texts: Sequence[str], count: int = SAMPLE) -> Sequence[str]:
    """At even distances, the same ones each time."""
    if len(texts) <= count:
        return texts
    return [texts[at * len(texts) // count] for at in range(count)]


def spoken_to(
    subject: Subject, spaces: Sequence[tuple[str, Talk]], utterances: Utterances, asked: Callable[[], None]
) -> Spoken:
    """Each of the utterances in the next of the spaces."""
    spoken = Spoken()
    for at, text in enumerate(sampled(utterances.texts)):
        space, talk = spaces[at % len(spaces)]
        subject.clock.set(max(item.at for item in talk.items) + DAY)
        spoken.count += 1
        if subject.handed_over(space, text).text:
            spoken.heard.append(text)
        elif not is_askable(text):
            spoken.not_asked += 1
        asked()
    return spoken
