"""OpenTelemetry spans and metrics from memory's events: ids, counts and reasons, never texts.

Spans and metrics go to the providers that the host has set up. This module sends nothing itself.
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

# The most open turns and recalls. A host may drop a turn without a word; the oldest is removed then.
WAITING_MAX: Final = 1_000

_NANOSECONDS = 1_000_000_000
# The events that end a turn's span. If recording is off, a turn ends as `not_recorded`.
_TURN_ENDS: Final = {"recorded": "recorded", "not_recorded": "not_recorded", "turn_aborted": "aborted"}
# Memory continued, but something was missing.
_DEGRADING: Final = frozenset(
    [
        "embedder_unavailable",
        "job_dead",
        "job_failed",
        "recording_waits",
        "refined_failed",
        "tool_failed",
        "word_table_unavailable",
    ]
)
# The fields that are copied from events. Others may contain texts or paths, such as error messages.
_COPIED: Final = frozenset(
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
    """An event handler for `open(..., on_event=handler())`. It then calls `then` with each event.

    Several memories can share one handler. Without providers it uses those of the process. Raises ExtraMissing if
    OpenTelemetry is not installed.
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
    """Locks, because several memories may share a handler, each with its own thread."""

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
            meter.create_counter("afterturn.recalls", "{recall}", "Recall phases that ended, by outcome."),
            meter.create_histogram("afterturn.recall.duration", "ms", "From the question to the fast result."),
            meter.create_histogram("afterturn.handed_over.bytes", "By", "The size of a delivered block."),
            meter.create_histogram("afterturn.handed_over.tokens", "{token}", "Its estimated size in tokens."),
            meter.create_counter("afterturn.turns", "{turn}", "Turns that ended, by outcome."),
            meter.create_counter("afterturn.degraded", "{event}", "Times that memory continued with less."),
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
            # The reason for an abort is the host's own text, which may be different each time.
            reason = _labels(data, "reason") if name != "turn_aborted" else {}
            self.turns.add(1, {"outcome": _TURN_ENDS[name], **reason})
        elif name in _DEGRADING:
            self.degraded.add(1, {"event": name})


@dataclass(slots=True)
class _Recall:
    """A running recall. It becomes a span when one of its phases ends."""

    started_at: float
    within: Context | None
    attributes: Attributes = field(default_factory=dict)


class _Spans:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._turns: _Bounded[Span] = _Bounded(WAITING_MAX)
        self._recalls: _Bounded[_Recall] = _Bounded(WAITING_MAX)

    def see(self, event: Event) -> None:
        act = _HANDLERS.get(event.name)
        if act is not None:
            act(self, event)

    def start_turn(self, event: Event) -> None:
        from opentelemetry.context import Context

        # An empty context, because the current span of memory's thread is not the host's.
        span = self._tracer.start_span(
            "afterturn.turn", context=Context(), start_time=_nanoseconds(event.at), attributes=_identity(event)
        )
        for lost in self._turns.put(_turn_key(event), span):
            lost.set_attribute("afterturn.outcome", "unknown")
            lost.end(_nanoseconds(event.at))

    def end_turn(self, event: Event) -> None:
        span = self._turns.take(_turn_key(event))
        if span is not None:
            span.set_attributes({"afterturn.outcome": _TURN_ENDS[event.name], **_copied(event)})
            span.end(_nanoseconds(event.at))

    def note(self, event: Event) -> None:
        """Adds an event to the span of an open turn."""
        span = self._turns.get(_turn_key(event))
        if span is not None:
            span.add_event(f"afterturn.{event.name}", _copied(event), _nanoseconds(event.at))

    def start_recall(self, event: Event) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        turn = self._turns.get(_turn_key(event))
        within = Context() if turn is None else set_span_in_context(turn, Context())
        self._recalls.put(_recall_key(event), _Recall(event.at, within, _copied(event)))

    def settle_recall(self, event: Event) -> None:
        recall = self._recalls.get(_recall_key(event))
        if recall is not None:
            recall.attributes.update(_copied(event))

    def end_recall(self, event: Event) -> None:
        """Keeps the start, because the refined phase may end after the fast one."""
        recall = self._recalls.get(_recall_key(event)) or _Recall(event.at, None)
        span = self._tracer.start_span(
            "afterturn.recall",
            context=recall.within,
            start_time=_nanoseconds(recall.started_at),
            attributes={**_identity(event), **recall.attributes, **_copied(event)},
        )
        span.end(_nanoseconds(max(event.at, recall.started_at)))


_HANDLERS: Final[Mapping[str, Callable[[_Spans, Event], None]]] = {
    "turn_started": _Spans.start_turn,
    **dict.fromkeys(_TURN_ENDS, _Spans.end_turn),
    **dict.fromkeys(["epoch_started", "handed_over", "recall_carried", "delegated", "tool_called"], _Spans.note),
    "recall_started": _Spans.start_recall,
    "recall_settled": _Spans.settle_recall,
    "recall_ended": _Spans.end_recall,
}


class _Bounded(Generic[V]):
    """A dict with the newest `entries_max` entries. `put` returns the entries that it removed."""

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
    """By correlation id, because a carried recall ends in another turn."""
    correlation = event.data.get("correlation")
    return (event.tenant, str(correlation)) if correlation else _turn_key(event)


def _identity(event: Event) -> Attributes:
    named = (("tenant", event.tenant), ("space", event.space), ("conversation", event.conversation))
    return {f"afterturn.{name}": value for name, value in (*named, ("turn", event.turn)) if value}


def _copied(event: Event) -> Attributes:
    return {f"afterturn.{key}": value for key, value in _chosen(event.data, _COPIED).items()}


def _labels(data: Mapping[str, Scalar], *keys: str) -> Attributes:
    return _chosen(data, frozenset(keys))


def _chosen(data: Mapping[str, Scalar], keys: frozenset[str]) -> Attributes:
    return {key: value for key, value in data.items() if key in keys and value is not None and _is_name(value)}


def _is_name(value: Scalar) -> bool:
    """Whether the value is a number or a name. Other strings could be texts, and are not copied."""
    return not isinstance(value, str) or _NAME.fullmatch(value) is not None


def _record(figure: Histogram, value: Scalar, labels: Attributes) -> None:
    if isinstance(value, int | float):
        figure.record(value, labels)


def _nanoseconds(at: float) -> int:
    return int(at * _NANOSECONDS)
