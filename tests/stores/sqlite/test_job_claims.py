"""What a claim of jobs costs, however many wait."""

from pathlib import Path

import apsw

from afterturn.config import Config
from afterturn.runtime.clock import SystemClock
from afterturn.stores.sqlite.engine import Engine, open_engine

TENANTS = 100


def test_a_claim_takes_as_many_steps_with_a_thousand_times_the_jobs(tmp_path: Path) -> None:
    """C8: it reads the front of each index, and so does the question whether a job is due."""
    engine = open_engine(tmp_path / "memory.db", Config(), SystemClock())
    add_jobs(engine, 0, 20)
    few = count_steps(engine)
    add_jobs(engine, 20, 20_000)
    many = count_steps(engine)
    engine.close()
    assert min(few) > 0
    assert all(step <= 2 * before for step, before in zip(many, few, strict=True))


def add_jobs(engine: Engine, start: int, stop: int) -> None:
    """Of two kinds, of which one is never asked for."""

    def work(unit: object) -> None:
        session = unit._entries.session  # type: ignore[attr-defined]
        session.run_many(
            "INSERT INTO job (id, space_key, tenant, kind, payload, run_at, place) VALUES (?, ?, ?, ?, '{}', ?, ?)",
            [
                (f"{n:06d}", n % TENANTS, f"t{n % TENANTS}", ("embed", "review")[n % 2], float(n), 1 + n // TENANTS)
                for n in range(start, stop)
            ],
        )

    engine.write_now(work)


def count_steps(engine: Engine) -> tuple[int, int]:
    """The steps of SQLite's virtual machine for a claim, and for the question before it."""
    steps: list[int] = []

    def work(unit: object) -> None:
        connection = unit._entries.session._connection  # type: ignore[attr-defined]
        connection.trace_v2(
            apsw.SQLITE_TRACE_PROFILE, lambda event: steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])
        )
        unit.jobs.claim(["embed", "rules"], owner="me", now=1e6, lease=60.0, limit=4)  # type: ignore[attr-defined]
        unit.jobs.due_kinds(["embed", "rules"], now=1e6)  # type: ignore[attr-defined]
        connection.trace_v2(0, None)

    engine.write_now(work)
    claim, question = steps
    return claim, question
