"""`anchorroute studio`: author motion in the browser."""

from __future__ import annotations

import click


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Other than this machine: a token is asked for.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@click.option("--token", envvar="ANCHORROUTE_TOKEN", help="What browsers must enter; made up when the host needs one.")
@click.option("--model", default="open", show_default=True, help="Weights: open, debug, or a folder.")
@click.option("--open/--no-open", "browse", default=True, help="Open the page in a browser.")
def studio(host: str, port: int, token: str | None, model: str, browse: bool) -> None:
    """Author motion in the browser: prompt, anchors to drag, playback, export."""
    import threading
    import webbrowser

    from anchorroute.errors import RequestError

    try:
        from anchorroute.studio.app import Studio
    except ModuleNotFoundError as error:
        raise RequestError(
            f"the studio needs {error.name}, which is not installed: pip install 'anchorroute[studio]'"
        ) from error
    from anchorroute.pipeline import load

    running = Studio(load(model), host=host, port=port, token=token)
    click.echo(f"studio at {running.address}" + (f"  token: {running.token}" if running.token else ""))
    if browse:
        webbrowser.open(running.address)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        click.echo("saving and closing")
    finally:
        running.close()
