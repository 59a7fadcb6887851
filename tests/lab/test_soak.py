"""Many conversations at once for some seconds, and how the figures are computed. Times are not asserted."""

import pytest

from lab.slices import SqliteTarget
from lab.soak.__main__ import drift_of_p99, levels, run_seed, slope_per_hour


async def test_a_short_run_has_no_error_and_explains_its_file():
    outcome = await run_seed(
        1, SqliteTarget(), duration=3.0, conversations=20, pause=0.5, settings={"embedder": "none"}
    )
    assert outcome.broken == []
    assert outcome.counts["turns"] >= 20
    assert outcome.counts["reviews by the model"] > 0
    assert outcome.counts["blocks of objects, first"] > 100_000
    assert outcome.counts["blocks of objects, last"] > 100_000
    assert outcome.counts["bytes of the file"] > outcome.counts["bytes of entry"] > 0


def test_the_slope_leaves_out_the_warm_up_and_is_a_share_of_the_mean():
    at = [float(second) for second in range(0, 3600, 36)]
    warm_up = [1.0] * 20
    assert slope_per_hour(at, warm_up + [100.0] * 80) == pytest.approx(0.0, abs=1e-9)
    assert slope_per_hour(at, warm_up + [100.0 + second / 3600 for second in at[20:]]) == pytest.approx(1.0, rel=0.02)


def test_the_drift_compares_the_last_third_with_the_first_one():
    at = [float(number) for number in range(1000)]
    assert drift_of_p99(at, [1.0] * 1000) == 0.0
    assert drift_of_p99(at, [9.0] * 200 + [1.0] * 500 + [1.5] * 300) == pytest.approx(50.0)


def test_the_levels_leave_out_the_warm_up():
    assert levels([9.0] * 20 + [1.0] * 8 + [5.0] * 64 + [3.0] * 8) == (1.0, 3.0)
