"""The commands of the CLI as a person types them, run in a process of their own, and what they print."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.demo.host import StoryBroken
from lab.demo.stage import Stage
from lab.demo.story import SPACE


def show_command(
    stage: Stage, store: Path, arguments: Sequence[str], *, pick: Callable[[list[str]], list[str]] = list
) -> None:
    """Prints the command and what `pick` takes of its output. StoryBroken when it fails."""
    typed = [*arguments, "--store", str(store), "--space", SPACE]
    done = subprocess.run(
        [sys.executable, "-m", "afterturn.hosts.cli", *typed], check=False, capture_output=True, text=True
    )
    stage.line(f"$ {typeable()} {' '.join(typed)}", "bold")
    if done.returncode:
        raise StoryBroken(f"Memory failed: {done.stderr.strip()}")
    stage.excerpt(pick(done.stdout.splitlines()))


def typeable() -> str:
    """The program as it can be typed here."""
    installed = Path(".venv", "bin", "afterturn")
    return str(installed) if installed.exists() else "afterturn"
