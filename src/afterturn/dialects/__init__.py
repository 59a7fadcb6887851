"""One file a message format: how to read a host's messages, and where and how a block goes among them."""

from afterturn.dialects.detection import find_dialect
from afterturn.dialects.dialect import Dialect, Exchange

__all__ = ["Dialect", "Exchange", "find_dialect"]
