"""The root command: the list of all commands, and the boundary where errors become exit codes."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from afterturn.config import unknown_variables
from afterturn.hosts.cli.command import Group, Invocation, group
from afterturn.hosts.cli.process import Interrupted, PipeClosed, keep_quiet, prepare_streams, report, show_everything

_HERE = "afterturn.hosts.cli.commands"

SECTIONS = {
    "Memories": {
        "spaces": f"{_HERE}.list:spaces",
        "add": f"{_HERE}.memories:add",
        "search": f"{_HERE}.search:search",
        "profile": f"{_HERE}.list:profile",
        "list": f"{_HERE}.list:list_entries",
        "show": f"{_HERE}.list:show",
        "update": f"{_HERE}.memories:update",
        "firm": f"{_HERE}.memories:firm",
        "delete": f"{_HERE}.memories:delete",
        "edit": f"{_HERE}.edit:edit",
    },
    "Agents": {
        "install": f"{_HERE}.install:install",
        "uninstall": f"{_HERE}.install:uninstall",
        "mcp": f"{_HERE}.mcp:mcp",
        "token": f"{_HERE}.mcp:token",
        "project": f"{_HERE}.project:project",
        "helper": f"{_HERE}.install:helper",
        "pause": f"{_HERE}.install:pause",
        "resume": f"{_HERE}.install:resume",
    },
    "Learning": {
        "review": f"{_HERE}.review:review",
        "inbox": f"{_HERE}.inbox:inbox",
        "standing": f"{_HERE}.standing:standing",
        "consolidate": f"{_HERE}.review:consolidate",
        "incognito": f"{_HERE}.history:incognito",
        "usage": f"{_HERE}.doctor:usage",
    },
    "History": {
        "history": f"{_HERE}.history:history",
        "undo": f"{_HERE}.history:undo",
        "forget": f"{_HERE}.history:forget",
        "trace": f"{_HERE}.trace:trace",
        "replay": f"{_HERE}.replay:replay",
    },
    "Export and backup": {
        "export": f"{_HERE}.transfer:export",
        "import": f"{_HERE}.transfer:import_entries",
        "backup": f"{_HERE}.backup:backup",
        "restore": f"{_HERE}.backup:restore",
        "migrate": f"{_HERE}.backup:migrate",
    },
    "Maintenance": {
        "stats": f"{_HERE}.doctor:stats",
        "doctor": f"{_HERE}.doctor:doctor",
        "scan": f"{_HERE}.scan:scan",
        "worker": f"{_HERE}.worker:worker",
        "models": f"{_HERE}.models:models",
        "config": f"{_HERE}.config:config",
        "completion": f"{_HERE}.config:completion",
        "eval": f"{_HERE}.eval:evaluate",
    },
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
