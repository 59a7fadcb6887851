"""PgBouncer in transaction mode before a server, from the machine or from Debian's package, which is not installed.

No wheel has PgBouncer. `apt-get download` needs no root, and the package is unpacked below .postgres/.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.postgres.server import PostgresServer, find_owner, free_port
from lab.postgres.watch import Watch

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".postgres" / "pgbouncer"
_PACKAGES = ("pgbouncer", "libevent-2.1-7", "libc-ares2")
_PROGRAM = "usr/sbin/pgbouncer"
_START_TRIES_MAX = 200
ROLES = ("postgres", "memory")
"""Who may connect. The tests create the second one, for which row-level security is on."""


def find_pooler() -> Path | None:
    """The folder that has usr/sbin/pgbouncer: the machine's, or the one that `fetch_pooler` made."""
    return next((folder for folder in (Path("/"), FOLDER) if (folder / _PROGRAM).is_file()), None)


def fetch_pooler() -> str:
    """Unpacks Debian's package. Returns why it cannot, or an empty text."""
    if find_pooler() is not None:
        return ""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return "this machine has no apt-get to download it with; install PgBouncer"
    with tempfile.TemporaryDirectory(prefix="afterturn-pgbouncer-") as folder:
        options: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        done = subprocess.run(["apt-get", "download", *_PACKAGES], **options, timeout=120, check=False)
        if done.returncode and os.geteuid() == 0:
            # A new machine may not know its packages yet.
            subprocess.run(["apt-get", "update"], **options, timeout=120, check=False)
            done = subprocess.run(["apt-get", "download", *_PACKAGES], **options, timeout=120, check=False)
        if done.returncode:
            return f"apt-get download failed: {done.stderr.strip()[-300:]}"
        FOLDER.mkdir(parents=True, exist_ok=True)
        for package in sorted(Path(folder).glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", package, FOLDER], **options, timeout=60, check=True)
    return ""


class PgBouncer:
    """A pooler before `server`. Use it with `with`: it stops at the end."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="afterturn-pgbouncer-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: Watch | None = None
        self.port = free_port()

    def __enter__(self) -> PgBouncer:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._process is not None:
                self._process.terminate()
                self._process.wait(60)
        finally:
            if self._watch is not None:
                self._watch.end()
            shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, *, schema: str = "afterturn", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/postgres?schema={schema}"

    def _start(self) -> None:
        source = find_pooler()
        if source is None:
            raise RuntimeError("PgBouncer is not installed. Run `make test-postgres`, which downloads it.")
        # Copied, because the other user may not be able to enter this project's folder.
        shutil.copy(source / _PROGRAM, self._folder / "pgbouncer")
        libraries = self._folder / "lib"
        libraries.mkdir()
        if source == FOLDER:
            for library in FOLDER.glob("usr/lib/*/*.so.*"):
                shutil.copy(library, libraries / library.name)
        self._folder.chmod(0o755)
        (self._folder / "pgbouncer.ini").write_text(self._settings(), encoding="utf-8")
        (self._folder / "users").write_text("".join(f'"{name}" ""\n' for name in ROLES), encoding="utf-8")
        owner, options = find_owner(), dict[str, Any]()
        if owner is not None:
            options = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._folder / "pgbouncer", self._folder / "pgbouncer.ini"],
                cwd=self._folder,
                env={"PATH": os.defpath, "LD_LIBRARY_PATH": str(libraries)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **options,
            )
        self._watch = Watch(self._folder, self._process.pid)
        self._wait()

    def _settings(self) -> str:
        return f"""[databases]
* = host=127.0.0.1 port={self._server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {self._folder / "users"}
pool_mode = transaction
max_client_conn = 200
default_pool_size = 20
"""

    def _wait(self) -> None:
        import psycopg

        assert self._process is not None
        pause = threading.Event()
        for _ in range(_START_TRIES_MAX):
            try:
                psycopg.connect(self.url().partition("?")[0]).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None:
                    break
                pause.wait(0.05)
            else:
                return
        said = (self._folder / "log").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"PgBouncer did not start:\n{said[-2000:]}")
