"""Trust: which origins may write what, what may enter the system prompt, and what waits for approval."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from afterturn.config import Config
from afterturn.errors import NotAllowed, NotFound
from afterturn.types import TRUSTED_MIN, Kind, Origin, Status, Target

if TYPE_CHECKING:
    from afterturn.ports import Unit
    from afterturn.types import Draft, Entry, Scope

# An origin below this is quoted, never enters a system prompt, and may not change what others wrote.
TRUST_MIN = TRUSTED_MIN
# A source in one of these states gives no trust.
_UNVOUCHED = (Status.QUARANTINED, Status.PROPOSED)
_KIND_OF_TARGET = {Target.USER: "preference", Target.ENVIRONMENT: "convention"}
# Statements of these kinds instruct a model.
STANDING_KINDS = frozenset(_KIND_OF_TARGET.values())


def waits(config: Config, origin: Origin) -> bool:
    """Whether writes of this origin wait in the inbox until a person approves them."""
    if config.approval == "all":
        return origin is not Origin.USER
    return config.approval == "background" and origin is Origin.BACKGROUND_REVIEW


def lineage_of(unit: Unit, scope: Scope, sources: Iterable[str]) -> list[int]:
    """The trust of the entries among `sources`. A source outside the scope, such as a ticket, does not count."""
    found = (find_entry(unit, scope, source.partition(".")[0]) for source in sources)
    return [0 if entry.status in _UNVOUCHED else entry.trust for entry in found if entry is not None]


def is_privileged(draft: Draft | Entry) -> bool:
    """Whether it is shown in the system prompt: firm, pinned, a convention, or the user's preference."""
    return draft.firm or draft.pinned or draft.metadata.get("kind") == _KIND_OF_TARGET[draft.target]


def waits_if_suspected(draft: Draft, trust: int) -> bool:
    """Whether a person has to approve it if it is pasted or looks like an instruction to the model. A person's command
    to pin a memory or to make it firm is that approval."""
    is_command = draft.origin is Origin.USER and (draft.pinned or draft.firm)
    return draft.kind is Kind.STATEMENT and trust >= TRUST_MIN and is_privileged(draft) and not is_command


def is_spoken(draft: Draft | Entry) -> bool:
    """Whether it is what the user or the agent said in a turn. It is a record of that, whatever it says, so it is never
    withheld, only quoted if text of others has entered its turn."""
    return draft.kind is Kind.RECORD and draft.origin in (Origin.USER, Origin.AGENT)


def check_privileges(draft: Draft, trust: int) -> None:
    """Raises NotAllowed if an untrusted draft would enter the system prompt, or another than the user makes it firm."""
    if draft.firm and draft.origin is not Origin.USER:
        raise NotAllowed(
            f"Only a person can make a rule firm, and this comes from {_origin_of(draft)}. Leave that out, or let the "
            "user do it."
        )
    if trust >= TRUST_MIN or not is_privileged(draft):
        return
    what = "firm" if draft.firm else "pinned" if draft.pinned else f"a {draft.metadata['kind']}"
    raise NotAllowed(
        f"What {_origin_of(draft)} says is not trusted enough to be {what}: that would put it into the system "
        "prompt. Leave that out, or let the user do it."
    )


def unprivileged(draft: Draft) -> Draft:
    """An untrusted draft without the fields that would put it into the system prompt."""
    if draft.kind is not Kind.STATEMENT or draft.origin.trust >= TRUST_MIN or not is_privileged(draft):
        return draft
    kept = {key: value for key, value in draft.metadata.items() if key != "kind"}
    return replace(draft, pinned=False, firm=False, metadata=kept)


def as_report(draft: Draft, *, clean: bool, current: Entry | None = None) -> tuple[Draft, tuple[int, ...]]:
    """Returns an agent's statement from a call that sees no turn as a report, and the trust that it has at most.

    Nobody knows what the agent has read, unless the host reports a `clean` turn. So it is a report, and a change of a
    `current` memory with more trust waits for approval. The user did not type it, so what would be standing always
    waits, also if a review states it that names no source.
    """
    is_agent = draft.origin is Origin.AGENT
    is_untyped = is_agent or (draft.origin is Origin.BACKGROUND_REVIEW and not draft.sources)
    stands = draft.kind is Kind.STATEMENT and is_privileged(draft)
    is_above = is_agent and clean is not True and current is not None and current.trust > Origin.TOOL.trust
    if (is_untyped and stands) or is_above:
        return replace(draft, proposed=True), ()
    return draft, (Origin.TOOL.trust,) if is_agent and clean is not True else ()


def check_change(current: Entry, trust: int) -> None:
    """Raises NotAllowed if this trust is too low to supersede or delete `current`."""
    if (current.pinned or current.firm) and trust < Origin.USER.trust:
        what = "firm" if current.firm else "pinned"
        raise NotAllowed(f"{current.id} is {what}, so only its user may change or delete it. Add a new memory instead.")
    if trust < TRUST_MIN and current.trust > trust:
        raise NotAllowed(
            f"{current.id} comes from {_origin_of(current)}, which is trusted more than the origin of this change. "
            "Add a new memory instead, or let the user do it."
        )


def _origin_of(entry: Draft | Entry) -> str:
    return entry.origin.replace("_", " ")


def find_entry(unit: Unit, scope: Scope, entry_id: str, version: int | None = None) -> Entry | None:
    try:
        return unit.memories.get(scope, entry_id, version=version)
    except NotFound:
        return None
