"""What the end of a turn needs is loaded beside memory's loop, before the end comes."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading

import pytest

from afterturn.base.config import Config
from afterturn.base.supervisor import Supervisor
from afterturn.base.worker import ThreadWorker
from afterturn.parts import afterwards
from afterturn.turn import readying as module
from afterturn.turn.readying import Readying


class Loaded:
    """Notes what is loaded, and in which thread."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.modules: list[str] = []
        self.threads: set[str] = set()
        self.all = threading.Event()

    def __call__(self, name: str) -> None:
        self.modules.append(name)
        self.threads.add(threading.current_thread().name)
        if len(self.modules) >= self._count:
            self.all.set()


async def test_modules_are_loaded_once_in_order_and_not_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """R2: however many turns have their block, and however often."""
    loaded, worker, supervisor = Loaded(2), ThreadWorker("aside"), Supervisor()
    monkeypatch.setattr(module, "load", loaded)
    readying = Readying(["first", "second"], worker, supervisor)
    readying.begin()
    readying.begin()
    assert await asyncio.to_thread(loaded.all.wait, 20.0)
    await supervisor.close(within=5.0)
    assert worker.close(within=5.0)
    assert loaded.modules == ["first", "second"]
    assert loaded.threads == {"aside-1"}


@pytest.mark.parametrize("settings", [{}, {"background": False}, {"rules": False}])
def test_every_name_is_a_module(settings: dict[str, bool]) -> None:
    """C8: a name that is none would leave the others unloaded."""
    names = afterwards(Config(**settings))
    assert len(set(names)) == len(names)
    for name in names:
        assert importlib.import_module(name) is sys.modules[name]


def test_who_works_on_no_jobs_loads_nothing_for_them() -> None:
    """C8: a process that only records has no use for reviews."""
    assert not [name for name in afterwards(Config(background=False)) if "review" in name and "learn" in name]
    assert "afterturn.learn.rules.finding" not in afterwards(Config(rules=False))
