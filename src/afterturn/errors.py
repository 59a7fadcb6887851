"""Everything afterturn raises, in one tree. A message says what happened, then what to do.

AfterturnError
├── ConfigError             a setting is unknown or has a value that cannot be used
├── InvalidInput            what the caller passed can not be taken as it is
│   ├── EmptyText           nothing to remember or to ask
│   ├── InvalidText         NUL characters or lone surrogates
│   ├── TooLarge            over a size limit (`size_bytes`, `limit_bytes`)
│   ├── OverBudget          a space may hold no more about this target (`used_bytes`, `limit_bytes`, `candidates`)
│   ├── InvalidName         a tenant, space, conversation or id that is no valid name
│   └── InvalidFile         a file to import or restore that cannot be read as one
├── NotFound                no such memory, operation, conversation or turn in the named spaces
├── NotAllowed              whoever asks is not trusted enough to do this to this memory
├── Conflict                the state moved on: another version, a later operation, a duplicate
├── DeadlineExceeded        it did not end within the time that was given
├── MemoryClosed            used after closing
├── ForkedProcess           used in a forked child; open it anew there
├── CalledFromHandler       a blocking call from within an event handler, which would wait for itself
├── ExtraMissing            an optional package is not installed; the message names the extra that brings it
├── EmbedderUnavailable     the embedder's files or service are missing; lexical recall goes on
├── ModelError              a model could not be asked, or gave nothing of use (`reason`, one word)
│   ├── ModelUnavailable    not reached, not in time, overloaded, or its client is not installed (`retry_after`)
│   ├── ModelRefused        the server does not take the call: the key, the model's name, the request (`status`)
│   ├── ModelPaused         `tokens_per_day_max` is used up; fast recall goes on
│   ├── ModelAnswerInvalid  what came back is no chat completion, or too long for one
│   └── SelectionVoid       the model chose what it was not offered, or its choice can not be read
└── StoreError              the store could not do it
    ├── StoreUnavailable    no such folder, a directory, no permission, an unknown URL
    ├── ForeignFile         a file that is not an afterturn store
    ├── StoreTooNew         written by a newer afterturn
    ├── StoreReadOnly       the file or its folder may not be written
    ├── StoreLocked         another process holds the write lock
    ├── StoreFull           no space left
    └── StoreCorrupt        the file is damaged
"""


class AfterturnError(Exception):
    """The root: `except AfterturnError` catches whatever memory raises, and nothing else."""


class ConfigError(AfterturnError):
    pass


class InvalidInput(AfterturnError, ValueError):
    pass


class EmptyText(InvalidInput):
    pass


class InvalidText(InvalidInput):
    pass


class TooLarge(InvalidInput):
    def __init__(self, message: str, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class OverBudget(InvalidInput):
    """`candidates` are (id, beginning of the text) of what could go."""

    def __init__(
        self, message: str, *, used_bytes: int, limit_bytes: int, candidates: tuple[tuple[str, str], ...]
    ) -> None:
        super().__init__(message)
        self.used_bytes = used_bytes
        self.limit_bytes = limit_bytes
        self.candidates = candidates


class InvalidName(InvalidInput):
    pass


class InvalidFile(InvalidInput):
    pass


class NotFound(AfterturnError, LookupError):
    pass


class NotAllowed(AfterturnError):
    pass


class Conflict(AfterturnError):
    pass


class DeadlineExceeded(AfterturnError, TimeoutError):
    pass


class MemoryClosed(AfterturnError):
    pass


class ForkedProcess(AfterturnError):
    pass


class CalledFromHandler(AfterturnError, RuntimeError):
    pass


class ExtraMissing(AfterturnError, ImportError):
    pass


class EmbedderUnavailable(AfterturnError):
    pass


class ModelError(AfterturnError):
    """The message may quote the server. What is kept or told as an event is `reason`, which is one word of ours."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class ModelUnavailable(ModelError):
    def __init__(self, message: str, *, reason: str, retry_after: float | None = None) -> None:
        super().__init__(message, reason=reason)
        self.retry_after = retry_after


class ModelRefused(ModelError):
    def __init__(self, message: str, *, reason: str, status: int) -> None:
        super().__init__(message, reason=reason)
        self.status = status


class ModelPaused(ModelError):
    """`resumes_at` is a time in Unix seconds."""

    def __init__(self, message: str, *, reason: str, resumes_at: float) -> None:
        super().__init__(message, reason=reason)
        self.resumes_at = resumes_at


class ModelAnswerInvalid(ModelError):
    pass


class SelectionVoid(ModelError):
    pass


class StoreError(AfterturnError):
    pass


class StoreUnavailable(StoreError):
    pass


class ForeignFile(StoreError):
    pass


class StoreTooNew(StoreError):
    pass


class StoreReadOnly(StoreError):
    pass


class StoreLocked(StoreError):
    pass


class StoreFull(StoreError):
    pass


class StoreCorrupt(StoreError):
    pass
