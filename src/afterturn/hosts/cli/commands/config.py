"""`config` and `completion`: every setting, its value and where it is set; the completion script of a shell."""

import json
import re
from dataclasses import asdict
from urllib.parse import urlsplit, urlunsplit

import click
from click.shell_completion import get_completion_class

from afterturn.config import config_origins, config_path, config_schema, default_store, without_secret
from afterturn.hosts.cli.command import Invocation, command, commands, group
from afterturn.hosts.cli.output import one_line, print_document, print_table


@group("config", commands(__name__, show="show", schema="schema", path="path"))
def config() -> None:
    """Show the settings.

    An argument overrides the environment, which overrides the settings file, which overrides the default.
    """


@command("show")
def show(invocation: Invocation) -> None:
    """Show each setting's value and where it is set."""
    values = {name: without_secret(name, value) for name, value in asdict(invocation.config()).items()}
    origins = config_origins(invocation.overrides())
    values["store"] = _without_password(values["store"] or str(default_store()))
    for name in ("model_url", "embedder_url"):
        values[name] = values[name] and _without_password(values[name])
    if invocation.print_json({name: {"value": values[name], "from": origins[name]} for name in values}):
        return
    rows = [(name, origins[name], one_line(_written(value))) for name, value in values.items()]
    print_table(("SETTING", "SOURCE", "VALUE"), rows)


@command("schema")
def schema(invocation: Invocation) -> None:
    """Print the settings as JSON Schema: types, units, defaults, descriptions."""
    print_document(config_schema())


@command("path")
def path(invocation: Invocation) -> None:
    """Print the path of the settings file. The file may not exist."""
    found = config_path()
    invocation.answer({"path": str(found), "exists": found.exists()}, str(found))


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _without_password(url: str) -> str:
    if "://" not in url:
        return url
    place, mark, query = url.partition("?")
    url = place + mark + re.sub(r"(^|&)([^=&]*password)=[^&]*", r"\1\2=***", query)
    try:
        parts = urlsplit(url)
    except ValueError:  # not a URL, but it may be a mistyped one with a password in it
        return "***"
    if parts.password is None:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@")))


_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_AFTERTURN_COMPLETE"


@command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(invocation: Invocation, shell: str) -> None:
    """Print the completion script of a shell.

    Add the first example to ~/.bashrc, or write the script where zsh or fish look for it.
    """
    found = get_completion_class(shell)
    assert found is not None
    script = found(click.Command("afterturn"), {}, "afterturn", _VARIABLE).source()
    invocation.answer({"shell": shell, "script": script}, script)
