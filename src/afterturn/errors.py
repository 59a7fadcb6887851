"""All errors of afterturn, in one tree. A message says what happened, then what to do.

AfterturnError
├── ConfigError             a setting is unknown, or its value cannot be used
├── InvalidInput            an argument cannot be accepted as it is
│   ├── EmptyText           the text to store or to search for is empty
│   ├── InvalidText         NUL characters or lone surrogates
│   ├── TooLarge            above a size limit (`size_bytes`, `limit_bytes`)
│   ├── OverBudget          the space is full for this target (`used_bytes`, `limit_bytes`, `candidates`)
│   ├── InvalidName         a tenant, space, conversation or id is not a valid name
│   └── InvalidFile         a file to import or restore cannot be read
├── NotFound                no such memory, operation, conversation, turn or review in the named spaces
├── NotAllowed              the caller is not trusted enough to do this to this memory
├── Conflict                the state has changed: another version, a later operation, a duplicate
├── DeadlineExceeded        the call did not end within its time limit
├── MemoryClosed            the memory is not open: it was closed, or never entered
├── ForkedProcess           used in a forked child process; open it again there
├── CalledFromHandler       a blocking call inside an event handler, which would wait for itself
├── ExtraMissing            an optional package is not installed; the message names the extra to install
├── EmbedderUnavailable     the embedder's files or server cannot be used; recall continues by words alone
├── ModelError              a model call failed (`reason`, one word)
│   ├── ModelUnavailable    not reachable, too slow, overloaded, or its client is not installed (`retry_after`)
│   ├── ModelRefused        the server rejected the call: the key, the model's name, the request (`status`)
│   ├── ModelPaused         `tokens_per_day_max` is used up; fast recall continues (`resumes_at`)
│   ├── ModelAnswerInvalid  the answer is not a chat completion, or is too long
│   └── SelectionVoid       the model selected something that was not offered, or cannot be read
└── StoreError              the store failed
    ├── StoreUnavailable    no such folder, a directory, no permission, an unknown URL, a server out of reach
    ├── ForeignFile         the file is not an afterturn store
    ├── StoreTooNew         written by a newer version of afterturn
    ├── StoreReadOnly       the file or its folder cannot be written
    ├── StoreLocked         another process holds the write lock
    ├── StoreMoved          the store was moved; open the one at `target`
    ├── StoreFull           there is no space left on the disk
    ├── KeysUnavailable     the provider of keys does not answer, or the store and the setting `keys` do not fit
    ├── KeyMissing          the key of one space is gone (`space`); other spaces can be used
    └── StoreCorrupt        the file is damaged, or a sealed value was changed
"""

from afterturn.scanners.secrets import redact


class AfterturnError(Exception):
    """The root of the tree: `except AfterturnError` catches all errors of afterturn and nothing else.

    Secrets in the message are redacted: many messages quote what a model, a server or a caller said.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(redact(argument).text if isinstance(argument, str) else argument for argument in args))


class ConfigError(AfterturnError):
    """A setting is unknown, or its value cannot be used."""


class InvalidInput(AfterturnError, ValueError):
    """An argument cannot be accepted as it is."""


class EmptyText(InvalidInput):
    """The text to store or to search for is empty."""


class InvalidText(InvalidInput):
    """The text contains NUL characters or lone surrogates."""


class TooLarge(InvalidInput):
    """The text is above a size limit."""

    def __init__(self, message: str, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class OverBudget(InvalidInput):
    """The space is full for this target. `candidates` are (id, beginning of the text) of what could be deleted."""

    def __init__(
        self, message: str, *, used_bytes: int, limit_bytes: int, candidates: tuple[tuple[str, str], ...]
    ) -> None:
        super().__init__(message)
        self.used_bytes = used_bytes
        self.limit_bytes = limit_bytes
        self.candidates = candidates


class InvalidName(InvalidInput):
    """A tenant, space, conversation or id is not a valid name."""


class InvalidFile(InvalidInput):
    """A file to import or restore cannot be read."""


class NotFound(AfterturnError, LookupError):
    """There is no such memory, operation, conversation, turn or review in the named spaces."""


class NotAllowed(AfterturnError):
    """The caller is not trusted enough to do this to this memory."""


class Conflict(AfterturnError):
    """The state has changed: another version, a later operation, or a duplicate."""


class DeadlineExceeded(AfterturnError, TimeoutError):
    """The call did not end within its time limit."""


class MemoryClosed(AfterturnError):
    """The memory is not open: it was closed, or never entered."""


class ForkedProcess(AfterturnError):
    """The memory is used in a forked child process. Open it again there."""


class CalledFromHandler(AfterturnError, RuntimeError):
    """A blocking call inside an event handler would wait for itself."""


class ExtraMissing(AfterturnError, ImportError):
    """An optional package is not installed. The message names the extra to install."""


class EmbedderUnavailable(AfterturnError):
    """The embedder's files or its server cannot be used. Recall continues by words alone."""


class ModelError(AfterturnError):
    """A model call failed. The message may quote the server; `reason` is one word and never does."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class ModelUnavailable(ModelError):
    """The server cannot be reached, is too slow or overloaded, or its client library is not installed.

    `retry_after` is in seconds, if the server gave it.
    """

    def __init__(self, message: str, *, reason: str, retry_after: float | None = None) -> None:
        super().__init__(message, reason=reason)
        self.retry_after = retry_after


class ModelRefused(ModelError):
    """The server rejected the call: the key, the model's name or the request. `status` is the HTTP status."""

    def __init__(self, message: str, *, reason: str, status: int) -> None:
        super().__init__(message, reason=reason)
        self.status = status


class ModelPaused(ModelError):
    """`tokens_per_day_max` is used up until `resumes_at`, in Unix seconds. Fast recall continues."""

    def __init__(self, message: str, *, reason: str, resumes_at: float) -> None:
        super().__init__(message, reason=reason)
        self.resumes_at = resumes_at


class ModelAnswerInvalid(ModelError):
    """The server's answer is not a chat completion, or is too long."""


class SelectionVoid(ModelError):
    """The model selected something that was not offered, or its selection cannot be read."""


class StoreError(AfterturnError):
    """The store failed."""


class StoreUnavailable(StoreError):
    """The store cannot be opened: no such folder, a directory, no permission, an unknown URL, or a server
    that cannot be reached."""


class ForeignFile(StoreError):
    """The file is not an afterturn store."""


class StoreTooNew(StoreError):
    """The store was written by a newer version of afterturn."""


class StoreReadOnly(StoreError):
    """The file or its folder cannot be written."""


class StoreLocked(StoreError):
    """Another process holds the write lock."""


class StoreMoved(StoreError):
    """The store was moved with `afterturn migrate` and accepts no writes. `target` is where it is now."""

    def __init__(self, message: str, *, target: str) -> None:
        super().__init__(message)
        self.target = target


class StoreFull(StoreError):
    """There is no space left on the disk."""


class KeysUnavailable(StoreError):
    """The keys of a sealed store cannot be used: the provider of keys does not answer, its folder is not there or can
    be read by others, or the setting `keys` does not fit the store."""


class KeyMissing(StoreError):
    """The key of one space is gone, so nobody can read what the store has of it. Other spaces can be used."""

    def __init__(self, message: str, *, space: str) -> None:
        super().__init__(message)
        self.space = space


class StoreCorrupt(StoreError):
    """The file is damaged, or a sealed value was changed. `afterturn restore` or `blocking.rescue` replaces the file
    with a backup."""
