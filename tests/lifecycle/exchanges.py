"""Messages of a small conversation, and settings for fast tests."""

NO_EMBEDDER = {"embedder": "none"}
WAIT = 100.0


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def exchange(said: str, answered: str = "Noted.") -> list[dict[str, str]]:
    return [user(said), assistant(answered)]
