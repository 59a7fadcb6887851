"""A real Chromium, and a real `afterturn ui` whose link it opens."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

_ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
_WITHIN = 30.0


@contextlib.contextmanager
def serving_pages(store: Path, **variables: str) -> Iterator[str]:
    """`afterturn ui` as a process. Yields the link that opens a session. Afterwards shows what the server logged."""
    known: Mapping[str, str] = {**os.environ, "AFTERTURN_STORE": str(store), **variables}
    command = [sys.executable, "-m", "afterturn", "ui", "--no-browser"]
    with subprocess.Popen(command, env=known, cwd=store.parent, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert line.startswith("Open http://"), line
            serving = process.stderr.readline()
            assert serving.startswith("Serving http://"), serving
            yield line.split()[1]
        finally:
            process.terminate()
            print(process.stderr.read(), file=sys.stderr)
            process.wait(timeout=_WITHIN)


def start_browser(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=os.environ["CHROMIUM"], headless=True, args=_ARGUMENTS)
