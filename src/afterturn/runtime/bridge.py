"""A core's coroutines as methods of the public object that stands for it: awaited from any loop, or waited for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from afterturn.runtime.loop_thread import LoopThread

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)


class Bridged(Protocol[C_co]):
    """A public object: the core it stands for, and the loop that core lives on."""

    @property
    def _core(self) -> C_co: ...
    @property
    def _loop(self) -> LoopThread: ...


def awaiting(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Bridged[C], P], Coroutine[Any, Any, R]]:
    """A core's coroutine as a public one, awaited from any loop."""

    @functools.wraps(method)
    async def call(self: Bridged[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._loop.run(method(self._core, *args, **kwargs))

    return call


def blocking(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Bridged[C], P], R]:
    """A core's coroutine as a plain method, for threads without a loop."""

    @functools.wraps(method)
    def call(self: Bridged[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.wait(method(self._core, *args, **kwargs))

    return call
