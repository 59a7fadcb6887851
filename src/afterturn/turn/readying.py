"""Loads what the end of a turn needs while its model answers: on memory's loop, the next question would wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from afterturn.base.loading import load
from afterturn.base.loop import run_on
from afterturn.base.ports import Worker
from afterturn.base.supervisor import Supervisor


class Readying:
    """Lives on memory's loop. One module after the other: a question that comes meanwhile waits for one at most."""

    def __init__(self, modules: Sequence[str], worker: Worker, supervisor: Supervisor) -> None:
        self._modules = modules
        self._worker = worker
        self._supervisor = supervisor
        self._has_begun = False

    def begin(self) -> None:
        """A turn has what it needs. From the second call on nothing happens."""
        if not self._has_begun:
            self._has_begun = True
            self._supervisor.start(self._load(), "loading what turns leave to be done")

    async def _load(self) -> None:
        for module in self._modules:
            await run_on(self._worker, partial(load, module))
