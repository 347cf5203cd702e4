"""`anchorroute serve`: motion over HTTP."""

from __future__ import annotations

import click


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Other than this machine: a token is needed.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True)
@click.option("--token", envvar="ANCHORROUTE_TOKEN", help="What clients must send; made up when the host needs one.")
@click.option("--model", default="open", show_default=True, help="open, debug (random weights), or a folder.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, mps.")
@click.option("--batch", type=click.IntRange(1, 32), default=16, show_default=True, help="Requests computed together.")
@click.option("--waiting", type=click.IntRange(1, 10_000), default=128, show_default=True, help="Length of the queue.")
@click.option("--job-seconds", type=click.FloatRange(1), default=300.0, show_default=True, help="Limit of one job.")
def serve(host: str, port: int, token: str | None, model: str, device: str, **limits: float) -> None:
    """Answer HTTP: MMCP clients at /generate, everything else under /v1; the OpenAPI page is at /docs.

    \b
    anchorroute serve
    curl -s 'http://127.0.0.1:8000/v1/generate?answer=file' -H 'Content-Type: application/json' \\
        -d '{"text": "a person walks forward", "seconds": 4}' -o walk.glb
    """
    from anchorroute.server import running
    from anchorroute.server.limits import Limits

    chosen = running.chosen_token(host, token)
    bounds = Limits(
        batch=int(limits["batch"]), waiting=int(limits["waiting"]), job_seconds=float(limits["job_seconds"])
    )
    from anchorroute.pipeline import load

    pipe = load(model, device=device)
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"serving on http://{shown}:{port} (pages: /docs)" + (f"  token: {chosen}" if chosen else ""), err=True)
    running.serve(pipe, host, port, token=chosen, limits=bounds)
