"""afterturn: host-managed memory for LLM agents.

The public names, loaded when they are first used: importing afterturn costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from afterturn import blocking as blocking
    from afterturn.base.config import Config as Config
    from afterturn.base.errors import AfterturnError as AfterturnError
    from afterturn.base.recording_ports import Interaction as Interaction
    from afterturn.base.recording_ports import RecordingProvider as RecordingProvider
    from afterturn.base.types import Draft as Draft
    from afterturn.base.types import Entry as Entry
    from afterturn.base.types import Event as Event
    from afterturn.base.types import Filter as Filter
    from afterturn.base.types import Lane as Lane
    from afterturn.base.types import Scope as Scope
    from afterturn.base.types import SearchResults as SearchResults
    from afterturn.memory import Memory as Memory
    from afterturn.memory import Space as Space
    from afterturn.memory import open as open
    from afterturn.parts import Parts as Parts
    from afterturn.turn.awaited import Conversation as Conversation
    from afterturn.turn.turn import Turn as Turn

_HOMES = {
    "AfterturnError": "afterturn.base.errors",
    "Config": "afterturn.base.config",
    "Conversation": "afterturn.turn.awaited",
    "Draft": "afterturn.base.types",
    "Entry": "afterturn.base.types",
    "Event": "afterturn.base.types",
    "Filter": "afterturn.base.types",
    "Interaction": "afterturn.base.recording_ports",
    "Lane": "afterturn.base.types",
    "Memory": "afterturn.memory",
    "Parts": "afterturn.parts",
    "SearchResults": "afterturn.base.types",
    "RecordingProvider": "afterturn.base.recording_ports",
    "Scope": "afterturn.base.types",
    "Space": "afterturn.memory",
    "Turn": "afterturn.turn.turn",
    "open": "afterturn.memory",
}
__all__ = sorted([*_HOMES, "blocking"])
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    import importlib

    if name == "blocking":
        return importlib.import_module("afterturn.blocking")
    if name not in _HOMES:
        raise AttributeError(f"module 'afterturn' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
