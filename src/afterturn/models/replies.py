"""What a chat completion's reply means: an assistant's message, or an error that says what to do. Pure."""

from typing import Any

from afterturn.base.replies import Reader, Reply
from afterturn.models.service import ANSWER_BYTES_MAX as ANSWER_BYTES_MAX
from afterturn.models.service import CHAT as CHAT


def read_reply(reader: Reader, reply: Reply) -> dict[str, Any]:
    """The assistant's message, or ModelError. What the server says that it cost stands under "usage"."""
    document = reader.document(reply)
    message = _message(document)
    if message is None:
        raise reader.invalid(f"sent no chat completion: {reader.quoted(reply)}", "no_completion")
    usage = {"usage": document["usage"]} if isinstance(document.get("usage"), dict) else {}
    return {"content": None, **message, **usage, "role": "assistant"}


def _message(document: Any) -> dict[str, Any] | None:
    choices = document.get("choices") if isinstance(document, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else None
