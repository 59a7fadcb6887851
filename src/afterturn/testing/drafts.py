"""Admitted drafts for tests that write to a store without a guard."""

from typing import Any

from afterturn.testing.clock import SequentialIds
from afterturn.text import content_hash, terms
from afterturn.types import Admitted, Draft, Operation, Origin, Verb, Verdict

_ids = SequentialIds("d")
_operations = SequentialIds("o")


def admit(
    text: str, *, at: float = 100.0, id: str | None = None, verdict: Verdict = Verdict.ALLOW, **draft: Any
) -> Admitted:
    """As the guard would admit it, recorded at `at`; further arguments are fields of the draft."""
    asked = Draft(text, id=id, **draft)
    return Admitted(
        draft=asked,
        id=id or _ids.new(),
        text=text,
        content_hash=content_hash(text),
        terms=terms(text),
        trust=asked.origin.trust,
        recorded_at=at,
        verdict=verdict,
        reason="" if verdict is Verdict.ALLOW else "test",
    )


def operation(
    verb: Verb = Verb.ADD,
    *,
    space: str = "user:ada",
    at: float = 100.0,
    tenant: str = "default",
    group: str | None = None,
) -> Operation:
    """With a fresh id."""
    return Operation(_operations.new(), tenant, space, verb, Origin.USER, at, group)
