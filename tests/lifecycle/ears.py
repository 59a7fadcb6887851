"""Ears for memory's events, and the words of a small conversation."""

import threading

from afterturn.base.types import Event

WORDS = {"embedder": "none"}
WAIT = 20.0


class Ears:
    """Collects events on memory's thread; `wait` blocks the test's thread, and its loop with it, until one has come."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def named(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    def wait(self, name: str, count: int = 1) -> Event:
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.named(name)) >= count, WAIT)
        assert came, f"no {name}; came: {[event.name for event in self.events]}"
        return self.named(name)[count - 1]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def exchange(said: str, answered: str = "Noted.") -> list[dict[str, str]]:
    return [user(said), assistant(answered)]
