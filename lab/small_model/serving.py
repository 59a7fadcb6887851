"""The small model behind an OpenAI-compatible server on loopback, in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from lab.small_model.obtaining import Small

# A review's prompt takes some 1,500 tokens; what a model of this size says after so many is of no use.
CONTEXT_TOKENS = 8192
ANSWER_TOKENS_MAX = 80
_READY = "listening: "


@contextlib.contextmanager
def serve(small: Small) -> Iterator[str]:
    """Gives the base URL. RuntimeError, with what the server said, when it does not start."""
    command = [sys.executable, "-m", "lab.small_model.serving", str(small.packages), str(small.model)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, encoding="utf-8"
        )
        try:
            yield f"{_address(process, said)}/v1"
        finally:
            # It ends when nobody holds its input any more.
            process.communicate()


def _address(process: subprocess.Popen[str], said: IO[bytes]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(_READY):
            return line.removeprefix(_READY).strip()
    said.seek(0)
    raise RuntimeError(f"The model's server did not start: {said.read()[-2000:].decode(errors='replace')}")


def main(packages: str, model: str) -> None:
    """The server's process: prints its address, and serves until its input ends."""
    sys.path.insert(0, packages)
    import xllamacpp  # type: ignore[import-not-found, unused-ignore]

    settings: Any = xllamacpp.CommonParams()
    settings.model.path = model
    settings.n_ctx = CONTEXT_TOKENS
    settings.n_predict = ANSWER_TOKENS_MAX
    settings.n_parallel = 1
    settings.use_jinja = True
    # Two threads that wait for each other take twenty times as long as one, on two cores that others use too.
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(settings)
    print(f"{_READY}{server.listening_address}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
