"""Tells which message format a host's list is written in."""

from collections.abc import Sequence

from afterturn.dialects.dialect import Dialect
from afterturn.dialects.openai_chat import OpenAIChat

_OPENAI_CHAT = OpenAIChat()
# A list may hold a hundred thousand messages. Formats do not mix within one; what hosts prepend stands at its start.
_FIRST = 20
_NEWEST = 200


def find_dialect(messages: Sequence[object]) -> Dialect | None:
    """None when no known format fits. An empty list is taken for OpenAI chat, since nothing speaks against it.

    Of a long list the beginning and the end are read.
    """
    newest = messages[-_NEWEST:]
    first = messages[: min(_FIRST, len(messages) - len(newest))]
    verdicts = {_OPENAI_CHAT.speaks(message) for message in (*first, *newest)}
    if False in verdicts or (verdicts and True not in verdicts):
        return None
    return _OPENAI_CHAT
