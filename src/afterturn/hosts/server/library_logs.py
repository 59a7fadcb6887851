"""Silences the logs of the libraries that serve: they contain what clients send, and tracebacks."""

from __future__ import annotations

import logging.config
from typing import Any

QUIET: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"none": {"class": "logging.NullHandler"}},
    "loggers": {name: {"handlers": ["none"], "propagate": False} for name in ("mcp", "uvicorn", "uvicorn.error")},
}


def silence_libraries() -> None:
    logging.config.dictConfig(QUIET)
