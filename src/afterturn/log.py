"""The one logger of afterturn. It leaves secrets out of what it logs, and logs the same failure once a minute."""

from __future__ import annotations

import logging
import threading
import traceback

from afterturn.scanners.secrets import Redacted, redact
from afterturn.text import regex

SAME_SECONDS = 60.0
_SAME_MAX = 1000
_VALUES = regex(r"'[^']*'|\"[^\"]*\"|\S*\d\S*")


def _kind_of(error: BaseException | None) -> str:
    """The type of an error and its message without names, ids and numbers."""
    if error is None:
        return ""
    try:
        return f"{type(error).__qualname__} {_VALUES.sub('', str(error)[:500])}"
    except Exception:  # noqa: BLE001  the boundary: an error of the host may not have a text
        return type(error).__qualname__


class RateLimit(logging.Filter):
    """Lets a warning or error through once a minute: a store that cannot be written fails every turn.

    Two records are the same if they have the same text before its values are filled in, and the same kind of exception.
    The next one that is let through says how many were left out. Other levels are not limited.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        # When the last one was let through, and how many were left out since.
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        key = (str(record.msg), _kind_of(record.exc_info[1] if record.exc_info else None))
        with self._lock:
            at, left_out = self._seen.pop(key, (0.0, 0))
            is_new = not 0.0 <= record.created - at < SAME_SECONDS
            self._seen[key] = (record.created, 0) if is_new else (at, left_out + 1)
            if len(self._seen) > _SAME_MAX:
                del self._seen[next(iter(self._seen))]
        if is_new and left_out:
            record.msg = f"{record.msg} ({left_out:,} more like this since the last one)"
        return is_new

    def reset(self) -> None:
        """Forgets what was logged."""
        with self._lock:
            self._seen.clear()


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
rate_limit = RateLimit()
logger.addFilter(rate_limit)
logger.addFilter(_Redaction())
