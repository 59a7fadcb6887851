"""Prints docs/cli.md: every command's `--help`, as the commands themselves tell it."""

import click

from afterturn.hosts.cli.app import app

_WIDTH = 96

_INTRODUCTION = """\
# The command line

This page is written by `python -m afterturn.hosts.cli.reference > docs/cli.md`.

- **Where.** `--store` and `--space`, else `AFTERTURN_STORE` and `AFTERTURN_SPACE`, else the settings file
  (`afterturn config path`). Without a store, one in your data folder is used; without a space, a command asks for one.
- **Output.** Text for people: aligned, ids first. With `--json`, one JSON document, or one line each for `list`,
  `inbox`, `review log`, `usage`, `trace` without a conversation and `history` without an id. Field names are those of
  `afterturn.base.types`; times are ISO-8601 in UTC. Colours and progress bars appear on a terminal only; `NO_COLOR` is
  respected.
- **Exit codes.** 0 done; 1 `doctor` found an error, `replay` made other bytes, `edit` could not do all of it,
  `review run` came to nothing, or you said no; 2 bad input or a store that can not do it, with one line on stderr that
  says what to do (with `--json`: `{"error": {"type": ..., "message": ...}}`); 70 a fault of afterturn; 130 Ctrl-C; 141
  the reader of a pipe went away.
- **Completion.** `eval "$(_AFTERTURN_COMPLETE=bash_source afterturn)"`, or `zsh_source`, `fish_source`.
"""


def reference() -> str:
    return _INTRODUCTION + "".join(_section(context) for context in _contexts(_context(app, "afterturn", None)))


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(command, parent, name, terminal_width=_WIDTH, **command.context_settings)


def _contexts(parent: click.Context) -> list[click.Context]:
    """The command itself and, below a group, each of its commands, in the order of `--help`."""
    found = [parent]
    if isinstance(parent.command, click.Group):
        for name in parent.command.list_commands(parent):
            command = parent.command.get_command(parent, name)
            assert command is not None
            found.extend(_contexts(_context(command, name, parent)))
    return found


def _section(context: click.Context) -> str:
    return f"\n## {context.command_path}\n\n```text\n$ {context.command_path} --help\n{context.get_help()}\n```\n"


if __name__ == "__main__":
    click.echo(reference(), nl=False)
