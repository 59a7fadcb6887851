"""Turns coroutines of an internal object into methods of two public ones: awaited by hosts with an event loop, blocking
for hosts without. Each method is listed once, in a base class that both public classes share."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from afterturn.runtime.loop_thread import LoopThread

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)


class AsyncFacade:
    """A public object whose bridged methods are coroutines, which may be awaited on any event loop."""


class BlockingFacade:
    """A public object whose bridged methods block until they have a result."""


class Bridged(Generic[C, P, R]):
    """A coroutine of `_core`, as a method of a facade. The class of the facade decides whether it is awaited."""

    def __init__(self, method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]]) -> None:
        self._awaited = _awaited(method)
        self._blocking = _blocking(method)

    @overload
    def __get__(self, facade: AsyncFacade, owner: type[object]) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, facade: BlockingFacade, owner: type[object]) -> Callable[P, R]: ...
    @overload
    def __get__(self, facade: None, owner: type[object]) -> Callable[..., Any]: ...
    def __get__(self, facade: object, owner: type[object]) -> Callable[..., Any]:
        method = self._blocking if issubclass(owner, BlockingFacade) else self._awaited
        return method if facade is None else types.MethodType(method, facade)


class _Facade(Protocol[C_co]):
    @property
    def _core(self) -> C_co: ...
    @property
    def _loop(self) -> LoopThread: ...


def _awaited(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_Facade[C], P], Coroutine[Any, Any, R]]:
    @functools.wraps(method)
    async def call(self: _Facade[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._loop.run(method(self._core, *args, **kwargs))

    return call


def _blocking(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_Facade[C], P], R]:
    @functools.wraps(method)
    def call(self: _Facade[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.wait(method(self._core, *args, **kwargs))

    return call
