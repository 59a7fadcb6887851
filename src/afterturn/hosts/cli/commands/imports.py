"""`import`: many memories from JSON Lines; all of them, or with `--skip-bad` those that can be taken."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext

import click

from afterturn.base.errors import InvalidFile
from afterturn.hosts.cli.command import command
from afterturn.hosts.cli.console import count, note, one_line, progress
from afterturn.hosts.cli.document import print_document
from afterturn.hosts.cli.drafts import BadLine, LineReader, Reading
from afterturn.hosts.cli.invocation import Invocation

_LINE_BYTES_MAX = 16 * 1024 * 1024
_BAD_SHOWN_MAX = 20
_STEP = 100


@command(
    "import",
    examples="""
    $ afterturn import --space user:ada ada.jsonl
    $ echo '{"text": "Ada works in Lyon", "metadata": {"team": "platform"}}' | afterturn import -
    $ afterturn import --skip-bad notes.jsonl
    $ afterturn import --keep-origin ada.jsonl
    """,
)
@click.argument("file", metavar="FILE|-")
@click.option("--skip-bad", is_flag=True, help="Import the good lines and list the others.")
@click.option(
    "--keep-origin", is_flag=True, help='Trust "origin" and "pinned" in the file. Only for one you vouch for.'
)
def import_entries(invocation: Invocation, file: str, *, skip_bad: bool, keep_origin: bool) -> None:
    """Read memories from a file or stdin.

    Takes an export, or lines such as {"text": "..."}. Optional keys: target, speaker, agent, project, conversation,
    pinned, metadata, sources, occurred_at, valid_from, valid_to, expires_at (ISO-8601, UTC unless they name an
    offset; or Unix seconds). All lines are checked first: if one is bad, none is imported. Of an export, current
    statements and recorded messages are taken. Nothing is pinned without --keep-origin.
    """
    space_name = invocation.space_name()
    reading = LineReader(invocation.config(), keep_origin=keep_origin).read(_lines(file))
    if reading.bad and not skip_bad:
        raise InvalidFile(_refusal(file, reading.bad))
    with invocation.in_space(create=True) as space, progress("Importing") as told:
        total = len(reading.drafts)
        imported = space.add_many(reading.drafts, progress=lambda done: told(done, total))
    if invocation.json:
        print_document({"imported": imported, "passed_over": reading.passed_over, "bad": reading.bad})
        return
    click.echo(f"{count(imported.created, 'memory', 'memories')} imported into {space_name}")
    _print_rest(imported.existing, reading)
    if imported.created:
        click.echo(f"Back: afterturn undo {imported.group}")
        note("Vectors follow with the next search, or now: afterturn worker --once")


def _print_rest(existing: int, reading: Reading) -> None:
    if existing:
        click.echo(f"{existing:,} were there already")
    if reading.passed_over:
        click.echo(f"{count(reading.passed_over, 'line')} passed over: history, not current")
    for bad in reading.bad[:_BAD_SHOWN_MAX]:
        click.echo(f"line {bad.line} skipped: {one_line(bad.message)}", err=True)
    if len(reading.bad) > _BAD_SHOWN_MAX:
        click.echo(f"{len(reading.bad) - _BAD_SHOWN_MAX:,} more lines skipped", err=True)


def _refusal(file: str, bad: list[BadLine]) -> str:
    name = "stdin" if file == "-" else file
    others = f" {count(len(bad) - 1, 'other line')} bad too." if len(bad) > 1 else ""
    return (
        f"{name}, line {bad[0].line}: {bad[0].message}{others} Nothing was imported. "
        "Mend the file, or add --skip-bad to import the rest."
    )


def _lines(file: str) -> Iterator[bytes]:
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb") as stream, progress("Checking") as told:
            number = 0
            while line := stream.readline(_LINE_BYTES_MAX):
                number += 1
                if number % _STEP == 0:
                    told(number, 0)
                yield line
    except OSError as error:
        raise InvalidFile(f"{file} can not be read: {error.strerror}. Check its name and your permissions.") from error
