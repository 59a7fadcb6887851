"""`python -m afterturn` is the `afterturn` command."""

from afterturn.hosts.cli import main

if __name__ == "__main__":
    main()
