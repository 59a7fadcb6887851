"""Message formats, one file each: how to read a host's messages, and where to add a block."""

from afterturn.dialects.dialect import Dialect, Element, ToolDefinition
from afterturn.dialects.history import DIALECTS, Exchange, find_dialect, follow_dialect, get_dialect

__all__ = [
    "DIALECTS",
    "Dialect",
    "Element",
    "Exchange",
    "ToolDefinition",
    "find_dialect",
    "follow_dialect",
    "get_dialect",
]
