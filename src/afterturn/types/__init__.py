"""The values that modules exchange, all frozen. Times are Unix seconds, UTC, as floats."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from afterturn.types.conversations import *
    from afterturn.types.entries import *
    from afterturn.types.operations import *
    from afterturn.types.rows import *
    from afterturn.types.searches import *
else:

    def __getattr__(name: str) -> Any:
        # A file is loaded when its first name is used. All 35 dataclasses take 45 ms.
        for file in ("entries", "searches", "conversations", "operations", "rows"):
            if hasattr(module := import_module(f"afterturn.types.{file}"), name):
                return globals().setdefault(name, getattr(module, name))
        raise AttributeError(f"module 'afterturn.types' has no attribute {name!r}")
