"""`worker`: does the jobs that follow writes (embedding and the like), for processes that do none themselves."""

import signal
import threading
from types import FrameType

import click

from afterturn.base.errors import DeadlineExceeded
from afterturn.hosts.cli.command import command
from afterturn.hosts.cli.console import note
from afterturn.hosts.cli.document import print_document
from afterturn.hosts.cli.invocation import Invocation


@command(
    "worker",
    examples="""
    $ afterturn worker
    $ afterturn worker --once --within 60
    """,
)
@click.option("--once", is_flag=True, help="Do what there is to do, then end.")
@click.option(
    "--within", type=click.FloatRange(min=0), default=300.0, show_default=True, help="Seconds that --once may take."
)
def worker(invocation: Invocation, *, once: bool, within: float) -> None:
    """Run background jobs until told to stop.

    SIGTERM and Ctrl-C end it; what has begun is finished first. Several workers may share one store. The jobs of
    all tenants are done.
    """
    with invocation.memory(create=not once) as memory:
        if once:
            if not memory.drain(within=within):
                raise DeadlineExceeded(f"Jobs are left after {within:g} seconds. Run it again with more --within.")
            ended = "drained"
        else:
            note("Working. Ctrl-C ends it.")
            memory.work(_stop_signal().is_set)
            ended = "stopped"
    if invocation.json:
        print_document({"worker": ended})
    else:
        click.echo("Nothing is left to do." if once else "Stopped.")


def _stop_signal() -> threading.Event:
    stop = threading.Event()

    def set_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, set_stop)
    return stop
