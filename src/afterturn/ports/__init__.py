"""The ports: protocols for stores, models, embedders, clocks and workers. `services.py` chooses the implementations.

A docstring here is a contract. `afterturn.testing.conformance` tests every store against those of units of work, their
repositories, `write`, `read`, `scrub` and `close`. Each store's own tests show its check, and SQLite's its `FileStore`.
"""

from afterturn.ports.conversations import *
from afterturn.ports.memories import *
from afterturn.ports.providers import *
from afterturn.ports.store import *
