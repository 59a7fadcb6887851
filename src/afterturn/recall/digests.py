"""Saved shelves: when one is worth making, and how a space comes to memory from one."""

from __future__ import annotations

import logging

from afterturn.base.digest import Digest
from afterturn.base.ports import Unit
from afterturn.base.types import Changes, Scope
from afterturn.recall.assembly import AT_ONCE_ROWS_MAX, Place, Plan
from afterturn.recall.packing import FORM, Unpacked, is_packable, pack
from afterturn.recall.stock import FOLLOWED_MAX, Stock

logger = logging.getLogger("afterturn")

# Fewer entries are weighed one by one about as fast.
DIGESTED_MIN = 64
# What came since is read with the question that brings the space to memory, some 15 µs an entry. Each makes two
# changes: it comes, and gets its vector.
BEHIND_MAX = 128
_BEHIND_SHARE = 8


def is_due(unit: Unit, tenant: str, space: str) -> bool:
    """Whether a space has none, or has moved on from it."""
    extent = unit.index.extents(Scope(tenant, (space,))).get(space)
    if extent is None or not DIGESTED_MIN <= extent.documents <= AT_ONCE_ROWS_MAX:
        return False
    seq = unit.digests.seq(tenant, space)
    return seq is None or abs(extent.seq - seq) > max(BEHIND_MAX, extent.documents // _BEHIND_SHARE)


def load_digest(unit: Unit, place: Place, plan: Plan, digest: Digest) -> Stock | None:
    """The space as the digest has it, with the vectors of the unit's snapshot; whoever asks has it follow the rest.
    None when it can't be read, or is too far behind."""
    changes = unit.index.changes(place.tenant, place.space, since=digest.seq)
    if digest.form != FORM or changes.keys is None or len(changes.keys) > FOLLOWED_MAX:
        return None
    try:
        unpacked = Unpacked(place, plan, digest)
    except (ValueError, LookupError, TypeError) as error:
        logger.warning("a saved shelf of %s can't be read, and is made anew: %s", place.space, error)
        return None
    if plan.embedder is not None:
        unpacked.put_vectors(unit.index.vectors(place.tenant, place.space, plan.embedder, None))
    return Stock(unpacked, Changes(changes.generation, digest.seq, ()))


def make_digest(stock: Stock, forgets: int) -> Digest | None:
    """None when it is too large. `forgets` was read no later than anything of the stock."""
    edition = stock.edition
    if not is_packable(edition):
        return None
    first_key, data = pack(edition, stock.codes)
    return Digest(seq=stock.seq, forgets=forgets, first_key=first_key, form=FORM, data=data)
