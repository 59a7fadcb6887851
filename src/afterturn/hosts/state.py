"""Files that afterturn keeps about this machine, in one folder that only its owner can read, and refused links."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from afterturn.config import STATE_VARIABLE, state_folder
from afterturn.errors import InvalidFile
from afterturn.runtime.files import replace_file


def open_state_folder() -> Path:
    """Creates the folder if it is missing. Raises InvalidFile if somebody else owns it or can read it."""
    folder = state_folder()
    if not folder.is_absolute():
        raise InvalidFile(f"{folder} is not an absolute path. Set {STATE_VARIABLE} to one.")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
        if found.st_uid != os.getuid():
            raise InvalidFile(f"{folder} belongs to another user. Set {STATE_VARIABLE} to a folder of your own.")
        if stat.S_IMODE(found.st_mode) & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise InvalidFile(
            f"The folder {folder} cannot be used: {error.strerror}. Correct it, or set {STATE_VARIABLE} to another."
        ) from error
    return folder


def read_document(name: str) -> dict[str, Any]:
    """The JSON object in a file of the folder; empty if there is none. Raises InvalidFile if it is damaged."""
    path = state_folder() / name
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidFile(f"{path} cannot be read: {error}. Correct it, or remove it.") from error
    if not isinstance(value, dict):
        raise InvalidFile(f"{path} does not contain a JSON object. Correct it, or remove it.")
    return value


@contextmanager
def change_document(name: str) -> Iterator[dict[str, Any]]:
    """The JSON object, to be changed. It is written when the block ends without an error, one process at a time."""
    folder = open_state_folder()
    path = folder / f"{name}.lock"
    with open(path, "a", opener=lambda file, flags: os.open(file, flags | os.O_NOFOLLOW, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        document = read_document(name)
        yield document
        with replace_file(folder / name, mode=0o600) as stream:
            stream.write(json.dumps(document, indent=1, sort_keys=True).encode())


def refuse_links(path: Path, root: Path, *, remedy: str) -> None:
    """Raises InvalidFile if `path`, or a folder between it and `root`, is a symbolic link.

    `path` may be relative to `root`. Folders above `root` may be links.
    """
    full = root / path
    for part in (full, *full.parents):
        if part == root:
            return
        if os.path.islink(part):
            raise InvalidFile(
                f"{part} is a symbolic link to {os.readlink(part)!r}, and links are not followed. {remedy}"
            )


def check_output_path(path: Path) -> None:
    """Raises InvalidFile if a path to write is a link, or behind one that a repository may have brought.

    Such links are below the current folder for a relative path, else below the outermost folder that has a `.git`.
    """
    repositories = [folder for folder in path.parents if os.path.lexists(folder / ".git")]
    root = [path.parent, *repositories][-1] if path.is_absolute() else Path.cwd()
    refuse_links(path, root, remedy="Name another path, or the one that it leads to.")
