"""What a chat model has answered, as text."""

from collections.abc import Mapping
from typing import Any


def answer_text(message: Mapping[str, Any]) -> str:
    """Of an assistant's message, whose content is a text or a list of parts; "" where there is none."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    return "".join(part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str))
