"""`make stress`: runs seeds one after the other. Exit code 1 when one of them broke a promise."""

from __future__ import annotations

import argparse

from lab.stress.run import run_stress


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.stress", description=__doc__)
    parser.add_argument("--seeds", default="1-20", help="One seed, or a first and a last (default: 1-20).")
    parser.add_argument("--processes", type=int, default=3, help="How many at once (default: 3).")
    parser.add_argument("--steps", type=int, default=60, help="What each of them does (default: 60).")
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("-")
    failing = 0
    for seed in range(int(first), int(last or first) + 1):
        outcome = run_stress(seed, processes=asked.processes, steps=asked.steps)
        failing += bool(outcome.broken)
        done = ", ".join(f"{count} {what}" for what, count in sorted(outcome.done.items()))
        print(f"seed {seed}: {'BROKEN' if outcome.broken else 'ok'} ({done})", flush=True)
        for fault in outcome.broken[:20]:
            print(f"    {fault}", flush=True)
    print(f"{failing} seeds failed.")
    return 1 if failing else 0


if __name__ == "__main__":
    raise SystemExit(main())
