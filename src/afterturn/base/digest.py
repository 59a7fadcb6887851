"""What a space's shelf holds, saved in the store: the space comes to memory at its first question (L6)."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Digest:
    """All but vectors, as of change `seq`; keys in it count from `first_key`, and `form` says how to read it."""

    seq: int
    first_key: int
    form: int
    data: bytes


class Moment(NamedTuple):
    """When a digest was begun. Since a restore or a forget, what was read may be gone."""

    generation: str
    forgets: int


class Digests(Protocol):
    """One a space, derived from its active entries. Forgetting takes it away."""

    def moment(self) -> Moment: ...

    def find(self, tenant: str, space: str) -> Digest | None: ...

    def put(self, tenant: str, space: str, digest: Digest, *, begun: Moment) -> bool:
        """In the place of the one before. False, and nothing is kept, when that moment is over."""

    def drop(self, tenant: str, space: str) -> None:
        """Nothing happens when there is none."""
