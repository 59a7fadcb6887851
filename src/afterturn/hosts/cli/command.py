"""Declares commands: shared options, how a command opens memory, help with examples, groups loaded on demand."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from afterturn.config import Config, StoreUrl, default_store, load_config
from afterturn.errors import StoreUnavailable
from afterturn.hosts.cli.output import print_document, print_line
from afterturn.validation import check_space

if TYPE_CHECKING:
    from afterturn import blocking
    from afterturn.types import Changed


F = TypeVar("F", bound=Callable[..., Any])
NO_TENANT = "(no tenant)"
_EXAMPLES, _HELP = (Path(__file__).with_name(name) for name in ("examples.txt", "help.txt"))


@dataclass(slots=True)
class Invocation:
    """The shared options, given before or after the command's name; the last one wins. Opens memory accordingly."""

    store: str | None = None
    space: str | None = None
    tenant: str | None = None
    json: bool = False
    debug: bool = False

    def overrides(self) -> dict[str, str]:
        given = {"store": self.store, "space": self.space, "tenant": self.tenant}
        return {name: value for name, value in given.items() if value is not None}

    def config(self) -> Config:
        return load_config(self.overrides())

    @contextmanager
    def memory(
        self,
        *,
        create: bool = False,
        vectors: bool = False,
        background: bool = False,
        store: StoreUrl | None = None,
    ) -> Iterator[blocking.Memory]:
        """Opens the store. Without `create`, a missing store is an error: a command that reads must not create one.

        Without `vectors` the embedder is not loaded, which halves the time of a short command. `store` is
        a store of the directory of tenants that is configured; it is opened without a
        tenant of its own, because any tenant may have been moved away from it.
        """
        from afterturn import blocking

        config, path = self.config(), self.path()
        if store is not None:
            config, path = replace(config, tenant=NO_TENANT), store
        if not create and path is not None and not _is_there(path, config):
            raise StoreUnavailable(f"There is no store at {path}. `afterturn add` creates one; --store names another.")
        chosen = config if vectors else replace(config, embedder="none")
        with blocking.open(path, chosen, background=background) as memory:
            yield memory

    def path(self) -> Path | StoreUrl | None:
        """The path or URL of the chosen store."""
        from afterturn.memory import resolve_target

        config = self.config()
        return resolve_target(default_store() if config.store is None else config.store, config)

    @contextmanager
    def in_space(self, *, create: bool = False) -> Iterator[blocking.Space]:
        name = self.space_name()
        with self.memory(create=create) as memory:
            yield memory.space(name)

    def space_name(self) -> str:
        """The setting `space`, or the space of the person who is logged in."""
        config = self.config()
        if config.space is not None:
            return check_space(config.space)
        from afterturn.hosts.projects import current_user_space

        return check_space(current_user_space(config))

    def answer(self, document: object, text: str) -> None:
        """Prints the document with --json, and the text without."""
        if not self.print_json(document):
            click.echo(text)

    def answer_changed(self, changed: Changed, what: str) -> None:
        """Prints what was changed, and how to undo it."""
        undo = f"  (undo: afterturn undo {changed.operation})" if changed.operation else ""
        self.answer(changed, f"{changed.entry.id}  {what}{undo}")

    def print_json(self, document: object) -> bool:
        """Prints the document with --json. False without: the caller prints text."""
        if self.json:
            print_document(document)
        return self.json

    def print_rows(self, rows: Sequence[object], *, empty: str) -> bool:
        """Prints a line for each row with --json, and `empty` if there are none. False: the caller prints text."""
        for row in rows if self.json else ():
            print_line(row)
        if not self.json and not rows:
            click.echo(empty)
        return self.json or not rows


def _is_there(path: Path | StoreUrl, config: Config) -> bool:
    if isinstance(path, StoreUrl):
        from afterturn.services import has_tables

        return has_tables(path, config)
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it cannot be encoded"
        raise StoreUnavailable(f"{str(path)[:60]!r} is not a valid path: {reason}. Choose another.") from error


class SharedOption(click.Option):
    """An option that every command takes. `--help` lists these last."""


def shared_options(function: F) -> F:
    for option in reversed(_SHARED):
        function = option(function)
    return function


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    invocation = context.ensure_object(Invocation)
    if value is not None and value is not False:
        setattr(invocation, str(parameter.name), value)


def _shared(flag: str, **settings: Any) -> Callable[[F], F]:
    return click.option(flag, cls=SharedOption, expose_value=False, callback=_keep, **settings)


_SHARED: tuple[Callable[[Any], Any], ...] = (
    _shared("--store", metavar="PATH|URL", help="The store to use. Default: the setting `store`."),
    _shared(
        "--space",
        metavar="NAME",
        help="The space to use, such as user:ada. Default: the setting `space`, or user:LOGIN.",
    ),
    _shared("--tenant", metavar="NAME", help="The tenant to use. Default: the setting `tenant`."),
    _shared("--json", is_flag=True, help="Print JSON instead of text; errors too, on stderr."),
    _shared("--debug", is_flag=True, help="Show the traceback of an unexpected error."),
)


CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Command(click.Command):
    """A command whose help shows its own options first, and ends with its examples in `examples.txt`.

    The function's docstring begins the help; `help.txt` has the rest.
    """

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        sections = _HELP.read_text(encoding="utf-8").removeprefix("= ").split("\n\n= ")
        if text := dict(section.split("\n", 1) for section in sections).get(ctx.command_path):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(text.strip())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                (shared if isinstance(parameter, SharedOption) else own).append(record)
        for title, records in (("Options", own), ("Shared options", shared)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each paragraph of the file has the path of a command, and its examples."""
        paragraphs = _EXAMPLES.read_text(encoding="utf-8").strip().split("\n\n")
        examples = dict(paragraph.split("\n", 1) for paragraph in paragraphs)
        if lines := examples.get(ctx.command_path):
            with formatter.section("Examples"):
                for line in lines.splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Group(Command, click.Group):
    """Commands in titled sections, as `{title: {name: "module:attribute"}}`. A module is imported when it is needed."""

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, str]], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.sections = sections

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
        Command.format_options(self, ctx, formatter)


def command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Declares a command. Its function is called with the Invocation, then its own parameters by name."""

    def declare(function: Callable[..., None]) -> click.Command:
        passed = shared_options(click.pass_obj(function))
        return click.command(name, cls=Command, context_settings=CONTEXT_SETTINGS)(passed)

    return declare


def group(
    name: str, sections: Mapping[str, Mapping[str, str]], *, cls: type[Group] = Group, alone: str = "", **settings: Any
) -> Callable[[Callable[[], None]], click.Group]:
    """Declares a group of commands from a function that has only a docstring.

    Without a command, it runs the one that `alone` names, or else prints its help.
    """

    def declare(function: Callable[[], None]) -> click.Group:
        @shared_options
        @click.pass_context
        def call(context: click.Context) -> None:
            if context.invoked_subcommand is not None:
                return
            chosen = found.get_command(context, alone) if alone else None
            if chosen is None:
                click.echo(context.get_help())
            else:
                context.invoke(chosen)

        call.__doc__ = function.__doc__
        declared = click.group(
            name, cls=cls, sections=sections, context_settings=CONTEXT_SETTINGS, invoke_without_command=True, **settings
        )
        found = declared(call)
        return found

    return declare


def commands(module: str, **attributes: str) -> Mapping[str, Mapping[str, str]]:
    """The commands of one module as the sections of a group."""
    return {"Commands": {name: f"{module}:{attribute}" for name, attribute in attributes.items()}}
