"""Forks in the middle of what memory loads behind its first answer, in programs that have not loaded `logging`."""

import subprocess
import sys
import textwrap
from pathlib import Path

from ears import WAIT, WORDS

from afterturn import blocking

# Stands for any module that is loaded behind and has a logger: it asks for it while the program forks.
SLOW = """
import logging, threading
import begun
begun.event.set()
threading.Event().wait(0.3)
logging.getLogger("slow")
"""
BEGUN = """
import threading
event = threading.Event()
"""


def _run(script: str, folder: Path) -> list[str]:
    """What a fresh program says that ends well, in time, and without a word on stderr."""
    path = folder / "memory.db"
    with blocking.open(path, WORDS) as memory:
        memory.space("user:ada").add("Ada likes green tea")
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, cwd=folder, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def test_a_fork_waits_for_a_module_before_it_takes_the_lock_of_logging(tmp_path: Path) -> None:
    """§2: else the module waits for its logger, the fork for the module, and the parent for ever."""
    (tmp_path / "begun.py").write_text(BEGUN)
    (tmp_path / "slow.py").write_text(SLOW)
    script = """
        import os, sys, threading
        from afterturn import blocking
        from afterturn.base.loading import load
        assert "logging" not in sys.modules
        with blocking.open(sys.argv[1], {"embedder": "none"}) as memory:
            memory.ready(within=0.0)
            import begun
            loading = threading.Thread(target=load, args=("slow",), daemon=True)
            loading.start()
            begun.event.wait()
            pid = os.fork()
            if not pid:
                os._exit("slow" not in sys.modules)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    assert _run(script, tmp_path) == ["0"]


def test_a_program_that_forks_all_the_time_is_not_held_up_by_what_starts_behind(tmp_path: Path) -> None:
    """§2: each child can load what its parent was loading; the parent goes on, and nothing is said on stderr."""
    script = """
        import os, sys
        from afterturn import blocking, early
        early.START_AFTER = 0.01
        with blocking.open(sys.argv[1], {"embedder": "none"}) as memory:
            memory.space("user:ada").recall("Which tea does Ada like?")
            while memory._started is None:
                pid = os.fork()
                if not pid:
                    import logging, asyncio
                    os._exit(0)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            print(memory.space("user:ada").add("Ada likes black coffee").created)
        """
    assert _run(script, tmp_path) == ["True"]
