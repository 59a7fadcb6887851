"""Numbers for Prometheus, in its text format: those of the caller's tenant, and those of this process."""

from __future__ import annotations

import os
import resource
import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from afterturn.types import Event

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
# Clients choose neither methods nor routes nor tenants freely, but a server may run for years.
_SERIES_MAX = 10_000
_TURNS = {"turn_started": "started", "recorded": "recorded", "not_recorded": "not_recorded", "turn_aborted": "aborted"}
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass(slots=True)
class Histogram:
    """Counts by upper limit of seconds, the last one unlimited."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(_BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(_BUCKETS, seconds)] += 1
        self.total += seconds


class _Request(NamedTuple):
    tenant: str
    method: str
    route: str
    status: int


class Metrics:
    """Counts requests and events. Used on the server's loop."""

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self._requests: Counter[_Request] = Counter()
        self._seconds: defaultdict[tuple[str, str], Histogram] = defaultdict(Histogram)
        self._recall_seconds: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._events: Counter[tuple[str, str, str]] = Counter()

    def note_request(self, tenant: str, method: str, route: str, status: int, seconds: float) -> None:
        request = _Request(tenant, method if method in _METHODS else "other", route, status)
        if request in self._requests or len(self._requests) < _SERIES_MAX:
            self._requests[request] += 1
            self._seconds[tenant, route].add(seconds)

    def note_event(self, event: Event) -> None:
        match event.name:
            case "recall_ended":
                self._events[event.tenant, "recalls", str(event.data.get("outcome"))] += 1
            case "recall_carried":
                self._events[event.tenant, "recalls", "late"] += 1
            case "recall_settled":
                self._recall_seconds[event.tenant].add(float(str(event.data.get("milliseconds") or 0)) / 1000)
            case name if name in _TURNS:
                self._events[event.tenant, "turns", _TURNS[name]] += 1

    def render(self, tenant: str, stats: Mapping[str, Any], open_turns: int) -> str:
        """`stats` are those of `memory.stats()`."""
        lines = [
            *_series("http_requests_total", "counter", "Requests to this server.", self._request_counts(tenant)),
            *_histograms(
                "http_request_seconds",
                "How long requests took, until the answer was complete.",
                {(("route", route),): one for (owner, route), one in self._seconds.items() if owner == tenant},
            ),
            *_series("turns_total", "counter", "Turns in this process.", self._event_counts(tenant, "turns", "state")),
            *_series(
                "recalls_total",
                "counter",
                "Recalls in this process: delivered; empty (nothing relevant, so nothing was added); late, so that the "
                "next turn offers the result; and the others of docs/tracing.md.",
                self._event_counts(tenant, "recalls", "outcome"),
            ),
            *_histograms("recall_seconds", "How long recalls took.", {(): self._recall_seconds[tenant]}),
            *_series("jobs", "gauge", "Background jobs.", [((("state", k),), v) for k, v in stats["jobs"].items()]),
            *_gauge("recordings_waiting", "Finished turns that wait in files.", stats["recordings_waiting"]),
            *_gauge("vectors_waiting", "Entries that wait for a vector.", stats["vectors_waiting"] or 0),
            *_gauge("open_turns", "Turns that clients of the API have open in this process.", open_turns),
            *_process(self._started_at),
        ]
        return "\n".join(lines) + "\n"

    def _request_counts(self, tenant: str) -> Iterator[tuple[_Labels, float]]:
        for one, count in sorted(self._requests.items()):
            if one.tenant == tenant:
                yield (("method", one.method), ("route", one.route), ("status", str(one.status))), count

    def _event_counts(self, tenant: str, kind: str, label: str) -> Iterator[tuple[_Labels, float]]:
        for (owner, counted, value), count in sorted(self._events.items()):
            if owner == tenant and counted == kind:
                yield ((label, value),), count


_Labels = tuple[tuple[str, str], ...]


def _process(started_at: float) -> Iterator[str]:
    """Under the names that Prometheus' own clients use."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield from _series("process_cpu_seconds_total", "counter", "CPU time.", [((), used.ru_utime + used.ru_stime)], "")
    yield from _series("process_start_time_seconds", "gauge", "Unix seconds.", [((), started_at)], "")
    yield from _gauge("process_threads", "Threads.", threading.active_count(), "")
    statm, descriptors = Path("/proc/self/statm"), Path("/proc/self/fd")
    if statm.exists():
        pages = int(statm.read_text(encoding="ascii").split()[1])
        yield from _gauge("process_resident_memory_bytes", "Memory.", pages * os.sysconf("SC_PAGE_SIZE"), "")
        yield from _gauge("process_open_fds", "Open files.", len(list(descriptors.iterdir())), "")


def _gauge(name: str, text: str, value: float, prefix: str = "afterturn_") -> Iterator[str]:
    return _series(name, "gauge", text, [((), value)], prefix)


def _series(
    name: str, kind: str, text: str, values: Iterable[tuple[_Labels, float]], prefix: str = "afterturn_"
) -> Iterator[str]:
    yield f"# HELP {prefix}{name} {text}"
    yield f"# TYPE {prefix}{name} {kind}"
    for labels, value in values:
        yield f"{prefix}{name}{_shown(labels)} {value:g}" if value < 1e6 else f"{prefix}{name}{_shown(labels)} {value}"


def _histograms(name: str, text: str, histograms: Mapping[_Labels, Histogram]) -> Iterator[str]:
    yield f"# HELP afterturn_{name} {text}"
    yield f"# TYPE afterturn_{name} histogram"
    for labels, histogram in sorted(histograms.items()):
        below = 0
        for limit, count in zip((*_BUCKETS, float("inf")), histogram.counts, strict=True):
            below += count
            shown = "+Inf" if limit == float("inf") else f"{limit:g}"
            yield f"afterturn_{name}_bucket{_shown((*labels, ('le', shown)))} {below}"
        yield f"afterturn_{name}_sum{_shown(labels)} {histogram.total:.6f}"
        yield f"afterturn_{name}_count{_shown(labels)} {below}"


def _shown(labels: _Labels) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels) + "}" if labels else ""
