"""Detections, and the protocol that a scanner implements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias


class ScanAction(StrEnum):
    """The consequence of a finding. That of `SUSPECT` depends on the origin of the text."""

    REDACT = "redact"
    """The finding is replaced with a mark. Untrusted text is quarantined too."""
    REFUSE = "refuse"
    """A statement is refused; in the messages of a turn the finding is replaced with a mark."""
    SUSPECT = "suspect"
    """Untrusted text is quarantined. Trusted text is stored, and the reason says what was found."""


@dataclass(frozen=True, slots=True)
class Detection:
    """The place of something in a text, and its kind in a few words, such as "github token"."""

    kind: str
    start: int
    end: int
    action: ScanAction = ScanAction.REDACT


class Scanner(Protocol):
    """Searches a text. Scanners are called from several threads, so they keep no state of a text."""

    name: str

    def find(self, text: str) -> Sequence[Detection]:
        """The findings in order, without overlaps. Never raises; the time must grow no faster than the text."""


# The kind of what looks random behind a word such as `token`. A name like that may be an id.
UNSPECIFIC = "secret"


def without_overlaps(found: Iterable[Detection]) -> list[Detection]:
    """In order. Overlapping findings become one, of the kind of the first that says who issued it."""
    merged: list[Detection] = []
    for one in sorted(found, key=lambda one: (one.start, -one.end)):
        if merged and one.start < merged[-1].end:
            last = merged[-1]
            kind = one.kind if last.kind in (UNSPECIFIC, "password") else last.kind
            merged[-1] = Detection(kind, last.start, max(one.end, last.end), last.action)
        else:
            merged.append(one)
    return merged


DEFAULT_SCANNERS = ("secrets", "invisible", "look_alikes", "links", "instructions")


@dataclass(frozen=True, slots=True)
class ScanPolicy:
    """The names of the scanners that run, and what happens to personal data. Without names, nothing is scanned."""

    scanners: tuple[str, ...] = DEFAULT_SCANNERS
    personal_data: str = "off"

    def __bool__(self) -> bool:
        return bool(self.scanners)


Scanning: TypeAlias = ScanPolicy | bool
