"""An `on_event` that a test can look at and wait for."""

import threading

from afterturn.types import Event


class EventLog:
    """Collects events on memory's thread. `wait` blocks the test's thread, and its loop, until one has arrived."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def named(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    def wait(self, name: str, count: int = 1, within: float = 20.0) -> Event:
        """The `count`th event of that name. AssertionError, with what came instead, when it does not come in time."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.named(name)) >= count, within)
        if not came:
            raise AssertionError(f"no {name} within {within:g} s; came: {[event.name for event in self.events]}")
        return self.named(name)[count - 1]
