"""The command line. `main` is the `afterturn` script; a command's module is loaded when the command is used."""

import sys


def main() -> None:
    try:
        from afterturn.hosts.cli.app import run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))
