"""A run that is interrupted or terminated leaves nothing behind."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def conversations(folder: Path) -> Path:
    items = [
        {"id": f"i{at}", "session": 1, "speaker": "Ada", "text": f"The lighthouse has {at} steps"} for at in range(400)
    ]
    questions = [
        {"qid": f"q{at}", "question": f"How many steps has lighthouse {at}?", "category": "x", "evidence": [f"i{at}"]}
        for at in range(400)
    ]
    path = folder / "talk.json.gz"
    path.write_bytes(gzip.compress(json.dumps([{"conv_id": "c", "items": items, "questions": questions}]).encode()))
    return path


BENCH, EVAL = ("lab.bench", "recall", "--size", "20000"), ("afterturn", "eval", "--alone")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command, stop, is_terminal",
    [(BENCH, signal.SIGTERM, False), (BENCH, signal.SIGINT, True), (EVAL, signal.SIGTERM, False)],
)
def test_a_terminated_run_removes_its_folders(tmp_path, command, stop, is_terminal):
    """A terminal tells all of its processes at once, a supervisor only the first."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    files = () if command is BENCH else (str(conversations(tmp_path)),)
    child = subprocess.Popen(
        [sys.executable, "-m", *command, *files],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with child:
        for _ in range(3000):
            if list(temporary.glob("**/*.db")):
                break
            try:
                pytest.fail(f"it ended with {child.wait(timeout=0.02)} before it had a store")
            except subprocess.TimeoutExpired:
                continue
        (os.killpg if is_terminal else os.kill)(child.pid, stop)
        _, said = child.communicate(timeout=60)
    assert child.returncode == 130, said
    assert said.splitlines()[-1].endswith("Interrupted.")
    assert list(temporary.iterdir()) == []
