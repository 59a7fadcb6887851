"""Saved shelves: when one is worth making, and how a space comes to memory from one."""

from __future__ import annotations

import logging

from afterturn.base.digest import Digest
from afterturn.base.errors import DeadlineExceeded
from afterturn.base.ports import Unit
from afterturn.base.types import Changes, Extent
from afterturn.recall.assembly import AT_ONCE_ROWS_MAX, Place, Plan, extent_of
from afterturn.recall.packing import FORM, Unpacked, is_intact, is_packable, pack
from afterturn.recall.stock import FOLLOWED_MAX, Stock

logger = logging.getLogger("afterturn")

# Fewer entries are weighed one by one about as fast.
DIGESTED_MIN = 64
# What came since is read with the question that brings the space to memory, some 15 µs an entry. Each makes two
# changes: it comes, and gets its vector.
BEHIND_MAX = 128
_BEHIND_SHARE = 8


def is_worth_saving(extent: Extent | None) -> bool:
    return extent is not None and DIGESTED_MIN <= extent.documents <= AT_ONCE_ROWS_MAX


def is_due(unit: Unit, tenant: str, space: str) -> bool:
    """Whether a space that is worth it has no digest that can be read, or has moved on from it."""
    extent = extent_of(unit, Place(tenant, space))
    if extent is None or not is_worth_saving(extent):
        return False
    digest = unit.digests.find(tenant, space)
    if digest is None or not is_intact(digest):
        return True
    return not 0 <= extent.seq - digest.seq <= max(BEHIND_MAX, extent.documents // _BEHIND_SHARE)


def load_digest(unit: Unit, place: Place, plan: Plan, digest: Digest) -> Stock | None:
    """The space as the unit's snapshot has it. None when the digest can't be read, or is too far behind."""
    changes = unit.index.changes(place.tenant, place.space, since=digest.seq)
    if digest.form != FORM or changes.keys is None or len(changes.keys) > FOLLOWED_MAX:
        return None
    try:
        stock = _unpack(unit, place, plan, digest, changes)
    except DeadlineExceeded:
        raise
    except Exception:  # the boundary: what can't be read is found in the store, and saved anew when it is built
        logger.exception("a saved shelf of %s can't be read", place.space)
        return None
    if stock is None:
        logger.warning("a saved shelf of %s is not what it should be, and is not used", place.space)
    return stock


def _unpack(unit: Unit, place: Place, plan: Plan, digest: Digest, changes: Changes) -> Stock | None:
    if not is_intact(digest):
        return None
    unpacked = Unpacked(place, plan, digest)
    if plan.embedder is not None:
        unpacked.put_vectors(unit.index.vectors(place.tenant, place.space, plan.embedder, None))
    stock = Stock(unpacked, changes._replace(seq=digest.seq, keys=()))
    stock.follow(unit.index)
    return stock if stock.edition.alive_count == plan.extent.documents else None


def make_digest(stock: Stock) -> Digest | None:
    """None when it is too large."""
    edition = stock.edition
    if not is_packable(edition):
        return None
    first_key, data = pack(edition, stock.codes)
    return Digest(seq=stock.seq, first_key=first_key, form=FORM, data=data)
