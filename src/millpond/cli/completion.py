"""`millpond completion`: prints the shell script that completes commands, options, topics and groups."""

import click
from click.shell_completion import get_completion_class

PROGRAM = "millpond"
VARIABLE = "_MILLPOND_COMPLETE"


@click.command(
    epilog="\b\nInstall it:\n"
    "  bash   echo 'eval \"$(millpond completion bash)\"' >> ~/.bashrc\n"
    "  zsh    echo 'eval \"$(millpond completion zsh)\"' >> ~/.zshrc\n"
    "  fish   millpond completion fish > ~/.config/fish/completions/millpond.fish"
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these three"
    click.echo(kind(context.find_root().command, {}, PROGRAM, VARIABLE).source())
