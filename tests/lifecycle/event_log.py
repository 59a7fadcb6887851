"""Ears for memory's events, and the words of a small conversation."""

from afterturn.testing import EventLog as Ears

WORDS = {"embedder": "none"}
WAIT = 20.0
__all__ = ["WAIT", "WORDS", "Ears", "assistant", "exchange", "user"]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def exchange(said: str, answered: str = "Noted.") -> list[dict[str, str]]:
    return [user(said), assistant(answered)]
