"""The examples of docs/http.md, run by a shell with curl against a real server."""

import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path

from served import make_token, serving

PAGE = Path(__file__).resolve().parents[3] / "docs" / "http.md"
FENCE = re.compile(r"```(sh|json)\n(.*?)```\n", re.DOTALL)


def test_the_examples_print_what_the_page_says(tmp_path: Path):
    fences = FENCE.findall(PAGE.read_text(encoding="utf-8"))
    run = [body for language, body in fences if language == "sh" and not body.startswith("afterturn")]
    expected = [
        (body, answer) for (language, body), (after, answer) in pairwise(fences) if language == "sh" and after == "json"
    ]
    assert len(expected) >= 3
    token = make_token("page")
    with serving(tmp_path) as server:
        # Each block prints a line before its own, so that its output can be found.
        script = "".join(f"echo '--- {number}'\n{body}" for number, body in enumerate(run))
        known = {"TOKEN": token, "URL": f"{server.url}/api/v1", "PATH": "/usr/local/bin:/usr/bin:/bin"}
        done = subprocess.run(
            ["bash", "-euc", script], env=known, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = dict(zip(run, re.split(r"--- \d+\n", done.stdout)[1:], strict=True))
    for body, answer in expected:
        pattern = ".*".join(map(re.escape, answer.strip().split("…")))
        assert re.fullmatch(pattern, printed[body].strip()), f"{body}\nprinted:\n{printed[body]}"
    rows = [json.loads(line) for line in (tmp_path / "export.jsonl").read_text(encoding="utf-8").splitlines() if line]
    assert len(rows) > 5
