"""Writes the reference pages of docs/ from the code: Python API, settings, errors, events and commands."""

import ast
import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ForwardRef, TypeVar

import click

import afterturn
from afterturn import config, errors, events, testing, types
from afterturn.hosts.cli.app import app

T = TypeVar("T")
_CLI_WIDTH = 96
DOCS = Path(__file__).resolve().parent.parent / "docs"


def configuration_page() -> str:
    rows = "".join(_setting(name) for name in config.KEYS)
    aliases = ", ".join(f"`{alias}`" for alias in config.ALIASES)
    return f"""# Settings

This page is generated from `config.py` by `make docs`. `afterturn config schema` prints the same as JSON Schema.

Most programs set three things: where memories are stored, the model that reviews conversations, and the embedder:

```toml
store = "postgresql://memory@db.example/app"  # or a path; without it, a file in your data folder
model_url = "http://localhost:8080/v1"        # an OpenAI-compatible server, with `model` and `review_interval`
embedder = "minilm"                           # finds more by meaning than the built-in `static`
```

All of them are optional. The value of a setting comes from the first of these places that has it:

1. an argument: `afterturn.open("memory.db", {{"grace": 0.1}})`,
2. the environment: `{config.ENVIRONMENT_PREFIX}GRACE=0.1`,
3. the file `~/.config/afterturn/config.toml`: `grace = 0.1` (`{config.ENVIRONMENT_PREFIX}CONFIG` names another file),
4. its default.

Durations are in seconds. An invalid value raises `ConfigError`, which names the setting and the place of the value. So
does a name that is not a setting.

| setting | default | unit | description |
|---|---|---|---|
{rows}
The settings that begin with `review_` have a second name, which other systems use: {aliases}.
Both names are accepted everywhere. If one source gives both with different values, `ConfigError` is raised.

A variable that begins with `{config.ENVIRONMENT_PREFIX}` and is not a setting is reported by `afterturn doctor`, and
once in the log.
"""


def _setting(name: str) -> str:
    about = config.DESCRIPTIONS[name]
    unit = about.unit or " or ".join(f"`{str(choice).lower()}`" for choice in about.choices)
    return f"| `{name}` | {_shown(config.KEYS[name].default)} | {unit} | {about.reason} |\n"


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def errors_page() -> str:
    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n", 1)[1]
    built_in = "".join(
        f"- `{kind.__name__}`: `{base.__name__}`\n"
        for kind in _public(errors.AfterturnError)
        for base in kind.__bases__
        if base.__module__ == "builtins" and base is not Exception
    )
    return f"""# Errors

This page is generated from `errors.py` by `make docs`. All errors of afterturn are in one tree, so `except
afterturn.AfterturnError` catches all of them and nothing else. Import them from `afterturn`. A message says what
happened and what to do. Programs should read the attributes, which are shown in brackets, not the message.

```text
{tree}
```

Some of them are subclasses of built-in exceptions too:

{built_in}
The verbs of a turn (`inject`, `complete` and so on) never raise. Their failures are logged and reported as events.
"""


def events_page() -> str:
    rows = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in events.EVENTS.items())
    return f"""# Events

This page is generated from `events.py` by `make docs`. Each event is passed to `on_event` when it happens, on
memory's own thread. The events of a space are also kept in its timeline; `afterturn trace` shows it. Events about
changes of memories are only passed on, because `afterturn history` shows the changes themselves; so is `verb_ended`.
They report what this process changed, through any verb or review; import is one event, `memories_imported`. An
event contains ids, counts and reasons, and never the text of a memory; only [telemetry](telemetry.md#texts) can ask for
the texts.

```python
import afterturn


def show(event):
    if event.name in ("memory_added", "memory_updated", "memory_deleted"):
        print(event.name, event.space, event.data["verb"], event.data["version"])


with afterturn.blocking.open("watched.db", on_event=show) as memory:
    ada = memory.space("user:ada")
    tea = ada.add("Ada drinks tea")
    ada.update(tea.entry.id, "Ada drinks oolong")
    ada.delete(tea.entry.id)
```

```text
memory_added user:ada add 1
memory_updated user:ada update 2
memory_deleted user:ada delete 2
```

| event | meaning |
|---|---|
{rows}"""


def cli_page() -> str:
    return _CLI_INTRODUCTION + "".join(_section(context) for context in _contexts(_context(app, "afterturn", None)))


_CLI_INTRODUCTION = """\
# Command line

This page is generated from the `--help` of each command by `make docs`.

- **Store and space.** Give `--store` and `--space`, or set `AFTERTURN_STORE` and `AFTERTURN_SPACE`, or write them into
  the settings file (`afterturn config path`). The default store is in your data folder. The default space is
  `user:` and your login name; `afterturn spaces` lists those that exist.
- **Output.** Text in aligned columns, ids first. With `--json`, one JSON document, or one line each for `spaces`,
  `list`, `inbox`, `review log`, `usage`, `trace` without a conversation and `history` without an id. Field names are
  those of the Python types; times are ISO-8601 in UTC. Colours and progress bars appear on a terminal only; `NO_COLOR`
  is respected. Control and invisible characters in memories are shown as escapes, never sent to the terminal.
- **Exit codes.** 0: success. 1: `doctor` found an error, `replay` made different bytes, `edit` could not apply
  everything, `review run` failed, or you answered no. 2: invalid input, or a store that cannot be used; one line on
  stderr says what to do (with `--json`: `{"error": {"type": ..., "message": ...}}`). 70: a bug in afterturn. 130:
  Ctrl-C. 141: the reader of the output closed the pipe.
- **Without the script.** `python -m afterturn` is the same command.
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
    """Every public name with its signature, from the code and its docstrings."""
    objects = "\n".join(_object(kind) for kind in OBJECTS)
    values = "\n".join(
        f"## {title}\n\n" + "\n".join(_value(getattr(afterturn, name)) for name in names.split())
        for title, names in VALUES.items()
    )
    ports = "\n".join(_object(kind) for kind in PORTS)
    enums = "\n".join(_enum(kind) for kind in _public(enum.Enum))
    aliases = "".join(_alias(name) for name in ALIASES)
    fakes = "".join(f"- `{name}`: {_paragraphs(getattr(testing, name))[0]}\n" for name in FAKES)
    return f"""# Python API

This page is generated from the code and its docstrings by `make docs`. Everything on it is imported from `afterturn`.

- `afterturn.blocking` has the same objects and verbs for programs without an event loop: `with` instead of
  `async with`, and no `await`.
- Times are Unix seconds, UTC. As arguments, datetimes with a time zone and ISO-8601 texts with an offset are accepted.
- Durations are seconds.
- Values are frozen dataclasses. Enums are strings: `Kind.RECORD == "record"`.
- Errors have a page of their own: [Errors](errors.md). Settings too: [Settings](configuration.md).

## Open memory

{_function("afterturn.open", afterturn.open)}
{_function("afterturn.blocking.open", afterturn.blocking.open)}
{_function("afterturn.recall_once", afterturn.recall_once)}
{_function("afterturn.recall_block_once", afterturn.recall_block_once)}
{_function("afterturn.comprehensive_history", afterturn.comprehensive_history)}
{_function("afterturn.curated_history", afterturn.curated_history)}
{_function("afterturn.blocking.rescue", afterturn.blocking.rescue)}
### `afterturn.Config`

{_text(afterturn.Config)}

### `afterturn.Settings`

{_text(afterturn.Settings)}

{objects}
{values}
## Enums

{enums}
## Type aliases

{aliases}
## Ports

You can implement these yourself and pass them to `open`.

{ports}
{_value(afterturn.EmbedderIdentity)}
{_value(afterturn.Interaction)}
{_value(afterturn.Message)}
{_value(afterturn.Components)}
## Testing

`afterturn.testing` has what tests of your own program need:

{fakes}"""


OBJECTS = (
    afterturn.Memory,
    afterturn.Space,
    afterturn.Conversation,
    afterturn.Turn,
    afterturn.Standing,
    afterturn.Tools,
)
PORTS = (
    afterturn.ChatModel,
    afterturn.OpenAICompatible,
    afterturn.Embedder,
    afterturn.RecordingProvider,
    afterturn.KeyProvider,
    afterturn.Scanner,
)
VALUES = {
    "Memories": "Entry Draft Filter Scope Showing SpaceSummary TimelinePage",
    "Search results": "SearchResults Hit",
    "Profile": "Profile ProfileSubject",
    "Changes": "Added Changed Imported Operation LoggedOperation Step Undone History Forgotten RemainingBytes",
    "Proposals and edited texts": "Proposal Decided StandingLine Bullet Edit Edits SkippedEdit Edited",
    "Reviews and usage": "Review ReviewRow ReviewedChange UsageRow",
    "Rules before tool calls": "ToolAdvice ToolRule",
    "Traces": "Trace TracedTurn TracedRecall TracedBlock TracedRule TraceAnswer Explained RecallRow TurnRow Candidate "
    "Replay Replayed",
    "Events, findings and compaction": "Event Finding Compacted",
    "Scanners": "Detection ScanPolicy",
}
ALIASES = ("EventHandler", "Metadata", "PhaseName", "Scalar", "StoreTarget")
FAKES = ("ScriptedModel", "ModelCall", "Held", "call_tools", "EventLog")
# Keyword arguments that a signature takes as one dictionary; the page spells them out.
KEYWORDS = {
    "fields": afterturn.DraftFields,
    "where": afterturn.ConversationOptions,
    "options": afterturn.OpenOptions,
}
# Called when the interpreter exits, not by users.
INTERNAL_VERBS = {"start_closing", "wait_closed"}
_SIGNATURE_WIDTH = 80


def public_verbs(kind: type) -> Iterator[tuple[str, object]]:
    """In the order of the code, those of the class before those of its bases."""
    seen = set(INTERNAL_VERBS)
    for base in kind.__mro__:
        if not base.__module__.startswith("afterturn"):
            continue
        for name, value in vars(base).items():
            found = value if isinstance(value, property) else getattr(kind, name)
            if name not in seen and not name.startswith("_") and (isinstance(found, property) or callable(found)):
                seen.add(name)
                yield name, found


def _object(kind: type) -> str:
    parts = [f"## `{kind.__name__}`\n\n{_text(kind)}\n"]
    if kind is afterturn.OpenAICompatible:
        parts.append(_code(f"{kind.__name__}{_signature(kind)}"))
    for name, verb in public_verbs(kind):
        title = f"{kind.__name__}.{name}"
        if isinstance(verb, property):
            parts.append(f"### `{title}`\n\n{_code(name + _returned(verb.fget))}\n{_text(verb)}\n")
        else:
            parts.append(_function(title, verb))
    return "\n".join(parts)


def _function(title: str, function: Any) -> str:
    call = "await " if inspect.iscoroutinefunction(function) else ""
    code = _code(f"{call}{title.split('.')[-1]}{_signature(function)}")
    return f"### `{title}`\n\n{code}\n{_text(function)}\n"


def _value(kind: type) -> str:
    fields = "".join(f"{item.name}: {_written(item.type)}{_field_default(item)}\n" for item in dataclasses.fields(kind))
    return f"### `{kind.__name__}`\n\n{_code(fields.rstrip())}\n{_text(kind)}\n"


def _enum(kind: type[enum.Enum]) -> str:
    values = ", ".join(f"`{member.value}`" for member in kind)
    return f"### `{kind.__name__}`\n\n{_text(kind)}\n\nValues: {values}.\n"


def _alias(name: str) -> str:
    module = importlib.import_module(afterturn._MODULES[name])
    file = Path(inspect.getfile(module))
    (value,) = [
        node.value
        for path in (file.parent.glob("*.py") if file.name == "__init__.py" else [file])
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name
    ]
    assert value is not None
    # A default that nobody passes is not worth knowing.
    return f"- `{name}` = `{ast.unparse(value).replace(' | _DefaultStore', '')}`\n"


def _public(kind: type[T]) -> list[type[T]]:
    found = (getattr(afterturn, name) for name in afterturn.__all__)
    return [value for value in found if isinstance(value, type) and issubclass(value, kind)]


def _code(text: str) -> str:
    # Not "python": the tests run those blocks. The formatter reads them and wants double quotes.
    quoted = text.replace("'", '"')
    return f"```py\n{quoted}\n```\n"


def _text(thing: object) -> str:
    return "\n\n".join(_paragraphs(thing))


def _paragraphs(thing: object) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in (inspect.getdoc(thing) or "").split("\n\n")]


def _signature(function: Any) -> str:
    """With types and defaults; on several lines where one is not enough."""
    parameters, keyword_only = [], False
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.KEYWORD_ONLY) and not keyword_only:
            keyword_only = True
            parameters.append("*")
        if parameter.kind is parameter.VAR_KEYWORD:
            options = inspect.get_annotations(KEYWORDS[name])
            parameters += [f"{key}: {_written(annotation)} = ..." for key, annotation in options.items()]
        else:
            default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
            parameters.append(f"{name}: {_written(parameter.annotation)}{default}")
    line = f"({', '.join(parameters)})"
    if len(line) > _SIGNATURE_WIDTH:
        line = "(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + ")"
    return line + ("" if isinstance(function, type) else _returned(function))


def _returned(function: Any) -> str:
    return f" -> {_written(inspect.signature(function).return_annotation)}"


def _written(annotation: object) -> str:
    """As in the source, but without the names of modules."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", text)


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value == types.ANYTHING:
        return "Filter()"
    return repr(value) if value in (None, ()) or isinstance(value, str | int | float | bool) else "..."


def _field_default(item: dataclasses.Field[Any]) -> str:
    if item.default is not dataclasses.MISSING:
        return f" = {_default(item.default)}"
    return " = {}" if item.default_factory is dict else "" if item.default_factory is dataclasses.MISSING else " = ..."


def http_page() -> str:
    # Loaded here: the tests of frameworks read this module where the server's libraries are missing.
    from openapi import http_page

    return http_page()


PAGES = {
    "python.md": python_page,
    "configuration.md": configuration_page,
    "errors.md": errors_page,
    "events.md": events_page,
    "cli.md": cli_page,
    "http.md": http_page,
}


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
