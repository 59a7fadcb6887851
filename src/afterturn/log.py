"""The one logger of afterturn. Messages and tracebacks are logged without the secrets in them."""

from __future__ import annotations

import logging
import traceback

from afterturn.scanners.secrets import Redacted, redact


class _Redaction(logging.Filter):
    """Redacts a record before any handler sees it: models, providers and host objects raise errors that quote keys.

    A record whose traceback has a secret keeps the redacted text of it (`exc_text`) and loses the exception itself.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = redact(record.getMessage())
        except Exception:  # noqa: BLE001  the boundary: an object of the host may not have a text
            message = Redacted(f"{record.msg} (its values cannot be shown)", ("unknown",))
        if message.kinds:
            record.msg, record.args = message.text, None
        if record.exc_info:
            trace = redact(_traceback(record.exc_info[1]))
            if trace.kinds:
                record.exc_info, record.exc_text = None, trace.text
        return True


def describe(error: BaseException) -> str:
    """The message of an error without its secrets; its type if it has none. For whatever is stored, sent or shown."""
    try:
        return redact(str(error)).text or type(error).__name__
    except Exception:  # noqa: BLE001  the boundary: an error of the host may not even have a text
        return type(error).__name__


def describe_fully(error: BaseException) -> str:
    """The traceback of an error, without the secrets in it."""
    return redact(_traceback(error)).text


def _traceback(error: BaseException | None) -> str:
    return "".join(traceback.format_exception(error)).rstrip("\n")


logger = logging.getLogger("afterturn")
logger.addFilter(_Redaction())
