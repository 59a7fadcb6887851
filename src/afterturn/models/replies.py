"""What a chat completion's reply means: an assistant's message, or an error that says what to do. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from afterturn.base.errors import ModelAnswerInvalid, ModelError, ModelRefused, ModelUnavailable

ANSWER_BYTES_MAX = 1 << 20
ERROR_BYTES_MAX = 1 << 13
_QUOTED_CHARS_MAX = 200
_OK = 200
_TOO_MANY = 429
_REMEDIES = {
    400: "Its words say what is wrong with the request; a smaller model may take fewer tokens.",
    401: "Set model_key to a valid key.",
    403: "Set model_key to a key that may use this model.",
    404: "Check model, and that model_url ends as the server wants it, mostly in /v1.",
}
_REMEDY = "Check model_url and model."


@dataclass(frozen=True, slots=True)
class Reply:
    """`headers` have names in lower case. `is_cut`: there was more than is wanted, and it was not read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool = False


def read_reply(reply: Reply, *, server: str, secret: str) -> dict[str, Any]:
    """The assistant's message, or ModelError. `server` is named in errors, `secret` is struck from what they quote."""
    if reply.status != _OK:
        raise _failure(reply, server, secret)
    encoding = reply.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise _invalid(server, f"sent {encoding!r} though it was asked not to compress", "compressed")
    if reply.is_cut:
        raise _invalid(server, f"answered with more than {ANSWER_BYTES_MAX} bytes", "too_long")
    document = _json(reply.body)
    message = _message(document)
    if message is None:
        raise _invalid(server, f"sent no chat completion: {_quoted(reply.body, document, secret)}", "no_completion")
    return {"content": None, **message, "role": "assistant"}


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server wants to be left alone for. A date is held against the server's own clock."""
    asked = headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return float(asked[:9])
    try:
        until, now = (parsedate_to_datetime(value) for value in (asked, headers.get("date", "")))
        return max(0.0, (until - now).total_seconds())
    except (TypeError, ValueError):
        return None


def _failure(reply: Reply, server: str, secret: str) -> ModelError:
    said = _quoted(reply.body, _json(reply.body), secret)
    what = f"The model server {server} answered with status {reply.status}: {said}."
    if reply.status == _TOO_MANY:
        pause = retry_after(reply.headers)
        wish = "" if pause is None else f" It asks for a pause of {pause:g} seconds."
        return ModelUnavailable(f"{what}{wish} Ask less often.", reason="overloaded", retry_after=pause)
    if reply.status >= 500:
        pause = retry_after(reply.headers)
        return ModelUnavailable(f"{what} Look at the server's log.", reason="server_error", retry_after=pause)
    if 300 <= reply.status < 400:
        return ModelRefused(f"{what} Set model_url to where it leads.", reason="redirected", status=reply.status)
    reason = "key_refused" if reply.status in (401, 403) else "refused"
    return ModelRefused(f"{what} {_REMEDIES.get(reply.status, _REMEDY)}", reason=reason, status=reply.status)


def _invalid(server: str, what: str, reason: str) -> ModelAnswerInvalid:
    return ModelAnswerInvalid(f"The model server {server} {what}. {_REMEDY}", reason=reason)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _message(document: Any) -> dict[str, Any] | None:
    choices = document.get("choices") if isinstance(document, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else None


def _quoted(body: bytes, document: Any, secret: str) -> str:
    """What the server says, in one short line: the message of an error document, else how the body begins."""
    said = document.get("error", document) if isinstance(document, dict) else document
    said = said.get("message", said) if isinstance(said, dict) else said
    text = said if isinstance(said, str) else body.decode("utf-8", "replace")
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    if secret:
        line = line.replace(secret, "***")
    shown = line if len(line) <= _QUOTED_CHARS_MAX else line[:_QUOTED_CHARS_MAX] + "…"
    return repr(shown) if shown else "nothing"
