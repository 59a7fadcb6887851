"""OpenTelemetry spans and metrics from memory's events: ids, counts and reasons; texts only by opt-in.

Spans have our own names, and the names of the GenAI conventions for memory. Spans and metrics go to the providers that
the host has set up. This module sends nothing itself.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from afterturn.errors import ExtraMissing
from afterturn.types import ContentEvent, Event, ReviewState, Scalar

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, Meter, MeterProvider
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
    "embedder_unavailable job_dead job_failed recording_waits refined_failed tool_failed".split()
)
# The fields that are copied from events. Others may contain texts or paths, such as error messages.
_COPIED: Final = frozenset(
    """
    bytes carried cause correlation epoch episodic how long_term memories messages milliseconds missing outcome phase
    point reason records short_term tokens tool
    """.split()
)
_NAME: Final = re.compile(r"[\w.,:-]{1,60}")
# The operations of the GenAI conventions, by verbs of a space and by tools of a model.
_OPERATIONS: Final = {
    "search": "search_memory",
    "add": "create_memory",
    "add_many": "create_memory",
    "update": "update_memory",
    "set_firm": "update_memory",
    "set_pinned": "update_memory",
    "hide_standing": "update_memory",
    "delete": "delete_memory",
    "forget": "delete_memory",
    "search_memory": "search_memory",
    "remember_this": "create_memory",
}
_UPSERT: Final = "upsert_memory"
_FAILED_REVIEWS: Final = (ReviewState.FAILED, ReviewState.TIMED_OUT)


def handler(
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    *,
    capture_content: bool = False,
    then: Handler | None = None,
) -> Handler:
    """An event handler for `open(..., on_event=handler())`. It then calls `then` with each event.

    Several memories can share one handler. Without providers it uses those of the process. With `capture_content`, the
    spans of the GenAI conventions contain what was searched for and the memories that were found or written, without
    secrets; `then` gets these texts too. Raises ExtraMissing if OpenTelemetry is not installed.
    """
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise ExtraMissing("OpenTelemetry is not installed. Run `pip install 'afterturn[otel]'`.") from error
    tracer = trace.get_tracer("afterturn", tracer_provider=tracer_provider)
    meter = metrics.get_meter("afterturn", meter_provider=meter_provider)
    return _EventHandler(_Spans(tracer, captures_content=capture_content), _Metrics(meter), then)


class _EventHandler:
    """Has a lock, because several memories may share a handler, each with its own thread."""

    def __init__(self, spans: _Spans, metrics: _Metrics, then: Handler | None) -> None:
        self._spans = spans
        self._metrics = metrics
        self._then = then
        self._lock = threading.Lock()

    @property
    def wants_content(self) -> bool:
        return self._spans.captures_content or getattr(self._then, "wants_content", False) is True

    def __call__(self, event: Event) -> None:
        try:
            with self._lock:
                self._metrics.record(event)
                self._spans.record(event)
        finally:
            if self._then is not None:
                self._then(event)


class _Metrics:
    def __init__(self, meter: Meter) -> None:
        counter, histogram = meter.create_counter, meter.create_histogram
        self._recalls = counter("afterturn.recalls", "{recall}", "Recall phases that ended, by outcome.")
        self._duration = histogram("afterturn.recall.duration", "ms", "From the question to the fast result.")
        self._bytes = histogram("afterturn.handed_over.bytes", "By", "The size of a delivered block.")
        self._tokens = histogram("afterturn.handed_over.tokens", "{token}", "Its estimated size in tokens.")
        self._turns = counter("afterturn.turns", "{turn}", "Turns that ended, by outcome.")
        self._degraded = counter("afterturn.degraded", "{event}", "Times that memory continued with less.")

    def record(self, event: Event) -> None:
        data, name = event.data, event.name
        if name == "recall_ended":
            self._recalls.add(1, _labels(data, "outcome", "reason", "phase"))
            if data.get("outcome") == "degraded":
                self._degraded.add(1, {"event": "recall_ended"})
        elif name == "recall_settled":
            _record(self._duration, data.get("milliseconds"), {})
        elif name == "handed_over":
            _record(self._bytes, data.get("bytes"), _labels(data, "point"))
            _record(self._tokens, data.get("tokens"), _labels(data, "point"))
        elif name in _TURN_ENDS:
            # The reason for an abort is the host's own text, which may be different each time.
            reason = _labels(data, "reason") if name != "turn_aborted" else {}
            self._turns.add(1, {"outcome": _TURN_ENDS[name], **reason})
        elif name in _DEGRADING:
            self._degraded.add(1, {"event": name})


@dataclass(slots=True)
class _Recall:
    """A running recall. It becomes a span when one of its phases ends. `host` is the context of the caller."""

    started_at: float
    within: Context | None
    host: Context | None = None
    is_searched: bool = False
    attributes: Attributes = field(default_factory=dict)


class _Spans:
    """A call into memory runs in the context of its caller, so what it emits at once finds the host's current span.

    Later events of a turn, such as its recording, come from tasks in another context: the one that the turn began in is
    kept for them.
    """

    def __init__(self, tracer: Tracer, *, captures_content: bool) -> None:
        self._tracer = tracer
        self.captures_content = captures_content
        self._turns: _Bounded[Span] = _Bounded()
        self._recalls: _Bounded[_Recall] = _Bounded()
        # The host's context by turn, also after the turn, because reviews come later.
        self._hosts: _Bounded[Context] = _Bounded()
        self._reviews: _Bounded[tuple[float, Context | None]] = _Bounded()

    def record(self, event: Event) -> None:
        act = _HANDLERS.get(event.name)
        if act is not None:
            act(self, event)

    # Our own names.

    def start_turn(self, event: Event) -> None:
        from opentelemetry.context import get_current

        host = get_current()
        self._hosts.put(_turn_key(event), host)
        span = self._tracer.start_span(
            "afterturn.turn", context=host, start_time=_nanoseconds(event.at), attributes=_identity(event)
        )
        for lost in self._turns.put(_turn_key(event), span):
            lost.set_attribute("afterturn.outcome", "unknown")
            lost.end(_nanoseconds(event.at))

    def end_turn(self, event: Event) -> None:
        span = self._turns.pop(_turn_key(event), None)
        if span is None:
            return
        span.set_attributes({"afterturn.outcome": _TURN_ENDS[event.name], **_copied(event)})
        span.end(_nanoseconds(event.at))
        ended_at, records = event.data.get("ended_at"), event.data.get("records")
        if isinstance(ended_at, float):
            # Without it, the turn was not to be recorded.
            error = "" if event.name == "recorded" else _error(event, "reason")
            host = self._hosts.get(_turn_key(event))
            self._operate(_UPSERT, event, host, ended_at, count=records, error=error)

    def note(self, event: Event) -> None:
        """Adds an event to the span of an open turn."""
        span = self._turns.get(_turn_key(event))
        if span is not None:
            span.add_event(f"afterturn.{event.name}", _copied(event), _nanoseconds(event.at))

    def start_recall(self, event: Event) -> None:
        from opentelemetry.context import get_current
        from opentelemetry.trace import set_span_in_context

        turn, host = self._turns.get(_turn_key(event)), get_current()
        within = host if turn is None else set_span_in_context(turn, host)
        self._recalls.put(_recall_key(event), _Recall(event.at, within, host, attributes=_copied(event)))

    def settle_recall(self, event: Event) -> None:
        recall = self._recalls.get(_recall_key(event))
        if recall is not None:
            recall.attributes.update(_copied(event))
            self._searched(recall, event)

    def end_recall(self, event: Event) -> None:
        """Keeps the start, because the refined phase may end after the fast one."""
        recall = self._recalls.get(_recall_key(event)) or _Recall(event.at, None, is_searched=True)
        span = self._tracer.start_span(
            "afterturn.recall",
            context=recall.within,
            start_time=_nanoseconds(recall.started_at),
            attributes={**_identity(event), **recall.attributes, **_copied(event)},
        )
        span.end(_nanoseconds(max(event.at, recall.started_at)))
        self._searched(recall, event)

    # The names of the GenAI conventions.

    def _searched(self, recall: _Recall, event: Event) -> None:
        """Once for each recall: when it has its result, or ends without one."""
        if recall.is_searched:
            return
        recall.is_searched = True
        error = _error(event, "reason") if event.data.get("outcome") == "degraded" else ""
        found = event.data.get("memories")
        self._operate("search_memory", event, recall.host, recall.started_at, count=found, error=error)

    def end_verb(self, event: Event) -> None:
        """A verb of a space, or a tool that a model called."""
        from opentelemetry.context import get_current

        operation = _OPERATIONS.get(str(event.data.get("verb") or event.data.get("tool")))
        milliseconds, count = event.data.get("milliseconds"), event.data.get("memories")
        if operation is None or not isinstance(milliseconds, int | float):
            return
        error = _error(event, "reason" if event.name == "tool_failed" else "error")
        record, started_at = str(_labels(event.data, "memory").get("memory", "")), event.at - milliseconds / 1000
        count = None if error else count
        self._operate(operation, event, get_current(), started_at, count=count, error=error, record=record)

    def call_tool(self, event: Event) -> None:
        self.note(event)
        self.end_verb(event)

    def schedule_review(self, event: Event) -> None:
        self._reviews.put(_review_key(event), (event.at, self._hosts.get(_turn_key(event))))

    def end_review(self, event: Event) -> None:
        state = event.data.get("state")
        scheduled = self._reviews.pop(_review_key(event), None)
        if scheduled is None or state not in (ReviewState.SAVED, *_FAILED_REVIEWS):
            return
        counts = [event.data.get(name) for name in ("written", "proposed", "refused")]
        count = sum(one for one in counts if isinstance(one, int))
        error = str(state) if state in _FAILED_REVIEWS else ""
        self._operate(_UPSERT, event, scheduled[1], scheduled[0], count=count, error=error)

    def _operate(
        self,
        operation: str,
        event: Event,
        host: Context | None,
        started_at: float,
        *,
        count: Scalar,
        error: str = "",
        record: str = "",
    ) -> None:
        """The span of one operation that has ended, as a child of the host's span. Only a number is a `count`."""
        from opentelemetry.context import Context
        from opentelemetry.trace import StatusCode

        named = {
            "gen_ai.operation.name": operation,
            "gen_ai.memory.store.id": event.space,
            "gen_ai.memory.record.id": record,
            "gen_ai.conversation.id": event.conversation,
            "error.type": error,
        }
        attributes: Attributes = {key: value for key, value in named.items() if value}
        if isinstance(count, int):
            attributes["gen_ai.memory.record.count"] = count
        span = self._tracer.start_span(
            operation,
            context=Context() if host is None else host,
            start_time=_nanoseconds(min(started_at, event.at)),
            attributes={**_identity(event), **attributes, **(_content(event) if self.captures_content else {})},
        )
        if error:
            span.set_status(StatusCode.ERROR)
        span.end(_nanoseconds(event.at))


_HANDLERS: Final[Mapping[str, Callable[[_Spans, Event], None]]] = {
    "turn_started": _Spans.start_turn,
    **dict.fromkeys(_TURN_ENDS, _Spans.end_turn),
    **dict.fromkeys(["epoch_started", "handed_over", "recall_carried", "delegated"], _Spans.note),
    "tool_called": _Spans.call_tool,
    **dict.fromkeys(["tool_failed", "verb_ended"], _Spans.end_verb),
    "recall_started": _Spans.start_recall,
    "recall_settled": _Spans.settle_recall,
    "recall_ended": _Spans.end_recall,
    "review_scheduled": _Spans.schedule_review,
    "review_ended": _Spans.end_review,
}


def _content(event: Event) -> Attributes:
    if not isinstance(event, ContentEvent):
        return {}
    found: Attributes = {}
    if event.content.query:
        found["gen_ai.memory.query.text"] = event.content.query
    if event.content.texts:
        records = [{"id": id, "content": text} for id, text in event.content.texts.items()]
        # Attributes of spans have no structure in Python's SDK, so it is JSON.
        found["gen_ai.memory.records"] = json.dumps(records, ensure_ascii=False)
    return found


class _Bounded(OrderedDict[tuple[str, ...], V]):
    """The newest WAITING_MAX entries. `put` returns the entries that it removed."""

    def put(self, key: tuple[str, ...], value: V) -> list[V]:
        lost = [self.pop(key)] if key in self else []
        self[key] = value
        while len(self) > WAITING_MAX:
            lost.append(self.popitem(last=False)[1])
        return lost


def _turn_key(event: Event) -> tuple[str, ...]:
    return (event.tenant, event.space, event.conversation, event.turn)


def _recall_key(event: Event) -> tuple[str, ...]:
    """By correlation id, because a carried recall ends in another turn."""
    correlation = event.data.get("correlation")
    return (event.tenant, str(correlation)) if correlation else _turn_key(event)


def _review_key(event: Event) -> tuple[str, ...]:
    return (event.tenant, str(event.data.get("review")))


def _error(event: Event, key: str) -> str:
    """The kind of an error, blank if there was none. Texts are not copied."""
    value = event.data.get(key)
    return "" if not value else str(value) if _is_name(value) else "_OTHER"


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


def _record(histogram: Histogram, value: Scalar, labels: Attributes) -> None:
    if isinstance(value, int | float):
        histogram.record(value, labels)


def _nanoseconds(at: float) -> int:
    return int(at * _NANOSECONDS)
