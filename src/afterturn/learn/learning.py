"""The jobs that learn. Rules are quick and run with the other jobs; what asks a model has a runner of its own."""

from __future__ import annotations

from collections.abc import Mapping

from afterturn.base.jobs import LEASE, Handler, JobRunner, Work
from afterturn.base.types import JobKind
from afterturn.learn.reviewing import LearningParts, Reviewing


class Learning:
    """Lives on memory's loop. A model that hangs holds up reviews, and nothing else (V2)."""

    def __init__(self, parts: LearningParts, owner: str, also: Mapping[str, Handler]) -> None:
        """`also` are other jobs that take their time."""
        self.has_model = parts.model is not None
        self._reviewing = Reviewing(parts)
        lease = max(LEASE, 2 * parts.config.review_timeout)
        work = Work(parts.store, parts.clock, parts.events, owner, lease, side_by_side=True)
        self.runner = JobRunner(work, {**also, **({JobKind.REVIEW: self._reviewing.review} if self.has_model else {})})

    @property
    def quick(self) -> dict[str, Handler]:
        """For the runner of the other jobs."""
        return {JobKind.RULES: self._reviewing.apply_rules}
