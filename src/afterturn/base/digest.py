"""What a space's shelf holds, saved in the store: the space comes to memory at its first question (L6)."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Digest:
    """All but vectors, as of change `seq`; keys in it count from `first_key`, and `form` says how to read it.

    `forgets` is the number of the newest forget when it was begun: one that is behind may hold what is gone.
    """

    seq: int
    forgets: int
    first_key: int
    form: int
    data: bytes


class Digests(Protocol):
    """One a space, derived from its active entries. Forgetting takes it away."""

    def find(self, tenant: str, space: str) -> Digest | None: ...

    def seq(self, tenant: str, space: str) -> int | None:
        """Of which change it is; None when there is none."""

    def put(self, tenant: str, space: str, digest: Digest) -> bool:
        """In the place of the one before. False, and nothing is kept, when something was forgotten since it began."""
