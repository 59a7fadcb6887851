"""Threads for blocking work. Not `concurrent.futures`, whose threads end before `atexit` handlers run."""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from afterturn.errors import ForkedProcess, MemoryClosed
from afterturn.log import logger


class ThreadWorker:
    """The Worker port on daemon threads that start with the first `post`.

    With one thread, work runs in the order it was posted; with more, it starts in that order.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        self._name = name
        self._wanted = threads
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._without_thread = threading.RLock()
        self._closed = False
        self._process = os.getpid()

    def post(self, work: Callable[[], None]) -> None:
        """Raises MemoryClosed after `close`, and ForkedProcess in a forked child, which has no such thread."""
        if os.getpid() != self._process:
            raise ForkedProcess(
                f"The worker {self._name!r} runs in the parent process. Open memory again in the child."
            )
        with self._lock:
            if self._closed:
                raise MemoryClosed(f"The worker {self._name!r} is closed. Open memory again.")
            self._queue.put(work)
            if len(self._threads) < self._wanted:
                thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads) + 1}", daemon=True)
                # While the interpreter exits, Python 3.12 and later start none. The threads that run do the work.
                with contextlib.suppress(RuntimeError):
                    thread.start()
                    self._threads.append(thread)
            if self._threads:
                return
        with self._without_thread:
            self._queue.put(None)
            self._run()

    def close(self, *, within: float) -> bool:
        if os.getpid() != self._process:
            return True
        with self._lock:
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._queue.put(None)
        deadline = time.monotonic() + within
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads if thread is not threading.current_thread())

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception:  # the boundary: work that fails must not end the thread
                logger.exception("work on %s failed", self._name)
            # Otherwise this work, and everything it refers to, would stay alive until the next is posted.
            del work
