"""Tells which message format a host's list is written in."""

from collections.abc import Sequence

from afterturn.dialects.dialect import Dialect
from afterturn.dialects.openai_chat import OpenAIChat

_OPENAI_CHAT = OpenAIChat()


def find_dialect(messages: Sequence[object]) -> Dialect | None:
    """None when no known format fits. An empty list is taken for OpenAI chat, since nothing speaks against it."""
    verdicts = {_OPENAI_CHAT.speaks(message) for message in messages}
    if False in verdicts or (messages and True not in verdicts):
        return None
    return _OPENAI_CHAT
