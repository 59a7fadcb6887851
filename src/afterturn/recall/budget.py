"""Which hits go into a block, and how much of each (H9). Pure: the caller says what a line costs."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from afterturn.base.config import Config
from afterturn.base.tokens import estimate_tokens
from afterturn.base.types import Excerpt, Hit, Lane
from afterturn.guard.screening import Screen
from afterturn.recall.window import best_window

# What a model may choose among (R7).
CHOICES_MAX = 200
# Of the entries of a block: what each lane that has something is sure of, and what none may exceed while others wait.
_LANE_SHARE_MIN = 1 / 8
_LANE_SHARE_MAX = 5 / 8
_WINDOW_BYTES_MIN = 64
# Long memories that did not fit, each after a search for its best window; behind them only short ones are tried.
_MISFITS_MAX = 8


@dataclass(frozen=True, slots=True)
class Budget:
    """The ceilings of one block. `bytes_max` and `tokens_max` are for the whole of it, tags and heading included."""

    entries_max: int
    entry_bytes_max: int
    bytes_max: int
    tokens_max: int

    @classmethod
    def of(cls, config: Config, *, visible_bytes: int = 0) -> Self:
        """What is left for the next block when blocks of `visible_bytes` are in the model's context already."""
        return cls(
            entries_max=config.recall_entries_max,
            entry_bytes_max=config.entry_bytes_max,
            bytes_max=min(config.block_bytes_max, config.visible_bytes_max - visible_bytes),
            tokens_max=config.block_tokens_max,
        )

    @property
    def lane_entries_min(self) -> int:
        return max(1, math.floor(self.entries_max * _LANE_SHARE_MIN))

    @property
    def lane_entries_max(self) -> int:
        return max(1, math.ceil(self.entries_max * _LANE_SHARE_MAX))


def choose(
    hits: Sequence[Hit], budget: Budget, *, frame: str, line: Callable[[Excerpt], str], screen: Screen
) -> list[Excerpt]:
    """The best of `hits` (best first) that fit, best first.

    `frame` is the block without a line, `line` the text of one excerpt's line. Each lane with a hit gets its floor
    before any gets more, cut shorter when need be; a lane at its ceiling gets more only when nothing of the others is
    left. What does not fit is passed over for smaller ones behind it, and so are long ones once eight did not fit.
    What `screen` withholds gives its place to others.
    """
    purse = _Purse(budget, frame, line, screen)
    sure, others = _by_turns(hits, budget)
    for hit in sure:
        purse.take_surely(hit)
    for hit in others:
        purse.take(hit)
    places = {hit.entry.ref: place for place, hit in enumerate(hits)}
    return sorted(purse.taken, key=lambda excerpt: places[excerpt.hit.entry.ref])


class _Purse:
    def __init__(self, budget: Budget, frame: str, line: Callable[[Excerpt], str], screen: Screen) -> None:
        self.taken: list[Excerpt] = []
        self._entry_bytes_max = budget.entry_bytes_max
        self._line = line
        self._screen = screen
        self._entries = budget.entries_max
        self._misfits = 0
        self._bytes = budget.bytes_max - len(frame.encode())
        self._tokens = budget.tokens_max - estimate_tokens(frame)

    def take_surely(self, hit: Hit) -> None:
        """Dense scripts cost a token or more a character; half a window is better than a lane left out."""
        size = self._entry_bytes_max
        while not self._take(hit, size) and size >= 2 * _WINDOW_BYTES_MIN:
            size //= 2

    def take(self, hit: Hit) -> None:
        is_long = len(hit.entry.text) > self._entry_bytes_max
        if is_long and self._misfits >= _MISFITS_MAX:
            return
        if not self._take(hit, self._entry_bytes_max):
            self._misfits += is_long

    def _take(self, hit: Hit, entry_bytes: int) -> bool:
        if self._entries <= 0 or (shown := self._screen.shown(hit.entry)) is None:
            return False
        excerpt = Excerpt(hit, best_window(shown, hit.terms, entry_bytes))
        text = self._line(excerpt) + "\n"
        size, tokens = len(text.encode()), estimate_tokens(text)
        if size > self._bytes or tokens > self._tokens:
            return False
        self.taken.append(excerpt)
        self._entries -= 1
        self._bytes -= size
        self._tokens -= tokens
        return True


def _by_turns(hits: Iterable[Hit], budget: Budget) -> tuple[list[Hit], list[Hit]]:
    """Every lane's floor; then the rest up to the ceilings, then what is left over. Best first within each."""
    sure: list[Hit] = []
    shared: list[Hit] = []
    spare: list[Hit] = []
    seen: dict[Lane, int] = dict.fromkeys(Lane, 0)
    for hit in hits:
        rank = seen[hit.lane]
        seen[hit.lane] += 1
        if rank < budget.lane_entries_min:
            sure.append(hit)
        elif rank < budget.lane_entries_max:
            shared.append(hit)
        else:
            spare.append(hit)
    return sure, shared + spare
