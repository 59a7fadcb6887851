"""The root command: the list of all commands, and the boundary where errors become exit codes."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from afterturn.config import unknown_variables
from afterturn.hosts.cli.command import Group, Invocation, group
from afterturn.hosts.cli.process import Interrupted, PipeClosed, keep_quiet, prepare_streams, report, show_everything

# By section and name: the module in `commands`, and the command in it.
_COMMANDS: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("commands.json").read_bytes())
SECTIONS = {
    title: {name: f"afterturn.hosts.cli.commands.{place}" for name, place in commands.items()}
    for title, commands in _COMMANDS.items()
}


class Root(Group):
    def invoke(self, ctx: click.Context) -> Any:
        for name, hint in unknown_variables(new=True).items():
            warning = f"the environment variable {name} is not a setting. {hint}"
            as_json = "--json" in ctx.args or ctx.ensure_object(Invocation).json
            click.echo(json.dumps({"warning": warning}) if as_json else f"afterturn: warning: {warning}", err=True)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise Interrupted from interrupt
        except BrokenPipeError as error:
            raise PipeClosed from error


@click.version_option(None, "-V", "--version", package_name="afterturn", message="%(prog)s %(version)s")
@group("afterturn", SECTIONS, cls=Root, subcommand_metavar="COMMAND [ARGS]...")
def app() -> None:
    """Inspect and change the memory of your agents.

    Shared options may be given before or after the command's name.
    """


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code. No error escapes as a traceback."""
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
