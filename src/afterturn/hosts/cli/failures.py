"""What a failed command leaves behind: an exit code and one line on stderr, or one JSON document with `--json`."""

import json
import sys
import traceback

import click

from afterturn.base.errors import AfterturnError
from afterturn.hosts.cli.console import one_line
from afterturn.hosts.cli.streams import abandon_stdout

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
