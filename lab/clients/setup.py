"""Installs Node 22 and the pinned clients from npm into .clients/, which git ignores. Does nothing if they are there.

    python -m lab.clients.setup

npm of any version must be on the machine. `npm install` is used because `npm ci` refuses a lock file that leaves out
optional packages of other platforms. The lock file names no registry: npm asks the one that it is configured for.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / ".clients"
BIN = FOLDER / "node_modules" / ".bin"
PROGRAMS = ("node", "claude", "gemini", "qwen", "codex", "opencode")
_FILES = ("package.json", "package-lock.json")


def is_ready() -> bool:
    stamp = FOLDER / "installed"
    return stamp.is_file() and stamp.read_text() == _wanted() and all((BIN / name).exists() for name in PROGRAMS)


def install() -> None:
    """If two processes call it at once, the second waits and then has nothing to do."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_ready():
            return
        if shutil.which("npm") is None:
            sys.exit("npm was not found. On Debian: apt-get install npm")
        print("Installing Node 22 and the clients into .clients/: about a minute and 1.6 GB.", flush=True)
        for name in _FILES:
            shutil.copyfile(HERE / name, FOLDER / name)
        command = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"]
        if subprocess.run(command, cwd=FOLDER, stdin=subprocess.DEVNULL, check=False).returncode != 0:
            sys.exit("npm could not install the clients. Its message is above.")
        missing = [name for name in PROGRAMS if not (BIN / name).exists()]
        if missing:
            sys.exit(f"npm installed the clients without {', '.join(missing)}.")
        (FOLDER / "installed").write_text(_wanted())


def _wanted() -> str:
    return hashlib.sha256(b"".join((HERE / name).read_bytes() for name in _FILES)).hexdigest()


if __name__ == "__main__":
    install()
