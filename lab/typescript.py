"""Builds the TypeScript client, checks its types and runs its tests in Node against a real `afterturn serve`.

`python -m lab.typescript [NAME...]` runs all tests, or the files of these names, such as `turns`.

It needs npm and Node 18 or newer, and installs the pinned TypeScript compiler below clients/typescript/node_modules.
The lock file names no registry: npm asks the one that it is configured for.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from lab.api.server import serving

FOLDER = Path(__file__).resolve().parents[1] / "clients" / "typescript"
_MODULES = FOLDER / "node_modules"
_STAMP = _MODULES / ".installed"
_NODE_MAJOR_MIN = 18
_WITHIN = 300.0


def main(names: list[str]) -> int:
    """The exit code of the first step that fails."""
    check_node()
    install()
    if code := _run(str(_MODULES / ".bin" / "tsc"), "--build", "--force", ".", "tests"):
        return code
    tests = sorted((FOLDER / "build" / "tests").glob("*.test.js"))
    chosen = [test for test in tests if not names or test.name.partition(".")[0] in names]
    if not chosen:
        sys.exit(f"There is no such test. Choose from: {', '.join(test.name.partition('.')[0] for test in tests)}.")
    with serving("--without", "pages", "--without", "mcp") as server:
        variables = {
            "MEMORY_URL": server.url,
            "AFTERTURN_TOKEN": server.token,
            "AFTERTURN_STORE": str(server.folder / "memory.db"),
            "AFTERTURN_STATE": str(server.folder / "state"),
            "PYTHON": sys.executable,
        }
        return _run("node", "--test", "--test-reporter=spec", *map(str, chosen), **variables)


def check_node() -> None:
    """Ends the program, and says what to install, if Node or npm is missing or too old."""
    needed = f"The TypeScript client's tests need npm and Node {_NODE_MAJOR_MIN} or newer"
    if shutil.which("npm") is None or shutil.which("node") is None:
        sys.exit(f"{needed}, which were not found. On Debian: apt-get install npm")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    found = re.match(r"v(\d+)\.", version)
    if found is None or int(found[1]) < _NODE_MAJOR_MIN:
        sys.exit(f"{needed}, and this machine has {version}.")


def install() -> None:
    """Does nothing if the compiler is there already. `npm install`, because `npm ci` refuses a lock file that was made
    on another platform."""
    files = [FOLDER / "package.json", FOLDER / "package-lock.json"]
    wanted = hashlib.sha256(b"\0".join([str(FOLDER).encode(), *(file.read_bytes() for file in files)])).hexdigest()
    if _STAMP.is_file() and _STAMP.read_text(encoding="utf-8") == wanted:
        return
    print("Installing the TypeScript compiler into clients/typescript/node_modules", flush=True)
    command = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    if code := _run(*command):
        sys.exit(code)
    _STAMP.write_text(wanted, encoding="utf-8")


def _run(*command: str, **variables: str) -> int:
    """The exit code."""
    known = {**os.environ, **variables}
    done = subprocess.run(command, cwd=FOLDER, env=known, stdin=subprocess.DEVNULL, timeout=_WITHIN, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
