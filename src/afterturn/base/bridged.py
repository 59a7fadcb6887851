"""A core's coroutines as methods of the public object that stands for it: awaited from any loop, or waited for.

Loads no event loop itself: which one there is, and whether it runs yet, is the object's affair.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from afterturn.base.loop import PrivateLoop

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)


class Bridged(Protocol[C_co]):
    """A public object: the core it stands for, and the loop that core lives on."""

    @property
    def _core(self) -> C_co: ...
    @property
    def _loop(self) -> PrivateLoop: ...


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


def blocking_later(
    find: Callable[[], Callable[Concatenate[C, P], Coroutine[Any, Any, R]]],
) -> Callable[Concatenate[Bridged[C], P], R]:
    """`blocking` for a core that is loaded when the method is first looked at, by the object's `_load_rest`."""
    return cast(Callable[Concatenate[Bridged[C], P], R], _Later(lambda: blocking(find())))


class _Later:
    """Stands in a class for a method until it is looked at, and then puts the method in its place."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._place = owner, name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is not None:
            instance._load_rest()
        owner, name = self._place
        setattr(owner, name, self._make())
        return getattr(owner if instance is None else instance, name)
