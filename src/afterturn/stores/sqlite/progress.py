"""Whoever waits for a copy is told how far it is, and is asked whether to go on; by default there is nobody."""

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    return None


def never() -> bool:
    return False
