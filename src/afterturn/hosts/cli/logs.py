"""What memory logs while a command runs: nothing by default, one line each for a worker, all of it with `--debug`."""

import logging

from afterturn.hosts.cli.console import one_line

_logger = logging.getLogger("afterturn")


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"afterturn: {record.levelname.lower()}: {one_line(record.getMessage())}"


def keep_quiet() -> None:
    """Without a handler Python would print warnings, tracebacks among them, over a command's own answer."""
    _logger.handlers = [logging.NullHandler()]


def show_warnings() -> None:
    """A command that runs for long says what happens meanwhile."""
    if any(isinstance(handler, logging.StreamHandler) for handler in _logger.handlers):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    _logger.addHandler(handler)


def show_everything() -> None:
    _logger.handlers = [logging.StreamHandler()]
    _logger.setLevel(logging.DEBUG)
