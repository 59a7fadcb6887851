"""`backup` and `restore`: copy the whole store while it is in use, and bring a copy back."""

from pathlib import Path

import click

from afterturn.errors import InvalidFile, StoreCorrupt
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.output import confirm, progress
from afterturn.hosts.symlinks import check_output_path


@command("backup")
@click.argument("file", type=click.Path(path_type=Path))
def backup(invocation: Invocation, file: Path) -> None:
    """Copy the whole store to a new file.

    The copy has all spaces and tenants. Others may read and write meanwhile. A backup keeps what you forget later, so
    keep track of your backups. A path that leads through a symbolic link of a repository is refused.
    """
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
    """Replace the whole store with a backup.

    All or nothing. Other processes see the change before their next recall. A store that is too damaged to open is
    renamed first.
    """
    if not file.is_file():
        raise InvalidFile(f"There is no file {file}. Check the name.")
    if not yes:
        confirm(f"replace everything in the store with {file}")
    damaged = _restore(invocation, file)
    if invocation.print_json({"file": str(file), "restored": True, "damaged": str(damaged) if damaged else None}):
        return
    click.echo(f"Restored from {file}")
    if damaged:
        click.echo(f"The damaged store was renamed to {damaged}")


def _restore(invocation: Invocation, file: Path) -> Path | None:
    with progress("Restoring pages") as report:
        try:
            with invocation.memory(create=True) as memory:
                memory.restore(file, progress=report)
        except StoreCorrupt:
            from afterturn import blocking

            return blocking.rescue(invocation.path(), file, progress=report)
    return None
