"""`config`: every setting, its value and where the value is set."""

import json
import re
from dataclasses import asdict
from urllib.parse import urlsplit, urlunsplit

import click

from afterturn.config import config_origins, config_path, config_schema, default_store, without_secret
from afterturn.hosts.cli.command import CONTEXT_SETTINGS, Group, Invocation, command, help_when_alone, shared_options
from afterturn.hosts.cli.output import one_line, print_document, print_table

_HERE = "afterturn.hosts.cli.commands.config"


@click.group(
    "config",
    cls=Group,
    sections={"Commands": {"show": f"{_HERE}:show", "schema": f"{_HERE}:schema", "path": f"{_HERE}:path"}},
    examples="""
    $ afterturn config show
    $ AFTERTURN_GRACE=0.2 afterturn config show --json
    """,
    context_settings=CONTEXT_SETTINGS,
    invoke_without_command=True,
)
@shared_options
@click.pass_context
def config(context: click.Context) -> None:
    """Show the settings.

    An argument overrides the environment, which overrides the settings file, which overrides the default.
    """
    help_when_alone(context)


@command(
    "show",
    examples="""
    $ afterturn config show
    $ afterturn config show --json | jq .grace
    """,
)
def show(invocation: Invocation) -> None:
    """Show each setting's value and where it is set."""
    values = {name: without_secret(name, value) for name, value in asdict(invocation.config()).items()}
    origins = config_origins(invocation.overrides())
    values["store"] = _without_password(values["store"] or str(default_store()))
    for name in ("model_url", "embedder_url"):
        values[name] = values[name] and _without_password(values[name])
    if invocation.json:
        print_document({name: {"value": values[name], "from": origins[name]} for name in values})
        return
    rows = [(name, origins[name], one_line(_written(value))) for name, value in values.items()]
    print_table(("SETTING", "SOURCE", "VALUE"), rows)


@command("schema", examples="$ afterturn config schema > afterturn.schema.json")
def schema(invocation: Invocation) -> None:
    """Print the settings as JSON Schema: types, units, defaults, descriptions."""
    print_document(config_schema())


@command("path", examples='$ "$EDITOR" "$(afterturn config path)"')
def path(invocation: Invocation) -> None:
    """Print the path of the settings file. The file may not exist."""
    found = config_path()
    if invocation.json:
        print_document({"path": str(found), "exists": found.exists()})
    else:
        click.echo(found)


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
