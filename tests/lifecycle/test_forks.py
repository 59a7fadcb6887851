"""Forked, spawned and executed children of a process with an open memory."""

import pytest
from children import StartChild

# The child of a fork says its last words and leaves; the parent waits for it and then shows that it is unharmed.
pytestmark = pytest.mark.slow
FORK = """
logs = []
import logging
class Keep(logging.Handler):
    def emit(self, record):
        logs.append(record.getMessage())
logging.getLogger("afterturn").addHandler(Keep())

events = []
memory = blocking.open(path, NO_EMBEDDER, on_event=lambda event: events.append(event.name)).start()
ada = memory.space("user:ada")
ada.add("Ada likes green tea")
messages = exchange("Which tea does Ada like?")[:1]
turn = memory.conversation("c", user="ada").turn(messages)

def fork(child):
    pid = os.fork()
    if not pid:
        events.clear()
        child()
        raise AssertionError("the child should have left")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def unharmed():
    ada.add("Ada likes black coffee")
    assert {entry.text for entry in ada.list()} >= {"Ada likes green tea", "Ada likes black coffee"}
    assert not [finding for finding in memory.check() if finding.level == "error"]
    memory.close()
    say("unharmed")
"""


def test_turn_verbs_in_a_forked_child_give_nothing_and_say_so_once(start: StartChild) -> None:
    """§2: no block, one warning, one event; whatever locks the parent's threads held at that moment."""
    child = start(
        FORK
        + """
def use():
    late = memory.conversation("d", user="ada").turn(messages)
    blocks = [turn.inject(messages, within=9), turn.inject_now(messages), late.inject(messages, within=9)]
    turn.finish(messages)
    with late:
        late.complete(messages)
    say(blocks, turn.wait_recorded(within=9), late.wait_recorded(within=9), events, len(logs))
    os._exit(0)
fork(use)
unharmed()
"""
    )
    assert child.result() == ["[None, None, None] False False ['memory_forked'] 1", "unharmed"]


def test_direct_verbs_in_a_forked_child_raise(start: StartChild) -> None:
    """§2: they say what to do instead; closing there changes nothing."""
    child = start(
        FORK
        + """
from afterturn.errors import ForkedProcess
def use():
    for call in (lambda: ada.add("text"), lambda: ada.search("tea"), lambda: memory.drain(),
                 lambda: memory.conversation("e", user="ada").start_turn(messages)):
        try:
            call()
        except ForkedProcess as error:
            say(error)
    memory.close()
    os._exit(0)
fork(use)
unharmed()
"""
    )
    said = child.result()
    assert len(said) == 5
    assert all("Open it again in the child" in line for line in said[:4])


def test_a_forked_child_leaves_by_itself_and_without_a_word(start: StartChild) -> None:
    """§2: neither `sys.exit` with all its clean-up nor `os._exit` waits for threads that are not there."""
    child = start(
        FORK
        + """
pid = os.fork()
if not pid:
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
fork(lambda: os._exit(0))
pid = os.fork()
if not pid:
    del memory, ada, turn
    gc.collect()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
unharmed()
"""
    )
    assert child.result() == ["unharmed"]


def test_a_forked_child_can_open_its_own_memory(start: StartChild) -> None:
    """§2: the child's own memory works beside the parent's, and is closed for it when it exits."""
    child = start(
        FORK
        + """
pid = os.fork()
if not pid:
    own = blocking.open(path, NO_EMBEDDER).start()
    own.space("user:ada").add("Ada likes white wine")
    with own.conversation("child", user="ada").turn(exchange("Left open by the child")):
        pass
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
say(sorted(entry.text for entry in ada.list()))
unharmed()
"""
    )
    texts, unharmed = child.result()
    assert texts == "['Ada likes green tea', 'Ada likes white wine', 'Left open by the child', 'Noted.']"
    assert unharmed == "unharmed"


@pytest.mark.parametrize("verb", ["write_now", "read_now"])
def test_no_child_is_forked_in_the_middle_of_a_transaction(start: StartChild, verb: str) -> None:
    """§2: a child would inherit the lock for ever; so the fork waits, and the child can write and truncate the log."""
    child = start(
        """
        from pathlib import Path
        from afterturn.runtime.clock import SystemClock
        from afterturn.config import Config
        from afterturn.types import Scope
        from afterturn.stores.sqlite.engine import open_engine
        begun = threading.Event()
        def work(unit):
            unit.timeline.page(Scope("default", ("user:ada",)), limit=1)
            begun.set()
            threading.Event().wait(0.3)
        engine = open_engine(Path(path), Config(), SystemClock())
        thread = threading.Thread(target=getattr(engine, arguments[0]), args=(work,))
        thread.start()
        begun.wait()
        pid = os.fork()
        if not pid:
            with blocking.open(path, NO_EMBEDDER | {"busy_timeout": 1.0}) as memory:
                memory.space("user:ada").add("Ada likes white wine")
                say(memory.space("user:ada").forget(everything=True).state)
            os._exit(0)
        os.waitpid(pid, 0)
        thread.join()
        engine.close()
        """,
        verb,
    )
    assert child.result() == ["erased"]


MULTIPROCESSING = """
import multiprocessing
source = '''
from afterturn import blocking
def work(path):
    memory = blocking.open(path, {"embedder": "none"}).start()
    messages = [{"role": "user", "content": "Said in a child"}, {"role": "assistant", "content": "Noted."}]
    with memory.conversation("child", user="ada").turn(messages):
        pass
'''
folder = os.path.dirname(path)
with open(folder + "/worker_module.py", "w") as file:
    file.write(source)
sys.path.insert(0, folder)
os.environ["PYTHONPATH"] = folder
import worker_module
with blocking.open(path, NO_EMBEDDER) as memory:
    child = multiprocessing.get_context(arguments[0]).Process(target=worker_module.work, args=(path,))
    child.start()
    child.join(20)
    say(child.exitcode, sorted(entry.text for entry in memory.space("user:ada").list()))
"""


def test_a_multiprocessing_child_by_fork_records_what_it_left_open(start: StartChild) -> None:
    """C4: such children skip `atexit`; what they handed over is stored all the same."""
    assert start(MULTIPROCESSING, "fork").result() == ["0 ['Noted.', 'Said in a child']"]


def test_a_multiprocessing_child_by_spawn_records_what_it_left_open(start: StartChild) -> None:
    """C4: as by fork."""
    script = MULTIPROCESSING.replace("\nwith blocking", '\nif __name__ == "__main__":\n  with blocking')
    assert start(script, "spawn").result() == ["0 ['Noted.', 'Said in a child']"]


def test_an_executed_child_inherits_no_descriptor(start: StartChild) -> None:
    """§2: store, log, sockets and pipes are closed on exec, though the host closes nothing itself."""
    child = start(
        """
        import subprocess
        with blocking.open(path, NO_EMBEDDER) as memory:
            memory.space("user:ada").add("Ada likes green tea")
            look = "import os; print([os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') " \\
                   "if int(fd) > 2 and os.path.lexists(f'/proc/self/fd/{fd}')])"
            say(subprocess.run([sys.executable, "-c", look], close_fds=False, capture_output=True, text=True).stdout)
        """
    )
    assert child.result()[0] == "[]"
