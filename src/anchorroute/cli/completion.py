"""`anchorroute completion`: the script that teaches a shell to complete commands and options."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  anchorroute completion bash >> ~/.bashrc
    zsh:   anchorroute completion zsh  >> ~/.zshrc
    fish:  anchorroute completion fish > ~/.config/fish/completions/anchorroute.fish
    """
    from click.shell_completion import get_completion_class

    from anchorroute.cli import anchorroute

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell!r}; choose bash, zsh or fish")
    click.echo(kind(anchorroute, {}, "anchorroute", "_ANCHORROUTE_COMPLETE").source())
