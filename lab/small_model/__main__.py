"""`make model`: the trial with the real small model, told line by line. Exit code 1 when a promise was broken."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from lab.small_model.serving import NotObtained, obtain, serve
from lab.small_model.trial import run_trial


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.small_model", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="Where the model is kept, 200 MB of it.")
    parser.add_argument("--timeout", type=float, default=90.0, help="Seconds for one review (default: 90).")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    try:
        small = obtain(asked.folder)
    except NotObtained as error:
        print(f"The small model can not be had here, so NOTHING WAS TRIED. {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="afterturn-small-") as folder, serve(small) as url:
        print(f"SmolLM2-135M listens at {url}; it reviews four turns.")
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
