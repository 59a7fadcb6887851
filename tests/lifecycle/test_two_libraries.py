"""A host that opens its store with sqlite3, which is another copy of SQLite, in the process that has it open."""

from pathlib import Path

from children import StartChild

from afterturn import Filter, blocking

ANYTHING = Filter(kind=None)
NO_EMBEDDER = {"embedder": "none"}


def test_a_host_that_opens_its_store_with_sqlite3_is_refused_and_keeps_its_memory(
    start: StartChild, path: Path
) -> None:
    """C2, C4: by any of its names; other files can be opened, and the store when it is closed."""
    child = start(
        """
        import pathlib, sqlite3
        os.chdir(os.path.dirname(path))
        os.symlink(path, "symbolic.db")
        with blocking.open(path, NO_EMBEDDER) as memory, blocking.open(path, NO_EMBEDDER) as second:
            memory.space("user:ada").add("Ada likes green tea")
            os.link(path, "hard.db")
            names = [path, os.fsencode(path), pathlib.Path(path), "memory.db", "./symbolic.db", "hard.db"]
            names += [f"file:{path}", f"file://{path}?mode=ro", f"file://localhost{path}", "file:memory%2Edb?nolock=1"]
            for name in names:
                try:
                    sqlite3.connect(name, uri=True)
                except afterturn.StoreUnavailable as error:
                    say(str(error).partition(" is open in this process as a store")[1])
            for name in (":memory:", "", "file::memory:", "other.db", "file:[", "memory.db?"):
                sqlite3.connect(name).close()
            for name in (3, None, "memory.db\\0"):
                try:
                    sqlite3.connect(name)
                except (TypeError, ValueError) as error:
                    say("an error of sqlite3")
            messages = exchange("I like green tea")
            with memory.conversation("c", user="ada").turn(messages[:1]) as turn:
                turn.complete(messages)
            say(turn.wait_recorded(within=60))
        connection = sqlite3.connect(path)
        say(connection.execute("SELECT count(*) > 0 FROM entry").fetchone()[0])
        connection.close()
        """
    )
    assert child.result() == [*[" is open in this process as a store"] * 10, *["an error of sqlite3"] * 3, "True", "1"]
    with blocking.open(path, NO_EMBEDDER) as memory:
        texts = [entry.text for entry in memory.space("user:ada").list(filter=ANYTHING)]
        assert [finding for finding in memory.check() if finding.level == "error"] == []
    assert sorted(texts) == ["Ada likes green tea", "I like green tea", "Noted."]


def test_a_store_that_sqlite3_has_open_is_refused(start: StartChild, path: Path) -> None:
    """C2: until its connection is closed. A file that is only open, such as a temporary one, can become a store."""
    with path.open("xb"), blocking.open(path, NO_EMBEDDER) as memory:
        memory.space("user:ada").add("Ada likes green tea")
    child = start(
        """
        import sqlite3
        connection = sqlite3.connect(path)
        connection.execute("SELECT * FROM entry").fetchone()
        try:
            blocking.open(path, NO_EMBEDDER).start()
        except afterturn.StoreUnavailable as error:
            say(error)
        connection.close()
        with blocking.open(path, NO_EMBEDDER) as memory:
            say([entry.text for entry in memory.space("user:ada").list()])
        """
    )
    refused, listed = child.result()
    assert refused.startswith(f"The store {path} is open in this process, but not by afterturn; probably by sqlite3")
    assert listed == "['Ada likes green tea']"


def test_a_forked_child_may_open_the_store_of_its_parent_with_sqlite3(start: StartChild) -> None:
    """C2: locks are those of a process, so the parent keeps its own."""
    child = start(
        """
        import sqlite3
        memory = blocking.open(path, NO_EMBEDDER).start()
        memory.space("user:ada").add("Ada likes green tea")
        child = os.fork()
        if not child:
            connection = sqlite3.connect(path)
            say(connection.execute("SELECT count(*) > 0 FROM entry").fetchone()[0])
            connection.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        memory.space("user:ada").add("Ada likes black tea")
        say(len(memory.space("user:ada").list()))
        memory.close()
        """
    )
    assert child.result() == ["1", "2"]
