"""Reads a field of a mapping or of a client library's object, whatever that object does when it is touched."""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

logger = logging.getLogger(__name__)
R = TypeVar("R")


def field(source: object, name: str) -> object:
    """None when there is no such field, or when reading it fails (which is logged)."""
    return _read(source, name, _as_it_is)


def text_field(source: object, name: str) -> str | None:
    return _read(source, name, _as_text)


def list_field(source: object, name: str) -> Sequence[object]:
    """Empty when the field is missing or no list."""
    return _read(source, name, _as_list) or ()


def json_field(source: object, name: str) -> str:
    """A structured value as a person would read it: JSON, or its only text when it holds nothing else."""
    return _read(source, name, _as_json) or ""


def _read(source: object, name: str, take: Callable[[object], R]) -> R | None:
    try:
        # Asked first, since it answers at once for what most hosts have.
        is_mapping = type(source) is dict or isinstance(source, Mapping)
        return take(source.get(name) if is_mapping else getattr(source, name, None))  # type: ignore[attr-defined]
    except BaseException as error:  # the boundary: a host's object may run any code, and a turn must survive it
        if isinstance(error, KeyboardInterrupt | SystemExit) and _may_be_a_signal():
            raise
        logger.exception("A %s could not be read for %r; it is treated as unknown", type(source).__name__, name)
        return None


def _may_be_a_signal() -> bool:
    """Handlers of signals run on the main thread only; on memory's own thread it is the object that raises these."""
    return threading.current_thread() is threading.main_thread()


def _as_it_is(value: object) -> object:
    return value


def _as_text(value: object) -> str | None:
    if value is None or type(value) is str:
        return value
    # An exact string: a subclass could run its own code at each later use.
    return str.__str__(value) if isinstance(value, str) else None


def _as_list(value: object) -> list[object] | None:
    return list(value) if isinstance(value, list | tuple) else None


def _as_json(value: object) -> str:
    if isinstance(value, Mapping) and len(value) == 1:
        (value,) = value.values()
    if isinstance(value, str):
        return str.__str__(value)
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
