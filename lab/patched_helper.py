"""Starts a helper of hooks with another value of a constant, so that nobody has to wait as long or send as much."""

import subprocess
import sys
from collections.abc import Mapping

_PROGRAM = """
import fcntl, os
import {module} as patched
from afterturn.hosts.hooks import client
patched.{constant} = {value}
folder, name = client.open_folder(), client.helper_name()
lock = os.open(os.path.join(folder, name + ".lock"), client.WRITE, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
client.main(["--serve", folder, name, str(lock)])
"""


def start_patched_helper(environment: Mapping[str, str], constant: str, value: float) -> subprocess.Popen[bytes]:
    """`constant` with its module, such as afterturn.hosts.hooks.daemon.IDLE_TIMEOUT."""
    module, _, name = constant.rpartition(".")
    program = _PROGRAM.format(module=module, constant=name, value=value)
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
