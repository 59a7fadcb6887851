"""afterturn: host-managed memory for LLM agents.

The public names, loaded when they are first used: importing afterturn costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from afterturn import blocking as blocking
    from afterturn.config import Config as Config
    from afterturn.conversation.conversation import Conversation as Conversation
    from afterturn.conversation.turn import Turn as Turn
    from afterturn.errors import AfterturnError as AfterturnError
    from afterturn.memory import Memory as Memory
    from afterturn.memory import Space as Space
    from afterturn.memory import open as open
    from afterturn.oneshot import recall_block_once as recall_block_once
    from afterturn.oneshot import recall_once as recall_once
    from afterturn.ports import Interaction as Interaction
    from afterturn.ports import RecordingProvider as RecordingProvider
    from afterturn.services import Components as Components
    from afterturn.types import Draft as Draft
    from afterturn.types import Entry as Entry
    from afterturn.types import Event as Event
    from afterturn.types import Filter as Filter
    from afterturn.types import Lane as Lane
    from afterturn.types import Scope as Scope
    from afterturn.types import SearchResults as SearchResults

_HOMES = {
    "AfterturnError": "afterturn.errors",
    "Config": "afterturn.config",
    "Conversation": "afterturn.conversation.conversation",
    "Draft": "afterturn.types",
    "Entry": "afterturn.types",
    "Event": "afterturn.types",
    "Filter": "afterturn.types",
    "Interaction": "afterturn.ports",
    "Lane": "afterturn.types",
    "Memory": "afterturn.memory",
    "Components": "afterturn.services",
    "SearchResults": "afterturn.types",
    "RecordingProvider": "afterturn.ports",
    "Scope": "afterturn.types",
    "Space": "afterturn.memory",
    "Turn": "afterturn.conversation.turn",
    "open": "afterturn.memory",
    "recall_block_once": "afterturn.oneshot",
    "recall_once": "afterturn.oneshot",
}
__all__ = sorted([*_HOMES, "blocking"])
__version__ = "0.1.0"


if not TYPE_CHECKING:  # a type checker reports a misspelled name

    def __getattr__(name: str) -> Any:
        import importlib

        if name == "blocking":
            return importlib.import_module("afterturn.blocking")
        if name not in _HOMES:
            raise AttributeError(f"module 'afterturn' has no attribute {name!r}")
        return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
