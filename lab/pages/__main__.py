"""Creates the environment of the browser tests from its lock file, below .pages/, and runs them there.

`python -m lab.pages test [pytest arguments]`, `python -m lab.pages screenshots [FOLDER]`,
`python -m lab.pages lock [--upgrade]`. The browser is Debian's Chromium, or the one that CHROMIUM names.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".pages"
PYTHON = FOLDER / "bin" / "python"
_LOCK = Path(__file__).with_name("lock.txt")
_STAMP = FOLDER / "installed"
_UV = Path(sys.executable).parent / "uv"
_APT = ("apt-get", "install", "-y", "--no-install-recommends", "chromium")
_WANTED = (
    f"afterturn[server] @ {ROOT.as_uri()}",
    "axe-playwright-python",
    "hypothesis",
    "pillow",
    "playwright",
    "psutil",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pytest-xdist",
)


def install() -> None:
    """Does nothing if it is there already. Raises CalledProcessError if a package cannot be installed."""
    content = b"\0".join([str(ROOT).encode(), _LOCK.read_bytes(), (ROOT / "pyproject.toml").read_bytes()])
    wanted = hashlib.sha256(content).hexdigest()
    if _STAMP.is_file() and _STAMP.read_text(encoding="utf-8") == wanted:
        return
    print("Installing Playwright and the tests' packages into .pages", flush=True)
    _run_uv("venv", "--quiet", "--clear", "--python", sys.executable, str(FOLDER))
    _run_uv("pip", "install", "--quiet", "--python", str(PYTHON), "--requirement", str(_LOCK))
    _run_uv("pip", "install", "--quiet", "--python", str(PYTHON), "--no-deps", "--editable", str(ROOT))
    _STAMP.write_text(wanted, encoding="utf-8")


def find_browser() -> str:
    """The path of a Chromium, which is installed with apt-get where that is allowed. Exits if there is none."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("Installing chromium with apt-get", flush=True)
        subprocess.run(_APT, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        found = shutil.which("chromium")
    if found is None:
        sys.exit(f"There is no browser. Run `sudo {' '.join(_APT)}`, or set CHROMIUM to the path of one.")
    return found


def run(*arguments: str) -> int:
    """Runs a module in the environment. Returns its exit code."""
    browser = find_browser()
    install()
    command = [str(PYTHON), "-m", *arguments]
    return subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False, env={**os.environ, "CHROMIUM": browser}
    ).returncode


def lock(arguments: Sequence[str]) -> None:
    """Writes the exact versions of everything that the environment has."""
    command = ["pip", "compile", "-", "--quiet", "--universal", "--python-version", "3.11", "--no-header"]
    command += ["--no-annotate", "--no-emit-index-url", "--no-emit-package", "afterturn"]
    command += ["--output-file", str(_LOCK), *arguments]
    subprocess.run([_UV, *command], input="\n".join(_WANTED), text=True, check=True, cwd=ROOT)


def _run_uv(*arguments: str) -> None:
    subprocess.run([_UV, *arguments], check=True, stdin=subprocess.DEVNULL, cwd=ROOT)


def main() -> None:
    match sys.argv[1:]:
        case ["test", *arguments]:
            sys.exit(run("pytest", "-m", "pages", "tests/pages", *arguments))
        case ["screenshots", *arguments]:
            sys.exit(run("lab.pages.screenshots", *arguments))
        case ["lock", *arguments]:
            lock(arguments)
        case _:
            sys.exit("Use: python -m lab.pages test|screenshots|lock.")


if __name__ == "__main__":
    main()
