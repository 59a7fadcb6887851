"""What a chat completion's reply means: an assistant's message, or an error that says what to do. Pure."""

from typing import Any

from afterturn.base.endpoint import Service
from afterturn.base.replies import Reader, Reply

ANSWER_BYTES_MAX = 1 << 20
CHAT = Service(
    name="model server",
    path="/chat/completions",
    url="model_url",
    key="model_key",
    model="model",
    timeout="model_timeout",
    answer_bytes_max=ANSWER_BYTES_MAX,
)


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
