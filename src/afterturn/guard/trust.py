"""Who may write what: trust by origin and lineage, privileged writes, and what waits for a person's word (G2, V8)."""

from collections.abc import Iterable
from dataclasses import replace

from afterturn.config import Config
from afterturn.errors import NotAllowed, NotFound
from afterturn.ports import Unit
from afterturn.types import Draft, Entry, Kind, Origin, Scope, Status, Target

# Whoever is trusted less is quoted, never stands in a system prompt, and writes nothing of weight.
TRUST_MIN = Origin.BACKGROUND_REVIEW.trust
# What no trust is left of: it waits for somebody's word, or was taken out of sight.
_UNVOUCHED = (Status.QUARANTINED, Status.PROPOSED)
_STANDING_KINDS = {Target.USER: "preference", Target.ENVIRONMENT: "convention"}


def waits(config: Config, origin: Origin) -> bool:
    """Whether what this origin writes waits in the inbox until a person approves it."""
    if config.approval == "all":
        return origin is not Origin.USER
    return config.approval == "background" and origin is Origin.BACKGROUND_REVIEW


def lineage_of(unit: Unit, scope: Scope, sources: Iterable[str]) -> list[int]:
    """How far the entries among `sources` are trusted; what is none of the scope, such as a ticket, is not judged."""
    found = (_find(unit, scope, source.partition(".")[0]) for source in sources)
    return [0 if entry.status in _UNVOUCHED else entry.trust for entry in found if entry is not None]


def is_privileged(draft: Draft | Entry) -> bool:
    """Whether it would stand in the system prompt: pinned, a convention, or the user's preference."""
    return draft.pinned or draft.metadata.get("kind") == _STANDING_KINDS[draft.target]


def check_privileges(draft: Draft, trust: int) -> None:
    """NotAllowed for what an untrusted origin, or one that rests on one, would put into the system prompt."""
    if trust >= TRUST_MIN or not is_privileged(draft):
        return
    what = "pinned" if draft.pinned else f"a {draft.metadata['kind']}"
    raise NotAllowed(
        f"What {_origin_of(draft)} says is not trusted enough to be {what}: that would put it into the system "
        "prompt. Leave that out, or let the user do it."
    )


def unprivileged(draft: Draft) -> Draft:
    """What somebody brings who is not trusted enough, as it may be stored: the words stay, their weight goes."""
    if draft.kind is not Kind.STATEMENT or draft.origin.trust >= TRUST_MIN or not is_privileged(draft):
        return draft
    kept = {key: value for key, value in draft.metadata.items() if key != "kind"}
    return replace(draft, pinned=False, metadata=kept)


def check_change(current: Entry, trust: int) -> None:
    """NotAllowed unless whoever is trusted so far may supersede or delete `current`."""
    if current.pinned and trust < Origin.USER.trust:
        raise NotAllowed(f"{current.id} is pinned, so only its user may change or delete it. Add a new memory instead.")
    if trust < TRUST_MIN and current.trust > trust:
        raise NotAllowed(
            f"{current.id} comes from {_origin_of(current)}, which is trusted more than the origin of this change. "
            "Add a new memory instead, or let the user do it."
        )


def _origin_of(said: Draft | Entry) -> str:
    return said.origin.replace("_", " ")


def _find(unit: Unit, scope: Scope, entry_id: str) -> Entry | None:
    try:
        return unit.memories.get(scope, entry_id)
    except NotFound:
        return None
