"""A clock and an id generator that a test controls."""

_ID_DIGITS = 12


class ManualClock:
    """A clock that moves only by `advance`. Wall and monotonic time move together, from 2024-01-01 on."""

    def __init__(self, start: float = 1_704_067_200.0) -> None:
        self._start = start
        self._now = start

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now - self._start

    def advance(self, seconds: float) -> float:
        self._now += seconds
        return self._now


class SequentialIds:
    """`m000000000001`, `m000000000002`, …: valid, ordered, the same in every run."""

    def __init__(self, prefix: str = "m") -> None:
        self._prefix = prefix
        self._last = 0

    def new(self) -> str:
        self._last += 1
        return f"{self._prefix}{self._last:0{_ID_DIGITS}d}"
