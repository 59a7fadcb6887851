"""The store of a seed: a copy of a template that has the owners' earlier memories, in a file or on a server."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from afterturn.config import Config, StoreUrl
from afterturn.ports import Clock
from afterturn.stores.sqlite.store import SqliteStore
from afterturn.stores.sqlite.store import open_store as open_file
from afterturn.stores.threaded_store import Workers

if TYPE_CHECKING:
    from afterturn.stores.postgres.store import PostgresStore

SimStore: TypeAlias = "SqliteStore | PostgresStore"
# The path names the files of turns that wait, also if the store is on a server.
OpenStore: TypeAlias = Callable[[Path, Config, Clock, Workers], SimStore]


class Template(Protocol):
    def make(self, fill: Callable[[Path, OpenStore], None]) -> None:
        """Creates the store that `fill` fills."""

    def copy(self, path: Path) -> AbstractContextManager[OpenStore]:
        """How the processes of one seed open their copy. It is removed afterwards."""


class FileTemplate:
    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self, fill: Callable[[Path, OpenStore], None]) -> None:
        fill(self._path, _open_file)

    @contextmanager
    def copy(self, path: Path) -> Iterator[OpenStore]:
        shutil.copyfile(self._path, path)
        try:
            yield _open_file
        finally:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)


def _open_file(path: Path, config: Config, clock: Clock, worker: Workers) -> SqliteStore:
    return open_file(path, config, clock, worker=worker)


class DatabaseTemplate:
    """A database that is copied for each seed. `url` names another one, as a role that may create databases."""

    def __init__(self, url: str, folder: Path, name: str = "simulation") -> None:
        self._url = url.partition("?")[0]
        self._folder = folder
        self._name = name

    def make(self, fill: Callable[[Path, OpenStore], None]) -> None:
        self._run(f"CREATE DATABASE {self._name}")
        fill(self._folder / self._name, self._open(self._name))

    @contextmanager
    def copy(self, path: Path) -> Iterator[OpenStore]:
        name = f"{self._name}_{path.stem}"
        self._run(f"CREATE DATABASE {name} TEMPLATE {self._name}")
        try:
            yield self._open(name)
        finally:
            self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def remove(self) -> None:
        self._run(f"DROP DATABASE IF EXISTS {self._name} WITH (FORCE)")

    def _open(self, database: str) -> OpenStore:
        from afterturn.stores.postgres.store import open_store as open_url

        url = StoreUrl(f"{self._url.rpartition('/')[0]}/{database}")
        return lambda path, config, clock, worker: open_url(url, config, clock, worker=worker)

    def _run(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statement.encode())
