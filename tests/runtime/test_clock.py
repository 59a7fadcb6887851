"""Ids sort by creation and are unique."""

import os
import time

import pytest

from afterturn.runtime.clock import TimeOrderedIds


def test_ids_sort_by_creation() -> None:
    ids = TimeOrderedIds()
    made = [ids.new() for _ in range(3000)]
    assert made == sorted(set(made))


def test_a_forked_child_gives_other_ids_than_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have the random numbers that were at hand when the child was forked."""
    parent, child = TimeOrderedIds(), TimeOrderedIds()
    parent.new()
    later = time.time() + 60.0
    monkeypatch.setattr(time, "time", lambda: later)
    child.__dict__ |= {name: value for name, value in vars(parent).items() if name != "_lock"}
    of_parent = parent.new()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert child.new() != of_parent
