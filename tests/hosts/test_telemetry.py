"""Memory's events as spans and metrics, with OpenTelemetry's own SDK and in-memory exporters."""

import asyncio
import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import afterturn
from afterturn import blocking
from afterturn.errors import AfterturnError, NotFound
from afterturn.hosts import telemetry
from afterturn.testing import EventLog
from afterturn.types import Event, Scalar


class TelemetryProviders:
    """Real OpenTelemetry providers, and the spans and metrics that they received."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meter_provider = MeterProvider([self._reader])

    def handler(
        self, then: Callable[[Event], None] | None = None, *, capture_content: bool = False
    ) -> Callable[[Event], None]:
        return telemetry.handler(self.tracer_provider, self.meter_provider, capture_content=capture_content, then=then)

    def host_span(self, name: str) -> Any:
        """The host's own span, as its current one."""
        return self.tracer_provider.get_tracer("host").start_as_current_span(name)

    def family(self) -> dict[str, list[str]]:
        """The names of the finished spans by the name of their parent, sorted; blank for those without one."""
        spans = self._exporter.get_finished_spans()
        names = {span.context.span_id: span.name for span in spans if span.context}
        found: dict[str, list[str]] = {}
        for span in spans:
            found.setdefault(names.get(span.parent.span_id, "?") if span.parent else "", []).append(span.name)
        return {parent: sorted(children) for parent, children in found.items()}

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def figures(self, name: str) -> dict[tuple[str, ...], float]:
        """By the values of its labels: what a counter counted, or the sum of a histogram."""
        data = self._reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        points = [
            point for scope in scopes for one in scope.metrics if one.name == name for point in one.data.data_points
        ]
        return {_labels(point): getattr(point, "value", getattr(point, "sum", None)) for point in points}

    def everything(self) -> str:
        data = self._reader.get_metrics_data()
        told = [span.to_json() for span in self._exporter.get_finished_spans()]
        return "\n".join([*told, data.to_json() if data else ""])


def _labels(point: Any) -> tuple[str, ...]:
    return tuple(str(value) for _, value in sorted(point.attributes.items()))


@pytest.fixture
def providers() -> Iterator[TelemetryProviders]:
    opened = TelemetryProviders()
    yield opened
    opened.tracer_provider.shutdown()
    opened.meter_provider.shutdown()


def event(name: str, at: float = 100.0, turn: str = "t1", **data: Scalar) -> Event:
    return Event(name, at, "default", "user:ada", "c1", turn, data)


def test_a_turn_is_a_span_and_its_recall_a_span_in_it(providers: TelemetryProviders) -> None:
    """§2: from the events alone, with their times."""
    see = providers.handler()
    see(event("turn_started", 100.0))
    see(event("recall_started", 100.25, correlation="r1"))
    see(event("recall_settled", 100.5, correlation="r1", milliseconds=250.0, memories=2, long_term=2, missing=""))
    see(event("handed_over", 100.75, point="user_message", memories=2, bytes=300, tokens=80))
    see(event("recall_ended", 100.75, correlation="r1", phase="fast", outcome="delivered", reason="user_message"))
    see(event("recorded", 102.0))
    (turn,), (recall,) = providers.spans("afterturn.turn"), providers.spans("afterturn.recall")
    assert turn.context is not None
    assert recall.parent is not None
    assert (recall.parent.span_id, turn.parent) == (turn.context.span_id, None)
    assert (turn.start_time, turn.end_time) == (100_000_000_000, 102_000_000_000)
    assert (recall.start_time, recall.end_time) == (100_250_000_000, 100_750_000_000)
    assert dict(turn.attributes or {}) == {
        "afterturn.tenant": "default",
        "afterturn.space": "user:ada",
        "afterturn.conversation": "c1",
        "afterturn.turn": "t1",
        "afterturn.outcome": "recorded",
    }
    assert (recall.attributes or {})["afterturn.outcome"] == "delivered"
    assert (recall.attributes or {})["afterturn.milliseconds"] == 250.0
    assert [one.name for one in turn.events] == ["afterturn.handed_over"]


def test_figures_are_counted_by_what_happened(providers: TelemetryProviders) -> None:
    """§2: recalls by outcome, sizes of what was handed over, how long recalls took, what became of turns."""
    see = providers.handler()
    for outcome in ("delivered", "delivered", "empty", "degraded"):
        see(event("recall_ended", phase="fast", outcome=outcome, reason="x"))
    see(event("recall_settled", milliseconds=12.5))
    see(event("recall_settled", milliseconds=7.5))
    see(event("handed_over", point="tool_result", bytes=300, tokens=80))
    see(event("recorded"))
    see(event("not_recorded", reason="no_final_answer"))
    see(event("turn_aborted", reason="left_with_exception"))
    see(event("turn_aborted", reason="request-4711"))
    see(event("recording_waits"))
    assert providers.figures("afterturn.recalls") == {
        ("delivered", "fast", "x"): 2,
        ("empty", "fast", "x"): 1,
        ("degraded", "fast", "x"): 1,
    }
    assert providers.figures("afterturn.recall.duration") == {(): 20.0}
    assert providers.figures("afterturn.handed_over.bytes") == {("tool_result",): 300}
    assert providers.figures("afterturn.handed_over.tokens") == {("tool_result",): 80}
    assert providers.figures("afterturn.turns") == {
        ("recorded",): 1,
        ("not_recorded", "no_final_answer"): 1,
        ("aborted",): 2,
    }
    assert providers.figures("afterturn.degraded") == {("recall_ended",): 1, ("recording_waits",): 1}


def test_both_phases_of_a_recall_become_spans_that_begin_with_it(providers: TelemetryProviders) -> None:
    """R7: the refined phase may end in another turn than the recall began in."""
    see = providers.handler()
    see(event("turn_started", 100.0))
    see(event("recall_started", 101.0, correlation="r1"))
    see(event("recall_ended", 102.0, correlation="r1", phase="fast", outcome="delivered"))
    see(event("recorded", 103.0))
    see(event("recall_ended", 110.0, "t2", correlation="r1", phase="refined", outcome="undelivered"))
    fast, refined = providers.spans("afterturn.recall")
    (turn,) = providers.spans("afterturn.turn")
    assert (fast.start_time, refined.start_time) == (101_000_000_000, 101_000_000_000)
    assert turn.context is not None
    assert [one.parent.span_id for one in (fast, refined) if one.parent] == [turn.context.span_id] * 2


def test_turns_and_recalls_that_never_end_take_bounded_memory(
    providers: TelemetryProviders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§2: the oldest make room, and their spans say that nobody knows what became of them."""
    monkeypatch.setattr(telemetry, "WAITING_MAX", 3)
    see = providers.handler()
    for number in range(10):
        see(event("turn_started", 100.0 + number, f"t{number}"))
        see(event("recall_started", 100.0 + number, f"t{number}", correlation=f"r{number}"))
    lost = providers.spans("afterturn.turn")
    assert [(span.attributes or {})["afterturn.turn"] for span in lost] == [f"t{number}" for number in range(7)]
    assert {(span.attributes or {})["afterturn.outcome"] for span in lost} == {"unknown"}
    see(event("recall_ended", 200.0, "t0", correlation="r0", outcome="cancelled"))
    (late,) = providers.spans("afterturn.recall")
    assert (late.start_time, late.end_time) == (200_000_000_000, 200_000_000_000)


def test_a_turn_that_is_started_twice_leaves_no_span_open(providers: TelemetryProviders) -> None:
    """§2: a host that retries, or a process that resumes a turn."""
    see = providers.handler()
    see(event("turn_started", 100.0))
    see(event("turn_started", 101.0))
    see(event("recorded", 102.0))
    assert [(span.attributes or {})["afterturn.outcome"] for span in providers.spans("afterturn.turn")] == [
        "unknown",
        "recorded",
    ]


def test_values_that_are_neither_names_nor_numbers_are_not_exported(providers: TelemetryProviders) -> None:
    """§2: an error's own words may hold a path or a text, so neither unknown keys nor sentences are copied."""
    see = providers.handler()
    see(event("turn_started", secret="tea"))
    see(event("handed_over", point="Ada likes oolong tea " * 9, bytes=1, tokens=1, paths="tea.md"))
    see(event("embedder_unavailable", reason="no file in the tea folder"))
    see(event("recall_ended", outcome="degraded", reason="no tea"))
    see(event("recorded"))
    assert len(providers.spans("afterturn.turn")) == 1
    assert "tea" not in providers.everything()


def test_events_without_a_turn_and_unknown_events_are_ignored(providers: TelemetryProviders) -> None:
    """§2: ends without a beginning, and whatever a later version tells."""
    see = providers.handler()
    for name in ("memory_opened", "recorded", "recall_settled", "recall_ended", "handed_over", "something_new"):
        see(Event(name, 1.0))
    assert providers.spans("afterturn.turn") == []
    assert providers.figures("afterturn.turns") == {("recorded",): 1}


def test_a_further_handler_gets_every_event(providers: TelemetryProviders) -> None:
    """§2: telemetry takes nobody's place."""
    log = EventLog()
    see = providers.handler(then=log)
    see(event("turn_started"))
    see(event("something_else"))
    assert [one.name for one in log.events] == ["turn_started", "something_else"]


def test_a_real_turn_comes_out_as_spans_and_figures_without_its_words(
    providers: TelemetryProviders, tmp_path: Path
) -> None:
    """§2: a memory with telemetry, from opening to closing; nothing that was said is in what came out."""
    log = EventLog()
    settings = {"embedder": "none", "grace": 10.0}
    with blocking.open(tmp_path / "memory.db", settings, on_event=providers.handler(then=log)) as memory:
        memory.space("user:ada").add("Ada drinks oolong")
        messages: list[dict[str, str]] = [{"role": "user", "content": "Which oolong does Ada drink?"}]
        with memory.conversation("c1", user="ada").turn(messages, id="t1") as turn:
            assert turn.inject(messages) is not None
            messages.append({"role": "assistant", "content": "The jade kind."})
        assert turn.wait_recorded(within=20.0)
        log.wait("recorded")
    (span,) = providers.spans("afterturn.turn")
    (recall,) = providers.spans("afterturn.recall")
    assert (span.attributes or {})["afterturn.outcome"] == "recorded"
    assert (recall.attributes or {})["afterturn.outcome"] == "delivered"
    assert providers.figures("afterturn.turns") == {("recorded",): 1}
    assert sum(providers.figures("afterturn.handed_over.bytes").values()) > 0
    assert not {"oolong", "jade", "drinks"} & set(providers.everything().split())
    assert "oolong" not in providers.everything()


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """§2: a clear error, and one that `except AfterturnError` catches."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(AfterturnError, match=r"afterturn\[otel\]") as caught:
        telemetry.handler()
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize("module", ["afterturn.memory", "afterturn.hosts.telemetry"])
def test_importing_loads_nothing_of_it(module: str) -> None:
    """§2: without telemetry, OpenTelemetry is not imported."""
    program = f"import sys, json, {module}; print(json.dumps([m for m in sys.modules if 'opentelemetry' in m]))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
    assert json.loads(done.stdout) == []


def test_without_providers_nothing_is_set_up_and_nothing_fails() -> None:
    """§2: nothing leaves the machine by itself."""
    program = textwrap.dedent("""
        import sys
        from afterturn.types import Event
        from afterturn.hosts import telemetry
        see = telemetry.handler()
        for name in ("turn_started", "recall_started", "recall_ended", "handed_over", "recorded"):
            see(Event(name, 1.0, "default", "user:ada", "c", "t", {"bytes": 1, "tokens": 1}))
        print([m for m in sys.modules if m.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))])
    """)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60, text=True)
    assert done.stdout == "[]\n"


GENAI_SETTINGS = {"embedder": "none", "grace": 10.0}
TURN_SPANS = ["afterturn.turn", "search_memory", "upsert_memory"]
KEY = "ghp_" + "a1B2c3D4e5F6" * 3


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def ask(memory: afterturn.Memory, conversation: str, text: str, answer: str = "Noted.") -> None:
    messages = [{"role": "user", "content": text}]
    async with memory.conversation(conversation, user="ada").turn(messages) as turn:
        await turn.inject(messages)
        messages.append({"role": "assistant", "content": answer})
    assert await turn.wait_recorded(within=20.0)


async def test_spans_of_concurrent_turns_are_children_of_the_hosts_own_spans(
    providers: TelemetryProviders, tmp_path: Path
) -> None:
    """§2: memory works on its own thread, but in the context of the call that it works for."""
    log = EventLog()

    async def serve(name: str) -> None:
        with providers.host_span(name):
            await ask(memory, name, f"Which oolong does {name} drink?")

    with providers.host_span("startup"):
        memory = await afterturn.open(tmp_path / "memory.db", GENAI_SETTINGS, on_event=providers.handler(log)).start()
    try:
        await memory.space("user:ada").add("Ada drinks oolong")
        await asyncio.gather(*(serve(f"request-{number}") for number in range(8)))
    finally:
        await memory.close()
    family = providers.family()
    assert {name: family[name] for name in family if name.startswith("request")} == {
        f"request-{number}": TURN_SPANS for number in range(8)
    }
    assert "startup" not in family
    assert family["afterturn.turn"] == ["afterturn.recall"] * 8
    assert family[""] == sorted(["create_memory", "startup", *(f"request-{number}" for number in range(8))])


def test_blocking_calls_in_threads_are_children_of_the_spans_of_these_threads(
    providers: TelemetryProviders, tmp_path: Path
) -> None:
    def work(number: int) -> None:
        with providers.host_span(f"thread-{number}"):
            ada = memory.space(f"user:ada-{number}")
            added = ada.add("Ada drinks oolong").entry
            ada.search("oolong")
            ada.update(added.id, "Ada drinks sencha")
            ada.delete(added.id)
            memory.conversation("c", user="ada").tools().dispatch("search_memory", {"query": "oolong"})

    with blocking.open(tmp_path / "memory.db", GENAI_SETTINGS, on_event=providers.handler()) as memory:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    operations = ["create_memory", "delete_memory", "search_memory", "search_memory", "update_memory"]
    family = providers.family()
    assert [family.get(f"thread-{number}") for number in range(4)] == [operations] * 4


def test_spans_of_verbs_name_the_operation_the_store_and_the_records(
    providers: TelemetryProviders, tmp_path: Path
) -> None:
    with blocking.open(tmp_path / "memory.db", GENAI_SETTINGS, on_event=providers.handler()) as memory:
        ada = memory.space("user:ada")
        added = ada.add("Ada drinks oolong").entry.id
        ada.add("Ada drinks sencha")
        ada.search("What does Ada drink?")
        ada.update(added, "Ada drinks oolong at noon")
        ada.forget(memory=added)
    (created, _), (searched,) = providers.spans("create_memory"), providers.spans("search_memory")
    (updated,), (deleted,) = providers.spans("update_memory"), providers.spans("delete_memory")
    common = {"afterturn.tenant": "default", "afterturn.space": "user:ada", "gen_ai.memory.store.id": "user:ada"}
    one = {**common, "gen_ai.memory.record.id": added, "gen_ai.memory.record.count": 1}
    assert attributes(created) == {**one, "gen_ai.operation.name": "create_memory"}
    assert attributes(updated) == {**one, "gen_ai.operation.name": "update_memory"}
    assert attributes(deleted)["gen_ai.memory.record.id"] == added
    assert attributes(searched) == {
        **common,
        "gen_ai.operation.name": "search_memory",
        "gen_ai.memory.record.count": 2,
    }
    assert {span.kind for span in (created, searched, updated, deleted)} == {SpanKind.INTERNAL}
    assert all(span.start_time and span.end_time and span.start_time < span.end_time for span in (created, searched))


def test_a_turn_searches_and_upserts_in_its_conversation(providers: TelemetryProviders) -> None:
    """From the events alone: the search ends with its result, the recording begins when the turn was left."""
    see = providers.handler()
    see(event("turn_started", 100.0))
    see(event("recall_started", 100.25, correlation="r1"))
    see(event("recall_settled", 100.5, correlation="r1", milliseconds=250.0, memories=2))
    see(event("recall_ended", 101.0, correlation="r1", phase="fast", outcome="delivered"))
    see(event("recall_ended", 101.0, correlation="r1", phase="refined", outcome="empty"))
    see(event("recorded", 102.5, records=3, ended_at=102.0))
    (searched,), (stored,) = providers.spans("search_memory"), providers.spans("upsert_memory")
    assert (searched.start_time, searched.end_time) == (100_250_000_000, 100_500_000_000)
    assert (stored.start_time, stored.end_time) == (102_000_000_000, 102_500_000_000)
    assert attributes(searched)["gen_ai.memory.record.count"] == 2
    assert attributes(stored)["gen_ai.memory.record.count"] == 3
    assert attributes(stored)["gen_ai.conversation.id"] == attributes(searched)["gen_ai.conversation.id"] == "c1"
    assert searched.status.status_code is StatusCode.UNSET


def test_what_is_learned_after_a_turn_is_an_upsert_below_the_span_of_the_turn(
    providers: TelemetryProviders, tmp_path: Path
) -> None:
    log = EventLog()
    with blocking.open(tmp_path / "memory.db", GENAI_SETTINGS, on_event=providers.handler(log)) as memory:
        with providers.host_span("request"):
            messages = [{"role": "user", "content": "Please call me Max from now on."}]
            with memory.conversation("c1", user="ada").turn(messages):
                messages.append({"role": "assistant", "content": "Hello Max."})
        log.wait("review_ended")
    stored = providers.spans("upsert_memory")
    assert providers.family()["request"] == ["afterturn.turn", "search_memory", "upsert_memory", "upsert_memory"]
    assert sorted(attributes(span)["gen_ai.memory.record.count"] for span in stored) == [1, 2]


def test_failures_have_the_type_of_the_error(providers: TelemetryProviders, tmp_path: Path) -> None:
    see = providers.handler()
    see(event("turn_started"))
    see(event("recall_started", correlation="r1"))
    see(event("recall_ended", correlation="r1", phase="fast", outcome="degraded", reason="timeout"))
    see(event("not_recorded", reason="the disk is full of tea", ended_at=99.0))
    see(event("tool_failed", tool="search_memory", reason="StoreLocked", milliseconds=1.0))
    with blocking.open(tmp_path / "memory.db", GENAI_SETTINGS, on_event=see) as memory, pytest.raises(NotFound):
        memory.space("user:ada").delete("06gy255g1vw9wdqn")
    failed = [*providers.spans("search_memory"), *providers.spans("upsert_memory"), *providers.spans("delete_memory")]
    assert [attributes(span)["error.type"] for span in failed] == ["timeout", "StoreLocked", "_OTHER", "NotFound"]
    assert {span.status.status_code for span in failed} == {StatusCode.ERROR}
    assert attributes(failed[-1])["gen_ai.memory.record.id"] == "06gy255g1vw9wdqn"
    assert "gen_ai.memory.record.count" not in attributes(failed[-1])


def test_a_turn_that_is_not_to_be_recorded_has_no_upsert(providers: TelemetryProviders) -> None:
    see = providers.handler()
    see(event("turn_started"))
    see(event("not_recorded", reason="incognito"))
    assert (len(providers.spans("afterturn.turn")), providers.spans("upsert_memory")) == (1, [])


async def use_memory(path: Path, see: Callable[[Event], None]) -> None:
    """Verbs, a turn, a tool, and a turn that is private."""
    async with afterturn.open(path, GENAI_SETTINGS, on_event=see) as memory:
        await memory.space("user:ada").add("Ada drinks oolong")
        await memory.space("user:ada").search(f"Does Ada drink oolong? My key is {KEY}.")
        await ask(memory, "c1", f"Which oolong does Ada drink? My key is {KEY}.")
        asked = {"query": f"Which oolong does Ada drink? My key is {KEY}."}
        await memory.conversation("c1", user="ada").tools().dispatch("search_memory", asked)
        messages = [{"role": "user", "content": "Which oolong does Ada drink on her secret island?"}]
        async with memory.conversation("c2", user="ada").turn(messages, incognito=True) as turn:
            await turn.inject(messages)
            messages.append({"role": "assistant", "content": "The island has oolong."})


async def test_texts_are_captured_only_by_opt_in_and_without_secrets(
    providers: TelemetryProviders, tmp_path: Path
) -> None:
    """G3: what leaves memory is filtered as for a model; nothing of an incognito turn is captured."""
    log = EventLog()
    await use_memory(tmp_path / "memory.db", providers.handler(log, capture_content=True))
    written = [attributes(span) for span in providers.spans("create_memory")]
    asked = [attributes(span) for span in providers.spans("search_memory")]
    (record,) = json.loads(written[0]["gen_ai.memory.records"])
    assert record == {"id": written[0]["gen_ai.memory.record.id"], "content": "Ada drinks oolong"}
    queries = [span.get("gen_ai.memory.query.text", "") for span in asked]
    assert ["oolong" in query for query in queries] == [True, True, True, False]
    assert ["oolong" in span.get("gen_ai.memory.records", "") for span in asked] == [True, True, True, False]
    assert KEY not in providers.everything()
    assert "island" not in providers.everything()
    assert all(isinstance(one.data, dict) and "oolong" not in str(one.data) for one in log.events)


async def test_by_default_no_text_is_captured_and_no_handler_gets_any(
    providers: TelemetryProviders, tmp_path: Path
) -> None:
    log = EventLog()
    await use_memory(tmp_path / "memory.db", providers.handler(log))
    assert len(providers.spans("search_memory")) == 4
    assert "oolong" not in providers.everything()
    assert {type(one) for one in log.events} == {Event}


async def test_captured_texts_are_not_kept_in_the_store(providers: TelemetryProviders, tmp_path: Path) -> None:
    await use_memory(tmp_path / "memory.db", providers.handler(capture_content=True))
    async with afterturn.open(tmp_path / "memory.db", GENAI_SETTINGS) as memory:
        kept = await memory.space("user:ada").trace()
    assert {"recall_settled", "tool_called"} <= {one.name for one in kept}
    assert "oolong" not in str(kept)
