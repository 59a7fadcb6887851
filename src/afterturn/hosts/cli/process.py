"""The process around a command: standard streams, logging, and errors as exit codes."""

from __future__ import annotations

import io
import json
import logging
import os
import sys

import click

from afterturn.errors import AfterturnError
from afterturn.hosts.cli.output import one_line
from afterturn.log import describe, describe_fully, logger


def prepare_streams() -> None:
    """Replaces closed streams (`>&-`) by /dev/null, and shows characters that cannot be encoded as escapes."""
    sys.stdin = sys.stdin or _nowhere("r")
    sys.stdout = sys.stdout or _nowhere("w")
    sys.stderr = sys.stderr or _nowhere("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def abandon_stdout() -> None:
    """Redirects stdout to /dev/null, so that the interpreter does not report the same error again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _nowhere(mode: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(open(os.devnull, mode + "b"), encoding="utf-8")


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"afterturn: {record.levelname.lower()}: {one_line(record.getMessage())}"


def keep_quiet() -> None:
    """Logs nothing. Without a handler Python would print warnings and tracebacks into a command's output."""
    logger.handlers = [logging.NullHandler()]


def show_warnings() -> None:
    """Logs warnings as one line each, for commands that run for long."""
    if any(isinstance(handler, logging.StreamHandler) for handler in logger.handlers):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    logger.addHandler(handler)


def show_everything() -> None:
    logger.handlers = [logging.StreamHandler()]
    logger.setLevel(logging.DEBUG)


EXIT_BAD_INPUT = 2
EXIT_UNEXPECTED = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class Interrupted(Exception):
    """Ctrl-C, caught before click handles it and prints a line of its own."""


class PipeClosed(Exception):
    """The reader of our output has closed it. Caught before click exits with its own code."""


def report(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Prints the error and returns the exit code."""
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
        message, context = error.format_message(), getattr(error, "ctx", None)
        sentence = message.removesuffix(".")
        stop = "" if sentence.endswith(("?", "?)")) else "."
        hint = f"{sentence}{stop} See `{context.command_path} --help`." if context else message
        _say("UsageError", hint, as_json=as_json)
        return EXIT_BAD_INPUT
    if debug:
        print(describe_fully(error), file=sys.stderr)
    name = type(error).__name__
    if isinstance(error, OSError):
        # A full disk behind stdout and the like.
        abandon_stdout()
        advice = f"The operating system reported: {describe(error)}. Check disk space and permissions."
        _say(name, advice, as_json=as_json)
        return EXIT_BAD_INPUT
    advice = "This is a bug in afterturn. Please report it with the output of the same command with --debug."
    _say(name, f"Unexpected {name}: {describe(error)}. {advice}", as_json=as_json)
    return EXIT_UNEXPECTED


def _say(kind: str, message: str, *, as_json: bool) -> None:
    line = one_line(message)
    line = json.dumps({"error": {"type": kind, "message": line}}) if as_json else f"afterturn: {line}"
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:
        # stderr is closed; the exit code still shows the failure.
        return
