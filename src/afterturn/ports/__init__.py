"""The ports: protocols for stores, models, embedders, clocks and workers. `services.py` chooses the implementations.

A docstring here is a contract. `afterturn.testing.conformance` tests every store against those of units of work, their
repositories, `write`, `read`, `scrub` and `close`. Each store's own tests show its check, and SQLite's its `FileStore`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from afterturn.ports.conversations import *
    from afterturn.ports.memories import *
    from afterturn.ports.providers import *
    from afterturn.ports.store import *
else:

    def __getattr__(name: str) -> Any:
        for file in ("store", "memories", "conversations", "providers"):
            if hasattr(module := import_module(f"afterturn.ports.{file}"), name):
                return globals().setdefault(name, getattr(module, name))
        raise AttributeError(f"module 'afterturn.ports' has no attribute {name!r}")
