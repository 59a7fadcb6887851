"""The root of the command line: the list of commands, and the one boundary where errors become exit codes."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from afterturn.hosts.cli.command import CONTEXT_SETTINGS, Group, help_when_alone
from afterturn.hosts.cli.failures import Interrupted, PipeClosed, report
from afterturn.hosts.cli.invocation import shared_options
from afterturn.hosts.cli.logs import keep_quiet, show_everything
from afterturn.hosts.cli.streams import prepare_streams

_HERE = "afterturn.hosts.cli.commands"

SECTIONS = {
    "Memories": {
        "add": f"{_HERE}.edit:add",
        "search": f"{_HERE}.search:search",
        "list": f"{_HERE}.look:list_entries",
        "show": f"{_HERE}.look:show",
        "update": f"{_HERE}.edit:update",
        "delete": f"{_HERE}.edit:delete",
        "edit": f"{_HERE}.editor:edit",
    },
    "What is learned": {
        "review": f"{_HERE}.review:review",
        "inbox": f"{_HERE}.proposals:inbox",
        "consolidate": f"{_HERE}.consolidate:consolidate",
        "usage": f"{_HERE}.usage:usage",
    },
    "What was done, and taking it back": {
        "history": f"{_HERE}.history:history",
        "undo": f"{_HERE}.history:undo",
        "forget": f"{_HERE}.forget:forget",
        "trace": f"{_HERE}.trace:trace",
        "replay": f"{_HERE}.replay:replay",
    },
    "Moving and keeping": {
        "export": f"{_HERE}.exports:export",
        "import": f"{_HERE}.imports:import_entries",
        "backup": f"{_HERE}.backup:backup",
        "restore": f"{_HERE}.backup:restore",
    },
    "Running": {
        "stats": f"{_HERE}.health:stats",
        "doctor": f"{_HERE}.health:doctor",
        "worker": f"{_HERE}.worker:worker",
        "models": f"{_HERE}.models:models",
        "config": f"{_HERE}.config:config",
        "eval": f"{_HERE}.eval:evaluate",
    },
}

EXAMPLES = """
$ afterturn add --space user:ada "Ada prefers oolong tea"
$ export AFTERTURN_SPACE=user:ada
$ afterturn search "what does she drink?"
$ afterturn list --json | jq -r .text
"""


class Root(Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise Interrupted from interrupt
        except BrokenPipeError as error:
            raise PipeClosed from error


@click.group(
    "afterturn",
    cls=Root,
    sections=SECTIONS,
    examples=EXAMPLES,
    context_settings=CONTEXT_SETTINGS,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
)
@shared_options
@click.version_option(None, "-V", "--version", package_name="afterturn", message="%(prog)s %(version)s")
@click.pass_context
def app(context: click.Context) -> None:
    """The memory an agent's host manages: look into it, change it, move it, take it back.

    Shared options may stand before or after the command's name.
    """
    help_when_alone(context)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and gives its exit code. Nothing escapes as a traceback."""
    prepare_streams()
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug = "--debug" in options
    (show_everything if debug else keep_quiet)()
    try:
        result = app.main(list(arguments), prog_name="afterturn", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the boundary of the process: `report` shows it
        return report(error, as_json="--json" in options, debug=debug)
    return result if isinstance(result, int) else 0
