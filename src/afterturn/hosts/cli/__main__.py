"""`python -m afterturn.hosts.cli` is `afterturn`."""

from afterturn.hosts.cli import main

main()
