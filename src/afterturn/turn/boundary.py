"""The boundary between memory and its host: what goes wrong behind it costs the host its memory, and nothing else."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from afterturn.base.errors import ForkedProcess, MemoryClosed

logger = logging.getLogger("afterturn")


class Misusable(Protocol):
    def check(self) -> None:
        """Raises MemoryClosed or ForkedProcess where there is nothing to hope for."""

    def misused(self, event: str, how: str) -> None:
        """Tells the host, once."""


class Facing(Protocol):
    """A public object: what it stands for is behind the boundary."""

    @property
    def _core(self) -> Misusable: ...


F = TypeVar("F", bound=Facing)
P = ParamSpec("P")
R = TypeVar("R")


def contained(method: Callable[Concatenate[F, P], R]) -> Callable[Concatenate[F, P], R | None]:
    """Memory's fault never fails the host's turn: it is logged, told as an event, and gives None."""

    @functools.wraps(method)
    def call(self: F, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            self._core.check()
            return method(self, *args, **kwargs)
        except ForkedProcess:
            self._core.misused("memory_forked", "in a forked child; open memory again there")
        except MemoryClosed:
            self._core.misused("memory_closed", "after its memory was closed")
        except Exception:  # the boundary: whatever it is, the host goes on
            logger.exception("memory failed; the turn goes on without it")
        return None

    return call
