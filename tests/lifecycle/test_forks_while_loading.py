"""Forks in the middle of what memory loads behind its first answer, in programs that have not loaded `logging`."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
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
            memory.space("user:ada").search("Which tea does Ada like?")
            while memory._started is None:
                pid = os.fork()
                if not pid:
                    import logging, asyncio
                    os._exit(0)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            print(memory.space("user:ada").add("Ada likes black coffee").created)
        """
    assert _run(script, tmp_path) == ["True"]


@pytest.mark.parametrize("module", ["numpy.linalg", "tokenizers.models", "importlib.metadata"])
def test_a_child_that_is_forked_while_vectors_warm_up_has_vectors_of_its_own(tmp_path: Path, module: str) -> None:
    """§2, L1: a package that is half loaded in the parent's thread would stay so in the child for ever."""
    script = f"""
        import os, sys, threading
        from afterturn import blocking, early
        early.START_AFTER = 0.0
        looked = threading.Event()

        class Look:
            def find_spec(self, name, path=None, target=None):
                if name == "{module}":
                    looked.set()
                    threading.Event().wait(0.3)

        sys.meta_path.insert(0, Look())
        with blocking.open(sys.argv[1], {{"embedder": "static"}}):
            assert looked.wait({WAIT})
            pid = os.fork()
            if not pid:
                own = blocking.open(sys.argv[1], {{"embedder": "static"}}).start()
                os._exit(not own.ready(within=5.0))
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    assert _run(script, tmp_path) == ["0"]


def test_a_fork_waits_for_a_transaction_before_it_holds_up_what_that_loads(tmp_path: Path) -> None:
    """§2: a transaction may load what it needs and say something, so it is waited for first."""
    script = """
        import os, sys, threading, time
        from afterturn import blocking
        with blocking.open(sys.argv[1], {"embedder": "none"}) as memory:
            memory.ready(within=0.0)
            begun, ended = threading.Event(), []

            def work(unit):
                from afterturn.base.loading import load
                begun.set()
                threading.Event().wait(0.3)
                load("calendar")
                __import__("logging").getLogger("work")
                ended.append(True)

            writing = threading.Thread(target=memory._early.engine.write_now, args=(work,), daemon=True)
            assert "calendar" not in sys.modules
            writing.start()
            begun.wait()
            pid = os.fork()
            if not pid:
                os._exit(not ended)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            writing.join()
        """
    assert _run(script, tmp_path) == ["0"]
