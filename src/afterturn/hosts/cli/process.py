"""The process around a command: standard streams, logging, and errors as exit codes."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import traceback

import click

from afterturn.base.errors import AfterturnError
from afterturn.hosts.cli.output import one_line


def prepare_streams() -> None:
    """A stream that was closed (`>&-`) becomes a quiet one; a character that can not be shown becomes an escape."""
    sys.stdin = sys.stdin or _nowhere("r")
    sys.stdout = sys.stdout or _nowhere("w")
    sys.stderr = sys.stderr or _nowhere("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def abandon_stdout() -> None:
    """The interpreter flushes stdout when it ends, and would complain once more about what can not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _nowhere(mode: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(open(os.devnull, mode + "b"), encoding="utf-8")


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


EXIT_BAD_INPUT = 2
EXIT_UNEXPECTED = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class Interrupted(Exception):
    """Ctrl-C, taken before click handles it, which would print a line of its own."""


class PipeClosed(Exception):
    """Whoever read our output has gone; taken before click ends the process with an exit code of its own."""


def report(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Says what went wrong and gives the exit code."""
    if isinstance(error, PipeClosed | BrokenPipeError):
        abandon_stdout()
        return EXIT_BROKEN_PIPE
    if isinstance(error, Interrupted | KeyboardInterrupt | click.Abort):
        _say("Interrupted", "Interrupted.", as_json=as_json)
        return EXIT_INTERRUPTED
    if isinstance(error, AfterturnError):
        _say(type(error).__name__, str(error), as_json=as_json)
        return EXIT_BAD_INPUT
    if isinstance(error, click.ClickException):
        _say("UsageError", _usage(error), as_json=as_json)
        return EXIT_BAD_INPUT
    if isinstance(error, OSError):
        return _report_system(error, as_json=as_json, debug=debug)
    return _report_unexpected(error, as_json=as_json, debug=debug)


def _report_system(error: OSError, *, as_json: bool, debug: bool) -> int:
    """A full disk behind stdout and the like."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    abandon_stdout()
    _say(type(error).__name__, f"The system refused: {error}. Check space and permissions.", as_json=as_json)
    return EXIT_BAD_INPUT


def _report_unexpected(error: BaseException, *, as_json: bool, debug: bool) -> int:
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    advice = "This is a fault in afterturn: please report it with the output of the same command and --debug."
    _say(type(error).__name__, f"Unexpected {type(error).__name__}: {error}. {advice}", as_json=as_json)
    return EXIT_UNEXPECTED


def _usage(error: click.ClickException) -> str:
    message = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message} See `{context.command_path} --help`." if context else message


def _say(kind: str, message: str, *, as_json: bool) -> None:
    line = one_line(message)
    line = json.dumps({"error": {"type": kind, "message": line}}) if as_json else f"afterturn: {line}"
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:
        # Nobody reads stderr any more; the exit code still tells.
        return
