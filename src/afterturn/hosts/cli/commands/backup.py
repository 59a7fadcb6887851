"""`backup` and `restore`: the whole store, while others use it."""

from pathlib import Path

import click

from afterturn.base.errors import InvalidFile, StoreCorrupt
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import confirm, print_document, progress


@command(
    "backup",
    examples="""
    $ afterturn backup memory-2026-11-15.db
    $ afterturn backup --store team.db /mnt/backups/team.db
    """,
)
@click.argument("file", type=click.Path(path_type=Path))
def backup(invocation: Invocation, file: Path) -> None:
    """Copy the whole store to a new file.

    All spaces and tenants, while others read and write it. What is forgotten later stays in the copy: keep track of
    your backups.
    """
    if file.exists():
        raise InvalidFile(f"{file} is there already. Name a new file, or remove that one first.")
    with invocation.memory() as memory, progress("Copying pages") as told:
        memory.backup(file, progress=told)
    size = file.stat().st_size
    if invocation.json:
        print_document({"file": str(file), "size_bytes": size})
    else:
        click.echo(f"{file}  {size:,} bytes")


@command(
    "restore",
    examples="""
    $ afterturn restore memory-2026-11-15.db
    $ afterturn restore --store fresh.db --yes memory-2026-11-15.db
    """,
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask. Needed where there is no terminal to ask on.")
def restore(invocation: Invocation, file: Path, *, yes: bool) -> None:
    """Replace the whole store by a backup.

    Whole or not at all. Other processes notice before their next recall. A store that is too damaged to open is put
    aside under another name first.
    """
    if not file.is_file():
        raise InvalidFile(f"There is no backup file at {file}. Check the name.")
    if not yes:
        confirm(f"replace everything in the store by {file}")
    damaged = _restore(invocation, file)
    if invocation.json:
        print_document({"file": str(file), "restored": True, "damaged": str(damaged) if damaged else None})
        return
    click.echo(f"Restored from {file}")
    if damaged:
        click.echo(f"The damaged store is now {damaged}")


def _restore(invocation: Invocation, file: Path) -> Path | None:
    with progress("Restoring pages") as told:
        try:
            with invocation.memory(create=True) as memory:
                memory.restore(file, progress=told)
        except StoreCorrupt:
            from afterturn import blocking

            return blocking.rescue(invocation.path(), file, progress=told)
    return None
