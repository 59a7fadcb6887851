"""OpenTelemetry spans and metrics out of memory's events. Ids, counts and reasons only, never a text.

Nothing is sent by this: spans and figures go to the providers that the host has set up, or nowhere.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from afterturn.errors import ExtraMissing
from afterturn.types import Event, Scalar

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

Handler: TypeAlias = Callable[[Event], None]
Attributes: TypeAlias = dict[str, str | int | float | bool]
V = TypeVar("V")

# Turns and recalls that are waited for. A host may drop a turn and never say so; the oldest then makes room.
WAITING_MAX: Final = 1_000

_NANOSECONDS = 1_000_000_000
# What ends a turn's span. A turn of a host that keeps no recordings ends as `not_recorded`.
_TURN_ENDS: Final = {"recorded": "recorded", "not_recorded": "not_recorded", "turn_aborted": "aborted"}
# Memory went on, but with less than it should have.
_DEGRADING: Final = frozenset(
    ["embedder_unavailable", "job_dead", "job_failed", "recording_waits", "refined_failed", "tool_failed"]
)
# What may be copied from an event: an error's own words, for one, may hold a path.
_TOLD: Final = frozenset(
    """
    bytes carried cause correlation epoch episodic how long_term memories messages milliseconds missing outcome phase
    point reason records short_term tokens tool
    """.split()
)
_NAME: Final = re.compile(r"[\w.,:-]{1,60}")


def handler(
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    *,
    then: Handler | None = None,
) -> Handler:
    """For `open(..., on_event=handler())`; `then` is called with every event after it. One serves several memories.

    Without providers, those that the process has set. ExtraMissing when OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise ExtraMissing("OpenTelemetry is not installed. Run `pip install 'afterturn[otel]'`.") from error
    tracer = trace.get_tracer("afterturn", tracer_provider=tracer_provider)
    meter = metrics.get_meter("afterturn", meter_provider=meter_provider)
    watch = _Watch(_Spans(tracer), _Figures.of(meter))
    if then is None:
        return watch.see
    following = then

    def both(event: Event) -> None:
        try:
            watch.see(event)
        finally:
            following(event)

    return both


class _Watch:
    """Events of one memory come on one thread, but several memories may share a handler."""

    def __init__(self, spans: _Spans, figures: _Figures) -> None:
        self._spans = spans
        self._figures = figures
        self._lock = threading.Lock()

    def see(self, event: Event) -> None:
        with self._lock:
            self._figures.see(event)
            self._spans.see(event)


@dataclass(frozen=True, slots=True)
class _Figures:
    recalls: Counter
    recall_milliseconds: Histogram
    handed_over_bytes: Histogram
    handed_over_tokens: Histogram
    turns: Counter
    degraded: Counter

    @classmethod
    def of(cls, meter: Meter) -> _Figures:
        return cls(
            meter.create_counter("afterturn.recalls", "{recall}", "Phases of recalls that ended, by outcome."),
            meter.create_histogram("afterturn.recall.duration", "ms", "From asking to the fast result."),
            meter.create_histogram("afterturn.handed_over.bytes", "By", "The size of a block that was handed over."),
            meter.create_histogram("afterturn.handed_over.tokens", "{token}", "Its size for the model, estimated."),
            meter.create_counter("afterturn.turns", "{turn}", "Turns that ended, by what became of them."),
            meter.create_counter("afterturn.degraded", "{event}", "Memory went on with less than it should have."),
        )

    def see(self, event: Event) -> None:
        data, name = event.data, event.name
        if name == "recall_ended":
            self.recalls.add(1, _labels(data, "outcome", "reason", "phase"))
            if data.get("outcome") == "degraded":
                self.degraded.add(1, {"event": "recall_ended"})
        elif name == "recall_settled":
            _record(self.recall_milliseconds, data.get("milliseconds"), {})
        elif name == "handed_over":
            _record(self.handed_over_bytes, data.get("bytes"), _labels(data, "point"))
            _record(self.handed_over_tokens, data.get("tokens"), _labels(data, "point"))
        elif name in _TURN_ENDS:
            # Why a turn was aborted is the host's own word, which may be another one each time.
            reason = _labels(data, "reason") if name != "turn_aborted" else {}
            self.turns.add(1, {"outcome": _TURN_ENDS[name], **reason})
        elif name in _DEGRADING:
            self.degraded.add(1, {"event": name})


@dataclass(slots=True)
class _Recall:
    """A recall under way: it becomes a span when a phase of it ends, and then it is known how."""

    started_at: float
    within: Context | None
    attributes: Attributes = field(default_factory=dict)


class _Spans:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._turns: _Bounded[Span] = _Bounded(WAITING_MAX)
        self._recalls: _Bounded[_Recall] = _Bounded(WAITING_MAX)

    def see(self, event: Event) -> None:
        act = _ACTS.get(event.name)
        if act is not None:
            act(self, event)

    def start_turn(self, event: Event) -> None:
        from opentelemetry.context import Context

        # An empty context: this is memory's thread, and whatever span is current there is not the host's.
        span = self._tracer.start_span(
            "afterturn.turn", context=Context(), start_time=_nanoseconds(event.at), attributes=_whose(event)
        )
        for lost in self._turns.put(_turn_key(event), span):
            lost.set_attribute("afterturn.outcome", "unknown")
            lost.end(_nanoseconds(event.at))

    def end_turn(self, event: Event) -> None:
        span = self._turns.take(_turn_key(event))
        if span is not None:
            span.set_attributes({"afterturn.outcome": _TURN_ENDS[event.name], **_told(event)})
            span.end(_nanoseconds(event.at))

    def note(self, event: Event) -> None:
        """Something happened in a turn that is under way."""
        span = self._turns.get(_turn_key(event))
        if span is not None:
            span.add_event(f"afterturn.{event.name}", _told(event), _nanoseconds(event.at))

    def start_recall(self, event: Event) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        turn = self._turns.get(_turn_key(event))
        within = Context() if turn is None else set_span_in_context(turn, Context())
        self._recalls.put(_recall_key(event), _Recall(event.at, within, _told(event)))

    def settle_recall(self, event: Event) -> None:
        recall = self._recalls.get(_recall_key(event))
        if recall is not None:
            recall.attributes.update(_told(event))

    def end_recall(self, event: Event) -> None:
        """The start is kept: the refined phase may end after the fast one. Without it the span has no length."""
        recall = self._recalls.get(_recall_key(event)) or _Recall(event.at, None)
        span = self._tracer.start_span(
            "afterturn.recall",
            context=recall.within,
            start_time=_nanoseconds(recall.started_at),
            attributes={**_whose(event), **recall.attributes, **_told(event)},
        )
        span.end(_nanoseconds(max(event.at, recall.started_at)))


_ACTS: Final[Mapping[str, Callable[[_Spans, Event], None]]] = {
    "turn_started": _Spans.start_turn,
    **dict.fromkeys(_TURN_ENDS, _Spans.end_turn),
    **dict.fromkeys(["epoch_started", "handed_over", "recall_carried", "delegated", "tool_called"], _Spans.note),
    "recall_started": _Spans.start_recall,
    "recall_settled": _Spans.settle_recall,
    "recall_ended": _Spans.end_recall,
}


class _Bounded(Generic[V]):
    """The newest `entries_max`; what has to go is given back."""

    def __init__(self, entries_max: int) -> None:
        self._entries: OrderedDict[tuple[str, ...], V] = OrderedDict()
        self._entries_max = entries_max

    def put(self, key: tuple[str, ...], value: V) -> list[V]:
        lost = [self._entries.pop(key)] if key in self._entries else []
        self._entries[key] = value
        while len(self._entries) > self._entries_max:
            lost.append(self._entries.popitem(last=False)[1])
        return lost

    def get(self, key: tuple[str, ...]) -> V | None:
        return self._entries.get(key)

    def take(self, key: tuple[str, ...]) -> V | None:
        return self._entries.pop(key, None)


def _turn_key(event: Event) -> tuple[str, ...]:
    return (event.tenant, event.space, event.conversation, event.turn)


def _recall_key(event: Event) -> tuple[str, ...]:
    """By correlation, which is unique; a recall that is carried ends in another turn than it began in."""
    correlation = event.data.get("correlation")
    return (event.tenant, str(correlation)) if correlation else _turn_key(event)


def _whose(event: Event) -> Attributes:
    named = (("tenant", event.tenant), ("space", event.space), ("conversation", event.conversation))
    return {f"afterturn.{name}": value for name, value in (*named, ("turn", event.turn)) if value}


def _told(event: Event) -> Attributes:
    return {f"afterturn.{key}": value for key, value in _chosen(event.data, _TOLD).items()}


def _labels(data: Mapping[str, Scalar], *keys: str) -> Attributes:
    return _chosen(data, frozenset(keys))


def _chosen(data: Mapping[str, Scalar], keys: frozenset[str]) -> Attributes:
    return {key: value for key, value in data.items() if key in keys and value is not None and _is_name(value)}


def _is_name(value: Scalar) -> bool:
    """Reasons are names; what is no name could be a text, and stays here."""
    return not isinstance(value, str) or _NAME.fullmatch(value) is not None


def _record(figure: Histogram, value: Scalar, labels: Attributes) -> None:
    if isinstance(value, int | float):
        figure.record(value, labels)


def _nanoseconds(at: float) -> int:
    return int(at * _NANOSECONDS)
