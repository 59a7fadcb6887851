"""Model files on disk: one folder per model and version, with a manifest of checksums, written as a whole."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from afterturn.errors import EmbedderUnavailable

MANIFEST = "manifest.json"
_FOLDER_MODE = 0o755
# Longer than any download takes.
_LEFTOVER_SECONDS = 86_400.0
_MANIFEST_BYTES_MAX = 65536
# A folder of the same name exists and is not empty.
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY)


class ModelFiles(NamedTuple):
    """The folder of a model's files, whether it exists or not."""

    folder: Path
    name: str
    version: str

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}-{self.version}"


def find_models(folder: Path) -> list[ModelFiles]:
    """The installed models by name, damaged or not."""
    try:
        names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []
    return [ModelFiles(folder, *name.partition("-")[::2]) for name in names]


def check_writable(files: ModelFiles) -> None:
    """Raises EmbedderUnavailable when the folder cannot be written, before a download."""
    _scratch(files).rmdir()


def put_files(files: ModelFiles, contents: Mapping[str, bytes]) -> None:
    """Replaces all files or none. Raises EmbedderUnavailable when the folder cannot be written."""
    made = _scratch(files)
    try:
        for name, data in contents.items():
            _write(made / name, data)
        sums = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
        manifest = {"name": files.name, "version": files.version, "files": sums}
        _write(made / MANIFEST, json.dumps(manifest, indent=1).encode())
        # One folder may serve all users of a machine; a temporary one is readable for its owner only.
        made.chmod(_FOLDER_MODE)
        _swap(made, files)
    except OSError as error:
        raise _unwritable(files, error) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    _sweep(files.folder)


def remove_files(files: ModelFiles) -> bool:
    """Returns whether there were any. Renames the folder first, so that no process reads a part of it."""
    try:
        gone = Path(tempfile.mkdtemp(prefix=".removed.", dir=files.folder))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unwritable(files, error) from error
    try:
        files.path.rename(gone / files.path.name)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unwritable(files, error) from error
    finally:
        shutil.rmtree(gone, ignore_errors=True)
    return True


def verified(files: ModelFiles, names: Sequence[str]) -> list[bytes]:
    """The contents, checked against the manifest. Raises EmbedderUnavailable with the reason and the remedy."""
    if not files.path.is_dir():
        raise _unavailable(files, f"The files of {files.name} are not in {files.folder}")
    sums = _checksums(files)
    return [_checked(files, name, sums.get(name)) for name in names]


def verify_all(files: ModelFiles) -> None:
    """Raises EmbedderUnavailable, as `verified` does, when a file differs from the manifest."""
    verified(files, list(_checksums(files)))


def size_bytes(files: ModelFiles) -> int:
    return sum(path.stat().st_size for path in files.path.iterdir() if path.is_file())


def _scratch(files: ModelFiles) -> Path:
    try:
        files.folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{files.path.name}.", dir=files.folder))
    except OSError as error:
        raise _unwritable(files, error) from error


def _sweep(folder: Path) -> None:
    """Deletes what killed processes left long ago."""
    # It was written just now.
    now = folder.stat().st_mtime
    for path in folder.glob(".*"):
        try:
            if path.is_dir() and path.stat().st_mtime < now - _LEFTOVER_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:
            # Its owner has deleted it meanwhile.
            continue


def _checksums(files: ModelFiles) -> dict[str, Any]:
    try:
        with (files.path / MANIFEST).open("rb") as file:
            document = json.loads(file.read(_MANIFEST_BYTES_MAX))
        sums = document["files"]
        if not isinstance(sums, dict):
            raise TypeError("no table")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unavailable(files, f"The manifest in {files.path} cannot be read ({error})") from error
    return sums


def _checked(files: ModelFiles, name: str, expected: object) -> bytes:
    try:
        data = (files.path / name).read_bytes()
    except OSError as error:
        raise _unavailable(files, f"{files.path / name} cannot be read ({error.strerror})") from error
    if hashlib.sha256(data).hexdigest() != expected:
        raise _unavailable(files, f"{files.path / name} is damaged")
    return data


def _swap(made: Path, files: ModelFiles) -> None:
    try:
        made.rename(files.path)
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        remove_files(files)
        # Another process may have written the same files first; they are as good.
        try:
            made.rename(files.path)
        except OSError as again:
            if again.errno not in _TAKEN:
                raise


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _unwritable(files: ModelFiles, error: OSError) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"{files.folder} cannot be written: {error.strerror or error}. Set XDG_CACHE_HOME to a writable folder."
    )


def _unavailable(files: ModelFiles, what: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(f"{what}. Recall uses words only; for vectors run `afterturn models get {files.name}`.")
