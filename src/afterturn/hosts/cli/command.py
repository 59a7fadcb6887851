"""How commands are declared: shared options, an Examples section, and groups that load a command on demand."""

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import click

from afterturn.hosts.cli.invocation import SharedOption, shared_options

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Command(click.Command):
    def __init__(self, *args: Any, examples: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(self.examples, formatter)


class Group(click.Group):
    """Commands come in titled sections, as `{title: {name: "module:attribute"}}`, imported when named."""

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, str]], examples: str = "", **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.sections = sections
        self.examples = examples

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in self.sections.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for names in self.sections.values():
            if cmd_name in names:
                module, _, attribute = names[cmd_name].partition(":")
                found = getattr(importlib.import_module(module), attribute)
                assert isinstance(found, click.Command)
                return found
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args[0] not in names:
            near = difflib.get_close_matches(args[0], names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in self.sections.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name, found.get_short_help_str(limit=80)) for name, found in commands if found])
        write_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(self.examples, formatter)


def command(name: str, *, examples: str) -> Callable[[Callable[..., None]], click.Command]:
    """Declares a command; its function gets the Invocation first, then its own parameters by name."""

    def declare(function: Callable[..., None]) -> click.Command:
        passed = shared_options(click.pass_obj(function))
        return click.command(name, cls=Command, examples=examples, context_settings=CONTEXT_SETTINGS)(passed)

    return declare


def help_when_alone(context: click.Context) -> None:
    """A group's own answer when it was named without a command."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    own: list[tuple[str, str]] = []
    shared: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
        if record is not None:
            (shared if isinstance(parameter, SharedOption) else own).append(record)
    for title, records in (("Options", own), ("Shared options", shared)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


def write_examples(examples: str, formatter: click.HelpFormatter) -> None:
    if examples:
        with formatter.section("Examples"):
            for line in examples.strip().splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line.strip()}\n")
