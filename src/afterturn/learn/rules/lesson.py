"""What one message teaches, as one statement."""

from __future__ import annotations

from dataclasses import dataclass

from afterturn.base.types import Target

PREFERENCE = "preference"
NAME = "name"
FACT = "fact"
RULE = "rule"
CORRECTION = "correction"


@dataclass(frozen=True, slots=True)
class Lesson:
    """`message` is an index into the messages that were read. `replaces` is what a correction says is no longer so,
    blank where nothing is said to be wrong."""

    text: str
    target: Target
    kind: str
    message: int
    replaces: str = ""
