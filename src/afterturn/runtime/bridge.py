"""Turns coroutines of an internal object into methods of the public one: `awaiting` for hosts with an event loop,
`blocking` for hosts without."""

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
    """A public object: it has the internal object whose coroutines it offers, and the loop they run on."""

    @property
    def _core(self) -> C_co: ...
    @property
    def _loop(self) -> LoopThread: ...


def awaiting(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Bridged[C], P], Coroutine[Any, Any, R]]:
    """The coroutine as a public one that can be awaited on any event loop."""

    @functools.wraps(method)
    async def call(self: Bridged[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._loop.run(method(self._core, *args, **kwargs))

    return call


def blocking(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Bridged[C], P], R]:
    """The coroutine as a method that blocks until it has a result."""

    @functools.wraps(method)
    def call(self: Bridged[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.wait(method(self._core, *args, **kwargs))

    return call
