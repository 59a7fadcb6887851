"""Writes the reference pages of docs/ from the code: Python API, settings, errors, events and commands."""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path

import click

from afterturn import config, errors, events, memory, types
from afterturn.conversation import conversation, subagents, turn
from afterturn.conversation.scope import ConversationOptions
from afterturn.hosts.cli.app import app
from afterturn.memory import OpenOptions
from afterturn.space.arguments import DraftFields

_CLI_WIDTH = 96
DOCS = Path(__file__).resolve().parent.parent / "docs"


def configuration_page() -> str:
    rows = "".join(_setting(name) for name in config.KEYS)
    aliases = ", ".join(f"`{alias}`" for alias in config.ALIASES)
    return f"""# Settings

This page is generated from `config.py` by `make docs`. `afterturn config schema` prints the same as JSON Schema.

The value of a setting comes from the first of these places that has it:

1. an argument: `afterturn.open("memory.db", {{"grace": 0.1}})`,
2. the environment: `{config.ENVIRONMENT_PREFIX}GRACE=0.1`,
3. the file `~/.config/afterturn/config.toml`: `grace = 0.1` (`{config.ENVIRONMENT_PREFIX}CONFIG` names another file),
4. its default.

Durations are in seconds. An invalid value raises `ConfigError`, which names the setting and the place of the value.

| setting | default | unit | description |
|---|---|---|---|
{rows}
The settings that begin with `review_` have a second name, which other systems use: {aliases}.
Both names are accepted everywhere. If one source gives both with different values, `ConfigError` is raised.

A variable that begins with `{config.ENVIRONMENT_PREFIX}` and is not a setting is reported by `afterturn doctor`, and
once in the log.
"""


def _setting(name: str) -> str:
    item = config.KEYS[name]
    unit = item.metadata["unit"] or " or ".join(f"`{choice}`" for choice in item.metadata["choices"])
    return f"| `{name}` | {_shown(item.default)} | {unit} | {item.metadata['reason']} |\n"


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def errors_page() -> str:
    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n", 1)[1]
    return f"""# Errors

This page is generated from `errors.py` by `make docs`. All errors of afterturn are in one tree, so `except
AfterturnError` catches all of them and nothing else. A message says what happened and what to do. Programs should
read the attributes, which are shown in brackets, not the message.

```text
{tree}
```

The verbs of a turn (`inject`, `complete` and so on) never raise. Their failures are logged and reported as events.
"""


def events_page() -> str:
    rows = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in events.EVENTS.items())
    return f"""# Events

This page is generated from `events.py` by `make docs`. Each event is passed to `on_event` when it happens, on
memory's own thread. The events of a space are also kept in its timeline; `afterturn trace` shows it. An event
contains ids, counts and reasons, and never the text of a memory.

| event | meaning |
|---|---|
{rows}"""


def cli_page() -> str:
    return _CLI_INTRODUCTION + "".join(_section(context) for context in _contexts(_context(app, "afterturn", None)))


_CLI_INTRODUCTION = """\
# Command line

This page is generated from the `--help` of each command by `make docs`.

- **Store and space.** Give `--store` and `--space`, or set `AFTERTURN_STORE` and `AFTERTURN_SPACE`, or write them into
  the settings file (`afterturn config path`). The default store is in your data folder. There is no default space:
  `afterturn spaces` lists those that exist.
- **Output.** Text in aligned columns, ids first. With `--json`, one JSON document, or one line each for `spaces`,
  `list`, `inbox`, `review log`, `usage`, `trace` without a conversation and `history` without an id. Field names are
  those of the Python types; times are ISO-8601 in UTC. Colours and progress bars appear on a terminal only; `NO_COLOR`
  is respected. Control characters in memories are shown as escapes, never sent to the terminal.
- **Exit codes.** 0: success. 1: `doctor` found an error, `replay` made different bytes, `edit` could not apply
  everything, `review run` failed, or you answered no. 2: invalid input, or a store that cannot be used; one line on
  stderr says what to do (with `--json`: `{"error": {"type": ..., "message": ...}}`). 70: a bug in afterturn. 130:
  Ctrl-C. 141: the reader of the output closed the pipe.
- **Completion.** `afterturn completion bash` prints the script for bash, and likewise for zsh and fish. For bash, add
  `eval "$(afterturn completion bash)"` to `~/.bashrc`.
"""


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(command, parent, name, terminal_width=_CLI_WIDTH, **command.context_settings)


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


def python_page() -> str:
    """Public objects with their verbs, from their docstrings."""
    objects = "\n".join(_class(kind) for kind in SHOWN_OBJECTS)
    values = "\n".join(_value(kind) for kind in SHOWN_VALUES)
    return f"""# Python API

This page is generated from the docstrings by `make docs`. `afterturn.blocking` has the same objects and verbs without
`await`. Times are Unix seconds; as arguments, datetimes with a time zone are accepted too.

## `afterturn.open{_signature(memory.open)}`

{_text(memory.open)}

{objects}
## Values

{values}"""


SHOWN_OBJECTS = (
    memory.Memory,
    conversation.Conversation,
    turn.Turn,
    conversation.Standing,
    subagents.Tools,
    memory.Space,
)
SHOWN_VALUES = (
    types.Entry,
    types.Added,
    types.Changed,
    types.Undone,
    types.History,
    types.SearchResults,
    types.Hit,
    types.Forgotten,
    types.Filter,
    types.Draft,
    types.Event,
)


def _class(kind: type) -> str:
    verbs = [
        (name, verb)
        for name in dir(kind)
        if not name.startswith("_") and callable(verb := getattr(kind, name)) and inspect.getdoc(verb)
    ]
    shown = "".join(
        f"- {'await ' if inspect.iscoroutinefunction(verb) else ''}`{name}{_signature(verb)}`  \n  {_text(verb)}\n"
        for name, verb in verbs
    )
    return f"## `{kind.__name__}`\n\n{_text(kind)}\n\n{shown}"


def _value(kind: type) -> str:
    names = ", ".join(f"`{item.name}`" for item in dataclasses.fields(kind))
    return f"- **{kind.__name__}**: {names}.  \n  {_text(kind)}\n"


def _text(thing: object) -> str:
    return " ".join((inspect.getdoc(thing) or "").split())


def _signature(verb: Callable[..., object]) -> str:
    """Names and defaults; what `**fields` stands for is spelt out."""
    parameters = []
    for name, parameter in inspect.signature(verb).parameters.items():
        if name == "self":
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            parameters += [f"{key}=…" for key in EXPANDED[name].__annotations__]
        elif parameter.default is parameter.empty:
            parameters.append(name)
        else:
            parameters.append(f"{name}={_default(parameter.default)}")
    return f"({', '.join(parameters)})"


EXPANDED = {"fields": DraftFields, "where": ConversationOptions, "options": OpenOptions}


def _default(value: object) -> str:
    return repr(value) if value is None or isinstance(value, str | int | float | bool) else "…"


PAGES = {
    "python.md": python_page,
    "configuration.md": configuration_page,
    "errors.md": errors_page,
    "events.md": events_page,
    "cli.md": cli_page,
}


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
