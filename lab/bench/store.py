"""`make bench-store`: every figure in one run."""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

from lab.bench.adding import measure_adding
from lab.bench.importing import measure_importing
from lab.bench.report import Figure, Progress, Report, command_of, make_report
from lab.bench.rounds import FULL, QUICK, Scale
from lab.bench.starting import measure_import, measure_starting


def measure_store(*, quick: bool = False, progress: Progress = lambda step: None) -> Report:
    """Runs everything in a temporary folder. `quick` measures too little to mean anything: it shows the form."""
    command = command_of("store", "--quick" if quick else "")
    with tempfile.TemporaryDirectory(prefix="afterturn-bench-") as folder:
        figures = asyncio.run(_figures(Path(folder), QUICK if quick else FULL, progress))
        judged = [replace(figure, passed=None) for figure in figures] if quick else figures
        return make_report(command, judged, Path(folder))


async def _figures(folder: Path, scale: Scale, told: Progress) -> list[Figure]:
    return [
        *await measure_adding(folder, scale, told),
        *await measure_importing(folder, scale, told),
        await measure_starting(folder, scale, told),
        await asyncio.to_thread(measure_import, told),
    ]
