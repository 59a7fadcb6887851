"""Decides what may be stored: checks encoding and size, normalises, identifies. Writes nothing itself."""

import unicodedata
from dataclasses import replace

from afterturn.base.config import Config
from afterturn.base.errors import EmptyText, InvalidInput, InvalidText, TooLarge
from afterturn.base.ports import Clock, Ids
from afterturn.base.terms import content_hash, terms
from afterturn.base.types import Admitted, Draft, Kind, Verdict
from afterturn.guard.fields import check_fields, mend_fields

CUT_MARK = " […]"


class Gate:
    """Makes `Admitted` out of `Draft`; nothing else does (G1)."""

    def __init__(self, config: Config, clock: Clock, ids: Ids) -> None:
        self._config = config
        self._clock = clock
        self._ids = ids

    def admit(self, draft: Draft) -> Admitted:
        """A statement somebody wrote on purpose. Raises InvalidInput when it can not be taken as it is."""
        text = unicodedata.normalize("NFC", check_text(draft.text, "memory")).strip()
        _check_size(text, "statement", self._config.statement_bytes_max)
        check_fields(draft)
        return self._admitted(draft, text)

    def admit_import(self, draft: Draft) -> Admitted:
        """A statement or a recorded message that somebody brings. Raises InvalidInput, which names the field."""
        if not isinstance(draft, Draft):
            raise InvalidInput(f"A {type(draft).__name__} is no Draft. Pass afterturn.Draft objects.")
        if draft.kind is not Kind.RECORD:
            return self.admit(draft)
        text = check_text(draft.text, "record")
        _check_size(text, "record", self._config.record_bytes_max)
        check_fields(draft)
        return self._admitted(draft, text)

    def admit_record(self, draft: Draft) -> Admitted | None:
        """A message as it was said. Never raises: what can't be stored is mended, fields too, and `reason` says so.

        None when nothing but white space is left.
        """
        text, reasons = _mended(draft.text, self._config.record_bytes_max)
        if not text.strip():
            return None
        sound, mended = mend_fields(replace(draft, kind=Kind.RECORD))
        reasons.extend([mended] if mended else [])
        admitted = self._admitted(sound, text)
        return replace(admitted, verdict=Verdict.REDACT, reason="; ".join(reasons)) if reasons else admitted

    def _admitted(self, draft: Draft, text: str) -> Admitted:
        return Admitted(
            draft=draft,
            id=draft.id or self._ids.new(),
            text=text,
            content_hash=content_hash(text),
            terms=terms(text),
            trust=draft.origin.trust,
            recorded_at=self._clock.now(),
        )


def check_text(text: object, what: str) -> str:
    """Text that can be stored and searched: not blank, no NUL, no lone surrogates."""
    if not isinstance(text, str):
        raise InvalidInput(f"The {what} must be text, not {type(text).__name__}. Pass a string.")
    if not text.strip():
        raise EmptyText(f"The {what} is empty. Pass some text.")
    if "\x00" in text:
        raise InvalidText(f"The {what} contains a NUL character at position {text.index(chr(0))}. Remove it.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidText(
            f"The {what} contains half of a surrogate pair at position {error.start}: it was decoded wrongly. "
            'Decode the bytes as UTF-8, or pass text.encode("utf-8", "replace").decode().'
        ) from error
    return text


def _check_size(text: str, what: str, limit_bytes: int) -> None:
    size = len(text) if text.isascii() else len(text.encode())
    if size > limit_bytes:
        raise TooLarge(
            f"The text is {size} bytes; one {what} may have {limit_bytes}. Split it, or raise `{what}_bytes_max`.",
            size_bytes=size,
            limit_bytes=limit_bytes,
        )


def _mended(text: str, limit_bytes: int) -> tuple[str, list[str]]:
    reasons = []
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
        reasons.append("NUL characters replaced")
    encoded = text.encode("utf-8", "surrogatepass")
    try:
        encoded.decode()
    except UnicodeDecodeError:
        text = "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
        encoded = text.encode()
        reasons.append("lone surrogates replaced")
    if len(encoded) > limit_bytes:
        reasons.append(f"cut from {len(encoded)} to {limit_bytes} bytes")
        text = encoded[: limit_bytes - len(CUT_MARK.encode())].decode(errors="ignore") + CUT_MARK
    return text, reasons
