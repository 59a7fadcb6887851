"""How one turn is told on the stage: moment by moment, or with all its tool steps as one."""

from collections.abc import Mapping, Sequence
from typing import Any

from lab.demo.restaurants import describe_call
from lab.demo.stage import Said, Stage


class Telling:
    def __init__(self, stage: Stage, *, terse: bool) -> None:
        self._stage = stage
        self._terse = terse
        self._calls: list[str] = []
        self._notes: list[str] = []

    def moment(self, said: Sequence[Said], beside: Sequence[str]) -> None:
        if self._terse and self._calls:
            self._notes.extend(beside)
        else:
            self._stage.moment(said, beside)

    def called(self, calls: Sequence[Mapping[str, Any]]) -> None:
        described = [describe_call(call) for call in calls]
        self._calls.extend(described)
        if not self._terse:
            self._stage.moment([Said("calls", f"→ {call}") for call in described], [])

    def end(self) -> None:
        if self._terse:
            steps = len(self._calls)
            said = [Said("calls", f"→ {self._calls[0]}"), Said("calls", f"→ … {steps} calls, one after the other")]
            self._stage.moment(said, self._notes or [f"{steps} tool steps: no recall, nothing added"])
