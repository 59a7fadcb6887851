"""Refuses paths that lead through symbolic links. A repository or an archive may bring links to any place."""

from __future__ import annotations

import os
from pathlib import Path

from afterturn.errors import InvalidFile


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
