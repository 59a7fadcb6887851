"""Tests that interrupt a process pass wherever the suite is started."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

IGNORING = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
{restore}
child = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
print(subprocess.run([sys.executable, "-c", child], stderr=subprocess.DEVNULL).returncode)
"""
RESTORE = "from interrupts import restore_interrupts; restore_interrupts()"


@pytest.mark.parametrize("restore, code", [("", 0), (RESTORE, -signal.SIGINT)], ids=["inherited", "restored"])
def test_a_child_of_a_process_that_ignores_interrupts_can_be_interrupted(restore: str, code: int):
    """The first case shows what a child inherits without the fix."""
    command = [sys.executable, "-c", IGNORING.format(restore=restore)]
    folder = Path(__file__).parent
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{code}\n"


def test_the_suite_and_its_children_do_not_ignore_interrupts():
    program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
