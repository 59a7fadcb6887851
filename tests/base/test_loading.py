"""Modules that are loaded behind the host's back must not get in the way of a fork."""

import subprocess
import sys
import textwrap
from pathlib import Path

SLOW = """
    import sys
    gate = sys.modules["gate"]
    gate.entered.set()
    gate.forked.wait(1.0)
"""
FORKING = """
    import os, signal, sys, threading, types, warnings
    from afterturn.base.loading import load

    warnings.simplefilter("ignore")
    gate = sys.modules["gate"] = types.ModuleType("gate")
    gate.entered, gate.forked = threading.Event(), threading.Event()
    os.register_at_fork(after_in_parent=gate.forked.set)
    sys.path.insert(0, sys.argv[1])
    loading = threading.Thread(target=load, args=("slow_module",))
    loading.start()
    gate.entered.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        import slow_module
        os._exit(0)
    loading.join()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_waits_for_what_is_being_loaded(tmp_path: Path) -> None:
    """§2: the child can import the same module; half an import in the parent would hold it up for ever."""
    (tmp_path / "slow_module.py").write_text(textwrap.dedent(SLOW), encoding="utf-8")
    command = [sys.executable, "-c", textwrap.dedent(FORKING), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "0\n"
