"""`backup`, `restore` and `migrate`: copy the whole store, bring a copy back, or move it to another place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from afterturn.config import find_store
from afterturn.errors import InvalidFile, InvalidInput, StoreCorrupt, StoreError, StoreUnavailable
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import confirm, count, print_table, progress
from afterturn.hosts.state import check_output_path

if TYPE_CHECKING:
    from afterturn.stores.copier import ComparedTable, MigrationResult


@command("backup")
@click.argument("file", type=click.Path(path_type=Path))
def backup(invocation: Invocation, file: Path) -> None:
    """Copy the whole store to a new file."""
    check_output_path(file)
    if file.exists():
        raise InvalidFile(f"{file} already exists. Choose another name, or remove it first.")
    with invocation.memory() as memory, progress("Copying pages") as report:
        memory.backup(file, progress=report)
    size = file.stat().st_size
    invocation.answer({"file": str(file), "size_bytes": size}, f"{file}  {size:,} bytes")


@command("restore")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
def restore(invocation: Invocation, file: Path, *, yes: bool) -> None:
    """Replace the whole store with a backup."""
    if not file.is_file():
        raise InvalidFile(f"There is no file {file}. Check the name.")
    if not yes:
        confirm(f"replace everything in the store with {file}")
    damaged = None
    with progress("Restoring pages") as report:
        try:
            with invocation.memory(create=True) as memory:
                memory.restore(file, progress=report)
        except StoreCorrupt:
            from afterturn import blocking

            damaged = blocking.rescue(invocation.path(), file, progress=report)
    if invocation.print_json({"file": str(file), "restored": True, "damaged": str(damaged) if damaged else None}):
        return
    click.echo(f"Restored from {file}")
    if damaged:
        click.echo(f"The damaged store was renamed to {damaged}")


@command("migrate")
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@click.option("--keep", is_flag=True, help="Leave the source in use: the target is a copy.")
def migrate(invocation: Invocation, source: str, target: str, *, keep: bool) -> None:
    """Move a whole store to an empty one, and compare both."""
    from afterturn.services import migrate as move

    config, places = invocation.config(), (find_store(source), find_store(target))
    if isinstance(places[0], Path) and not places[0].is_file():
        raise StoreUnavailable(f"There is no store at {places[0]}. Check the name.")
    if invocation.tenant is not None and not keep:
        raise InvalidInput("One tenant can only be copied. Add --keep, or leave --tenant out to move the whole store.")
    with progress("Copying, then comparing rows") as report:
        done = move(*places, config, tenant=invocation.tenant, keep=keep, progress=report)
    _print(invocation, done, keep=keep)
    if not done.is_equal:
        raise StoreError(
            f"{done.target} differs from {done.source} after copying. Nothing was moved: {done.source} is in use as "
            "before. Copy to a new target, and report this as a bug."
        )


def _print(invocation: Invocation, done: MigrationResult, *, keep: bool) -> None:
    if invocation.print_json(
        {
            "source": done.source,
            "target": done.target,
            "moved": not keep and done.is_equal,
            "waiting": done.waiting,
            "tables": [_as_json(table) for table in done.tables],
        }
    ):
        return
    if done.tables:
        rows = [
            (
                table.source.name,
                f"{table.source.rows:,}",
                f"{table.target.rows:,}",
                table.source.digest[:16],
                "equal" if table.is_equal else "different",
            )
            for table in done.tables
        ]
        print_table(("TABLE", "SOURCE", "TARGET", "HASH", "COMPARED"), rows)
    if done.tables and done.is_equal:
        rows_equal = count(sum(table.source.rows for table in done.tables), "row is", "rows are")
        click.echo(f"{rows_equal} equal on both sides.")
    elif not done.tables:
        click.echo(f"{done.source} was {'copied' if keep else 'moved'} to {done.target} before. Nothing was copied.")
    if done.waiting:
        turns = count(done.waiting, "turn")
        click.echo(f"{turns} that waited in files will be recorded by the next host that opens the target.")
    if not keep and done.is_equal:
        click.echo(f"{done.source} accepts no writes any more. Point your hosts at {done.target}.")


def _as_json(table: ComparedTable) -> dict[str, object]:
    return {
        "table": table.source.name,
        "source_rows": table.source.rows,
        "target_rows": table.target.rows,
        "source_hash": table.source.digest,
        "target_hash": table.target.digest,
        "equal": table.is_equal,
    }
