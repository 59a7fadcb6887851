"""The gate: decides what may be stored. It redacts secrets, checks encoding, size and fields, and writes nothing."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from afterturn.config import Config
from afterturn.errors import InvalidInput, InvalidName, NotAllowed, TooLarge
from afterturn.guard.pasted import has_pasted
from afterturn.guard.scanning import is_suspected, scanner, suspicion_reason
from afterturn.guard.trust import TRUST_MIN, is_spoken, waits_if_suspected
from afterturn.lasting_facts import rate_telling
from afterturn.ports import Clock, Ids
from afterturn.scanners.detection import ScanAction
from afterturn.scanners.secrets import MARGIN_CHARS, Redacted, redact
from afterturn.text import content_hash, terms
from afterturn.types import SOURCES_MAX, Admitted, Draft, Kind, Metadata, Origin, Target, Verdict
from afterturn.utterance import is_about_speaker
from afterturn.validation import (
    SECONDS_MAX,
    check_id,
    check_metadata,
    check_name,
    check_no_secret,
    check_space,
    check_text,
    mend_name,
)

CUT_MARK = " […]"
# A memory is one statement, and a message of more than a megabyte is a file.
STATEMENT_BYTES_MAX = 8_192
RECORD_BYTES_MAX = 1_048_576


class _Clean(NamedTuple):
    """A draft without its secrets, and the kinds of the removed ones."""

    draft: Draft
    text: str
    kinds: tuple[str, ...]


class Gate:
    """Turns a `Draft` into an `Admitted`. Nothing else creates one.

    `lineage` is the trust of a draft's sources: the draft is trusted no more than the least of them. A secret is
    redacted; if the origin is not trusted, the draft is quarantined too. Text that looks like an instruction to the
    model is quarantined if the origin is not trusted, and flagged otherwise: the reason says what was found. If the
    text would be standing, it is proposed, and so is text that was pasted into a user's statement.
    """

    def __init__(self, config: Config, clock: Clock, ids: Ids, *, statement_bytes_max: int | None = None) -> None:
        self._config = config
        self.statement_bytes_max = statement_bytes_max or STATEMENT_BYTES_MAX
        self._clock = clock
        self._ids = ids
        self.scanner = scanner(scanning=config.scan_policy)

    def admit(self, draft: Draft, *, lineage: Iterable[int] = ()) -> Admitted:
        """Admits a statement. Raises InvalidInput if it cannot be stored as it is."""
        text = _check_length(check_text(draft.text, "memory"), "statement", self.statement_bytes_max)
        found = next((one for one in self.scanner.find(text) if one.action is ScanAction.REFUSE), None)
        if found is not None:
            raise NotAllowed(
                f"The text contains personal data ({found.kind}), which this memory refuses. Leave it out."
            )
        clean = self._clean(draft, unicodedata.normalize("NFC", text).strip())
        _check_size(clean.text, "statement", self.statement_bytes_max)
        check_fields(clean.draft)
        self._check_ids(clean.draft)
        # A secret in a name is refused: under another name it could not be found again.
        for what, name in names_in(clean.draft):
            if kinds := self.redact(name).kinds:
                raise InvalidName(
                    f"The {what} contains a secret ({kinds[0]}), which is never stored. Use another name."
                )
        return self._admitted(clean, lineage)

    def admit_import(self, draft: Draft, *, lineage: Iterable[int] = ()) -> Admitted:
        """Admits an imported statement or message. Raises InvalidInput, which names the field."""
        if not isinstance(draft, Draft):
            raise InvalidInput(f"A {type(draft).__name__} is not a draft. Pass afterturn.Draft objects.")
        if draft.kind is not Kind.RECORD:
            return self.admit(draft, lineage=lineage)
        text = _check_length(check_text(draft.text, "record"), "record", RECORD_BYTES_MAX)
        clean = self._clean(draft, text)
        _check_size(clean.text, "record", RECORD_BYTES_MAX)
        check_fields(clean.draft)
        self._check_ids(clean.draft)
        return self._admitted(self._clean_names(clean), lineage)

    def admit_record(
        self, draft: Draft, *, lineage: Iterable[int] = (), redacted: Iterable[str] = ()
    ) -> Admitted | None:
        """Admits a message of a turn. Never raises: text and fields that cannot be stored are repaired (`reason`).

        `redacted` are the kinds of secrets that were removed from it before. None if only white space is left.
        """
        clean = self._clean(replace(draft, kind=Kind.RECORD), draft.text[: RECORD_BYTES_MAX + MARGIN_CHARS])
        text, reasons = _repaired_text(clean.text, RECORD_BYTES_MAX)
        if not text.strip():
            return None
        repaired, reason = repair_fields(clean.draft)
        reasons.extend([reason] if reason else [])
        cleaned = self._clean_names(_Clean(repaired, text, (*redacted, *clean.kinds)))
        return self._admitted(cleaned, lineage, reasons)

    def redact(self, text: str) -> Redacted:
        """Removes secrets from a text, and personal data if that is set, unless `scanning` is off."""
        return redact(text, self.scanner)

    def _clean(self, draft: Draft, text: str) -> _Clean:
        found = self.redact(text)
        metadata, kinds = self._clean_metadata(draft.metadata)
        sound = replace(draft, text=found.text, metadata=metadata) if found.kinds or kinds else draft
        return _Clean(sound, found.text, (*found.kinds, *kinds))

    def _check_ids(self, draft: Draft) -> None:
        """Raises InvalidName for a secret in an id that entries share, or in the name of the owner."""
        for what in ("conversation", "turn", "owner"):
            if (name := getattr(draft, what)) is not None:
                check_no_secret(name, what, scanning=self._config.scan_policy)

    def _clean_names(self, clean: _Clean) -> _Clean:
        kinds = tuple(kind for _, name in names_in(clean.draft) for kind in self.redact(name).kinds)
        if not kinds:
            return clean
        renamed = rename(clean.draft, lambda name: self.redact(name).text)
        return _Clean(renamed, clean.text, (*clean.kinds, *kinds))

    def _clean_metadata(self, metadata: Metadata) -> tuple[Metadata, tuple[str, ...]]:
        if not metadata or not isinstance(metadata, Mapping):
            return metadata, ()
        found = {key: self.redact(value) for key, value in metadata.items() if isinstance(value, str)}
        kinds = tuple(kind for one in found.values() for kind in one.kinds)
        return ({**metadata, **{key: one.text for key, one in found.items()}} if kinds else metadata), kinds

    def _admitted(self, clean: _Clean, lineage: Iterable[int], reasons: Iterable[str] = ()) -> Admitted:
        draft, trust = clean.draft, min([clean.draft.origin.trust, *lineage])
        hash = content_hash(clean.text)
        judged = not is_spoken(draft) and (draft.kind is Kind.STATEMENT or trust < TRUST_MIN)
        suspected = self.scanner.suspect(clean.text) if judged else ()
        why = [*([Redacted("", clean.kinds).reason] if clean.kinds else []), *reasons]
        verdict = Verdict.REDACT if why else Verdict.FLAG if suspected else Verdict.ALLOW
        why += [suspicion_reason(suspected)] if suspected else []
        if waits_if_suspected(draft, trust):
            is_pasted = draft.origin is Origin.USER and has_pasted(clean.text)
            draft = replace(draft, proposed=draft.proposed or is_pasted or is_suspected(clean.text, "; ".join(why)))
        is_said = draft.kind is Kind.RECORD and draft.origin is Origin.USER
        if is_said and draft.project is not None and not is_about_speaker(clean.text):
            draft = replace(draft, target=Target.ENVIRONMENT)
        return Admitted(
            draft=draft,
            id=draft.id or self._ids.new(),
            text=clean.text,
            content_hash=hash,
            terms=terms(clean.text),
            trust=trust,
            recorded_at=self._clock.now(),
            verdict=_distrusted(verdict, draft) if trust < TRUST_MIN and (clean.kinds or suspected) else verdict,
            reason="; ".join(why),
            telling=rate_telling(clean.text) if is_said else 0,
        )


def lowered(admitted: Admitted, lineage: Iterable[int]) -> Admitted:
    """Lowers the trust to that of the sources. Redacted or flagged text is quarantined if it is no longer trusted."""
    trust = min([admitted.trust, *lineage])
    verdict = _distrusted(admitted.verdict, admitted.draft) if trust < TRUST_MIN else admitted.verdict
    return admitted._replace(trust=trust, verdict=verdict)


def _distrusted(verdict: Verdict, draft: Draft) -> Verdict:
    """The verdict if the origin is not trusted. A suspicious proposal waits for a person, who sees the reason."""
    if verdict is Verdict.ALLOW or is_spoken(draft) or (verdict is Verdict.FLAG and draft.proposed):
        return verdict
    return Verdict.QUARANTINE


def _check_length(text: str, what: str, limit_bytes: int) -> str:
    """Raises TooLarge for a text that would be too long even without its secrets, before it is scanned."""
    if len(text) > limit_bytes + MARGIN_CHARS:
        _check_size(text, what, limit_bytes)
    return text


def _check_size(text: str, what: str, limit_bytes: int) -> None:
    size = len(text) if text.isascii() else len(text.encode())
    if size > limit_bytes:
        raise TooLarge(
            f"The text has {size} bytes; a {what} is limited to {limit_bytes}. Split it.",
            size_bytes=size,
            limit_bytes=limit_bytes,
        )


def _repaired_text(text: str, limit_bytes: int) -> tuple[str, list[str]]:
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


# The fields of a draft: checked for statements and imports, repaired for the messages of a turn

# JSON readers are exact up to here, and the next position still fits into a store's integer.
POSITION_MAX = 2**53

_NAMES = ("agent", "project", "conversation", "turn", "speaker")
_TIMES = ("occurred_at", "valid_from", "valid_to", "expires_at")
_TYPES: tuple[tuple[str, type], ...] = (
    ("kind", Kind),
    ("origin", Origin),
    ("target", Target),
    ("pinned", bool),
    ("firm", bool),
    ("proposed", bool),
)


def check_fields(draft: Draft) -> None:
    """Raises InvalidInput, which names the field."""
    for what, kind in _TYPES:
        if not isinstance(getattr(draft, what), kind):
            raise InvalidInput(f"The {what} is {_shown(getattr(draft, what))}. Pass a {kind.__name__}.")
    for what in _NAMES:
        if getattr(draft, what) is not None:
            check_name(getattr(draft, what), what)
    for what in _TIMES:
        if getattr(draft, what) is not None and not _is_time(getattr(draft, what)):
            raise InvalidInput(f"The {what} is {_shown(getattr(draft, what))}, which is not a time. Pass Unix seconds.")
    _check_order(draft)
    _check_place(draft)
    _check_sources(draft.sources)
    check_metadata(draft.metadata)


def repair_fields(draft: Draft) -> tuple[Draft, str]:
    """Repairs a draft for `check_fields`, and returns the reason; blank if nothing had to be repaired."""
    try:
        check_fields(draft)
    except InvalidInput:
        repaired = dict(_repaired_fields(draft))
        return replace(draft, **repaired), f"{', '.join(repaired)} repaired"
    return draft, ""


def names_in(draft: Draft) -> Iterator[tuple[str, str]]:
    """(field, name) of the names that may be redacted. The ids of conversation and turn may not: entries share them."""
    for what in ("agent", "project", "speaker"):
        if (name := getattr(draft, what)) is not None:
            yield what, name
    for source in draft.sources:
        yield "source", source
    for key in draft.metadata:
        yield "metadata key", key


def rename(draft: Draft, clean: Callable[[str], str]) -> Draft:
    """Applies `clean` to the names. Sources and metadata keys that would change are removed."""

    def named(name: str | None) -> str | None:
        return None if name is None else mend_name(clean(name))

    return replace(
        draft,
        agent=named(draft.agent),
        project=named(draft.project),
        speaker=named(draft.speaker),
        sources=tuple(source for source in draft.sources if clean(source) == source),
        metadata={key: value for key, value in draft.metadata.items() if clean(key) == key},
    )


def _check_order(draft: Draft) -> None:
    if draft.valid_from is not None and draft.valid_to is not None and draft.valid_to <= draft.valid_from:
        raise InvalidInput("`valid_to` is not after `valid_from`. Correct one of them.")


def _check_place(draft: Draft) -> None:
    if draft.id is not None:
        check_id(draft.id, "id")
    if draft.owner is not None:
        try:
            check_space(draft.owner)
        except InvalidName as error:
            raise InvalidName(f"The owner is not a space. {error}") from error
    if draft.position is not None and not _is_position(draft.position):
        raise InvalidInput(
            f"The position is {_shown(draft.position)}. Use a whole number from 0 to {POSITION_MAX}, or none."
        )


def _check_sources(sources: object) -> None:
    if not isinstance(sources, tuple):
        raise InvalidInput(f"The sources must be a tuple of ids, not {type(sources).__name__}.")
    if len(sources) > SOURCES_MAX:
        raise InvalidInput(f"There are {len(sources)} sources; the limit is {SOURCES_MAX}. Pass fewer.")
    for source in sources:
        check_name(source, "source")


def _repaired_fields(draft: Draft) -> Iterator[tuple[str, Any]]:
    """(field, new value) of the fields to repair."""
    for what in _NAMES:
        value = getattr(draft, what)
        if value is not None and (name := _name(value)) != value:
            yield what, name
    for what in _TIMES:
        value = getattr(draft, what)
        if value is not None and not _is_time(value):
            yield what, None
    if draft.position is not None and not _is_position(draft.position):
        is_number = isinstance(draft.position, int) and not isinstance(draft.position, bool)
        yield "position", max(0, min(draft.position, POSITION_MAX)) if is_number else None
    if _is_refused(_check_sources, draft.sources):
        yield "sources", _sources(draft.sources)
    for what, check in (("id", check_id), ("owner", check_space), ("metadata", check_metadata)):
        value = getattr(draft, what)
        if value is not None and _is_refused(check, value):
            yield what, {} if what == "metadata" else None
    if _is_time(draft.valid_from) and _is_time(draft.valid_to) and _is_refused(_check_order, draft):
        yield "valid_to", None


def _is_refused(check: Callable[[Any], object], value: object) -> bool:
    try:
        check(value)
    except InvalidInput:
        return True
    return False


def _name(value: object) -> str | None:
    return mend_name(value) if isinstance(value, str) else None


def _sources(value: object) -> tuple[str, ...]:
    if not isinstance(value, tuple):
        return ()
    return tuple(name for source in value[:SOURCES_MAX] if (name := _name(source)) is not None)


def _is_position(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= POSITION_MAX


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < SECONDS_MAX


def _shown(value: object) -> str:
    return repr(value)[:60]
