"""A run that is told to end leaves nothing behind."""

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


@pytest.mark.parametrize("command", [("bench", "recall", "--only", "small"), ("eval", "--alone")])
def test_a_run_that_is_terminated_takes_its_folders_along(tmp_path: Path, command: tuple[str, ...]):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    files = () if command[0] == "bench" else (str(conversations(tmp_path)),)
    child = subprocess.Popen(
        [sys.executable, "-m", "afterturn.hosts.cli", *command, *files],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        while not list(temporary.glob("**/*.db")):
            try:
                pytest.fail(f"it ended with {child.wait(timeout=0.02)} before it had a store")
            except subprocess.TimeoutExpired:
                continue
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=60)
    assert (child.returncode, said.strip()) == (130, "afterturn: Interrupted.")
    assert list(temporary.iterdir()) == []
