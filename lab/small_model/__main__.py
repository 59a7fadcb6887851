"""`make small-model`: runs the trial with a real small model. Exit code 1 if a promise was broken."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from lab.small_model.serving import DownloadFailed, obtain, serve
from lab.small_model.trial import run_trial


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.small_model", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="The folder for the model files (200 MB).")
    parser.add_argument("--timeout", type=float, default=90.0, help="Seconds for one review (default: 90).")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    try:
        small = obtain(asked.folder)
    except DownloadFailed as error:
        print(f"The small model cannot be downloaded here, so NOTHING WAS TESTED. {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="afterturn-small-") as folder, serve(small) as url:
        print(f"SmolLM2-135M listens at {url}. It reviews four turns.")
        trial = asyncio.run(run_trial(Path(folder) / "memory.db", url, timeout=asked.timeout))
    for row in reversed(trial.reviews):
        refused = f", refused: {', '.join(row.refusals)}" if row.refusals else ""
        print(
            f"  {row.conversation} {row.state}: {row.written} written, {row.proposed} proposed{refused} "
            f"({row.calls} calls, {row.tokens} tokens{f', {row.reason}' if row.reason else ''})"
        )
    for entry in trial.learned:
        print(f"  {entry.status}: {entry.text}")
    for fault in trial.broken:
        print(f"BROKEN: {fault}")
    print("Nothing invalid was stored, and nothing was lost." if not trial.broken else "")
    return 1 if trial.broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
