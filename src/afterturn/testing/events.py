"""An event log for tests: pass it as `on_event`, then read or wait for events."""

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
        """Waits for the `count`th event of that name. Raises AssertionError with the events so far if it is late."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.named(name)) >= count, within)
        if not arrived:
            raise AssertionError(f"no {name} within {within:g} s, only {[event.name for event in self.events]}")
        return self.named(name)[count - 1]
