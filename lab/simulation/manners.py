"""How a simulated host treats its memory: drawn once for each conversation, by the world's chance."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Literal, TypedDict


class Kind(StrEnum):
    """What a host does with its list of messages.

    `growing`: it only grows. `merging`: the same, with placement="merge". `rebuilding`: it is written anew at steps,
    without our blocks. `hidden`: memory is shown this turn's messages alone. `writing`: the host writes its prompt
    itself, with `turn.block()`.
    """

    GROWING = "growing"
    MERGING = "merging"
    REBUILDING = "rebuilding"
    HIDDEN = "hidden"
    WRITING = "writing"


class Options(TypedDict, total=False):
    history: Literal["shown", "hidden"]
    placement: Literal["append", "merge"]


@dataclass(frozen=True, slots=True)
class Manners:
    """Chances from 0 to 1, each time there is an occasion. `stalls`: its client library blocks its loop."""

    kind: Kind
    grace: float
    stalls: float = 0.0
    aborts: float = 0.05
    cancels: float = 0.12
    completes: float = 0.5
    compacts: float = 0.1
    resets: float = 0.04
    types: float = 0.2
    interjects: float = 0.12
    cues: float = 0.12
    lingers: float = 0.08
    outlives: float = 0.1

    @property
    def is_shown(self) -> bool:
        return self.kind is not Kind.HIDDEN

    @property
    def options(self) -> Options:
        if self.kind is Kind.MERGING:
            return {"placement": "merge"}
        return {} if self.is_shown else {"history": "hidden"}


def draw(random: Random, grace: float, *, stalls: bool) -> Manners:
    return Manners(random.choice([Kind.GROWING, *Kind]), grace, stalls=0.2 if stalls else 0.0)
