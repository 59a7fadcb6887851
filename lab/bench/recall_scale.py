"""How much a run of the recall benchmark measures, and what it was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lab.bench.report import command_of

ROWS = ("spaces", "large", "small", "growth", "concurrent", "opening", "memory")
MEBIBYTE = 1024 * 1024
# As wide as vectors of small sentence models; ours may be narrower.
WIDTH = 384

Told: TypeAlias = Callable[[str], None]
# Of each size, ours and the matrix product in seconds.
Growth: TypeAlias = "tuple[tuple[int, float, float], ...]"


@dataclass(frozen=True, slots=True)
class Options:
    """`keep` is a folder whose stores the next run finds again; without it they are removed at the end."""

    quick: bool = False
    only: tuple[str, ...] = ROWS
    spaces: int | None = None
    text: Path | None = None
    keep: Path | None = None
    plots: Path | None = None

    def command(self) -> str:
        parts = ["--quick" if self.quick else ""]
        parts += [f"--only {row}" for row in ROWS if row in self.only and self.only != ROWS]
        parts.append("" if self.spaces is None else f"--spaces {self.spaces}")
        parts.append("" if self.text is None else f"--text {self.text.name}")
        return command_of("recall", *parts)


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes are memories in a space. `bounded_bytes` is the `index_bytes_max` under which residence is watched.

    `compared` are the questions that are asked exactly too, which takes long.
    """

    spaces: int
    space_size: int
    calls: int
    bounded_bytes: int
    large: int
    large_beside: int
    large_calls: int
    exclusions: int
    compared: int
    small: tuple[int, ...]
    small_calls: int
    growth: tuple[int, ...]
    growth_rounds: int
    growth_calls: int
    concurrent: int
    concurrent_rounds: int
    concurrent_seconds: float
    processes: int


FULL = Scale(
    spaces=10_000,
    space_size=1_000,
    calls=600,
    bounded_bytes=64 * MEBIBYTE,
    large=100_000,
    large_beside=900,
    large_calls=400,
    exclusions=200,
    compared=150,
    small=(1_000, 10_000),
    small_calls=1_000,
    growth=(1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
    growth_rounds=15,
    growth_calls=10,
    concurrent=10_000,
    concurrent_rounds=5,
    concurrent_seconds=2.0,
    processes=9,
)
QUICK = Scale(
    spaces=12,
    space_size=60,
    calls=20,
    bounded_bytes=MEBIBYTE,
    large=600,
    large_beside=4,
    large_calls=10,
    exclusions=20,
    compared=10,
    small=(100, 600),
    small_calls=10,
    growth=(100, 300, 600),
    growth_rounds=2,
    growth_calls=3,
    concurrent=600,
    concurrent_rounds=1,
    concurrent_seconds=0.2,
    processes=1,
)
