"""Servers for the client under test; each is closed when its test ends."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from chat_server import ChatServer, Scripted


@pytest.fixture
def serve() -> Iterator[Callable[..., ChatServer]]:
    with ExitStack() as stack:

        def start(*script: Scripted) -> ChatServer:
            return stack.enter_context(ChatServer(*script))

        yield start
