"""Counts the files between a user's message and its block, with `tools/walk.py`."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# One more than is usual: a poll of the background may fall into the walk.
FILES_MAX = 58
# One more than was seen: which call is the deepest depends on what is cached by then.
DEPTH_MAX = 16


def test_a_message_becomes_a_block_in_few_files_and_frames():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "walk.py", "--json"], check=True, capture_output=True, timeout=100
    )
    walk = json.loads(done.stdout)["a user message → its block"]
    assert walk["files"] <= FILES_MAX, walk["in order"]
    assert walk["depth"] <= DEPTH_MAX, walk["deepest"]
