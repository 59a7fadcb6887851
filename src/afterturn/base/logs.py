"""Loggers for what is loaded before a first answer: `logging` takes 4 ms to load, and seldom is anything to be said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from afterturn.base.loading import load_logging

if TYPE_CHECKING:
    from logging import Logger


def find_logger(name: str) -> Logger:
    """`logging.getLogger(name)`, looked for when it is first used."""
    return cast("Logger", _Logger(name))


class _Logger:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        load_logging()
        from logging import getLogger

        return getattr(getLogger(self._name), attribute)
