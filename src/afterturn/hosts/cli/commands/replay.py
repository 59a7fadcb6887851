"""`replay`: renders a past turn's block again, byte for byte, and as it would be with other settings."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from afterturn.config import KEYS, SHAPING
from afterturn.errors import ConfigError, InvalidInput, NotFound
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import count, dim, one_line, safe, styled
from afterturn.recall.explain import describe_point
from afterturn.types import Scalar

if TYPE_CHECKING:
    from afterturn.conversation.replay import Replay, Replayed

_OTHER_BYTES = 1
_COLOURS = {"+": "green", "-": "red", "@": "dim"}


@command("replay")
@click.argument("turn", metavar="TURN")
@click.option("--conversation", metavar="ID", help="The conversation. TURN may then be a number, or `last`.")
@click.option(
    "--config",
    "settings",
    metavar="KEY=VALUE|FILE",
    multiple=True,
    help="Show the difference with this setting, or with a settings file; repeatable.",
)
def replay(invocation: Invocation, turn: str, conversation: str | None, settings: tuple[str, ...]) -> None:
    """Render a past turn's block again and compare it with what was injected."""
    changes, ignored = _changes(settings)
    space = invocation.space_name()
    with invocation.memory() as memory:
        named = conversation or _find(list(memory.space(space).conversations(turn=turn)), turn, space)
        result = memory.conversation(named, owner=space).replay(turn, changes=changes)
    if not invocation.print_json(result):
        _print(result, ignored)
    if any(not block.identical and block.stored for block in result.blocks):
        raise click.exceptions.Exit(_OTHER_BYTES)


def _find(conversations: list[str], turn: str, space: str) -> str:
    if not conversations:
        raise NotFound(
            f"No conversation of {space} has a turn with the id {turn!r}. A number or `last` needs --conversation ID."
        )
    if len(conversations) > 1:
        names = ", ".join(sorted(conversations)[:5])
        raise InvalidInput(f"Several conversations have a turn {turn!r}: {names}. Add --conversation ID.")
    return conversations[0]


def _changes(settings: tuple[str, ...]) -> tuple[dict[str, Scalar], list[str]]:
    """The settings to replay under, and those of files that shape no block."""
    changes: dict[str, Scalar] = {}
    ignored: list[str] = []
    for given in settings:
        name, equals, value = given.partition("=")
        if equals and not Path(given).is_file():
            changes[name.strip()] = _value(given, value)
            continue
        table = _table(Path(given))
        changes.update({key: item for key, item in table.items() if key in SHAPING or key not in KEYS})
        ignored += [key for key in table if key in KEYS and key not in SHAPING]
    return changes, ignored


def _value(given: str, text: str) -> Scalar:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text
    if not isinstance(value, str | int | float | bool):
        raise InvalidInput(f"--config {given!r} has no plain value. Write it like --config recall_entries_max=4.")
    return value


def _table(path: Path) -> dict[str, Scalar]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"--config {str(path)!r} is neither KEY=VALUE nor a file that can be read: {error}."
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"The settings file {path} is not valid TOML: {error}. Correct that line.") from error


def _print(result: Replay, ignored: list[str]) -> None:
    click.echo(f"Turn {result.number} of {one_line(result.conversation)}, {count(len(result.blocks), 'block')}")
    if ignored:
        click.echo(dim(f"Ignored, because they do not affect a block: {', '.join(ignored)}."), color=True)
    for block in result.blocks:
        click.echo()
        click.echo(styled(_verdict(block), "bold"), color=True)
        if block.changed is not None:
            _print_difference(result, block)
        elif block.rendered:
            click.echo(safe(block.rendered))
    if not result.blocks:
        click.echo("The turn found nothing, so it has no block.")


def _verdict(block: Replayed) -> str:
    if not block.hash:
        return f"nothing was delivered for {one_line(block.questions[0] or 'an incognito question')[:80]!r}"
    where = describe_point(block.point)
    size = f", {len(block.rendered.encode()):,} bytes" if block.rendered else ""
    if block.identical:
        return f"{where}{size}: {block.reason or 'identical to what was injected'}"
    return f"{where}{size}: differs from what was injected, because {block.reason}"


def _print_difference(result: Replay, block: Replayed) -> None:
    changed = block.changed or ""
    setting = ", ".join(f"{name}={value}" for name, value in result.changes.items())
    if changed == block.rendered:
        click.echo(f"No difference with {setting}.")
        return
    before, after = (text.splitlines() for text in (block.rendered, changed))
    for line in difflib.unified_diff(before, after, "as it was", f"with {setting}", lineterm="", n=99):
        style = _COLOURS.get(line[:1], "")
        click.echo(styled(safe(line), style) if style else safe(line), color=True)
    sizes = f"{len(block.rendered.encode()):,} bytes before, {len(changed.encode()):,} after"
    click.echo(dim(sizes), color=True)
