"""What a server's reply means before its content is looked at: a document, or an error that says what to do. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from afterturn.base.endpoint import Service
from afterturn.base.errors import ModelAnswerInvalid, ModelError, ModelRefused, ModelUnavailable

ERROR_BYTES_MAX = 1 << 13
_QUOTED_CHARS_MAX = 200
_OK = 200
_TOO_MANY = 429


@dataclass(frozen=True, slots=True)
class Reply:
    """`headers` have names in lower case. `is_cut`: there was more than is wanted, and it was not read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the replies of one server, which is `shown` in errors; `secret` is struck from what they quote."""

    service: Service
    shown: str
    secret: str

    def document(self, reply: Reply) -> Any:
        """The JSON of a good reply, None when it is none. ModelError for every other reply."""
        if reply.status != _OK:
            raise self._failure(reply)
        encoding = reply.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise self.invalid(f"sent {encoding!r} though it was asked not to compress", "compressed")
        if reply.is_cut:
            raise self.invalid(f"answered with more than {self.service.answer_bytes_max} bytes", "too_long")
        return _json(reply.body)

    def invalid(self, what: str, reason: str) -> ModelAnswerInvalid:
        return ModelAnswerInvalid(f"{self._server} {what}. {self._remedy}", reason=reason)

    def quoted(self, reply: Reply) -> str:
        """What the server says, in one short line: the message of an error document, else how the body begins."""
        document = _json(reply.body)
        said = document.get("error", document) if isinstance(document, dict) else document
        said = said.get("message", said) if isinstance(said, dict) else said
        text = said if isinstance(said, str) else reply.body.decode("utf-8", "replace")
        line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
        if self.secret:
            line = line.replace(self.secret, "***")
        shown = line if len(line) <= _QUOTED_CHARS_MAX else line[:_QUOTED_CHARS_MAX] + "…"
        return repr(shown) if shown else "nothing"

    @property
    def _server(self) -> str:
        return f"The {self.service.name} {self.shown}"

    @property
    def _remedy(self) -> str:
        return f"Check {self.service.url} and {self.service.model}."

    def _failure(self, reply: Reply) -> ModelError:
        what = f"{self._server} answered with status {reply.status}: {self.quoted(reply)}."
        if reply.status == _TOO_MANY:
            pause = retry_after(reply.headers)
            wish = "" if pause is None else f" It asks for a pause of {pause:g} seconds."
            return ModelUnavailable(f"{what}{wish} Ask less often.", reason="overloaded", retry_after=pause)
        if reply.status >= 500:
            pause = retry_after(reply.headers)
            return ModelUnavailable(f"{what} Look at the server's log.", reason="server_error", retry_after=pause)
        if 300 <= reply.status < 400:
            remedy = f"Set {self.service.url} to where it leads."
            return ModelRefused(f"{what} {remedy}", reason="redirected", status=reply.status)
        reason = "key_refused" if reply.status in (401, 403) else "refused"
        return ModelRefused(f"{what} {self._remedy_for(reply.status)}", reason=reason, status=reply.status)

    def _remedy_for(self, status: int) -> str:
        service = self.service
        remedies = {
            400: "Its words say what is wrong with the request; a smaller model may take fewer tokens.",
            401: f"Set {service.key} to a valid key.",
            403: f"Set {service.key} to a key that may use this model.",
            404: f"Check {service.model}, and that {service.url} ends as the server wants it, mostly in /v1.",
        }
        return remedies.get(status, self._remedy)


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


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
