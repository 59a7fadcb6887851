"""`export`: everything held on a space, as JSON Lines, into a file or a pipe."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from afterturn.base.errors import AfterturnError, InvalidFile
from afterturn.hosts.cli.command import command
from afterturn.hosts.cli.console import count, progress
from afterturn.hosts.cli.document import dump_line, print_document
from afterturn.hosts.cli.invocation import Invocation

_STEP = 100


@command(
    "export",
    examples="""
    $ afterturn export ada.jsonl
    $ afterturn export --space user:ada --force ada.jsonl
    $ afterturn export | gzip > ada.jsonl.gz
    """,
)
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option("--force", is_flag=True, help="Replace a file that is there already.")
def export(invocation: Invocation, file: str, *, force: bool) -> None:
    """Write everything held on a space as JSON Lines.

    To FILE, or to stdout; times are Unix seconds there. A file appears whole or not at all, readable by its owner
    only. `import` reads it back.
    """
    target = None if file == "-" else Path(file)
    if target is not None:
        _check_target(target, force=force)
    with invocation.in_space() as space, _writer(target) as stream, progress("Exporting") as told:
        lines = 0
        for lines, line in enumerate(space.export(), start=1):
            stream.write(dump_line(line).encode() + b"\n")
            if lines % _STEP == 0:
                told(lines, 0)
    if target is None:
        return
    if invocation.json:
        print_document({"file": str(target), "lines": lines})
    else:
        click.echo(f"{target}  {count(lines, 'line')}")


def _check_target(target: Path, *, force: bool) -> None:
    if target.is_dir():
        raise InvalidFile(f"{target} is a folder. Name a file in it.")
    if target.exists() and not force:
        raise InvalidFile(f"{target} is there already. Add --force to replace it.")


@contextmanager
def _writer(target: Path | None) -> Iterator[IO[bytes]]:
    if target is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise InvalidFile(f"{target} can not be written: {error.strerror}. Choose another place.") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(name, target)
    except AfterturnError:
        raise
    except OSError as error:
        raise InvalidFile(f"{target} could not be written: {error.strerror}. Nothing was left behind.") from error
    finally:
        Path(name).unlink(missing_ok=True)
