"""`completion`: the script that lets a shell complete commands and options."""

import click
from click.shell_completion import get_completion_class

from afterturn.hosts.cli.command import Invocation, command

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_AFTERTURN_COMPLETE"


@command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(invocation: Invocation, shell: str) -> None:
    """Print the completion script of a shell.

    Add the first example to ~/.bashrc, or write the script where zsh or fish look for it.
    """
    found = get_completion_class(shell)
    assert found is not None
    script = found(click.Command("afterturn"), {}, "afterturn", _VARIABLE).source()
    invocation.answer({"shell": shell, "script": script}, script)
